//! A fault at the N-th system call of one kind, for every N until the run ends by itself. strace injects it.

use crate::full;
use crate::kit::skip::skip;
use crate::kit::{Done, GRACES, Project, Running, all, journal};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The system calls that change something, by kind.
const WRITE: &str = "write,pwrite64,ftruncate";
const SYNC: &str = "fsync,fdatasync";
const RENAME: &str = "rename,renameat,renameat2";
const FORK: &str = "clone,clone3,fork,vfork";
const EXEC: &str = "execve";

/// The most calls of one kind in a run of the lab. More means that the run does not end.
const MAX_CALLS: u32 = 400;
/// More than all retries of a start take.
const PATIENCE: Duration = Duration::from_secs(500);
/// The most times that one run is continued after a fault.
const MAX_RESUMES: usize = 5;

/// One fault at one place.
#[derive(Clone, Copy, Debug)]
struct Fault {
    calls: &'static str,
    /// `signal=KILL` or `error=ENOSPC`.
    what: &'static str,
    /// The call is counted in each process of the tree, not only in the driver's thread.
    tree: bool,
    /// Only calls that name this file count.
    file: Option<&'static str>,
    /// The loop has one iteration and a check, instead of two iterations.
    checked: bool,
}

impl Fault {
    fn of_driver(calls: &'static str, what: &'static str) -> Fault {
        Fault { calls, what, tree: false, file: None, checked: false }
    }

    fn of_any(calls: &'static str, what: &'static str) -> Fault {
        Fault { tree: true, ..Fault::of_driver(calls, what) }
    }
}

/// Creates a loop with a command and snapshots. Its agent leaves one line for each start.
fn lab(checked: bool) -> Project {
    let project = Project::new();
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        project.set_environment(&mut command);
        assert!(command.args(args).status().expect("git is installed").success());
    };
    git(&["init", "-q", "."]);
    git(&["-c", "user.name=a", "-c", "user.email=a", "commit", "-q", "--allow-empty", "-m", "a"]);
    let front = format!(
        "agent: sh -c 'cat >/dev/null; echo $$ >>starts; echo hi'\ncommands: [{{name: c, run: echo c}}]\n{GRACES}\n{}",
        if checked { "done_when: ['true']" } else { "max_iterations: 2" }
    );
    project.ralph(&front, "Go {{ commands.c }}");
    project
}

/// Returns whether strace can trace a process here.
fn can_trace() -> bool {
    let traced = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).output();
    traced.is_ok_and(|out| out.status.success())
}

/// Runs the loop with a fault at call `n`. Returns how it ended, and whether the fault happened.
fn strike(project: &Project, fault: Fault, n: u32) -> (Done, bool) {
    let trace = project.outside("trace");
    let mut command = Command::new("strace");
    project.set_environment(&mut command);
    let inject = format!("inject={}:{}:when={n}", fault.calls, fault.what);
    command.args(["-q", "-e", &format!("trace={}", fault.calls), "-e", &inject, "-o"]).arg(&trace);
    command.args(fault.tree.then_some("-f")).args(fault.file.into_iter().flat_map(|file| ["-P", file]));
    command.arg(env!("CARGO_BIN_EXE_dogwatch")).args(["run", "loop", "--json"]);
    let done = Running::start(command).finish_within(PATIENCE);
    let text = std::fs::read_to_string(&trace).unwrap_or_default();
    let happened = text.contains("(INJECTED)") || text.contains("+++ killed by SIGKILL");
    (done, happened)
}

fn runs(project: &Project) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(project.path(".dogwatch/runs")).into_iter().flatten().flatten();
    let mut runs: Vec<_> = entries.map(|e| e.path()).filter(|p| p.join("events.jsonl").exists()).collect();
    runs.sort();
    runs
}

