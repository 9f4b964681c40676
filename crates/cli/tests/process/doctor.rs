//! `dogwatch doctor` with programs that answer, print nonsense or hang.

use crate::kit::{Done, Project};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

/// A project whose scripts come first on PATH, before the programs of the system.
struct Machine {
    project: Project,
}

impl Machine {
    fn new() -> Machine {
        let project = Project::new();
        std::fs::create_dir(project.outside("bin")).expect("a directory");
        Machine { project }
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.project.outside("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("can be executed");
    }

    fn doctor(&self, args: &[&str]) -> Done {
        let mut command = self.project.command(&[&["doctor"], args].concat());
        let bin = self.project.outside("bin");
        command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        let done = crate::kit::Running::start(command).finish();
        self.project.assert_no_process_left();
        done
    }

    fn findings(&self) -> (Done, Vec<Value>) {
        let done = self.doctor(&["--json"]);
        let report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
        let findings = report["findings"].as_array().expect("a list").clone();
        (done, findings)
    }
}

#[track_caller]
fn finding<'a>(findings: &'a [Value], name: &str) -> &'a Value {
    findings.iter().find(|f| f["name"] == name).unwrap_or_else(|| panic!("no {name} in {findings:?}"))
}

#[test]
fn doctor_reports_agents_and_the_containment() {
    let machine = Machine::new();
    machine.program("claude", "echo '2.1.3 (Claude Code)'");
    machine.program("codex", "exit 3");
    let (done, findings) = machine.findings();
    done.assert_code(0);
    let found = |name: &str| finding(&findings, name)["found"].as_str().expect("a text").to_owned();
    assert!(found("containment").starts_with("subreaper: "), "{}", found("containment"));
    assert!(found("claude").starts_with("2.1.3 (Claude Code) ("), "{}", found("claude"));
    // It says what the kernel supports, complete or not.
    assert!(found("sandbox").starts_with("Landlock "), "{}", found("sandbox"));
    assert!(found("sandbox").contains("user namespaces: "), "{}", found("sandbox"));
    assert_eq!(finding(&findings, "claude")["level"], "ok");
    assert_eq!(finding(&findings, "codex")["level"], "warning");
    assert!(found("codex").contains("exit code 3"), "{}", found("codex"));
    assert_eq!(finding(&findings, "state directory")["level"], "ok");
    assert_eq!(finding(&findings, "snapshots")["level"], "warning");
    assert!(findings.iter().all(|f| f["level"] == "ok" || f["advice"].is_string()), "{findings:?}");
    assert!(!machine.project.path(".dogwatch").exists(), "doctor creates no files");
}

#[test]
fn doctor_warns_once_if_no_agent_is_installed() {
    let (_, findings) = Machine::new().findings();
    let agents = finding(&findings, "agents");
    assert_eq!(agents["found"], "none of claude, codex, opencode, gemini is on PATH");
    assert!(findings.iter().all(|f| f["name"] != "claude"), "{findings:?}");
}

#[test]
fn an_agent_that_does_not_answer_is_killed_with_its_children() {
    let machine = Machine::new();
    machine.program("gemini", "trap '' TERM INT\nsetsid sleep 1000 &\nwhile :; do sleep 1000; done");
    let (done, findings) = machine.findings();
    done.assert_code(0);
    let gemini = finding(&findings, "gemini");
    assert_eq!(gemini["level"], "warning");
    assert!(gemini["found"].as_str().expect("a text").contains("no CPU time used for 5 s"), "{gemini}");
}

#[test]
fn agent_output_is_sanitized_for_the_terminal() {
    let machine = Machine::new();
    machine.program("claude", "printf '1.0\\033[2J\\nmore'; yes | head -c 10000000");
    let done = machine.doctor(&[]);
    assert!(!done.text().contains('\u{1b}'), "{}", done.text());
    assert!(done.text().contains("claude"), "{}", done.text());
}

#[test]
fn invalid_settings_are_a_problem_with_a_location() {
    let machine = Machine::new();
    machine.project.file("dogwatch.toml", "[idle]\ndelay = \"soon\"\n");
    let (done, findings) = machine.findings();
    done.assert_code(1);
    let settings = finding(&findings, "project settings");
    assert_eq!(settings["level"], "problem");
    assert!(settings["found"].as_str().expect("a text").contains("dogwatch.toml:2:"), "{settings}");
    machine.project.file("dogwatch.toml", "[idle]\ndelay = \"5s\"\n");
    machine.doctor(&[]).assert_code(0);
}

#[test]
fn a_read_only_state_directory_is_a_problem() {
    let machine = Machine::new();
    // Not even root can create a file there.
    std::os::unix::fs::symlink("/proc/self", machine.project.path(".dogwatch")).expect("a link");
    let (done, findings) = machine.findings();
    done.assert_code(1);
    assert_eq!(finding(&findings, "state directory")["level"], "problem");
}

#[test]
fn a_file_in_place_of_the_state_directory_is_a_problem() {
    let machine = Machine::new();
    machine.project.file(".dogwatch", "");
    let (done, findings) = machine.findings();
    done.assert_code(1);
    assert_eq!(finding(&findings, "state directory")["level"], "problem");
}
