//! The plot of the demo: it decides when a worker and the server are killed, and reads the result from records and marks.

use dogwatch_core::lease::{JobRecord, JobState};
use dogwatch_core::record::ids::RunId;
use std::collections::BTreeMap;

/// The number of jobs.
pub const JOBS: usize = 12;
/// How many jobs a worker runs at once.
pub const SLOTS: usize = 2;
/// The number of ended jobs after which the server is killed.
const DONE_BEFORE_SERVER: usize = 4;

/// An act of the demo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Kill this worker, which runs these jobs.
    KillWorker(String, Vec<String>),
    /// Kill the server. The number is that of the running jobs.
    KillServer(usize),
}

/// The acts of the demo, and the records that show whether they worked.
#[derive(Default)]
pub struct Plot {
    records: BTreeMap<String, JobRecord>,
    killed_worker: Option<String>,
    /// The runs of the killed worker, by job.
    orphans: BTreeMap<String, RunId>,
    /// The jobs that were running when the server was killed, with their claims.
    through_restart: Option<BTreeMap<String, u64>>,
    changed_after_end: bool,
}

impl Plot {
    /// Takes the record of a job, and returns a line about what changed.
    pub fn see(&mut self, job: &str, record: JobRecord) -> Option<String> {
        let before = self.records.insert(job.to_owned(), record.clone()).unwrap_or_default();
        self.changed_after_end |= before.state.is_over() && before != record;
        if (before.state, before.epoch) == (record.state, record.epoch) {
            return None;
        }
        let (owner, lost) = (&record.owner, &before.owner);
        match record.state {
            JobState::Queued => None,
            JobState::Running if record.epoch > 1 => {
                Some(format!("{owner} continues {job}, which {lost} had started"))
            }
            JobState::Running => Some(format!("{owner} starts {job}")),
            JobState::Done => Some(format!("{owner} has finished {job}")),
            JobState::Released | JobState::Poisoned => Some(format!("{job} is {}", record.state.as_str())),
        }
    }

    fn running(&self) -> impl Iterator<Item = (&String, &JobRecord)> {
        self.records.iter().filter(|(_, record)| record.state == JobState::Running)
    }

    fn done(&self) -> usize {
        self.records.values().filter(|record| record.state == JobState::Done).count()
    }

    /// Returns the act that is due. Each act is returned once.
    pub fn next_act(&mut self) -> Option<Act> {
        let Some(killed) = self.killed_worker.clone() else {
            let mut held: BTreeMap<&str, Vec<(&String, &RunId)>> = BTreeMap::new();
            for (job, record) in self.running() {
                held.entry(&record.owner).or_default().extend(record.run.as_ref().map(|run| (job, run)));
            }
            let (worker, jobs) = held.into_iter().find(|(_, jobs)| jobs.len() >= SLOTS)?;
            let worker = worker.to_owned();
            self.orphans = jobs.into_iter().map(|(job, run)| (job.clone(), run.clone())).collect();
            self.killed_worker = Some(worker.clone());
            return Some(Act::KillWorker(worker, self.orphans.keys().cloned().collect()));
        };
        if self.through_restart.is_some() || self.done() < DONE_BEFORE_SERVER {
            return None;
        }
        let held: BTreeMap<String, u64> = self
            .running()
            // A claim without a run still needs the server, and is released without it.
            .filter(|(_, record)| record.owner != killed && record.run.is_some())
            .map(|(job, record)| (job.clone(), record.epoch))
            .collect();
        let count = held.len();
        (count > 0).then(|| {
            self.through_restart = Some(held);
            Act::KillServer(count)
        })
    }

    /// Returns whether every job is over.
    pub fn is_over(&self) -> bool {
        self.records.values().filter(|record| record.state.is_over()).count() == JOBS
    }

    /// Returns a sentence for everything that the demo shows, and whether it happened. `marks` is what the agents wrote:
    /// a line for each step with `start`, `step` or `end`, the job and the process id.
    pub fn summary(&self, marks: &str) -> Vec<(bool, String)> {
        let (ends, overlaps) = read_marks(marks);
        let clean = |record: &&JobRecord| {
            record.state == JobState::Done
                && record.result.as_ref().is_some_and(|result| result.outcome == "clean")
        };
        let clean = self.records.values().filter(clean).count();
        let once = clean == JOBS
            && ends.len() == JOBS
            && ends.values().all(|count| *count == 1)
            && !self.changed_after_end;
        let finished: usize = ends.values().sum();
        vec![
            (
                once,
                format!(
                    "{clean} of {JOBS} jobs ended clean, and agents finished {finished} times: once per job"
                ),
            ),
            (overlaps == 0, "no two agents worked on one job at the same time".to_owned()),
            self.takeover(),
            self.restart(),
        ]
    }

