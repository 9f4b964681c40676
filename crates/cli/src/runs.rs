//! Finds the run that a command line names, and talks to it or reads its record.

use crate::completing;
use crate::error::{CliError, print_line};
use dogwatch_core::record::event::{Event, Recorded, RunStarted};
use dogwatch_core::record::ids::RunId;
use dogwatch_core::record::status::{DoingStatus, NodeStatus, Status};
use dogwatch_core::record::view::View;
use dogwatch_core::text::printable;
use dogwatch_host::process::keeper::is_stopped;
use dogwatch_host::store::fleet_job;
use dogwatch_host::store::home::{STATE_DIR, StateDir};
use dogwatch_host::store::journal::{self, Integrity, Loaded, Tail};
use dogwatch_host::store::lock;
use dogwatch_host::store::registry::{self, Registry};
use dogwatch_server::{Client, Response, socket_path};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How long a live run may take to answer a question. The run itself waits at most 1 s for its driver, so a run
/// that takes longer is suspended or overloaded.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1500);

/// How long a process may take to exit once its socket is gone.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The fewest characters of an id that select a run of another project.
const MIN_FOREIGN_SUFFIX: usize = 4;
/// The shortest end of a run id that may be a number. A shorter one is the number of an iteration, and would fit some run by
/// chance.
const MIN_NUMBER: usize = 3;

/// The most runs that an error lists as candidates.
const MAX_CANDIDATES: usize = 5;

/// The number of recent runs of the project among which a loop's run is searched.
const MAX_SEARCHED: usize = 200;

/// The number of recent runs among which `resume` looks for a paused or lost one.
const MAX_RESUMABLE: usize = 20;

/// The arguments that select a run, shared by all commands that take one.
#[derive(clap::Args, Clone, Debug)]
pub struct Which {
    /// Run id, the end of one, or the name of a loop [default: the live run of this project, or else the latest]
    #[arg(value_name = "RUN", add = completing::runs())]
    run: Option<String>,
    /// State directory of the project [default: .dogwatch]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

impl Which {
    /// Selects a run by its id or its end, in a state directory.
    pub fn new(run: Option<String>, state_dir: Option<PathBuf>) -> Which {
        Which { run, state_dir }
    }

    /// Returns whether a number was given in place of a run id.
    pub fn is_number(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.parse::<u32>().is_ok())
    }

    /// Selects the same run in another project, and only there.
    pub fn at(&self, project: &Path) -> Result<FoundRun, CliError> {
        let state = self.state_dir.clone().unwrap_or_else(|| project.join(STATE_DIR));
        let state = state.canonicalize().map_err(|e| {
            CliError::with_help(
                format!("cannot read the state directory {}: {e}", state.display()),
                "move the run's record there, or name its place with --state-dir",
            )
        })?;
        let found = Which::new(self.run.clone(), Some(state.clone())).find_resumable()?;
        if found.dir.starts_with(&state) {
            return Ok(found);
        }
        Err(CliError::with_help(
            format!("run {} is not in {}", found.id, state.display()),
            format!("move or copy its record, {}, to {}", found.dir.display(), state.join("runs").display()),
        ))
    }

    /// Returns the run to resume. Without a run id this is the newest paused run, or else the newest run whose supervisor
    /// was lost.
    pub fn find_resumable(&self) -> Result<FoundRun, CliError> {
        if self.run.is_some() {
            return self.find();
        }
        let mut lost = None;
        for run in runs_in(&state_dir(self.state_dir.as_deref()).runs()).into_iter().take(MAX_RESUMABLE) {
            let Ok(view) = run.view() else { continue };
            if view.is_over() || view.started.is_none() || view.is_asleep() {
                continue;
            }
            match (run.is_live(), view.paused) {
                (true, true) => return Ok(run),
                (true, false) => {}
                (false, _) => lost = lost.or(Some(run)),
            }
        }
        lost.map_or_else(|| self.find(), Ok)
    }

