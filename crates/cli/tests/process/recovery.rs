//! After a hard stop: the diagnosis in the next prompt, fallback agents, and the saved work of a failed node.

use crate::kit::{Project, all, kinds, one};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Sessions are limited to half a second, so that one that hangs costs little time.
const SHORT: &str = "watchdog: {grace: 100ms, leak: 300ms, session: 500ms}";

#[test]
fn after_a_hard_stop_the_next_prompt_has_the_diagnosis() {
    let front = format!("{SHORT}\ndone_when: ['test -f done']");
    let project = Project::acting_with(
        &front,
        "counter ../count; on 1 { say I look into it; hang } else { write done x }",
    );
    let done = project.run(&[]);
    done.assert_code(0);
    let prompt = project.prompt(2);
    assert!(
        prompt.starts_with("Go on.\n\n---\n\nBefore you begin: the previous session (iteration 1 of"),
        "{prompt}"
    );
    for part in [
        "SESSION_CEILING_EXCEEDED",
        "Its last message:\n\n    I look into it\n",
        "`test -f done`",
        "attempt 1 of 3",
    ] {
        assert!(prompt.contains(part), "{part} in\n{prompt}");
    }
    assert_eq!(one(&done.events(), "recovery_planned")["class"], "stuck");
}

#[test]
fn a_user_template_is_used_and_a_broken_one_is_trouble() {
    let script = "counter ../count; on 1 { hang } else { write done x }";
    let front = format!("{SHORT}\ndone_when: ['test -f done']\nrecovery: {{template: again.j2}}");
    for (template, starts, troubles) in [
        ("AGAIN {{ diagnostic.class }}: {{ prompt }}", "AGAIN stuck: Go on.", 0),
        ("{{ nobody }}", "Go on.\n\n---\n", 1),
    ] {
        let project = Project::acting_with(&front, script);
        project.file("loop/again.j2", template);
        let done = project.run(&[]);
        done.assert_code(0);
        assert!(project.prompt(2).starts_with(starts), "{}", project.prompt(2));
        assert_eq!(kinds(&done.events(), "recovery_template").len(), troubles);
    }
}

#[test]
fn a_template_outside_of_the_loop_is_refused_before_the_run() {
    let project = Project::acting_with(&format!("{SHORT}\nrecovery: {{template: ../again.j2}}"), "say hi");
    project.file("again.j2", "{{ prompt }}");
    for command in ["check", "run"] {
        let done = project.call(&[command, "loop"]);
        done.assert_code(2);
        assert!(done.stderr.contains("cannot read the template `../again.j2`"), "{}", done.stderr);
        assert!(done.stderr.contains("it is outside of "), "{}", done.stderr);
    }
}

#[test]
fn the_partial_work_of_a_failed_node_is_saved_and_named() {
    let front = format!("{SHORT}\nrecovery: {{budget: 1}}\ndone_when: ['echo still broken; false']");
    let project = Project::acting_with(&front, "counter ../count; say words of $n; append notes $n; hang");
    git(&project.path(""), &["init", "-q"]);
    let done = project.run(&[]);
    assert_eq!(done.code, Some(3), "{}", done.text());
    let events = done.events();
    let kept = one(&events, "partial_kept").clone();
    assert_eq!(kept["file"], "loop.partial.md");
    let text = std::fs::read_to_string(project.run_dir().join("loop.partial.md")).expect("it exists");
    let snapshot = kept["snapshot"].as_str().expect("a snapshot");
    for part in ["words of", "SESSION_CEILING_EXCEEDED", "still broken", snapshot, "dogwatch diff"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let show = git(&project.path(""), &["show", &format!("{snapshot}:notes")]);
    assert!(show.starts_with('1'), "{show}");
}

#[test]
fn a_missing_agent_is_replaced_by_its_fallback() {
    let project = Project::new();
    project.file("script", "say I stand in");
    project.file("first", "#!/bin/sh\nrm first\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(project.path("first"), mode).expect("we own the file");
    let other = Value::from(project.actor("script"));
    project.ralph(&format!("agent: ./first\n{SHORT}\nrecovery: {{agents: [{other}]}}"), "Go on.");
    let done = project.run(&["-n", "3"]);
    let events = done.assert_code(0).events();
    let agents: Vec<&Value> = all(&events, "session_started").iter().map(|e| &e["agent"]).collect();
    assert_eq!(agents, [&Value::Null, &json!(1)], "{}", done.text());
    let planned = one(&events, "recovery_planned");
    assert_eq!((&planned["class"], &planned["action"]), (&json!("missing_program"), &json!("next_agent")));
    assert_eq!(project.raw(3, "stdout"), b"I stand in\n");
}

fn git(dir: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.current_dir(dir).args(["-c", "user.name=t", "-c", "user.email=t@example.invalid"]).args(args);
    let out = git.output().expect("git");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn a_node_with_a_worktree_works_there_and_its_work_is_saved() {
    let script = "cwd; write made here; write seen x";
    let project =
        Project::acting_with(&format!("{SHORT}\nworktree: true\ndone_when: ['test -f made']"), script);
    let work = project.path("");
    git(&work, &["init", "-q"]);
    // The actor reads its script in the worktree.
    git(&work, &["add", "script"]);
    git(&work, &["commit", "-qm", "one"]);
    let done = project.run(&[]);
    done.assert_code(0);
    let events = done.events();
    let ready = one(&events, "worktree_ready");
    let path = Path::new(ready["path"].as_str().expect("a path"));
    assert!(path.join("made").exists() && !project.path("made").exists());
    assert_eq!(String::from_utf8_lossy(&project.raw(1, "stdout")).trim(), path.to_str().expect("text"));
    let snapshots = all(&events, "snapshot_taken");
    let last = snapshots.last().expect("a snapshot")["ref"].clone();
    let last = last.as_str().expect("a name");
    assert_eq!(git(&work, &["show", &format!("{last}:made")]), "here\n");
    let branch = ready["branch"].as_str().expect("a branch");
    git(&work, &["rev-parse", "--verify", "-q", branch]);
    assert_eq!(json!(kinds(&events, "trouble").len()), json!(0));
}
