//! After `kill -9` at any point, `dogwatch resume` continues the same run and nothing is lost.

use crate::kit::{GRACES, Project, Running, all, kinds, names, one};
use dogwatch_core::time::moment::Wall;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

fn kill(project: &Project, run: Running) {
    assert_eq!(run.kill().signal, Some(9));
    project.wait_until_no_process_left();
}

/// Resumes the run and waits for its end. The journal must be complete, of one run, and without a gap.
fn resume(project: &Project) -> Vec<Value> {
    let done = project.start(&["resume", "--json"]).finish();
    done.assert_code(0);
    let journal = whole(project);
    let rest: Vec<Value> =
        after(&journal, "run_resumed").iter().filter(|e| e["event"] != "observed").cloned().collect();
    assert_eq!(done.events(), rest, "only new events are printed");
    journal
}

fn whole(project: &Project) -> Vec<Value> {
    let journal = project.journal();
    for (i, event) in journal.iter().enumerate() {
        assert_eq!(event["seq"], i + 1);
    }
    let run = &one(&journal, "run_started")["run"];
    assert!(all(&journal, "run_resumed").iter().all(|r| r["run"] == *run));
    project.assert_no_process_left();
    journal
}

fn after<'a>(events: &'a [Value], name: &str) -> &'a [Value] {
    let at = events.iter().position(|e| e["event"] == name).unwrap_or_else(|| panic!("no {name}"));
    &events[at..]
}

// promise: 2
#[test]
fn killed_in_a_session_its_orphans_go_first_and_the_iteration_counts_for_nothing() {
    let project = Project::acting(
        "counter ../count; on 1 { hold hold; orphan { ignore TERM; ready kid; hang }; ignore TERM; hang }",
    );
    let (hold, kid) = (project.fifo("hold"), project.fifo("kid"));
    let run = project.start_run(&["-n", "2"]);
    kid.pid();
    run.signal(Signal::KILL);
    let mut resumed = project.start(&["resume", "--json"]);
    resumed.wait_for("run_resumed");
    hold.assert_released();
    let done = resumed.finish();
    let end = done.assert_code(0).end();
    assert_eq!((&end["iterations"], &end["completed"]), (&json!(2), &json!(2)));
    run.finish();
    let journal = whole(&project);
    let lost = one(&journal, "iteration_interrupted");
    assert_eq!((&lost["iteration"], &lost["by"]), (&json!(1), &json!("supervisor_lost")));
    // The keeper noted when the supervisor was lost, so the session counts until then.
    let wall = |text: &Value| Wall::from_rfc3339(text.as_str().expect("a time")).expect("RFC 3339");
    let lost_at = wall(&one(&journal, "run_resumed")["lost_at"]);
    let started = wall(&all(&journal, "iteration_started")[0]["at"]);
    let lasted = lost["duration_s"].as_f64().expect("seconds") * 1_000.0;
    assert!(
        (lasted - (lost_at.0 - started.0) as f64).abs() < 50.0,
        "{lost} after {started}, lost at {lost_at}"
    );
    let begun: Vec<_> = all(&journal, "iteration_started").iter().map(|e| e["iteration"].clone()).collect();
    assert_eq!(begun, [1, 2, 3]);
    assert_eq!(all(&journal, "iteration_started")[1]["cause"], "resumed");
}

// promise: 1
#[test]
fn killed_with_its_keeper_leftovers_are_ended_before_the_run_continues() {
    let project = Project::acting("counter ../count; on 1 { hold hold; orphan { ready kid; hang }; hang }");
    let (hold, kid) = (project.fifo("hold"), project.fifo("kid"));
    let run = project.start_run(&["-n", "1"]);
    kid.pid();
    let keeper = rustix::process::Pid::from_raw(project.keeper()).expect("a pid");
    run.signal(Signal::STOP);
    rustix::process::kill_process(keeper, Signal::KILL).expect("we own the keeper");
    run.kill();
    let journal = resume(&project);
    hold.assert_released();
    assert_eq!(kinds(&journal, "orphans_ended").len(), 1);
}

#[test]
fn killed_in_a_wait_the_rest_of_it_is_honoured() {
    let project = Project::acting("say hi");
    let mut run = project.start_run(&["-n", "2", "--delay", "1500ms"]);
    run.wait_for("wait_started");
    kill(&project, run);
    let journal = resume(&project);
    let waits = all(&journal, "wait_started");
    assert_eq!(waits.len(), 2);
    assert!(waits[1]["delay_s"].as_f64().is_some_and(|d| d < 1.5), "{}", waits[1]);
    let at = |event: &Value| event["boot_ms"].as_u64().expect("a time");
    let waited = at(all(&journal, "iteration_started")[1]) - at(waits[0]);
    assert!(waited >= 1490, "{waited} ms: the wall clock may differ by a little, not by more");
    assert_eq!(one(&journal, "wait_ended")["by"], "timer");
    assert_eq!(all(&journal, "iteration_interrupted").len(), 0);
}

