use crate::error::{CliError, print_line};
use crate::loading::{self, LoopFile};
use dogwatch_config::Flags;
use dogwatch_core::lease::Times;
use dogwatch_core::time::dur::Dur;
use dogwatch_fleet::FleetError;
use dogwatch_fleet::blocking::{self, Ended};
use dogwatch_fleet::join::{JoinLine, MAX_LINE};
use dogwatch_fleet::record::Job;
use dogwatch_fleet::worker::{Denied, MAX_SLOTS, Settings};
use dogwatch_host::store::{home, safe_file};
use dogwatch_host::sys::{SignalFd, block};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Run jobs of a fleet on this machine
///
/// Connects to the fleet's server, takes queued jobs and runs each as an ordinary dogwatch run in a checkout of its own.
/// Only outgoing connections are made. Stop it with Ctrl-C or SIGTERM: running jobs end, and other workers continue them.
/// A second Ctrl-C ends it at once, without giving the jobs back.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Join line from `dogwatch fleet join`, or a file that contains it
    #[arg(value_name = "JOINLINE")]
    join: String,
    /// How many jobs to run at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    slots: usize,
    /// Label that jobs may need (`submit --need`); repeatable
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,
    /// Repository whose jobs to run; `*` matches anything; repeatable
    #[arg(long = "allow-repo", value_name = "URL", required = true)]
    repositories: Vec<String>,
    /// Agent that jobs may use, e.g. claude; repeatable [default: any]
    #[arg(long = "allow-agent", value_name = "NAME", add = crate::completing::agents())]
    agents: Vec<String>,
    /// Directory for caches and checkouts [default: a directory of the user's state]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Length of a lease, for tests
    #[arg(long, value_name = "D", hide = true)]
    lease: Option<Dur>,
}

const AFTER_HELP: &str = "\
Examples:
  dogwatch work join.txt --allow-repo 'https://git.example.org/team/*'
  dogwatch work join.txt --slots 4 --label gpu --allow-repo '*'

A job runs the commands of its loop file on this machine. Allow only
repositories that you trust.";

/// The exit code of a worker that a second signal ended.
const ABANDONED: u8 = 130;

const JOIN_HELP: &str =
    "`dogwatch fleet join NAME --account ACCOUNT` on the machine of the fleet prints a join line";

/// Runs `dogwatch work` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let join = join_line(&args.join)?;
    if join.accounts.is_empty() {
        return Err(CliError::with_help(
            "the join line names no account",
            "get a worker's line with `dogwatch fleet join NAME --account ACCOUNT`",
        ));
    }
    if !(1..=MAX_SLOTS).contains(&args.slots) {
        return Err(CliError::usage(format!("--slots must be between 1 and {MAX_SLOTS}")));
    }
    let signals = signals().map_err(|e| CliError::internal(format!("cannot set up signals: {e}")))?;
    let default = || home::user_state_dir().join("work").join(join.user.as_str());
    let dir = args.dir.clone().unwrap_or_else(default);
    home::make_private(&dir).map_err(|e| {
        CliError::with_help(format!("cannot use {}: {e}", dir.display()), "choose another with --dir")
    })?;
    let dir = dir.canonicalize().unwrap_or(dir);
    let lock = only_one(&dir)?;
    let program = std::env::current_exe()
        .map_err(|e| CliError::internal(format!("cannot find the dogwatch executable: {e}")))?;
    let agents = args.agents.clone();
    let settings = Settings {
        slots: args.slots,
        labels: args.labels.clone(),
        repositories: args.repositories.clone(),
        allow: Arc::new(move |tree, job| allow(&agents, tree, job)),
        dir,
        program,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        times: args.lease.map_or(Times::STANDARD, Times::with_lease),
        join,
    };
    let (drain, drained) = blocking::drain();
    let watch = move || {
        wait(&signals);
        drain.start();
        wait(&signals);
        drain.abandon();
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(watch)
        .map_err(|e| CliError::internal(format!("cannot start a thread: {e}")))?;
    let name = settings.join.user.clone();
    let log = Arc::new(move |text: &str| print_line(&format!("{name}: {text}")));
    let ended = blocking::work(settings, log, drained).map_err(|error| failed(&error))?;
    drop(lock);
    Ok(match ended {
        Ended::Drained => 0,
        Ended::Abandoned => ABANDONED,
    })
}

