//! Signals: Ctrl-C once, twice and three times, during a wait and during a session; TERM, HUP and USR1.

use crate::kit::{GRACES, Project, Running, all, kinds, one};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Graces longer than any test: a process that ends sooner did not get its grace.
const LONG_GRACES: &str = "watchdog: {grace: 10m, leak: 10m}";

fn steps(events: &[Value]) -> Vec<&str> {
    all(events, "session_signalled").iter().filter_map(|e| e["step"].as_str()).collect()
}

#[test]
fn loop_50_ctrl_c_once_lets_the_iteration_finish_and_stops() {
    let project = Project::acting("ready there; await gate; say finished");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut run = project.start_run(&[]);
    there.pid();
    run.signal(Signal::INT);
    run.wait_for_kind("stopping");
    gate.open();
    let done = run.finish();
    let end = done.assert_code(0).end();
    assert_eq!((&end["outcome"], &end["completed"]), (&json!("stopped"), &json!(1)));
    assert_eq!(steps(&done.events()), [""; 0]);
    project.assert_no_process_left();
}

#[test]
fn ctrl_c_during_a_command_does_not_speak_of_an_agent() {
    let command = "commands: [{name: slow, run: \"sh -c 'echo $$ > there; read line < gate'\"}]";
    let project = Project::acting_with(&format!("{GRACES}\n{command}"), "say hi");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut run = project.start_run(&[]);
    there.pid();
    run.signal(Signal::INT);
    let notice = run.wait_for_kind("stopping");
    assert_eq!(notice["message"], "stopping after this iteration; Ctrl-C again stops it now");
    gate.open();
    run.finish();
}

#[test]
fn ctrl_c_twice_only_interrupts_the_agent() {
    let project = Project::acting_with(LONG_GRACES, "ready there; hang");
    let there = project.fifo("there");
    let mut run = project.start_run(&[]);
    there.pid();
    run.signal(Signal::INT);
    let notice = run.wait_for_kind("stopping");
    assert_eq!(notice["message"], "stopping after this iteration; Ctrl-C again interrupts the agent");
    run.signal(Signal::INT);
    let done = run.finish();
    let end = done.assert_code(130).end();
    assert_eq!((&end["outcome"], &end["reason"]), (&json!("interrupted"), &json!("Ctrl-C")));
    let events = done.events();
    assert_eq!(steps(&events), ["interrupt"]);
    let ended = one(&events, "session_ended");
    assert_eq!((&ended["signal"], &ended["ended_by"]), (&json!(2), &json!("operator")));
    project.assert_no_process_left();
}

// promise: 3
#[test]
fn ctrl_c_three_times_kills_without_waiting_for_any_grace() {
    let project = Project::acting_with(LONG_GRACES, "ignore INT TERM HUP; ready there; hang");
    let there = project.fifo("there");
    let mut run = project.start_run(&[]);
    there.pid();
    run.signal(Signal::INT);
    run.wait_for_kind("stopping");
    run.signal(Signal::INT);
    run.wait_for("session_signalled");
    run.signal(Signal::INT);
    let done = run.finish();
    done.assert_code(130);
    assert_eq!(steps(&done.events()), ["interrupt", "kill"]);
    project.assert_no_process_left();
}

// promise: 13
#[test]
fn an_agent_that_exits_0_on_an_interrupt_was_interrupted_all_the_same() {
    let project = Project::shell("trap \"exit 0\" INT; echo $$ > there; while :; do sleep 0.05; done");
    let there = project.fifo("there");
    let mut run = project.start_run(&[]);
    there.pid();
    run.signal(Signal::INT);
    run.wait_for_kind("stopping");
    run.signal(Signal::INT);
    let done = run.finish();
    done.assert_code(130);
    let events = done.events();
    assert_eq!(one(&events, "session_ended")["exit_code"], 0);
    assert_eq!(one(&events, "iteration_interrupted")["by"], "operator");
    assert_eq!(one(&events, "run_ended")["completed"], 0);
}

/// Starts a run and waits until it is in its first wait, which lasts an hour.
fn waiting(script: &str) -> (Project, Running) {
    let project = Project::acting(script);
    let mut run = project.start_run(&["--delay", "1h"]);
    run.wait_for("wait_started");
    (project, run)
}

