//! The running jobs, at most one per node.

use super::shell::Sent;
use crate::record::ids::NodeIx;
use crate::run::agent_channel::AgentChannel;
use crate::run::input::{Input, NodeInput};
use crate::run::job::{Exit, Job, JobKind};
use crate::time::moment::Awake;
use crate::watch::feed::Feed;
use std::collections::BTreeMap;

/// The most inputs of one job that wait for the report of its start. The keeper owes that report within 30 s; in a
/// flood, further observations are dropped until then.
pub const MAX_EARLY: usize = 10_000;
/// The most keepers whose reports are handled in one turn. The end of a session is costly, so if hundreds end together,
/// the driver checks deadlines in between and handles the other keepers in the next turns.
pub const MAX_KEEPERS_PER_TURN: usize = 2;

/// A running job.
#[derive(Debug)]
pub(super) struct Live {
    pub job: Job,
    /// The keeper's number for the job.
    pub number: u64,
    /// Whether a keeper still has the job. It has none once the keeper is lost and some process cannot be killed.
    pub has_keeper: bool,
    /// When to kill the processes again that survived their keeper.
    pub kill_again_at: Option<Awake>,
    /// Inputs that arrived before the keeper reported the start, such as output and wake requests. They are
    /// processed after it.
    early: Vec<Input>,
    pub started: bool,
    /// The pid of the main process, once it runs.
    pub main: Option<u32>,
    /// Evidence other than output: changes in the work tree and requests of the agent.
    pub feed: Feed,
    /// The agent channel of a session.
    pub channel: Option<AgentChannel>,
    /// The command line, with secrets redacted.
    pub argv: Vec<String>,
    /// Whether no other process was left when the main process exited.
    pub alone: bool,
    pub exit: Option<Exit>,
    /// Whether the job was signaled before it exited by itself.
    pub signaled: bool,
    /// Whether the job's own work tree is watched instead of the shared one.
    pub watches_own_tree: bool,
}

impl Live {
    /// Creates a job whose start is ordered.
    pub fn new(job: Job, number: u64, sent: Sent) -> Live {
        Live {
            job,
            number,
            has_keeper: true,
            kill_again_at: None,
            early: Vec::new(),
            started: false,
            main: None,
            // Only output depends on whether the agent is structured.
            feed: Feed::new(false),
            channel: sent.has_channel.then(|| AgentChannel::new(job)),
            argv: sent.argv,
            alone: false,
            exit: None,
            signaled: false,
            watches_own_tree: sent.watches_own_tree,
        }
    }

    /// Returns whether this is a session that may already run although its start is not reported.
    pub fn is_starting_session(&self) -> bool {
        !self.started && self.job.kind == JobKind::Session
    }

    /// Holds an input back until the start is reported. In a flood, only observations are dropped.
    pub fn hold_back(&mut self, input: Input) {
        if self.early.len() < MAX_EARLY || !matches!(input, Input::Job(_, NodeInput::Observed(_))) {
            self.early.push(input);
        }
    }

    /// Takes the inputs that were held back.
    pub fn take_early(&mut self) -> Vec<Input> {
        std::mem::take(&mut self.early)
    }

    /// Hands over what the coalescers of the job hold back, so that it is judged with all evidence.
    pub fn flush(&mut self, now: Awake) -> impl Iterator<Item = Input> + use<> {
        self.feed.flush(now);
        self.take_items()
    }

    /// Takes what the feed has found.
    pub fn take_items(&mut self) -> impl Iterator<Item = Input> + use<> {
        let (job, mut items) = (self.job, Vec::new());
        self.feed.take_items(&mut items);
        items.into_iter().map(move |item| Input::from_feed(job, item))
    }
}

/// The table of running jobs.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    live: BTreeMap<NodeIx, Live>,
    started: u64,
    /// The node whose keeper was served last.
    last_served: Option<NodeIx>,
}

impl Jobs {
    /// Returns the number of the next job.
    pub fn next_number(&mut self) -> u64 {
        self.started += 1;
        self.started
    }

    /// Adds a job.
    pub fn add(&mut self, live: Live) {
        self.live.insert(live.job.node, live);
    }

    /// Removes and returns the job of a node.
    pub fn remove(&mut self, node: NodeIx) -> Option<Live> {
        self.live.remove(&node)
    }

    /// Returns the entry of a job.
    pub fn of(&mut self, job: Job) -> Option<&mut Live> {
        self.node(job.node).filter(|live| live.job == job)
    }

    /// Returns the job of a node.
    pub fn node(&mut self, node: NodeIx) -> Option<&mut Live> {
        self.live.get_mut(&node)
    }

    /// Iterates over all jobs.
    pub fn all(&mut self) -> impl Iterator<Item = &mut Live> {
        self.live.values_mut()
    }

    /// Selects the keepers to serve now from those that have reports: at most [`MAX_KEEPERS_PER_TURN`], in rotation.
    pub fn next_keepers(&mut self, mut reporting: Vec<NodeIx>) -> Vec<NodeIx> {
        reporting.sort_unstable();
        let last_served = self.last_served;
        let after = reporting.partition_point(|node| last_served.is_some_and(|last| *node <= last));
        reporting.rotate_left(after);
        reporting.truncate(MAX_KEEPERS_PER_TURN);
        self.last_served = reporting.last().copied().or(last_served);
        reporting
    }

    /// Returns when processes that survived their keeper are killed again.
    pub fn next_burial(&self) -> Option<Awake> {
        self.live.values().filter_map(|live| live.kill_again_at).min()
    }

    /// Takes the jobs, with their numbers, whose surviving processes are due to be killed again.
    pub fn take_unburied(&mut self, now: Awake) -> Vec<(Job, u64)> {
        let due = self.live.values_mut().filter(|live| live.kill_again_at.is_some_and(|at| at <= now));
        let taken = due.map(|live| {
            live.kill_again_at = None;
            (live.job, live.number)
        });
        taken.collect()
    }

    /// Returns the most inputs of one job that wait for the report of its start.
    pub fn most_early(&self) -> usize {
        self.live.values().map(|live| live.early.len()).max().unwrap_or(0)
    }

    /// Returns whether no job is running.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keeper_with_reports_is_served_in_rotation() {
        let mut jobs = Jobs::default();
        let nodes = |from: usize, to: usize| (from..to).map(NodeIx).collect::<Vec<_>>();
        assert_eq!(
            jobs.next_keepers(nodes(0, MAX_KEEPERS_PER_TURN)),
            nodes(0, MAX_KEEPERS_PER_TURN),
            "a few are served at once"
        );
        // The later keepers are served even if the first ones always have reports.
        let all = || nodes(0, 2 * MAX_KEEPERS_PER_TURN + 1);
        assert_eq!(jobs.next_keepers(all()), nodes(MAX_KEEPERS_PER_TURN, 2 * MAX_KEEPERS_PER_TURN));
        let mut last = nodes(2 * MAX_KEEPERS_PER_TURN, 2 * MAX_KEEPERS_PER_TURN + 1);
        last.extend(nodes(0, MAX_KEEPERS_PER_TURN - 1));
        assert_eq!(jobs.next_keepers(all()), last);
        assert!(jobs.next_keepers(Vec::new()).is_empty());
        assert_eq!(jobs.next_keepers(nodes(0, 1)), nodes(0, 1));
    }
}