#[test]
fn a_run_killed_in_a_long_wait_continues_it_and_can_be_woken() {
    let project = Project::acting("say hi");
    let mut run = project.start_run(&["-n", "2", "--delay", "1h"]);
    let before = run.wait_for("wait_started");
    kill(&project, run);
    let mut resumed = project.start(&["resume", "--json"]);
    let again = resumed.wait_for("wait_started");
    assert_eq!((&again["why"], &before["why"]), (&json!("delay"), &json!("delay")));
    let minute = |e: &Value| e["until"].as_str().expect("a time")[..16].to_owned();
    assert_eq!(minute(&again), minute(&before), "until the same time");
    project.call(&["wake"]).assert_code(0);
    assert_eq!(resumed.finish().assert_code(0).end()["completed"], 2);
    whole(&project);
}

#[test]
fn a_run_killed_in_a_command_restarts_the_iteration_with_all_commands() {
    let project = Project::new();
    let there = project.fifo("there");
    project.file("slow", "once ../seen { ready there; hang }; say slow");
    let slow = Value::from(project.actor("slow"));
    let commands = format!("commands: [{{name: quick, run: echo q}}, {{name: slow, run: {slow}}}]");
    project.act_on(&format!("{commands}\n{GRACES}"), "say hi", "{{ commands.quick }} {{ commands.slow }}");
    let run = project.start_run(&["-n", "1"]);
    there.pid();
    kill(&project, run);
    let journal = resume(&project);
    assert_eq!(one(&journal, "iteration_interrupted")["by"], "supervisor_lost");
    let names: Vec<_> = all(&journal, "command_finished").iter().map(|c| c["name"].clone()).collect();
    assert_eq!(names, ["quick", "quick", "slow"]);
    assert_eq!(one(&journal, "session_started")["iteration"], 2);
}

#[test]
fn a_run_killed_while_paused_stays_paused_until_a_second_resume() {
    let project = Project::acting("say hi");
    let mut run = project.start_run(&["-n", "2", "--delay", "1h"]);
    run.wait_for("wait_started");
    project.call(&["pause"]).assert_code(0);
    run.wait_for("paused");
    kill(&project, run);
    let mut resumed = project.start(&["resume", "--json"]);
    assert_eq!(resumed.wait_for("wait_started")["why"], "paused");
    assert!(project.call(&["resume"]).assert_code(0).text().contains("resumed run"));
    resumed.wait_for("unpaused");
    project.call(&["wake"]).assert_code(0);
    assert_eq!(resumed.finish().assert_code(0).end()["completed"], 2);
    let journal = whole(&project);
    assert_eq!(all(&journal, "paused").len(), 1);
}

#[test]
fn a_run_resumed_while_paused_is_shown_as_paused() {
    let project = Project::acting("say hi");
    let mut run = project.start_run(&["--delay", "1h"]);
    run.wait_for("wait_started");
    project.call(&["pause"]).assert_code(0);
    run.wait_for("paused");
    kill(&project, run);
    let mut resumed = project.start(&["resume"]);
    resumed.wait_for_line("paused");
    resumed.signal(Signal::TERM);
    resumed.finish().assert_code(143);
}

#[test]
fn a_run_killed_in_a_probe_leaves_no_probe_and_continues_the_wait() {
    let probe = "once ../seen { hold hold; ready there; hang }";
    let project = Project::new();
    project.file("probe", probe);
    let (hold, there) = (project.fifo("hold"), project.fifo("there"));
    let probe = Value::from(project.actor("probe"));
    let front =
        format!("idle: {{delay: 1h, max_delay: 1h}}\nwake_on: {{probe: {probe}, every: 20ms}}\n{GRACES}");
    project.act(&front, "marker idle no_pending_tasks");
    let run = project.start_run(&["-n", "2"]);
    there.pid();
    run.signal(Signal::KILL);
    let mut resumed = project.start(&["resume", "--json"]);
    resumed.wait_for("run_resumed");
    hold.assert_released();
    let done = resumed.finish();
    done.assert_code(0);
    run.finish();
    let journal = whole(&project);
    assert_eq!(one(&journal, "wait_ended")["by"], "probe", "it retries at its usual interval");
    assert_eq!(all(&journal, "iteration_interrupted").len(), 0);
    assert_eq!(all(&journal, "iteration_idle")[1]["consecutive"], 2, "the idle streak continues");
}

