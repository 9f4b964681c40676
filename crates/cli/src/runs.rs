//! Which run a person means, and what its record says.

use crate::error::Failure;
use dogwatch_core::ids::RunId;
use dogwatch_core::view::View;
use dogwatch_host::home::{STATE_DIR, StateDir};
use dogwatch_host::journal::{self, Loaded};
use dogwatch_host::registry::{self, Registry};
use dogwatch_server::{Client, Response, socket_path};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A run that does not answer within this is stopped, or drowned in work. Its own patience with itself is 1 s.
const SOON: Duration = Duration::from_millis(1500);

/// How long the end of a process may take once its socket is gone.
const LAST_MOMENTS: Duration = Duration::from_secs(1);

/// How a run is named on the command line, shared by the commands that speak of one.
#[derive(clap::Args, Clone, Debug)]
pub struct Which {
    /// A run id, or the end of one; without it the last run of this project (for those that steer: the last that lives)
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Where the project keeps its record, if not in .dogwatch
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

impl Which {
    pub fn new(run: Option<String>, state_dir: Option<PathBuf>) -> Which {
        Which { run, state_dir }
    }

    /// The run that is meant by who wants something of it: without a name the newest that lives, if one does.
    pub fn find_living(&self) -> Result<FoundRun, Failure> {
        if self.run.is_none() {
            let here = runs_in(&state_dir(self.state_dir.as_deref()).runs());
            if let Some(living) = here.into_iter().find(FoundRun::is_live) {
                return Ok(living);
            }
        }
        self.find()
    }

    /// The run that is meant.
    pub fn find(&self) -> Result<FoundRun, Failure> {
        let here = runs_in(&state_dir(self.state_dir.as_deref()).runs());
        let Some(wanted) = &self.run else {
            return here.into_iter().next().ok_or_else(|| {
                Failure::with_hint(
                    "there is no run in this directory yet",
                    "`dogwatch run DIR` starts one; `dogwatch ps` lists all",
                )
            });
        };
        if let Ok(id) = wanted.parse::<RunId>() {
            let known = here.into_iter().find(|r| r.id == id).or_else(|| registered().find(|r| r.id == id));
            return known.ok_or_else(|| no_such(wanted));
        }
        let fits = |r: &FoundRun| !wanted.is_empty() && r.id.as_str().ends_with(wanted.as_str());
        let mut found: Vec<FoundRun> = here.into_iter().filter(fits).collect();
        if found.is_empty() {
            found = registered().filter(fits).collect();
        }
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => Err(no_such(wanted)),
            n => Err(Failure::usage(format!("{n} runs end in `{wanted}`; give the whole id"))),
        }
    }
}

fn no_such(wanted: &str) -> Failure {
    Failure::with_hint(
        format!("there is no run `{wanted}`"),
        "`dogwatch ps --all` lists the runs of this machine",
    )
}

/// A run that was found on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundRun {
    pub id: RunId,
    pub dir: PathBuf,
}

impl FoundRun {
    pub fn is_live(&self) -> bool {
        registry::is_live(&self.dir)
    }

    pub fn record(&self) -> Result<Loaded, Failure> {
        journal::load(&self.dir).map_err(|e| Failure::usage(e.to_string()))
    }

    pub fn view(&self) -> Result<View, Failure> {
        Ok(View::fold(&self.record()?.events))
    }

    pub fn client(&self) -> Result<Client, Failure> {
        Client::connect(&socket_path(&self.dir)).map_err(|e| {
            Failure::usage(format!("run {} is alive, but its socket does not answer: {e}", self.id))
        })
    }

    /// What a living run answers to a question, if it does so soon. Who asks can look into the record instead.
    pub fn ask<T: serde::de::DeserializeOwned>(&self, path: &str) -> Option<T> {
        if !self.is_live() {
            return None;
        }
        let answer = Client::connect_within(&socket_path(&self.dir), SOON).ok()?.get(path).ok()?;
        if answer.is_ok() { answer.json().ok() } else { None }
    }

    /// Asks the run, which must be alive, for something.
    pub fn post(&self, what: &str, body: &impl serde::Serialize) -> Result<(), Failure> {
        if !self.is_live() {
            return Err(self.not_running());
        }
        let answer: Result<Response, Failure> = self.client().and_then(|mut client| {
            let answer = client.post(&format!("/v1/{what}"), body);
            answer.map_err(|e| Failure::usage(format!("run {}: {e}", self.id)))
        });
        match answer {
            Ok(answer) if answer.is_ok() => Ok(()),
            Ok(answer) => Err(Failure::usage(format!("run {}: {}", self.id, answer.message()))),
            Err(_) if self.is_dying() => Err(self.not_running()),
            Err(failure) => Err(failure),
        }
    }

    fn not_running(&self) -> Failure {
        Failure::with_hint(
            format!("run {} is not running", self.id),
            format!("`dogwatch status {}` tells how it ended", self.id),
        )
    }

    /// A dogwatch that was just killed, or just ends, lets go of its socket before its lock. True once it is gone.
    fn is_dying(&self) -> bool {
        registry::is_gone_within(&self.dir, LAST_MOMENTS)
    }

    /// The end of its id, which is enough to name it.
    pub fn tail(&self) -> &str {
        self.id.as_str().rsplit('-').next().unwrap_or(self.id.as_str())
    }

    /// The state directory it lies in.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.parent().and_then(Path::parent).map_or_else(|| self.dir.clone(), Path::to_owned)
    }
}

pub fn state_dir(given: Option<&Path>) -> StateDir {
    StateDir::at(given.map_or_else(|| PathBuf::from(STATE_DIR), Path::to_owned))
}

/// The runs below a state directory, newest first.
pub fn runs_in(runs: &Path) -> Vec<FoundRun> {
    let entries = std::fs::read_dir(runs).into_iter().flatten().flatten();
    let mut found: Vec<FoundRun> = entries
        .filter_map(|e| Some(FoundRun { id: e.file_name().to_str()?.parse().ok()?, dir: e.path() }))
        .filter(|r| r.dir.join(journal::FILE).exists())
        .map(|r| FoundRun { dir: r.dir.canonicalize().unwrap_or(r.dir), ..r })
        .collect();
    found.sort_by_cached_key(|run| std::cmp::Reverse((second(&run.id), born(&run.dir), run.id.clone())));
    found
}

/// The second in which a run began: an id without its random tail.
fn second(id: &RunId) -> String {
    id.as_str().rsplit_once('-').map_or_else(String::new, |(second, _)| second.to_owned())
}

/// Tells runs of one second apart, where the file system knows it.
fn born(dir: &Path) -> Option<SystemTime> {
    std::fs::metadata(dir).and_then(|meta| meta.created()).ok()
}

/// The runs of this user on this machine, newest first.
pub fn registered() -> impl Iterator<Item = FoundRun> {
    Registry::of_user().list().into_iter().map(|p| FoundRun { id: p.run, dir: p.run_dir })
}
