//! Idle loops with real agents: markers, backoff, the idle stop, and skipped sessions.

use crate::kit::{GRACES, Project, Running, all, kinds, one};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Creates a loop with this `idle` block. Its agent keeps its files outside the work tree.
fn idling(idle: &str, script: &str) -> Project {
    Project::acting_with(&format!("idle: {idle}\n{GRACES}"), script)
}

fn idle_waits(events: &[Value]) -> Vec<f64> {
    let waits = all(events, "wait_started").into_iter().filter(|w| w["why"] == "idle");
    waits.filter_map(|w| w["delay_s"].as_f64()).collect()
}

fn starts(project: &Project) -> usize {
    std::fs::read_to_string(project.outside("starts")).unwrap_or_default().lines().count()
}

#[test]
fn loop_58_a_marker_of_a_plain_agent_backs_off_and_every_wait_is_recorded() {
    let project = idling("{delay: 10ms, stop_after: 4}", "say nothing left; marker idle no_pending_tasks");
    let done = project.run(&[]);
    let end = done.assert_code(0).end();
    assert_eq!((&end["outcome"], &end["idle"], &end["completed"]), (&json!("idle"), &json!(4), &json!(4)));
    let events = done.events();
    assert_eq!(idle_waits(&events), [0.01, 0.02, 0.04]);
    assert!(all(&events, "wait_ended").iter().all(|w| w["by"] == "timer"));
    let idle = all(&events, "iteration_idle");
    assert_eq!(idle.iter().map(|i| i["consecutive"].as_u64()).collect::<Vec<_>>(), [1, 2, 3, 4].map(Some));
    assert!(idle.iter().all(|i| i["reason"] == "no_pending_tasks"));
    assert!(project.prompt(1).contains("ralph:state idle"), "the prompt explains the marker");
}

#[test]
fn loop_58_a_structured_agents_marker_counts_in_its_result_only() {
    let script = r#"counter ../count
        on 1 { claude init; claude text "<!-- ralph:state idle -->"; claude result "I did it." } else {
          claude init; claude result "All done.\n<!-- ralph:state idle reason=blocked -->" }"#;
    let front = format!("reader: claude\nidle: {{delay: 10ms, stop_after: 1}}\n{GRACES}");
    let project = Project::acting_with(&front, script);
    let done = project.run(&[]);
    let end = done.assert_code(0).end();
    assert_eq!((&end["completed"], &end["idle"]), (&json!(2), &json!(1)));
    assert_eq!(one(&done.events(), "iteration_idle")["reason"], "blocked");
}

#[test]
fn a_marker_in_an_echoed_prompt_is_ignored() {
    let project = Project::new();
    let marker = "<!-- ralph:state idle reason=echoed -->";
    project.file("tasks", &format!("{marker}\n"));
    let front = "agent: cat\nidle: {delay: 10ms}\ncommands: [{name: tasks, run: cat tasks}]";
    project.ralph(&format!("{front}\n{GRACES}"), "Do this:\n\n{{ commands.tasks }}");
    let done = project.run(&["-n", "2"]);
    done.assert_code(0);
    assert!(project.prompt(1).lines().any(|l| l == marker), "the marker is in the prompt, on its own line");
    assert!(String::from_utf8_lossy(&project.raw(1, "stdout")).contains(marker), "and the agent printed it");
    assert_eq!((done.count("iteration_completed"), done.count("iteration_idle")), (2, 0));
    assert_eq!(idle_waits(&done.events()), [0.0; 0]);
}

#[test]
fn loop_63_the_run_sleeps_after_eight_idle_iterations_and_records_the_decision() {
    let project = idling("{delay: 10ms, max_delay: 10ms}", "marker idle no_pending_tasks");
    let done = project.run(&[]);
    let end = done.assert_code(0).end();
    assert_eq!((&end["outcome"], &end["iterations"]), (&json!("idle"), &json!(8)));
    assert_eq!(end["reason"], "no pending tasks; entering sleep mode after 8 idle iterations");
    let lines = project.lines(".dogwatch/decisions.jsonl");
    assert_eq!(lines.len(), 1);
    let entry: Value = serde_json::from_str(&lines[0]).expect("a context entry");
    assert_eq!((&entry["entry_type"], &entry["topic"]), (&json!("decision"), &json!("orchestrator_sleep")));
    let metadata = json!({
        "reason": "no_pending_tasks",
        "consecutiveIdleTicks": 8,
        "lastDecision": {"type": "idle", "reason": "no_pending_tasks"},
    });
    assert_eq!(entry["metadata"], metadata);
    project.run(&[]).assert_code(0);
    assert_eq!(project.lines(".dogwatch/decisions.jsonl").len(), 2, "it is appended to");
}