#[test]
fn ctrl_c_in_a_wait_starts_the_next_iteration_at_once() {
    let project = Project::acting("counter count");
    let mut run = project.start_run(&["--delay", "1h", "-n", "2"]);
    run.wait_for("wait_started");
    run.signal(Signal::INT);
    let done = run.finish();
    assert_eq!(done.assert_code(0).end()["completed"], 2);
    let events = done.events();
    assert_eq!(one(&events, "wait_ended")["by"], "operator");
    assert_eq!(all(&events, "iteration_started")[1]["cause"], "wake");
}

#[test]
fn a_second_ctrl_c_right_after_the_end_of_a_wait_stops_the_new_session() {
    let (project, mut run) = waiting("counter count; on 2 { hang }");
    run.signal(Signal::INT);
    run.wait_for("session_started");
    run.signal(Signal::INT);
    let done = run.finish();
    assert_eq!(done.assert_code(130).end()["outcome"], "interrupted");
    assert_eq!(done.count("iteration_interrupted"), 1);
    project.assert_no_process_left();
}

#[test]
fn term_and_hup_in_a_wait_end_the_run_at_once() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let (project, run) = waiting("say hi");
        run.signal(signal);
        let end = run.finish().assert_code(code).end();
        assert_eq!((&end["outcome"], &end["exit_code"]), (&json!("interrupted"), &json!(code)));
        project.assert_no_process_left();
    }
}

#[test]
fn usr1_in_a_wait_wakes_the_loop() {
    let project = Project::acting("say hi");
    let mut run = project.start_run(&["--delay", "1h", "-n", "2"]);
    run.wait_for("wait_started");
    run.signal(Signal::USR1);
    let done = run.finish();
    done.assert_code(0);
    assert_eq!(one(&done.events(), "wait_ended")["by"], "signal");
}

#[test]
fn usr1_while_an_agent_works_changes_nothing() {
    let project = Project::acting("ready there; await gate");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let run = project.start_run(&["-n", "1"]);
    there.pid();
    run.signal(Signal::USR1);
    gate.open();
    run.finish().assert_code(0);
}

#[test]
fn term_while_a_command_runs_ends_the_command_and_starts_no_agent() {
    let project = Project::new();
    let (there, hold) = (project.fifo("there"), project.fifo("hold"));
    project.file("slow", "hold hold; orphan { ignore TERM; ready there; hang }; hang");
    let run = Value::from(project.actor("slow"));
    project.act(&format!("{GRACES}\ncommands: [{{name: slow, run: {run}}}]"), "touch started");
    let run = project.start_run(&[]);
    there.pid();
    run.signal(Signal::TERM);
    let done = run.finish();
    hold.assert_released();
    done.assert_code(143);
    assert_eq!((done.count("iteration_interrupted"), done.count("session_started")), (1, 0));
    assert!(!project.path("started").exists());
    project.assert_no_process_left();
}

// promise: 3
#[test]
fn a_second_term_kills_without_waiting_for_any_grace() {
    let project = Project::acting_with(LONG_GRACES, "ignore INT TERM HUP; ready there; hang");
    let there = project.fifo("there");
    let mut run = project.start_run(&[]);
    there.pid();
    run.signal(Signal::TERM);
    run.wait_for("session_signalled");
    run.signal(Signal::TERM);
    let done = run.finish();
    done.assert_code(143);
    assert_eq!(steps(&done.events()), ["interrupt", "kill"]);
}

#[test]
fn hup_that_was_ignored_at_the_start_stays_ignored_as_under_nohup() {
    let project = Project::acting("ready there; await gate");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut command = std::process::Command::new("sh");
    project.set_environment(&mut command);
    command.args(["-c", "trap '' HUP; exec \"$0\" run loop --json -n 1", env!("CARGO_BIN_EXE_dogwatch")]);
    let run = Running::start(command);
    there.pid();
    run.signal(Signal::HUP);
    gate.open();
    let done = run.finish();
    done.assert_code(0);
    assert_eq!(kinds(&done.events(), "stopping").len(), 0);
}

// promise: 3
#[test]
fn an_agent_that_ends_on_term_only_is_given_its_graces_and_all_steps_are_recorded() {
    let project = Project::acting("ignore INT; ready there; hang");
    let there = project.fifo("there");
    let run = project.start_run(&[]);
    there.pid();
    run.signal(Signal::TERM);
    let done = run.finish();
    done.assert_code(143);
    let events = done.events();
    assert_eq!(steps(&events), ["interrupt", "terminate"]);
    assert_eq!(one(&events, "session_ended")["signal"], 15);
}
