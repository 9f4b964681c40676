//! Processes of a run whose dogwatch and keeper are both gone. They are known by the run's random nonce
//! in their environment, and only such processes are ever signalled from here.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;

/// The variable that every process of a run inherits.
pub const NONCE_VAR: &str = "DOGWATCH_NONCE";
/// Rounds of looking and killing before we say that it cannot be done.
const MAX_ROUNDS: usize = 50;

/// Ends every process that carries the nonce. Answers how many were found, and whether all are gone.
pub fn end_all(nonce: &str) -> (usize, bool) {
    let mut ended = std::collections::BTreeSet::new();
    for _ in 0..MAX_ROUNDS {
        let found = carriers(nonce);
        if found.is_empty() {
            return (ended.len(), true);
        }
        for pid in found {
            if kill_carrier(pid, nonce) {
                ended.insert(pid);
            }
        }
    }
    (ended.len(), carriers(nonce).is_empty())
}

/// When a process was started, in clock ticks since boot; `None` if there is no such process.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name may hold blanks and parentheses; the numbers begin after the last one.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The pidfd pins the process before its environment is looked at, so a reused pid is never hit.
fn kill_carrier(pid: i32, nonce: &str) -> bool {
    let Some(fd) = Pid::from_raw(pid).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok()) else {
        return false;
    };
    carries(pid, nonce) && pidfd_send_signal(fd, Signal::KILL).is_ok()
}

fn carriers(nonce: &str) -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid > 1 && *pid != own && carries(*pid, nonce)).collect()
}

/// A zombie's environment reads as empty, so the dead do not count.
fn carries(pid: i32, nonce: &str) -> bool {
    let wanted = format!("{NONCE_VAR}={nonce}");
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|env| env.split(|b| *b == 0).any(|v| v == wanted.as_bytes()))
}
