//! No process is left, however the command ends.

use super::{actor, command, kit, shell};
use kit::{Project, Running};
use rustix::process::Signal;
use std::time::{Duration, Instant};

// promise: 1
#[test]
fn nothing_that_the_command_started_is_left() {
    let project = Project::new();
    let held = project.fifo("held");
    let script = "hold held; orphan { ignore TERM INT HUP; close stdout; close stderr; hang }; \
                  bare { ignore TERM; hang }; child { hang }; say done; exit 7";
    let done = Running::start(actor(&project, &[], script)).finish();
    done.assert_code(7);
    assert_eq!(done.text(), "done\n");
    held.assert_released();
    project.assert_no_process_left();
}

#[test]
fn output_of_a_background_process_is_passed_on_within_the_leak_limit() {
    let done = shell(&["--set", "watchdog.leak=20s"], "(sleep 0.2; echo late) & echo early");
    done.assert_code(0);
    assert_eq!(done.text(), "early\nlate\n");
    let since = Instant::now();
    let done = shell(&[], "sleep 60 & echo early");
    done.assert_code(0);
    assert!(
        since.elapsed() < Duration::from_secs(20),
        "dogwatch does not wait for processes that hold the pipe"
    );
}

// promise: 1
#[test]
fn after_kill_9_of_dogwatch_no_process_is_left() {
    let project = Project::new();
    let (ready, held) = (project.fifo("ready"), project.fifo("held"));
    let script = "hold held; orphan { ignore TERM; ready ready; hang }; hang";
    let running = Running::start(actor(&project, &[], script));
    ready.pid();
    assert_eq!(running.kill().signal, Some(9));
    held.wait_until_released();
    project.wait_until_no_process_left();
}

#[test]
fn a_killed_keeper_is_reported_and_its_orphans_are_killed() {
    let project = Project::new();
    let (ready, held) = (project.fifo("ready"), project.fifo("held"));
    let running = Running::start(actor(&project, &[], "hold held; ready ready; hang"));
    ready.pid();
    let keeper = rustix::process::Pid::from_raw(project.keeper()).expect("a pid");
    rustix::process::kill_process(keeper, Signal::KILL).expect("we own the process");
    let done = running.finish();
    done.assert_code(5);
    assert!(done.stderr.contains("the keeper") && done.stderr.contains("is gone"), "{}", done.stderr);
    held.assert_released();
}

#[test]
fn signals_are_forwarded_and_the_exit_code_follows() {
    for (signal, code) in [
        (Signal::INT, 130),
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
        (Signal::USR1, 138),
        (Signal::USR2, 140),
    ] {
        let project = Project::new();
        let (ready, held) = (project.fifo("ready"), project.fifo("held"));
        let script = "hold held; child { hold held; hang }; ready ready; hang";
        let running = Running::start(actor(&project, &[], script));
        ready.pid();
        running.signal(signal);
        running.finish().assert_code(code);
        held.assert_released();
    }
}

#[test]
fn a_command_that_handles_a_signal_keeps_its_own_exit_code() {
    let project = Project::new();
    let ready = project.fifo("ready");
    let script = "trap 'echo tidied; exit 3' TERM; echo $$ > ready; while :; do sleep 0.05; done";
    let running = Running::start(command(&project, &[], &["sh", "-c", script]));
    ready.pid();
    running.signal(Signal::TERM);
    let done = running.finish();
    done.assert_code(3);
    assert_eq!(done.text(), "tidied\n");
}

#[test]
fn a_stubborn_command_is_killed_after_the_grace() {
    let project = Project::new();
    let script = "ignore TERM INT; say here; hang";
    let done = Running::start(actor(&project, &["--idle", "200ms"], script)).finish();
    done.assert_code(124);
    project.assert_no_process_left();
}

#[test]
fn a_command_that_stops_its_keeper_keeps_its_own_exit_code() {
    let done = shell(&[], "kill -STOP $PPID; echo hi; exit 3");
    done.assert_code(3);
    assert_eq!(done.text(), "hi\n");
}

// promise: 3
#[test]
fn a_command_that_stops_its_keeper_again_and_again_is_ended_all_the_same() {
    // The command waits until dogwatch knows that it runs. A keeper lost before that counts as a failure of dogwatch.
    let script = "trap '' INT TERM; until grep -q session_started events; do :; done
        (while :; do kill -STOP $PPID; done) & while :; do sleep 1; done";
    let project = Project::new();
    let args = ["--session", "500ms", "--set", "watchdog.grace=200ms", "--json", "events"];
    let done = Running::start(command(&project, &args, &["sh", "-c", script])).finish();
    done.assert_code(124);
    project.assert_no_process_left();
}

#[test]
fn a_signal_ends_a_command_that_stops_its_keeper_repeatedly() {
    let script = "echo $$ > ready; (while :; do kill -STOP $PPID; done) & while :; do sleep 1; done";
    let project = Project::new();
    let ready = project.fifo("ready");
    let running = Running::start(command(&project, &[], &["sh", "-c", script]));
    ready.pid();
    running.signal(Signal::TERM);
    running.finish().assert_code(143);
    project.assert_no_process_left();
}

// promise: 1
#[test]
fn a_killed_keeper_leaves_no_process_with_a_cleared_environment() {
    let project = Project::new();
    let (ready, held) = (project.fifo("ready"), project.fifo("held"));
    let script = "hold held; bare { ignore TERM INT HUP; ready ready; hang }; hang";
    let running = Running::start(actor(&project, &[], script));
    ready.pid();
    project.signal_keeper(Signal::KILL);
    running.finish().assert_code(5);
    held.assert_released();
    project.assert_no_process_left();
}
