//! Invalid usage and invalid files: exit code 2, nothing started, and a helpful message.

use crate::kit::{Done, GRACES, Project, Running};
use std::process::Stdio;

/// Asserts that `run` and `check` refuse this frontmatter and start nothing.
fn refused(front: &str) -> Done {
    let project = Project::new();
    project.act(front, "append starts $pid");
    project.call(&["check", "loop"]).assert_code(2);
    let done = project.call(&["run", "loop", "-n", "1"]);
    done.assert_code(2);
    assert!(done.stdout.is_empty(), "{}", done.text());
    assert!(!project.path("starts").exists() && !project.path(".dogwatch").exists(), "nothing was started");
    done
}

#[test]
fn loop_11_invalid_yaml_is_shown_with_file_line_column_and_source() {
    let done = refused("delay: [1, 2");
    assert!(done.stderr.contains("loop/RALPH.md:"), "{}", done.stderr);
    assert!(done.stderr.contains("delay: [1, 2"), "{}", done.stderr);
}

#[test]
fn absurd_durations_are_refused_with_their_location() {
    for value in ["-1s", "0.0000001x", "999999999999999999999d", ".nan", "'1e400'", "[]", "''"] {
        let done = refused(&format!("watchdog:\n  session: {value}"));
        assert!(done.stderr.contains("loop/RALPH.md:4:12"), "{value}: {}", done.stderr);
    }
}

#[test]
fn absurd_durations_in_flags_are_refused_with_the_flag() {
    let project = Project::acting("say hi");
    for flag in ["--delay", "--timeout"] {
        for value in ["-5", "soon", "99999999999999999999999", ""] {
            let done = project.call(&["run", "loop", flag, value]);
            done.assert_code(2);
            assert!(done.stderr.contains(flag), "{}", done.stderr);
        }
    }
    for n in ["-1", "0", "many", "1.5"] {
        project.call(&["run", "loop", "-n", n]).assert_code(2);
    }
}

