//! Limits that follow the recorded sessions: labels of stops, `tune`, imports and `profile: learned`.

use crate::kit::{Project, all, journal, one};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// An agent that says something and then falls silent, which is soon too long.
const STUCK: &str =
    "max_iterations: 1\nrecovery: {budget: 0}\nwatchdog: {idle: 300ms, tool: 1ms, grace: 200ms, leak: 300ms}";

fn stuck() -> Project {
    let project = Project::acting_with(STUCK, "say hi; hang");
    project.run(&[]);
    assert_eq!(one(&project.journal(), "hard_stop")["reason"], "NO_OUTPUT_DEADLINE");
    project
}

fn tuned(project: &Project, args: &[&str]) -> Value {
    let done = project.call(&[&["tune", "--json"], args].concat());
    done.assert_code(0);
    serde_json::from_slice(&done.stdout).expect("a document")
}

fn id(project: &Project) -> String {
    one(&project.journal(), "run_started")["run"].as_str().expect("an id").to_owned()
}

/// Writes the index of sessions with this many good sessions of a plain agent in the project.
fn remember(project: &Project, sessions: usize, silence_s: u64) {
    let place = project.path("").canonicalize().expect("the project is there");
    let place = place.to_str().expect("UTF-8").trim_end_matches('/');
    let session = json!({"agent": "plain", "place": place, "kind": "good", "needs": {"silence_s": silence_s, "session_s": 1000}});
    let entry = json!({"bytes": 1, "modified_s": 1, "sessions": vec![session; sessions]});
    let index = json!({"v": 1, "files": {"/earlier/events.jsonl": entry}});
    let dir = project.outside("state").join("dogwatch");
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(dir.join("sessions.json"), index.to_string()).expect("writes");
}

#[test]
fn tune_reports_how_many_sessions_are_missing() {
    let project = Project::acting("say hi");
    let done = project.call(&["tune"]);
    done.assert_code(2);
    assert!(done.stderr.contains("no recorded sessions to learn from"), "{}", done.stderr);
    assert!(done.stderr.contains("--import"), "{}", done.stderr);
    project.run(&["-n", "5"]).assert_code(0);
    let text = project.call(&["tune"]).assert_code(0).text();
    assert!(text.contains("plain: 5 good sessions on this machine, 5 in this project"), "{text}");
    assert!(text.contains("watchdog.idle  11m, keep: 5 of 30 good sessions needed"), "{text}");
    assert!(text.contains("Nothing to change."), "{text}");
    let tuned = tuned(&project, &[]);
    assert_eq!((&tuned["runs"], &tuned["good"], &tuned["stuck"]), (&json!(1), &json!(5), &json!(0)));
    assert_eq!(tuned["agents"][0]["limits"][0]["limit_s"], Value::Null);
}

#[test]
fn a_label_is_appended_to_the_record_of_an_ended_run_and_feeds_tune() {
    let project = stuck();
    let run = id(&project);
    assert_eq!(
        (tuned(&project, &[])["stuck"].clone(), tuned(&project, &[])["wrong"].clone()),
        (json!(1), json!(0))
    );
    let before = project.journal();
    let text = project.call(&["verdict", &run, "1", "--wrong"]).assert_code(0).text();
    assert_eq!(text, format!("labeled the stop of iteration 1 of run {run}: wrong\n"));
    let after = project.journal();
    let label = &after[before.len()];
    assert_eq!(
        (&label["event"], &label["iteration"], &label["label"]),
        (&json!("verdict_labeled"), &json!(1), &json!("wrong"))
    );
    assert_eq!(label["seq"].as_u64(), before.last().and_then(|last| Some(last["seq"].as_u64()? + 1)));
    assert_eq!(
        (tuned(&project, &[])["stuck"].clone(), tuned(&project, &[])["wrong"].clone()),
        (json!(0), json!(1))
    );
    // The chain is whole, and the run is as it was.
    let report = project.call(&["report"]).assert_code(0).text();
    assert!(!report.contains("was changed"), "{report}");
    assert!(report.contains("the stop was labeled wrong"), "{report}");
    let status: Value =
        serde_json::from_slice(&project.call(&["status", "--json"]).stdout).expect("a document");
    assert_eq!(status["ended"]["outcome"], one(&before, "run_ended")["outcome"], "{status}");
    let replay = project.call(&["replay", &run]);
    replay.assert_code(0);
    assert!(replay.stderr.contains("the replayed verdicts match the record"), "{}", replay.stderr);
    // The newest label counts.
    project.call(&["verdict", &run, "1", "--right"]).assert_code(0);
    assert_eq!(
        (tuned(&project, &[])["stuck"].clone(), tuned(&project, &[])["wrong"].clone()),
        (json!(1), json!(0))
    );
}