#[test]
fn counters_idle_streak_budget_and_messages_survive() {
    let front = format!("idle: {{delay: 1h, max_delay: 1h}}\nbudget: {{iterations: 4}}\n{GRACES}");
    let project =
        Project::acting_with(&front, "counter ../count; on 1 { exit 1 } else { marker idle blocked }");
    let mut run = project.start_run(&[]);
    run.wait_for("iteration_failed");
    run.signal(Signal::USR1);
    run.wait_for("iteration_idle");
    run.wait_for("wait_started");
    run.signal(Signal::USR1);
    assert_eq!(run.wait_for("iteration_idle")["consecutive"], 2);
    run.wait_for("wait_started");
    project.call(&["tell", "remember me"]).assert_code(0);
    run.wait_for("told");
    kill(&project, run);
    let mut resumed = project.start(&["resume", "--json"]);
    resumed.wait_for("wait_started");
    resumed.signal(Signal::USR1);
    assert_eq!(resumed.wait_for("iteration_idle")["consecutive"], 3);
    let done = resumed.finish();
    let end = done.assert_code(3).end();
    assert_eq!((&end["outcome"], &end["iterations"]), (&json!("budget_exceeded"), &json!(4)));
    assert_eq!((&end["failed"], &end["idle"]), (&json!(1), &json!(3)));
    assert!(project.prompt(4).contains("remember me"));
    whole(&project);
}

// promise: 5
#[test]
fn a_torn_last_line_is_cut_kept_aside_and_reported_wherever_it_is_torn() {
    for cut in [1, 20, 150] {
        let project = Project::acting("say hi");
        let mut run = project.start_run(&["-n", "2", "--delay", "200ms"]);
        run.wait_for("wait_started");
        kill(&project, run);
        let path = project.run_dir().join("events.jsonl");
        let bytes = std::fs::read(&path).expect("reads");
        std::fs::write(&path, &bytes[..bytes.len() - cut]).expect("tears");
        assert!(project.call(&["status"]).assert_code(0).text().contains("resume"), "it can still be read");
        let journal = resume(&project);
        let trouble = kinds(&journal, "torn_record");
        assert_eq!(trouble.len(), 1, "cut {cut}: {:?}", names(&journal));
        let aside: Vec<_> = std::fs::read_dir(project.run_dir())
            .expect("lists")
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().starts_with("torn-"))
            .collect();
        let torn = std::fs::read(aside[0].path()).expect("kept");
        assert!(bytes.windows(torn.len()).any(|w| w == torn), "exactly the cut bytes");
        assert_eq!(one(&journal, "run_ended")["completed"], 2);
    }
}

#[test]
fn changed_settings_are_reported_and_the_original_ones_are_used() {
    let project = Project::acting("append ../starts old");
    let mut run = project.start_run(&["-n", "2", "--delay", "1h"]);
    run.wait_for("wait_started");
    kill(&project, run);
    project.ralph("agent: sh -c 'echo new >> ../starts'\nmax_iterations: 7", "Another body.");
    let mut resumed = project.start(&["resume", "--json"]);
    resumed.wait_for_kind("settings_changed");
    resumed.signal(Signal::USR1);
    assert_eq!(resumed.finish().assert_code(0).end()["iterations"], 2);
    let starts = std::fs::read_to_string(project.outside("starts")).expect("reads");
    assert_eq!(starts, "old\nold\n");
    assert!(project.prompt(2).contains("Another body."), "the body is read again");
    assert_eq!(kinds(&whole(&project), "settings_changed").len(), 1);
}

// promise: 2
#[test]
fn of_two_that_resume_at_once_one_wins_and_the_other_exits_with_4() {
    let project = Project::acting(
        "counter ../count; on 1 { ignore TERM INT; ready there; hang } else { ready there; await gate }",
    );
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let run = project.start_run(&["-n", "1"]);
    there.pid();
    // Both find a keeper that is still ending the session, and wait for it.
    run.signal(Signal::KILL);
    let both = [project.start(&["resume", "--json"]), project.start(&["resume", "--json"])];
    there.pid();
    let winner = both.iter().position(|r| r.pid() == last_resume_pid(&project)).expect("one of them");
    let [first, second] = both;
    let (winner, loser) = if winner == 0 { (first, second) } else { (second, first) };
    let pid = winner.pid();
    let lost = loser.finish();
    lost.assert_code(4);
    assert!(lost.stderr.contains(&format!("pid {pid}")), "the error names the other run: {}", lost.stderr);
    gate.open();
    winner.finish().assert_code(0);
    run.finish();
    assert_eq!(all(&whole(&project), "run_resumed").len(), 1);
}

