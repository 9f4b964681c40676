use crate::error::{Failure, print_findings};
use crate::loading::{LoopFile, SettingFlags};
use crate::screen;
use dogwatch_config::Loaded;
use dogwatch_core::event::RunStarted;
use dogwatch_core::ids::RunId;
use dogwatch_core::input::Input;
use dogwatch_core::redact;
use dogwatch_host::driver::{Driver, Setup};
use dogwatch_host::home::{STATE_DIR, StateDir};
use dogwatch_host::lock::{Holder, Lock, LockError};
use dogwatch_host::{clock, journal, orphans};
use std::path::PathBuf;

/// Loop an agent over a prompt
///
/// PATH is a directory with a RALPH.md, or such a file: YAML frontmatter with the settings, and the
/// prompt. Every iteration runs the commands of the file, puts their output into the prompt, gives the
/// prompt to the agent on stdin and writes down what came of it.
///
/// Ctrl-C once lets the iteration finish and stops; twice interrupts the agent; three times kills it. In
/// a wait, Ctrl-C starts the next iteration at once, and twice stops.
///
/// Nothing the agent started is left running, however the run ends.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: see `dogwatch --help`. The record lies in .dogwatch/runs/.")]
pub struct Args {
    /// A directory with RALPH.md, or such a file
    path: PathBuf,
    #[command(flatten)]
    settings: SettingFlags,
    /// Print the events as JSON lines on stdout, and nothing else
    #[arg(long)]
    json: bool,
    /// Keep the record here instead of in .dogwatch
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Values for the loop's declared arguments: --name value, --name=value, or in order
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub fn run(args: Args) -> Result<u8, Failure> {
    let file = LoopFile::find(&args.path)?;
    let loaded = file.load(&args.settings.flags(), &args.args)?;
    print_findings(&loaded.warnings);
    file.find_agent(&loaded)?;

    let (mut lock, before) = take_lock(&file)?;
    let news = end_orphans(before)?;
    let now = clock::now();
    let run = RunId::new(now.wall, random()?);
    let nonce = journal::hex(&random::<16>()?);
    lock.sign(&holder(&run, &nonce))
        .map_err(|e| Failure::internal(format!("cannot write the lock file: {e}")))?;

    let state = StateDir::at(args.state_dir.unwrap_or_else(|| file.work_dir.join(STATE_DIR)));
    let run_dir = state.make_run(&run).map_err(|e| {
        Failure::with_hint(
            format!("cannot keep a record in {}: {e}", state.path().display()),
            "give another place with --state-dir",
        )
    })?;
    let run_dir = run_dir.canonicalize().unwrap_or(run_dir);
    let started = started(&file, &loaded, run)?;
    let mut front = screen::choose(args.json, &run_dir);
    let setup = Setup {
        started,
        run_dir,
        state_dir: state.path().to_owned(),
        work_dir: file.work_dir,
        loop_file: file.path,
        loop_text: file.text,
        lock,
        nonce,
    };
    let driver = Driver::new(setup, front.as_mut())
        .map_err(|e| Failure::internal(format!("cannot start the run: {e}")))?;
    driver.drive(news).map_err(|e| Failure::internal(format!("the run could not go on: {e}")))
}

fn take_lock(file: &LoopFile) -> Result<(Lock, Option<Holder>), Failure> {
    Lock::take(&file.work_dir, &file.path).map_err(|error| match error {
        LockError::Held(_) | LockError::HeldBySomebody | LockError::StillEnding(_) => {
            Failure::Held { message: error.to_string() }
        }
        LockError::Io { .. } => Failure::with_hint(
            error.to_string(),
            "dogwatch keeps its locks in $XDG_STATE_HOME/dogwatch, or ~/.local/state/dogwatch: it must be writable",
        ),
    })
}

/// The last run of this loop ended without a word: whatever it left is ended before anything starts.
fn end_orphans(before: Option<Holder>) -> Result<Vec<Input>, Failure> {
    let Some(holder) = before else { return Ok(Vec::new()) };
    if holder.boot_id != clock::boot_id() {
        return Ok(Vec::new());
    }
    match orphans::end_all(&holder.nonce) {
        (0, true) => Ok(Vec::new()),
        (n, true) => {
            let message = format!("{n} processes that run {} had left behind were ended", holder.run);
            Ok(vec![Input::Noticed { kind: "orphans_ended", message }])
        }
        (_, false) => Err(Failure::Held {
            message: format!("run {} left processes behind that cannot be ended", holder.run),
        }),
    }
}

fn holder(run: &RunId, nonce: &str) -> Holder {
    let pid = std::process::id();
    Holder {
        pid,
        start_time: orphans::start_time(pid).unwrap_or(0),
        boot_id: clock::boot_id(),
        run: run.clone(),
        since: clock::now().wall,
        nonce: nonce.to_owned(),
    }
}

fn started(file: &LoopFile, loaded: &Loaded, run: RunId) -> Result<RunStarted, Failure> {
    Ok(RunStarted {
        run,
        path: file.path.display().to_string(),
        work_dir: file.work_dir.display().to_string(),
        nodes: loaded.plan.nodes.iter().map(|n| n.name.clone()).collect(),
        agent: redact::argv(&loaded.plan.nodes[0].settings.agent).join(" "),
        settings: loaded.plan.clone(),
        boot_id: clock::boot_id(),
        pid: std::process::id(),
        dogwatch: env!("CARGO_PKG_VERSION").to_owned(),
        seed: u64::from_ne_bytes(random()?),
    })
}

fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| Failure::internal(format!("no randomness: {e}")))?;
    Ok(bytes)
}
