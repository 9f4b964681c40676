//! Limits of the user or the machine (`ulimit`): dogwatch reports the missing resource and does not panic.

use crate::kit::{Done, GRACES, Project, Running, kinds};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The user id of `nobody`, which has no processes.
const NOBODY: u32 = 65_534;

/// Returns a dogwatch command under a `ulimit`.
fn limited(project: &Project, limit: &str, args: &[&str]) -> Command {
    let mut command = Command::new("prlimit");
    project.set_environment(&mut command);
    command.args([limit, "--", env!("CARGO_BIN_EXE_dogwatch")]).args(args);
    command
}

fn run(command: Command) -> Done {
    Running::start(command).finish()
}

// promise: 10
#[test]
fn a_limit_of_the_file_size_costs_output_and_not_the_run() {
    // The limit fits the journal, but not the output.
    let project = Project::acting_with(&format!("{GRACES}\nmcp: false"), "flood 100kB");
    let done = run(limited(&project, "--fsize=32768", &["run", "loop", "--json", "-n", "1"]));
    assert_eq!(done.assert_code(0).end()["completed"], 1);
    let events = done.events();
    let lost = kinds(&events, "raw_output_lost");
    let detail = lost[0]["detail"].as_str().expect("a text");
    assert!(lost.len() == 1 && detail.contains("file too large ("), "{lost:?}");
    project.assert_no_process_left();
}

#[test]
fn an_agent_sees_the_default_action_of_the_file_size_signal() {
    let project = Project::shell("grep SigIgn /proc/self/status");
    project.run(&["-n", "1"]).assert_code(0);
    let stdout = String::from_utf8(project.raw(1, "stdout")).expect("text");
    let mask = u64::from_str_radix(stdout.trim().trim_start_matches("SigIgn:").trim(), 16).expect("a mask");
    assert_eq!(mask & (1 << (25 - 1)), 0, "SIGXFSZ is not ignored: {stdout}");
}

#[test]
fn a_thread_that_cannot_be_started_is_an_error_with_a_message() {
    let project = Project::acting("say hi");
    let mut command = limited(&project, "--nproc=1", &["run", "loop", "-n", "1"]);
    // Process limits do not apply to root, so run as another user, who needs write access here.
    if rustix::process::geteuid().is_root() {
        open_to_all(project.outside("").as_path());
        command.uid(NOBODY);
        let reached = project.command(&["--version"]).uid(NOBODY).output();
        if !reached.is_ok_and(|done| done.status.success()) {
            return println!("skipped: another user cannot reach the program");
        }
    }
    let done = run(command);
    done.assert_code(5);
    assert!(done.stderr.contains("temporarily unavailable"), "{}", done.stderr);
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
}

fn open_to_all(dir: &Path) {
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).expect("we own the file");
    for entry in std::fs::read_dir(dir).expect("lists").flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_to_all(&entry.path());
        }
    }
}
