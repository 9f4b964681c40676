//! `dogwatch exec`: bytes and exit codes pass as they are, the stuck is ended, nobody is left.

#[path = "../kit/mod.rs"]
mod kit;

mod ending;
mod passing;
mod watching;

use kit::{Done, Project, Running};
use serde_json::Value;
use std::process::Command;

/// Short, so that those who ignore signals cost little; and a tick of the processor's time in a limit of less than a
/// second is no effort.
const SHORT: [&str; 6] =
    ["--set", "watchdog.grace=200ms", "--set", "watchdog.leak=300ms", "--set", "watchdog.tool=1ms"];

/// `dogwatch exec OPTIONS -- COMMAND`, not started yet.
fn command(project: &Project, options: &[&str], command: &[&str]) -> Command {
    project.command(&[&["exec"], &SHORT[..], options, &["--"], command].concat())
}

/// To its end, by way of a shell; nobody may be left after it.
#[track_caller]
fn shell(options: &[&str], script: &str) -> Done {
    let project = Project::new();
    let done = Running::start(command(&project, options, &["sh", "-c", script])).finish();
    project.assert_nobody_is_left();
    done
}

fn actor(project: &Project, options: &[&str], script: &str) -> Command {
    command(project, options, &[env!("CARGO_BIN_EXE_dogwatch"), "actor", "-e", script])
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}