#[test]
fn only_a_stop_can_be_labeled_and_only_with_one_label() {
    let project = stuck();
    let run = id(&project);
    let before = project.journal().len();
    let done = project.call(&["verdict", &run, "7", "--wrong"]);
    done.assert_code(2);
    assert!(done.stderr.contains("the watchdog did not stop iteration 7"), "{}", done.stderr);
    assert!(done.stderr.contains("it stopped the iterations 1 ("), "{}", done.stderr);
    for flags in [&[][..], &["--wrong", "--right"]] {
        project.call(&[&["verdict", &run, "1"], flags].concat()).assert_code(2);
    }
    project.call(&["verdict", "nosuchrun", "1", "--wrong"]).assert_code(2);
    assert_eq!(project.journal().len(), before);
}

#[test]
fn a_torn_record_is_repaired_before_a_label_is_appended() {
    let project = stuck();
    let run = id(&project);
    let path = project.run_dir().join("events.jsonl");
    let mut text = std::fs::read(&path).expect("reads");
    text.extend(b"{\"v\":1,\"seq\":99,");
    std::fs::write(&path, text).expect("writes");
    project.call(&["verdict", &run, "1", "--wrong"]).assert_code(0);
    assert_eq!(one(&journal(&project.run_dir()), "verdict_labeled")["label"], "wrong");
    assert!(!project.call(&["report"]).text().contains("was changed"));
}

#[test]
fn a_stop_of_a_live_run_is_labeled_by_its_own_supervisor() {
    let front =
        "delay: 1h\nrecovery: {budget: 0}\nwatchdog: {idle: 300ms, tool: 1ms, grace: 200ms, leak: 300ms}";
    let project = Project::acting_with(front, "say hi; hang");
    let mut run = project.start_run(&["-n", "9"]);
    run.wait_for("hard_stop");
    run.wait_for("wait_started");
    project.call(&["verdict", &id(&project), "1", "--wrong"]).assert_code(0);
    let label = run.wait_for("verdict_labeled");
    assert_eq!((&label["iteration"], &label["label"]), (&json!(1), &json!("wrong")));
    project.call(&["stop"]).assert_code(0);
    let done = run.finish();
    assert_eq!(all(&done.events(), "verdict_labeled").len(), 1);
}

#[test]
fn a_learned_profile_sets_the_limits_that_good_sessions_need() {
    let front = "profile: learned\nwatchdog: {grace: 200ms, leak: 300ms}";
    let project = Project::acting_with(front, "say hi");
    remember(&project, 29, 900);
    let run = |args: &[&str]| {
        project.run(&[&["-n", "1"], args].concat()).assert_code(0);
        let events = project.journal();
        let settings = one(&events, "run_started")["settings"]["nodes"][0].clone();
        let notices = crate::kit::kinds(&events, "limit_history").len();
        (settings["watchdog"]["idle"].clone(), settings["learned"].clone(), notices)
    };
    let (idle, learned, notices) = run(&[]);
    assert_eq!((idle, learned, notices), (json!(660), json!([]), 1), "the limits of the standard profile");
    // This run was the thirtieth good session.
    let (idle, learned, notices) = run(&[]);
    assert_eq!((idle, notices), (json!(1080), 0));
    assert_eq!((&learned[0]["key"], &learned[0]["now_s"]), (&json!("watchdog.idle"), &json!(660)));
    assert_eq!((&learned[0]["sessions"], &learned[0]["longest_s"]), (&json!(30), &json!(900)));
    let text = project.call(&["check", "--explain", "loop"]).assert_code(0).text();
    assert!(text.contains("learned (31 good sessions, 11m without them)"), "{text}");
    // A limit that the user sets is kept.
    let (idle, learned, _) = run(&["--set", "watchdog.idle=7m"]);
    assert_eq!((idle, learned), (json!(420), json!([])));
    let (idle, ..) = run(&["--profile", "quick"]);
    assert_eq!(idle, json!(300));
}

