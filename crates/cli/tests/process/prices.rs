//! Costs of agents that report only tokens: computed from the price table, used by budgets, shown with their origin.

use crate::kit::{GRACES, Project, all, kinds, one};
use serde_json::{Value, json};

/// Runs a Codex that uses a million input tokens, 400,000 of them cached, and 100,000 output tokens per session, with
/// this model in its session file.
fn codex(project: &Project, front: &str, model: &str, args: &[&str]) -> Vec<Value> {
    let home = project.outside("codex");
    let day = home.join("sessions/2026/11/15");
    std::fs::create_dir_all(&day).expect("creates");
    let script = format!(
        r#"say '{{"type":"thread.started","thread_id":"t1"}}'
        append {file} '{{"type":"turn_context","payload":{{"cwd":"/srv","model":"{model}"}}}}'
        say '{{"type":"item.completed","item":{{"id":"1","type":"agent_message","text":"done"}}}}'
        say '{{"type":"turn.completed","usage":{{"input_tokens":1000000,"cached_input_tokens":400000,"output_tokens":100000,"reasoning_output_tokens":60000}}}}'"#,
        file = day.join("rollout-2026-11-15T20-00-00-t1.jsonl").display(),
    );
    project.act(&format!("reader: codex\n{front}{GRACES}"), &script);
    let mut command = project.command(&[&["run", "loop", "--json"], args].concat());
    command.env("CODEX_HOME", &home);
    crate::kit::Running::start(command).finish().events()
}

fn json_of(project: &Project, args: &[&str]) -> Value {
    serde_json::from_slice(&project.call(args).assert_code(0).stdout).expect("JSON")
}

fn own_prices(project: &Project, text: &str) {
    let dir = project.outside("home/.config/dogwatch");
    std::fs::create_dir_all(&dir).expect("creates");
    std::fs::write(dir.join("prices.toml"), text).expect("writes");
}

#[test]
fn the_cost_of_codex_is_computed_and_ends_the_run_at_its_budget() {
    let project = Project::new();
    own_prices(
        &project,
        "version = 1\ndate = \"2026-11-01\"\n[models]\nbig = { input = 5, cached_input = 0.5, output = 30 }\n",
    );
    let events = codex(&project, "budget: {cost_usd: 10}\n", "big", &[]);
    let ended = all(&events, "session_ended");
    let cost = ended[0]["cost_usd"].as_f64().expect("a cost");
    assert!((cost - 6.2).abs() < 1e-9, "{cost}");
    assert_eq!((&ended[0]["cost_source"], &ended[0]["prices"]), (&json!("computed"), &json!("2026-11-01")));
    assert_eq!(
        ended[0]["counts"],
        json!({"input": 1_000_000, "cached_input": 400_000, "output": 100_000, "reasoning": 60_000})
    );
    assert_eq!(ended[0]["model"], "big");
    let end = one(&events, "run_ended");
    assert_eq!((&end["outcome"], &end["exit_code"]), (&json!("budget_exceeded"), &json!(3)));
    assert_eq!(end["reason"], "budget.cost_usd: $12.40 of $10.00 used");

    let status = project.call(&["status"]).text();
    assert!(status.contains("2200000 tokens, $12.40 (computed); list prices of 2026-11-01"), "{status}");
    assert!(project.call(&["history"]).text().contains("$12.40 (computed)"));
    assert!(project.call(&["report"]).text().contains("$12.40 (computed)"));
    for by in ["day", "agent", "model", "loop"] {
        let grouped = json_of(&project, &["history", "--by", by, "--json"]);
        let group = &grouped["groups"][0];
        assert_eq!((&group["sessions"], &group["tokens"]), (&json!(2), &json!(2_200_000)), "{by}: {grouped}");
        let computed = group["cost_computed_usd"].as_f64().expect("a cost");
        assert!((computed - 12.4).abs() < 1e-9, "{by}: {computed}");
    }
    let by_model = project.call(&["history", "--by", "model"]).text();
    assert!(by_model.contains("big ") && by_model.contains("list prices of 2026-11-01"), "{by_model}");
    project.call(&["history", "--by", "week"]).assert_code(2);
}

#[test]
fn the_cost_of_an_unknown_model_is_unknown_and_that_is_said_once() {
    let project = Project::new();
    let events = codex(&project, "", "of-tomorrow", &["-n", "2"]);
    assert!(all(&events, "session_ended").iter().all(|e| e.get("cost_usd").is_none()), "{events:?}");
    let notices = kinds(&events, "price_unknown");
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0]["message"].as_str().expect("a text").contains("no price for the model `of-tomorrow`"));
    assert!(project.call(&["status"]).text().contains("cost unknown"));
}

#[test]
fn prices_are_listed_and_a_broken_table_starts_nothing() {
    let project = Project::acting("say hi");
    let listed = json_of(&project, &["prices", "--json"]);
    assert!(listed["models"].as_array().expect("models").len() >= 10, "{listed}");
    assert_eq!(listed["file_exists"], false);
    let text = project.call(&["prices"]).text();
    assert!(
        text.contains("list prices in US dollars per million tokens")
            && text.contains("put your own prices into"),
        "{text}"
    );
    own_prices(&project, "version = 1\ndate = \"2026-11-01\"\n[models]\nbig = { input = \"five\" }\n");
    for args in [&["prices"][..], &["run", "loop", "-n", "1"]] {
        let done = project.call(args);
        done.assert_code(2);
        let said = done.stderr.clone();
        assert!(
            said.contains("`input` must be US dollars per million tokens") && said.contains("prices.toml:4:"),
            "{said}"
        );
    }
}
