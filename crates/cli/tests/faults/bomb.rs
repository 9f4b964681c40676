//! An agent that forks without end under a limit of processes is ended completely.

use crate::kit::skip::skip;
use crate::kit::{Project, Running};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// A user without any process. Limits of the number of processes do not apply to root.
const USER: u32 = 47_110;
const MAX_PROCESSES: u32 = 80;

fn give(path: &Path) {
    chown(path, Some(USER), Some(USER)).expect("root may");
    if path.is_dir() {
        std::fs::read_dir(path).expect("lists").flatten().for_each(|entry| give(&entry.path()));
    }
}

// promise: 1
#[test]
fn a_fork_bomb_under_a_process_limit_is_ended_completely() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can start a process of another user");
    }
    let project = Project::new();
    let binary = project.outside("dogwatch");
    std::fs::copy(env!("CARGO_BIN_EXE_dogwatch"), &binary).expect("copies");
    // A shell that cannot fork exits. The agent itself forks once, before the others use up the limit.
    project.file("bomb", "sh -c 'b() { b | b & }; b; b'\nexec sleep 600\n");
    project.ralph(
        "agent: sh bomb\nwatchdog: {session: 3s, idle: off, grace: 200ms, leak: 300ms}\nrecovery: {budget: 0}",
        "Go on.",
    );
    give(&project.outside(""));
    std::fs::set_permissions(project.outside(""), std::fs::Permissions::from_mode(0o755)).expect("ours");
    let mut command = Command::new("setpriv");
    project.set_environment(&mut command);
    command
        .args(["--reuid", &USER.to_string(), "--regid", &USER.to_string(), "--clear-groups", "prlimit"])
        .arg(format!("--nproc={MAX_PROCESSES}"))
        .arg(&binary)
        .args(["run", "loop", "-n", "1", "--json"]);
    let done = Running::start(command).finish();
    let end = done.end();
    assert_eq!((done.code, &end["completed"]), (Some(1), &0.into()), "{}\n{}", done.text(), done.stderr);
    assert!(done.text().contains("SESSION_CEILING_EXCEEDED"), "{}", done.text());
    project.assert_no_process_left();
}
