//! The record of a job's run on the machine of its worker, and what it costs to write.

use crate::kit::skip::skip;
use dogwatch_host::store::fleet_job;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Runs a loop in the checkout of job `acme.one`, as the worker of `job` does, and returns how often the run syncs a file. Returns
/// nothing if no process can be traced here.
fn syncs(job: &str) -> Option<usize> {
    let can_trace = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status();
    if !can_trace.is_ok_and(|status| status.success()) {
        skip("strace cannot trace a process here");
        return None;
    }
    let dir = TempDir::new().expect("a directory");
    let (tree, trace) = (dir.path().join("acme.one/tree"), dir.path().join("trace"));
    std::fs::create_dir_all(tree.join("loop")).expect("a directory");
    std::fs::write(tree.join("loop/RALPH.md"), "---\nagent: 'true'\n---\nWork.\n").expect("written");
    fleet_job::mark(&tree, "acme.one").expect("marked");
    let status = Command::new("strace")
        .args(["-qq", "-f", "-e", "trace=fsync,fdatasync", "-o"])
        .arg(&trace)
        .arg(env!("CARGO_BIN_EXE_dogwatch"))
        .args(["run", "loop", "-n", "1", "--json"])
        .current_dir(&tree)
        .env(fleet_job::VARIABLE, job)
        .env("HOME", dir.path())
        .env("XDG_STATE_HOME", dir.path().join("state"))
        .env("XDG_CONFIG_HOME", dir.path().join("config"))
        .env(crate::kit::MARK, dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    assert!(status.expect("strace runs").success());
    Some(std::fs::read_to_string(&trace).expect("a trace").matches("sync(").count())
}

// promise: 6
#[test]
fn the_record_of_a_job_is_not_synced_on_its_worker_and_that_of_another_run_is() {
    let Some(held) = syncs("acme.one") else { return };
    assert_eq!(held, 0, "the copy on the server survives a power failure");
    let other = syncs("acme.two").expect("it was traced before");
    assert!(other >= 4, "{other} syncs of a run that no worker holds");
}
