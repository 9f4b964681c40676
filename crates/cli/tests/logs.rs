//! `dogwatch logs` shows the agent's output in readable form, during a session and afterwards.

mod kit;

use kit::{GRACES, Project};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::process::Stdio;

#[test]
fn the_last_or_the_requested_iteration_is_shown() {
    let project = Project::acting("counter count; say part $n done; err warning $n");
    project.run(&["-n", "3"]).assert_code(0);
    let last = project.call(&["logs"]);
    last.assert_code(0);
    let lines: Vec<String> = last.text().lines().map(str::to_owned).collect();
    assert!(lines[0].starts_with("iteration 3  20") && lines[0].ends_with(" UTC"), "{lines:?}");
    assert_eq!(lines[1], "part 3 done");
    assert!(lines[2].starts_with("completed in "), "{lines:?}");
    let first = project.call(&["logs", "-i", "1"]).text();
    assert!(first.contains("iteration 1 ") && first.contains("\npart 1 done\n"), "{first}");
    let stderr = project.call(&["logs", "--stderr"]).text();
    assert!(stderr.contains("\nwarning 3\n") && !stderr.contains("part"), "{stderr}");
    let none = project.call(&["logs", "-i", "9"]);
    none.assert_code(2);
    assert!(none.stderr.contains("has no iteration 9") && none.stderr.contains("the run has 3 iterations"));
}

#[test]
fn a_skipped_idle_iteration_does_not_hide_the_last_output() {
    let front = format!("{GRACES}\nidle: {{delay: 10ms, skip_unchanged: true, stop_after: 3}}");
    let project = Project::acting_with(&front, "say I looked around.; marker idle no_pending_tasks");
    project.run(&[]).assert_code(0);
    let shown = project.call(&["logs"]).text();
    assert!(shown.contains("iteration 1 ") && shown.contains("\nI looked around.\n"), "{shown}");
    let skipped = project.call(&["logs", "-i", "3"]).text();
    assert!(skipped.contains("\n  (the agent was not called)\n"), "{skipped}");
    assert!(skipped.contains("idle (3rd in a row, no_pending_tasks"), "{skipped}");
}

#[test]
fn a_structured_stream_is_shown_as_messages_tools_and_results() {
    let script = "claude init; claude text I look.; claude tool Bash ok 'make test' '13 passed'; \
                  claude tool Edit fail src/a.c 'no such file'; claude result 'All done.'";
    let project = Project::acting_with(&format!("{GRACES}\nreader: claude"), script);
    project.run(&["-n", "1"]).assert_code(0);
    let text = project.call(&["logs"]).text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[1..8],
        [
            "· model claude-sonnet-4-5",
            "I look.",
            "→ Bash: make test",
            "  ✓ 13 passed",
            "→ Edit: src/a.c",
            "  ✗ no such file",
            "All done.",
        ]
    );
    assert!(lines[8].starts_with("= done: ") && lines[8].contains(" tokens, $"), "{text}");
}

#[test]
fn following_shows_each_line_at_once_until_the_run_ends() {
    let project = Project::acting("counter count; say begin $n; ready here; await go; say end $n");
    let (here, go) = (project.fifo("here"), project.gate("go"));
    let run = project.start_run(&["-n", "3"]);
    here.pid();
    let mut logs = project.start(&["logs", "-f"]);
    for n in 1..=3 {
        if n > 1 {
            here.pid();
        }
        // The agent waits at the gate, so this line was not shown because the session ended.
        assert!(n == 1 || logs.wait_for_line("iteration ").contains(&format!("iteration {n} ")));
        logs.wait_for_line(&format!("begin {n}"));
        go.open();
        logs.wait_for_line(&format!("end {n}"));
        logs.wait_for_line("completed in ");
    }
    logs.wait_for_line("clean: 3 of 3 iterations completed");
    let done = logs.finish();
    done.assert_code(0);
    assert_eq!(done.text().matches("begin ").count(), 3, "{}", done.text());
    assert_eq!(done.stderr, "");
    run.finish().assert_code(0);
    project.assert_no_process_left();
}

