//! The first minute with dogwatch: no arguments, `init`, `demo`.

mod kit;

use kit::{GRACES, Project};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

// --- dogwatch without arguments ----------------------------------------------------------------------------

#[test]
fn without_arguments_in_an_empty_directory_it_shows_how_to_start() {
    let done = Project::new().call(&[]);
    done.assert_code(0);
    assert_eq!(done.text().lines().count(), 5);
    for wanted in ["dogwatch demo", "dogwatch init", "dogwatch run"] {
        assert!(done.text().contains(wanted), "{}", done.text());
    }
}

#[test]
fn without_arguments_it_lists_the_last_runs_in_ten_lines_newest_first() {
    let project = Project::acting("counter count; say part $n done; on 11 { err no luck; exit 3 }");
    for _ in 0..11 {
        project.run(&["-n", "1"]);
    }
    let done = project.call(&[]);
    done.assert_code(0);
    let text = done.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 10, "{text}");
    assert_eq!(
        lines[0],
        "the last 8 of 11 runs in this directory, live ones first, then the newest; times in UTC"
    );
    for part in ["  loop  catastrophic  1 iteration: 0 completed, 1 failed, ", "0 of 1 iteration completed"] {
        assert!(lines[1].contains(part), "{part:?} in {text}");
    }
    assert!(lines[2].contains("  loop  clean, unverified  1 iteration: 1 completed, "), "{text}");
    assert!(lines[2].ends_with("\"part 10 done\""), "{text}");
    assert!(lines[8].ends_with("\"part 4 done\""), "{text}");
}

#[test]
fn without_arguments_it_shows_running_waiting_paused_and_lost_runs() {
    let project = Project::acting_with(
        &format!("{GRACES}\nidle: {{delay: 1h, max_delay: 1h}}"),
        "counter count; say part $n; ready here; await go; marker idle nothing",
    );
    let (here, go) = (project.fifo("here"), project.gate("go"));
    let first = |wanted: &str| {
        let text = project.call(&[]).text();
        let line = text.lines().nth(1).unwrap_or_default().to_owned();
        assert!(line.contains(wanted), "{wanted:?} in {text}");
    };
    let mut run = project.start_run(&[]);
    here.pid();
    run.wait_for("session_started");
    first("  loop  working  0 iterations");
    go.open();
    run.wait_for("wait_started");
    first("  loop  waiting until ");
    project.call(&["pause"]).assert_code(0);
    run.wait_until("pause", |e| e["event"] == "wait_started" && e["why"] == "paused");
    first("  loop  paused; continue with `dogwatch resume ");
    run.kill();
    project.wait_until_no_process_left();
    first("  loop  lost; continue with `dogwatch resume ");
}

#[test]
fn an_unreadable_record_takes_one_line() {
    let project = Project::acting("say hello\u{20}there");
    project.run(&["-n", "1"]).assert_code(0);
    std::fs::write(project.run_dir().join("events.jsonl"), "rubbish\n").expect("writes");
    let done = project.call(&[]);
    done.assert_code(0);
    assert!(done.text().contains("cannot read its record"), "{}", done.text());
}

// --- init -------------------------------------------------------------------------------------------------

/// Returns a dogwatch command whose PATH contains only these programs.
fn with_programs(project: &Project, programs: &[&str], args: &[&str]) -> Command {
    let bin = project.outside("bin");
    std::fs::create_dir_all(&bin).expect("a directory");
    for program in programs {
        std::fs::write(bin.join(program), "#!/bin/sh\nexit 1\n").expect("writes");
        std::fs::set_permissions(bin.join(program), PermissionsExt::from_mode(0o755)).expect("may run");
    }
    let mut command = project.command(args);
    command.env("PATH", bin);
    command
}