    /// Returns the run to steer: the selected one. Names the other live runs of the project if it was not named itself.
    pub fn find_to_steer(&self) -> Result<FoundRun, CliError> {
        let found = self.find()?;
        if self.run.is_none() {
            let mut others = runs_in(&state_dir(self.state_dir.as_deref()).runs());
            others.retain(|run| *run != found && run.is_live());
            if !others.is_empty() {
                note(&format!("not the only live run of this project: {}", candidates(&others)));
            }
        }
        Ok(found)
    }

    /// Returns the selected run. Without a run id this is the newest live run of the project, or else the newest one. A
    /// loop selects its live run in the project, or else its newest one. The end of an id is looked up in this project first.
    pub fn find(&self) -> Result<FoundRun, CliError> {
        let runs = state_dir(self.state_dir.as_deref()).runs();
        let here = runs_in(&runs);
        let Some(wanted) = &self.run else {
            if let Some(error) = unreadable(&runs) {
                return Err(error);
            }
            let at = here.iter().position(FoundRun::is_live).unwrap_or(0);
            return here.into_iter().nth(at).ok_or_else(|| {
                CliError::with_help(
                    "no runs in this directory yet",
                    "start one with `dogwatch run DIR`, or list all runs with `dogwatch ps --all`",
                )
            });
        };
        if let Ok(id) = wanted.parse::<RunId>() {
            let known = here.into_iter().find(|r| r.id == id).or_else(|| registered().find(|r| r.id == id));
            return known.ok_or_else(|| no_such(wanted));
        }
        let is_end = !wanted.is_empty() && !is_short_number(wanted);
        let fits = |r: &FoundRun| is_end && r.id.as_str().ends_with(wanted.as_str());
        let (mut found, others): (Vec<FoundRun>, Vec<FoundRun>) = here.into_iter().partition(fits);
        if found.is_empty()
            && let Some(run) = run_of(wanted, others)
        {
            return Ok(run);
        }
        if found.is_empty() && wanted.chars().count() < MIN_FOREIGN_SUFFIX {
            return Err(CliError::with_help(
                format!("no run or loop `{wanted}` in this project"),
                format!(
                    "runs of other projects need {MIN_FOREIGN_SUFFIX} characters; `dogwatch ps --all` lists them"
                ),
            ));
        }
        if found.is_empty() {
            found = registered().filter(fits).collect();
            if let [other] = found.as_slice() {
                note(&format!("run {} belongs to {}", other.id, other.project().display()));
            }
        }
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => Err(no_such(wanted)),
            n => Err(CliError::with_help(
                format!("{n} run ids end in `{wanted}`"),
                format!("give more of the id: {}", candidates(&found)),
            )),
        }
    }
}

/// Returns the live run of a loop, or else its newest one. The loop is given by its name, its file or its directory.
fn run_of(wanted: &str, runs: Vec<FoundRun>) -> Option<FoundRun> {
    let place = Path::new(wanted).canonicalize().ok();
    let is_place = |path: &Path| place.as_deref().is_some_and(|place| path == place);
    let works_on = |run: &FoundRun| {
        run.started().is_some_and(|started| {
            let path = Path::new(&started.path);
            started.name() == wanted || is_place(path) || path.parent().is_some_and(is_place)
        })
    };
    let mut newest = None;
    for run in runs.into_iter().take(MAX_SEARCHED).filter(works_on) {
        if run.is_live() {
            return Some(run);
        }
        newest = newest.or(Some(run));
    }
    newest
}

/// Returns an error if the directory exists and may not be read.
fn unreadable(runs: &Path) -> Option<CliError> {
    let error = std::fs::read_dir(runs).err()?;
    let help = "the runs belong to another user, or the rights of the directory were changed";
    (error.kind() == std::io::ErrorKind::PermissionDenied)
        .then(|| CliError::with_help(format!("cannot read {}: {error}", runs.display()), help))
}

