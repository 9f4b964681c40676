//! The rules for a node that is a job of its own, from the side of the graph that waits for it.

use super::{JobRecord, JobState};
use crate::time::dur::Dur;
use crate::time::moment::Boot;

/// How long a node may wait in the queue for its first worker.
pub const MAX_QUEUED: Dur = Dur::from_secs(24 * 3600);
/// How often a node whose job was stopped is queued again in one attempt of the graph.
pub const MAX_AGAIN: u32 = 16;
/// The outcome of a node that was ended before it was over.
pub const STOPPED: &str = "stopped";

/// The next step of a graph for one of the jobs that an attempt of a node may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStep {
    /// Queue it.
    Queue {
        /// Whether it has a record already.
        recorded: bool,
    },
    /// Follow it: a worker has taken it, or it is over.
    Follow,
    /// Take the next one: this one was stopped, and no iteration has its result.
    Skip,
    /// Fail the attempt: too many jobs of it were stopped.
    Fail,
}

/// Decides about job number `again` of an attempt, whose record is `found`.
pub fn node_step(found: Option<&JobRecord>, again: u32) -> NodeStep {
    if again >= MAX_AGAIN {
        return NodeStep::Fail;
    }
    let Some(record) = found else { return NodeStep::Queue { recorded: false } };
    if record.result.as_ref().is_some_and(|result| result.outcome == STOPPED) {
        return NodeStep::Skip;
    }
    match record.state {
        JobState::Queued => NodeStep::Queue { recorded: true },
        JobState::Running | JobState::Released | JobState::Done | JobState::Poisoned => NodeStep::Follow,
    }
}

/// Returns when a node that the graph has followed since a moment has waited too long, if it waits.
pub fn waits_until(record: &JobRecord, since: Boot) -> Option<Boot> {
    (record.epoch == 0 && !record.state.is_over()).then(|| since.plus(MAX_QUEUED))
}

/// Returns why a node has to end unless a worker runs it, if it has to.
pub fn why_end(record: &JobRecord, graph_stops: bool, since: Boot, now: Boot) -> Option<&'static str> {
    if record.state.is_over() {
        return None;
    }
    if graph_stops {
        return Some("its graph stops");
    }
    waits_until(record, since).is_some_and(|until| until <= now).then_some("no worker took it in time")
}

#[cfg(test)]
mod tests {
    use super::super::JobResult;
    use super::*;

    fn record(state: JobState, epoch: u64, outcome: Option<&str>) -> JobRecord {
        let result = outcome.map(|outcome| JobResult { outcome: outcome.to_owned(), ..JobResult::default() });
        JobRecord { state, epoch, result, ..JobRecord::default() }
    }

    #[test]
    fn a_node_waits_a_day_for_its_first_worker_and_is_then_ended() {
        let (since, queued) = (Boot(5_000), record(JobState::Queued, 0, None));
        let end = since.plus(MAX_QUEUED);
        assert_eq!(waits_until(&queued, since), Some(Boot(5_000 + 24 * 3_600 * 1_000)));
        assert_eq!(why_end(&queued, false, since, Boot(end.0 - 1)), None);
        assert_eq!(why_end(&queued, false, since, end), Some("no worker took it in time"));
    }

    #[test]
    fn a_node_that_a_worker_has_taken_waits_for_as_long_as_it_takes() {
        let (since, later) = (Boot(0), Boot(0).plus(MAX_QUEUED).plus(MAX_QUEUED));
        for state in [JobState::Running, JobState::Released] {
            let taken = record(state, 1, None);
            assert_eq!((waits_until(&taken, since), why_end(&taken, false, since, later)), (None, None));
            assert_eq!(why_end(&taken, true, since, since), Some("its graph stops"));
        }
        let over = record(JobState::Done, 0, Some(STOPPED));
        assert_eq!((waits_until(&over, since), why_end(&over, true, since, later)), (None, None));
    }

    #[test]
    fn an_attempt_fails_when_all_its_jobs_were_stopped() {
        let stopped = record(JobState::Done, 1, Some(STOPPED));
        for again in 0..MAX_AGAIN {
            assert_eq!(node_step(Some(&stopped), again), NodeStep::Skip, "{again}");
        }
        for found in [None, Some(&stopped), Some(&record(JobState::Running, 1, None))] {
            assert_eq!(node_step(found, MAX_AGAIN), NodeStep::Fail);
        }
    }

    #[test]
    fn a_job_that_is_not_taken_is_queued_and_any_other_is_followed() {
        assert_eq!(node_step(None, 0), NodeStep::Queue { recorded: false });
        let queued = record(JobState::Queued, 0, None);
        assert_eq!(node_step(Some(&queued), MAX_AGAIN - 1), NodeStep::Queue { recorded: true });
        for state in [JobState::Running, JobState::Released, JobState::Done, JobState::Poisoned] {
            assert_eq!(node_step(Some(&record(state, 1, Some("clean"))), 3), NodeStep::Follow, "{state:?}");
        }
    }
}
