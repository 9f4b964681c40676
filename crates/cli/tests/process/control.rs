//! Inspects and steers a run from another process, over its socket while it is live and from its record afterwards.

use crate::kit::{Done, GRACES, Project, Running, all, kinds, names, one};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

fn id(run: &mut Running) -> String {
    run.wait_for("run_started")["run"].as_str().expect("a run has an id").to_owned()
}

fn status(project: &Project) -> Value {
    let done = project.call(&["status", "--json"]);
    done.assert_code(0);
    serde_json::from_slice(&done.stdout).expect("a status document")
}

fn ask(project: &Project, args: &[&str]) -> String {
    project.call(args).assert_code(0).text()
}

/// Starts a loop and waits until it is in its first wait, which lasts an hour.
fn waiting(args: &[&str]) -> (Project, Running, String) {
    let project = Project::acting("say hi");
    let mut run = project.start_run(&[&["--delay", "1h"], args].concat());
    let id = id(&mut run);
    run.wait_for("wait_started");
    (project, run, id)
}

#[test]
fn a_working_run_is_listed_and_its_status_shows_the_agent() {
    let project = Project::acting("say hi; ready there; await gate");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut run = project.start_run(&["-n", "1"]);
    let id = id(&mut run);
    let pid = there.pid();
    run.wait_for("session_started");
    let listed = ask(&project, &["ps"]);
    assert!(listed.contains(&id) && listed.contains("working"), "{listed}");
    let text = ask(&project, &["status"]);
    assert!(text.contains(&id) && text.contains(&format!("pid {pid}")), "{text}");
    let status = status(&project);
    assert_eq!((&status["state"], &status["live"]), (&json!("working"), &json!(true)));
    let doing = &status["nodes"][0]["doing"];
    assert_eq!((&doing["what"], &doing["pid"]), (&json!("working"), &json!(pid)));
    assert!(doing["working_s"].is_number(), "{doing}");
    gate.open();
    run.finish().assert_code(0);
    assert!(!ask(&project, &["ps"]).contains(&id), "only live runs are listed");
}

#[test]
fn a_pending_stop_is_shown_and_a_resume_withdraws_it() {
    let project = Project::acting("say hi; ready there; await gate");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut run = project.start_run(&["-n", "1"]);
    let id = id(&mut run);
    there.pid();
    run.wait_for("session_started");
    let idle = ask(&project, &["resume"]);
    assert!(idle.contains("neither paused nor about to stop"), "{idle}");
    let stopping = ask(&project, &["stop"]);
    assert_eq!(stopping, format!("run {id} will stop after the current iteration\n"));
    run.wait_for_kind("stopping");
    assert_eq!(status(&project)["stopping"], json!(true));
    let listed = ask(&project, &["ps"]);
    assert!(listed.contains("working; stopping after the current iteration"), "{listed}");
    let withdrawn = ask(&project, &["resume"]);
    assert!(withdrawn.contains(&format!("run {id} will not stop")), "{withdrawn}");
    run.wait_for_kind("stop_withdrawn");
    assert_eq!(status(&project)["stopping"], json!(false));
    gate.open();
    let done = run.finish();
    done.assert_code(0);
    assert_eq!(one(&done.events(), "run_ended")["outcome"], json!("clean"));
}

#[test]
fn the_live_run_comes_before_a_newer_one_that_has_ended() {
    let (project, run, id) = waiting(&[]);
    std::fs::create_dir(project.path("other")).expect("a directory");
    project.file("other/RALPH.md", "---\nagent: cat\n---\nOnce.\n");
    project.call(&["run", "other", "-n", "1"]).assert_code(0);
    assert!(ask(&project, &["status"]).contains(&id));
    assert!(ask(&project, &["events"]).contains(&id));
    let listed = ask(&project, &[]);
    let tail = id.rsplit('-').next().expect("a tail");
    assert!(listed.lines().nth(1).expect("a run").contains(tail), "{listed}");
    run.kill();
}

