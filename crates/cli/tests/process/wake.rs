//! Files, probes, signals and commands end an idle wait at once. Other waits continue.

use crate::kit::{GRACES, Project, Running, all, one};
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

/// Creates an idle loop with these lines of frontmatter.
fn idler(front: &str) -> Project {
    Project::acting_with(&format!("{front}\n{GRACES}"), "marker idle no_pending_tasks")
}

/// Starts an idle loop and waits until it is in its first wait, which lasts an hour.
fn waiting(wake_on: &str) -> (Project, Running) {
    let project = idler(&format!("idle: {{delay: 1h, max_delay: 1h}}\nwake_on: {wake_on}"));
    let mut run = project.start_run(&["-n", "2"]);
    run.wait_for("wait_started");
    (project, run)
}

/// Asserts that the run was woken by this, and by nothing else.
fn assert_woken_by(run: Running, by: &str) {
    let done = run.finish();
    done.assert_code(0);
    let events = done.events();
    assert_eq!(one(&events, "wait_ended")["by"], by);
    assert_eq!(all(&events, "iteration_started")[1]["cause"], "wake");
    assert_eq!(all(&events, "iteration_idle")[1]["consecutive"], 2, "a wake does not end the idle streak");
}

#[test]
fn a_new_file_in_new_nested_directories_wakes() {
    let (project, run) = waiting("{paths: ['inbox/**/*.md']}");
    std::fs::create_dir_all(project.path("inbox/a/b/c")).expect("directories");
    project.file("inbox/a/b/c/todo.md", "work");
    assert_woken_by(run, "path");
}

#[test]
fn a_wake_path_may_be_created_later() {
    let (project, run) = waiting("{paths: [later/deep/todo.md]}");
    std::fs::create_dir_all(project.path("later/deep")).expect("directories");
    project.file("later/deep/todo.md", "work");
    assert_woken_by(run, "path");
}

#[test]
fn an_ignored_file_another_file_and_our_own_state_do_not_wake() {
    let front = "idle: {delay: 300ms, backoff: 1}\nwake_on: {paths: ['**/*.md', '.dogwatch/**']}";
    let project = idler(front);
    project.file(".gitignore", "ignored.md\n");
    let mut run = project.start_run(&["-n", "3"]);
    run.wait_for("wait_started");
    project.file("ignored.md", "nothing");
    project.file("other.txt", "nothing");
    std::fs::write(project.path(".dogwatch/own.md"), "nothing").expect("writes");
    let done = run.finish();
    done.assert_code(0);
    let events = done.events();
    assert!(all(&events, "wait_ended").iter().all(|w| w["by"] == "timer"), "{events:?}");
    assert_eq!(all(&events, "wake_remembered").len(), 0);
}

#[test]
fn a_probe_that_finds_work_wakes() {
    let (project, run) = waiting("{probe: test -e go, every: 50ms}");
    project.file("go", "");
    assert_woken_by(run, "probe");
    project.assert_no_process_left();
}

#[test]
fn a_wake_kills_a_flooding_probe_with_its_children() {
    let project = idler(
        "idle: {delay: 1h, max_delay: 1h}\nwake_on: {probe: 'echo $$ > there; yes & exec yes', every: 20ms}",
    );
    let there = project.fifo("there");
    let mut run = project.start_run(&["-n", "2"]);
    run.wait_for("wait_started");
    there.pid();
    run.signal(Signal::USR1);
    let done = run.finish();
    done.assert_code(0);
    assert_eq!(one(&done.events(), "wait_ended")["by"], "signal");
    project.assert_no_process_left();
}

#[test]
fn usr1_ctrl_c_and_the_wake_command_end_an_idle_wait() {
    for (signal, by) in [(Some(Signal::USR1), "signal"), (Some(Signal::INT), "operator"), (None, "api")] {
        let (project, run) = waiting("{paths: [todo.md]}");
        match signal {
            Some(signal) => run.signal(signal),
            None => {
                let woken = project.call(&["wake"]);
                assert!(woken.assert_code(0).text().starts_with("woke run "), "{}", woken.text());
            }
        }
        assert_woken_by(run, by);
    }
}

#[test]
fn a_wake_during_a_session_is_remembered_for_the_wait_after_it() {
    let project = Project::acting_with(
        &format!("idle: {{delay: 1h, max_delay: 1h}}\n{GRACES}"),
        "counter ../count; on 1 { ready there; await gate }; marker idle no_pending_tasks",
    );
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut run = project.start_run(&["-n", "2"]);
    there.pid();
    project.call(&["wake"]).assert_code(0);
    project.call(&["wake"]).assert_code(0);
    run.wait_for("wake_remembered");
    gate.open();
    let done = run.finish();
    done.assert_code(0);
    let events = done.events();
    assert_eq!(one(&events, "wake_remembered")["by"], "api");
    assert_eq!(one(&events, "wait_ended")["by"], "api");
}

#[test]
fn a_file_created_during_a_session_ends_the_next_wait() {
    let project = Project::acting_with(
        &format!("idle: {{delay: 1h, max_delay: 1h}}\nwake_on: {{paths: [todo.md]}}\n{GRACES}"),
        "counter ../count; on 1 { ready there; await gate }; marker idle no_pending_tasks",
    );
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut run = project.start_run(&["-n", "2"]);
    there.pid();
    project.file("todo.md", "work");
    run.wait_for("wake_remembered");
    gate.open();
    let done = run.finish();
    assert_eq!(one(&done.events(), "wait_ended")["by"], "path");
    assert_eq!(done.assert_code(0).end()["idle"], json!(2));
}

