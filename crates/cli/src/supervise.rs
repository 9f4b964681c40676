//! Supervises a run to its end: connects the lock, the record, the API, the screen and the driver.

use crate::error::{CliError, warn};
use crate::local;
use crate::log_dir::LogDir;
use crate::run_handle::{Announcing, DriverHandle};
use crate::screen::{self, Show, words};
use dogwatch_core::record::ids::RunId;
use dogwatch_core::run::input::Input;
use dogwatch_host::clock;
use dogwatch_host::driver::{Driver, Setup};
use dogwatch_host::process::orphans;
use dogwatch_host::store::journal::{self, Durability, End, Journal};
use dogwatch_host::store::lock::{Holder, Lock, LockError, Mark, Place, Taken};
use dogwatch_host::store::registry::{Alive, Pointer, Registry};
use dogwatch_server::{serve, socket_path};
use std::sync::Arc;

/// The exit code of a successful run whose output could not be printed.
const OUTPUT_LOST: u8 = 1;

/// A loop that this process has locked.
pub struct Held {
    pub lock: Lock,
    pub nonce: String,
    /// Notices about earlier runs of the loop.
    pub notices: Vec<Input>,
}

/// Locks the loop for a run of this process. Kills leftover processes of earlier runs first.
pub fn hold(place: Place<'_>, run: &RunId) -> Result<Held, CliError> {
    let nonce = journal::hex(&random::<16>()?);
    let holder = holder(run, &nonce);
    let Taken { mut lock, earlier } = Lock::take(place, &holder).map_err(|error| refuse(&error))?;
    let notices = end_orphans(&earlier)?;
    lock.sign(&holder).map_err(|e| CliError::internal(format!("cannot write the lock file: {e}")))?;
    Ok(Held { lock, nonce, notices })
}

/// Converts a lock error into the error of the command.
fn refuse(error: &LockError) -> CliError {
    let message = error.to_string();
    match error {
        LockError::Held(holder) => {
            CliError::Held { message: local::times(&message), stop: Some(stop_command(holder)) }
        }
        LockError::HeldUnsigned | LockError::StillEnding(_) => CliError::Held { message, stop: None },
        LockError::Io { .. } => CliError::with_help(
            message,
            "dogwatch keeps its locks there; make it writable, or set XDG_STATE_HOME to another directory",
        ),
        LockError::StateDir { .. } => {
            CliError::with_help(message, "choose another directory with --state-dir")
        }
    }
}

/// Returns the command that stops the run. A run whose record was removed reacts only to signals.
fn stop_command(holder: &Holder) -> String {
    match Registry::of_user().has_lost(&holder.run) {
        true => format!("kill {}", holder.pid),
        false => format!("dogwatch stop {}", holder.run),
    }
}

/// Kills the orphans of earlier runs since the last boot. Returns a notice for each run that had some.
fn end_orphans(before: &[Mark]) -> Result<Vec<Input>, CliError> {
    let mut notices = Vec::new();
    for mark in before.iter().filter(|mark| mark.boot_id == clock::boot_id()) {
        match orphans::end_all(&mark.nonce, mark.start_time) {
            (0, true) => {}
            (n, true) => {
                let processes = words::count(n as u64, "leftover process");
                let message = format!("killed {processes} of run {}", mark.run);
                notices.push(Input::Noticed { kind: "orphans_ended", message });
            }
            (_, false) => {
                let message = format!("cannot kill the leftover processes of run {}", mark.run);
                return Err(CliError::Held { message, stop: None });
            }
        }
    }
    Ok(notices)
}

/// A run that is ready to start.
pub struct Ready {
    pub setup: Setup,
    /// The lock of the run, if it is held already.
    pub alive: Option<Alive>,
    /// What the record gets first.
    pub notices: Vec<Input>,
    pub show: Show,
    /// The directory that gets a copy of each iteration's output.
    pub log_dir: Option<LogDir>,
    /// Whether the head of the journal is kept in the registry.
    pub keeps_head: bool,
}

