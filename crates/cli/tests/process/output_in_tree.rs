//! What dogwatch itself writes into the work tree does not count as progress and does not wake a run.

use crate::kit::{Project, all, one};
use serde_json::{Value, json};
use std::fs::File;
use std::process::Command;

/// Returns `dogwatch run loop` with stdout and stderr redirected to files in the work tree.
fn redirected(project: &Project, args: &[&str]) -> Command {
    let mut command = project.command(&[&["run", "loop"], args].concat());
    let file = |name| File::create(project.path(name)).expect("a file");
    command.stdout(file("out.log")).stderr(file("err.log"));
    command
}

fn of_workspace(events: &[Value]) -> Vec<&Value> {
    all(events, "observed").into_iter().filter(|event| event["channel"] == "workspace").collect()
}

// promise: 12
#[test]
fn a_hanging_agent_is_ended_for_silence_whatever_dogwatch_prints_there() {
    for args in [&["-n", "1", "--json"][..], &["-n", "1"]] {
        let front = "watchdog: {idle: 1s, tool: 1ms, grace: 200ms, leak: 300ms}";
        let project = Project::acting_with(front, "say hello; hang");
        let status = redirected(&project, args).status().expect("runs");
        assert_eq!(status.code(), Some(1));
        let events = project.journal();
        let stop = one(&events, "hard_stop");
        assert_eq!(stop["reason"], "NO_OUTPUT_DEADLINE");
        assert_eq!(of_workspace(&events), [&Value::Null; 0]);
        assert_eq!(all(&events, "watchdog_continue"), [&Value::Null; 0]);
        project.assert_no_process_left();
    }
}

// promise: 12
#[test]
fn a_change_in_the_state_directory_of_the_user_is_not_progress() {
    let front = "watchdog: {idle: 1s, tool: 1ms, grace: 200ms, leak: 300ms}";
    let project = Project::new();
    let agent = "sh -c 'cat > /dev/null; touch state/dogwatch/locks/another; exec sleep 60'";
    project.ralph(&format!("agent: {}\n{front}", Value::from(agent)), "Go on.");
    let mut command = project.command(&["run", "loop", "-n", "1"]);
    command.env("XDG_STATE_HOME", project.path("state"));
    assert_eq!(command.status().expect("runs").code(), Some(1));
    let events = project.journal();
    assert_eq!(one(&events, "hard_stop")["reason"], "NO_OUTPUT_DEADLINE");
    assert!(project.path("state/dogwatch/locks/another").exists(), "the agent wrote there");
    assert_eq!(of_workspace(&events), [&Value::Null; 0]);
    project.assert_no_process_left();
}

#[test]
fn own_output_neither_wakes_an_idle_run_nor_changes_the_digest() {
    let front = "idle: {delay: 300ms, backoff: 1, max_delay: 300ms, stop_after: 4, skip_unchanged: true}\n\
                 wake_on: {paths: ['*.log']}\nwatchdog: {grace: 200ms, leak: 300ms}";
    let project = Project::acting_with(front, "marker idle no_pending_tasks");
    let status = redirected(&project, &["--json"]).status().expect("runs");
    assert_eq!(status.code(), Some(0));
    let events = project.journal();
    let skipped: Vec<bool> =
        all(&events, "iteration_idle").iter().map(|event| event["skipped"] == json!(true)).collect();
    assert_eq!(skipped, [false, true, true, true]);
    let by: Vec<&Value> = all(&events, "wait_ended").iter().map(|event| &event["by"]).collect();
    assert_eq!(by, [&json!("timer"); 3]);
    project.assert_no_process_left();
}
