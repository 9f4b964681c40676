//! From a run that is ready to its end: the lock, the record, the API, the screen, the driver.

use crate::error::{Failure, warn};
use crate::run_handle::{Announcing, DriverHandle};
use crate::screen;
use dogwatch_core::Run;
use dogwatch_core::record::ids::RunId;
use dogwatch_core::run::input::Input;
use dogwatch_host::clock;
use dogwatch_host::driver::{Driver, Setup};
use dogwatch_host::process::orphans;
use dogwatch_host::store::journal::{self, Journal};
use dogwatch_host::store::lock::{Holder, Lock, LockError, Mark, Place};
use dogwatch_host::store::registry::{Alive, Pointer, Registry};
use dogwatch_server::{serve, socket_path};
use std::path::PathBuf;
use std::sync::Arc;

/// The exit code of a run that did its work but could not print what it was asked to.
const OUTPUT_LOST: u8 = 1;

/// A loop that nobody else is at.
pub struct Held {
    lock: Lock,
    nonce: String,
    /// Notices about the runs that held it before.
    notices: Vec<Input>,
}

/// Takes the loop for a run of this process. Leftover processes of earlier runs are ended first.
pub fn hold(place: Place<'_>, run: &RunId) -> Result<Held, Failure> {
    let nonce = journal::hex(&random::<16>()?);
    let holder = holder(run, &nonce);
    let (mut lock, before) = Lock::take(place, &holder).map_err(|error| refuse(&error))?;
    let notices = end_orphans(&before)?;
    lock.sign(&holder).map_err(|e| Failure::internal(format!("cannot write the lock file: {e}")))?;
    Ok(Held { lock, nonce, notices })
}

fn refuse(error: &LockError) -> Failure {
    let message = error.to_string();
    match error {
        LockError::Held(holder) => Failure::Held { message, run: Some(holder.run.clone()) },
        LockError::HeldUnsigned | LockError::StillEnding(_) => Failure::Held { message, run: None },
        LockError::Io { .. } => Failure::with_help(
            message,
            "dogwatch keeps its locks in $XDG_STATE_HOME/dogwatch, or ~/.local/state/dogwatch: it must be writable",
        ),
        LockError::StateDir { .. } => {
            Failure::with_help(message, "choose another directory with --state-dir")
        }
    }
}

fn end_orphans(before: &[Mark]) -> Result<Vec<Input>, Failure> {
    let mut notices = Vec::new();
    for mark in before.iter().filter(|mark| mark.boot_id == clock::boot_id()) {
        match orphans::end_all(&mark.nonce, mark.start_time) {
            (0, true) => {}
            (n, true) => {
                let message = format!("{n} processes that run {} had left behind were ended", mark.run);
                notices.push(Input::Noticed { kind: "orphans_ended", message });
            }
            (_, false) => {
                let message = format!("run {} left processes behind that cannot be ended", mark.run);
                return Err(Failure::Held { message, run: None });
            }
        }
    }
    Ok(notices)
}

/// A run that is ready to be driven.
pub struct Ready {
    pub run: Run,
    pub run_id: RunId,
    pub journal: Journal,
    pub run_dir: PathBuf,
    pub state_dir: PathBuf,
    pub work_dir: PathBuf,
    pub loop_file: PathBuf,
    pub loop_text: String,
    pub notices: Vec<Input>,
    pub json: bool,
}

/// Drives the run to its end; answers the exit code.
pub fn supervise(held: Held, ready: Ready) -> Result<u8, Failure> {
    let cannot = |what: &str| {
        let what = what.to_owned();
        move |e: std::io::Error| Failure::internal(format!("cannot {what}: {e}"))
    };
    let mut notices = held.notices;
    // A file system without locks: whether the run is alive is then told by its socket alone.
    let alive = Alive::hold(&ready.run_dir);
    if let Err(error) = &alive {
        let detail = format!("the run cannot be locked: {error}");
        notices.push(Input::TroubleMet { kind: "not_locked", detail });
    }
    register(&ready, &mut notices);
    notices.extend(ready.notices);

    let lost = screen::Lost::default();
    let mut reporter = Announcing::new(screen::choose(ready.json, &ready.run_dir, lost.clone()));
    let changed = reporter.changed();
    let run_dir = ready.run_dir.clone();
    let setup = Setup {
        run: ready.run,
        run_id: ready.run_id,
        journal: ready.journal,
        run_dir: ready.run_dir,
        state_dir: ready.state_dir,
        work_dir: ready.work_dir,
        loop_file: ready.loop_file,
        loop_text: ready.loop_text,
        lock: held.lock,
        nonce: held.nonce,
    };
    let driver = Driver::new(setup, &mut reporter).map_err(cannot("start the run"))?;
    let handle = Arc::new(DriverHandle::new(driver.inbox(), changed));
    // A run that cannot be spoken to is still a run.
    let served = match serve(socket_path(&run_dir), run_dir, handle) {
        Ok(served) => Some(served),
        Err(error) => {
            let detail = format!("the run cannot be reached by other commands: {error}");
            notices.push(Input::TroubleMet { kind: "no_socket", detail });
            None
        }
    };
    let code = driver.drive(notices).map_err(cannot("go on with the run"));
    drop(reporter);
    if let Some(served) = served {
        served.shut_down();
    }
    code.map(|code| with_output(code, &lost))
}

/// A run that did its work fails all the same if its output was lost; the record has all of it.
fn with_output(code: u8, lost: &screen::Lost) -> u8 {
    let Some(error) = lost.error() else { return code };
    warn(&format!("cannot write to stdout: {error}; `dogwatch events` prints what was lost"));
    if code == 0 { OUTPUT_LOST } else { code }
}

/// Where `ps` finds it. A run that is not in the list runs all the same.
fn register(ready: &Ready, notices: &mut Vec<Input>) {
    let pointer = Pointer {
        run: ready.run_id.clone(),
        run_dir: ready.run_dir.clone(),
        path: ready.loop_file.clone(),
        pid: std::process::id(),
        since: clock::now().wall,
    };
    if let Err(error) = Registry::of_user().add(&pointer) {
        let detail = format!("the run is not in the list of runs: {error}");
        notices.push(Input::TroubleMet { kind: "not_registered", detail });
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
        earlier: Vec::new(),
    }
}

pub fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| Failure::internal(format!("no randomness: {e}")))?;
    Ok(bytes)
}
