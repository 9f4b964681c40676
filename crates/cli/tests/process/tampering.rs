//! Tampering shows: a changed record, changed settings, and runs that this user did not start.

use crate::kit::{GRACES, Project, kinds, one};
use serde_json::Value;

/// Runs the loop once and returns the project and the id of its run.
fn ended() -> (Project, String) {
    let project = Project::acting("say hi");
    let events = project.run(&["-n", "1"]).events();
    let id = one(&events, "run_started")["run"].as_str().expect("an id").to_owned();
    (project, id)
}

/// Changes the outcome in the last line of the journal, as an agent would that wants to look successful.
fn edit_last_line(project: &Project) {
    let journal = project.run_dir().join("events.jsonl");
    let text = std::fs::read_to_string(&journal).expect("a journal");
    let changed = text.replace("\"outcome\":\"clean\"", "\"outcome\":\"stuck\"");
    assert_ne!(text, changed);
    std::fs::write(journal, changed).expect("writes");
}

// promise: 5
#[test]
fn every_view_reports_an_edited_last_line() {
    let (project, id) = ended();
    let views: [&[&str]; 11] = [
        &["status"],
        &["status", "--json"],
        &["events"],
        &["logs"],
        &["report"],
        &["report", "--json"],
        &["history"],
        &["ps", "--all"],
        &["ps", "--all", "--json"],
        &["tune"],
        &[],
    ];
    for args in views {
        let before = project.call(args);
        assert!(!(before.text() + &before.stderr).contains("record was changed"), "{args:?}");
    }
    edit_last_line(&project);
    for args in views {
        let after = project.call(args);
        let said = after.text() + &after.stderr;
        assert!(said.contains("the record was changed: its last events differ"), "{args:?}: {said}");
    }
    project.call(&["report", "--html", "page.html"]).assert_code(0);
    assert!(project.read("page.html").contains("the record was changed"));
    let status: Value = serde_json::from_str(&project.call(&["status", &id, "--json"]).text()).expect("JSON");
    assert!(status["record_problem"].as_str().is_some_and(|text| text.contains("was changed")), "{status}");
}

// promise: 5
#[test]
fn the_end_of_a_run_prints_the_head_that_the_registry_keeps() {
    let project = Project::acting("say hi");
    let done = project.call(&["run", "loop", "-n", "1"]);
    let text = done.text();
    let line = text.lines().find(|line| line.contains("record: ")).expect("the last line names the record");
    let head = line.rsplit_once("head ").expect("it names the head").1;
    assert_eq!(head.len(), 32, "{line}");
    let id = project.run_dir().file_name().expect("a name").to_string_lossy().into_owned();
    let kept =
        std::fs::read_to_string(project.outside("state/dogwatch/heads").join(id)).expect("a head file");
    assert!(kept.contains(head), "{kept}");
    // The head is a hash of the last line, so anyone can compare it.
    let journal = std::fs::read_to_string(project.run_dir().join("events.jsonl")).expect("a journal");
    let mut sum = std::process::Command::new("sh");
    sum.args(["-c", "printf %s \"$1\" | sha256sum", "sh", journal.lines().last().expect("a line")]);
    let sum = String::from_utf8(sum.output().expect("sha256sum is there").stdout).expect("text");
    assert!(sum.starts_with(head), "{sum} {head}");
}

/// Kills a run in its first session, so that it can be resumed.
fn lost() -> (Project, String) {
    let project = Project::acting("counter ../count; on 1 { ready there; hang }; say hi");
    let there = project.fifo("there");
    let mut run = project.start_run(&["-n", "1"]);
    let id = run.wait_for("run_started")["run"].as_str().expect("an id").to_owned();
    there.pid();
    run.kill();
    project.wait_until_no_process_left();
    (project, id)
}

#[test]
fn a_run_that_the_registry_does_not_know_is_resumed_only_if_it_is_adopted() {
    let (project, id) = lost();
    let pointer = project.outside("state/dogwatch/runs").join(format!("{id}.json"));
    std::fs::remove_file(&pointer).expect("removes it");
    for command in ["resume", "wake"] {
        let refused = project.call(&[command, &id]);
        refused.assert_code(2);
        if command == "resume" {
            assert!(refused.stderr.contains("is not in your list of runs"), "{}", refused.stderr);
            assert!(refused.stderr.contains(&format!("dogwatch resume {id} --adopt")), "{}", refused.stderr);
        }
    }
    let adopted = project.start(&["resume", &id, "--adopt", "--json"]).finish();
    assert_eq!(adopted.assert_code(0).end()["outcome"], "clean");
    assert!(pointer.exists());
    let status = project.call(&["status", &id]);
    assert!(!status.text().contains("record was changed"), "{}", status.text());
}

