//! Commands about past runs: `history`, `report` and `tune`.

use crate::kit::{GRACES, Project, Running};
use dogwatch_core::time::dur::Dur;
use serde_json::{Value, json};

fn history(project: &Project, args: &[&str]) -> Value {
    let done = project.call(&[&["history", "--json"], args].concat());
    done.assert_code(0);
    serde_json::from_slice(&done.stdout).expect("JSON")
}

#[test]
fn history_lists_every_run_with_totals_and_unknown_values() {
    let project = Project::acting("say hi");
    project.run(&["-n", "2"]).assert_code(0);
    project.act(GRACES, "exit 3");
    project.run(&["-n", "1"]).assert_code(1);
    let listed = history(&project, &[]);
    let outcomes: Vec<&Value> =
        listed["runs"].as_array().expect("runs").iter().map(|r| &r["outcome"]).collect();
    assert_eq!(outcomes, ["catastrophic", "clean"]);
    let newest = &listed["runs"][0];
    assert_eq!((&newest["tokens"], &newest["cost_usd"]), (&Value::Null, &Value::Null), "{newest}");
    assert_eq!(newest["cost_unknown_sessions"], 1);
    let sums = &listed["projects"][0];
    assert_eq!(sums["outcomes"], json!({"catastrophic": 1, "clean": 1}));
    assert_eq!((&sums["runs"], &sums["counts"]["iterations"]), (&json!(2), &json!(3)), "{sums}");
    let text = project.call(&["history"]).text();
    assert!(text.contains("unknown") && text.contains("clean, unverified"), "{text}");
    project.act("watchdog: {session: 200ms, grace: 200ms, leak: 300ms}", "hang");
    project.run(&["-n", "1"]).assert_code(1);
    let text = project.call(&["history"]).text();
    assert!(text.contains(", 1 failed, 1 timed out, 0 flakes; "), "{text}");
}

#[test]
fn history_is_bounded_and_counts_the_omitted_runs() {
    let project = Project::acting("say hi");
    for _ in 0..3 {
        project.run(&["-n", "1"]).assert_code(0);
    }
    let listed = history(&project, &["--limit", "2"]);
    assert_eq!(listed["runs"].as_array().map(Vec::len), Some(2));
    assert_eq!((&listed["left_out"], &listed["projects"][0]["runs"]), (&json!(1), &json!(2)));
    assert!(project.call(&["history", "-n", "2"]).text().contains("1 older run not listed"));
    project.call(&["history", "-n", "0"]).assert_code(2);
    let all = history(&project, &["--all"]);
    assert_eq!(all["runs"].as_array().map(Vec::len), Some(3), "this user has no other projects");
}

#[test]
fn a_run_killed_in_a_session_shows_its_time_its_open_iteration_and_unknown_cost() {
    let project = Project::with_lost_run(Dur::from_millis(65_300));
    // A refused resume signs the same files, and changes nothing of that.
    let journal = project.run_dir().join("events.jsonl");
    let text = std::fs::read_to_string(&journal).expect("a journal");
    std::fs::write(&journal, text.replacen("run_started", "run_altered", 1)).expect("writes");
    project.call(&["resume"]).assert_code(2);
    std::fs::write(&journal, text).expect("writes");
    let lost = &history(&project, &[])["runs"][0];
    assert_eq!(
        (&lost["unfinished"], &lost["cost_usd"], &lost["tokens"]),
        (&json!(1), &Value::Null, &Value::Null)
    );
    for (args, words) in [
        (&[][..], "1 iteration: 0 completed, 1 unfinished, 1m 05s"),
        (&["status"], "1 iteration: 0 completed, 1 unfinished\n  spent: tokens unknown, cost unknown\n"),
        (&["history"], "1m 05s    1 (1 unfinished)  -       unknown  unknown"),
        (
            &["history"],
            "1 iteration in 1m 05s, 0 failed, 1 unfinished, 0 flakes; tokens unknown; cost unknown",
        ),
        (&["report"], "**lost** after 1m 05s"),
        (&["report"], "1 iteration: 1 unfinished; 1m 05s; tokens unknown, cost unknown"),
        (&["report"], "| total | tokens unknown | cost unknown |"),
    ] {
        let text = project.call(args).text();
        assert!(text.contains(words), "no {words:?} in {args:?}:\n{text}");
    }
}

