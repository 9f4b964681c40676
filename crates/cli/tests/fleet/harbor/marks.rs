//! The marks that agents make: who worked on a job, and when.

use super::{Harbor, TIMEOUT, id};
use dogwatch_fleet::names::JobId;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

impl Harbor {
    pub fn marks_file(&self) -> PathBuf {
        self.dir.path().join("marks")
    }

    /// Waits until an agent of the job works, and returns the worker that owns it.
    #[track_caller]
    pub fn until_works(&self, job: &str, ticks: usize) -> String {
        self.until_marks(&format!("an agent works on {job}"), || {
            self.ticks(job).values().any(|(count, ..)| *count >= ticks)
        });
        // The journal reaches the server a little later.
        self.until_record(job, "names its run", |record| record.run.is_some()).owner
    }

    /// Waits until the marks of the agents are as wanted.
    #[track_caller]
    pub fn until_marks(&self, what: &str, right: impl Fn() -> bool) {
        assert!(self.marks.wait(TIMEOUT, right), "waited in vain until {what}\n{}", self.logs());
    }

    /// Waits for a span in which no agent makes a mark. Returns whether it came within the limit.
    pub fn until_silence(&self, span: Duration, limit: Duration) -> bool {
        self.marks.wait_for_silence(span, limit)
    }

    /// Returns the agents that worked on a job, by pid: the number of marks, the lines of the first and the last one, and
    /// whether the agent came to its end. The order of the lines is the order in time, whatever clocks say.
    pub fn ticks(&self, job: &str) -> BTreeMap<u32, (usize, usize, usize, bool)> {
        self.ticks_of(&id(job))
    }

    pub fn ticks_of(&self, job: &JobId) -> BTreeMap<u32, (usize, usize, usize, bool)> {
        let text = std::fs::read_to_string(self.marks_file()).unwrap_or_default();
        let mut all = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, name, pid, ..] = words.as_slice() else { continue };
            if *name != job.to_string() {
                continue;
            }
            let pid: u32 = pid.parse().expect("a pid");
            let entry = all.entry(pid).or_insert((0, at, at, false));
            entry.0 += 1;
            entry.2 = at;
            entry.3 |= *what == "end";
        }
        all
    }

    /// Asserts that no two agents worked on the job at once and that one of them came to its end.
    pub fn assert_once(&self, job: &str) {
        let agents = self.ticks(job);
        let mut spans: Vec<(usize, usize)> =
            agents.values().map(|(_, first, last, _)| (*first, *last)).collect();
        spans.sort_unstable();
        for pair in spans.windows(2) {
            assert!(pair[0].1 < pair[1].0, "{job}: two agents worked at once: {agents:?}\n{}", self.logs());
        }
        let ends = agents.values().filter(|(.., ended)| *ended).count();
        assert_eq!(ends, 1, "{job}: {agents:?}\n{}", self.logs());
    }
}
