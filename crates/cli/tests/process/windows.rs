//! `budget.window` and `POST /v1/limit` as users meet them: figures of Claude Code's stream and of Codex's session
//! file, a wait with figures, and a run that knows what another run learned.

use crate::kit::{Done, GRACES, Project, Running, all, one};
use dogwatch_core::time::moment::Wall;
use dogwatch_host::clock;
use dogwatch_server::{Client, socket_path};
use serde_json::{Value, json};

const HOUR_MS: i64 = 3_600_000;

fn in_hours(hours: i64) -> Wall {
    Wall(clock::now().wall.0 + hours * HOUR_MS)
}

/// Returns the script of a Claude Code that reports this share of its five-hour window and then succeeds.
fn claude(used: f64) -> String {
    let resets_at = in_hours(3).0 / 1_000;
    let windows = format!(
        r#"{{"five_hour":{{"utilization":{used},"resetsAt":{resets_at}}},"seven_day":{{"utilization":0.1,"resetsAt":{resets_at}}}}}"#
    );
    format!(
        r#"say '{{"type":"system","subtype":"init","session_id":"s1"}}'
        say '{{"type":"rate_limit_event","rate_limit_info":{{"status":"allowed","unifiedWindows":{windows}}}}}'
        say '{{"type":"result","subtype":"success","is_error":false,"result":"ok"}}'"#
    )
}

fn limited(reader: &str) -> String {
    format!("reader: {reader}\nbudget: {{window: {{five_hour: 80%}}}}\n{GRACES}")
}

fn status(project: &Project) -> Value {
    let done: Done = project.call(&["status", "--json"]);
    serde_json::from_slice(&done.assert_code(0).stdout).expect("JSON")
}

#[test]
fn a_used_window_of_claude_is_waited_for_with_figures_and_the_next_run_knows_it() {
    let project = Project::new();
    project.act(&limited("claude"), &claude(0.83));
    let mut run = project.start_run(&[]);
    let wait = run.wait_for("wait_started");
    assert_eq!(wait["why"], "rate_limit");
    let because = wait["because"].as_str().expect("a reason");
    assert!(because.starts_with("83% of the five_hour window of claude "), "{because}");
    assert!(because.contains("(budget.window.five_hour: 80%); resets at "), "{because}");
    let windows = status(&project)["windows"].clone();
    assert_eq!((&windows[0]["used_percent"], &windows[0]["limit_percent"]), (&json!(83.0), &json!(80.0)));
    assert_eq!((&windows[1]["used_percent"], &windows[1]["limit_percent"]), (&json!(10.0), &json!(null)));
    let text = project.call(&["status"]).text();
    assert!(
        text.contains("five_hour window of claude ") && text.contains(": 83% used (limit 80%), resets at "),
        "{text}"
    );
    let resets_at = Wall::from_rfc3339(windows[0]["resets_at"].as_str().expect("a time")).expect("RFC 3339");
    for (flag, ahead_ms, zone) in [(None, HOUR_MS, "ONE"), (Some("--utc"), 0, "UTC")] {
        let mut command = project.command(&["status"]);
        command.args(flag).env("TZ", "ONE-1");
        let text = Running::start(command).finish().assert_code(0).text();
        // The figure in the table of windows, and the reason for the wait.
        let at = Wall(resets_at.0 + ahead_ms).to_string();
        let shown = format!("resets at {} {} {zone}", &at[..10], &at[11..19]);
        let other = format!("{}Z", &resets_at.to_string()[11..19]);
        assert!(text.contains(&shown) && !text.contains(&other), "{shown} in {text}");
    }
    // A wake gets one iteration.
    project.call(&["wake"]).assert_code(0);
    run.wait_for("session_started");
    run.wait_for("wait_started");
    project.call(&["stop"]).assert_code(0);
    run.finish().assert_code(0);

    let mut next = project.start_run(&[]);
    next.wait_for("wait_started");
    project.call(&["stop"]).assert_code(0);
    let done = next.finish();
    done.assert_code(0);
    assert_eq!(done.count("session_started"), 0, "it knows without a session");
    project.assert_no_process_left();
}

#[test]
fn codex_reports_its_windows_in_its_session_file() {
    let project = Project::new();
    let home = project.outside("codex");
    let day = home.join("sessions/2026/11/15");
    std::fs::create_dir_all(&day).expect("creates");
    let limits = format!(
        r#"{{"limit_id":"codex","primary":{{"used_percent":91.0,"window_minutes":300,"resets_at":{}}},"secondary":null}}"#,
        in_hours(3).0 / 1_000
    );
    let script = format!(
        r#"say '{{"type":"thread.started","thread_id":"t1"}}'
        append {file} '{{"timestamp":"2026-11-15T20:00:00Z","type":"event_msg","payload":{{"type":"token_count","rate_limits":{limits}}}}}'
        say '{{"type":"item.completed","item":{{"id":"1","type":"agent_message","text":"done"}}}}'
        say '{{"type":"turn.completed","usage":{{}}}}'"#,
        file = day.join("rollout-2026-11-15T20-00-00-t1.jsonl").display(),
    );
    project.act(&limited("codex"), &script);
    let mut command = project.command(&["run", "loop", "--json"]);
    command.env("CODEX_HOME", &home);
    let mut run = Running::start(command);
    let wait = run.wait_for("wait_started");
    assert!(
        wait["because"].as_str().expect("a reason").starts_with("91% of the five_hour window of codex "),
        "{wait}"
    );
    project.call(&["stop"]).assert_code(0);
    let done = run.finish();
    let used = one(&done.events(), "windows_used").clone();
    assert_eq!(used["seen_at"], "2026-11-15T20:00:00.000Z");
}

#[test]
fn a_limit_set_by_the_api_parks_the_run_until_it_is_lifted() {
    let project = Project::acting_with("delay: 10m", "say worked");
    let mut run = project.start_run(&["-n", "2"]);
    run.wait_for("wait_started");
    let limit = |until: Wall| {
        let mut client = Client::connect(&socket_path(&project.run_dir())).expect("connects");
        client.post("/v1/limit", &json!({"until": until})).expect("answers").status
    };
    assert_eq!(limit(in_hours(24 * 32)), 400, "too far ahead");
    let until = in_hours(2);
    assert_eq!(limit(until), 202);
    assert_eq!(run.wait_for("limit_set")["until"], json!(until));
    assert_eq!(status(&project)["limit_until"], json!(until));
    // The wait between iterations ends, and the limit begins.
    project.call(&["wake"]).assert_code(0);
    let wait = run.wait_for("wait_started");
    assert_eq!(
        (&wait["why"], &wait["because"]),
        (&json!("rate_limit"), &json!(format!("a limit is set until {until}")))
    );
    assert_eq!(limit(in_hours(-1)), 202);
    let done = run.finish();
    done.assert_code(0);
    assert_eq!(all(&done.events(), "session_started").len(), 2);
    project.assert_no_process_left();
}
