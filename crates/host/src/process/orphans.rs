//! Ends the processes of a run whose keeper, and usually its dogwatch, is gone. They are identified by the random
//! nonce of the run in their environment, and this module signals no other process.
//!
//! Limit: a process that cleared its environment cannot be found by its nonce. It is still ended while its keeper or
//! its dogwatch lives, because both are subreapers. It survives only if both are killed at once.

use crate::process::keeper::stat_of;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The environment variable that every process of a run inherits.
pub const NONCE_VAR: &str = "DOGWATCH_NONCE";
/// The environment variable that holds the id of the job.
pub const JOB_VAR: &str = "DOGWATCH_JOB";
/// The parent of all kernel threads, which have no environment.
const KERNEL_THREADS: i32 = 2;
/// How long to keep killing before giving up.
const KILL_BOUND: Duration = Duration::from_secs(5);
/// How long to wait for a killed process before scanning again: others may have forked meanwhile.
const DEATH_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// How many empty scans in a row prove that no process is left. A process that forks and exits while /proc is read
/// may be missed by one scan.
const CERTAIN: u32 = 3;

/// The pause before another scan, and the most such scans, while a process has an unreadable environment. A process
/// shows an empty environment for a moment while it executes another program.
const UNKNOWN_PAUSE: Duration = Duration::from_millis(25);
const MAX_UNKNOWN_SCANS: u32 = 20;

/// Ends every process that carries the nonce. Returns how many were killed and whether none is left. No process of
/// the run started before `since`, in clock ticks since boot.
pub fn end_all(nonce: &str, since: u64) -> (usize, bool) {
    end(&Marks { all: vec![format!("{NONCE_VAR}={nonce}")], since })
}

/// Ends every process of the running supervisor, or of one of its jobs. Returns the same as [`end_all`].
pub fn end_own(nonce: &str, job: Option<u64>) -> (usize, bool) {
    let since = start_time(std::process::id()).unwrap_or(0);
    let job = job.map(|job| format!("{JOB_VAR}={job}"));
    end(&Marks { all: [format!("{NONCE_VAR}={nonce}")].into_iter().chain(job).collect(), since })
}

/// Returns whether a process carries the nonce.
pub fn has_nonce(pid: i32, nonce: &str) -> bool {
    let marks = Marks { all: vec![format!("{NONCE_VAR}={nonce}")], since: 0 };
    check(pid, &marks) == Carries::Yes
}

/// The variables that a process of the run must carry, and the earliest time it can have started.
struct Marks {
    all: Vec<String>,
    since: u64,
}

/// Whether a process carries the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carries {
    Yes,
    No,
    /// Its environment cannot be read now, and it may belong to the run.
    Unknown,
}

/// The result of one scan of all processes.
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
            // An error only makes the next scan start a little sooner.
            let _ = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&DEATH_PAUSE));
        }
    }
}

/// Returns the start time of a live process in clock ticks since boot. Returns `None` if there is no such process or
/// it is a zombie.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = stat_of(i32::try_from(pid).ok()?)?;
    (!stat.is_dead()).then_some(stat.start)
}

/// Kills a process if it carries the marks. The pidfd pins it before its environment is read, so a reused pid is
/// never signaled.
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

/// Returns whether the real user id of the process, which the kernel shows for every process, is that of this
/// process.
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
            .expect("cat starts");
        let pid = i32::try_from(child.id()).expect("a pid");
        let started = start_time(child.id()).expect("it lives");
        let scan = |since| check(pid, &Marks { all: vec!["X=1".to_owned()], since });
        assert_eq!((scan(started), scan(started + 1)), (Carries::Unknown, Carries::No));
        drop(child.stdin.take());
        child.wait().expect("cat exits when stdin closes");
    }
}
