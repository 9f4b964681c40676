//! Learned idling across runs: the history, `gc`, and `forecast`.

use crate::kit::{GRACES, Project, all, kinds, one};
use serde_json::{Value, json};

/// A loop that finds work in its third iteration and is idle otherwise.
fn learning() -> Project {
    let front = format!(
        "idle: {{strategy: learned, delay: 20ms, max_delay: 40ms, longest: 80ms, stop_after: 4}}\n{GRACES}"
    );
    let script = "counter ../count; on 3 { say did it } else { marker idle no_pending_tasks }";
    Project::acting_with(&front, script)
}

fn idle_time(events: &[Value]) -> u64 {
    one(events, "idle_learned")["state"]["age_x"]
        .as_array()
        .expect("a table")
        .iter()
        .filter_map(Value::as_u64)
        .sum()
}

#[test]
fn what_a_loop_learned_reaches_its_next_run_and_survives_gc() {
    let project = learning();
    let first = project.run(&[]);
    first.assert_code(0);
    let events = first.events();
    assert_eq!((idle_time(&events), kinds(&events, "idle_history").len()), (0, 1));
    let waits = all(&events, "wait_started");
    assert!(waits.iter().all(|wait| wait["utc_offset_s"].is_i64()), "{waits:?}");
    let second = project.run(&[]).events();
    let (known, arrivals) = (idle_time(&second), one(&second, "idle_learned")["state"]["arrivals"].clone());
    assert!(known > 0 && kinds(&second, "idle_history").is_empty());
    assert_eq!(arrivals, 1);
    assert!(all(&second, "wait_started").iter().all(|wait| wait["because"].is_string()));

    project.call(&["gc", "--keep", "0", "--older-than", "0", "--yes"]).assert_code(0);
    let third = project.run(&[]).events();
    assert!(idle_time(&third) >= known);
    assert_eq!(one(&third, "idle_learned")["state"]["arrivals"], 1);

    let forecast = project.call(&["forecast", "loop", "--json"]);
    let forecast: Value = serde_json::from_str(&forecast.assert_code(0).text()).expect("JSON");
    let node = &forecast["nodes"][0];
    assert_eq!((&node["arrivals"], &node["strategy"]), (&json!(1), &json!("learned")));
    assert_eq!(node["week"].as_array().map(Vec::len), Some(168));
    assert!(node["looks"].as_array().is_some_and(|looks| looks.len() > 3));
    let text = project.call(&["forecast", "loop"]);
    text.assert_code(0);
    for part in ["too few for a pattern; next look ", "\n  Mon  ", "\n  next looks: "] {
        assert!(text.text().contains(part), "{}", text.text());
    }
}

#[test]
fn a_trace_is_replayed_and_a_bad_one_is_refused() {
    let project = Project::shell("true");
    let mut trace =
        "# zone: UTC\n# start: 1767571200\n# end: 1769990400\n# offset: 1767571200 3600\n".to_owned();
    for day in 0..28 {
        trace.push_str(&format!("{}\n", 1_767_571_200 + day * 86_400 + 36_000));
    }
    project.file("trace.txt", &trace);
    let done = project.call(&["forecast", "--trace", "trace.txt", "--look", "20s", "--json"]);
    let judged: Value = serde_json::from_str(&done.assert_code(0).text()).expect("JSON");
    let ratio = judged["cost_ratio"].as_f64().expect("a number");
    assert!(ratio < 0.5, "{judged}");
    for key in ["looks_per_day", "mean_s", "p95_s"] {
        assert!(judged[key].is_f64() && judged["exponential"][key].is_f64(), "{judged}");
    }
    let text = project.call(&["forecast", "--trace", "trace.txt"]);
    assert!(text.assert_code(0).text().contains("% of exponential ones"), "{}", text.text());
    project.file("trace.txt", "yesterday\n");
    let bad = project.call(&["forecast", "--trace", "trace.txt"]);
    bad.assert_code(2);
    assert!(bad.stderr.contains("line 1 is neither a header nor a time"), "{}", bad.stderr);
    let none = project.call(&["forecast", "loop"]);
    none.assert_code(2);
    assert!(none.stderr.contains("has no idle policy"), "{}", none.stderr);
}
