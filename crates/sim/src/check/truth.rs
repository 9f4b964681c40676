//! The real actions of the agents, noted by the machine and not by dogwatch.

use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_core::settings::WatchPolicy;
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::StopReason;
use std::collections::BTreeMap;

/// The truth about the sessions.
#[derive(Debug)]
pub struct Truth {
    /// Whether dogwatch always had CPU time.
    pub punctual: bool,
    /// When each session last made progress.
    progress: BTreeMap<(NodeName, Iteration), Awake>,
    /// When the main process of each session exited. A crash does not change what happened before it.
    exits: BTreeMap<(NodeName, Iteration), Awake>,
}

impl Default for Truth {
    fn default() -> Truth {
        Truth { punctual: true, progress: BTreeMap::new(), exits: BTreeMap::new() }
    }
}

impl Truth {
    /// Notes that an agent made progress at this moment, whether dogwatch has noticed it or not.
    pub(crate) fn progressed(&mut self, node: NodeName, iteration: Iteration, at: Awake) {
        self.progress.insert((node, iteration), at);
    }

    /// Notes that the agent of a session exited or was killed, whether dogwatch has noticed it or not.
    pub(crate) fn exited(&mut self, node: NodeName, iteration: Iteration, at: Awake) {
        self.exits.insert((node, iteration), at);
    }

    /// Returns when the agent of a session exited.
    pub(super) fn exit_of(&self, node: &NodeName, iteration: Iteration) -> Option<Awake> {
        self.exits.get(&(node.clone(), iteration)).copied()
    }

    /// Forgets the progress of sessions that are gone.
    pub(crate) fn forget(&mut self) {
        self.progress.clear();
    }

    /// Asserts that silence is judged only after the agent was really silent for that long.
    pub(crate) fn judged(&mut self, recorded: &Recorded, policy: &WatchPolicy) {
        let Event::HardStop { node, iteration, reason, .. } = &recorded.event else { return };
        let Some(at) = self.progress.remove(&(node.clone(), *iteration)) else { return };
        let silence = matches!(reason, StopReason::NoOutputDeadline | StopReason::NoOutputAtStart);
        if let Some(idle) = policy.idle.duration().filter(|_| silence) {
            let silent = recorded.awake_ms.since(at);
            assert!(silent >= idle, "ended after {silent} of silence, not {idle}: {recorded:?}");
        }
    }
}
