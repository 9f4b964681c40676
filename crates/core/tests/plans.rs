//! The plan of a run, as its first event records it.

use dogwatch_core::record::event::{Event, Recorded, RunStarted};
use dogwatch_core::record::ids::{NodeName, RunId};
use dogwatch_core::settings::{Budget, GraphPlan, IdlePolicy, NodePlan, Plan, ReaderName, Settings};
use dogwatch_core::time::moment::Moment;
use serde_json::Value;

fn plan(n: usize) -> Plan {
    let node = |at: usize| {
        let mut settings = Settings::of(vec!["claude".to_owned()], ReaderName::Claude);
        settings.max_iterations = (at == 0).then_some(6);
        settings.idle = (at != 1).then(IdlePolicy::default);
        settings.work_when = (at == 2).then(|| "test -s todo".to_owned());
        settings.checks.commands = vec!["make test".to_owned()];
        NodePlan::alone(NodeName::new(&format!("n{at}")), settings)
    };
    let graph = GraphPlan { max_parallel: 4, budget: Budget::default() };
    Plan { nodes: (0..n).map(node).collect(), stop_on_error: false, snapshots: true, graph: Some(graph) }
}

/// Returns the JSON of the event that records a plan.
fn written(settings: Plan) -> Vec<u8> {
    let started = RunStarted {
        run: RunId::new(Moment::default().wall, [0; 4]),
        path: String::new(),
        work_dir: String::new(),
        nodes: Vec::new(),
        agent: String::new(),
        settings,
        boot_id: String::new(),
        pid: 1,
        dogwatch: String::new(),
        seed: 0,
        settings_sha256: String::new(),
        flags: Vec::new(),
    };
    let recorded = Recorded::new(1, Moment::default(), Event::RunStarted(Box::new(started)));
    let mut json = Vec::new();
    dogwatch_codec::write(&mut json, &recorded).expect("can be written");
    json
}

#[test]
fn a_plan_survives_a_round_trip() {
    for n in [1, 2, 5] {
        let json = written(plan(n));
        let text = String::from_utf8_lossy(&json);
        let Event::RunStarted(read) = dogwatch_codec::read(&json).expect("can be read").event else {
            panic!("another event: {text}");
        };
        assert_eq!(read.settings, plan(n), "{text}");
    }
}

#[test]
fn shared_settings_are_written_once() {
    let text = String::from_utf8(written(plan(1_000))).expect("JSON is UTF-8");
    assert_eq!(text.matches("make test").count(), 1);
    assert!(text.len() < 100 * 1_000, "{} bytes", text.len());
    let alone: Value = serde_json::from_slice(&written(plan(1))).expect("JSON");
    let alone = &alone["settings"];
    assert!(alone.get("shared").is_none());
    assert_eq!(alone["nodes"][0]["agent"][0], "claude");
    assert!(alone["nodes"][0]["work_when"].is_null());
}

#[test]
fn a_record_without_an_agent_is_refused() {
    let mut record: Value = serde_json::from_slice(&written(plan(1))).expect("JSON");
    record["settings"] = serde_json::json!({"nodes": [{"name": "a"}], "stop_on_error": false});
    let error = dogwatch_codec::read(record.to_string().as_bytes());
    assert!(error.is_err_and(|e| e.to_string().contains("the node `a` has no agent")));
}