#[test]
fn a_file_does_not_end_the_wait_after_a_failure() {
    let front = format!("wake_on: {{paths: [todo.md]}}\n{GRACES}");
    let project = Project::acting_with(&front, "counter ../count; on 1 { exit 1 }");
    let mut run = project.start_run(&["-n", "2"]);
    assert_eq!(run.wait_for("wait_started")["why"], "error");
    project.file("todo.md", "work");
    let done = run.finish();
    assert_eq!(one(&done.events(), "wait_ended")["by"], "timer");
}

#[test]
fn each_closed_file_starts_one_session() {
    const REPEATS: usize = 20;
    let project = idler(
        "idle: {delay: 1h, max_delay: 1h, stop_after: 1000}\nwake_on: {paths: ['inbox/**']}\nmax_iterations: 1000",
    );
    std::fs::create_dir(project.path("inbox")).expect("a directory");
    let mut run = project.start_run(&[]);
    for i in 0..REPEATS {
        run.wait_for("wait_started");
        project.file(&format!("inbox/{i}"), "work");
        // The benchmark measures how long this takes.
        run.wait_for("session_started");
    }
    run.wait_for("wait_started");
    run.signal(Signal::TERM);
    let done = run.finish();
    let events = done.assert_code(143).events();
    assert_eq!(all(&events, "session_started").len(), REPEATS + 1, "one session for each file");
    assert!(all(&events, "wait_ended").iter().take(REPEATS).all(|end| end["by"] == "path"));
}

#[test]
fn two_thousand_files_during_a_session_are_one_wake() {
    let project = Project::acting_with(
        &format!("idle: {{delay: 1h, max_delay: 1h}}\nwake_on: {{paths: ['inbox/**']}}\n{GRACES}"),
        "counter ../count; on 2 { ready there; await gate }; marker idle blocked",
    );
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut run = project.start_run(&[]);
    run.wait_for("wait_started");
    std::fs::create_dir(project.path("inbox")).expect("a directory");
    let write = |i| std::fs::write(project.path(&format!("inbox/{i}")), "work").expect("writes");
    write(0);
    there.pid();
    (1..2000).for_each(write);
    run.wait_for("wake_remembered");
    gate.open();
    run.wait_until("the third session", |e| e["event"] == "session_started" && e["iteration"] == 3);
    run.wait_for("wait_started");
    project.call(&["stop"]).assert_code(0);
    let done = run.finish();
    done.assert_code(0);
    // The last file events may be read after the third session has started, and then wake the run once more.
    let sessions = done.count("session_started");
    assert!((3..=6).contains(&sessions), "{sessions} sessions");
    assert_eq!(done.count("trouble"), 0);
}

#[test]
fn an_invalid_wake_glob_is_exit_code_2_and_starts_nothing() {
    for bad in ["src/[a", "!todo.md", "{a/b,c}"] {
        let project = idler(&format!("wake_on: {{paths: ['good.md', '{bad}']}}"));
        for command in [&["run", "loop", "--json"][..], &["check", "loop"]] {
            let done = project.call(command);
            done.assert_code(2);
            assert!(done.stderr.contains("loop/RALPH.md:3"), "{}", done.stderr);
            assert!(done.stderr.contains(&format!("`{bad}`")), "{}", done.stderr);
            assert!(done.stdout.is_empty());
        }
        assert!(!project.path(".dogwatch").exists(), "nothing was started");
    }
}

#[test]
fn a_diagnostic_about_a_wake_path_points_at_its_flag() {
    let project = idler("idle: {delay: 1h, max_delay: 1h}");
    let done = project.call(&["run", "loop", "--set", "wake_on.paths=[a"]);
    done.assert_code(2);
    assert!(done.stderr.contains("wake_on.paths"), "{}", done.stderr);
    assert!(!project.path(".dogwatch").exists());
}

#[test]
fn a_run_that_watches_after_its_idle_stop_has_no_keeper_and_wakes_on_a_file() {
    let front = "idle: {delay: 10ms, stop_after: 1, after_stop: watch}\nwake_on: {paths: [todo]}";
    let project = Project::acting_with(
        &format!("{front}\n{GRACES}"),
        "counter ../count; on 2 { say I work } else { marker idle no_pending_tasks }",
    );
    let mut run = project.start_run(&[]);
    run.wait_until("asleep", |e| e["event"] == "wait_started" && e["why"] == "asleep");
    let status: serde_json::Value =
        serde_json::from_slice(&project.call(&["status", "--json"]).stdout).expect("is JSON");
    assert_eq!(status["state"], "asleep");
    let until = Instant::now() + Duration::from_secs(10);
    while children(run.pid()) > 0 {
        assert!(Instant::now() < until, "a sleeping run has no keeper");
        std::thread::yield_now();
    }
    project.file("todo", "work");
    run.wait_until("woken", |e| e["event"] == "wait_ended" && e["by"] == "path");
    run.wait_for("iteration_completed");
    // The run works, idles and sleeps again. One Ctrl-C then ends it as the idle stop would have.
    run.wait_until("asleep", |e| e["event"] == "wait_started" && e["why"] == "asleep");
    run.signal(Signal::INT);
    let done = run.finish();
    let end = done.assert_code(0).end();
    assert_eq!(end["outcome"], "idle");
    assert_eq!(all(&done.events(), "run_slept").len(), 2);
    let kept = project.lines(".dogwatch/decisions.jsonl");
    let entry: serde_json::Value = serde_json::from_str(&kept[0]).expect("is JSON");
    assert_eq!(entry["topic"], "orchestrator_sleep");
    assert_eq!(entry["run"], one(&done.events(), "run_started")["run"]);
    assert!(entry["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{entry}");
    project.assert_no_process_left();
}

/// Returns how many children a process has.
fn children(pid: i32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process is alive").flatten();
    let of =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    tasks.map(of).map(|text| text.split_whitespace().count()).sum()
}
