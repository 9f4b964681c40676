//! The loop from outside: how often the agent starts, what is counted, and which exit codes result.

use crate::kit::{GRACES, Project, all, kinds, names, one};
use serde_json::{Value, json};

#[test]
fn loop_40_n_3_starts_the_agent_three_times() {
    let project = Project::acting("append starts $pid");
    let done = project.run(&["-n", "3"]);
    let end = done.assert_code(0).end();
    assert_eq!(project.lines("starts").len(), 3);
    assert_eq!(
        (&end["outcome"], &end["iterations"], &end["completed"]),
        (&json!("clean"), &json!(3), &json!(3))
    );
    assert_eq!(end["verified"], false, "there are no checks");
}

#[test]
fn loop_41_failures_are_counted_and_the_next_iteration_starts() {
    let project = Project::acting("counter count; on 1 { err it broke; exit 3 }");
    let done = project.run(&["-n", "2"]);
    let end = done.assert_code(0).end();
    assert_eq!((&end["failed"], &end["completed"]), (&json!(1), &json!(1)));
    let failed = done.events().into_iter().find(|e| e["event"] == "iteration_failed").expect("one failed");
    assert_eq!(failed["because"], "exit code 3: it broke");
}

#[test]
fn loop_42_stop_on_error_ends_the_run_after_one_failure() {
    let project = Project::acting("append starts $pid; exit 1");
    let end = project.run(&["--stop-on-error", "-n", "5"]).assert_code(1).end();
    assert_eq!(project.lines("starts").len(), 1);
    assert_eq!(end["outcome"], "stopped_on_error");
}

// promise: 6
#[test]
fn loop_43_a_timeout_has_its_own_event_and_the_verdict_precedes_the_signal() {
    let project = Project::acting("counter count; on 1 { say busy; hang }");
    let done = project.run(&["-n", "2", "--timeout", "1s"]);
    done.assert_code(0);
    let events = done.events();
    let order = ["hard_stop", "session_signalled", "session_ended", "iteration_timed_out"];
    let found: Vec<&str> = names(&events).into_iter().filter(|n| order.contains(n)).take(4).collect();
    assert_eq!(found, order);
    let stop = one(&events, "hard_stop");
    assert_eq!(stop["reason"], "SESSION_CEILING_EXCEEDED");
    assert_eq!(stop["evidence_summary"].as_array().map(Vec::len), Some(4));
    let stdout = &stop["evidence_summary"][0];
    assert_eq!((&stdout["channel"], &stdout["counter"]), (&json!("stdout"), &json!(1)));
    // The counter file changes the work tree, and that may be observed slightly after the output.
    assert!(["stdout", "workspace"].map(Value::from).contains(&stop["active_channel"]), "{stop}");
    let journal = project.journal();
    let order: Vec<_> =
        names(&journal).into_iter().filter(|n| n.starts_with("session_s") || *n == "observed").collect();
    assert_eq!(
        order[..2],
        ["session_started", "observed"],
        "no output is recorded before the session starts"
    );
    assert_eq!(one(&events, "run_ended")["failed"], 1);
}

#[test]
fn loop_44_the_body_is_reread_and_the_frontmatter_is_read_once() {
    let script = "counter count
        on 1 { append loop/RALPH.md 'More.' }
        on 2 { write loop/RALPH.md \"---\\nagent: no-such-agent\\n---\\nOther.\" }";
    let project = Project::acting(script);
    let done = project.run(&["-n", "3"]);
    done.assert_code(0);
    assert_eq!([1, 2, 3].map(|i| project.prompt(i)), ["Go on.", "Go on.\nMore.", "Other."]);
    assert_eq!(kinds(&done.events(), "settings_changed").len(), 1);
}

#[test]
fn loop_45_events_are_in_order() {
    let project = Project::acting_with(&format!("{GRACES}\ncommands: [{{name: a, run: echo a}}]"), "say hi");
    let done = project.run(&["-n", "2", "--delay", "10ms"]);
    let iteration = [
        "iteration_started",
        "command_finished",
        "prompt_assembled",
        "session_started",
        "session_ended",
        "iteration_completed",
    ];
    let mut wanted = vec!["run_started", "node_transition"];
    wanted.extend(iteration);
    wanted.extend(["wait_started", "wait_ended"]);
    wanted.extend(iteration);
    wanted.extend(["node_transition", "run_ended"]);
    // Outside git there is one notice: no snapshots are taken.
    let events = done.events();
    let life: Vec<&str> = names(&events).into_iter().filter(|n| *n != "notice").collect();
    assert_eq!(life, wanted);
    let numbers: Vec<u64> = project.journal().iter().filter_map(|e| e["seq"].as_u64()).collect();
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "numbered without a gap");
}