/// Checks what must hold at any time: a whole journal, and no start that was not recorded before.
fn check_records(project: &Project) -> Vec<Vec<Value>> {
    let journals: Vec<Vec<Value>> = runs(project).iter().map(|dir| journal(dir)).collect();
    let intended: usize = journals.iter().map(|events| all(events, "prompt_assembled").len()).sum();
    let started = project.lines("starts").len();
    assert!(started <= intended, "{started} sessions, {intended} recorded");
    for events in &journals {
        for (i, event) in events.iter().enumerate() {
            assert_eq!(event["seq"], i + 1, "no gap");
        }
        assert!(all(events, "run_ended").len() <= 1 + all(events, "run_resumed").len());
    }
    journals
}

/// Continues the run after a fault until it ends, as a user would.
fn bring_to_its_end(project: &Project, first: &Done) {
    let mut code = first.code;
    for _ in 0..MAX_RESUMES {
        if code == Some(0) {
            break;
        }
        let resumed = project.call(&["resume", "--json"]);
        let is_over = || {
            let journals = check_records(project);
            journals.iter().flat_map(|events| all(events, "run_ended")).any(|end| end["exit_code"] == 0)
        };
        code = match resumed.code {
            // The fault came after the end was written.
            Some(2) if is_over() => Some(0),
            // Without a record there is nothing to resume, and a run that failed has ended.
            Some(2) => project.call(&["run", "loop", "--json"]).code,
            code => code,
        };
    }
    assert_eq!(code, Some(0), "the run never ended; first: {first:?}");
}

/// Checks the end: all iterations completed, once, with a clean outcome.
fn check_end(project: &Project, fault: Fault) {
    project.wait_until_no_process_left();
    let journals = check_records(project);
    let ends: Vec<&Value> = journals.iter().flat_map(|events| all(events, "run_ended")).collect();
    let end = ends.last().expect("the run ended");
    let completed = if fault.checked { 1 } else { 2 };
    assert_eq!((&end["outcome"], &end["completed"]), (&"clean".into(), &completed.into()), "{end}");
    assert_eq!(ends.iter().filter(|end| end["outcome"] == "clean").count(), 1, "it ended once");
}

/// Strikes at every call, or at the sampled ones, and brings each run to its end.
fn at_every(fault: Fault, sample: &[u32], mut each: impl FnMut(&Project, &Done)) {
    if !can_trace() {
        return skip("strace is not installed or may not trace");
    }
    let mut struck = 0;
    for n in 1..=MAX_CALLS {
        if !full() && n > sample.last().copied().unwrap_or(0) {
            break;
        }
        if !full() && !sample.contains(&n) {
            continue;
        }
        let project = lab(fault.checked);
        let (done, happened) = strike(&project, fault, n);
        if !happened {
            assert!(done.code == Some(0), "{fault:?} at {n}: {done:?}");
            check_end(&project, fault);
            break;
        }
        struck += 1;
        eprintln!("{fault:?} at {n}: {:?}", (done.code, done.signal));
        each(&project, &done);
    }
    assert!(struck > 0, "no fault happened");
    eprintln!("{struck} points of {fault:?}");
}

fn killed_at_every(calls: &'static str, sample: &[u32]) {
    let fault = Fault::of_driver(calls, "signal=KILL");
    at_every(fault, sample, |project, done| {
        assert_eq!(done.signal, Some(9), "{done:?}");
        bring_to_its_end(project, done);
        check_end(project, fault);
    });
}

// promise: 6
#[test]
fn killed_at_any_write_the_run_resumes_to_the_same_end() {
    killed_at_every(WRITE, &[3, 9, 20, 33]);
}

// promise: 6
#[test]
fn killed_at_any_sync_the_run_resumes_to_the_same_end() {
    killed_at_every(SYNC, &[2, 6]);
}

#[test]
fn killed_at_any_rename_the_run_resumes_to_the_same_end() {
    killed_at_every(RENAME, &[2]);
}

#[test]
fn killed_at_any_fork_the_run_resumes_to_the_same_end() {
    killed_at_every(FORK, &[1, 5]);
}

