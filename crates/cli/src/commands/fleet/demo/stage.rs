//! The demo's directory and processes: a server, three workers, and a repository with one loop.

use super::super::dir::secret;
use super::super::kept::{Kept, Program};
use super::plot::{JOBS, SLOTS};
use crate::error::CliError;
use crate::supervise::random;
use dogwatch_fleet::names::JobId;
use dogwatch_fleet::record::{JOB_VERSION, Job};
use dogwatch_fleet::server::book::OPERATOR;
use dogwatch_fleet::server::{self as files, Book, Listen, User, config};
use dogwatch_fleet::{JoinLine, Name};
use dogwatch_host::store::journal::hex;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, PipeWriter};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The workers.
pub const WORKERS: [&str; 3] = ["anna", "bela", "carl"];
/// The length of a lease, in seconds. It is a tenth of the standard one, so that a takeover takes seconds.
pub const LEASE: u64 = 6;
/// The account of the jobs.
const ACCOUNT: &str = "demo";
/// How long a process may take to end before it is killed.
const GRACE: Duration = Duration::from_secs(3);
/// The steps of one agent, of 200 ms each.
const STEPS: usize = 15;
/// Removes the directory when no process of the demo is left: each of them holds the other end of stdin.
const REMOVE: &str = "trap '' HUP INT TERM; cat >/dev/null; rm -rf -- \"$1\"";

/// The directory and the processes of the demo.
pub struct Stage {
    dir: PathBuf,
    program: PathBuf,
    book: Book,
    server: Kept,
    workers: BTreeMap<&'static str, Kept>,
    held: PipeWriter,
    remover: Child,
}

fn cannot(what: &str) -> impl Fn(io::Error) -> CliError {
    move |error| {
        CliError::with_help(
            format!("cannot {what}: {error}"),
            "set TMPDIR to a writable directory for temporary files",
        )
    }
}

fn name(text: &str) -> Result<Name, CliError> {
    text.parse().map_err(|error: dogwatch_fleet::names::NameError| CliError::internal(error.to_string()))
}

impl Stage {
    /// Creates the directory with everything in it. Nothing is started but what removes it again.
    pub fn set(program: PathBuf) -> Result<Stage, CliError> {
        let dir = std::env::temp_dir().join(format!("dogwatch-fleet-{}", hex(&random::<4>()?)));
        let (ended, held) = io::pipe().map_err(cannot("set up the demo"))?;
        std::fs::DirBuilder::new().mode(0o700).create(&dir).map_err(cannot("make a directory"))?;
        let remover = Command::new("sh")
            .args(["-c", REMOVE, "sh"])
            .arg(&dir)
            .stdin(ended)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C must not reach it.
            .process_group(0)
            .spawn()
            .map_err(cannot("start sh"))?;
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = port.map_err(cannot("find a free port"))?.port();
        let listen = Listen { host: "127.0.0.1".to_owned(), port };
        let mut book = Book::new(name("demo")?, listen, name(OPERATOR)?, secret()?);
        for worker in WORKERS {
            let added = book.add_worker(name(worker)?, vec![name(ACCOUNT)?], secret()?);
            added.map_err(|error| CliError::internal(error.to_string()))?;
        }
        let server = Kept::new(Some(held.as_fd())).map_err(cannot("start a keeper"))?;
        let workers = BTreeMap::new();
        let stage = Stage { dir, program, book, server, workers, held, remover };
        stage.write_files().map_err(cannot("set up the demo"))?;
        Ok(stage)
    }

    fn write_files(&self) -> io::Result<()> {
        let quoted = |path: &Path| serde_json::to_string(&path.to_string_lossy());
        let text = format!(
            "listen: \"{}\"\njetstream: {{store_dir: {}, sync_interval: always}}\nauthorization: {{include \"{}\"}}\n",
            self.book.listen,
            quoted(&self.dir.join(files::DATA))?,
            files::USERS,
        );
        std::fs::write(self.dir.join(files::CONFIG), text)?;
        std::fs::write(self.dir.join(files::USERS), config::users(&self.book))
    }

    /// Returns where the server listens.
    pub fn address(&self) -> String {
        self.book.listen.to_string()
    }

