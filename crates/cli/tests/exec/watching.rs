//! Which commands the watchdog stops, which it leaves alone, and what it records.

use super::{actor, command, kit, lines, shell};
use kit::{Project, Running, TIMEOUT, all, names, one};
use rustix::process::Signal;
use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

// promise: 12
#[test]
fn a_silent_command_is_ended_at_its_limit_with_124_and_a_reason() {
    let since = Instant::now();
    let done = shell(&["--idle", "300ms"], "echo hello; exec sleep 60");
    let lasted = since.elapsed();
    done.assert_code(124);
    assert_eq!(done.text(), "hello\n");
    assert!(
        done.stderr.starts_with("dogwatch exec: ended: Idle timeout: no progress for 0."),
        "{}",
        done.stderr
    );
    assert!(done.stderr.ends_with("s (limit 0.3s, 1 message)\n"), "{}", done.stderr);
    assert_eq!(done.stderr.lines().count(), 1);
    assert!(lasted >= Duration::from_millis(300) && lasted < Duration::from_secs(10), "{lasted:?}");
}

#[test]
fn the_reason_starts_on_a_new_line() {
    let done = shell(&["--idle", "200ms"], "printf 'half a line' >&2; exec sleep 60");
    done.assert_code(124);
    assert!(done.stderr.starts_with("half a line\ndogwatch exec: ended: Idle"), "{}", done.stderr);
}

#[test]
fn a_command_with_new_output_is_left_alone_until_its_ceiling() {
    let script = "i=0; while true; do i=$((i+1)); echo step $i; sleep 0.05; done";
    let done = shell(&["--idle", "600ms", "--session", "1500ms"], script);
    done.assert_code(124);
    assert!(done.stderr.starts_with("dogwatch exec: ended: Total timeout: exceeded 1.5s"), "{}", done.stderr);
}

#[test]
fn a_repeated_line_is_not_progress_on_either_stream() {
    for stream in ["", " >&2"] {
        let script = format!("while true; do echo $(date +%T) still waiting{stream}; sleep 0.02; done");
        let done = shell(&["--idle", "400ms", "--session", "20s"], &script);
        done.assert_code(124);
        assert!(done.stderr.contains("ended: Idle timeout"), "{}", done.stderr);
    }
}

#[test]
fn a_silent_but_busy_command_gets_the_time_that_effort_buys_and_no_more() {
    let since = Instant::now();
    let done = shell(&["--idle", "1s", "--set", "watchdog.tool=500ms"], "while :; do :; done");
    done.assert_code(124);
    assert!(since.elapsed() >= Duration::from_millis(1_500), "{:?}", since.elapsed());
    assert!(done.stderr.contains("ended: Idle timeout: no progress for "), "{}", done.stderr);
    let project = Project::new();
    let options = ["--idle", "1s", "--set", "watchdog.tool=1m"];
    Running::start(actor(&project, &options, "burn 1500ms")).finish().assert_code(0);
}

#[test]
fn changed_files_in_the_workspace_defer_the_idle_limit() {
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i > file; sleep 0.1; done";
    let without = shell(&["--idle", "500ms"], script);
    without.assert_code(124);
    let with = ["--idle", "500ms", "--workspace", "."];
    shell(&with, script).assert_code(0);
    // Neither the command's output nor dogwatch's event file counts as progress.
    let project = Project::new();
    let out = File::create(project.path("out")).expect("a file");
    let options = [&with[..], &["--json", "events"]].concat();
    let same = "while true; do echo the same; sleep 0.02; done";
    let status = command(&project, &options, &["sh", "-c", same]).stdout(out).status().expect("runs");
    assert_eq!(status.code(), Some(124));
}

#[test]
fn the_output_of_a_known_agent_is_interpreted_and_passed_on_unchanged() {
    let project = Project::new();
    let retry = "claude init; claude text I look.; repeat 200 { claude retry; sleep 20ms }";
    let options = ["--agent", "claude", "--idle", "500ms"];
    let done = Running::start(actor(&project, &options, retry)).finish();
    done.assert_code(124);
    assert!(done.text().lines().count() > 5 && done.events().len() > 5, "all of it is JSON still");
    let errors = "claude init; repeat 9 { claude tool Bash fail 'make' 'no rule' }; hang";
    // The end of a call may be read later than its start.
    let options = ["--agent", "claude", "--set", "watchdog.tool=1m"];
    let done = Running::start(actor(&project, &options, errors)).finish();
    done.assert_code(124);
    assert!(done.stderr.starts_with("dogwatch exec: ended: Loop detected: 5 errors"), "{}", done.stderr);
    project.assert_no_process_left();
}

#[test]
fn time_in_which_dogwatch_was_stopped_does_not_count() {
    let project = Project::new();
    let (ready, gate) = (project.fifo("ready"), project.gate("gate"));
    let script = "ready ready; sleep 4s; say awake; await gate";
    // The limit leaves a busy machine enough time to start the actor and to stop dogwatch.
    let running = Running::start(actor(&project, &["--idle", "3s", "--json", "events"], script));
    ready.pid();
    // The actor may be ready before dogwatch knows that it has started.
    let until = Instant::now() + TIMEOUT;
    while !project.read("events").contains("session_started") {
        assert!(Instant::now() < until, "no start is recorded");
        std::thread::yield_now();
    }
    running.wait_for_stop_clock();
    running.signal(Signal::STOP);
    // The actor opens the gate after it has slept for longer than the limit.
    gate.open();
    running.signal(Signal::CONT);
    running.finish().assert_code(0);
    let events = lines(&project.read("events"));
    assert!(!all(&events, "suspended").is_empty(), "{:?}", names(&events));
}