#[test]
fn an_unwritable_decisions_file_is_trouble_and_the_run_still_sleeps() {
    let project = idling("{delay: 10ms, stop_after: 2}", "marker idle");
    std::fs::create_dir_all(project.path(".dogwatch/decisions.jsonl")).expect("a directory in its place");
    let done = project.run(&[]);
    assert_eq!(done.assert_code(0).end()["outcome"], "idle");
    let events = done.events();
    let trouble = kinds(&events, "context_not_kept");
    assert_eq!(trouble.len(), 1);
    assert_eq!(trouble[0]["event"], "trouble");
}

#[test]
fn an_unchanged_loop_is_skipped_until_a_file_changes() {
    let idle = "{delay: 1h, max_delay: 1h, stop_after: 100, skip_unchanged: true}";
    let project = idling(idle, "append ../starts $pid; marker idle no_pending_tasks");
    let mut run = project.start_run(&[]);
    let wake = |run: &mut Running| {
        run.wait_for("wait_started");
        run.signal(Signal::USR1);
        run.wait_for("iteration_idle")
    };
    assert_eq!(run.wait_for("iteration_idle")["skipped"], false);
    for consecutive in 2..6 {
        let idle = wake(&mut run);
        assert_eq!((&idle["skipped"], &idle["consecutive"]), (&json!(true), &json!(consecutive)));
        assert_eq!(idle["reason"], "no_pending_tasks", "with the agent's reason");
    }
    assert_eq!(starts(&project), 1);
    project.file("todo.md", "something to do");
    assert_eq!(wake(&mut run)["skipped"], false);
    assert_eq!(wake(&mut run)["skipped"], true);
    assert_eq!(starts(&project), 2);
    // An operator message changes the prompt.
    run.wait_for("wait_started");
    project.call(&["tell", "look again"]).assert_code(0);
    run.signal(Signal::USR1);
    assert_eq!(run.wait_for("iteration_idle")["skipped"], false);
    assert_eq!(starts(&project), 3);
    run.signal(Signal::TERM);
    run.finish().assert_code(143);
    project.assert_no_process_left();
}

#[test]
fn work_when_starts_the_agent_on_0_skips_on_1_and_starts_with_trouble_on_2() {
    for (code, started, idle, trouble) in [(0, 2, 0, false), (1, 0, 2, false), (2, 2, 0, true)] {
        let project = Project::acting_with(
            &format!("work_when: exit {code}\nidle: {{delay: 10ms}}\n{GRACES}"),
            "append ../starts $pid",
        );
        let done = project.run(&["-n", "2"]);
        let end = done.assert_code(0).end();
        assert_eq!((starts(&project), &end["idle"]), (started, &json!(idle)), "exit {code}");
        assert_eq!(done.count("trouble") > 0, trouble, "exit {code}");
        assert!(all(&done.events(), "iteration_idle").iter().all(|i| i["reason"] == "no_pending_tasks"));
    }
}

#[test]
fn work_when_starts_the_agent_once_it_finds_work() {
    let front = format!("work_when: test -e todo\nidle: {{delay: 1h, max_delay: 1h}}\n{GRACES}");
    let project = Project::acting_with(&front, "append ../starts $pid; remove todo");
    let mut run = project.start_run(&["-n", "2"]);
    run.wait_for("wait_started");
    assert_eq!(starts(&project), 0);
    project.file("todo", "work");
    run.signal(Signal::USR1);
    let end = run.finish().assert_code(0).end();
    assert_eq!((starts(&project), &end["completed"], &end["idle"]), (1, &json!(2), &json!(1)));
}

#[test]
fn idle_iterations_count_against_n_and_no_wait_follows_the_last() {
    let project = idling("{delay: 10ms, max_delay: 10ms}", "marker idle no_pending_tasks");
    let done = project.run(&["-n", "3"]);
    let end = done.assert_code(0).end();
    assert_eq!((&end["outcome"], &end["iterations"], &end["idle"]), (&json!("clean"), &json!(3), &json!(3)));
    assert_eq!(idle_waits(&done.events()).len(), 2);
    assert!(!project.path(".dogwatch/decisions.jsonl").exists(), "it did not go to sleep");
}
