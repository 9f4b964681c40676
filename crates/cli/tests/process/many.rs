//! One process watches many sessions and judges each at its own deadline.

use crate::kit::{Project, all};

/// The idle limit of each session. It is longer than the start of all sessions takes.
const IDLE_MS: u64 = 3_000;
const FULL_IDLE_MS: u64 = 15_000;
/// The requirements of the full test, which runs with `DOGWATCH_FULL`. In the short test a busy machine may delay a
/// verdict, but a verdict is never early.
const FULL: usize = 300;
const LATE_MS: u64 = 100;
const PEAK_KB: u64 = 64 * 1024;

fn graph(count: usize, idle_ms: u64) -> String {
    let nodes: String = (0..count).map(|n| format!("  - {{id: n{n}, prompt: Go on.}}\n")).collect();
    format!(
        "agent: sh -c 'echo begun; exec sleep 600'\nmax_parallel: {count}\nmax_iterations: 1\n\
         watchdog: {{idle: {idle_ms}ms, tool: 1ms, grace: 200ms, leak: 300ms}}\nnodes:\n{nodes}"
    )
}

/// Returns the peak memory of a process in kilobytes.
fn peak(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel reports the peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn many_silent_sessions_are_each_stopped_at_their_own_deadline() {
    let full = std::env::var_os("DOGWATCH_FULL").is_some();
    let (count, idle_ms) = if full { (FULL, FULL_IDLE_MS) } else { (12, IDLE_MS) };
    let project = Project::new();
    project.file("graph.yaml", &graph(count, idle_ms));
    let mut run = project.start(&["run", "graph.yaml", "--json"]);
    run.wait_for("hard_stop");
    let peak = peak(run.pid());
    run.finish();
    project.assert_no_process_left();

    let events = project.journal();
    let stops = all(&events, "hard_stop");
    assert_eq!(stops.len(), count);
    let late: Vec<u64> = stops
        .iter()
        .map(|stop| {
            assert_eq!(stop["reason"], "NO_OUTPUT_DEADLINE", "{stop}");
            let seen = all(&events, "observed").into_iter().filter(|e| e["node"] == stop["node"]);
            let last_output =
                seen.filter(|e| e["channel"] == "stdout").filter_map(|e| e["last_ms"].as_u64()).max();
            let limit = last_output.expect("the session printed a line") + idle_ms;
            let at = stop["awake_ms"].as_u64().expect("a moment");
            at.checked_sub(limit).expect("no session is stopped before its limit")
        })
        .collect();
    let latest = late.iter().max().copied().unwrap_or(0);
    println!("{count} sessions: the latest verdict {latest} ms after its limit, peak {peak} kB");
    if full {
        assert!(latest <= LATE_MS, "{late:?}");
        assert!(peak <= PEAK_KB, "{peak} kB");
    }
}