#[test]
fn a_mistake_in_the_command_line_has_a_message_for_people_and_a_help_line() {
    let project = Project::acting("say hi");
    std::fs::write(project.path("empty"), "").expect("writes");
    for (args, words) in [
        (&["rnu"][..], "help: a similar subcommand exists: 'run'"),
        #[cfg(feature = "fleet")]
        (&["fleet", "status"], "help: a similar subcommand exists: 'ls'"),
        (&["version"], "help: a similar argument exists: '--version'"),
        #[cfg(feature = "fleet")]
        (&["submit", "loop"], "help: this command needs a fleet; `dogwatch fleet init`"),
        #[cfg(feature = "fleet")]
        (&["work", "foo", "--allow-repo", "x"], "foo is neither a join line nor a readable file"),
        (&["verdict", "x", "wrong", "--right"], "'wrong' for '<N>': expected a whole number"),
        (&["history", "--limit", "x"], "'x' for '--limit <N>': expected a whole number"),
        (&["check", "/dev/null"], "help: PATH is a directory with a RALPH.md"),
        (&["init", "empty/below"], "help: use a directory that you can write to"),
        (&["run", "loop", "-n", "0"], "help: `off` means no limit"),
        (&["forecast", "--trace", "empty"], "help: --trace FILE has one arrival per line"),
    ] {
        let done = project.call(args);
        done.assert_code(2);
        assert!(done.stderr.contains(words), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn loop_26_an_unknown_key_is_a_warning_and_an_error_within_our_blocks() {
    let project = Project::acting_with(&format!("{GRACES}\ntitle: x"), "say hi");
    let done = project.run(&["-n", "1"]);
    done.assert_code(0);
    assert!(done.stderr.contains("unknown key `title`"), "{}", done.stderr);
    assert_eq!(done.events().len(), done.text().lines().count(), "the warning is not on stdout");
    for (wrong, meant) in [
        ("watchdog: {sesion: 5m}", "session"),
        ("bugdet: {cost_usd: 5}", "budget"),
        ("done_wen: make test", "done_when"),
    ] {
        let done = refused(wrong);
        assert!(done.stderr.contains(&format!("did you mean `{meant}`?")), "{}", done.stderr);
    }
}

#[test]
fn loop_15_and_17_a_missing_agent_is_reported_before_anything_starts() {
    let project = Project::new();
    for (front, wanted) in [
        ("delay: 1s", "agent"),
        ("agent: ''", "agent"),
        ("agent: no-such-agent-at-all --x", "not found on PATH"),
        ("agent: ./missing", "not an executable file"),
    ] {
        project.ralph(front, "Go.");
        let done = project.call(&["run", "loop"]);
        done.assert_code(2);
        assert!(done.stderr.contains(wanted), "{front}: {}", done.stderr);
        assert!(!project.path(".dogwatch").exists());
    }
}

#[test]
fn check_reports_a_missing_agent_together_with_all_other_errors() {
    let project = Project::new();
    let gone = "agent: no-such-agent-at-all";
    for (front, wanted) in [
        (format!("{gone}\ndelay: soon"), "`delay` must be a duration"),
        (format!("{gone}\ndone_when: ['true']\npin: ['nothing/*']"), "pin `nothing/*` matches no file"),
    ] {
        project.ralph(&front, "Go.");
        let done = project.call(&["check", "loop"]);
        done.assert_code(2);
        for wanted in [wanted, "`no-such-agent-at-all` was not found on PATH"] {
            assert!(done.stderr.contains(wanted), "{front}: {}", done.stderr);
        }
    }
}

#[test]
fn a_missing_path_is_exit_code_2_with_a_help_line() {
    let project = Project::new();
    for path in ["nowhere", "loop"] {
        let done = project.call(&["run", path]);
        done.assert_code(2);
        assert!(done.stderr.contains("error: ") && done.stderr.contains("help: "), "{}", done.stderr);
    }
    for args in [&["run"][..], &["walk"], &["run", "loop", "--fast"]] {
        project.call(args).assert_code(2);
    }
}

#[test]
fn a_binary_or_oversized_loop_file_is_exit_code_2() {
    let project = Project::new();
    std::fs::write(project.path("loop/RALPH.md"), b"---\nagent: x\n---\n\xff\xfe").expect("writes");
    project.call(&["run", "loop"]).assert_code(2);
    project.file("loop/RALPH.md", &format!("---\nagent: 'true'\n---\n{}", "x".repeat(2 << 20)));
    project.call(&["run", "loop"]).assert_code(2);
    rustix::fs::mkfifoat(rustix::fs::CWD, project.path("pipe"), rustix::fs::Mode::RUSR).expect("a FIFO");
    project.call(&["run", "pipe"]).assert_code(2);
}

#[test]
fn help_and_version_are_exit_code_0_on_stdout() {
    let project = Project::new();
    for args in [&["--help"][..], &["--version"], &["run", "--help"], &["completions", "bash"], &["man"]] {
        let done = project.call(args);
        done.assert_code(0);
        assert!(!done.stdout.is_empty() && done.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn a_closed_stdout_does_not_panic() {
    let project = Project::acting("say hi");
    let gone = || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        Stdio::from(writer)
    };
    let calls = [
        (&["run", "loop", "-n", "2"][..], 0),
        (&["run", "loop", "-n", "2", "--json"], 0),
        (&["run", "no"], 2),
    ];
    let more = [(&["--help"][..], 0), (&["man"], 0), (&["check", "loop", "--explain"], 0), (&["what"], 2)];
    for (args, code) in calls.into_iter().chain(more) {
        let status = project.command(args).stdout(gone()).stderr(gone()).status().expect("starts");
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
    assert_eq!(project.journal().last().expect("events")["event"], "run_ended");
}

#[test]
fn a_blocked_stdout_does_not_block_the_run() {
    let project = Project::acting("say hi");
    for json in [&["--json"][..], &[]] {
        let args = [&["run", "loop", "-n", "40"], json].concat();
        let mut command = project.command(&args);
        let (reader, writer) = std::io::pipe().expect("a pipe");
        rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("may be made smaller");
        let mut child = command.stdout(writer).spawn().expect("starts");
        drop(command);
        // Nothing was read, and the run ends nevertheless.
        let code = child.wait().expect("the child can be reaped").code();
        drop(reader);
        assert_eq!(code, Some(0));
        assert_eq!(project.journal().last().expect("events")["completed"], 40);
    }
}

#[test]
fn a_loop_can_run_with_an_empty_environment() {
    let project = Project::acting("say hi");
    let mut command = project.command(&["run", "loop", "-n", "1"]);
    command.env_clear().env("XDG_STATE_HOME", project.outside("state"));
    Running::start(command).finish().assert_code(0);
}

#[test]
fn run_and_check_use_the_loop_in_the_current_directory_and_the_agent_of_the_flag() {
    let project = Project::new();
    project.file("RALPH.md", "---\nagent: no-such-agent-at-all\nreader: claude\n---\nGo.\n");
    project.call(&["check"]).assert_code(2);
    let done = project.call(&["check", "--agent", "cat -u", "--explain"]);
    done.assert_code(0);
    assert!(done.text().contains("agent `cat -u` read as plain"), "{}", done.text());
    assert!(done.text().contains("flag --agent"), "{}", done.text());
    project.call(&["run", "--agent", "cat", "-n", "1"]).assert_code(0);
    project.file("PROMPT.md", "Go.\n");
    project.call(&["run", "PROMPT.md", "--agent", "cat", "-n", "1"]).assert_code(0);
}

#[test]
fn the_end_of_an_id_selects_a_run_of_this_project_first() {
    let (here, there) = (Project::acting("say hi"), Project::acting("say hi"));
    for project in [&here, &there] {
        project.run(&["-n", "1"]).assert_code(0);
    }
    let dir = there.run_dir();
    let id = dir.file_name().and_then(|name| name.to_str()).expect("an id").to_owned();
    // One character is enough in its own project, where it is unique, but not elsewhere.
    let last = &id[id.len() - 1..];
    let is_digit = last.bytes().all(|b| b.is_ascii_digit());
    // A short number is taken for the number of an iteration.
    there.call(&["status", last]).assert_code(if is_digit { 2 } else { 0 });
    there.call(&["status", &id[id.len() - 3..]]).assert_code(0);
    let done = here.call(&["status", "zz"]);
    assert!(done.assert_code(2).stderr.contains("need 4 characters"), "{}", done.stderr);
}
