//! The surroundings in which dogwatch starts: signals and variables of its caller, directories that are missing or have
//! odd names, programs that cannot start.

use crate::kit::skip::skip;
use crate::kit::{Project, Running, kinds, one};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Starts dogwatch from a shell that runs this first.
fn after(project: &Project, script: &str, args: &[&str]) -> Running {
    let mut command = Command::new("sh");
    project.set_environment(&mut command);
    command.args(["-c", &format!("{script}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_dogwatch")]).args(args);
    Running::start(command)
}

#[test]
fn a_caller_that_ignores_the_end_of_its_children_changes_no_exit_code() {
    let project = Project::acting("exit 3");
    let done = after(&project, "trap '' CHLD", &["run", "loop", "-n", "1", "--json"]).finish();
    assert_eq!(one(&done.assert_code(1).events(), "session_ended")["exit_code"], 3);
    after(&project, "trap '' CHLD", &["exec", "--", "sh", "-c", "exit 4"]).finish().assert_code(4);
    project.assert_no_process_left();
}

#[test]
fn a_removed_current_directory_is_named() {
    let project = Project::acting("say hi");
    for args in [&["run"][..], &["doctor"], &["check"]] {
        let done = after(&project, "mkdir gone && cd gone && rmdir ../gone", args).finish();
        done.assert_code(2);
        assert!(done.stderr.contains("help: if it was removed, change to another one"), "{}", done.stderr);
    }
}

#[test]
fn a_path_that_is_not_utf_8_is_refused_before_anything_starts() {
    let project = Project::acting("touch started");
    let name = OsStr::from_bytes(b"caf\xe9");
    let odd = project.path("").join(name);
    std::fs::create_dir(&odd).expect("a directory");
    std::fs::copy(project.path("loop/RALPH.md"), odd.join("RALPH.md")).expect("copies");
    let runs: [(&[&str], &Path); 3] = [
        (&["run", "../loop"], &odd),
        (&["run", "caf"], &project.path("")),
        (&["run", "loop", "--state-dir", "caf"], &project.path("")),
    ];
    for (args, dir) in runs {
        let mut command = project.command(&[]);
        command.current_dir(dir);
        command.args(args.iter().map(|word| if *word == "caf" { name } else { OsStr::new(word) }));
        let done = Running::start(command).finish();
        done.assert_code(2);
        assert!(
            done.stderr.contains("caf\u{fffd}") && done.stderr.contains("is not UTF-8"),
            "{}",
            done.stderr
        );
    }
    assert!(!project.path("started").exists() && !odd.join(".dogwatch").exists());
    // Nor does a word of the command line cause a panic.
    let mut command = project.command(&[]);
    command.arg(name);
    let done = Running::start(command).finish();
    done.assert_code(2);
    assert!(done.stderr.contains("unrecognized subcommand"), "{}", done.stderr);
}

#[test]
fn a_user_without_a_home_directory_can_run_and_list_prices() {
    let project = Project::acting("say hi");
    let command = |args: &[&str]| {
        let mut command = project.command(args);
        command.env("HOME", "/dev/null");
        Running::start(command).finish()
    };
    command(&["run", "loop", "-n", "1"]).assert_code(0);
    command(&["prices"]).assert_code(0);
    command(&["status"]).assert_code(0);
}

#[test]
fn without_proc_or_dev_the_missing_file_is_named() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can mount");
    }
    for missing in ["/proc", "/dev"] {
        let project = Project::acting("say hi");
        let mut command = Command::new("unshare");
        project.set_environment(&mut command);
        let script = format!("mount -t tmpfs none {missing} || exit 77; exec \"$0\" run loop -n 1");
        command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_dogwatch")]);
        let done = Running::start(command).finish();
        if done.code == Some(77) {
            return skip("nothing can be mounted here");
        }
        let text = done.text() + &done.stderr;
        assert!(done.code != Some(0) && text.contains("dogwatch needs /proc and /dev"), "{missing}: {text}");
    }
}

