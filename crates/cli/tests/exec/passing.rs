//! Bytes, exit codes and the environment pass through unchanged.

use super::{actor, command, kit, shell};
use kit::{Project, Running, TIMEOUT};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Instant;

/// Returns 300 kB of a fixed sequence that contains every byte value.
fn bytes() -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let step = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..300_000).map(step).collect()
}

#[test]
fn output_that_cannot_be_written_is_a_reported_failure() {
    let full = || File::options().write(true).open("/dev/full").expect("/dev/full exists");
    for (script, code) in [("echo hi", 1), ("echo hi; exit 3", 3), ("echo hi; sleep 60", 124)] {
        let project = Project::new();
        let mut exec = command(&project, &["--idle", "300ms"], &["sh", "-c", script]);
        let done = exec.stdout(full()).stderr(Stdio::piped()).output().expect("runs");
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(code), "{script}: {stderr}");
        assert!(
            stderr.contains("dogwatch exec: cannot write to stdout: no space left on device"),
            "{stderr}"
        );
        project.assert_no_process_left();
    }
    let project = Project::new();
    let mut exec = command(&project, &[], &["sh", "-c", "echo hi >&2; echo still here"]);
    let done = exec.stdout(Stdio::piped()).stderr(full()).output().expect("runs");
    assert_eq!((done.status.code(), &done.stdout[..]), (Some(1), &b"still here\n"[..]));
}

#[test]
fn a_command_whose_output_is_lost_runs_to_completion() {
    let project = Project::new();
    let script = "for i in 1 2 3 4 5; do echo $i || exit 9; sleep 0.05; done; echo done > witness";
    let full = File::options().write(true).open("/dev/full").expect("/dev/full exists");
    let status = command(&project, &[], &["sh", "-c", script]).stdout(full).status().expect("runs");
    assert_eq!((status.code(), project.read("witness").as_str()), (Some(1), "done\n"));
}

#[test]
fn every_byte_passes_both_ways_and_stderr_stays_separate() {
    let project = Project::new();
    let given = bytes();
    let mut child = command(&project, &[], &["sh", "-c", "tee /dev/stderr"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stdin = child.stdin.take().expect("piped");
    let sent = given.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent));
    let out = child.wait_with_output().expect("ends");
    writer.join().expect("no panic").expect("all input is accepted");
    assert_eq!(out.status.code(), Some(0));
    assert!(given.contains(&0) && out.stdout == given, "stdout has {} bytes", out.stdout.len());
    assert!(out.stderr == given, "stderr has {} bytes", out.stderr.len());
}

#[test]
fn a_file_as_stdin_is_read_only_as_far_as_the_command_reads() {
    let project = Project::new();
    project.file("input", "one\ntwo\nthree\n");
    let input = File::open(project.path("input")).expect("it exists");
    let mut rest = input.try_clone().expect("a descriptor");
    let out = command(&project, &[], &["sh", "-c", "read line; echo got $line"])
        .stdin(Stdio::from(input))
        .output()
        .expect("runs");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "got one\n");
    let mut left = String::new();
    rest.read_to_string(&mut left).expect("reads");
    assert_eq!(left, "two\nthree\n", "the same place in the same file, as without dogwatch");
}

#[test]
fn a_writer_to_stdin_notices_that_the_command_closed_it() {
    let project = Project::new();
    let gate = project.gate("gate");
    let mut child = actor(&project, &[], "close stdin; await gate")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let mut stdin = child.stdin.take().expect("piped");
    let until = Instant::now() + TIMEOUT;
    while stdin.write_all(b"more\n").is_ok() {
        assert!(Instant::now() < until, "a process still holds the pipe");
    }
    gate.open();
    assert_eq!(child.wait().expect("ends").code(), Some(0));
}

#[test]
fn output_is_passed_on_before_its_line_is_complete() {
    let project = Project::new();
    let gate = project.gate("gate");
    let mut child =
        actor(&project, &[], "print no newline; await gate").stdout(Stdio::piped()).spawn().expect("starts");
    let mut seen = [0; 10];
    child.stdout.as_mut().expect("piped").read_exact(&mut seen).expect("comes at once");
    assert_eq!(&seen, b"no newline");
    gate.open();
    assert_eq!(child.wait().expect("ends").code(), Some(0));
}

#[test]
fn lines_keep_their_order_when_both_streams_go_to_one_place() {
    let project = Project::new();
    let script = "i=0; while [ $i -lt 300 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let both = File::create(project.path("both")).expect("a file");
    let status = command(&project, &[], &["sh", "-c", script])
        .stdout(both.try_clone().expect("a descriptor"))
        .stderr(both)
        .status()
        .expect("runs");
    assert_eq!(status.code(), Some(0));
    let wanted: String = (0..300).map(|i| format!("out {i}\nerr {i}\n")).collect();
    assert_eq!(project.read("both"), wanted);
}

