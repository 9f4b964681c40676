//! Plans with default settings that tests can modify.

use dogwatch_core::record::event::{RunResumed, RunStarted};
use dogwatch_core::record::ids::{NodeName, RunId};
use dogwatch_core::settings::{
    AttemptPolicy, Budget, CheckPolicy, CommandPlan, GraphPlan, NodePlan, Plan, ReaderName, Settings,
};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::time::moment::Wall;

/// Returns the default settings of a node.
pub fn settings() -> Settings {
    Settings::of(vec!["agent".to_owned()], ReaderName::Plain)
}

/// Returns a loop with changed settings.
pub fn plan(change: impl FnOnce(&mut Settings)) -> Plan {
    let mut settings = settings();
    change(&mut settings);
    alone(settings)
}

/// Returns a loop. Not generic like its callers, so that it is compiled once and not for every test.
fn alone(settings: Settings) -> Plan {
    Plan {
        nodes: vec![NodePlan::alone(NodeName::new("loop"), settings)],
        stop_on_error: false,
        snapshots: false,
        graph: None,
    }
}

/// Returns a loop with these checks and six attempts.
pub fn checked(checks: &[&str], change: impl FnOnce(&mut Settings)) -> Plan {
    let mut settings = checked_settings(checks);
    change(&mut settings);
    alone(settings)
}

fn checked_settings(checks: &[&str]) -> Settings {
    let mut settings = settings();
    settings.checks.commands = checks.iter().map(|c| (*c).to_owned()).collect();
    settings.max_iterations = Some(CheckPolicy::DEFAULT_ATTEMPTS);
    settings
}

/// Returns a loop with these checks that charges only attempts without progress.
pub fn progressing(checks: &[&str], change: impl FnOnce(&mut Settings)) -> Plan {
    checked(checks, |s| {
        s.max_iterations = None;
        s.checks.attempts = AttemptPolicy::Progress;
        s.checks.max_stalled = Some(CheckPolicy::DEFAULT_ATTEMPTS);
        change(s);
    })
}

/// Returns a graph of nodes given as `name: dependencies`, each with one check.
pub fn graph(max_parallel: u32, nodes: &[(&str, &[&str])]) -> Plan {
    let node = |(name, parents): &(&str, &[&str])| {
        let mut settings = settings();
        settings.checks.commands = vec!["check".to_owned()];
        settings.max_iterations = Some(2);
        let mut node = NodePlan::alone(NodeName::new(name), settings);
        node.depends_on = parents.iter().map(|p| NodeName::new(p)).collect();
        node
    };
    Plan {
        nodes: nodes.iter().map(node).collect(),
        stop_on_error: false,
        snapshots: false,
        graph: Some(GraphPlan { max_parallel, budget: Budget::default() }),
    }
}

/// Returns a command of a plan.
pub fn command(name: &str, timeout: Dur) -> CommandPlan {
    CommandPlan { name: name.to_owned(), run: name.to_owned(), timeout, shell: false }
}

/// Returns a change that sets the limit of a session.
pub fn session_limit(limit: Dur) -> impl FnOnce(&mut Settings) {
    move |s| s.watchdog.session = Limit::At(limit)
}

/// Returns the `run_started` event of a plan.
pub fn started(plan: Plan) -> RunStarted {
    RunStarted {
        run: RunId::new(Wall(0), [0; 4]),
        path: "loop/RALPH.md".to_owned(),
        work_dir: "/project".to_owned(),
        nodes: plan.nodes.iter().map(|n| n.name.clone()).collect(),
        agent: "agent".to_owned(),
        settings: plan,
        boot_id: "boot".to_owned(),
        pid: 1,
        dogwatch: "test".to_owned(),
        seed: 7,
        settings_sha256: String::new(),
        flags: Vec::new(),
    }
}

/// Returns a `run_resumed` event.
pub fn resumed() -> RunResumed {
    RunResumed {
        run: RunId::new(Wall(0), [0; 4]),
        boot_id: "boot".to_owned(),
        pid: 2,
        dogwatch: "test".to_owned(),
        work_dir: None,
        path: None,
        lost_at: None,
    }
}
