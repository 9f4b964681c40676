//! Finding and signalling the keeper's own descendants, and nobody else.
//!
//! A pid is a proof of identity only while its process cannot be reaped by others: that holds for our
//! own children, since only we reap them. Everything deeper is held by a pidfd first and signalled
//! through it only after its parentage was seen *while* held.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::MAX_REMNANTS;
use super::order::Remnant;
use crate::sys::is_unreaped;

/// The most descendants that one broad pass looks at; the rest is met as our own children later.
const MAX_PASS: usize = 4096;

/// Our own children, zombies included. `None` where /proc does not tell (no CONFIG_PROC_CHILDREN).
#[derive(Debug)]
pub struct Descendants {
    me: i32,
    own: Option<File>,
}

impl Descendants {
    pub fn new() -> Self {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        // Kept open: in the race with a process that forks away every microsecond counts.
        Self { me, own: File::open(format!("/proc/self/task/{me}/children")).ok() }
    }

    /// Own children now. A child that is born or handed to us meanwhile may be missing: callers repeat
    /// until `waitpid` says that there is none.
    pub fn children(&self) -> Vec<i32> {
        match &self.own {
            Some(file) => pids_in(&read_all(file)),
            None => all_by_parent().remove(&self.me).unwrap_or_default(),
        }
    }

    /// Sends a signal to every own child.
    pub fn signal_children(&self, signal: Signal) -> Vec<i32> {
        let children = self.children();
        for pid in &children {
            signal_child(*pid, signal);
        }
        children
    }

    /// Sends signals, in order, to every descendant that can be found and proven.
    pub fn signal_all(&self, signals: &[Signal]) {
        let mut open: Vec<Held> = Vec::new();
        for pid in self.children() {
            for signal in signals {
                signal_child(pid, *signal);
            }
            open.extend(Held::take(pid));
        }
        self.signal_below(open, signals);
    }

    /// Sends signals, in order, to every process below these that can be proven to descend from them.
    fn signal_below(&self, mut open: Vec<Held>, signals: &[Signal]) {
        let table = self.own.is_none().then(all_by_parent);
        let below = |pid| match &table {
            Some(table) => table.get(&pid).cloned().unwrap_or_default(),
            None => children_of(pid),
        };
        let mut seen: HashSet<i32> = open.iter().map(|held| held.pid).collect();
        while let Some(parent) = open.pop() {
            for pid in below(parent.pid) {
                if seen.len() >= MAX_PASS || !seen.insert(pid) {
                    continue;
                }
                let Some(held) = Held::take(pid) else { continue };
                if self.proven(&held, &parent) {
                    signals.iter().for_each(|signal| held.signal(*signal));
                    open.push(held);
                }
            }
        }
    }

    /// True when the held process is ours: its parent is the keeper, or is the held process above
    /// it, which still has its pid. Both were true at one moment after `held` was taken.
    fn proven(&self, held: &Held, parent: &Held) -> bool {
        match stat_of(held.pid) {
            Some(stat) => stat.parent == self.me || (stat.parent == parent.pid && parent.is_there()),
            None => false,
        }
    }

    /// How many own children are left, and who the first of them are.
    pub fn remnants(&self) -> (u64, Vec<Remnant>) {
        let children = self.children();
        let detail = children.iter().take(MAX_REMNANTS).filter_map(|pid| {
            let stat = stat_of(*pid)?;
            Some(Remnant { pid: u32::try_from(*pid).ok()?, comm: stat.comm, state: stat.state })
        });
        (u64::try_from(children.len()).unwrap_or(u64::MAX), detail.collect())
    }
}

/// Kills every process below this one that can be found and proven, but not the process itself.
pub fn kill_below(root: Held) {
    let own = File::open(format!("/proc/{0}/task/{0}/children", root.pid)).ok();
    Descendants { me: root.pid, own }.signal_below(vec![root], &[Signal::KILL]);
}