#[test]
fn the_exit_code_of_the_command_is_passed_on() {
    for (script, code) in [
        ("exit 0", 0),
        ("exit 1", 1),
        ("exit 124", 124),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
        ("kill -SEGV $$", 139),
    ] {
        let done = shell(&[], script);
        assert_eq!((done.code, done.signal), (Some(code), None), "{script}: {}", done.stderr);
        assert_eq!((done.text().as_str(), done.stderr.as_str()), ("", ""), "{script}");
    }
}

#[test]
fn a_command_that_cannot_be_executed_is_126_and_a_missing_one_127() {
    let project = Project::new();
    project.file("text", "no program");
    for (program, code, words) in [
        ("no-such-program", 127, "no-such-program: no such file or directory\n"),
        ("./no-such-file", 127, "./no-such-file: no such file or directory\n"),
        ("./text", 126, "./text: permission denied\n"),
        ("./loop", 126, "./loop: permission denied\n"),
    ] {
        let done = Running::start(command(&project, &[], &[program])).finish();
        done.assert_code(code);
        assert_eq!(done.text(), "");
        assert!(done.stderr.starts_with(&format!("dogwatch exec: {words}")), "{}", done.stderr);
        assert_eq!(done.stderr.lines().count(), 1);
    }
}

#[test]
fn bad_usage_exits_with_2_and_starts_nothing() {
    let project = Project::new();
    let touch = ["touch", "started"];
    for (options, words) in [
        (&["--bogus"][..], "--bogus"),
        (&["--idle", "soon"], "soon"),
        (&["--idle", "0"], "help: use `--idle off` for no limit"),
        (&["--session", "0s"], "help: use `--session off` for no limit"),
        (&["--set", "watchdog.tool=0"], "`off` means no limit"),
        (&["--profile", "slow"], "quick, standard, deep"),
        (&["--agent", "clod"], "claude"),
        (&["--set", "watchdog.idel=5m"], "idle"),
        (&["--set", "delay=5m"], "watchdog.KEY=VALUE"),
        (&["--workspace", "nowhere"], "help: --workspace DIR is a directory"),
        (&["--json", "nowhere/events"], "nowhere/events"),
        (&["--json", "-"], "stdout belongs to the command"),
    ] {
        let done = Running::start(command(&project, options, &touch)).finish();
        done.assert_code(2);
        assert!(done.stderr.contains(words), "{options:?}: {}", done.stderr);
        assert_eq!(done.text(), "");
    }
    project.call(&["exec"]).assert_code(2);
    project.call(&["exec", "--"]).assert_code(2);
    assert!(!project.path("started").exists());
}

#[test]
fn options_after_the_command_are_passed_to_it() {
    let done = Project::new().call(&["exec", "--idle", "1m", "echo", "--idle", "--version", "--", "-x"]);
    done.assert_code(0);
    assert_eq!(done.text(), "--idle --version -- -x\n");
}

#[test]
fn a_closed_output_pipe_ends_the_command_with_sigpipe() {
    let project = Project::new();
    let mut child = command(&project, &[], &["yes"]).stdout(Stdio::piped()).spawn().expect("starts");
    let mut seen = [0; 4];
    child.stdout.take().expect("piped").read_exact(&mut seen).expect("comes");
    let status = child.wait().expect("ends");
    assert_eq!((status.code(), status.signal()), (Some(141), None), "by SIGPIPE, as under timeout(1)");
    project.assert_no_process_left();
}

#[test]
fn a_slow_reader_gets_all_output_after_the_command_has_exited() {
    let project = Project::new();
    let mut child =
        command(&project, &[], &["seq", "1", "100000"]).stdout(Stdio::piped()).spawn().expect("starts");
    let mut text = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut text).expect("reads");
    assert_eq!(text.lines().count(), 100_000);
    assert!(text.ends_with("\n100000\n"));
    assert_eq!(child.wait().expect("ends").code(), Some(0));
}

#[test]
fn huge_output_arrives_complete() {
    let project = Project::new();
    let size: u64 = if std::env::var_os("DOGWATCH_FULL").is_some() { 1 << 30 } else { 64 << 20 };
    let mut child =
        actor(&project, &[], &format!("flood {size}")).stdout(Stdio::piped()).spawn().expect("starts");
    let mut stdout = child.stdout.take().expect("piped");
    let copied = std::io::copy(&mut stdout, &mut std::io::sink()).expect("reads");
    assert_eq!((copied, child.wait().expect("ends").code()), (size, Some(0)));
}

#[test]
fn the_command_gets_the_environment_and_directory_of_the_caller() {
    let project = Project::new();
    let out = command(&project, &[], &["sh", "-c", "echo $GREETING; pwd -P"])
        .env("GREETING", "good morning")
        .output()
        .expect("runs");
    let here = project.path("").canonicalize().expect("it exists");
    assert_eq!(String::from_utf8_lossy(&out.stdout), format!("good morning\n{}\n", here.display()));
}