// promise: 12
#[test]
fn a_sigcont_without_a_stop_moves_no_ceiling() {
    let project = Project::new();
    let ready = project.fifo("ready");
    let options = ["--session", "2s", "--json", "events"];
    let running = Running::start(actor(&project, &options, "ready ready; hang"));
    ready.pid();
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(250));
        running.signal(Signal::CONT);
    }
    running.finish().assert_code(124);
    let events = lines(&project.read("events"));
    let awake = |name: &str| one(&events, name)["awake_ms"].as_u64().expect("a number");
    let lasted = awake("hard_stop") - awake("session_started");
    assert!((2_000..3_000).contains(&lasted), "{lasted} ms; {:?}", names(&events));
}

#[test]
fn exactly_the_stopped_time_is_not_counted() {
    let project = Project::new();
    let (ready, gate) = (project.fifo("ready"), project.gate("gate"));
    let running = Running::start(actor(&project, &["--json", "events"], "ready ready; await gate"));
    ready.pid();
    // The stop must begin long after the last wake-up of dogwatch.
    std::thread::sleep(Duration::from_millis(1_200));
    let began = Instant::now();
    let at_least = running.stop_for(Duration::from_millis(500));
    while !project.read("events").contains("suspended") {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", project.read("events"));
        std::thread::yield_now();
    }
    let at_most = began.elapsed();
    gate.open();
    running.finish().assert_code(0);
    let events = lines(&project.read("events"));
    let suspended = one(&events, "suspended");
    let seconds = suspended["for_s"].as_f64().expect("seconds");
    let slack = 0.005;
    assert!(seconds + slack >= at_least.as_secs_f64(), "{seconds} {at_least:?}");
    assert!(seconds <= at_most.as_secs_f64() + slack, "{seconds} {at_most:?}");
    assert_eq!(suspended["unwatched"], true);
}

#[test]
fn a_blocked_reader_blocks_the_command_but_not_the_watchdog() {
    let project = Project::new();
    let mut child = command(&project, &["--idle", "300ms"], &["yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let unread = child.stdout.take();
    let out = child.wait_with_output().expect("ends");
    assert_eq!(out.status.code(), Some(124));
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(stderr.starts_with("dogwatch exec: ended: Idle timeout"), "{stderr}");
    drop(unread);
}

// promise: 11
#[test]
fn the_record_explains_what_happened_and_why() {
    let project = Project::new();
    let script = "echo hello; exec sleep 60";
    // The samples at half the limit and at the limit are two, unless a busy machine takes the first one as late as the second.
    let options = ["--idle", "1s", "--json", "events"];
    for _ in 0..2 {
        let done = Running::start(command(&project, &options, &["sh", "-c", script])).finish();
        done.assert_code(124);
    }
    let events = lines(&project.read("events"));
    let (first, second) = events.split_at(events.len() / 2);
    assert_eq!(names(first), names(second), "the second is appended");
    let wanted =
        ["session_started", "observed", "fact", "fact", "hard_stop", "session_signalled", "session_ended"];
    assert_eq!(names(first), wanted);
    assert_eq!(
        first.iter().map(|event| event["seq"].as_u64()).collect::<Vec<_>>(),
        (1..=7).map(Some).collect::<Vec<_>>()
    );
    assert_eq!(one(first, "session_started")["argv"][0], "sh");
    assert_eq!(one(first, "observed")["channel"], "stdout");
    assert_eq!(one(first, "hard_stop")["reason"], "NO_OUTPUT_DEADLINE");
    assert_eq!(one(first, "hard_stop")["evidence_summary"].as_array().map(Vec::len), Some(4));
    let ended = one(first, "session_ended");
    assert_eq!((&ended["ended_by"], &ended["signal"]), (&"watchdog".into(), &15.into()));
    assert_eq!(ended["stdout_bytes"], 6);
}

#[test]
fn the_record_has_retries_and_an_unknown_output_format() {
    let project = Project::new();
    let retry = r#"{"type":"system","subtype":"api_retry","retry_delay_ms":500,"error_status":529}"#;
    let says = |text| {
        format!(r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#)
    };
    let unknown = (0..200).map(|n| format!(r#"{{"what":"line {n}"}}"#)).collect::<Vec<_>>();
    let known =
        [says("one"), retry.to_owned(), retry.to_owned(), says("two"), retry.to_owned(), says("three")];
    project.file("stream", &([&known[..], &unknown].concat().join("\n") + "\n"));
    let options = ["--agent", "claude", "--json", "events"];
    Running::start(command(&project, &options, &["cat", "stream"])).finish().assert_code(0);
    let events = lines(&project.read("events"));
    let retries = all(&events, "agent_retrying");
    assert_eq!(retries.len(), 2, "once until there is progress: {:?}", names(&events));
    assert_eq!((&retries[0]["status"], &retries[0]["delay_s"]), (&529.into(), &0.5.into()));
    assert_eq!(one(&events, "agent_drifted")["node"], "exec");
    let seq: Vec<_> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert!(seq.iter().copied().eq(1..=events.len() as u64), "{seq:?}");
}