/// Returns the pid in the last `run_resumed` of the journal.
fn last_resume_pid(project: &Project) -> i32 {
    let journal = std::fs::read_to_string(project.run_dir().join("events.jsonl")).expect("reads");
    let events: Vec<Value> = journal.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    let pid = one(&events, "run_resumed")["pid"].as_i64().expect("a pid");
    i32::try_from(pid).expect("a pid")
}

#[test]
fn an_ended_run_is_not_resumed_and_the_help_line_has_the_fix() {
    let project = Project::acting("say hi");
    project.run(&["-n", "1"]).assert_code(0);
    let before = project.journal();
    let done = project.call(&["resume", "--json"]);
    done.assert_code(2);
    assert!(done.stderr.contains("has ended (clean)") && done.stderr.contains("help: "), "{}", done.stderr);
    assert_eq!(project.journal(), before);
}

#[test]
fn a_sleeping_run_is_continued_only_by_wake() {
    let front = format!("idle: {{delay: 10ms, stop_after: 2}}\n{GRACES}");
    let project = Project::acting_with(&front, "counter ../count; on 1..2 { marker idle blocked }");
    let slept = project.run(&[]);
    assert_eq!(slept.assert_code(0).end()["outcome"], "idle");
    let refused = project.call(&["resume"]);
    refused.assert_code(2);
    assert!(refused.stderr.contains("dogwatch wake"), "{}", refused.stderr);
    let mut woken = project.start(&["wake", "--json"]);
    woken.wait_for("iteration_completed");
    project.call(&["stop"]).assert_code(0);
    let end = woken.finish().assert_code(0).end();
    assert_eq!(end["idle"], 2);
    let journal = whole(&project);
    let rest = after(&journal, "run_resumed");
    assert_eq!(all(rest, "iteration_started")[0]["cause"], "wake");
    assert_eq!(all(rest, "iteration_started")[0]["iteration"], 3);
    assert_eq!(all(&journal, "run_ended").len(), 2);
}

#[test]
fn a_run_without_its_loop_file_is_not_resumed_and_its_record_is_unchanged() {
    let project = Project::acting("say hi");
    let mut run = project.start_run(&["--delay", "1h"]);
    run.wait_for("wait_started");
    kill(&project, run);
    let before = project.journal();
    std::fs::remove_file(project.path("loop/RALPH.md")).expect("removes");
    let done = project.call(&["resume"]);
    done.assert_code(2);
    assert!(done.stderr.contains("RALPH.md") && done.stderr.contains("help: "), "{}", done.stderr);
    assert_eq!(project.journal(), before);
    project.call(&["status"]).assert_code(0);
}

#[test]
fn a_secret_is_shown_nowhere_and_the_resumed_agent_still_gets_it() {
    let project = Project::new();
    let agent = r#"sh -c 'printf "%s\n" "$2" >> ../words' sh --api-key sk-verysecret123"#;
    project.ralph(&format!("agent: {}\n{GRACES}", Value::from(agent)), "Go.");
    let mut run = project.start_run(&["-n", "2", "--delay", "1h"]);
    run.wait_for("wait_started");
    let mut shown = vec![project.call(&["ps"]), project.call(&["status", "--json"])];
    kill(&project, run);
    let mut resumed = project.start(&["resume", "--json"]);
    resumed.wait_for("wait_started");
    resumed.signal(Signal::USR1);
    let done = resumed.finish();
    done.assert_code(0);
    shown.extend([done, project.call(&["ps", "--all"]), project.call(&["events"]), project.call(&[])]);
    for done in &shown {
        assert!(
            !done.text().contains("verysecret") && !done.stderr.contains("verysecret"),
            "{}",
            done.text()
        );
    }
    let journal = std::fs::read_to_string(project.run_dir().join("events.jsonl")).expect("text");
    assert!(!journal.contains("verysecret"));
    let words = std::fs::read_to_string(project.outside("words")).expect("reads");
    assert_eq!(words, "sk-verysecret123\nsk-verysecret123\n");
    let mode = project.run_dir().join("plan.json").metadata().expect("it exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_run_killed_repeatedly_still_completes() {
    let project = Project::acting("counter ../count; ready there; await gate");
    let (there, gate) = (project.fifo("there"), project.gate("gate"));
    let mut run = project.start_run(&["-n", "2"]);
    for _ in 0..3 {
        there.pid();
        kill(&project, run);
        run = project.start(&["resume", "--json"]);
    }
    there.pid();
    gate.open();
    there.pid();
    gate.open();
    assert_eq!(run.finish().assert_code(0).end()["completed"], 2);
    let journal = whole(&project);
    assert_eq!(all(&journal, "iteration_interrupted").len(), 3);
    assert_eq!(all(&journal, "run_resumed").len(), 3);
}
