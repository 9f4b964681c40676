//! Finds and signals the descendants of this process, and no other process.
//!
//! A pid identifies a process reliably only while no other process can reap it. That is true for direct children,
//! because only this process reaps them. Deeper descendants are pinned with a pidfd first, and signaled through it
//! only after their parentage was checked *while* pinned.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use dogwatch_core::text::{one_line, redact};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::MAX_REMNANTS;
use super::order::Remnant;
use crate::sys::is_unreaped;

/// The most descendants that one pass visits. The rest become direct children later.
const MAX_PASS: usize = 4096;
/// The most leftover processes that are named.
pub const MAX_NAMED_PROCESSES: usize = 5;
/// The longest name of a leftover process, in bytes.
const MAX_NAME: usize = 80;
/// The most bytes of a command line that are read.
const MAX_CMDLINE: u64 = 1024;

/// The descendants of one process. `own` is the open list of its children, zombies included; `None` on kernels
/// without CONFIG_PROC_CHILDREN.
#[derive(Debug)]
pub struct Descendants {
    me: i32,
    own: Option<File>,
}

impl Descendants {
    /// Prepares to list the descendants of this process.
    pub fn new() -> Self {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        // Keep the file open: every microsecond counts in the race with a process that keeps forking.
        Self { me, own: File::open(format!("/proc/self/task/{me}/children")).ok() }
    }

    /// Returns the current children. A child that was just forked or adopted may be missing, so callers repeat until
    /// `waitpid` reports that there is none.
    pub fn children(&self) -> Vec<i32> {
        match &self.own {
            Some(file) => pids_in(&read_all(file)),
            None => all_by_parent().remove(&self.me).unwrap_or_default(),
        }
    }

    /// Sends a signal to every child and returns the children.
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

    /// Sends signals, in order, to every process below `open` that is proven to descend from it.
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

    /// Returns whether the held process is a descendant: its parent is this process, or the held parent that still
    /// has its pid. Both were true at one moment after `held` was taken.
    fn proven(&self, held: &Held, parent: &Held) -> bool {
        match stat_of(held.pid) {
            Some(stat) => stat.parent == self.me || (stat.parent == parent.pid && parent.is_there()),
            None => false,
        }
    }

    /// Returns the command lines of the first children, without control characters and secrets. A child that is about to
    /// exit has none; then its own children are named.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for pid in self.children().into_iter().take(MAX_NAMED_PROCESSES) {
            let name = command_line(pid).or_else(|| children_of(pid).into_iter().find_map(command_line));
            names.extend(name.filter(|name| !names.contains(name)));
        }
        names
    }

    /// Returns the number of children left, and details of the first ones.
    pub fn remnants(&self) -> (u64, Vec<Remnant>) {
        let children = self.children();
        let detail = children.iter().take(MAX_REMNANTS).filter_map(|pid| {
            let stat = stat_of(*pid)?;
            Some(Remnant { pid: u32::try_from(*pid).ok()?, comm: stat.comm, state: stat.state })
        });
        (u64::try_from(children.len()).unwrap_or(u64::MAX), detail.collect())
    }
}

/// Returns the command line of a process for people, with the name of its program instead of the path. A process that is
/// dead has none.
fn command_line(pid: i32) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/cmdline")).ok()?.take(MAX_CMDLINE).read_to_end(&mut bytes).ok()?;
    let mut words: Vec<_> =
        bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy).filter(|word| !word.is_empty()).collect();
    let program = words.first_mut()?;
    *program = program.rsplit('/').next().unwrap_or_default().to_owned().into();
    let line = redact::argv(&words).join(" ").replace('\n', " ");
    Some(one_line(&line, MAX_NAME)).filter(|line| !line.is_empty())
}

/// Kills every process below `root` that can be found and proven, but not `root` itself.
pub fn kill_below(root: Held) {
    let own = File::open(format!("/proc/{0}/task/{0}/children", root.pid)).ok();
    Descendants { me: root.pid, own }.signal_below(vec![root], &[Signal::KILL]);
}

/// Signals a child, whose pid is valid because only this process reaps it. Errors are ignored: a child that cannot be
/// signaled (a set-uid program of another user) shows up later as unkillable.
fn signal_child(pid: i32, signal: Signal) {
    if let Some(pid) = single_process(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Rejects pids of 1 or less, which `kill` treats as groups of processes or as init.
fn single_process(pid: i32) -> Option<Pid> {
    if pid > 1 { Pid::from_raw(pid) } else { None }
}

/// A process pinned by a pidfd, which never refers to another process.
#[derive(Debug)]
pub struct Held {
    /// The pid of the process; valid while it is unreaped.
    pub pid: i32,
    fd: OwnedFd,
}

impl Held {
    /// Pins a process. Returns `None` if there is no such process.
    pub fn take(pid: i32) -> Option<Self> {
        let fd = pidfd_open(single_process(pid)?, PidfdFlags::empty()).ok()?;
        Some(Self { pid, fd })
    }

    /// Returns whether the process is not reaped yet, so that its pid is still valid.
    pub fn is_there(&self) -> bool {
        is_unreaped(self.fd.as_fd())
    }

    /// Sends a signal. A dead process is not an error.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.fd, signal);
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Fields of `/proc/PID/stat`.
#[derive(Debug)]
pub struct Stat {
    /// The command name.
    pub comm: String,
    /// The state letter, such as `S` or `Z`.
    pub state: char,
    /// The pid of the parent.
    pub parent: i32,
    /// The session id.
    pub session: i32,
    /// The start time in clock ticks since boot.
    pub start: u64,
}

impl Stat {
    /// Returns whether the process is dead and waits to be reaped.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Returns whether the process is stopped by a signal or a tracer.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// Returns whether a process is stopped by a signal, as by Ctrl-Z.
pub fn is_stopped(pid: u32) -> bool {
    i32::try_from(pid).ok().and_then(stat_of).is_some_and(|stat| stat.is_stopped())
}

/// Reads and parses `/proc/PID/stat`: `pid (comm) state ppid …`. The name may contain parentheses and spaces.
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

/// Returns the children of a process. The kernel lists them per thread that forked them.
fn children_of(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| fs::read(thread.path().join("children")).ok());
    lists.flat_map(|list| pids_in(&list)).collect()
}

/// Returns the children of this process, from all of its threads.
pub fn own_children() -> Vec<i32> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    if fs::exists(format!("/proc/self/task/{me}/children")).unwrap_or(false) {
        children_of(me)
    } else {
        all_by_parent().remove(&me).unwrap_or_default()
    }
}

/// Returns every process by its parent: the slow fallback for kernels that do not list children.
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
        let stat = parse_stat(line).expect("the line is complete");
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
