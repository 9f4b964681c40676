//! Subagents that do not appear in the agent's stdout: progress in their log files counts, other growth does not.

use crate::kit::{GRACES, Project, all, one};
use std::path::Path;

/// Runs a Codex that is silent while a subagent works. It prints its thread id, and `steps` write the subagent's log.
fn codex(project: &Project, home: &Path, idle: &str, steps: &str) -> Vec<serde_json::Value> {
    let day = home.join("sessions/2026/11/15");
    std::fs::create_dir_all(&day).expect("creates");
    let script = format!(
        r#"say '{{"type":"thread.started","thread_id":"parent"}}'
        say '{{"type":"turn.started"}}'
        sleep 300ms
        append {file} '{{"type":"session_meta","payload":{{"id":"child","parent_thread_id":"parent"}}}}'
        append {file} '{{"type":"event_msg","payload":{{"type":"task_started"}}}}'
        {steps}
        say '{{"type":"item.completed","item":{{"id":"1","type":"agent_message","text":"done"}}}}'
        say '{{"type":"turn.completed","usage":{{}}}}'"#,
        file = day.join("rollout-child.jsonl").display(),
        steps = steps.replace("FILE", &day.join("rollout-child.jsonl").display().to_string()),
    );
    let watchdog = GRACES.replace('}', &format!(", idle: {idle}, start: off}}"));
    project.act(&format!("reader: codex\n{watchdog}"), &script);
    let mut command = project.command(&["run", "loop", "-n", "1"]);
    command.env("CODEX_HOME", home);
    crate::kit::Running::start(command).finish();
    project.journal()
}

#[test]
fn a_silent_agent_whose_subagent_works_is_left_alone() {
    let project = Project::new();
    let home = project.outside("codex");
    let message = r#"append FILE '{"type":"response_item","payload":{"type":"message","role":"assistant"}}'"#;
    let events = codex(&project, &home, "3s", &format!("repeat 25 {{\n{message}\nsleep 200ms\n}}"));
    one(&events, "iteration_completed");
    let on_subagent = |e: &&&serde_json::Value| e["channel"] == "subagent";
    assert!(all(&events, "observed").iter().any(|e| on_subagent(&e)), "{events:?}");
    assert!(all(&events, "watchdog_continue").iter().any(|e| e["deferred_by"] == "subagent"), "{events:?}");
    assert_eq!(all(&events, "hard_stop").len(), 0);
}

#[test]
fn a_subagent_that_is_alive_and_does_nothing_is_not_evidence() {
    let project = Project::new();
    let home = project.outside("codex");
    // The log grows only by token counts and by messages of its parent.
    let talk = r#"append FILE '{"type":"event_msg","payload":{"type":"token_count"}}'
        append FILE '{"type":"response_item","payload":{"type":"message","role":"user"}}'"#;
    let events = codex(&project, &home, "1s", &format!("repeat 200 {{\n{talk}\nsleep 100ms\n}}"));
    assert_eq!(one(&events, "hard_stop")["reason"], "NO_OUTPUT_DEADLINE");
    let channels: Vec<_> = all(&events, "observed").iter().map(|e| e["channel"].clone()).collect();
    assert!(!channels.contains(&"subagent".into()), "{channels:?}");
}
