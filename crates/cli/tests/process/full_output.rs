//! A stdout that accepts no data (`/dev/full`): the exit code reports the lost output.

use crate::kit::Project;
use std::fs::File;
use std::process::{Output, Stdio};

fn to_full(project: &Project, args: &[&str]) -> Output {
    let full = File::options().write(true).open("/dev/full").expect("/dev/full exists");
    project.command(args).stdout(full).stderr(Stdio::piped()).output().expect("runs")
}

#[test]
fn no_command_succeeds_if_its_output_is_lost() {
    let project = Project::acting("say hi");
    project.run(&["-n", "1"]).assert_code(0);
    let commands: [&[&str]; 14] = [
        &["status"],
        &["status", "--json"],
        &["events"],
        &["logs"],
        &["history"],
        &["report"],
        &["ps", "--all"],
        &["check", "loop"],
        &["check", "loop", "--explain"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
        &["--version"],
        &[],
    ];
    for args in commands {
        let done = to_full(&project, args);
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_ne!(done.status.code(), Some(0), "{args:?}: {stderr}");
        assert!(stderr.contains("no space left on device"), "{args:?}: {stderr}");
    }
}

#[test]
fn a_run_whose_output_is_lost_completes_and_exits_with_1() {
    for args in [&["run", "loop", "-n", "1", "--json"][..], &["run", "loop", "-n", "1"]] {
        let project = Project::acting("say hi");
        let done = to_full(&project, args);
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("cannot write to stdout: no space left on device"), "{stderr}");
        let journal = project.journal();
        let end = journal.last().expect("an end");
        assert_eq!((&end["event"], &end["outcome"]), (&"run_ended".into(), &"clean".into()));
        project.assert_no_process_left();
    }
}