#[test]
fn a_waiting_run_shows_the_reason_and_the_end_of_the_wait() {
    let (project, run, id) = waiting(&[]);
    let status = status(&project);
    assert_eq!((&status["state"], &status["run"]), (&json!("waiting"), &json!(id)));
    let doing = &status["nodes"][0]["doing"];
    assert_eq!((&doing["why"], &doing["delay_s"]), (&json!("delay"), &json!(3600)));
    assert!(doing["left_s"].as_f64().is_some_and(|left| left > 3500.0 && left <= 3600.0), "{doing}");
    let text = ask(&project, &["status", &id]);
    assert!(text.contains("waiting (delay)"), "{text}");
    let seen = ask(&project, &["ps", "--json"]);
    let seen: Value = serde_json::from_str(&seen).expect("one status a line");
    assert_eq!(seen["state"], "waiting");
    run.signal(Signal::TERM);
    run.finish().assert_code(143);
}

#[test]
fn the_status_of_a_dead_run_comes_from_its_record() {
    let (project, run, id) = waiting(&[]);
    run.kill();
    project.wait_until_no_process_left();
    let status = status(&project);
    assert_eq!((&status["state"], &status["live"]), (&json!("lost"), &json!(false)));
    let doing = &status["nodes"][0]["doing"];
    assert_eq!(
        (&doing["why"], &doing["left_s"]),
        (&json!("delay"), &Value::Null),
        "the ages of a dead run do not grow"
    );
    assert!(!ask(&project, &["ps"]).contains(&id));
    let all = ask(&project, &["ps", "--all"]);
    assert!(all.contains(&id) && all.contains("dogwatch resume"), "{all}");
    assert!(ask(&project, &["status"]).contains("dogwatch resume"));
    for args in [&["stop"][..], &["pause"], &["wake"], &["tell", "hello"]] {
        let done = project.call(args);
        done.assert_code(2);
        let help = format!("help: continue the run with `dogwatch resume {id}`");
        assert!(done.stderr.contains(&help), "{args:?}: {}", done.stderr);
    }
    let report = ask(&project, &["report"]);
    let lost = report.lines().find(|line| line.starts_with("**Needs attention**")).unwrap_or_default();
    assert!(lost.contains("the supervisor died; continue the run with `dogwatch resume"), "{report}");
}

#[test]
fn an_ended_run_shows_its_outcome_and_refuses_requests() {
    let project = Project::acting("say hi");
    let id = project.run(&["-n", "1"]).events()[0]["run"].as_str().expect("an id").to_owned();
    let status = status(&project);
    assert_eq!((&status["state"], &status["live"]), (&json!("ended"), &json!(false)));
    assert_eq!((&status["ended"]["outcome"], &status["ended"]["exit_code"]), (&json!("clean"), &json!(0)));
    assert!(ask(&project, &["status", &id]).contains("ended: clean, unverified"));
    assert!(ask(&project, &["ps", "-a"]).contains("ended: clean, unverified"));
    for args in [&["stop"][..], &["pause"], &["resume"], &["wake"], &["tell", "hello"]] {
        let done = project.call(args);
        done.assert_code(2);
        assert!(done.stderr.contains(&id) && done.stderr.contains("help: "), "{args:?}: {}", done.stderr);
    }
    assert_eq!(one(&project.journal(), "run_ended")["outcome"], "clean", "and nothing was written");
}

#[test]
fn a_pause_during_a_wait_holds_and_resume_continues_the_wait() {
    let (project, mut run, id) = waiting(&["-n", "2"]);
    ask(&project, &["pause"]);
    assert_eq!(run.wait_for("wait_started")["why"], "paused");
    let paused = status(&project);
    assert_eq!((&paused["state"], &paused["paused"]), (&json!("paused"), &json!(true)));
    assert!(ask(&project, &["ps"]).contains("paused"));
    ask(&project, &["wake"]);
    run.wait_for("wake_remembered");
    assert_eq!(status(&project)["state"], "paused", "a wake does not lift a pause");
    assert!(ask(&project, &["resume", &id]).contains("resumed run"));
    let done = run.finish();
    done.assert_code(0);
    let events = done.events();
    assert_eq!((all(&events, "paused").len(), all(&events, "unpaused").len()), (1, 1));
}

