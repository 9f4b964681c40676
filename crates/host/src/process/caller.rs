//! Examines the process at the other end of a socket: its ancestors, and the nonces in their environments.

use crate::process::keeper::{ARGUMENT, stat_of};
use crate::process::orphans::NONCE_VAR;
use dogwatch_core::run::caller::Caller;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;

/// The most ancestors that are examined. A process with more is treated as a descendant of the run.
const MAX_ANCESTORS: usize = 1024;
/// The most bytes of an environment that are read. The kernel allows about 6 MiB of arguments and environment.
const MAX_ENVIRONMENT: u64 = 8 * 1024 * 1024;

/// Returns the facts about the process `pid`, as the process `run` sees them. A pid of 0 belongs to a process outside
/// this pid namespace, where dogwatch starts no sessions.
pub fn examine(pid: i32, run: u32) -> Caller {
    let run = i32::try_from(run).unwrap_or(0);
    let mut caller = Caller::default();
    if pid <= 0 || pid == run {
        return caller;
    }
    let mut nonces = BTreeSet::new();
    let mut at = pid;
    for _ in 0..MAX_ANCESTORS {
        nonces.extend(nonces_of(at));
        let parent = match parent_of(at) {
            Parent::Process(parent) => parent,
            // The caller itself must be visible.
            Parent::OfAnotherUser if at != pid => 0,
            // An ancestor that exits hands its children to another one, so the answer would be incomplete.
            Parent::OfAnotherUser | Parent::Unknown => {
                caller.gone = true;
                break;
            }
        };
        if parent == run {
            caller.descends = true;
        }
        if parent <= 1 || caller.descends {
            caller.nonces = nonces.into_iter().collect();
            return caller;
        }
        at = parent;
    }
    Caller { descends: !caller.gone, ..caller }
}

/// Returns the nonces that this process and its ancestors carry: those of the runs whose sessions started it.
pub fn inherited() -> Vec<String> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    examine(own, 0).nonces
}

/// Returns whether this process belongs to a run: it or an ancestor carries a nonce, or an ancestor is a keeper. A process that
/// cannot be examined counts as one that does. Keepers of the operator's own programs do not count; one that an agent starts
/// is below the keeper of its session.
pub fn is_supervised() -> bool {
    let mut at = i32::try_from(std::process::id()).unwrap_or(0);
    for _ in 0..MAX_ANCESTORS {
        let parent = match parent_of(at) {
            Parent::Process(parent) => parent,
            Parent::OfAnotherUser => return false,
            Parent::Unknown => return true,
        };
        if !nonces_of(at).is_empty() || is_keeper(at) {
            return true;
        }
        if parent <= 1 {
            return false;
        }
        at = parent;
    }
    true
}

/// The parent of a process, as far as it can be found out.
enum Parent {
    Process(i32),
    /// The process itself belongs to another user, and `/proc` hides those (`hidepid`). No session of ours is above it:
    /// this is the login or the service that started the user's first process.
    OfAnotherUser,
    /// The process has exited, or cannot be examined.
    Unknown,
}

fn parent_of(pid: i32) -> Parent {
    if let Some(stat) = stat_of(pid) {
        return Parent::Process(stat.parent);
    }
    let is_hidden = Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid) == Err(Errno::PERM));
    if is_hidden { Parent::OfAnotherUser } else { Parent::Unknown }
}

fn is_keeper(pid: i32) -> bool {
    let mut line = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/cmdline")) {
        let _ = file.take(MAX_ENVIRONMENT).read_to_end(&mut line);
    }
    line.split(|b| *b == 0).nth(1) == Some(ARGUMENT.as_bytes())
}

/// Returns the nonces in the environment of a process, or none if it cannot be read.
fn nonces_of(pid: i32) -> Vec<String> {
    let mut env = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/environ")) {
        // The process may exit meanwhile. The search for its parent notices that.
        let _ = file.take(MAX_ENVIRONMENT).read_to_end(&mut env);
    }
    let values =
        env.split(|b| *b == 0).filter_map(|v| v.strip_prefix(NONCE_VAR.as_bytes())?.strip_prefix(b"="));
    values.map(|v| String::from_utf8_lossy(v).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn a_child_descends_and_its_nonce_is_found_and_a_dead_process_is_gone() {
        let mut child = Command::new("sh")
            .args(["-c", "echo ready; cat; :"])
            .env(NONCE_VAR, "abc")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        // The environment of a process is empty while it is being loaded.
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        out.read_line(&mut String::new()).expect("the shell is ready");
        let pid = i32::try_from(child.id()).expect("a pid");
        let seen = examine(pid, std::process::id());
        assert!(seen.descends && !seen.gone, "{seen:?}");
        assert!(seen.nonces.contains(&"abc".to_owned()), "{seen:?}");
        drop(child.stdin.take());
        child.wait().expect("the shell exits");
        assert!(examine(pid, std::process::id()).gone);
    }

    #[test]
    fn this_process_and_one_outside_the_namespace_do_not_descend() {
        let me = std::process::id();
        assert_eq!(examine(i32::try_from(me).expect("a pid"), me), Caller::default());
        assert_eq!(examine(0, me), Caller::default());
    }
}
