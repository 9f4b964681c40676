use super::prices;
use super::rights::operator_only;
use crate::error::CliError;
use crate::leash::LeashFlag;
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
use dogwatch_host::driver::Setup;
use dogwatch_host::leash::Leash;
use dogwatch_host::sandbox::Ground;
use dogwatch_host::store::fleet_job;
use dogwatch_host::store::home::StateDir;
use dogwatch_host::store::journal::{Integrity, Journal, Loaded, repair};
use dogwatch_host::store::lock::Place;
use dogwatch_host::store::registry::{self, Alive, Pointer, Registry};
use dogwatch_host::store::windows::WindowStore;
use std::path::{Path, PathBuf};

/// Unpause a run, or continue one whose supervisor died
///
/// A paused live run starts its next iteration; a pending request to stop is withdrawn. A run whose supervisor was killed,
/// or that you stopped or interrupted, continues in this terminal with the same run id, settings and budgets. The interrupted iteration is not counted, a
/// wait continues where it was, and a paused run stays paused. With --at, a run whose directory was moved continues at
/// its new place.
#[derive(clap::Args)]
#[command(mut_arg("run", |arg| arg.help(RUN_HELP).long_help(RUN_HELP)))]
pub struct Args {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    show: ShowFlags,
    #[command(flatten)]
    leash: LeashFlag,
    /// Continue a run that was moved: DIR is now its project directory
    ///
    /// The record is expected in DIR/.dogwatch (or in --state-dir), and the loop file at the same place below DIR as it was
    /// below the old directory. The run may come from another machine.
    #[arg(long, value_name = "DIR")]
    at: Option<PathBuf>,
    /// Continue a run that is not yours or whose record was changed
    #[arg(long)]
    adopt: bool,
}

const RUN_HELP: &str = "Run id, the end of one, or the name of a loop [default: the newest paused run, else the newest whose supervisor died, else the newest]";

/// How to continue a run.
#[derive(Default)]
pub struct Continue {
    /// Also continue a run that is asleep.
    pub wake: bool,
    /// How the record of the run was, if the operator adopted it.
    pub adopted: Option<Integrity>,
    /// What to show.
    pub show: Show,
    /// The directory to which the project of the run was moved.
    pub at: Option<PathBuf>,
    /// The leash of the run.
    pub leash: Option<Leash>,
}

/// Runs `dogwatch resume` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let found = match &args.at {
        Some(dir) => args.which.at(dir)?,
        None => args.which.find_resumable()?,
    };
    if args.at.is_some() {
        refuse_live_elsewhere(&found)?;
    }
    if !found.is_live() {
        refuse_fleet_job(&found)?;
    }
    if args.leash.is_given() && found.is_live() {
        return Err(CliError::with_help(
            format!("run {} has a supervisor already, so it cannot get a leash", found.id),
            format!("stop it with `dogwatch stop {}` first", found.id),
        ));
    }
    let adopted = if args.adopt && !found.is_live() {
        operator_only("adopt a run")?;
        Some(adopt(&found)?)
    } else {
        None
    };
    let before = found.is_live().then(|| found.view()).transpose()?;
    match found.post("resume", &()) {
        Ok(()) => super::print_text(&format!("{}\n", resumed(&found, before.as_ref()))),
        // The run is dead, or died during the request.
        Err(_) if !found.is_live() => {
            let leash = args.leash.open()?;
            let (show, at) = (args.show.show(), args.at.clone());
            continue_run(&found, Continue { wake: false, adopted, show, at, leash })
        }
        Err(failure) => Err(failure),
    }
}