#[test]
fn a_pause_during_a_session_lets_it_finish_and_starts_nothing_until_resumed() {
    let project = Project::acting("counter ../count; on 1 { ready there; await gate }");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut run = project.start_run(&["-n", "2"]);
    there.pid();
    ask(&project, &["pause"]);
    ask(&project, &["pause"]);
    run.wait_for("paused");
    assert_eq!(status(&project)["state"], "working", "the session may finish");
    gate.open();
    assert_eq!(run.wait_for("wait_started")["why"], "paused");
    ask(&project, &["resume"]);
    let done = run.finish();
    assert_eq!(done.assert_code(0).end()["completed"], 2);
    assert_eq!(done.count("paused"), 1, "a second pause changes nothing");
}

#[test]
fn stop_ends_a_wait_and_a_pause_at_once_and_lets_a_session_finish() {
    let (project, run, id) = waiting(&[]);
    assert_eq!(ask(&project, &["stop"]), format!("run {id} stops now; no iteration is running\n"));
    let end = run.finish().assert_code(0).end();
    assert_eq!((&end["outcome"], &end["reason"]), (&json!("stopped"), &json!("on request")));

    let (project, mut run, id) = waiting(&[]);
    let paused = ask(&project, &["pause"]);
    assert!(paused.starts_with(&format!("run {id} is paused; ")), "{paused}");
    run.wait_for("paused");
    ask(&project, &["stop"]);
    assert_eq!(run.finish().assert_code(0).end()["outcome"], "stopped");

    let project = Project::acting("ready there; await gate; say finished");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let run = project.start_run(&[]);
    there.pid();
    ask(&project, &["stop"]);
    gate.open();
    let end = run.finish().assert_code(0).end();
    assert_eq!((&end["outcome"], &end["completed"]), (&json!("stopped"), &json!(1)));
    project.assert_no_process_left();
}

#[test]
fn an_operator_message_is_in_the_next_prompt_once() {
    let (project, mut run, id) = waiting(&["-n", "3"]);
    ask(&project, &["tell", &id, "mind the <gap>: \u{1b}[31mred"]);
    ask(&project, &["tell", "and the second"]);
    run.wait_until("the second", |e| e["event"] == "told" && e["text"] == "and the second");
    assert_eq!(status(&project)["told"].as_array().map(Vec::len), Some(2));
    run.signal(Signal::USR1);
    run.wait_for("session_started");
    run.wait_for("wait_started");
    assert_eq!(status(&project)["told"], json!([]));
    ask(&project, &["wake"]);
    run.finish().assert_code(0);
    let prompt = project.prompt(2);
    assert!(prompt.contains("mind the <gap>: red") && prompt.contains("and the second"), "{prompt}");
    for other in [1, 3] {
        assert!(!project.prompt(other).contains("mind the"), "prompt {other}");
    }
}

#[test]
fn an_empty_message_is_exit_code_2() {
    let (project, run, id) = waiting(&[]);
    for args in [&["tell", ""][..], &["tell", id.as_str(), "  \n"], &["tell"]] {
        let done = project.call(args);
        done.assert_code(2);
        assert!(!done.stderr.is_empty());
    }
    run.signal(Signal::TERM);
    assert_eq!(run.finish().count("told"), 0);
}

#[test]
fn events_prints_the_record_and_follows_it_with_f_until_the_run_ends() {
    let (project, run, _) = waiting(&["-n", "2"]);
    let so_far = project.call(&["events"]).assert_code(0).events();
    assert_eq!(names(&so_far).last(), Some(&"wait_started"));
    let mut following = project.start(&["events", "-f"]);
    following.wait_for("wait_started");
    run.signal(Signal::USR1);
    let followed = following.finish();
    let done = run.finish();
    done.assert_code(0);
    assert_eq!(followed.assert_code(0).events(), done.events(), "every event once, in order");
    let late = project.call(&["events", "-f", "--after", "3"]);
    assert_eq!(late.assert_code(0).events(), done.events()[3..].to_vec(), "an ended run is not waited for");
}

#[test]
fn events_of_a_node_that_does_not_exist_are_an_error() {
    let (project, run, _) = waiting(&[]);
    assert!(!project.call(&["events", "--node", "loop"]).assert_code(0).events().is_empty());
    for args in [&["events", "--node", "lop"][..], &["events", "-f", "--node", "lop"]] {
        let none = project.call(args);
        none.assert_code(2);
        assert!(none.stderr.contains("has no node `lop`"), "{}", none.stderr);
    }
    run.kill();
}

