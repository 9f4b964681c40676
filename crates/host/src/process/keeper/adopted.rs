//! Adopts and ends the processes of a dead keeper: the supervisor is the subreaper of last resort.
//!
//! When a keeper dies, its children become children of the nearest living subreaper, which is this process. It finds
//! them in /proc, kills them and reaps them one by one until none is left. It cannot use `waitpid(-1)`, because that
//! would also reap keepers, whose exit status the standard library waits for.
//!
//! A child of this process was adopted if it is not a keeper, is not in the session of this process (every keeper and
//! every job has its own session, and a process cannot join another one), and did not exist before the first keeper.
//! A shell may have started background jobs before it replaced itself with dogwatch. In that case a later child may
//! descend from one of those jobs, so only children with a proof of origin are ended.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, waitpid};

use super::Keeper;
use crate::process::orphans;
use dogwatch_core::drive::shell::KeeperKilled;

use super::descendants::{Held, Stat, kill_below, own_children, stat_of};

/// How long to keep killing adopted processes before they count as unkillable.
const ADOPTED_BOUND: Duration = Duration::from_secs(5);
/// How long one round waits for a killed process before it scans again.
const DEATH_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// How many empty scans in a row prove that no process is left. A list that changes while it is read may miss an
/// entry.
const CERTAIN: u32 = 3;

/// The children of this process that are never adopted ones.
struct Known {
    keepers: BTreeSet<i32>,
    /// The children that existed before the first keeper, with their start times. `None` until the first keeper
    /// starts.
    before: Option<BTreeMap<i32, u64>>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { keepers: BTreeSet::new(), before: None });

/// Ignores poisoning: the panic was already reported, and the sets are still valid.
fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result of ending the adopted processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The number of killed processes.
    pub killed: usize,
    /// Whether no adopted process is left.
    pub all: bool,
}

/// Starts a keeper. The lock is held across the fork, so a new keeper is never mistaken for an adopted process.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut known = known();
    if known.before.is_none() {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let started = |pid: i32| Some((pid, stat_of(pid)?.start));
        known.before = Some(own_children().into_iter().filter_map(started).collect());
    }
    let child = command.spawn()?;
    known.keepers.insert(pid_of(&child));
    Ok(child)
}

/// Reaps a dead keeper and forgets it. Returns `None` if it cannot be reaped yet, for example because a debugger is
/// attached.
pub fn reap(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let mut known = known();
    let status = child.try_wait()?;
    if status.is_some() {
        known.keepers.remove(&pid_of(child));
    }
    Ok(status)
}

fn pid_of(child: &Child) -> i32 {
    Pid::from_child(child).as_raw_nonzero().get()
}

/// Kills the keeper of a job. Its children then become children of this process and are killed here; a search by nonce
/// finds any that escaped. Without a nonce there is no such search. Without a job the nonce alone marks them.
pub fn kill_with_tree(keeper: Option<&mut Keeper>, nonce: Option<&str>, job: Option<u64>) -> KeeperKilled {
    let buried = keeper.map_or(Ok(()), Keeper::kill_keeper);
    let adopted = end_all(|pid| nonce.is_some_and(|nonce| orphans::has_nonce(pid, nonce)));
    let (marked, none_marked) = nonce.map_or((0, true), |nonce| orphans::end_own(nonce, job));
    KeeperKilled {
        killed: (adopted.killed + marked) as u64,
        all: buried.is_ok() && adopted.all && none_marked,
    }
}

/// Kills and reaps every adopted process. `is_ours` proves the origin of a process; it is called only if this process
/// had other children before its first keeper.
pub fn end_all(is_ours: impl Fn(i32) -> bool) -> Ended {
    let until = Instant::now() + ADOPTED_BOUND;
    let mut killed = BTreeSet::new();
    let mut clean = 0;
    loop {
        // Hold the lock for the whole round, so that no keeper is started or reaped meanwhile.
        let known = known();
        let found = find(&known, &is_ours);
        clean = if found.is_empty() { clean + 1 } else { 0 };
        if clean == CERTAIN {
            return Ended { killed: killed.len(), all: true };
        }
        if Instant::now() > until {
            return Ended { killed: killed.len(), all: false };
        }
        let mut dying = Vec::new();
        for (pid, stat) in found {
            if !stat.is_dead() {
                killed.insert(pid);
            }
            dying.extend(kill(pid));
        }
        drop(known);
        for held in &dying {
            // An error only makes the next round start a little sooner.
            let _ = poll(&mut [PollFd::new(held, PollFlags::IN)], Some(&DEATH_PAUSE));
        }
    }
}

fn find(known: &Known, is_ours: &impl Fn(i32) -> bool) -> Vec<(i32, Stat)> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let Some(own) = stat_of(me) else { return Vec::new() };
    let none = BTreeMap::new();
    let before = known.before.as_ref().unwrap_or(&none);
    let children = own_children().into_iter().filter(|pid| !known.keepers.contains(pid));
    let adopted = children.filter_map(|pid| {
        let stat = stat_of(pid)?;
        let foreign = stat.session == own.session || before.get(&pid) == Some(&stat.start);
        let proven = before.is_empty() || stat.is_dead() || is_ours(pid);
        (stat.parent == me && !foreign && proven).then_some((pid, stat))
    });
    adopted.collect()
}

/// Kills an adopted child and all descendants that can be found. Returns the child unless it is already reaped.
fn kill(pid: i32) -> Option<Held> {
    // No other code reaps this child, so its pid stays valid until it is reaped here.
    let held = Held::take(pid)?;
    held.signal(Signal::KILL);
    let child = Pid::from_raw(pid)?;
    if waitpid(Some(child), WaitOptions::NOHANG).is_ok_and(|reaped| reaped.is_some()) {
        return None;
    }
    kill_below(Held::take(pid)?);
    Some(held)
}
