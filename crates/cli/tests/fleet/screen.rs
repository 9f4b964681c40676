//! `top --fleet` in a terminal.

#[path = "../top/pane.rs"]
#[expect(dead_code, reason = "the tests of `top` use the rest")]
mod pane;

use crate::harbor::Harbor;
use crate::kit::Project;
use dogwatch_core::lease::JobState;
use pane::Pane;

#[test]
fn top_shows_the_workers_and_the_runs_of_a_fleet_and_wakes_a_run() {
    let harbor = Harbor::with_waiting_run();
    let (here, line) = (Project::new(), harbor.join("operator").to_string());
    let pane = Pane::open(&here, &[("DOGWATCH_FLEET", &line), ("TOP_ARGS", "--fleet")]);
    pane.until("the worker and its run", |screen| {
        let run = |line: &str| line.contains("acme.one @") && line.contains("waiting");
        screen.contains("anna up for") && screen.contains("on anna") && screen.lines().any(run)
    });
    pane.keys(&["w"]);
    let result = harbor.until_state("one", JobState::Done).result.expect("a result");
    assert_eq!(result.outcome, "clean", "{}", harbor.logs());
    pane.keys(&["C-c"]);
    pane.assert_restored(0);
}