// promise: 13
#[test]
fn loop_46_no_completed_iteration_is_exit_code_1() {
    let end = Project::acting("exit 1").run(&["-n", "1"]).assert_code(1).end();
    assert_eq!((&end["outcome"], &end["exit_code"]), (&json!("catastrophic"), &json!(1)));
}

#[test]
fn loop_47_the_prompt_comes_on_stdin_and_then_its_end() {
    let project = Project::acting("say-prompt");
    project.run(&["-n", "1"]).assert_code(0);
    assert_eq!(String::from_utf8_lossy(&project.raw(1, "stdout")).trim_end(), "Go on.");
    assert_eq!(project.prompt(1), "Go on.");
}

#[test]
fn loop_48_a_failing_agent_waits_and_then_opens_the_circuit() {
    let front = format!("{GRACES}\nerrors: {{max: 2, window: 5m}}");
    let project = Project::acting_with(&front, "append starts $pid; err no luck; exit 1");
    let done = project.run(&[]);
    let end = done.assert_code(1).end();
    assert_eq!(end["outcome"], "error_limit");
    assert_eq!(project.lines("starts").len(), 2);
    let wait = one(&done.events(), "wait_started").clone();
    assert_eq!((&wait["why"], &wait["delay_s"]), (&json!("error"), &json!(1)));
}

#[test]
fn loop_48_an_agent_that_can_no_longer_be_started_backs_off_as_well() {
    let project = Project::new();
    project.ralph("agent: ./agent\nerrors: {max: 2}", "Go.");
    project.file("agent", "#!/bin/sh\nrm agent\n");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(project.path("agent"), std::fs::Permissions::from_mode(0o755))
        .expect("we own the file");
    let done = project.run(&[]);
    assert_eq!(done.assert_code(1).end()["outcome"], "error_limit");
    let events = done.events();
    let failed = all(&events, "iteration_failed");
    assert_eq!(failed.len(), 2);
    assert!(failed[0]["because"].as_str().is_some_and(|b| b.contains("could not be started")), "{failed:?}");
    assert_eq!(all(&events, "session_ended").len(), 1, "only the first one was there");
}

#[test]
fn loop_49_the_delay_is_between_iterations_and_not_after_the_last() {
    let done = Project::acting("say hi").run(&["-n", "3", "--delay", "30ms"]);
    done.assert_code(0);
    let events = done.events();
    let waits = all(&events, "wait_started");
    assert_eq!(waits.iter().map(|w| &w["why"]).collect::<Vec<_>>(), ["delay", "delay"]);
    assert!(waits.iter().all(|w| w["delay_s"] == json!(0.03)), "{waits:?}");
    assert_eq!(*names(&events).iter().rev().nth(2).expect("many events"), "iteration_completed");
}

#[test]
fn a_budget_of_iterations_ends_the_run_with_3() {
    let project = Project::acting_with(&format!("{GRACES}\nbudget: {{iterations: 2}}"), "append starts $pid");
    let end = project.run(&[]).assert_code(3).end();
    assert_eq!(end["outcome"], "budget_exceeded");
    assert_eq!(project.lines("starts").len(), 2);
}

#[test]
fn a_budget_of_time_ends_a_session_in_its_middle_with_3() {
    let project = Project::acting_with(&format!("{GRACES}\nbudget: {{time: 700ms}}"), "hold hold; hang");
    let hold = project.fifo("hold");
    let done = project.run(&[]);
    hold.assert_released();
    assert_eq!(done.assert_code(3).end()["outcome"], "budget_exceeded");
    let events = done.events();
    assert_eq!(one(&events, "session_ended")["ended_by"], "budget");
    assert_eq!(one(&events, "iteration_interrupted")["by"], "budget");
}

#[test]
fn a_budget_of_time_ends_a_wait_with_3() {
    let project = Project::acting_with(&format!("{GRACES}\nbudget: {{time: 700ms}}"), "say hi");
    let done = project.run(&["--delay", "1h"]);
    assert_eq!(done.assert_code(3).end()["completed"], 1);
}

