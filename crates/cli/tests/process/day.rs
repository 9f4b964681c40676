//! All runs of a project share its day budget.

use crate::kit::{Done, GRACES, Project, Running, all, one};

/// Runs dogwatch in a time zone in which it is noon, so that no day ends during a test.
fn call_at_noon(project: &Project, args: &[&str]) -> Done {
    let hour = jiff::Timestamp::now().as_second().rem_euclid(86_400) / 3_600;
    let mut command = project.command(args);
    command.env("TZ", format!("NOON{:+}", hour - 12));
    Running::start(command).finish()
}

#[test]
fn a_run_starts_no_agent_when_the_day_budget_is_spent() {
    let result = r#"{"type":"result","subtype":"success","is_error":false,"result":"done","total_cost_usd":0.6,"usage":{"input_tokens":5,"output_tokens":5}}"#;
    let project = Project::new();
    let front = format!("reader: claude\nbudget: {{day: {{cost_usd: 1}}}}\n{GRACES}");
    // The second session hangs, so only the budget can end it.
    project.act(&front, &format!("append calls called\nsay '{result}'\ncounter count; on 2 {{ hang }}"));
    call_at_noon(&project, &["run", "loop", "-n", "1"]).assert_code(0);
    // The second run spends more than the rest of the day budget.
    call_at_noon(&project, &["run", "loop", "-n", "1"]).assert_code(3);
    let done = call_at_noon(&project, &["run", "loop", "-n", "1"]);
    done.assert_code(3);
    assert!(
        done.text().contains("budget.day.cost_usd: $1.20 of $1.00 used today by all runs"),
        "{}",
        done.text()
    );
    assert_eq!(project.lines("calls").len(), 2, "no agent was started a third time");
}

#[test]
fn a_run_ends_when_it_exceeds_the_day_budget() {
    let result = r#"{"type":"result","subtype":"success","is_error":false,"result":"done","usage":{"input_tokens":40,"output_tokens":5}}"#;
    let project = Project::new();
    let front = format!("reader: claude\nbudget: {{day: {{tokens: 100}}}}\n{GRACES}");
    project.act(&front, &format!("say '{result}'"));
    call_at_noon(&project, &["run", "loop"]).assert_code(3);
    let events = project.journal();
    assert_eq!(one(&events, "run_ended")["outcome"], "budget_exceeded");
    assert_eq!(all(&events, "session_ended").len(), 3);
    let tokens: Vec<_> = all(&events, "day_used").iter().map(|e| e["tokens"].as_u64()).collect();
    assert_eq!(tokens, [Some(0), Some(45), Some(90)]);
    assert_eq!(all(&events, "day_used")[1]["unknown_cost"], 1, "the agent does not report its cost");
}