    fn takeover(&self) -> (bool, String) {
        let Some(worker) = &self.killed_worker else {
            return (false, "no worker was killed".to_owned());
        };
        let same = |(job, run): &(&String, &RunId)| {
            let record = self.records.get(*job);
            record.is_some_and(|record| record.epoch > 1 && record.run.as_ref() == Some(*run))
        };
        let kept = self.orphans.iter().filter(same).count();
        let count = self.orphans.len();
        (
            kept == count && count > 0,
            format!("{worker} was killed; {kept} of its {count} runs were continued by another worker"),
        )
    }

    fn restart(&self) -> (bool, String) {
        let Some(held) = &self.through_restart else {
            return (false, "the server was not killed".to_owned());
        };
        let same = |(job, epoch): &(&String, &u64)| {
            self.records.get(*job).is_some_and(|record| record.epoch == **epoch)
        };
        let (kept, count) = (held.iter().filter(same).count(), held.len());
        (
            kept == count,
            format!(
                "the server was killed and started again; {kept} of {count} running jobs were not interrupted"
            ),
        )
    }
}

/// Returns how often an agent finished each job, and how often two agents worked on one at once. The lines are in the order
/// in which the agents wrote them.
fn read_marks(marks: &str) -> (BTreeMap<&str, usize>, usize) {
    let (mut ends, mut last) = (BTreeMap::new(), BTreeMap::new());
    let mut replaced: Vec<(&str, &str)> = Vec::new();
    let mut overlaps = 0;
    for line in marks.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [what, job, pid] = words.as_slice() else { continue };
        if replaced.contains(&(job, pid)) {
            overlaps += 1;
        }
        if let Some(before) = last.insert(*job, *pid).filter(|before| before != pid) {
            replaced.push((job, before));
        }
        if *what == "end" {
            *ends.entry(*job).or_default() += 1;
        }
    }
    (ends, overlaps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::lease::JobResult;

    fn running(owner: &str, epoch: u64) -> JobRecord {
        let run = "20261115-201533-k3f9".parse().ok();
        JobRecord { state: JobState::Running, owner: owner.into(), epoch, run, ..JobRecord::default() }
    }

    fn done(owner: &str, epoch: u64) -> JobRecord {
        let result = Some(JobResult { outcome: "clean".into(), ..JobResult::default() });
        JobRecord { state: JobState::Done, result, ..running(owner, epoch) }
    }

    fn job(number: usize) -> String {
        format!("job-{number:02}")
    }

    /// Plays a demo in which everything happens as planned.
    fn play() -> Plot {
        let mut plot = Plot::default();
        assert_eq!(plot.see(&job(1), running("anna", 1)).as_deref(), Some("anna starts job-01"));
        assert_eq!(plot.next_act(), None);
        plot.see(&job(2), running("anna", 1));
        assert_eq!(plot.next_act(), Some(Act::KillWorker("anna".into(), vec![job(1), job(2)])));
        for number in 3..=6 {
            plot.see(&job(number), done("bela", 1));
            // The jobs of the killed worker do not count as running.
            assert_eq!(plot.next_act(), None);
        }
        plot.see(&job(7), JobRecord { run: None, ..running("carl", 1) });
        assert_eq!(plot.next_act(), None, "its run has not started");
        plot.see(&job(7), running("carl", 1));
        assert_eq!(plot.next_act(), Some(Act::KillServer(1)));
        assert_eq!(plot.next_act(), None);
        let line = plot.see(&job(1), running("carl", 2));
        assert_eq!(line.as_deref(), Some("carl continues job-01, which anna had started"));
        for number in 7..=JOBS {
            plot.see(&job(number), done("bela", 1));
        }
        plot.see(&job(1), done("carl", 2));
        assert!(!plot.is_over());
        plot.see(&job(2), done("carl", 2));
        assert!(plot.is_over());
        plot
    }

    fn marks() -> String {
        let mut marks = "start job-01 7\n".to_owned();
        (1..=JOBS).for_each(|number| {
            marks.push_str(&format!("start {0} 1{number}\nend {0} 1{number}\n", job(number)));
        });
        marks
    }

    fn missing(plot: &Plot, marks: &str) -> Vec<usize> {
        let all = plot.summary(marks);
        (0..all.len()).filter(|at| !all[*at].0).collect()
    }

    #[test]
    fn a_demo_in_which_everything_happened_lacks_nothing() {
        assert_eq!(missing(&play(), &marks()), [0; 0]);
    }

    #[test]
    fn what_did_not_happen_is_reported_as_missing() {
        assert_eq!(missing(&Plot::default(), ""), [0, 2, 3]);
        let twice = format!("{}end job-03 13\n", marks());
        assert_eq!(missing(&play(), &twice), [0]);
        // The first agent of job-01 writes after the second has started.
        let both = format!("{}step job-01 7\n", marks());
        assert_eq!(missing(&play(), &both), [1]);
        let mut other_run = play();
        let run = "20261115-201533-zzzz".parse().ok();
        other_run.see(&job(1), JobRecord { run, ..done("carl", 2) });
        assert_eq!(missing(&other_run, &marks()), [0, 2]);
        let mut interrupted = play();
        interrupted.see(&job(7), done("bela", 2));
        assert_eq!(missing(&interrupted, &marks()), [0, 3]);
    }
}