#[test]
fn a_failed_login_ends_the_run_at_once_with_1() {
    let front = format!("reader: claude\n{GRACES}");
    let project = Project::acting_with(&front, "claude init; claude is_error 401 Invalid key; exit 1");
    let done = project.run(&[]);
    assert_eq!(done.assert_code(1).end()["outcome"], "auth_failed");
    assert_eq!(done.count("session_started"), 1);
}

#[test]
fn loop_54_the_last_result_is_recorded_and_its_marker_counts() {
    let script = r#"claude init
        claude result first
        claude tool Bash ok ls out
        claude result "second\n<!-- ralph:state idle reason=no_pending_tasks -->""#;
    let project = Project::acting_with(&format!("reader: claude\n{GRACES}"), script);
    let done = project.run(&["-n", "1"]);
    done.assert_code(0);
    let events = done.events();
    assert_eq!(one(&events, "session_ended")["said"], "second");
    assert_eq!(one(&events, "marker_seen")["state"], "idle");
    assert_eq!(one(&events, "iteration_idle")["reason"], "no_pending_tasks");
}

// promise: 13
#[test]
fn loop_55_is_error_is_a_failure_though_the_exit_code_is_0() {
    let project = Project::acting_with(
        &format!("reader: claude\n{GRACES}"),
        "claude init; claude is_error 400 Bad request",
    );
    let done = project.run(&["-n", "1"]);
    done.assert_code(1);
    assert_eq!(one(&done.events(), "session_ended")["is_error"], true);
    assert_eq!(done.count("iteration_failed"), 1);
}

#[test]
fn loop_56_arguments_are_named_or_positional_and_57_two_dashes_end_options() {
    let project = Project::new();
    project.act_on(
        "args: [one, two, three]\ncommands: [{name: c, run: 'printf %s {{ args.two }}'}]",
        "say hi",
        "[{{ args.one }}|{{ args.two }}|{{ args.three }}|{{ commands.c }}]",
    );
    project.run(&["-n", "1", "--", "--two=a=b; c", "1st"]).assert_code(0);
    assert_eq!(project.prompt(1), "[1st|a=b; c||a=b; c]");
    project.run(&["-n", "1", "--", "--one", "", "--", "--two"]).assert_code(0);
    assert_eq!(project.prompt(1), "[|--two||--two]");
    for wrong in [&["--", "a", "b", "c", "d"][..], &["--", "--four", "x"]] {
        project.start_run(wrong).finish().assert_code(2);
    }
}

#[test]
fn a_missing_or_broken_loop_file_is_trouble_and_its_last_good_text_is_used() {
    let breakers = [
        "remove loop/RALPH.md",
        "write loop/RALPH.md ''",
        "write loop/RALPH.md \"---\\nagent: [\\n---\\nhalf\"",
        "write loop/RALPH.md \"---\\nagent: x\\nhalf a fil\"",
    ];
    for breaker in breakers {
        let project = Project::acting(&format!("counter count; on 1 {{ {breaker} }}"));
        let done = project.run(&["-n", "3"]);
        done.assert_code(0);
        assert_eq!([1, 2, 3].map(|i| project.prompt(i)), ["Go on.", "Go on.", "Go on."], "{breaker}");
        assert_eq!(kinds(&done.events(), "loop_file").len(), 1, "reported once: {breaker}");
    }
}

#[test]
fn a_silent_agent_whose_child_works_is_left_alone_at_the_idle_limit() {
    // A busy machine may give the child little of each second. 5 % count as work, and its clock ticks every 10 ms.
    let limits = "watchdog: {idle: 2s, tool: 1m, grace: 200ms, leak: 300ms}";
    let project = Project::acting_with(limits, "child { burn 2500ms }; wait; say done");
    let done = project.run(&["-n", "1"]);
    done.assert_code(0);
    assert!(kinds(&done.events(), "hard_stop").is_empty());
    let journal = project.journal();
    let mut sampled = journal.iter().filter(|event| event["cpu_ms"].is_u64());
    let last = sampled.next_back().expect("a silent agent is judged at the idle limit");
    assert!(last["cpu_ms"].as_u64().is_some_and(|ms| ms > 0), "{last}");
}