#[test]
fn following_the_events_of_a_killed_run_ends_with_an_error() {
    let (project, run, _) = waiting(&[]);
    let mut following = project.start(&["events", "-f"]);
    following.wait_for("wait_started");
    run.kill();
    let followed = following.finish();
    assert_ne!(followed.code, Some(0), "the run did not end: it was lost");
    assert!(!followed.stderr.is_empty());
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).expect("it exists").permissions().mode() & 0o777
}

// promise: 14
#[test]
fn the_socket_of_a_run_is_its_owners_alone_and_goes_with_it() {
    let (project, run, _) = waiting(&[]);
    let dir = project.run_dir();
    assert_eq!((mode(&dir.join("socket")), mode(&dir)), (0o600, 0o700));
    run.signal(Signal::TERM);
    run.finish().assert_code(143);
    assert!(!dir.join("socket").exists());
}

#[test]
fn a_run_whose_path_is_too_long_for_a_socket_can_be_reached() {
    let project = Project::acting("say hi");
    let long = format!("{}/state", ["a-long-name-for-a-directory"; 8].join("/"));
    std::fs::create_dir_all(project.path(&long)).expect("directories");
    let mut run = project.start_run(&["--delay", "1h", "-n", "2", "--state-dir", &long]);
    let id = id(&mut run);
    run.wait_for("wait_started");
    let text = ask(&project, &["status", "--json", "--state-dir", &long]);
    assert_eq!(serde_json::from_str::<Value>(&text).expect("a status")["state"], "waiting");
    ask(&project, &["wake", &id]);
    let done = run.finish();
    done.assert_code(0);
    assert_eq!(kinds(&done.events(), "no_socket").len(), 0);
    assert_eq!(one(&done.events(), "wait_ended")["by"], "api");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a directory");
    std::fs::copy(from.join("events.jsonl"), to.join("events.jsonl")).expect("copies");
}

#[test]
fn a_unique_end_of_an_id_selects_a_run() {
    let project = Project::acting("say hi");
    let none = project.call(&["status"]);
    none.assert_code(2);
    assert!(none.stderr.contains("help: "), "{}", none.stderr);
    let done = project.run(&["-n", "1"]);
    let id = done.events()[0]["run"].as_str().expect("an id").to_owned();
    let tail = &id[id.len() - 4..];
    assert!(ask(&project, &["status", tail]).contains(&id));
    let dir = project.run_dir();
    copy(&dir, &dir.with_file_name(format!("20200101-000000-{tail}")));
    let both: Done = project.call(&["status", tail]);
    both.assert_code(2);
    assert!(both.stderr.contains("2 run ids end in"), "{}", both.stderr);
    assert!(ask(&project, &["status", &id]).contains(&id));
    for wrong in ["20200101-000000-zzzz", "nonsense", ""] {
        for command in ["status", "wake", "stop", "pause", "resume", "events"] {
            let done = project.call(&[command, wrong]);
            done.assert_code(2);
            assert!(done.stderr.contains("error: no run or loop `"), "{command} {wrong}: {}", done.stderr);
        }
    }
}

#[test]
fn a_loop_selects_its_live_run_or_else_its_newest_one() {
    let (project, live, id) = waiting(&[]);
    std::fs::create_dir(project.path("other")).expect("a directory");
    project.file("other/RALPH.md", "---\nagent: cat\n---\nOnce.\n");
    let [first, second] = [(); 2].map(|()| {
        let done = project.call(&["run", "other", "-n", "1", "--json"]);
        done.events()[0]["run"].as_str().expect("an id").to_owned()
    });
    for wanted in ["other", "other/", "./other/RALPH.md"] {
        let shown = ask(&project, &["status", wanted]);
        assert!(shown.contains(&second) && !shown.contains(&first), "{wanted}: {shown}");
    }
    // A copy of the record looks like a newer run of the same loop.
    let dir = project.path(".dogwatch/runs");
    copy(&dir.join(&id), &dir.join("20990101-000000-zzzz"));
    assert!(ask(&project, &["status", "loop"]).contains(&id));
    ask(&project, &["wake", "loop"]);
    std::fs::create_dir(project.path("third")).expect("a directory");
    let none = project.call(&["status", "third"]);
    none.assert_code(2);
    assert!(none.stderr.contains("no run or loop `third`"), "{}", none.stderr);
    live.kill();
}

