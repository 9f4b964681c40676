//! Processes of a run whose keeper is gone, and mostly its dogwatch too. They are known by the run's random nonce
//! in their environment, and only such processes are ever signalled from here.
//!
//! Limit: a process that has cleared its environment is not found by its nonce. It is ended all the same while its keeper
//! or its dogwatch lives, because both are subreapers. Only when both are killed at once can it survive.

use crate::process::keeper::stat_of;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The variable that every process of a run inherits.
pub const NONCE_VAR: &str = "DOGWATCH_NONCE";
/// The variable that tells the jobs of a run from each other.
pub const JOB_VAR: &str = "DOGWATCH_JOB";
/// The parent of all kernel threads, which have no environment.
const KERNEL_THREADS: i32 = 2;
/// How long we kill before we say that it cannot be done.
const KILL_BOUND: Duration = Duration::from_secs(5);
/// How long a killed process is waited for before all are looked at again: others may have forked.
const DEATH_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// /proc is no snapshot: who forks and exits while it is read may be missed, so one look is not enough.
const CERTAIN: u32 = 3;

/// A process that just executes another program shows an empty environment for a moment. While there is one that may
/// be ours, all are looked at again after this pause, at most so many times.
const UNKNOWN_PAUSE: Duration = Duration::from_millis(25);
const MAX_UNKNOWN_SCANS: u32 = 20;

/// Ends every process that carries the nonce. Answers how many were found, and whether all are gone. No process of the
/// run is older than `since`, in clock ticks since boot.
pub fn end_all(nonce: &str, since: u64) -> (usize, bool) {
    end(&Marks { all: vec![format!("{NONCE_VAR}={nonce}")], since })
}

/// The same for the processes of one job of a run that lives.
pub fn end_job(nonce: &str, job: u64) -> (usize, bool) {
    let since = start_time(std::process::id()).unwrap_or(0);
    end(&Marks { all: vec![format!("{NONCE_VAR}={nonce}"), format!("{JOB_VAR}={job}")], since })
}

/// Whether a process carries the nonce.
pub fn has_nonce(pid: i32, nonce: &str) -> bool {
    let marks = Marks { all: vec![format!("{NONCE_VAR}={nonce}")], since: 0 };
    check(pid, &marks) == Carries::Yes
}

/// Variables, all of which a process must carry to be meant, and when the oldest of them can have been started.
struct Marks {
    all: Vec<String>,
    since: u64,
}

/// Whether a process carries the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carries {
    Yes,
    No,
    /// Its environment cannot be seen now, and it may be ours.
    Unknown,
}

/// What one look at all processes has shown.
struct Found {
    carriers: Vec<i32>,
    unknown: bool,
}

fn end(marks: &Marks) -> (usize, bool) {
    end_found(|| scan(marks), |pid| kill_carrier(pid, marks))
}

fn end_found(mut scan: impl FnMut() -> Found, mut kill: impl FnMut(i32) -> Option<OwnedFd>) -> (usize, bool) {
    let until = Instant::now() + KILL_BOUND;
    let mut ended = BTreeSet::new();
    let (mut clean, mut unknown_scans) = (0, 0);
    loop {
        let found = scan();
        if found.carriers.is_empty() && found.unknown && unknown_scans < MAX_UNKNOWN_SCANS {
            unknown_scans += 1;
            std::thread::sleep(UNKNOWN_PAUSE);
            continue;
        }
        clean = if found.carriers.is_empty() { clean + 1 } else { 0 };
        if clean == CERTAIN {
            return (ended.len(), true);
        }
        if Instant::now() > until {
            return (ended.len(), false);
        }
        let mut dying = Vec::new();
        for pid in found.carriers {
            if let Some(fd) = kill(pid) {
                ended.insert(pid);
                dying.push(fd);
            }
        }
        for fd in &dying {
            // An error only means that we look again a little sooner.
            let _ = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&DEATH_PAUSE));
        }
    }
}

/// When a living process was started, in clock ticks since boot; `None` if there is no such process, or
/// if it is dead and only its parent has not noticed yet.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = stat_of(i32::try_from(pid).ok()?)?;
    (!stat.is_dead()).then_some(stat.start)
}

/// The pidfd pins the process before its environment is looked at, so a reused pid is never hit.
fn kill_carrier(pid: i32, marks: &Marks) -> Option<OwnedFd> {
    let fd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    (check(pid, marks) == Carries::Yes && pidfd_send_signal(&fd, Signal::KILL).is_ok()).then_some(fd)
}

fn scan(marks: &Marks) -> Found {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let mut found = Found { carriers: Vec::new(), unknown: false };
    let Ok(entries) = fs::read_dir("/proc") else { return found };
    let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    for pid in pids.filter(|pid| *pid > 1 && *pid != own) {
        match check(pid, marks) {
            Carries::Yes => found.carriers.push(pid),
            Carries::No => {}
            Carries::Unknown => found.unknown = true,
        }
    }
    found
}

fn check(pid: i32, marks: &Marks) -> Carries {
    let env = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    if env.is_empty() {
        let stat = stat_of(pid).filter(|stat| stat.start >= marks.since && stat.parent != KERNEL_THREADS);
        return if stat.is_some_and(|stat| !stat.is_dead() && is_of_our_user(pid)) {
            Carries::Unknown
        } else {
            Carries::No
        };
    }
    let carries = marks.all.iter().all(|mark| env.split(|b| *b == 0).any(|v| v == mark.as_bytes()));
    if carries { Carries::Yes } else { Carries::No }
}

/// The real user, which the kernel shows for every process.
fn is_of_our_user(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let uid = line.and_then(|ids| ids.split_ascii_whitespace().next()?.parse().ok());
    uid == Some(rustix::process::getuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_an_unreadable_environment_is_scanned_again() {
        let mut scans = [(vec![], true), (vec![], true), (vec![7], false), (vec![7], true)].into_iter();
        let mut killed = Vec::new();
        let scan = || {
            let (carriers, unknown) = scans.next().unwrap_or_default();
            Found { carriers, unknown }
        };
        let kill = |pid| {
            killed.push(pid);
            fs::File::open("/dev/null").ok().map(OwnedFd::from)
        };
        assert_eq!(end_found(scan, kill), (1, true));
        assert_eq!(killed, [7, 7]);
    }

    #[test]
    fn a_process_that_stays_unknown_causes_only_a_bounded_delay() {
        let mut scans = 0;
        let scan = || {
            scans += 1;
            Found { carriers: Vec::new(), unknown: true }
        };
        assert_eq!(end_found(scan, |_| None), (0, true));
        assert_eq!(scans, MAX_UNKNOWN_SCANS + CERTAIN);
    }

    #[test]
    fn only_a_new_process_of_this_user_without_an_environment_is_unknown() {
        let mut child = std::process::Command::new("/bin/cat")
            .env_clear()
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("there is cat");
        let pid = i32::try_from(child.id()).expect("a pid");
        let started = start_time(child.id()).expect("it lives");
        let scan = |since| check(pid, &Marks { all: vec!["X=1".to_owned()], since });
        assert_eq!((scan(started), scan(started + 1)), (Carries::Unknown, Carries::No));
        drop(child.stdin.take());
        child.wait().expect("it ends with its input");
    }
}
