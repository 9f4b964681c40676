//! `resume --at DIR`: a run continues after its project was moved.

use crate::kit::{Project, all, one};
use serde_json::json;
use std::fs;

#[test]
fn a_run_continues_where_its_project_was_moved() {
    let project = Project::acting_with("delay: 10m", "ready there; say worked");
    let there = project.fifo("there");
    let mut run = project.start_run(&["-n", "2"]);
    there.pid();
    run.wait_for("wait_started");
    let id = project.run_dir().file_name().expect("a name").to_string_lossy().into_owned();
    run.kill();
    project.wait_until_no_process_left();
    let new = project.outside("elsewhere");
    fs::rename(project.path(""), &new).expect("moves");
    fs::create_dir(project.path("")).expect("an empty directory in its place");

    let lost = project.call(&["resume", &id]);
    lost.assert_code(2);
    let at = new.display().to_string();
    // The request to wake ends the wait at once.
    let mut run = project.start(&["resume", &id, "--at", &at, "--adopt", "--json"]);
    let resumed = run.wait_for("run_resumed");
    assert_eq!((&resumed["run"], &resumed["work_dir"]), (&json!(id), &json!(at)));
    assert_eq!(resumed["path"], json!(new.join("loop/RALPH.md").display().to_string()));
    run.wait_for("wait_started");
    project.call(&["wake", &id, "--state-dir", &new.join(".dogwatch").display().to_string()]).assert_code(0);
    let done = run.finish();
    done.assert_code(0);
    let events = crate::kit::journal(&new.join(".dogwatch/runs").join(&id));
    assert_eq!(all(&events, "session_started").len(), 2);
    assert_eq!(one(&events, "run_ended")["completed"], 2);
    fs::remove_dir(project.path("")).expect("still empty: nothing was written to the old place");
    fs::rename(&new, project.path("")).expect("moves back");
    project.assert_no_process_left();
}

#[test]
fn a_run_is_not_moved_without_its_record_or_while_it_runs() {
    let project = Project::acting_with("delay: 10m", "say worked");
    let mut run = project.start_run(&[]);
    run.wait_for("wait_started");
    let id = project.run_dir().file_name().expect("a name").to_string_lossy().into_owned();
    let empty = project.outside("empty");
    fs::create_dir_all(empty.join(".dogwatch/runs")).expect("creates");
    let at = empty.display().to_string();
    let refused = |wanted: &str| {
        let done = project.call(&["resume", &id, "--at", &at]);
        done.assert_code(2);
        let said = done.stderr.clone();
        assert!(said.contains(wanted), "{said}");
    };
    refused(&format!("run {id} is not in {at}/.dogwatch"));
    // A copy of a live run must not run a second time.
    let copy = empty.join(".dogwatch/runs").join(&id);
    fs::create_dir(&copy).expect("creates");
    fs::copy(project.run_dir().join("events.jsonl"), copy.join("events.jsonl")).expect("copies");
    refused("still runs in");
    project.call(&["stop"]).assert_code(0);
    run.finish().assert_code(0);
}
