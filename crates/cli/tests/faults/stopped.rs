//! dogwatch, its keeper or the agent is stopped and continued in every phase.

use crate::kit::{GRACES, Project, Running, TIMEOUT, all};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::time::Instant;

/// Waits until the kernel reports the process as stopped, or until it was continued by another process.
fn stop(pid: i32) {
    let target = Pid::from_raw(pid).expect("a pid");
    kill_process(target, Signal::STOP).expect("it is ours");
    let until = Instant::now() + TIMEOUT;
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    while !state().contains(") T ") {
        assert!(Instant::now() < until, "it does not stop: {}", state());
        std::thread::yield_now();
    }
}

fn continue_process(pid: i32) {
    let _ = kill_process(Pid::from_raw(pid).expect("a pid"), Signal::CONT);
}

/// Creates a loop that reports each phase and waits there for the test.
fn phases(phase: &str) -> Project {
    let project = Project::new();
    let step = |name: &str| if name == phase { "ready there; await gate; say on" } else { "say on" };
    for name in ["command", "agent", "check"] {
        project.file(name, step(name));
    }
    let [command, agent, check] = ["command", "agent", "check"].map(|name| Value::from(project.actor(name)));
    project.ralph(
        &format!("agent: {agent}\ncommands: [{{name: c, run: {command}}}]\ndone_when: [{check}]\n{GRACES}"),
        "Go {{ commands.c }}",
    );
    project
}

fn finishes(run: Running, project: &Project, what: &str) {
    let done = run.finish();
    assert_eq!(done.code, Some(0), "{what}: {}\n{}", done.text(), done.stderr);
    let events = done.events();
    assert_eq!(all(&events, "iteration_completed").len(), 1, "{what}");
    assert_eq!(done.end()["outcome"], "clean", "{what}");
    project.assert_no_process_left();
}

fn in_every_phase(who: &str, pid_of: impl Fn(&Project, &Running, i32) -> i32) {
    for phase in ["command", "agent", "check"] {
        let project = phases(phase);
        let (there, gate) = (project.fifo("there"), project.gate("gate"));
        let run = project.start_run(&[]);
        let job = there.pid();
        let pid = pid_of(&project, &run, job);
        stop(pid);
        if pid == job {
            continue_process(pid);
            gate.open();
        } else {
            // The job ends while the other process is stopped.
            gate.open();
            continue_process(pid);
        }
        finishes(run, &project, &format!("{who} stopped in the {phase}"));
    }
}

#[test]
fn dogwatch_stopped_and_continued_in_any_phase_finishes() {
    in_every_phase("dogwatch", |_, run, _| run.pid());
}

#[test]
fn a_keeper_stopped_and_continued_in_any_phase_finishes() {
    in_every_phase("the keeper", |project, _, _| project.keeper());
}

#[test]
fn a_job_stopped_and_continued_in_any_phase_finishes() {
    in_every_phase("the job", |_, _, job| job);
}
