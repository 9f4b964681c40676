//! Time in which dogwatch was stopped does not count. Nothing else is mistaken for such a stop.

use crate::kit::{Project, all};
use rustix::process::Signal;
use serde_json::Value;
use std::time::{Duration, Instant};

fn awake(event: &Value) -> u64 {
    event["awake_ms"].as_u64().expect("a number")
}

// promise: 12
#[test]
fn a_sigcont_without_a_stop_moves_no_ceiling() {
    let front = "watchdog: {session: 2s, grace: 200ms, leak: 300ms}";
    let project = Project::acting_with(front, "hang");
    let mut run = project.start_run(&["-n", "1"]);
    let started = run.wait_for("session_started");
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(250));
        run.signal(Signal::CONT);
    }
    let stopped = run.wait_for("hard_stop");
    let lasted = awake(&stopped) - awake(&started);
    assert!((2_000..3_000).contains(&lasted), "{lasted} ms");
    run.finish();
    project.assert_no_process_left();
}

#[test]
fn exactly_the_stopped_time_is_not_counted() {
    let front = "watchdog: {session: 4s, node: 4s, grace: 200ms, leak: 300ms}";
    let project = Project::acting_with(front, "hang");
    let mut run = project.start_run(&[]);
    let started = run.wait_for("session_started");
    // The stop must begin long after the last wake-up of dogwatch.
    std::thread::sleep(Duration::from_millis(1_400));
    let began = Instant::now();
    let at_least = run.stop_for(Duration::from_secs(1));
    let suspended = run.wait_for("suspended");
    let at_most = began.elapsed();
    let seconds = suspended["for_s"].as_f64().expect("seconds");
    let slack = 0.005;
    assert!(seconds + slack >= at_least.as_secs_f64(), "{seconds} {at_least:?}");
    assert!(seconds <= at_most.as_secs_f64() + slack, "{seconds} {at_most:?}");
    assert_eq!(suspended["unwatched"], true);
    let stopped = run.wait_for("hard_stop");
    let lasted = (awake(&stopped) - awake(&started)) as f64 / 1_000.0;
    assert!((seconds + 3.9..seconds + 5.0).contains(&lasted), "{lasted} s, {seconds} s of them stopped");
    let done = run.finish();
    assert_eq!(done.assert_code(3).end()["outcome"], "ceiling");
    project.assert_no_process_left();
}

#[test]
fn a_ceiling_of_the_node_ends_an_idle_wait() {
    let front = "idle: {delay: 20s}\nwatchdog: {node: 2s, grace: 200ms, leak: 300ms}";
    let project = Project::acting_with(front, "marker idle no_pending_tasks");
    let done = project.run(&[]);
    let end = done.assert_code(3).end();
    assert_eq!(end["outcome"], "ceiling");
    assert!(
        end["reason"].as_str().is_some_and(|r| r.starts_with("Node timeout: exceeded 2s limit (ran ")),
        "{end}"
    );
    assert_eq!((end["iterations"].as_u64(), end["failed"].as_u64()), (Some(1), Some(0)));
    let total = end["total_duration_s"].as_f64().expect("seconds");
    assert!((2.0..3.5).contains(&total), "{total}");
    assert_eq!(all(&done.events(), "iteration_started").len(), 1);
}