#[test]
fn a_changed_record_is_resumed_only_if_it_is_adopted_and_this_is_recorded() {
    let (project, id) = lost();
    let journal = project.run_dir().join("events.jsonl");
    let text = std::fs::read_to_string(&journal).expect("a journal");
    let forged = text.replacen("actor script", "actor other!", 1);
    assert_ne!(text, forged);
    std::fs::write(&journal, forged).expect("writes");
    let refused = project.call(&["resume", &id]);
    refused.assert_code(2);
    assert!(refused.stderr.contains("line 2 does not continue the line before it"), "{}", refused.stderr);
    std::fs::write(&journal, &text).expect("writes");
    // A line that dogwatch did not write, with a correct hash.
    let last = text.lines().last().expect("a line");
    let (seq, prev) = (text.lines().count() + 1, &sha256(last)[..32]);
    let added = last.split_once("\"at\"").expect("a time").1;
    let added = format!("{{\"v\":1,\"seq\":{seq},\"at\"{added}");
    let added =
        added.rsplit_once("\"prev\":").expect("a hash").0.to_owned() + &format!("\"prev\":\"{prev}\"}}");
    std::fs::write(&journal, format!("{text}{added}\n")).expect("writes");
    let refused = project.call(&["resume", &id]);
    refused.assert_code(2);
    assert!(refused.stderr.contains("events were added that dogwatch did not write"), "{}", refused.stderr);
    let adopted = project.start(&["resume", &id, "--adopt", "--json"]).finish();
    let events = adopted.events();
    assert_eq!(kinds(&events, "record_changed").len(), 1, "{}", adopted.stderr);
}

fn sha256(text: &str) -> String {
    let mut sum = std::process::Command::new("sh");
    let sum =
        sum.args(["-c", "printf %s \"$1\" | sha256sum", "sh", text]).output().expect("sha256sum is there");
    String::from_utf8(sum.stdout).expect("text")
}

#[test]
fn a_changed_plan_of_a_lost_run_is_not_resumed() {
    let (project, id) = lost();
    let started = std::fs::read_to_string(project.run_dir().join("events.jsonl")).expect("a journal");
    let started: Value = serde_json::from_str(started.lines().next().expect("a line")).expect("JSON");
    // The unredacted plan is used instead of the recorded one, so an agent might make one up.
    let plan = started["settings"].to_string().replace("actor script", "actor other");
    std::fs::write(project.run_dir().join("plan.json"), plan).expect("writes");
    let refused = project.call(&["resume", &id]);
    refused.assert_code(2);
    assert!(refused.stderr.contains("the file with its settings was changed"), "{}", refused.stderr);
}

#[test]
fn changed_settings_and_checks_are_listed_before_the_run_and_strict_refuses_them() {
    let project = Project::new();
    project.file("verify.sh", "true\n");
    project.act(&format!("done_when: [sh ./verify.sh]\n{GRACES}"), "append starts $pid");
    project.run(&["-n", "3"]).assert_code(0);
    // Nothing changed: flags do not count as changes.
    let same = project.run(&["-n", "1", "--strict"]);
    same.assert_code(0);
    assert!(kinds(&same.events(), "settings_changed").is_empty(), "{}", same.stderr);
    let starts = project.lines("starts").len();
    project.file("dogwatch.toml", "[watchdog]\ngrace = \"3s\"\n");
    project.file("verify.sh", "exit 0\n");
    project.act("done_when: ['true', sh ./verify.sh]\nwatchdog: {leak: 300ms}", "append starts $pid");
    let refused = project.call(&["run", "loop", "--strict"]);
    refused.assert_code(2);
    for line in [
        "done_when: sh ./verify.sh → true; sh ./verify.sh",
        "watchdog.grace: 200ms → 3s",
        "verify.sh: content changed; a check depends on it",
    ] {
        assert!(refused.stderr.contains(line), "{line} in {}", refused.stderr);
    }
    assert_eq!(project.lines("starts").len(), starts, "nothing was started");
    let listed = project.run(&["-n", "1"]);
    listed.assert_code(0);
    assert!(listed.stderr.contains("warning: changed since the last run"), "{}", listed.stderr);
    assert_eq!(kinds(&listed.events(), "settings_changed").len(), 1);
    // That run accepted the changes.
    project.run(&["-n", "1", "--strict"]).assert_code(0);
}

