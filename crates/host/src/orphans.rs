//! Processes of a run whose keeper is gone, and mostly its dogwatch too. They are known by the run's random nonce
//! in their environment, and only such processes are ever signalled from here.

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
/// How long we kill before we say that it cannot be done.
const KILL_BOUND: Duration = Duration::from_secs(5);
/// How long a killed process is waited for before all are looked at again: others may have forked.
const DEATH_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// /proc is no snapshot: who forks and exits while it is read may be missed, so one look is not enough.
const CERTAIN: u32 = 3;

/// Ends every process that carries the nonce. Answers how many were found, and whether all are gone.
pub fn end_all(nonce: &str) -> (usize, bool) {
    end(&Marks(vec![format!("{NONCE_VAR}={nonce}")]))
}

/// The same for the processes of one job of a run that lives.
pub fn end_job(nonce: &str, job: u64) -> (usize, bool) {
    end(&Marks(vec![format!("{NONCE_VAR}={nonce}"), format!("{JOB_VAR}={job}")]))
}

/// Variables, all of which a process must carry to be meant.
struct Marks(Vec<String>);

fn end(marks: &Marks) -> (usize, bool) {
    let until = Instant::now() + KILL_BOUND;
    let mut ended = BTreeSet::new();
    let mut seen_nobody = 0;
    loop {
        let found = carriers(marks);
        seen_nobody = if found.is_empty() { seen_nobody + 1 } else { 0 };
        if seen_nobody == CERTAIN {
            return (ended.len(), true);
        }
        if Instant::now() > until {
            return (ended.len(), false);
        }
        let mut dying = Vec::new();
        for pid in found {
            if let Some(fd) = kill_carrier(pid, marks) {
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
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name may hold blanks and parentheses; the numbers begin after the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

/// The pidfd pins the process before its environment is looked at, so a reused pid is never hit.
fn kill_carrier(pid: i32, marks: &Marks) -> Option<OwnedFd> {
    let fd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    (carries(pid, marks) && pidfd_send_signal(&fd, Signal::KILL).is_ok()).then_some(fd)
}

fn carriers(marks: &Marks) -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid > 1 && *pid != own && carries(*pid, marks)).collect()
}

/// A zombie's environment reads as empty, so the dead do not count.
fn carries(pid: i32, marks: &Marks) -> bool {
    let Ok(env) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    marks.0.iter().all(|mark| env.split(|b| *b == 0).any(|v| v == mark.as_bytes()))
}
