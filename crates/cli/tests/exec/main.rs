//! `dogwatch exec` passes bytes and exit codes through, stops a stuck command and leaves no process behind.

#[path = "../kit/mod.rs"]
mod kit;

mod ending;
mod passing;
mod watching;

use kit::{Done, Project, Running};
use serde_json::Value;
use std::process::Command;

/// Short limits, so that commands that ignore signals cost little time. With a `tool` limit of 1 ms a tick of CPU time
/// does not extend idle limits below a second.
const SHORT: [&str; 6] =
    ["--set", "watchdog.grace=200ms", "--set", "watchdog.leak=300ms", "--set", "watchdog.tool=1ms"];

/// Returns `dogwatch exec OPTIONS -- COMMAND`, not started yet.
fn command(project: &Project, options: &[&str], command: &[&str]) -> Command {
    project.command(&[&["exec"], &SHORT[..], options, &["--"], command].concat())
}

/// Runs a shell script under `dogwatch exec` and checks that no process is left.
#[track_caller]
fn shell(options: &[&str], script: &str) -> Done {
    let project = Project::new();
    let done = Running::start(command(&project, options, &["sh", "-c", script])).finish();
    project.assert_no_process_left();
    done
}

fn actor(project: &Project, options: &[&str], script: &str) -> Command {
    command(project, options, &[env!("CARGO_BIN_EXE_dogwatch"), "actor", "-e", script])
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}
