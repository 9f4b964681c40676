//! Sets everything up, in an order that loses no time: the keeper starts while the rest is prepared.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use dogwatch_agents::Listener;
use dogwatch_core::run::job::Leftovers;
use dogwatch_core::run::life::Life;
use dogwatch_core::watch::feed::Stream;
use dogwatch_core::watch::health::Health;
use rustix::process::Signal;

use super::copy::CopyState;
use super::record::Record;
use super::{Exec, ExecError, Phase, Plan};
use crate::absence::Absence;
use crate::clock;
use crate::fs::outputs;
use crate::fs::wake::PathWaker;
use crate::process::keeper::{Keeper, Order, StartOrder};
use crate::process::orphans;
use crate::store::home;
use crate::store::token::random_digits;
use crate::sys::{Clock, SignalFd, Timer, block, ignores};

/// The signals that are passed on to the command, and CONT, which shows that we were stopped.
const TAKEN: [Signal; 7] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::CONT];

pub(super) fn start(plan: Plan) -> Result<Exec, ExecError> {
    let json = plan.json.as_deref();
    let record = json.map(|path| {
        Record::open(path).map_err(|error| ExecError::Json { path: path.display().to_string(), error })
    });
    let record = record.transpose()?.unwrap_or_default();
    // Signals that are ignored stay ignored: HUP under nohup, INT in a background job of a shell script.
    let mut taken = TAKEN.to_vec();
    taken.retain(|signal| !ignores(*signal));
    block(&taken)?;
    let keeper = Keeper::start(None)?;
    let copy_state = CopyState::new(Listener::new(plan.reader))?;
    let workspace = plan.workspace.as_deref().map(|dir| watch(dir, json, &copy_state)).transpose()?;
    let merged = same_file();
    let mut exec = Exec {
        policy: plan.policy,
        reader: plan.reader,
        argv: plan.argv,
        record,
        keeper,
        nonce: nonce()?,
        copy_state,
        merged,
        workspace,
        trail: crate::fs::subagent_log::of(plan.reader, &here()),
        following: None,
        signals: SignalFd::new(&taken)?,
        timer: Timer::new(Clock::Awake)?,
        armed: None,
        phase: Phase::Tree,
        life: Life::default(),
        alone: false,
        main: None,
        started: clock::awake(),
        monitor: None,
        health: Health::default(),
        stop: None,
        passed: None,
        leftovers: Leftovers::default(),
        absence: Absence::new(),
        failed: None,
        said: Vec::new(),
    };
    exec.launch()?;
    Ok(exec)
}

impl Exec {
    fn launch(&mut self) -> io::Result<()> {
        let stdin = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let stdout = self.copy_state.copy(Stream::Stdout)?;
        // Our stdout and stderr are the same file. Two pipes would lose the order of the output.
        let stderr = if self.merged { stdout.try_clone()? } else { self.copy_state.copy(Stream::Stderr)? };
        let env =
            self.nonce.iter().map(|nonce| (orphans::NONCE_VAR.into(), Some(nonce.clone().into_bytes())));
        let order = StartOrder {
            job: 1,
            argv: self.argv.clone(),
            env: env.collect(),
            cwd: here(),
            stdio: [stdin, stdout, stderr],
        };
        match self.keeper.send(Order::Start(order)) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.fail(126, error.to_string()),
            Err(error) => self.lost(&error),
            Ok(()) => self.life.sent(clock::awake()),
        }
        // From here on only the command holds stdin. The process that feeds it must notice when the command stops
        // reading.
        let null = OwnedFd::from(std::fs::File::open("/dev/null")?);
        rustix::stdio::dup2_stdin(&null)?;
        Ok(())
    }
}

/// Returns the current directory. If it was removed, or its path cannot be read, it is still reachable through this
/// process.
fn here() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| PathBuf::from(format!("/proc/{}/cwd", std::process::id())))
}

fn same_file() -> bool {
    let [Ok(out), Ok(err)] = [rustix::stdio::stdout(), rustix::stdio::stderr()].map(rustix::fs::fstat) else {
        return false;
    };
    (out.st_dev, out.st_ino, out.st_rdev) == (err.st_dev, err.st_ino, err.st_rdev)
}

/// Returns a new nonce, or none inside a session of another dogwatch, which finds its processes by its own nonce.
fn nonce() -> io::Result<Option<String>> {
    if std::env::var_os(orphans::NONCE_VAR).is_some() {
        return Ok(None);
    }
    random_digits::<16>().map(Some)
}

/// Watches the workspace. Files that we write ourselves do not count: our state, the events, and output redirected to
/// files there.
fn watch(dir: &Path, json: Option<&Path>, copy_state: &CopyState) -> Result<PathWaker, ExecError> {
    let refused = |error| ExecError::Workspace { path: dir.display().to_string(), error };
    if !std::fs::metadata(dir).map_err(refused)?.is_dir() {
        return Err(refused(io::ErrorKind::NotADirectory.into()));
    }
    let written = outputs::own_files().into_iter().chain(json.map(Path::to_owned));
    let ours: Vec<PathBuf> = written.chain([home::user_state_dir()]).collect();
    let copy_state = copy_state.clone();
    PathWaker::watch_tree(dir, &ours, move |digest| copy_state.workspace_changed(digest)).map_err(refused)
}