fn is_short_number(wanted: &str) -> bool {
    wanted.len() < MIN_NUMBER && wanted.bytes().all(|b| b.is_ascii_digit())
}

/// Lists runs with their projects.
fn candidates(found: &[FoundRun]) -> String {
    let one = |run: &FoundRun| format!("{} ({})", run.id, run.project().display());
    let mut names: Vec<String> = found.iter().take(MAX_CANDIDATES).map(one).collect();
    if found.len() > MAX_CANDIDATES {
        names.push("…".to_owned());
    }
    names.join(", ")
}

/// Prints a note to stderr. A closed stderr is ignored.
pub fn note(text: &str) {
    print_line(&format!("note: {}", printable(text)));
}

/// Returns the error for a node that a run does not have.
pub fn no_such_node(run: &RunId, name: &str, help: String) -> CliError {
    CliError::with_help(format!("run {run} has no node `{name}`"), help)
}

fn no_such(wanted: &str) -> CliError {
    CliError::with_help(
        format!("no run or loop `{wanted}`"),
        "`dogwatch ps --all` lists the runs on this machine",
    )
}

/// A run found on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundRun {
    pub id: RunId,
    pub dir: PathBuf,
}

impl FoundRun {
    /// Returns whether a supervisor holds the run.
    pub fn is_live(&self) -> bool {
        registry::is_live(&self.dir)
    }

    /// Reads how the run started: the first line of its journal.
    pub fn started(&self) -> Option<RunStarted> {
        let mut lines = Tail::up_to_now(&self.dir.join(journal::FILE)).ok()?;
        let (first, _) = journal::parse(lines.next_line().ok()??, 0).ok()?;
        if let Event::RunStarted(started) = first.event { Some(*started) } else { None }
    }

    /// Returns the error for a node that the run does not have.
    pub fn has_no_node(&self, name: &str) -> CliError {
        no_such_node(&self.id, name, format!("`dogwatch status {}` lists its nodes", self.tail()))
    }

    /// Reads the journal of the run. Prints a warning if it is not as dogwatch wrote it.
    pub fn record(&self) -> Result<Loaded, CliError> {
        let (loaded, integrity) = self.judged_record()?;
        self.warn(&integrity);
        Ok(loaded)
    }

    /// Reads the journal of the run, and whether it is as dogwatch wrote it.
    pub fn judged_record(&self) -> Result<(Loaded, Integrity), CliError> {
        Registry::of_user().load(&self.id, &self.dir).map_err(|e| CliError::usage(e.to_string()))
    }

    /// Prints a warning if the record is not as dogwatch wrote it. For commands that do not read all of it.
    pub fn check_record(&self) -> Option<String> {
        let (_, integrity) = self.judged_record().ok()?;
        self.warn(&integrity);
        integrity.problem()
    }

    fn warn(&self, integrity: &Integrity) {
        static WARNED: Mutex<Vec<RunId>> = Mutex::new(Vec::new());
        let Some(problem) = integrity.problem() else { return };
        let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
        if !warned.contains(&self.id) {
            warned.push(self.id.clone());
            print_line(&printable(&format!("warning: run {}: {problem}", self.id)));
        }
    }

    /// Reads the journal and folds it into a view.
    pub fn view(&self) -> Result<View, CliError> {
        Ok(fold(&self.record()?.events))
    }

    /// Connects to the socket of the run.
    pub fn client(&self) -> Result<Client, CliError> {
        Client::connect(&socket_path(&self.dir)).map_err(|e| {
            CliError::usage(format!("run {} is live, but its socket does not answer: {e}", self.id))
        })
    }

    /// Queries a live run. Returns `None` if the run is not live or does not answer soon; callers then read the
    /// record instead.
    pub fn ask<T: serde::de::DeserializeOwned>(&self, path: &str) -> Option<T> {
        if !self.is_live() || self.stopped_process().is_some() {
            return None;
        }
        let answer = Client::connect_within(&socket_path(&self.dir), ANSWER_TIMEOUT).ok()?.get(path).ok()?;
        if answer.is_ok() { answer.json().ok() } else { None }
    }