fn output(mut command: Command) -> (Option<i32>, String) {
    let out = command.output().expect("runs");
    let text = [out.stdout, out.stderr].concat();
    (out.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn init_writes_a_file_that_passes_check_for_every_agent() {
    for (agent, reader) in [
        ("claude", "claude"),
        ("codex", "codex"),
        ("opencode", "opencode"),
        ("gemini", "gemini"),
        ("sh", "plain"),
    ] {
        let project = Project::new();
        let (code, text) = output(with_programs(&project, &[agent], &["init", "new/loop"]));
        assert_eq!(code, Some(0), "{text}");
        for next in ["edit the prompt", "dogwatch check new/loop", "dogwatch run new/loop"] {
            assert!(text.contains(next), "{text}");
        }
        let (code, text) = output(with_programs(&project, &[], &["check", "new/loop"]));
        assert_eq!(code, Some(0), "{text}");
        assert!(text.starts_with(&format!("new/loop/RALPH.md: ok (agent `{agent}")), "{text}");
        assert!(text.contains(&format!("` read as {reader}, ")), "{text}");

        // The suggested settings in comments must be valid as well.
        let written = project.read("new/loop/RALPH.md");
        assert!(written.contains("\n# sandbox: worktree\n"), "{written}");
        let suggested = written
            .replace("# budget:", "budget:")
            .replace("# errors:", "errors:")
            .replace("# sandbox:", "sandbox:");
        project.file("new/loop/RALPH.md", &suggested);
        let (code, text) = output(with_programs(&project, &[], &["check", "new/loop", "--explain"]));
        assert_eq!(code, Some(0), "{text}");
        assert!(!text.contains("warning"), "{text}");
        let permissions = match agent {
            "claude" => {
                "claude -p --output-format stream-json --verbose --dangerously-skip-permissions --mcp-config …"
            }
            "codex" => "--dangerously-bypass-approvals-and-sandbox",
            "opencode" => "opencode run --format json --auto",
            "gemini" => "--approval-mode yolo",
            _ => "agent command lines",
        };
        assert!(text.contains(permissions), "{text}");
    }
}

#[test]
fn init_uses_the_first_agent_on_path_or_the_requested_one() {
    let project = Project::new();
    let (_, text) = output(with_programs(&project, &["gemini", "codex"], &["init", "a"]));
    assert!(
        text.starts_with("wrote a/RALPH.md for codex (also on PATH: gemini; choose one with --agent)"),
        "{text}"
    );
    let (_, text) = output(with_programs(&project, &[], &["init", "b", "--agent", "gemini"]));
    assert!(text.starts_with("wrote b/RALPH.md for gemini\n"), "{text}");
    let (_, text) = output(with_programs(&project, &[], &["init", "c", "--agent", "claude"]));
    assert!(text.starts_with("wrote c/RALPH.md for claude (it is not on PATH yet)\n"), "{text}");
    let (code, text) = output(with_programs(&project, &[], &["init", "d", "--agent", "hal"]));
    assert_eq!(code, Some(2), "{text}");
    assert!(!project.path("d").exists());
}

#[test]
fn init_never_changes_an_existing_file() {
    let project = Project::new();
    project.file("loop/RALPH.md", "mine");
    let done = project.call(&["init", "loop"]);
    done.assert_code(2);
    assert!(done.stderr.contains("it was not changed") && done.stderr.contains("help: "), "{}", done.stderr);
    assert_eq!(project.read("loop/RALPH.md"), "mine");
    project.file("a-file", "");
    project.call(&["init", "a-file/loop"]).assert_code(2);
}

#[test]
fn the_loop_of_init_without_an_agent_runs_and_goes_idle() {
    let project = Project::new();
    project.call(&["init", "new", "--agent", "sh"]).assert_code(0);
    let done = project.call(&["run", "new", "-n", "1", "--json"]);
    done.assert_code(0);
    assert_eq!(done.count("iteration_idle"), 1);
}

// --- demo -------------------------------------------------------------------------------------------------

fn demo(project: &Project) -> Command {
    let tmp = project.outside("tmp");
    std::fs::create_dir_all(&tmp).expect("a directory");
    let mut command = project.command(&["demo"]);
    command.env("TMPDIR", tmp);
    command
}

#[test]
fn the_demo_shows_every_act_and_leaves_no_process() {
    let project = Project::new();
    let mut demo = kit::Running::start(demo(&project));
    for act in [
        "— the agent works",
        "— the agent is idle: the run waits",
        "backing off to 3s",
        "— a file appears",
        "woken (path)",
        "— the agent hangs",
        "SESSION_CEILING_EXCEEDED",
        "— the agent is idle again: the run ends by itself",
        "— what you saw",
    ] {
        demo.wait_for_line(act);
    }
    let done = demo.finish();
    done.assert_code(0);
    let text = done.text();
    assert_eq!(text.matches("  ✓ ").count(), 7, "{text}");
    assert!(!text.contains('✗') && text.contains("  ✓ no process is left running\n"), "{text}");
    assert_eq!(done.stderr, "");
    project.assert_no_process_left();
    let dir = text
        .lines()
        .find_map(|l| l.strip_prefix("  cd "))
        .expect("the output names the directory of the record");
    let runs = std::path::Path::new(dir).join(".dogwatch/runs");
    assert_eq!(std::fs::read_dir(runs).expect("it is saved").count(), 1);
    assert!(!project.outside("state/dogwatch").exists(), "the home directory is empty");
}

#[test]
fn ctrl_c_in_the_demo_ends_all_processes() {
    for (line, signal, code) in [("iteration 1", Signal::INT, 130), ("backing off to 3s", Signal::TERM, 143)]
    {
        let project = Project::new();
        let mut demo = kit::Running::start(demo(&project));
        demo.wait_for_line(line);
        demo.signal(signal);
        let done = demo.finish();
        done.assert_code(code);
        assert!(done.text().ends_with("demo stopped; no process is left running\n"), "{}", done.text());
        project.assert_no_process_left();
    }
}

#[test]
fn a_demo_that_cannot_be_set_up_fails_with_a_message() {
    let project = Project::new();
    let mut command = project.command(&["demo"]);
    command.env("TMPDIR", project.outside("nowhere"));
    let (code, text) = output(command);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("cannot set up the demo") && text.contains("TMPDIR"), "{text}");
}
