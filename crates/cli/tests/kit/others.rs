//! Finds the processes of a test: by the mark in their environment, or by their working directory if they cleared
//! their environment.

use super::{MARK, TIMEOUT};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Returns the living processes of a test.
pub fn of(dir: &Path) -> Vec<i32> {
    let own = i32::try_from(std::process::id()).expect("a pid");
    let entries = fs::read_dir("/proc").expect("there is /proc").flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != own && belongs(*pid, dir)).collect()
}

fn belongs(pid: i32, dir: &Path) -> bool {
    let wanted = [MARK.as_bytes(), b"=", dir.as_os_str().as_encoded_bytes()].concat();
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environ.split(|b| *b == 0).any(|v| v == wanted)
        || fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(dir))
}

/// Returns a process of the test with this name.
pub fn named(dir: &Path, name: &str) -> Option<i32> {
    of(dir)
        .into_iter()
        .find(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name))
}

/// Describes processes for an error message.
pub fn describe(pids: &[i32]) -> String {
    let one = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").map_or("", |(_, rest)| &rest[..1]).to_owned();
        format!("{pid} ({state}) {}", String::from_utf8_lossy(&line).replace('\0', " "))
    };
    pids.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Waits until no process of the test is left.
pub fn wait_for_all(dir: &Path) {
    let until = Instant::now() + TIMEOUT;
    loop {
        let left = of(dir);
        let Some(pid) = left.first() else { return };
        assert!(Instant::now() < until, "still there: {}", describe(&left));
        if let Some(fd) = Pid::from_raw(*pid).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok()) {
            let bound = Timespec::try_from(until.saturating_duration_since(Instant::now())).expect("seconds");
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&bound)).expect("polls");
        }
    }
}

/// Kills all processes of a test that is over.
pub fn kill_all(dir: &Path) {
    for _ in 0..1000 {
        let left = of(dir);
        if left.is_empty() {
            return;
        }
        for pid in left {
            if let Some(fd) = Pid::from_raw(pid).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok())
                && belongs(pid, dir)
            {
                let _ = pidfd_send_signal(fd, Signal::KILL);
            }
        }
    }
}
