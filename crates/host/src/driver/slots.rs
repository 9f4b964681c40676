//! Slots: a keeper together with its one job. A node has a slot while it has a job. When the job ends, the keeper
//! becomes idle and the next job of any node reuses it.
//!
//! Memory use follows the number of running jobs, not the number of nodes.

use super::agent_channel::McpSession;
use crate::fs::wake::PathWaker;
use crate::leash::KeeperLeash;
use crate::process::keeper::Keeper;
use crate::process::pump::Pump;
use crate::process::sinks::JobSink;
use dogwatch_core::record::ids::NodeIx;
use dogwatch_core::run::job::Job;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The most idle keepers that are kept. Any more are stopped.
pub(super) const MAX_IDLE_KEEPERS: usize = 64;

/// A keeper and its job.
pub(super) struct Slot {
    pub job: Job,
    /// `None` once the keeper is lost and its processes cannot be killed.
    pub keeper: Option<Keeper>,
    pub pump: Pump<JobSink>,
    /// The agent channel of a session.
    pub mcp: Option<McpSession>,
    /// Watches the worktree of a session that has its own.
    pub watcher: Option<PathWaker>,
}

/// The keeper that has a report.
#[derive(Clone, Copy)]
pub(super) enum ReportingKeeper {
    Node(NodeIx),
    /// An idle keeper, by its pid.
    Idle(u32),
}

#[derive(Default)]
pub(super) struct Slots {
    busy: BTreeMap<NodeIx, Slot>,
    idle: Vec<Keeper>,
}

impl Slots {
    /// Returns a keeper for a new job: an idle one, or else a new one that holds the locks.
    pub fn take_keeper(
        &mut self,
        locks: &[BorrowedFd<'_>],
        leash: Option<&KeeperLeash>,
    ) -> io::Result<Keeper> {
        if let Some(keeper) = self.idle.pop() {
            return Ok(keeper);
        }
        let mut keeper = Keeper::start_holding(locks)?;
        if let Some(leash) = leash {
            keeper.send(leash.first_order()?)?;
        }
        Ok(keeper)
    }

    /// Passes the end of the leash to all keepers. The loss of one is noticed when it is used.
    pub fn renew_leash(&mut self, leash: &KeeperLeash) {
        let busy = self.busy.values_mut().filter_map(|slot| slot.keeper.as_mut());
        for keeper in busy.chain(&mut self.idle) {
            let _ = keeper.send(leash.order());
        }
    }

    /// Makes a keeper idle after its job. A surplus keeper is dropped at once, which is safe because it has no
    /// processes left.
    pub fn rest(&mut self, keeper: Keeper) {
        if self.idle.len() < MAX_IDLE_KEEPERS {
            self.idle.push(keeper);
        }
    }

    /// Stops the idle keepers, because no job will need them soon.
    pub fn release_idle(&mut self) {
        self.idle.iter().for_each(Keeper::dismiss);
        self.idle.clear();
    }

    /// Adds a slot.
    pub fn fill(&mut self, slot: Slot) {
        self.busy.insert(slot.job.node, slot);
    }

    /// Removes and returns the slot of a node.
    pub fn remove(&mut self, node: NodeIx) -> Option<Slot> {
        self.busy.remove(&node)
    }

    /// Returns the slot of a node.
    pub fn node(&mut self, node: NodeIx) -> Option<&mut Slot> {
        self.busy.get_mut(&node)
    }

    /// Returns the keeper of a node's job.
    pub fn keeper(&mut self, node: NodeIx) -> Option<&mut Keeper> {
        self.node(node)?.keeper.as_mut()
    }

    /// Returns the agent channel of a job.
    pub fn mcp_of(&self, job: Job) -> Option<&McpSession> {
        self.busy.get(&job.node).filter(|slot| slot.job == job)?.mcp.as_ref()
    }

    /// Iterates over all slots.
    pub fn all(&self) -> impl Iterator<Item = &Slot> {
        self.busy.values()
    }

    /// Iterates over the file descriptors of all keepers, in a fixed order.
    pub fn keepers(&self) -> impl Iterator<Item = (ReportingKeeper, BorrowedFd<'_>)> {
        let busy = self
            .busy
            .iter()
            .filter_map(|(node, slot)| Some((ReportingKeeper::Node(*node), slot.keeper.as_ref()?.as_fd())));
        busy.chain(self.idle.iter().map(|keeper| (ReportingKeeper::Idle(keeper.pid()), keeper.as_fd())))
    }

    /// Discards the reports of an idle keeper: they concern jobs that are over. An error means that the keeper is
    /// gone.
    pub fn drain_idle(&mut self, pid: u32) -> io::Result<()> {
        let Some(at) = self.idle.iter().position(|keeper| keeper.pid() == pid) else { return Ok(()) };
        loop {
            match self.idle[at].receive() {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.idle.swap_remove(at);
                    return Err(error);
                }
            }
        }
    }

    /// Stops all keepers and waits until they have exited. All are asked first, so that they exit in parallel.
    pub fn shut_down(self) -> io::Result<()> {
        let busy = self.busy.into_values().filter_map(|slot| slot.keeper);
        let keepers: Vec<Keeper> = self.idle.into_iter().chain(busy).collect();
        keepers.iter().for_each(Keeper::dismiss);
        keepers.into_iter().map(Keeper::shut_down).fold(Ok(()), Result::and)
    }
}
