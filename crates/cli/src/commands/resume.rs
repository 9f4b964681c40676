use crate::error::CliError;
use crate::loading::LoopFile;
use crate::runs::{FoundRun, Which};
use crate::sandboxing;
use crate::screen::{Show, ShowFlags, words};
use crate::secrets;
use crate::supervise::{Ready, hold, keep_head, supervise};
use dogwatch_core::Run;
use dogwatch_core::record::event::{RunResumed, RunStarted};
use dogwatch_core::record::view::View;
use dogwatch_core::run::ResumeError;
use dogwatch_core::run::input::Input;
use dogwatch_host::clock;
use dogwatch_host::store::home::StateDir;
use dogwatch_host::store::journal::{Integrity, Journal, Loaded, repair};
use dogwatch_host::store::lock::Place;
use dogwatch_host::store::registry::{Alive, Pointer, Registry};
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
    /// Continue a run that is not yours or whose record was changed
    #[arg(long)]
    adopt: bool,
}

/// Runs `dogwatch resume` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let found = args.which.find_resumable()?;
    let adopted = if args.adopt && !found.is_live() { Some(adopt(&found)?) } else { None };
    match found.post("resume", &()) {
        Ok(()) => super::print(format!("resumed run {}\n", found.id).as_bytes()),
        // The run is dead, or died during the request.
        Err(_) if !found.is_live() => continue_run(&found, false, adopted, args.show.show()),
        Err(failure) => Err(failure),
    }
}

/// Adds a run to the user's registry, with its record as it is now. Returns whether it was as dogwatch wrote it.
fn adopt(found: &FoundRun) -> Result<Integrity, CliError> {
    let (record, integrity) = found.judged_record()?;
    let registry = Registry::of_user();
    let view = View::fold(&record.events);
    let path = view.started.map(|started| started.path.into());
    let path = path.ok_or_else(|| refuse(found, &ResumeError::NeverStarted))?;
    let (run, run_dir, pid, since) = (found.id.clone(), found.dir.clone(), 0, clock::now().wall);
    let pointer = Pointer { run, run_dir, path, pid, since, head: true };
    let plan = secrets::kept(&found.dir).map(|(_, hash)| hash);
    let adopted = registry.keep_head(&found.id, Some(record.chain.end().clone()), plan);
    adopted
        .and_then(|_| registry.add(&pointer))
        .map_err(|e| CliError::usage(format!("cannot add run {} to your list of runs: {e}", found.id)))?;
    Ok(integrity)
}

/// Returns an error unless this user's registry knows the run. A run contains commands, so a record that an agent or
/// another user made must not be continued by accident.
fn refuse_unknown(found: &FoundRun) -> Result<(), CliError> {
    if Registry::of_user().knows(&found.id, &found.dir) {
        return Ok(());
    }
    Err(adoptable(
        found,
        format!("run {} is not in your list of runs; you may not have started it", found.id),
    ))
}

fn adoptable(found: &FoundRun, message: String) -> CliError {
    let id = &found.id;
    CliError::with_help(
        message,
        format!(
            "look at its settings with `dogwatch events {id}`; if you trust them, run `dogwatch resume {id} --adopt`"
        ),
    )
}

/// Continues a run from its record. With `wake`, also a run that is asleep. `adopted` says how the record of a run was
/// that the operator adopted.
pub fn continue_run(
    found: &FoundRun,
    wake: bool,
    adopted: Option<Integrity>,
    show: Show,
) -> Result<u8, CliError> {
    refuse_unknown(found)?;
    let started = started(found)?;
    let (work_dir, loop_file) = (Path::new(&started.work_dir), Path::new(&started.path));
    std::env::set_current_dir(work_dir).map_err(|e| {
        CliError::usage(format!("cannot enter the directory {} of the run: {e}", work_dir.display()))
    })?;
    let file = LoopFile::find(loop_file)?;
    // Take the lock before reading the record. Without it another process may still append to the record.
    let state_dir = StateDir::at(found.state_dir());
    let held = hold(Place { work_dir, loop_file, state_dir: &state_dir }, &found.id)?;
    // The record of a live run is judged less strictly, so judge this one before the run's own lock is taken.
    let (_, integrity) = found.judged_record()?;
    // A label of a stop may be appended without the lock of the loop, but not without this one.
    let alive = Alive::hold(&found.dir).ok();
    let (loaded, _) = found.judged_record()?;
    if let Some(problem) = integrity.problem().filter(|_| integrity.is_changed() && adopted.is_none()) {
        return Err(adoptable(found, format!("run {}: {problem}", found.id)));
    }
    let mut notices = repair_record(found, &loaded)?;
    notices.extend(record_notice(adopted.as_ref().unwrap_or(&integrity)));
    notices.extend(settings_notice(&started, &file));
    let resumed = RunResumed {
        run: found.id.clone(),
        boot_id: clock::boot_id(),
        pid: std::process::id(),
        dogwatch: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let (plan, plan_hash) = secrets::kept(&found.dir).unzip();
    let head = Registry::of_user().known_head(&found.id, &found.dir).ok().flatten();
    if head.is_some_and(|head| head.plan() != plan_hash.as_deref()) {
        return Err(adoptable(found, format!("run {}: the file with its settings was changed", found.id)));
    }
    let mut run =
        Run::resume(View::fold(&loaded.events), plan, resumed, wake).map_err(|why| refuse(found, &why))?;
    run.know_windows(WindowStore::of_user().of_plan(run.plan()));
    let hidden = secrets::of(run.plan());
    notices.extend(sandboxing::examine(run.plan())?);
    let run = run.filtered(Box::new(|event| hidden.hide_in(event)));
    let journal = Journal::reopen(&found.dir, &loaded)
        .map_err(|e| CliError::usage(format!("cannot append to the record of run {}: {e}", found.id)))?;
    let end = loaded.chain.end().clone();
    let (journal, keeps_head) = keep_head(&found.id, journal, (Some(end), plan_hash), &mut notices);
    let ready = Ready {
        run,
        run_id: found.id.clone(),
        alive,
        journal,
        run_dir: found.dir.clone(),
        state_dir: found.state_dir(),
        work_dir: file.work_dir,
        loop_file: file.path,
        loop_text: file.text,
        notices,
        show,
        log_dir: None,
        keeps_head,
    };
    supervise(held, ready)
}

/// Returns how the run was started.
fn started(found: &FoundRun) -> Result<RunStarted, CliError> {
    found.view()?.started.ok_or_else(|| refuse(found, &ResumeError::NeverStarted))
}

/// Returns the trouble for a record that is not as dogwatch wrote it.
fn record_notice(integrity: &Integrity) -> Option<Input> {
    let kind = if integrity.is_changed() { "record_changed" } else { "record_unconfirmed" };
    integrity.problem().map(|detail| Input::TroubleMet { kind, detail })
}

/// Cuts off a torn last line and saves it in a file. Reports that as trouble, which does not end the run.
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
    Ok(torn.into_iter().collect())
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
