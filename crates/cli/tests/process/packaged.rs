//! The systemd unit of the packages.

use crate::kit::{Done, Project, Running, all};
use std::path::Path;
use std::process::Command;

const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd/dogwatch@.service");

/// Does what systemd does to start the unit of a directory: takes the command line apart and replaces what it escapes.
fn start_unit(project: &Project, dir: &Path) -> Running {
    let unit = std::fs::read_to_string(UNIT).expect("the unit");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let script = line.strip_prefix("/bin/sh -c '").and_then(|line| line.strip_suffix("' sh %f"));
    let script = script.expect("a script and the path");
    assert!(!script.contains(['%', '\\', '\'']) && !script.replace("$$", "").contains('$'), "{script}");
    let script = script.replace("$$", "$").replace("/usr/bin/dogwatch", env!("CARGO_BIN_EXE_dogwatch"));
    let mut shell = Command::new("/bin/sh");
    project.set_environment(&mut shell);
    // A user unit starts in the home directory.
    shell.args(["-c", &script, "sh"]).arg(dir).current_dir(project.outside("home"));
    Running::start(shell)
}

fn run_unit(project: &Project, dir: &Path) -> Done {
    let done = start_unit(project, dir).finish();
    project.wait_until_no_process_left();
    done
}

#[test]
fn the_unit_runs_a_loop_in_its_project() {
    let project = Project::acting_with("max_iterations: 1", "say hi");
    // Without a repository, the directory of the loop is the project.
    project.file("loop/script", "say alone");
    run_unit(&project, &project.path("loop")).assert_code(0);
    assert!(project.path("loop/.dogwatch/runs").exists() && !project.path(".dogwatch").exists());
    project.init_git();
    run_unit(&project, &project.path("loop")).assert_code(0);
    assert_eq!(project.raw(1, "stdout"), b"hi\n");
    assert!(!project.outside("home/.dogwatch").exists());
}

#[test]
fn the_unit_continues_a_lost_run_of_its_loop() {
    let project = Project::acting_with("max_iterations: 1", "counter ../count; on 1 { ready kid; hang }");
    project.init_git();
    let kid = project.fifo("kid");
    let run = start_unit(&project, &project.path("loop"));
    kid.pid();
    run.kill();
    project.wait_until_no_process_left();
    run_unit(&project, &project.path("loop")).assert_code(0);
    // A run that ended is not continued.
    let first = project.run_dir();
    assert!(!all(&project.journal(), "run_resumed").is_empty());
    run_unit(&project, &project.path("loop")).assert_code(0);
    assert_ne!(project.run_dir(), first);
}

#[test]
fn the_unit_fails_for_a_directory_that_does_not_exist() {
    let project = Project::new();
    run_unit(&project, &project.path("nowhere")).assert_code(2);
}