/// Asserts that the groups of `history --by` add up to the totals of `history`, and returns these.
fn totals_of_both(project: &Project) -> Value {
    const FIGURES: [&str; 4] = ["tokens", "tokens_unknown_sessions", "cost_usd", "cost_unknown_sessions"];
    let figures = |of: &Value| Value::from(FIGURES.map(|name| of[name].clone()).to_vec());
    let totals = figures(&history(project, &[])["projects"][0]);
    for by in ["day", "agent", "model", "loop"] {
        let grouped = history(project, &["--by", by]);
        assert_eq!(figures(&grouped["total"]), totals, "{grouped}");
        assert_eq!(figures(&grouped["groups"][0]), totals, "{grouped}");
    }
    totals
}

#[test]
fn the_groups_of_history_have_the_sessions_of_lost_and_resumed_runs() {
    let step = |reason: &str| {
        format!(
            r#"say '{{"type":"step_finish","sessionID":"s","part":{{"reason":"{reason}","tokens":{{"total":100}},"cost":0.5}}}}'"#
        )
    };
    let script = format!(
        "counter ../count; on 1 {{ {}; hang }}; on 2 {{ ready there; hang }}; {}",
        step("tool-calls"),
        step("stop")
    );
    let project = Project::acting_with(&format!("reader: opencode\n{GRACES}"), &script);
    let there = project.fifo("there");
    let lose = |run: Running| {
        run.kill();
        project.wait_until_no_process_left();
    };
    let mut first = project.start_run(&["-n", "1"]);
    first.wait_for("used");
    lose(first);
    assert_eq!(totals_of_both(&project), json!([100, 0, 0.5, 0]));
    let mut second = project.start(&["resume", "--json"]);
    second.wait_for("session_started");
    there.pid();
    lose(second);
    assert_eq!(totals_of_both(&project), json!([100, 1, 0.5, 1]), "the second session was not free");
    project.start(&["resume", "--json"]).finish().assert_code(0);
    assert_eq!(totals_of_both(&project), json!([200, 1, 1.0, 1]));
    let report = project.call(&["report"]).text();
    assert!(report.contains("(its supervisor was lost)\n") && !report.contains("not called"), "{report}");
    assert_eq!(history(&project, &["--by", "loop"])["total"]["sessions"], 3);
}

#[test]
fn an_empty_history_has_a_message_and_a_broken_record_takes_one_line() {
    let project = Project::acting("say hi");
    let done = project.call(&["history"]);
    done.assert_code(0);
    assert!(done.text().contains("no runs in this directory yet"), "{}", done.text());
    project.run(&["-n", "1"]).assert_code(0);
    let first = project.run_dir();
    project.run(&["-n", "1"]).assert_code(0);
    std::fs::write(first.join("events.jsonl"), "nonsense\n").expect("writes");
    let listed = history(&project, &[]);
    assert_eq!(listed["runs"].as_array().map(Vec::len), Some(1));
    assert!(listed["unreadable"][0]["why"].as_str().is_some_and(|why| why.contains("line 1")), "{listed}");
    assert!(project.call(&["history"]).text().contains("cannot read its record"));
}

