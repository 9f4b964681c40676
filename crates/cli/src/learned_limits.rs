//! The limits that the recorded sessions of this user suggest, for `profile: learned`.

use crate::runs::registered;
use dogwatch_core::settings::{ReaderName, WatchPolicy};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::watch::limits::{Estimate, History, Key, MIN_TO_LOOSEN, Sample};
use dogwatch_host::store::sessions::{MAX_UPDATE, SessionIndex};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;

/// A set of estimates, which many nodes of a graph share.
type Known = BTreeMap<(&'static str, Option<Dur>, Option<Dur>), Vec<(Key, Estimate)>>;

/// The recorded sessions, which are read when a loop asks for them.
pub struct LearnedLimits<'a> {
    work_dir: &'a Path,
    samples: OnceCell<Vec<Sample>>,
    notices: RefCell<Vec<String>>,
    known: RefCell<Known>,
}

impl<'a> LearnedLimits<'a> {
    /// Reads nothing yet. Sessions in `work_dir` count as those of this project.
    pub fn new(work_dir: &'a Path) -> LearnedLimits<'a> {
        LearnedLimits {
            work_dir,
            samples: OnceCell::new(),
            notices: RefCell::default(),
            known: RefCell::default(),
        }
    }

    /// Returns the estimates for an agent.
    pub fn of(&self, agent: ReaderName, base: &WatchPolicy) -> Vec<(Key, Estimate)> {
        let key = (agent.as_str(), base.idle.duration(), base.tool.duration());
        if let Some(known) = self.known.borrow().get(&key) {
            return known.clone();
        }
        let place = self.work_dir.to_string_lossy();
        let history = History::of(self.samples(), agent, Some(&place));
        let estimates = history.applied(base);
        let (of_agent, here) = history.good();
        if here < MIN_TO_LOOSEN {
            let text = format!(
                "{here} of {MIN_TO_LOOSEN} good {agent} sessions recorded in this project ({of_agent} on this machine); using the silence limit of the standard profile"
            );
            self.notices.borrow_mut().push(text);
        }
        self.known.borrow_mut().insert(key, estimates.clone());
        estimates
    }

    /// Takes the notices about the sessions for the user.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut *self.notices.borrow_mut())
    }

    fn samples(&self) -> &[Sample] {
        self.samples.get_or_init(|| {
            let mut index = SessionIndex::of_user();
            let dirs: Vec<_> = registered().map(|run| run.dir).collect();
            index.add_runs(dirs.iter().map(|dir| dir.as_path()), MAX_UPDATE);
            let saved = index.save();
            let mut notices = self.notices.borrow_mut();
            notices.append(&mut index.problems);
            notices.extend(saved.err().map(|error| format!("cannot save the index of sessions: {error}")));
            index.samples()
        })
    }
}