#[test]
fn a_damaged_history_means_the_standard_limits_and_a_notice() {
    let project = Project::acting_with("profile: learned\nwatchdog: {grace: 200ms, leak: 300ms}", "say hi");
    remember(&project, 40, 900);
    let index = project.outside("state").join("dogwatch/sessions.json");
    let text = std::fs::read_to_string(&index).expect("reads");
    std::fs::write(&index, &text[..text.len() / 2]).expect("writes");
    project.run(&["-n", "1"]).assert_code(0);
    let events = project.journal();
    assert_eq!(one(&events, "run_started")["settings"]["nodes"][0]["watchdog"]["idle"], json!(660));
    let notices = crate::kit::kinds(&events, "limit_history");
    assert!(notices[0]["message"].as_str().is_some_and(|text| text.contains("built again")), "{notices:?}");
}

#[test]
fn an_import_reads_the_transcripts_on_the_machine_and_lists_them() {
    let project = Project::acting("say hi");
    let none = project.call(&["tune", "--import"]);
    none.assert_code(2);
    let place = project.path("").canonicalize().expect("is there").display().to_string();
    let place = place.trim_end_matches('/');
    let dir = project.outside("home").join(".claude/projects/app");
    std::fs::create_dir_all(&dir).expect("a directory");
    let mut lines = String::new();
    for turn in 0..40 {
        let at = |s: u64| format!("2026-01-05T10:{turn:02}:{s:02}.000Z");
        let user = json!({"type": "user", "sessionId": "s", "cwd": place, "timestamp": at(0), "message": {"role": "user", "content": "go"}});
        let answer = json!({"type": "assistant", "sessionId": "s", "cwd": place, "timestamp": at(30), "message": {"role": "assistant", "stop_reason": "end_turn", "content": [{"type": "text", "text": "done"}]}});
        lines += &format!("{user}\n{answer}\n");
    }
    std::fs::write(dir.join("s.jsonl"), lines).expect("writes");
    std::fs::write(dir.join("garbage.jsonl"), "nothing\n").expect("writes");
    let text = project.call(&["tune", "--import"]).assert_code(0).text();
    assert!(text.contains("Imported 2 new of 2 transcripts in "), "{text}");
    assert!(text.contains(": 40 turns, 40 of them good; 1 other file not read\n"), "{text}");
    assert!(text.contains("claude: 40 good sessions on this machine, 40 in this project"), "{text}");
    assert!(
        text.contains("watchdog.idle  8m, keep: 4m would do, but 40 of 300 good sessions needed"),
        "{text}"
    );
    let again = project.call(&["tune", "--import"]).assert_code(0).text();
    assert!(again.contains("Imported 0 new of 2 transcripts"), "{again}");
}

#[test]
fn learned_limits_are_judged_on_turns_that_they_were_not_learned_from() {
    let project = Project::new();
    std::fs::create_dir_all(project.path("turns")).expect("a directory");
    let mut labels = "file\tagent\ttruth\tsource\n".to_owned();
    for n in 0..602u64 {
        let (name, silence) = (format!("{n:05}.jsonl"), 10 + n % 50);
        let silence = if n == 600 { 300 } else { silence } * 1000;
        let text = format!(
            "{{\"t_ms\":100,\"input\":\"keepalive\"}}\n{{\"t_ms\":{silence},\"input\":\"message\"}}\n{{\"t_ms\":{silence},\"input\":\"exited\",\"code\":0}}\n"
        );
        project.file(&format!("turns/{name}"), &text);
        let _ = writeln!(labels, "{name}\tclaude\t{}\tapp", if n == 601 { "hang" } else { "good" });
    }
    project.file("labels.tsv", &labels);
    let done = project.call(&["tune", "--evaluate", ".", "--json"]);
    done.assert_code(0);
    let figures: Value = serde_json::from_slice(&done.stdout).expect("a document");
    assert_eq!((figures["trained"].as_u64(), figures["judged"].as_u64()), (Some(300), Some(301)));
    let learned = &figures["learned"];
    // The turn that was silent for five minutes is stopped at four, and only that one.
    assert_eq!(
        (learned["false_stops"].as_u64(), learned["mean_silence_s"].as_f64()),
        (Some(1), Some(240.0)),
        "{learned}"
    );
    assert_eq!(figures["standard"]["false_stops"].as_u64(), Some(0));
    let text = project.call(&["tune", "--evaluate", "."]).assert_code(0).text();
    assert!(text.contains("Learned from 300 good turns, judged 301 later ones"), "{text}");
    assert!(text.contains("learned stopped 00600.jsonl NO_OUTPUT_DEADLINE, silence limit 4m"), "{text}");
    let bad = project.call(&["tune", "--evaluate", "nowhere"]);
    bad.assert_code(2);
    assert!(bad.stderr.contains("cannot read nowhere/labels.tsv"), "{}", bad.stderr);
}