#[test]
fn a_program_without_its_interpreter_is_reported_with_the_name_of_the_interpreter() {
    for (first, named) in [
        ("#!/opt/none/python -u\n", "./agent.sh: its interpreter `/opt/none/python`: no such file"),
        ("#!/bin/sh\r\n", "its interpreter `/bin/sh\\r` (the file has Windows line endings): no such file"),
    ] {
        let project = Project::new();
        project.file("agent.sh", first);
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(project.path("agent.sh"), mode).expect("it is ours");
        for sandbox in ["off", "worktree"] {
            project.ralph(&format!("agent: ./agent.sh\nerrors: {{max: 1}}\nsandbox: {sandbox}"), "Go on.");
            let done = project.call(&["run", "loop", "-v"]);
            assert!(done.assert_code(1).text().contains(named), "{sandbox}: {}", done.text());
            project.assert_no_process_left();
        }
    }
}

#[test]
fn mistakes_with_names_get_a_way_out() {
    let project = Project::new();
    for (name, agent) in [("tilde", "~/agent"), ("rights", "./agent")] {
        std::fs::create_dir(project.path(name)).expect("a directory");
        project.file(&format!("{name}/RALPH.md"), &format!("---\nagent: {agent}\n---\nGo.\n"));
    }
    project.file("agent", "#!/bin/sh\n");
    project.file("loop/ralph.md", "---\nagent: cat\n---\nGo.\n");
    project.file("plain", "");
    for directory in ["latin", "two words"] {
        std::fs::create_dir(project.path(directory)).expect("a directory");
    }
    std::fs::write(project.path("latin/RALPH.md"), b"---\nagent: cat\n---\ncaf\xe9\n").expect("writes");
    for (args, help) in [
        (&["run", "tilde"][..], "help: write the whole path; `~` is not expanded"),
        (&["run", "rights"], "help: correct its path, or make it executable with `chmod +x`"),
        (&["run", "loop"], "help: rename loop/ralph.md to RALPH.md, or pass the file itself"),
        (&["run", "latin"], "help: save the file as UTF-8"),
        (&["run", "two words"], "help: `dogwatch init 'two words'` writes a loop file"),
        (&["init", "plain"], "plain/RALPH.md: not a directory"),
    ] {
        let done = project.call(args);
        done.assert_code(2);
        assert!(done.stderr.contains(help), "{args:?}: {}", done.stderr);
    }
    let written = project.call(&["init", "--", "-x"]);
    assert!(written.assert_code(0).text().contains("dogwatch run ./-x"), "{}", written.text());
    // A directory in place of the settings of the project.
    std::fs::create_dir(project.path("dogwatch.toml")).expect("a directory");
    let done = project.call(&["run", "tilde"]);
    assert!(
        done.stderr.contains("help: remove it, or put a file with settings in its place"),
        "{}",
        done.stderr
    );
}

#[test]
fn a_state_directory_that_cannot_be_written_is_named_with_the_flag_that_moves_it() {
    let project = Project::acting("say hi");
    // A directory in place of the lock: a reason that holds for root too.
    std::fs::create_dir_all(project.path("there/locks")).expect("a directory");
    let done = project.call(&["run", "loop", "-n", "1", "--state-dir", "there"]);
    done.assert_code(0);
    let locks = std::fs::read_dir(project.path("there/locks")).expect("a directory");
    for lock in locks.flatten() {
        std::fs::remove_file(lock.path()).expect("it is ours");
        std::fs::create_dir(lock.path()).expect("a directory");
    }
    let done = project.call(&["run", "loop", "-n", "1", "--state-dir", "there"]);
    done.assert_code(2);
    assert!(done.stderr.contains("help: choose another directory with --state-dir"), "{}", done.stderr);
}

#[test]
fn a_repository_that_git_refuses_is_reported_once_with_what_that_costs() {
    let project = Project::acting("say hi");
    project.file(".git", "gitdir: nowhere\n");
    let events = project.run(&["-n", "2"]).assert_code(0).events();
    let [notice] = kinds(&events, "no_snapshots")[..] else { panic!("{events:#?}") };
    let message = notice["message"].as_str().expect("a text");
    assert!(message.starts_with("no snapshots will be taken: "), "{message}");
}