    /// Starts the server, or starts it again.
    pub fn start_server(&mut self) -> Result<(), CliError> {
        let config = self.dir.join(files::CONFIG);
        let argv = [self.program.as_os_str(), OsStr::new("-c"), config.as_os_str()];
        let log = File::create(self.log("server")).map_err(cannot("write a log"))?;
        let program = Program { argv: &argv, env: &[], dir: &self.dir, log: log.as_fd() };
        self.server.start(&program).map_err(cannot("start nats-server"))
    }

    /// Kills the server.
    pub fn kill_server(&mut self) -> Result<(), CliError> {
        self.server.end(Duration::ZERO).map_err(cannot("kill the server"))
    }

    /// Starts a worker.
    pub fn start_worker(&mut self, worker: &'static str) -> Result<(), CliError> {
        let home = self.dir.join(worker);
        std::fs::create_dir(&home).map_err(cannot("make a directory"))?;
        let line = self.line(worker)?.to_string();
        let own = std::env::current_exe().map_err(cannot("find the dogwatch executable"))?;
        let (repo, work) = (self.repo(), home.join("work"));
        let (slots, lease) = (SLOTS.to_string(), format!("{LEASE}s"));
        let mut argv = vec![own.as_os_str()];
        argv.extend(["work", &line, "--slots", &slots, "--lease", &lease, "--allow-repo"].map(OsStr::new));
        argv.extend([repo.as_os_str(), OsStr::new("--dir"), work.as_os_str()]);
        // The user's settings must not change the demo, and the demo must not write to the home directory.
        let (config, state) = (home.join("config"), home.join("state"));
        let env = [("XDG_CONFIG_HOME", config.as_os_str()), ("XDG_STATE_HOME", state.as_os_str())];
        let log = File::create(self.log(worker)).map_err(cannot("write a log"))?;
        let program = Program { argv: &argv, env: &env, dir: &self.dir, log: log.as_fd() };
        let started =
            Kept::new(Some(self.held.as_fd())).and_then(|mut kept| kept.start(&program).map(|()| kept));
        self.workers.insert(worker, started.map_err(cannot("start a worker"))?);
        Ok(())
    }

    /// Kills a worker and everything that it started.
    pub fn kill_worker(&mut self, worker: &str) -> Result<(), CliError> {
        let Some(mut kept) = self.workers.remove(worker) else { return Ok(()) };
        kept.end(Duration::ZERO).map_err(cannot("kill a worker"))
    }

    /// Returns the processes, to wait for them.
    pub fn processes(&self) -> impl Iterator<Item = &Kept> {
        std::iter::once(&self.server).chain(self.workers.values())
    }

    /// Returns an error if a process ended by itself.
    pub fn check(&mut self) -> Result<(), CliError> {
        let server = std::iter::once(("server", &mut self.server));
        let workers = self.workers.iter_mut().map(|(name, kept)| (*name, kept));
        let mut ended = None;
        for (who, kept) in server.chain(workers) {
            if let Some(how) = kept.exited().map_err(cannot("follow a process"))? {
                ended = Some((who, how.to_owned()));
            }
        }
        let Some((who, how)) = ended else { return Ok(()) };
        let log = std::fs::read_to_string(self.log(who)).unwrap_or_default();
        let last = log.lines().last().unwrap_or("it printed nothing");
        Err(CliError::internal(format!("the {who} of the demo ended ({how}): {last}")))
    }

    fn log(&self, who: &str) -> PathBuf {
        self.dir.join(format!("{who}.log"))
    }

    fn repo(&self) -> PathBuf {
        self.dir.join("repo")
    }

    fn marks_file(&self) -> PathBuf {
        self.dir.join("marks")
    }

    /// Returns what the agents wrote about their work.
    pub fn marks(&self) -> String {
        std::fs::read_to_string(self.marks_file()).unwrap_or_default()
    }

    /// Returns the join line of the operator.
    pub fn operator(&self) -> Result<JoinLine, CliError> {
        self.line(OPERATOR)
    }