#[test]
fn following_a_run_that_is_killed_reports_it_and_names_the_next_command() {
    let project = Project::acting("say begin; ready here; hang");
    let here = project.fifo("here");
    let run = project.start_run(&[]);
    here.pid();
    let mut logs = project.start(&["logs", "-f"]);
    logs.wait_for_line("begin");
    run.kill();
    let done = logs.finish();
    done.assert_code(2);
    assert!(done.stderr.contains("stopped responding") && done.stderr.contains("dogwatch resume"));
    project.wait_until_no_process_left();
}

#[test]
fn following_a_run_that_is_over_shows_its_last_iteration() {
    let project = Project::acting("say only this");
    project.run(&["-n", "1"]).assert_code(0);
    let done = project.call(&["logs", "-f"]);
    done.assert_code(0);
    assert!(done.text().contains("\nonly this\n"));
}

#[test]
fn raw_output_is_complete_and_refused_on_a_terminal() {
    let project = Project::acting(r#"raw "\e[31mred\e[0m\x00\xff\n"; print "no end""#);
    project.run(&["-n", "1"]).assert_code(0);
    let raw = project.call(&["logs", "--raw"]);
    raw.assert_code(0);
    assert_eq!(raw.stdout, project.raw(1, "stdout"));
    let shown = project.call(&["logs"]).text();
    assert!(shown.contains("\nred") && shown.contains("\nno end\n"), "{shown:?}");

    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("we own the terminal");
    let name = ptsname(&master, Vec::new()).expect("has a name");
    let slave = rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("opens");
    let mut command = project.command(&["logs", "--raw"]);
    let refused = command.stdout(slave).stderr(Stdio::piped()).output().expect("runs");
    assert_eq!(refused.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(stderr.contains("--raw does not write to a terminal") && stderr.contains("help: "), "{stderr}");
}

// promise: 8
#[test]
fn logs_shows_no_control_characters_for_any_output() {
    let project = Project::acting(
        r#"raw "\e]0;evil\x07\e[2Jgone\u{9b}31m\u{202e}gnp\x08\x08\n"; flood 20k; line 100k"#,
    );
    project.run(&["-n", "1"]).assert_code(0);
    let shown = project.call(&["logs"]).text();
    assert!(!shown.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'));
    assert!(shown.lines().all(|line| line.len() <= 4_100), "lines are clipped");
}

#[test]
fn a_closed_stdout_is_not_an_error() {
    let project = Project::acting("flood 4M");
    project.run(&["-n", "1"]).assert_code(0);
    for args in [&["logs"][..], &["logs", "--raw"]] {
        let mut child =
            project.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        drop(child.stdout.take());
        let done = child.wait_with_output().expect("ends");
        assert_eq!((done.status.code(), done.stderr.as_slice()), (Some(0), &b""[..]));
    }
}

#[test]
fn missing_or_irregular_output_gives_a_note_and_does_not_block() {
    let project = Project::acting("err only trouble");
    project.run(&["-n", "1"]).assert_code(0);
    let shown = project.call(&["logs"]);
    shown.assert_code(0);
    assert!(shown.text().contains("(no output on stdout; --stderr shows 13 B of stderr)"));
    let stdout = project.run_dir().join("loop/000001/stdout");
    mkfifoat(CWD, &stdout, Mode::RUSR | Mode::WUSR).expect("a FIFO");
    let shown = project.call(&["logs"]);
    shown.assert_code(0);
    assert!(shown.text().contains("not a regular file"), "{}", shown.text());
}

#[test]
fn without_a_run_there_is_a_help_line() {
    let done = Project::new().call(&["logs"]);
    done.assert_code(2);
    assert!(done.stderr.contains("no runs in this directory yet"), "{}", done.stderr);
}
