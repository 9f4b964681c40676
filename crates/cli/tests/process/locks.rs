//! Two locks prevent two runs of one loop. The error names the run that holds them.

use crate::kit::{Project, Running, one};
use rustix::process::Signal;

/// Starts a run of the loop with another user state directory, as cron might.
fn from_elsewhere(project: &Project) -> Running {
    let mut command = project.command(&["run", "loop", "-n", "1", "--json"]);
    command.env("XDG_STATE_HOME", project.outside("state-of-cron"));
    Running::start(command)
}

// promise: 2
#[test]
fn a_run_with_another_user_state_directory_or_without_a_lock_file_is_kept_out() {
    let project = Project::acting("ready there; await gate");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut first = project.start_run(&["-n", "1"]);
    let started = first.wait_for("run_started");
    there.pid();
    let wanted = format!("`dogwatch stop {}`", started["run"].as_str().expect("a run"));
    let second = from_elsewhere(&project).finish();
    second.assert_code(4);
    assert!(second.stderr.contains(&wanted), "{}", second.stderr);
    std::fs::remove_dir_all(project.outside("state/dogwatch/locks")).expect("it existed");
    let third = project.call(&["run", "loop", "-n", "1"]);
    third.assert_code(4);
    assert!(third.stderr.contains(&format!("pid {}", first.pid())), "{}", third.stderr);
    gate.open();
    first.finish().assert_code(0);
    assert_eq!(std::fs::read_dir(project.path(".dogwatch/runs")).expect("it exists").count(), 1);
}

// promise: 2
#[test]
fn after_kill_9_a_run_with_another_user_state_directory_waits_for_the_keeper_too() {
    let project = Project::acting(
        "counter count; on 1 { hold hold; orphan { ignore TERM; ready kid; hang }; ignore TERM; hang }",
    );
    let (hold, kid) = (project.fifo("hold"), project.fifo("kid"));
    let first = project.start_run(&[]);
    kid.pid();
    first.signal(Signal::KILL);
    let done = from_elsewhere(&project).finish();
    hold.assert_released();
    done.assert_code(0);
    first.finish();
    project.assert_no_process_left();
    assert_eq!(project.lines("count"), ["2"]);
}

#[test]
fn a_live_run_without_its_record_is_named_with_its_process() {
    let project = Project::acting("ready there; await gate");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let first = project.start_run(&["-n", "1"]);
    there.pid();
    std::fs::remove_dir_all(project.path(".dogwatch")).expect("it existed");
    let second = project.call(&["run", "loop", "-n", "1"]);
    second.assert_code(4);
    assert!(second.stderr.contains(&format!("`kill {}`", first.pid())), "{}", second.stderr);
    gate.open();
    first.finish().assert_code(5);
    project.assert_no_process_left();
}

// promise: 2
#[test]
fn every_loser_of_a_simultaneous_start_names_the_winner() {
    let project = Project::acting("ready there; await gate");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let runs: Vec<Running> = (0..6).map(|_| project.start_run(&["-n", "1"])).collect();
    there.pid();
    let started = one(&project.journal(), "run_started").clone();
    let (id, pid) = (started["run"].as_str().expect("a run"), started["pid"].as_i64().expect("a pid"));
    let (won, lost): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run| i64::from(run.pid()) == pid);
    assert_eq!(lost.len(), 5);
    for run in lost {
        let done = run.finish();
        done.assert_code(4);
        for wanted in [format!("pid {pid}, run {id}"), format!("`dogwatch stop {id}`")] {
            assert!(done.stderr.contains(&wanted), "{wanted} in {}", done.stderr);
        }
    }
    gate.open();
    for run in won {
        run.finish().assert_code(0);
    }
}
