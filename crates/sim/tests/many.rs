//! Hundreds of sessions in one run.

use dogwatch_core::record::event::Event;
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::StopReason;
use dogwatch_sim::plan::graph;
use dogwatch_sim::{Act, Drive, World};
use std::collections::BTreeMap;

const SESSIONS: usize = 300;
/// How long dogwatch takes to start one session: about what a real one takes on a busy machine.
const START: Dur = Dur::from_millis(10);
/// Reached by the first sessions long before the last one has started.
const LIMIT: Dur = Dur::from_secs(1);
/// How late a verdict may be.
const LATE: Dur = Dur::from_millis(100);

// promise: 12
#[test]
fn while_hundreds_of_sessions_start_each_limit_holds_within_100_ms() {
    let names: Vec<String> = (0..SESSIONS).map(|n| format!("n{n}")).collect();
    let nodes: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), [].as_slice())).collect();
    let mut plan = graph(u32::try_from(SESSIONS).expect("small"), &nodes);
    for node in &mut plan.nodes {
        node.settings.watchdog.session = Limit::At(LIMIT);
        node.settings.recovery.budget = 0;
    }
    let mut world = World::new(plan, |_| Act::hangs());
    // A poll returns everything that is ready: reports and deadlines. Verdicts are as late as the last start.
    (world.start_takes, world.together, world.truth.punctual) = (START, true, false);
    world.drive(Drive::Until(Dur::from_mins(1)));
    let mut started: BTreeMap<NodeName, Awake> = BTreeMap::new();
    let (mut judged, mut while_starting, mut latest) = (0, 0, Dur::ZERO);
    for recorded in &world.events {
        match &recorded.event {
            Event::SessionStarted { node, .. } => {
                started.insert(node.clone(), recorded.awake_ms);
            }
            Event::HardStop { node, reason: StopReason::SessionCeilingExceeded, .. } => {
                let late = recorded.awake_ms.since(started[node]).saturating_sub(LIMIT);
                latest = latest.max(late);
                judged += 1;
                while_starting += usize::from(started.len() < SESSIONS);
            }
            _ => {}
        }
    }
    assert_eq!(judged, SESSIONS);
    assert!(while_starting > SESSIONS / 2, "only {while_starting} limits passed while others started");
    assert!(latest <= LATE, "a verdict was {latest} late");
}