/// Explains why a worker cannot work.
fn failed(error: &FleetError) -> CliError {
    match error {
        FleetError::Denied { .. } => CliError::with_help(
            error.to_string(),
            "the worker may have been revoked; get a new line with `dogwatch fleet join NAME --account ACCOUNT`",
        ),
        FleetError::Connect { .. }
        | FleetError::NoAnswer
        | FleetError::NoResponders
        | FleetError::Conflict
        | FleetError::Refused { .. }
        | FleetError::BadAnswer(_) => CliError::usage(error.to_string()),
    }
}

/// Locks the directory of a worker, and warns if another process has locked it.
fn only_one(dir: &Path) -> Result<File, CliError> {
    let path = dir.join("lock");
    let lock = safe_file::update(&path, safe_file::PRIVATE)
        .map_err(|e| CliError::usage(format!("cannot open {}: {e}", path.display())))?;
    if lock.try_lock().is_err() {
        print_line(&format!(
            "warning: another worker uses {}; give each worker a join line of its own, or another --dir",
            dir.display()
        ));
    }
    Ok(lock)
}

/// Reads a join line, or the file that contains it.
fn join_line(text: &str) -> Result<JoinLine, CliError> {
    let line = if text.starts_with("dogwatch+") {
        text.to_owned()
    } else {
        let mut line = String::new();
        let file = std::fs::File::open(text);
        file.and_then(|file| file.take(MAX_LINE as u64 + 1).read_to_string(&mut line)).map_err(|e| {
            CliError::with_help(format!("{text} is neither a join line nor a readable file: {e}"), JOIN_HELP)
        })?;
        line
    };
    line.parse().map_err(|e: dogwatch_fleet::join::JoinError| CliError::with_help(e.to_string(), JOIN_HELP))
}

/// Blocks the signals that end the worker, and returns a descriptor that reads them.
fn signals() -> std::io::Result<SignalFd> {
    let wanted = [Signal::INT, Signal::TERM, Signal::HUP];
    block(&wanted)?;
    SignalFd::new(&wanted)
}

fn wait(signals: &SignalFd) {
    loop {
        match signals.take() {
            Ok(Some(_)) | Err(_) => return,
            Ok(None) => {}
        }
        match poll(&mut [PollFd::new(signals, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Returns why a job may not run: it uses an agent that this worker does not allow.
fn allow(agents: &[String], tree: &Path, job: &Job) -> Result<(), Denied> {
    // Of a graph whose nodes are jobs of their own, no agent runs here.
    if job.spread || (agents.is_empty() && job.node.is_none()) {
        return Ok(());
    }
    let broken = |error: CliError| {
        Denied::Everywhere(format!("cannot read the settings of {}: {}", job.path, error.message()))
    };
    let mut file = LoopFile::find(&tree.join(&job.path)).map_err(broken)?;
    tree.clone_into(&mut file.work_dir);
    let flags = Flags { set: job.set.clone(), ..Flags::default() };
    let loaded = file.load(&flags, &job.args, false).map_err(broken)?;
    let only = job.node.as_ref().map(|node| node.node.as_str());
    let nodes = loaded.plan.nodes.iter().filter(|node| only.is_none_or(|only| node.name.as_str() == only));
    let nodes = nodes.map(|node| &node.settings);
    let used = nodes.flat_map(|node| {
        let fallback = node.recovery.agents.iter().map(|agent| &agent.agent);
        std::iter::once(&node.agent).chain(fallback)
    });
    for agent in used {
        let program = agent.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
        let program = program.to_string_lossy();
        if only.is_some() && !loading::program_exists(&agent[0], tree) {
            return Err(Denied::Here(format!("the agent `{program}` is not installed")));
        }
        if !agents.is_empty() && !agents.iter().any(|allowed| *allowed == program) {
            return Err(Denied::Here(format!("the agent `{program}` is not allowed")));
        }
    }
    Ok(())
}