/// Signals an own child, which cannot have been reaped by anybody else. One that refuses (another
/// user's, for a set-uid program) is found out by its staying.
fn signal_child(pid: i32, signal: Signal) {
    if let Some(pid) = single_process(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// No pid of ours is 1 or less; as an argument of kill these mean many processes at once.
fn single_process(pid: i32) -> Option<Pid> {
    if pid > 1 { Pid::from_raw(pid) } else { None }
}

/// A process that is held: its pidfd never comes to mean another one.
#[derive(Debug)]
pub struct Held {
    pub pid: i32,
    fd: OwnedFd,
}

impl Held {
    pub fn take(pid: i32) -> Option<Self> {
        let fd = pidfd_open(single_process(pid)?, PidfdFlags::empty()).ok()?;
        Some(Self { pid, fd })
    }

    /// Not yet reaped, so that its pid still means it.
    pub fn is_there(&self) -> bool {
        is_unreaped(self.fd.as_fd())
    }

    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.fd, signal);
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What the kernel says about a process.
#[derive(Debug)]
pub struct Stat {
    pub comm: String,
    pub state: char,
    pub parent: i32,
    pub session: i32,
    /// When it was started, in clock ticks since boot.
    pub start: u64,
}

impl Stat {
    /// Dead, and not yet reaped.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Stopped by a signal or by a tracer.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// `pid (comm) state ppid …`; the name may hold anything, also brackets and spaces.
pub fn stat_of(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(line: &[u8]) -> Option<Stat> {
    let line = String::from_utf8_lossy(line);
    let (start, end) = (line.find('(')?, line.rfind(')')?);
    let mut rest = line.get(end + 1..)?.split_ascii_whitespace();
    let state = rest.next()?.chars().next()?;
    let parent = rest.next()?.parse().ok()?;
    let session = rest.nth(1)?.parse().ok()?;
    let comm = line.get(start + 1..end)?.to_owned();
    Some(Stat { comm, state, parent, session, start: rest.nth(15)?.parse().ok()? })
}

fn read_all(file: &File) -> Vec<u8> {
    let mut text = Vec::new();
    let mut chunk = [0_u8; 4096];
    loop {
        let at = u64::try_from(text.len()).unwrap_or(u64::MAX);
        match file.read_at(&mut chunk, at) {
            Ok(0) | Err(_) => return text,
            Ok(got) => text.extend_from_slice(&chunk[..got]),
        }
    }
}

fn pids_in(text: &[u8]) -> Vec<i32> {
    let words = text.split(|byte| byte.is_ascii_whitespace());
    words.filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok()).collect()
}

/// Children hang off the thread that made them.
fn children_of(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| fs::read(thread.path().join("children")).ok());
    lists.flat_map(|list| pids_in(&list)).collect()
}

/// The children of this process, whichever of its threads has them.
pub fn own_children() -> Vec<i32> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    if fs::exists(format!("/proc/self/task/{me}/children")).unwrap_or(false) {
        children_of(me)
    } else {
        all_by_parent().remove(&me).unwrap_or_default()
    }
}

/// Every process by its parent: the slow way, for kernels that do not list children.
fn all_by_parent() -> HashMap<i32, Vec<i32>> {
    let mut table: HashMap<i32, Vec<i32>> = HashMap::new();
    let Ok(entries) = fs::read_dir("/proc") else { return table };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(stat) = stat_of(pid) {
            table.entry(stat.parent).or_default().push(pid);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_parentheses_is_parsed() {
        let line = b"42 (a) Z 1 (\xff) S 7 41 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 10 11";
        let stat = parse_stat(line).expect("it is whole");
        assert_eq!((stat.comm.as_str(), stat.state, stat.parent), ("a) Z 1 (\u{fffd}", 'S', 7));
        assert_eq!((stat.session, stat.start), (40, 98_765));
        assert!(parse_stat(b"42 (cut").is_none());
    }

    #[test]
    fn a_pid_that_addresses_many_processes_is_never_signaled() {
        assert!([-1, 0, 1, i32::MIN].into_iter().all(|pid| single_process(pid).is_none()));
    }

    #[test]
    fn both_ways_of_listing_find_a_child() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("there is cat");
        let pid = i32::try_from(child.id()).expect("a pid");
        let me = i32::try_from(std::process::id()).expect("a pid");
        assert!(children_of(me).contains(&pid));
        assert!(all_by_parent().get(&me).is_some_and(|children| children.contains(&pid)));
        drop(child.stdin.take());
        child.wait().expect("it ends with its input");
    }
}
