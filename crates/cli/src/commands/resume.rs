use crate::error::CliError;
use crate::loading::LoopFile;
use crate::runs::{FoundRun, Which};
use crate::sandboxing;
use crate::screen::{Show, ShowFlags, words};
use crate::secrets;
use crate::supervise::{Ready, hold, supervise};
use dogwatch_core::Run;
use dogwatch_core::record::event::{RunResumed, RunStarted};
use dogwatch_core::record::view::View;
use dogwatch_core::run::ResumeError;
use dogwatch_core::run::input::Input;
use dogwatch_host::clock;
use dogwatch_host::store::home::StateDir;
use dogwatch_host::store::journal::{Journal, Loaded, repair};
use dogwatch_host::store::lock::Place;
use dogwatch_host::store::windows::WindowStore;
use std::path::Path;

/// Unpause a run, or continue one whose supervisor died
///
/// A live run starts its next iteration. A run whose supervisor was killed continues in this terminal with the same
/// run id, settings and budgets. The interrupted iteration is not counted, a wait continues where it was, and a
/// paused run stays paused. Without RUN, the newest paused run is resumed, or else the newest run whose supervisor died.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    show: ShowFlags,
}

/// Runs `dogwatch resume` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let found = args.which.find_resumable()?;
    match found.post("resume", &()) {
        Ok(()) => super::print(format!("resumed run {}\n", found.id).as_bytes()),
        // The run is dead, or died during the request.
        Err(_) if !found.is_live() => continue_run(&found, false, args.show.show()),
        Err(failure) => Err(failure),
    }
}

/// Continues a run from its record. With `wake`, also a run that is asleep.
pub fn continue_run(found: &FoundRun, wake: bool, show: Show) -> Result<u8, CliError> {
    let started = started(found)?;
    let (work_dir, loop_file) = (Path::new(&started.work_dir), Path::new(&started.path));
    std::env::set_current_dir(work_dir).map_err(|e| {
        CliError::usage(format!("cannot enter the directory {} of the run: {e}", work_dir.display()))
    })?;
    let file = LoopFile::find(loop_file)?;
    // Take the lock before reading the record. Without it another process may still append to the record.
    let state_dir = StateDir::at(found.state_dir());
    let held = hold(Place { work_dir, loop_file, state_dir: &state_dir }, &found.id)?;
    let loaded = found.record()?;
    let mut notices = repair_record(found, &loaded)?;
    notices.extend(settings_notice(&started, &file));
    let resumed = RunResumed {
        run: found.id.clone(),
        boot_id: clock::boot_id(),
        pid: std::process::id(),
        dogwatch: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let plan = secrets::kept(&found.dir);
    let mut run =
        Run::resume(View::fold(&loaded.events), plan, resumed, wake).map_err(|why| refuse(found, &why))?;
    run.know_windows(WindowStore::of_user().of_plan(run.plan()));
    let hidden = secrets::of(run.plan());
    notices.extend(sandboxing::examine(run.plan())?);
    let run = run.filtered(Box::new(|event| hidden.hide_in(event)));
    let journal = Journal::reopen(&found.dir, &loaded)
        .map_err(|e| CliError::usage(format!("cannot append to the record of run {}: {e}", found.id)))?;
    let ready = Ready {
        run,
        run_id: found.id.clone(),
        journal,
        run_dir: found.dir.clone(),
        state_dir: found.state_dir(),
        work_dir: file.work_dir,
        loop_file: file.path,
        loop_text: file.text,
        notices,
        show,
        log_dir: None,
    };
    supervise(held, ready)
}

/// Returns how the run was started.
fn started(found: &FoundRun) -> Result<RunStarted, CliError> {
    found.view()?.started.ok_or_else(|| refuse(found, &ResumeError::NeverStarted))
}

/// Cuts off a torn last line and saves it in a file. Reports that and a broken chain as trouble; neither ends the run.
fn repair_record(found: &FoundRun, loaded: &Loaded) -> Result<Vec<Input>, CliError> {
    let aside = repair(&found.dir, loaded)
        .map_err(|e| CliError::usage(format!("cannot repair the record of run {}: {e}", found.id)))?;
    let torn = aside.map(|path| Input::TroubleMet {
        kind: "torn_record",
        detail: format!(
            "the last line of the record was torn; {} of it saved in {}",
            words::count(loaded.torn.len() as u64, "byte"),
            path.display()
        ),
    });
    let broken = loaded.broken_chain.map(|line| Input::TroubleMet {
        kind: "record_changed",
        detail: format!("line {line} of the record does not continue the chain: the record was changed"),
    });
    Ok(torn.into_iter().chain(broken).collect())
}

/// Returns a notice if the settings of the loop file have changed since the start of the run.
fn settings_notice(started: &RunStarted, file: &LoopFile) -> Option<Input> {
    (started.settings_sha256 != file.settings_sha256()).then(|| Input::Noticed {
        kind: "settings_changed",
        message: format!(
            "the settings in {} changed; this run keeps the settings it started with",
            started.path
        ),
    })
}

/// Returns the error for a run that cannot be resumed.
fn refuse(found: &FoundRun, why: &ResumeError) -> CliError {
    let id = &found.id;
    match why {
        ResumeError::NeverStarted => CliError::with_help(
            format!("run {id} died before it started"),
            "start a new run with `dogwatch run`",
        ),
        ResumeError::Ended(outcome) => CliError::with_help(
            format!("run {id} has ended ({outcome})"),
            "start a new run with `dogwatch run`",
        ),
        ResumeError::Asleep => CliError::with_help(
            format!("run {id} is asleep: it had nothing to do"),
            format!("wake it with `dogwatch wake {id}`"),
        ),
    }
}
