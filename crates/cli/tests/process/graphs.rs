//! Graphs with real processes: several nodes at once, each with its own keeper, and no process left in any case.

use crate::kit::{Project, all, one};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Writes a graph with these nodes. The agent of each node plays the script of the same name.
fn graph(project: &Project, top: &str, nodes: &[(&str, &str, &str)]) {
    let mut text = format!("watchdog: {{grace: 200ms, leak: 300ms}}\nerrors: {{max: 1}}\n{top}\nnodes:\n");
    for (name, more, script) in nodes {
        project.file(&format!("{name}.script"), script);
        let agent = Value::from(project.actor(&format!("{name}.script")));
        text +=
            &format!("  - {{id: {name}, prompt: \"do {name}\", agent: {agent}, max_iterations: 1{more}}}\n");
    }
    project.file("graph.yaml", &text);
}

fn ends<'a>(events: &'a [Value], node: &str) -> Vec<&'a Value> {
    all(events, "session_ended").into_iter().filter(|e| e["node"] == node).collect()
}

#[test]
fn independent_nodes_run_at_the_same_time() {
    let project = Project::new();
    let (a, b) = (project.fifo("a"), project.fifo("b"));
    graph(
        &project,
        "",
        &[
            ("one", "", "read-prompt; say $prompt; ready a; await b2; touch one.done"),
            ("two", "", "ready b; await a2"),
        ],
    );
    let (gate_a, gate_b) = (project.gate("a2"), project.gate("b2"));
    let run = project.start(&["run", "graph.yaml", "--json"]);
    a.pid();
    b.pid();
    gate_a.open();
    gate_b.open();
    let done = run.finish();
    assert_eq!(done.assert_code(0).end()["nodes"]["done"], 2);
    project.assert_no_process_left();
    let stdout = std::fs::read_to_string(project.run_dir().join("one/000001/stdout")).expect("raw output");
    assert_eq!(stdout, "do one\n");
}

#[test]
fn a_dependent_node_starts_after_its_dependency_unless_that_failed() {
    let project = Project::new();
    let check = |ok: &str| format!(", done_when: [{ok:?}]");
    let after = |first: &str| format!(", depends_on: [{first}]");
    graph(
        &project,
        "",
        &[
            ("good", &check("true"), "append order good"),
            ("bad", &check("false"), "append order bad"),
            ("then", &after("good"), "append order then"),
            ("never", &after("bad"), "append order never"),
        ],
    );
    let done = project.call(&["run", "graph.yaml", "--json"]);
    project.assert_no_process_left();
    let end = done.assert_code(1).end();
    assert_eq!(
        (&end["outcome"], &end["nodes"]),
        (&json!("stuck"), &json!({"done": 2, "failed": 1, "blocked": 1}))
    );
    let order = project.lines("order");
    assert!(!order.contains(&"never".to_owned()));
    assert!(order.iter().position(|l| l == "good") < order.iter().position(|l| l == "then"), "{order:?}");
    let logs = project.call(&["logs", "--node", "never"]);
    logs.assert_code(2);
    assert!(logs.stderr.contains(" never started the node never: ancestor_failed:bad\n"), "{}", logs.stderr);
    for node in ["good", "bad"] {
        assert!(project.run_dir().join(format!("{node}.log")).exists(), "{node}");
    }
}

// promise: 1
#[test]
fn killed_with_many_running_nodes_no_process_is_left_and_no_node_runs_twice() {
    let project = Project::new();
    let (hold, there) = (project.fifo("hold"), project.fifo("there"));
    let slow = "hold hold; append starts x; once $env:DOGWATCH_NODE.first { orphan { ignore TERM; hang }; ready there; hang }";
    let quick = "append quick x";
    graph(&project, "", &[("a", "", slow), ("b", "", slow), ("c", "", slow), ("d", "", quick)]);
    let mut run = project.start(&["run", "graph.yaml", "--json"]);
    run.wait_until("d is done", |e| e["event"] == "node_transition" && e["node"] == "d" && e["to"] == "done");
    let pids = [there.pid(), there.pid(), there.pid()];
    assert!(pids[0] != pids[1] && pids[1] != pids[2]);
    run.kill();
    project.wait_until_no_process_left();
    hold.assert_released();
    let id = project.run_dir().file_name().expect("a name").to_string_lossy().into_owned();
    let done = project.call(&["resume", &id, "--json"]);
    project.assert_no_process_left();
    assert_eq!(done.assert_code(0).end()["nodes"]["done"], 4);
    assert_eq!((project.lines("starts").len(), project.lines("quick").len()), (6, 1));
}

#[test]
fn one_signal_ends_all_nodes() {
    let project = Project::new();
    let (hold, there) = (project.fifo("hold"), project.fifo("there"));
    let stubborn = "hold hold; ignore INT TERM; ready there; hang";
    graph(&project, "", &[("a", "", stubborn), ("b", "", stubborn)]);
    let run = project.start(&["run", "graph.yaml", "--json"]);
    there.pid();
    there.pid();
    run.signal(Signal::TERM);
    let done = run.finish();
    done.assert_code(143);
    project.assert_no_process_left();
    hold.assert_released();
    for node in ["a", "b"] {
        assert_eq!(ends(&done.events(), node).len(), 1, "{node}");
    }
    assert_eq!(one(&done.events(), "run_ended")["outcome"], "interrupted");
}

#[test]
fn an_idle_iteration_completes_a_node_without_checks_and_without_an_idle_block() {
    let project = Project::new();
    let idle = r#"say "<!-- ralph:state idle reason=no_pending_tasks -->""#;
    graph(&project, "", &[("a", "", idle), ("b", ", depends_on: [a]", "append order b")]);
    // The graphs of these tests limit iterations. This one must end by itself.
    let text = project.read("graph.yaml").replace(", max_iterations: 1", "");
    project.file("graph.yaml", &text);
    let done = project.call(&["run", "graph.yaml", "--json"]);
    let end = done.assert_code(0).end();
    assert_eq!(
        (&end["outcome"], &end["iterations"], &end["nodes"]["done"]),
        (&json!("clean"), &json!(2), &json!(2))
    );
    project.assert_no_process_left();
}

#[test]
fn a_graph_that_is_stopped_says_how_many_nodes_are_done_and_shows_them_in_the_past_tense() {
    let project = Project::new();
    graph(
        &project,
        "",
        &[("a", "", "ready there; await gate"), ("b", ", depends_on: [a]", "append order b")],
    );
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let run = project.start(&["run", "graph.yaml", "--json"]);
    there.pid();
    project.call(&["pause"]).assert_code(0);
    let status = project.call(&["status"]).text();
    assert!(status.contains("working; pausing after the current iteration"), "{status}");
    project.call(&["resume"]).assert_code(0);
    project.call(&["stop"]).assert_code(0);
    gate.open();
    let done = run.finish();
    assert_eq!(done.assert_code(0).end()["reason"], "on request; 1 of 2 nodes done");
    let woken = project.call(&["wake"]);
    woken.assert_code(2);
    assert!(woken.stderr.contains("help: continue it with `dogwatch resume "), "{}", woken.stderr);

    let run = project.start(&["run", "graph.yaml", "--json"]);
    there.pid();
    run.signal(Signal::TERM);
    run.finish().assert_code(143);
    let status = project.call(&["status"]).text();
    assert!(status.contains("  a  iteration 1: was running\n"), "{status}");
}