#[test]
fn changes_since_the_last_run_are_printed_once() {
    for show in [&[][..], &["--quiet"], &["--verbose"]] {
        let project = weakened();
        let done = project.call(&[&["run", "loop", "-n", "1"], show].concat());
        done.assert_code(0);
        let stdout = String::from_utf8_lossy(&done.stdout);
        assert_eq!(done.stderr.matches("changed since the last run").count(), 1, "{}", done.stderr);
        assert_eq!(stdout.matches("changed since the last run").count(), 0, "{stdout}");
        assert_eq!(kinds(&project.journal(), "settings_changed").len(), 1);
        std::fs::remove_dir_all(project.path(".dogwatch/runs")).expect("removes");
        project.call(&["run", "loop", "-n", "1"]).assert_code(0);
        let journal = project.journal();
        let notice = kinds(&journal, "settings_changed")[0]["message"].as_str().expect("a text");
        assert!(notice.ends_with("no such file or directory"), "{notice}");
    }
}

/// A loop whose check was weakened after its only run.
fn weakened() -> Project {
    let project = Project::new();
    project.act(&format!("done_when: ['test -e loop']\n{GRACES}"), "say hi");
    project.run(&["-n", "1"]).assert_code(0);
    project.act(&format!("done_when: ['true']\n{GRACES}"), "say hi");
    project
}

/// Asserts that the next run with `--strict` is refused and lists this.
fn assert_refused(project: &Project, listed: &str) {
    let refused = project.call(&["run", "loop", "-n", "1", "--strict"]);
    refused.assert_code(2);
    assert!(refused.stderr.contains("warning: changed since the last run"), "{}", refused.stderr);
    assert!(refused.stderr.contains(listed), "{listed} in {}", refused.stderr);
}

#[test]
fn a_removed_or_edited_record_does_not_hide_a_weakened_check_from_strict() {
    let project = weakened();
    let journal = project.run_dir().join("events.jsonl");
    let text = std::fs::read_to_string(&journal).expect("a journal");
    std::fs::write(&journal, text.replace("test -e loop", "true")).expect("writes");
    assert_refused(&project, "the record was changed: line 2 does not continue the line before it");
    std::fs::write(&journal, &text).expect("writes");
    assert_refused(&project, "done_when: test -e loop → true");
    let id = project.run_dir().file_name().expect("a name").to_string_lossy().into_owned();
    std::fs::remove_file(project.outside("state/dogwatch/heads").join(id)).expect("removes");
    assert_refused(&project, "the record cannot be confirmed");
    std::fs::remove_dir_all(project.path(".dogwatch/runs")).expect("removes");
    assert_refused(&project, "the record cannot be read, so nothing can be compared");
    // A run without `--strict` accepts the loop as it is. `gc` removes a record on purpose.
    project.run(&["-n", "1"]).assert_code(0);
    project.run(&["-n", "1", "--strict"]).assert_code(0);
    project.call(&["gc", "--older-than", "0", "--keep", "0", "--yes"]).assert_code(0);
    for kept in ["heads", "loops"] {
        let kept = std::fs::read_dir(project.outside("state/dogwatch").join(kept)).expect("lists");
        assert_eq!(kept.count(), 0);
    }
    project.run(&["-n", "1", "--strict"]).assert_code(0);
}

#[test]
fn runs_of_other_loops_and_of_agents_do_not_hide_a_weakened_check_from_strict() {
    let project = weakened();
    std::fs::create_dir(project.path("other")).expect("a directory");
    project.file("other/RALPH.md", &format!("---\nagent: 'true'\n{GRACES}\n---\nGo on."));
    project.call(&["run", "other", "-n", "1"]).assert_code(0);
    let mut by_an_agent = project.command(&["run", "loop", "-n", "1"]);
    by_an_agent.env("DOGWATCH_NONCE", "0123456789abcdef0123456789abcdef");
    assert!(by_an_agent.output().expect("dogwatch starts").status.success());
    assert_refused(&project, "done_when: test -e loop → true");
}

// promise: 5
#[test]
fn a_record_that_was_away_for_a_while_is_still_compared_with_its_head() {
    let (project, id) = ended();
    let (dir, away) = (project.run_dir(), project.path("away"));
    std::fs::rename(&dir, &away).expect("moves");
    project.call(&["ps", "--all"]).assert_code(0);
    std::fs::rename(&away, &dir).expect("moves back");
    edit_last_line(&project);
    let status = project.call(&["status", &id]);
    assert!(status.text().contains("the record was changed: its last events differ"), "{}", status.text());
}