// promise: 8
#[test]
fn a_report_lists_the_night_in_order_and_shows_agent_text_as_text() {
    let project = Project::shell(r#"printf "\033[31m<b>**bold**</b> [x](y)\n"; exit 1"#);
    project.run(&["-n", "1"]).assert_code(1);
    let done = project.call(&["report"]);
    done.assert_code(0);
    let text = done.text();
    let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("no {words:?} in:\n{text}"));
    assert!(text.starts_with("# Run "), "{text}");
    let order = [
        "**not done**",
        "1 iteration: 1 failed",
        "**Needs attention**: 1 failed iteration, latest: iteration 1: exit code 1: ",
        "## Run",
        "## Timeline",
        "**failed**",
        "## Unfinished work",
    ];
    assert!(order.map(at).is_sorted(), "{text}");
    at("\\<b\\>\\*\\*bold\\*\\*\\</b\\> \\[x\\](y)");
    at("tokens unknown, cost unknown");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_report_of_a_hard_stop_has_its_evidence() {
    let project = Project::acting_with("watchdog: {session: 1s, grace: 200ms, leak: 300ms}", "say hi; hang");
    project.run(&["-n", "1"]).assert_code(1);
    let text = project.call(&["report"]).text();
    for words in ["## Verdicts", "**hard stop**", "SESSION\\_CEILING\\_EXCEEDED", "  - stdout", "never seen"]
    {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
}

#[test]
fn a_changed_record_is_reported_at_the_top_of_the_report() {
    let project = Project::acting("say hi");
    project.run(&["-n", "1"]).assert_code(0);
    let path = project.run_dir().join("events.jsonl");
    let text = std::fs::read_to_string(&path).expect("reads");
    std::fs::write(&path, text.replacen("\"cause\":\"first\"", "\"cause\":\"next\"", 1)).expect("writes");
    let text = project.call(&["report"]).text();
    assert!(text.lines().nth(5).is_some_and(|l| l.contains("the record was changed: line")), "{text}");
}

#[test]
fn a_report_has_the_checks_and_the_end_of_failing_output() {
    let front = format!(
        "{GRACES}\nmax_iterations: 1\ndone_when:\n  - 'true'\n  - 'echo \"<b>not yet</b> | no\"; exit 3'"
    );
    let project = Project::acting_with(&front, "say hi");
    project.run(&[]).assert_code(1);
    let text = project.call(&["report"]).text();
    for words in [
        "**Needs attention**: failing checks: `echo",
        "**Asked**: “Go on.”",
        "; exit 3` exit 3 in ",
        "iteration 1: **1 of 2 checks failed**: ",
        "## Checks",
        "  - `true` passed",
        "(exit 3)",
        "```text\n<b>not yet</b> | no\n```",
        "- `loop`, failed: max\\_iterations\\_reached; failing checks: `echo",
    ] {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
}

#[test]
fn a_report_has_the_changes_and_planned_next_to_real_waits() {
    let front = format!("{GRACES}\ndelay: 200ms\nmax_iterations: 2\ndone_when: ['false']");
    let project = Project::acting_with(&front, "counter count; write work.txt \"part $n\"");
    project.file(".gitignore", "count\n");
    project.init_git();
    project.run(&[]).assert_code(1);
    let text = project.call(&["report"]).text();
    for words in [
        " changed (+",
        "| `work.txt` | 1 | 0 |",
        "```diff\ndiff --git a/work.txt b/work.txt",
        "+part 2",
        "| reason | count | planned | real | ended early |",
        "| between iterations | 1 | 0.2s | 0.",
    ] {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
    let run = project.run_dir().file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let json = |args: &[&str]| -> Value {
        let done = project.call(args);
        serde_json::from_slice(&done.assert_code(0).stdout).expect("a document")
    };
    let report = json(&["report", "--json"]);
    let files = report["changes"]["parts"][0]["files"].as_array().expect("a list").clone();
    assert!(files.contains(&json!({"path": "work.txt", "added": 1, "removed": 0})), "{report}");
    assert_eq!(report["waits"][0]["planned_s"], 0.2, "{report}");
    let diff = json(&["diff", "--json", &run, "2"]);
    assert_eq!(diff["files"], json!([{"path": "work.txt", "added": 1, "removed": 1}]), "{diff}");
    let undone = json(&["undo", "--json", "--yes", &run, "1"]);
    assert_eq!((&undone["removed"], &undone["left"]), (&json!(1), &json!(0)), "{undone}");
    assert!(!project.path("work.txt").exists());
}
