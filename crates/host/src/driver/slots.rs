//! Slots: a keeper with the one job that it keeps. A node has a slot while it has a job; when the job is over
//! the keeper rests, and the next job of any node takes it up again.
//!
//! All of it follows the jobs that run, never the nodes that there are.

use super::agent_channel::McpSession;
use crate::fs::wake::PathWaker;
use crate::process::keeper::Keeper;
use crate::process::pump::Pump;
use crate::process::sinks::JobSink;
use dogwatch_core::record::ids::NodeIx;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::{Exit, Job};
use dogwatch_core::watch::coalesce::Coalescer;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// So many keepers rest at most; one more goes home.
pub(super) const MAX_IDLE_KEEPERS: usize = 64;

/// The job that runs.
pub(super) struct Live {
    pub job: Job,
    /// The keeper's number for it; also what its processes are known by.
    pub number: u64,
    /// What it printed, and who asked for a wake, before the keeper could say that it has started: told after
    /// that.
    pub early: Vec<Input>,
    pub started: bool,
    /// Its main process, once it runs.
    pub main: Option<u32>,
    /// Changes in the work tree while it runs.
    pub workspace: Coalescer,
    /// A session may speak to us.
    pub door: Option<McpSession>,
    /// Its command line, fit to be shown.
    pub argv: Vec<String>,
    /// Nothing but the main process was left when that exited.
    pub alone: bool,
    pub exit: Option<Exit>,
    /// It was told to end before it did by itself.
    pub told: bool,
    pub pump: Pump<JobSink>,
    /// Looks after the worktree that a session has for itself.
    pub watcher: Option<PathWaker>,
}

pub(super) struct Slot {
    /// None once it is lost and what it kept cannot be ended.
    pub keeper: Option<Keeper>,
    pub live: Live,
}

/// Whose keeper has something to say.
#[derive(Clone, Copy)]
pub(super) enum Whose {
    Node(NodeIx),
    /// One that rests, by its pid.
    Nobody(u32),
}

#[derive(Default)]
pub(super) struct Slots {
    busy: BTreeMap<NodeIx, Slot>,
    idle: Vec<Keeper>,
}

impl Slots {
    /// A keeper for a new job: one that rests, else a new one that holds the locks.
    pub fn take_keeper(&mut self, locks: &[BorrowedFd<'_>]) -> io::Result<Keeper> {
        match self.idle.pop() {
            Some(keeper) => Ok(keeper),
            None => Keeper::start_holding(locks),
        }
    }

    /// The keeper's job is over. It has no process any more, so that one too many goes at once.
    pub fn rest(&mut self, keeper: Keeper) {
        if self.idle.len() < MAX_IDLE_KEEPERS {
            self.idle.push(keeper);
        }
    }

    /// Sends the keepers home that rest: no job will need them soon.
    pub fn release_idle(&mut self) {
        self.idle.iter().for_each(Keeper::dismiss);
        self.idle.clear();
    }

    pub fn fill(&mut self, slot: Slot) {
        self.busy.insert(slot.live.job.node, slot);
    }

    pub fn remove(&mut self, node: NodeIx) -> Option<Slot> {
        self.busy.remove(&node)
    }

    pub fn of(&mut self, job: Job) -> Option<&mut Slot> {
        self.node(job.node).filter(|slot| slot.live.job == job)
    }

    pub fn node(&mut self, node: NodeIx) -> Option<&mut Slot> {
        self.busy.get_mut(&node)
    }

    pub fn all(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.busy.values_mut()
    }

    pub fn is_empty(&self) -> bool {
        self.busy.is_empty()
    }

    /// Everything to listen to, in one order.
    pub fn keepers(&self) -> impl Iterator<Item = (Whose, BorrowedFd<'_>)> {
        let busy = self
            .busy
            .iter()
            .filter_map(|(node, slot)| Some((Whose::Node(*node), slot.keeper.as_ref()?.as_fd())));
        busy.chain(self.idle.iter().map(|keeper| (Whose::Nobody(keeper.pid()), keeper.as_fd())))
    }

    /// Hears out a keeper that rests: what it says is about jobs that are over. An error means that it is gone.
    pub fn hear_resting(&mut self, pid: u32) -> io::Result<()> {
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

    /// Sends all keepers home and waits until they have gone. All are told first, so that they go at once.
    pub fn shut_down(self) -> io::Result<()> {
        let busy = self.busy.into_values().filter_map(|slot| slot.keeper);
        let keepers: Vec<Keeper> = self.idle.into_iter().chain(busy).collect();
        keepers.iter().for_each(Keeper::dismiss);
        keepers.into_iter().map(Keeper::shut_down).fold(Ok(()), Result::and)
    }
}