/// Returns what the request to resume changed in a live run.
fn resumed(found: &FoundRun, before: Option<&View>) -> String {
    match before.map(|view| (view.paused, view.stopping)) {
        Some((false, true)) => format!("run {} will not stop after the current iteration", found.id),
        Some((false, false)) => format!("run {} is neither paused nor about to stop", found.id),
        Some((true, _)) | None => format!("resumed run {}", found.id),
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
    let pointer = Pointer { run, run_dir, path, pid, since, head: true, origin: None };
    let plan = secrets::kept(&found.dir).map(|(_, hash)| hash);
    let adopted = registry.keep_head(
        &found.id,
        Some(record.chain.end().clone()),
        plan,
        fleet_job::durability(&found.dir),
    );
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

/// Returns an error if the run is that of a fleet's job, unless the worker that holds the job continues it.
fn refuse_fleet_job(found: &FoundRun) -> Result<(), CliError> {
    match fleet_job::of_run(&found.dir).filter(|job| !fleet_job::is_held_here(job)) {
        None => Ok(()),
        Some(job) => Err(CliError::with_help(
            format!("run {} belongs to job {job} of a fleet, which another worker may be running", found.id),
            format!(
                "the fleet continues it by itself: `dogwatch fleet ls` shows where, and `dogwatch fleet wake {job}` ends a wait"
            ),
        )),
    }
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

/// Returns the new place of a run that was moved: its project directory and its loop file.
fn moved(started: &RunStarted, to: &Path) -> Result<(String, String), CliError> {
    let to = to
        .canonicalize()
        .map_err(|e| CliError::usage(format!("cannot enter the directory {}: {e}", to.display())))?;
    let inside = Path::new(&started.path).strip_prefix(&started.work_dir).map_err(|_| {
        CliError::with_help(
            format!("the loop file {} of the run is not in its directory {}", started.path, started.work_dir),
            "a run can be moved only together with its loop file; start a new run with `dogwatch run`",
        )
    })?;
    Ok((to.display().to_string(), to.join(inside).display().to_string()))
}

/// Returns an error if the run still has a supervisor in another place of this machine.
fn refuse_live_elsewhere(found: &FoundRun) -> Result<(), CliError> {
    let live = Registry::of_user().find(&found.id).filter(|known| registry::is_live(&known.run_dir));
    match live.filter(|known| known.run_dir != found.dir) {
        None => Ok(()),
        Some(known) => Err(CliError::with_help(
            format!("run {} still runs in {}", found.id, known.run_dir.display()),
            "stop it there first",
        )),
    }
}

/// Continues a run from its record.
pub fn continue_run(found: &FoundRun, how: Continue) -> Result<u8, CliError> {
    operator_only("continue a run that has no supervisor")?;
    refuse_fleet_job(found)?;
    refuse_unknown(found)?;
    let mut started = started(found)?;
    let (mut new_work_dir, mut new_path) = (None, None);
    if let Some(to) = &how.at {
        let (work_dir, path) = moved(&started, to)?;
        if work_dir != started.work_dir {
            (new_work_dir, new_path) = (Some(work_dir.clone()), Some(path.clone()));
            (started.work_dir, started.path) = (work_dir, path);
        }
    }
    let (work_dir, loop_file) = (Path::new(&started.work_dir), Path::new(&started.path));
    std::env::set_current_dir(work_dir).map_err(|e| {
        CliError::usage(format!("cannot enter the directory {} of the run: {e}", work_dir.display()))
    })?;
    let file = LoopFile::find(loop_file)?;
    let prices = prices::load()?;
    // Take the lock before reading the record. Without it another process may still append to the record.
    let state_dir = StateDir::at(found.state_dir());
    let held = hold(Place { work_dir, loop_file, state_dir: &state_dir }, &found.id)?;
    // The record of a live run is judged less strictly, so judge this one before the run's own lock is taken.
    let (_, integrity) = found.judged_record()?;
    // A label of a stop may be appended without the lock of the loop, but not without this one.
    let alive = Alive::hold(&found.dir).ok();
    let (loaded, _) = found.judged_record()?;
    if let Some(problem) = integrity.problem().filter(|_| integrity.is_changed() && how.adopted.is_none()) {
        return Err(adoptable(found, format!("run {}: {problem}", found.id)));
    }
    let mut notices = repair_record(found, &loaded)?;
    notices.extend(record_notice(how.adopted.as_ref().unwrap_or(&integrity)));
    notices.extend(settings_notice(&started, &file));
    let resumed = RunResumed {
        run: found.id.clone(),
        boot_id: clock::boot_id(),
        pid: std::process::id(),
        dogwatch: env!("CARGO_PKG_VERSION").to_owned(),
        work_dir: new_work_dir,
        path: new_path,
        lost_at: held.lock.lost_at(),
    };
    let (plan, plan_hash) = secrets::kept(&found.dir).unzip();
    let head = Registry::of_user().known_head(&found.id, &found.dir).ok().flatten();
    if head.is_some_and(|head| head.plan() != plan_hash.as_deref()) {
        return Err(adoptable(found, format!("run {}: the file with its settings was changed", found.id)));
    }
    let mut run = Run::resume(View::fold(&loaded.events), plan, resumed, how.wake)
        .map_err(|why| refuse(found, &why))?;
    run.know_windows(WindowStore::of_user().of_plan(run.plan()));
    let hidden = secrets::of(run.plan());
    let ground = Ground::around(&file.work_dir, &file.path);
    notices.extend(sandboxing::examine(run.plan(), &ground)?);
    let run = run.filtered(Box::new(|event| hidden.hide_in(event)));
    let durability = fleet_job::durability(&found.dir);
    let journal = Journal::reopen_as(&found.dir, &loaded, durability)
        .map_err(|e| CliError::usage(format!("cannot append to the record of run {}: {e}", found.id)))?;
    let end = loaded.chain.end().clone();
    let (journal, keeps_head) =
        keep_head(&found.id, journal, (Some(end), plan_hash), durability, &mut notices);
    let setup = Setup {
        run,
        run_id: found.id.clone(),
        journal,
        run_dir: found.dir.clone(),
        state_dir: found.state_dir(),
        work_dir: file.work_dir,
        loop_file: file.path,
        loop_text: file.text,
        ground,
        lock: held.lock,
        nonce: held.nonce,
        leash: how.leash,
        pristine: None,
        prices,
    };
    let notices = held.notices.into_iter().chain(notices).collect();
    supervise(Ready { setup, alive, notices, show: how.show, log_dir: None, keeps_head })
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
