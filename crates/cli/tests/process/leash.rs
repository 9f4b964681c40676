//! `--leash FD` with real processes: the agent ends when the time is over or the pipe is closed, also while dogwatch
//! itself is stopped, and the run can be resumed.

use crate::kit::{Project, Running, all};
use rustix::process::Signal;
use std::io::{PipeWriter, Write};
use std::process::Command;

/// Starts `dogwatch` with the reading end of a pipe as descriptor `--leash` names.
fn leashed(project: &Project, args: &[&str], first: &str) -> (Running, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writeln!(writer, "{first}").expect("writes");
    // A shell passes the descriptor on: those of this process are closed on exec.
    let mut command = Command::new("sh");
    let dogwatch = project.command(args);
    command.arg("-c").arg("exec \"$0\" \"$@\" --leash 3 3<&0 0</dev/null");
    command.arg(dogwatch.get_program()).args(dogwatch.get_args());
    project.set_environment(&mut command);
    command.stdin(reader);
    (Running::start(command), writer)
}

fn lasting() -> Project {
    Project::acting("ready there; sleep 10m")
}

#[test]
fn the_agent_ends_when_the_pipe_is_closed_and_the_run_can_be_resumed() {
    let project = lasting();
    let there = project.fifo("there");
    let (run, leash) = leashed(&project, &["run", "loop", "--json", "-n", "2"], "+600000");
    there.pid();
    drop(leash);
    let done = run.finish();
    done.assert_code(6);
    let end = done.end();
    assert_eq!(end["outcome"], "interrupted");
    let reason = "the leash was closed at its other end; continue with `dogwatch resume`";
    assert_eq!(end["reason"], reason);
    project.assert_no_process_left();

    let run = done.events()[0]["run"].as_str().expect("an id").to_owned();
    let (mut again, leash) = leashed(&project, &["resume", "--json", &run], "+600000");
    again.wait_for("session_started");
    there.pid();
    drop(leash);
    again.finish().assert_code(6);
    project.assert_no_process_left();
}

#[test]
fn the_agent_ends_with_the_pipe_while_dogwatch_is_stopped() {
    let project = lasting();
    let there = project.fifo("there");
    let (run, mut leash) = leashed(&project, &["run", "loop", "--json"], "+600000");
    there.pid();
    run.signal(Signal::STOP);
    // dogwatch cannot read this line, and its keeper has a limit of ten minutes. Only the end of the pipe reaches it.
    writeln!(leash, "+600000").expect("writes");
    drop(leash);
    there.wait_until_released();
    run.signal(Signal::CONT);
    let done = run.finish();
    done.assert_code(6);
    assert_eq!(all(&done.events(), "session_started").len(), 1, "nothing starts after the end");
    project.assert_no_process_left();
}

#[test]
fn an_expired_leash_ends_the_agent_even_if_dogwatch_never_sees_it() {
    let project = lasting();
    let there = project.fifo("there");
    let (run, _leash) = leashed(&project, &["run", "loop", "--json"], "+5000");
    there.pid();
    run.signal(Signal::STOP);
    there.wait_until_released();
    run.signal(Signal::CONT);
    let done = run.finish();
    done.assert_code(6);
    assert!(done.end()["reason"].as_str().expect("a reason").starts_with("the leash expired"));
    project.assert_no_process_left();
}

#[test]
fn a_leash_without_a_time_starts_nothing() {
    let project = lasting();
    for (first, wanted) in
        [("soon", "`soon` is not a time for the leash"), ("", "`` is not a time for the leash")]
    {
        let (run, _leash) = leashed(&project, &["run", "loop"], first);
        let done = run.finish();
        done.assert_code(2);
        assert!(done.stderr.contains(wanted), "{:?}", done.stderr);
    }
    let done = project.call(&["run", "loop", "--leash", "99"]);
    done.assert_code(2);
    assert!(done.stderr.contains("cannot read the leash from descriptor 99"));
    assert!(!project.path(".dogwatch/runs").exists(), "no run was started");
}