    fn line(&self, user: &str) -> Result<JoinLine, CliError> {
        let found = self.book.users.iter().find(|known| known.name.as_str() == user);
        let User { name, secret, accounts, .. } =
            found.ok_or_else(|| CliError::internal("the demo has no such user"))?.clone();
        Ok(JoinLine { servers: vec![self.address()], user: name, secret, accounts, ca: None })
    }

    /// Makes the repository, and returns the jobs.
    pub fn jobs(&self) -> Result<Vec<(JobId, Job)>, CliError> {
        let repo = self.repo();
        let own = std::env::current_exe().map_err(cannot("find the dogwatch executable"))?;
        let own = own.display().to_string().replace('\'', r"'\''");
        let agent = serde_json::to_string(&format!("'{own}' actor demo/agent.actor"));
        let agent = agent.map_err(|error| CliError::internal(error.to_string()))?;
        let loop_file = format!("---\nagent: {agent}\nargs: [job]\n---\n{{{{ args.job }}}}\n");
        let marks = self.marks_file().display().to_string();
        let marks = serde_json::to_string(&marks.replace('$', "$$"));
        let marks = marks.map_err(|error| CliError::internal(error.to_string()))?;
        let script = format!(
            "read-prompt\nappend {marks} start $prompt $pid\n\
             repeat {STEPS} {{\n  append {marks} step $prompt $pid\n  sleep 200ms\n}}\n\
             append result.md $prompt is done\nappend {marks} end $prompt $pid\nsay done\n"
        );
        let written = std::fs::create_dir_all(repo.join("demo"))
            .and_then(|()| std::fs::write(repo.join("demo/agent.actor"), script))
            .and_then(|()| std::fs::write(repo.join("demo/RALPH.md"), loop_file));
        written.map_err(cannot("write the repository"))?;
        git(&repo, &["init", "--quiet", "-b", "main"])?;
        git(&repo, &["add", "."])?;
        git(&repo, &["commit", "--quiet", "--no-verify", "-m", "the loop of the demo"])?;
        let commit = git(&repo, &["rev-parse", "HEAD"])?;
        let account = name(ACCOUNT)?;
        let one = |number: usize| -> Result<(JobId, Job), CliError> {
            let id = JobId { account: account.clone(), job: name(&format!("job-{number:02}"))? };
            let job = Job {
                v: JOB_VERSION,
                repo: repo.display().to_string(),
                commit: commit.clone(),
                path: "demo".to_owned(),
                args: vec![id.job.to_string()],
                set: Vec::new(),
                iterations: Some(1),
                account: account.clone(),
                min_version: None,
                needs: Vec::new(),
                timeout: None,
                scheduled: false,
                spread: false,
                node: None,
            };
            Ok((id, job))
        };
        (1..=JOBS).map(one).collect()
    }

    /// Ends every process and removes the directory. Returns whether nothing is left.
    pub fn clear(mut self) -> bool {
        let mut left = false;
        for kept in self.workers.values_mut().chain([&mut self.server]) {
            left |= kept.end(GRACE).is_err();
        }
        let Stage { dir, server, workers, held, mut remover, .. } = self;
        drop((server, workers, held));
        // It ends when the last keeper has ended.
        left |= remover.wait().is_err();
        !left && !dir.exists()
    }
}

fn git(dir: &Path, args: &[&str]) -> Result<String, CliError> {
    let mut command = Command::new("git");
    dogwatch_host::git::leave_tree(&mut command);
    let settings =
        ["user.name=demo", "user.email=demo@localhost", "commit.gpgSign=false", "core.hooksPath=/dev/null"];
    for setting in settings {
        command.args(["-c", setting]);
    }
    let out = command.args(args).current_dir(dir).stdin(Stdio::null()).output();
    let out = out.map_err(|error| match error.kind() == io::ErrorKind::NotFound {
        true => CliError::with_help("cannot find git", "install it, for example with `apt-get install git`"),
        false => CliError::internal(format!("cannot run git: {error}")),
    })?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned());
    }
    let why = dogwatch_core::text::one_line(&String::from_utf8_lossy(&out.stderr), 300);
    Err(CliError::internal(format!("git {} failed: {why}", args.first().unwrap_or(&""))))
}