/// A failing call ends the run early or costs nothing, but never leads to a wrong end.
fn failing_at_every(fault: Fault, errors: &[&'static str], sample: &[u32]) {
    // The quick suite tries one error.
    for what in &errors[..if full() { errors.len() } else { 1 }] {
        let fault = Fault { what, ..fault };
        at_every(fault, sample, |project, done| {
            // No panic, except that of tokio when its eventfd fails, which only strace can make it do.
            let woken = done.stderr.contains("failed to wake I/O driver");
            assert!(done.signal.is_none() && (done.code != Some(101) || woken), "{done:?}");
            project.wait_until_no_process_left();
            let ended_well = check_records(project)
                .iter()
                .any(|events| all(events, "run_ended").iter().any(|end| end["exit_code"] == 0));
            assert!(done.code != Some(0) || ended_well, "exit code 0 needs a recorded end: {done:?}");
            bring_to_its_end(project, done);
            check_end(project, fault);
        });
    }
}

const FILE_ERRORS: [&str; 3] = ["error=ENOSPC", "error=EIO", "error=EROFS"];
const START_ERRORS: [&str; 3] = ["error=EAGAIN", "error=ENOMEM", "error=EMFILE"];

// promise: 10
#[test]
fn a_write_that_fails_leads_to_no_wrong_end() {
    failing_at_every(Fault::of_driver(WRITE, ""), &FILE_ERRORS, &[4, 12]);
}

// promise: 10
#[test]
fn a_sync_that_fails_leads_to_no_wrong_end() {
    failing_at_every(Fault::of_driver(SYNC, ""), &FILE_ERRORS, &[3]);
}

#[test]
fn a_rename_that_fails_leads_to_no_wrong_end() {
    failing_at_every(Fault::of_driver(RENAME, ""), &FILE_ERRORS, &[1]);
}

#[test]
fn a_fork_that_fails_leads_to_no_wrong_end() {
    failing_at_every(Fault::of_driver(FORK, ""), &START_ERRORS, &[4]);
    let checked = Fault { checked: true, ..Fault::of_driver(FORK, "") };
    // A separate thread hashes the pins of the checks.
    failing_at_every(checked, &START_ERRORS[..1], &[3, 4, 5, 6]);
}

/// Faults in every process: the driver, keepers, snapshots and agents. The fault comes back in each new process, so
/// the run may fail, but it ends, records its end and leaves nothing behind.
fn anywhere(fault: Fault, sample: &[u32]) {
    at_every(fault, sample, |project, done| {
        project.wait_until_no_process_left();
        let journals = check_records(project);
        let ends: Vec<&Value> = journals.iter().flat_map(|events| all(events, "run_ended")).collect();
        if let Some(code) = done.code.filter(|code| *code != 2 && *code != 5) {
            assert!(ends.iter().any(|end| end["exit_code"] == code), "{done:?} {ends:?}");
        }
        if ends.is_empty() {
            bring_to_its_end(project, done);
            check_end(project, fault);
        }
    });
}

// promise: 1
#[test]
fn any_process_killed_at_a_write_leaves_nothing_and_a_true_record() {
    anywhere(Fault::of_any(WRITE, "signal=KILL"), &[2]);
}

// promise: 1
#[test]
fn any_process_killed_at_a_fork_leaves_nothing_and_a_true_record() {
    anywhere(Fault::of_any(FORK, "signal=KILL"), &[2]);
}

// promise: 1
#[test]
fn any_process_killed_at_an_exec_leaves_nothing_and_a_true_record() {
    anywhere(AGENT, &[1]);
    // The full run includes the keepers. dogwatch retries each of them for half a minute.
    if full() {
        anywhere(Fault::of_any(EXEC, "signal=KILL"), &[]);
    }
}

/// The agent is a shell. Its exec fails, that of the keeper does not.
const AGENT: Fault =
    Fault { calls: EXEC, what: "signal=KILL", tree: true, file: Some("/usr/bin/sh"), checked: false };

#[test]
fn a_program_that_cannot_be_started_leaves_nothing_and_a_true_record() {
    anywhere(Fault { what: "error=EIO", ..AGENT }, &[1]);
    if full() {
        START_ERRORS.iter().for_each(|what| anywhere(Fault::of_any(EXEC, what), &[]));
    }
}
