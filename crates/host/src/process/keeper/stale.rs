//! Keepers that outlived their supervisor and still hold its lock.
//!
//! Such a keeper ends its tree and exits, unless it is stopped. It is identified by the lock: the kernel records
//! which process locked an open file, and only a keeper of that process shares the open file.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::process::Signal;

use super::descendants::{Held, kill_below, stat_of};

/// Until this time a stopped keeper is only resumed. After it, the processes that could stop the keeper again are
/// killed first.
const STALE_PATIENCE: Duration = Duration::from_secs(2);
/// A keeper that is still stopped after this is killed.
const STALE_BOUND: Duration = Duration::from_secs(8);

/// Resumes or kills stopped keepers of a dead supervisor that hold this lock. Call it repeatedly; `waited` is the
/// time since the first call. Running keepers are skipped: they exit by themselves.
pub fn release(lock: &File, holder: u32, waited: Duration) {
    let Ok(inode) = lock.metadata().map(|meta| meta.ino()) else { return };
    for keeper in keepers_of(inode, holder) {
        if !stat_of(keeper.pid).is_some_and(|stat| stat.is_stopped()) {
            continue;
        }
        if waited >= STALE_PATIENCE {
            // A stopped keeper reaps nothing, so all processes below it can be found.
            Held::take(keeper.pid).into_iter().for_each(kill_below);
        }
        keeper.signal(if waited >= STALE_BOUND { Signal::KILL } else { Signal::CONT });
    }
}

fn keepers_of(inode: u64, holder: u32) -> Vec<Held> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // Pin the process before checking it, so that the check applies to the process that is signaled.
    let named = pids.filter(|pid| stat_of(*pid).is_some_and(|stat| stat.comm == super::NAME));
    named.filter_map(Held::take).filter(|held| holds(held.pid, inode, holder) && held.is_there()).collect()
}

/// Returns whether the process shares the open file that the holder locked.
fn holds(pid: i32, inode: u64, holder: u32) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return false };
    let infos = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    infos.into_iter().any(|info| info.lines().any(|line| is_lock(line, inode, holder)))
}

/// Parses a line such as `lock: 1: FLOCK ADVISORY WRITE 1234 fe:01:5678 0 EOF` and compares its pid and inode.
fn is_lock(line: &str, inode: u64, holder: u32) -> bool {
    let Some(lock) = line.strip_prefix("lock:") else { return false };
    let words: Vec<&str> = lock.split_ascii_whitespace().collect();
    let [_, "FLOCK", _, "WRITE", pid, file, ..] = words[..] else { return false };
    let of_file = file.rsplit(':').next().and_then(|number| number.parse().ok());
    pid.parse() == Ok(holder) && of_file == Some(inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_recognized_by_its_owner_and_its_file() {
        let line = "lock:\t1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF";
        assert!(is_lock(line, 5678, 1234));
        assert!(!is_lock(line, 5678, 1235) && !is_lock(line, 5679, 1234));
        assert!(!is_lock("pos:\t0", 0, 0));
        assert!(!is_lock(&line.replace("FLOCK", "POSIX"), 5678, 1234));
    }

    #[test]
    fn our_own_lock_is_found_in_proc() {
        let file = tempfile::tempfile().expect("a file");
        file.lock().expect("locks");
        let own = std::process::id();
        let inode = file.metadata().expect("is there").ino();
        let pid = i32::try_from(own).expect("a pid");
        assert!(holds(pid, inode, own));
        assert!(!holds(pid, inode, own + 1));
    }
}