    /// Sends a request to the run, which must be live.
    pub fn post(&self, what: &str, body: &impl serde::Serialize) -> Result<(), CliError> {
        if !self.is_live() {
            return Err(self.not_running());
        }
        if let Some((problem, help)) = self.suspended() {
            return Err(CliError::with_help(problem, help));
        }
        let answer: Result<Response, CliError> = self.client().and_then(|mut client| {
            let answer = client.post(&format!("/v1/{what}"), body);
            answer.map_err(|e| CliError::usage(format!("run {}: {e}", self.id)))
        });
        match answer {
            Ok(answer) if answer.is_ok() => Ok(()),
            Ok(answer) => Err(CliError::usage(format!("run {}: {}", self.id, answer.message()))),
            Err(_) if self.is_dying() => Err(self.not_running()),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the process of a live run that is stopped by a signal, as by Ctrl-Z. Such a run answers nothing.
    pub fn stopped_process(&self) -> Option<u32> {
        let pid = Registry::of_user().find(&self.id)?.pid;
        (self.is_live() && is_stopped(pid)).then_some(pid)
    }

    /// Describes a live run whose process is stopped, and how to continue it.
    pub fn suspended(&self) -> Option<(String, String)> {
        let pid = self.stopped_process()?;
        Some((
            format!("run {} is suspended: its process {pid} is stopped", self.id),
            format!("continue it with `fg` in its terminal or with `kill -CONT {pid}`"),
        ))
    }

    /// Returns whether a live run waits and no iteration is running.
    pub fn is_waiting(&self) -> bool {
        let Ok(view) = self.view() else { return false };
        let nodes = Status::of(&view, None).nodes;
        let waits = |node: &NodeStatus| matches!(node.doing, DoingStatus::Waiting { .. });
        let rests = |node: &NodeStatus| matches!(node.doing, DoingStatus::Nothing);
        nodes.iter().any(waits) && nodes.iter().all(|node| waits(node) || rests(node))
    }

    /// Wakes the run, which must be live. Returns what that changed: a paused run only remembers it.
    pub fn wake(&self) -> Result<String, CliError> {
        let paused = self.is_live() && self.view().is_ok_and(|view| view.paused);
        self.post("wake", &())?;
        Ok(match paused {
            true => format!("run {0} is paused; it will not wait after `dogwatch resume {0}`", self.id),
            false => format!("woke run {}", self.id),
        })
    }

    fn not_running(&self) -> CliError {
        let lost = self.view().is_ok_and(|view| view.ended.is_none());
        // Only the fleet continues the run of a job.
        if lost && fleet_job::of_run(&self.dir).is_none() {
            return CliError::with_help(
                format!("run {} is not running: its supervisor died", self.id),
                format!("continue the run with `dogwatch resume {}`", self.id),
            );
        }
        CliError::with_help(
            format!("run {} is not running", self.id),
            format!("`dogwatch status {}` shows how it ended", self.id),
        )
    }

    /// Returns whether the supervisor exits within a short time. A supervisor that is being killed closes its socket
    /// before it releases its lock.
    fn is_dying(&self) -> bool {
        registry::is_gone_within(&self.dir, EXIT_TIMEOUT)
    }

    /// Returns the last part of the run id, which is enough to select the run.
    pub fn tail(&self) -> &str {
        self.id.tail()
    }

    /// Returns the directory of the project: the one that contains the state directory.
    pub fn project(&self) -> PathBuf {
        let state = self.state_dir();
        state.parent().map_or_else(|| state.clone(), Path::to_owned)
    }

    /// Returns the state directory that contains the run.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.parent().and_then(Path::parent).map_or_else(|| self.dir.clone(), Path::to_owned)
    }
}

/// Folds the events of a run into a view, with the loss of its supervisor.
pub fn fold(events: &[Recorded]) -> View {
    let mut view = View::fold(events);
    lock::note_loss(&mut view);
    view
}

/// Returns the given state directory, or the one of the project around the current directory.
pub fn state_dir(given: Option<&Path>) -> StateDir {
    let around = || std::env::current_dir().ok().and_then(|here| state_dir_around(&here));
    let default = || around().unwrap_or_else(|| PathBuf::from(STATE_DIR));
    StateDir::at(given.map_or_else(default, Path::to_owned))
}

/// Returns the state directory with runs in the nearest directory above `here`, as git finds its repository. The search
/// ends at the top of a git work tree, at a directory of another user, and at one where everyone may write. Returns
/// `None` for `here` itself.
fn state_dir_around(here: &Path) -> Option<PathBuf> {
    let owner = std::fs::metadata(here).ok()?.uid();
    for dir in here.ancestors() {
        let facts = std::fs::metadata(dir).ok()?;
        let foreign = facts.uid() != owner || facts.mode() & 0o002 != 0;
        if dir != here && foreign {
            return None;
        }
        let state = dir.join(STATE_DIR);
        if state.join("runs").is_dir() {
            return Some(state).filter(|_| dir != here);
        }
        if dir.join(".git").exists() {
            return None;
        }
    }
    None
}

/// Lists the runs of this project, or of the given state directory, newest first. A directory that may not be read is an
/// error, not a project without runs.
pub fn runs_here(state_dir_given: Option<&Path>) -> Result<Vec<FoundRun>, CliError> {
    let runs = state_dir(state_dir_given).runs();
    unreadable(&runs).map_or_else(|| Ok(runs_in(&runs)), Err)
}

/// Lists the runs in a state directory, newest first.
pub fn runs_in(runs: &Path) -> Vec<FoundRun> {
    let entries = std::fs::read_dir(runs).into_iter().flatten().flatten();
    // A link in place of a run leads to files that are not ours. `gc` must not remove them.
    let entries = entries.filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut found: Vec<FoundRun> = entries
        .filter_map(|e| Some(FoundRun { id: e.file_name().to_str()?.parse().ok()?, dir: e.path() }))
        .filter(|r| r.dir.join(journal::FILE).exists())
        .map(|r| FoundRun { dir: r.dir.canonicalize().unwrap_or(r.dir), ..r })
        .collect();
    found
        .sort_by_cached_key(|run| std::cmp::Reverse((second(&run.id), created_at(&run.dir), run.id.clone())));
    found
}

/// Returns the start time of a run to the second: its id without the random tail.
fn second(id: &RunId) -> String {
    id.as_str().rsplit_once('-').map_or_else(String::new, |(second, _)| second.to_owned())
}

/// Returns when a run directory was created, where the file system records it. Orders runs that started within the
/// same second.
fn created_at(dir: &Path) -> Option<SystemTime> {
    std::fs::metadata(dir).and_then(|meta| meta.created()).ok()
}

/// Lists the runs of this user on this machine, newest first.
pub fn registered() -> impl Iterator<Item = FoundRun> {
    Registry::of_user().list().into_iter().map(|p| FoundRun { id: p.run, dir: p.run_dir })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_place_of_a_run_is_not_a_run() {
        let dir = tempfile::tempdir().expect("a directory");
        let (runs, precious) = (dir.path().join("runs"), dir.path().join("precious"));
        let real = runs.join("20261115-201533-k3f9");
        for place in [&real, &precious] {
            std::fs::create_dir_all(place).expect("a directory");
            std::fs::write(place.join(journal::FILE), "").expect("writes");
        }
        std::os::unix::fs::symlink(&precious, runs.join("20200101-000000-aaaa")).expect("links");
        let found: Vec<String> = runs_in(&runs).into_iter().map(|run| run.id.to_string()).collect();
        assert_eq!(found, ["20261115-201533-k3f9"]);
    }
}