/// Keeps the head of a run's journal in the registry, and the hash of its unredacted plan. A failure is only reported.
pub fn keep_head(
    run: &RunId,
    journal: Journal,
    (end, plan): (Option<End>, Option<String>),
    durability: Durability,
    notices: &mut Vec<Input>,
) -> (Journal, bool) {
    match Registry::of_user().keep_head(run, end, plan, durability) {
        Ok(head) => (journal.keeping(head), true),
        Err(error) => {
            let detail = format!("changes of the record cannot be detected later: {error}");
            notices.push(Input::TroubleMet { kind: "head_not_kept", detail });
            (journal, false)
        }
    }
}

/// Drives the run to its end and returns the exit code.
pub fn supervise(ready: Ready) -> Result<u8, CliError> {
    let cannot = |what: &str| {
        let what = what.to_owned();
        move |e: std::io::Error| CliError::internal(format!("cannot {what}: {e}"))
    };
    let Ready { setup, alive, notices: given, show, log_dir, keeps_head } = ready;
    let mut notices = Vec::new();
    // On a file system without locks only the socket shows that the run is live.
    let alive = alive.map_or_else(|| Alive::hold(&setup.run_dir), Ok);
    if let Err(error) = &alive {
        let detail = format!("cannot lock the run: {error}");
        notices.push(Input::TroubleMet { kind: "not_locked", detail });
    }
    register(&setup, keeps_head, &mut notices);
    notices.extend(given);

    let lost = screen::Lost::default();
    let screen = screen::choose(show, &setup.run_dir, lost.clone());
    let screen = match log_dir {
        Some(logs) => logs.copying(screen, &setup.run_dir),
        None => screen,
    };
    let mut reporter = Announcing::new(screen);
    let changed = reporter.changed();
    let (run_dir, nonce) = (setup.run_dir.clone(), setup.nonce.clone());
    let driver = Driver::new(setup, &mut reporter).map_err(cannot("start the run"))?;
    let handle = Arc::new(DriverHandle::new(driver.inbox(), changed, nonce));
    // Without a socket the run still works. It only cannot be steered.
    let served = match serve(socket_path(&run_dir), run_dir, handle) {
        Ok(served) => Some(served),
        Err(error) => {
            let detail = format!("other commands cannot reach the run: {error}");
            notices.push(Input::TroubleMet { kind: "no_socket", detail });
            None
        }
    };
    let code = driver.drive(notices).map_err(cannot("continue the run"));
    drop(reporter);
    if let Some(served) = served {
        served.shut_down();
    }
    code.map(|code| with_output(code, &lost))
}

/// Returns a failure for a successful run whose output was lost. The record is complete.
fn with_output(code: u8, lost: &screen::Lost) -> u8 {
    let Some(error) = lost.error() else { return code };
    warn(&format!("cannot write to stdout: {error}; `dogwatch events` prints what was lost"));
    if code == 0 { OUTPUT_LOST } else { code }
}

/// Adds the run to the list that `ps` shows. A failure is only reported.
fn register(setup: &Setup, keeps_head: bool, notices: &mut Vec<Input>) {
    let pointer = Pointer {
        run: setup.run_id.clone(),
        run_dir: setup.run_dir.clone(),
        path: setup.loop_file.clone(),
        pid: std::process::id(),
        since: clock::now().wall,
        head: keeps_head,
        origin: None,
    };
    if let Err(error) = Registry::of_user().add(&pointer) {
        let detail = format!("cannot add the run to the list of runs: {error}");
        notices.push(Input::TroubleMet { kind: "not_registered", detail });
    }
}

/// Describes this process for the lock file.
fn holder(run: &RunId, nonce: &str) -> Holder {
    let pid = std::process::id();
    Holder {
        pid,
        start_time: orphans::start_time(pid).unwrap_or(0),
        boot_id: clock::boot_id(),
        run: run.clone(),
        since: clock::now().wall,
        nonce: nonce.to_owned(),
        earlier: Vec::new(),
    }
}

/// Returns random bytes from the operating system.
pub fn random<const N: usize>() -> Result<[u8; N], CliError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| CliError::internal(format!("cannot get random bytes: {e}")))?;
    Ok(bytes)
}
