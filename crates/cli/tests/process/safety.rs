//! Files of the record that another program changed or replaced.

use crate::kit::skip::skip;
use crate::kit::{GRACES, Project, kinds, one};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Command;

fn mkfifo(project: &Project, name: &str) {
    let path = project.path(name);
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo is there").success());
}

// promise: 10, 13
#[test]
fn a_journal_that_another_program_changed_ends_the_run_as_lost_and_names_the_change() {
    for (command, words) in
        [("truncate -s 0", "has 0 bytes instead of"), ("echo x | tee -a", "another program wrote to it")]
    {
        let project = Project::acting("ready there; await gate");
        let (there, gate) = (project.fifo("there"), project.gate("gate"));
        let run = project.start_run(&["-n", "1"]);
        there.pid();
        let journal = project.run_dir().join("events.jsonl");
        let changed = Command::new("sh").args(["-c", &format!("{command} {}", journal.display())]).output();
        assert!(changed.expect("a shell").status.success());
        gate.open();
        let done = run.finish();
        done.assert_code(5);
        assert!(done.stderr.contains(words) && done.stderr.contains("events.jsonl"), "{}", done.stderr);
        project.assert_no_process_left();
    }
}

// promise: 14
#[test]
fn a_fifo_in_place_of_the_context_file_is_trouble_and_the_run_ends() {
    let front = format!("idle: {{delay: 10ms, stop_after: 1}}\n{GRACES}");
    let project = Project::acting_with(&front, "marker idle no_pending_tasks");
    std::fs::create_dir(project.path(".dogwatch")).expect("a directory");
    mkfifo(&project, ".dogwatch/decisions.jsonl");
    let done = project.run(&[]);
    let end = done.assert_code(0).end();
    assert_eq!(end["outcome"], "idle");
    let events = done.events();
    let trouble = kinds(&events, "context_not_kept");
    let detail = trouble[0]["detail"].as_str().expect("words");
    assert!(detail.contains("decisions.jsonl: it is a FIFO"), "{detail}");
}

// promise: 14
#[test]
fn a_link_or_a_fifo_in_place_of_our_files_is_named_and_nothing_is_written_through_it() {
    for (name, is_link, word) in [
        (".gitignore", true, "a symbolic link"),
        (".gitignore", false, "a FIFO"),
        ("runs", false, "not a directory"),
    ] {
        let project = Project::acting("append starts $pid");
        std::fs::create_dir(project.path(".dogwatch")).expect("a directory");
        let place = format!(".dogwatch/{name}");
        if is_link {
            symlink(project.path("precious"), project.path(&place)).expect("a link");
        } else {
            mkfifo(&project, &place);
        }
        let done = project.call(&["run", "loop", "-n", "1"]);
        done.assert_code(2);
        assert!(done.stderr.contains(word), "{name}: {}", done.stderr);
        assert!(!project.path("precious").exists() && !project.path("starts").exists());
    }
}

#[test]
fn a_link_that_an_agent_puts_in_place_of_the_next_iteration_leads_nothing_elsewhere() {
    let project = Project::new();
    let elsewhere = project.outside("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a directory");
    project.file(
        "agent.sh",
        // The second agent may run before its directory takes the place of the link, and ln would write through that.
        &format!(
            "[ -e once ] || {{ touch once; ln -s {} \"$(echo .dogwatch/runs/*/loop)/000002\" || exit 1; }}\necho linked\n",
            elsewhere.display()
        ),
    );
    project.ralph(&format!("agent: sh agent.sh\n{GRACES}"), "Go on.");
    project.run(&["-n", "2"]).assert_code(0);
    assert_eq!([project.raw(1, "stdout"), project.raw(2, "stdout")], [b"linked\n", b"linked\n"]);
    assert_eq!(std::fs::read_dir(&elsewhere).expect("a directory").count(), 0);
    assert!(
        std::fs::symlink_metadata(project.run_dir().join("loop/000002")).is_ok_and(|found| found.is_dir())
    );
    assert!(project.run_dir().join("loop/000002/prompt.md").is_file());
}

// promise: 14
#[test]
fn a_state_directory_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can give files away");
    }
    for (name, mode) in [("state/dogwatch", 0o755), ("state/dogwatch", 0o1777), ("work/.dogwatch", 0o755)] {
        let project = Project::acting("append starts $pid");
        let theirs = project.outside(name);
        std::fs::create_dir(&theirs).expect("a directory");
        let around = theirs.parent().expect("a parent");
        std::fs::set_permissions(around, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        chown(&theirs, Some(4711), None).expect("root may");
        let refused = project.call(&["run", "loop", "-n", "1"]);
        refused.assert_code(2);
        assert!(refused.stderr.contains("belongs to user 4711"), "{name}: {}", refused.stderr);
        assert!(refused.stderr.contains("help: "), "{name}: {}", refused.stderr);
        assert!(
            !project.path("starts").exists()
                && std::fs::read_dir(&theirs).expect("a directory").next().is_none()
        );
        chown(&theirs, Some(0), None).expect("root may");
        project.call(&["run", "loop", "-n", "1"]).assert_code(0);
    }
}

// promise: 14
#[test]
fn root_works_in_the_project_of_a_user() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can give files away");
    }
    let project = Project::acting("say hi");
    let give = |name: &str| chown(project.path(name), Some(4711), Some(4711)).expect("root may");
    ["", "loop"].into_iter().for_each(give);
    assert_eq!(one(&project.run(&["-n", "1"]).events(), "run_ended")["outcome"], "clean");
    // Give the files to the user, as if the user had run dogwatch before.
    for entry in [".dogwatch", ".dogwatch/runs", ".dogwatch/locks", ".dogwatch/.gitignore"] {
        give(entry);
    }
    let locks = std::fs::read_dir(project.path(".dogwatch/locks")).expect("it exists");
    locks.flatten().for_each(|lock| chown(lock.path(), Some(4711), Some(4711)).expect("root may"));
    project.run(&["-n", "1"]).assert_code(0);
}