#[test]
fn the_status_of_a_stopped_run_comes_from_its_record_quickly() {
    let (project, run, id) = waiting(&[]);
    run.signal(Signal::STOP);
    let began = Instant::now();
    let status = status(&project);
    assert!(began.elapsed() < Duration::from_secs(1), "it is not even asked: {:?}", began.elapsed());
    assert_eq!((&status["state"], &status["live"]), (&json!("waiting"), &json!(true)));
    assert!(status["nodes"][0]["doing"]["left_s"].is_number(), "its process lives, so time passes");
    let shown = project.call(&["status"]);
    shown.assert_code(0);
    let why = format!("run {id} is suspended: its process {} is stopped", run.pid());
    assert!(shown.stderr.contains(&why), "{}", shown.stderr);
    for args in [&["stop"][..], &["pause"], &["wake"], &["tell", &id, "hello"]] {
        let refused = project.call(args);
        refused.assert_code(2);
        assert!(refused.stderr.contains(&why) && refused.stderr.contains("kill -CONT"), "{}", refused.stderr);
    }
    let began = Instant::now();
    let continued = format!("`kill -CONT {}`", run.pid());
    let listed = ask(&project, &["ps"]);
    assert!(listed.contains(&id) && listed.contains(&continued), "{listed}");
    let listed = ask(&project, &[]);
    assert!(listed.contains("suspended; continue with") && listed.contains(&continued), "{listed}");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    run.signal(Signal::CONT);
    ask(&project, &["stop"]);
    run.finish().assert_code(0);
}

#[test]
fn the_orchestrators_document_is_the_same_from_the_run_and_from_its_record() {
    let front = format!("idle: {{delay: 30s}}\n{GRACES}");
    let project = Project::acting_with(&front, "marker idle no_pending_tasks");
    let mut run = project.start_run(&[]);
    run.wait_for("wait_started");
    let document = |project: &Project| -> Value {
        serde_json::from_str(&ask(project, &["status", "--orchestrator"])).expect("a document")
    };
    let mut live = document(&project);
    assert_eq!((&live["running"], &live["consecutiveIdleTicks"]), (&json!(true), &json!(1)));
    assert_eq!((&live["currentTickInterval"], &live["tickCount"]), (&json!(30000), &json!(1)));
    run.kill();
    project.wait_until_no_process_left();
    live["running"] = json!(false);
    assert_eq!(document(&project), live);
}

#[test]
fn a_request_without_a_run_id_goes_to_the_live_run() {
    let (project, run, id) = waiting(&[]);
    std::fs::create_dir(project.path("other")).expect("a directory");
    project.file("other/RALPH.md", "---\nagent: \"true\"\n---\nGo on.\n");
    project.call(&["run", "other", "-n", "1"]).assert_code(0);
    assert!(ask(&project, &["status"]).contains(&id), "the status is that of the live run");
    assert!(ask(&project, &["stop"]).contains(&id));
    run.finish().assert_code(0);
}

#[test]
fn a_wake_says_that_the_run_is_paused_and_a_stop_names_other_live_runs() {
    let project = Project::acting_with("delay: 10m", "say worked");
    let mut first = project.start_run(&[]);
    first.wait_for("wait_started");
    assert!(project.call(&["pause"]).assert_code(0).stderr.is_empty());
    first.wait_for("paused");
    let woken = ask(&project, &["wake"]);
    assert!(woken.contains("is paused; it will not wait after `dogwatch resume "), "{woken}");

    std::fs::create_dir(project.path("other")).expect("a directory");
    project.file("other/RALPH.md", "---\nagent: cat\ndelay: 10m\n---\nGo.\n");
    let mut second = project.start(&["run", "other", "--json"]);
    second.wait_for("wait_started");
    let stopped = project.call(&["stop"]);
    stopped.assert_code(0);
    assert!(
        stopped.stderr.starts_with("note: not the only live run of this project: "),
        "{}",
        stopped.stderr
    );
    second.finish().assert_code(0);
    let stopped = project.call(&["stop"]);
    assert!(stopped.assert_code(0).stderr.is_empty());
    first.finish().assert_code(0);
}
