//! `top --fleet` in a terminal.

#[path = "../top/pane.rs"]
#[expect(dead_code, reason = "the tests of `top` use the rest")]
mod pane;

use crate::harbor::{Harbor, id};
use crate::kit::Project;
use dogwatch_core::lease::JobState;
use pane::Pane;

#[test]
fn top_shows_the_workers_and_the_runs_of_a_fleet_and_wakes_a_run() {
    let mut harbor = Harbor::with(1, 60, 8);
    harbor.add_script("waits", "delay: 1h", "exit 0\n");
    harbor.start_worker("anna");
    let mut job = harbor.job("waits");
    job.iterations = Some(2);
    harbor.submit_job(&id("one"), &job);
    harbor.until_journal("one", "a wait", |text| text.contains("\"event\":\"wait_started\""));
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
