//! What an iteration, a wait, a snapshot and a line cost, as counts. Counts do not depend on the machine or its load, so a
//! regression shows here at once; `scripts/bench` measures times.
//!
//! Every figure is the difference between a short and a longer run, which leaves out the cost of the start.

use crate::kit::skip::skip;
use crate::kit::{Project, Running};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The system calls of the driver's thread in one iteration.
const CALLS_PER_ITERATION: u64 = 98;
/// The allocations of dogwatch in one iteration, without those of its keeper.
const ALLOCATIONS_PER_ITERATION: u64 = 283;
/// The most allocations for 64 KiB of output, which is some 800 lines.
const ALLOCATIONS_PER_PIPE: u64 = 5;
/// The most programs that one iteration starts: the agent, and a shell or a retry.
const PROGRAMS_PER_ITERATION: usize = 2;
/// The most syncs of one iteration, all of them of the journal.
const SYNCS_PER_ITERATION: usize = 2;
/// The most times that a thread of dogwatch or of its keeper goes back to sleep in two seconds in which nothing happens. A
/// look ten times a second would add twenty. The start and the end of a wait are part of it: nine on a busy machine.
const MAX_SWITCHES_AT_REST: u64 = 14;
/// The git programs of a snapshot, without those that git itself starts.
const GITS_PER_SNAPSHOT: usize = 4;
/// The size of a pipe.
const PIPE: usize = 64 * 1024;
/// The most system calls of all threads for 64 KiB of output, the size of a pipe and some 800 lines. A reader that is faster
/// than its agent reads smaller pieces: 135 at most when it was set, 20 on a busy machine.
const CALLS_PER_PIPE: usize = 250;
/// The instructions of a replayed line in the build of CI.
const INSTRUCTIONS_PER_LINE: u64 = 35_600;
/// The most instructions of a replayed line in another build: the compiler inlines less across more codegen units.
const MAX_INSTRUCTIONS_PER_LINE: u64 = 65_000;

/// Asserts that a count is within a tenth of what it was when it was set. A count that has become smaller has to be set again,
/// so that the next regression shows.
#[track_caller]
fn assert_near(count: u64, set: u64, what: &str) {
    let slack = set / 10;
    assert!(count.abs_diff(set) <= slack, "{count} {what}, and {set} when it was set (± {slack})");
}

/// Returns whether the tests were built as `scripts/test` builds them in CI.
fn is_built_for_ci() -> bool {
    let units = std::env::var("CARGO_PROFILE_DEV_CODEGEN_UNITS");
    cfg!(clippy) && units.is_ok_and(|units| units == "1")
}

/// Runs dogwatch under strace and returns its trace, or `None` if nothing can be traced here.
fn traced(project: &Project, options: &[&str], args: &[&str]) -> Option<Vec<String>> {
    let can_trace = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).output();
    if !can_trace.is_ok_and(|out| out.status.success()) {
        skip("strace cannot trace a process here");
        return None;
    }
    let trace = project.outside("trace");
    let mut command = Command::new("strace");
    project.set_environment(&mut command);
    command.args(["-qq", "-o"]).arg(&trace).args(options).arg(env!("CARGO_BIN_EXE_dogwatch")).args(args);
    Running::start(command).finish().assert_code(0);
    let text = std::fs::read(&trace).expect("strace has written it");
    Some(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
}

/// Returns what each of forty more iterations adds to a count of trace lines.
fn per_iteration(project: &Project, options: &[&str], counts: impl Fn(&str) -> bool) -> Option<usize> {
    let count = |n: &str| {
        let trace = traced(project, options, &["run", "loop", "--json", "-n", n])?;
        Some(trace.iter().filter(|line| counts(line)).count())
    };
    let (few, many) = (count("2")?, count("42")?);
    Some(many.saturating_sub(few).div_ceil(40))
}

#[test]
fn an_iteration_costs_few_system_calls_programs_and_syncs() {
    let project = Project::new();
    project.ralph("agent: 'true'", "Go on.");
    let Some(calls) = per_iteration(&project, &[], |_| true) else { return };
    assert_near(calls as u64, CALLS_PER_ITERATION, "system calls of the driver");
    let started = |line: &str| line.contains("execve") && line.ends_with("= 0");
    let programs =
        per_iteration(&project, &["-f", "-e", "trace=execve"], started).expect("it was traced before");
    assert!((1..=PROGRAMS_PER_ITERATION).contains(&programs), "{programs} programs");
    let is_sync = |line: &str| line.contains("sync(");
    let syncs = per_iteration(&project, &["-f", "-e", "trace=fsync,fdatasync"], is_sync).expect("as before");
    assert!((1..=SYNCS_PER_ITERATION).contains(&syncs), "{syncs} syncs");
}

#[test]
fn a_run_does_not_list_the_time_zones_of_the_machine() {
    if !std::path::Path::new("/etc/localtime").exists() {
        return skip("this machine has no /etc/localtime");
    }
    let project = Project::new();
    project.ralph("agent: 'true'\nidle: {delay: 1s}\nbudget: {day: {tokens: 1000}}", "Go on.");
    let options = ["-f", "-E", "TZ", "-e", "trace=openat"];
    let Some(trace) = traced(&project, &options, &["run", "loop", "-n", "1"]) else { return };
    assert!(trace.iter().any(|line| line.contains("/etc/localtime")), "{trace:?}");
    let listed: Vec<&String> = trace.iter().filter(|line| line.contains("zoneinfo")).collect();
    assert!(listed.is_empty(), "{listed:?}");
}

#[test]
fn a_longer_wait_costs_no_more_system_calls() {
    let project = Project::new();
    // A call that waits is what ends a wait: all threads, and the keeper.
    let options = ["-f", "-e", "trace=/^(p?poll|p?select.*|epoll_.*wait.*|(clock_)?nanosleep)$"];
    let waits = |delay: &str| {
        project.ralph(&format!("agent: 'true'\ndelay: {delay}"), "Go on.");
        let trace = traced(&project, &options, &["run", "loop", "--json", "-n", "2"])?;
        Some(trace.iter().filter(|line| !line.contains("resumed>")).count())
    };
    let (Some(short), Some(long)) = (waits("100ms"), waits("1500ms")) else { return };
    // A wait that looked ten times a second would add fourteen.
    assert!(long <= short + 5, "{long} waits with the longer delay, {short} with the shorter");
}

/// Returns how often the threads of dogwatch and its keeper have gone to sleep, whatever call they wait in.
fn switches(project: &Project, run: &Running) -> u64 {
    let of_thread = |task: std::fs::DirEntry| {
        // A thread may end meanwhile.
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.map_or(0, |count| count.trim().parse::<u64>().expect("a number"))
    };
    let of_process = |pid: i32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process is alive");
        tasks.flatten().map(of_thread).sum::<u64>()
    };
    of_process(run.pid()) + of_process(project.keeper())
}

#[test]
fn nothing_wakes_up_while_an_agent_sleeps_or_a_wait_lasts() {
    let project = Project::new();
    project.act("delay: 2s", "ready there; sleep 2s; ready back");
    let (there, back) = (project.fifo("there"), project.fifo("back"));
    let mut run = project.start_run(&["-n", "2"]);
    there.pid();
    run.wait_for("session_started");
    let before = switches(&project, &run);
    back.pid();
    let asleep = switches(&project, &run).saturating_sub(before);
    run.wait_for("wait_started");
    let before = switches(&project, &run);
    run.wait_for("wait_ended");
    let waiting = switches(&project, &run).saturating_sub(before);
    there.pid();
    back.pid();
    run.finish().assert_code(0);
    for (count, when) in [(asleep, "while the agent slept"), (waiting, "in the wait")] {
        assert!(count <= MAX_SWITCHES_AT_REST, "{count} switches {when}");
    }
}

#[test]
fn a_snapshot_starts_four_git_programs() {
    let project = Project::new();
    let found = Command::new("sh").args(["-c", "command -v git"]).output().expect("sh is there");
    let real = String::from_utf8(found.stdout).expect("a path").trim().to_owned();
    let (bin, log) = (project.outside("bin"), project.outside("gits"));
    std::fs::create_dir(&bin).expect("a directory");
    let script = format!("#!/bin/sh\necho call >> {}\nexec {real} \"$@\"\n", log.display());
    std::fs::write(bin.join("git"), script).expect("writes");
    std::fs::set_permissions(bin.join("git"), std::fs::Permissions::from_mode(0o755)).expect("sets");
    for args in [
        &["init", "-q", "."][..],
        &["-c", "user.name=a", "-c", "user.email=a", "commit", "-q", "--allow-empty", "-m", "a"],
    ] {
        let mut git = Command::new(&real);
        project.set_environment(&mut git);
        assert!(git.args(args).status().expect("git is installed").success());
    }
    project.ralph("agent: sh -c 'cat >/dev/null; echo more >>file'", "Go on.");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let gits = |n: &str| {
        let _ = std::fs::remove_file(&log);
        let mut command = project.command(&["run", "loop", "--json", "-n", n]);
        command.env("PATH", &path);
        let done = Running::start(command).finish();
        assert_eq!(done.assert_code(0).count("snapshot_taken"), n.parse::<usize>().expect("a number") + 1);
        std::fs::read_to_string(&log).expect("git was called").lines().count()
    };
    assert_eq!(gits("3") - gits("1"), 2 * GITS_PER_SNAPSHOT);
}

#[test]
fn output_is_read_in_pieces_and_not_by_line() {
    let project = Project::new();
    let calls = |bytes: usize| {
        project.act("", &format!("flood {bytes}"));
        Some(traced(&project, &["-f"], &["run", "loop", "--json", "-n", "1"])?.len())
    };
    let (Some(small), Some(large)) = (calls(8 * PIPE), calls(72 * PIPE)) else { return };
    // The agent's own calls are traced as well.
    let more = large.saturating_sub(small).div_ceil(64);
    assert!(more <= CALLS_PER_PIPE, "{more} system calls for 64 KiB of output");
}

/// Counts the allocations of a process, and writes the count with its pid when the process exits. Valgrind cannot run a run: it
/// hides the kernel's page of functions, which reads the clock.
const COUNTER: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
static unsigned long count;
#define COUNT __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED)
void *malloc(size_t n) { COUNT; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { COUNT; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { COUNT; return __libc_realloc(p, n); }
__attribute__((destructor)) static void report(void) {
    char line[64];
    int length = snprintf(line, sizeof line, "%d %lu\n", getpid(), count);
    int file = open(getenv("ALLOCATIONS"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (write(file, line, length) != length) _exit(9);
}
"#;

/// Compiles the counter, or returns `None` if it cannot count here.
fn counter(project: &Project) -> Option<PathBuf> {
    let (source, library) = (project.outside("counter.c"), project.outside("counter.so"));
    std::fs::write(&source, COUNTER).expect("writes");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    if cfg!(not(target_env = "gnu")) || !built.is_ok_and(|status| status.success()) {
        skip("allocations are counted with cc and glibc");
        return None;
    }
    Some(library)
}

/// Returns the allocations of a run.
fn allocations(project: &Project, counter: &Path, n: &str) -> u64 {
    let counts = project.outside("allocations");
    let _ = std::fs::remove_file(&counts);
    let mut command = project.command(&["run", "loop", "--json", "-n", n]);
    command.env("LD_PRELOAD", counter).env("ALLOCATIONS", &counts);
    let run = Running::start(command);
    let pid = run.pid().to_string();
    run.finish().assert_code(0);
    let text = std::fs::read_to_string(&counts).expect("the processes have reported");
    let own = text.lines().find_map(|line| line.strip_prefix(&pid)?.strip_prefix(' '));
    own.expect("dogwatch has reported").parse().expect("a number")
}

#[test]
fn an_iteration_costs_few_allocations_and_a_line_of_output_none() {
    let project = Project::new();
    project.ralph("agent: 'true'", "Go on.");
    let Some(counter) = counter(&project) else { return };
    let more = allocations(&project, &counter, "12") - allocations(&project, &counter, "2");
    assert_near(more / 10, ALLOCATIONS_PER_ITERATION, "allocations in an iteration");
    let flooded = |bytes: usize| {
        project.act("", &format!("flood {bytes}"));
        allocations(&project, &counter, "1")
    };
    let more = flooded(72 * PIPE).saturating_sub(flooded(8 * PIPE)) / 64;
    assert!(more <= ALLOCATIONS_PER_PIPE, "{more} allocations for 64 KiB of output");
}

/// Returns a figure that valgrind prints about a replay of this many lines.
fn replayed(project: &Project, lines: u64, tool: &[&str], before: &str) -> Option<u64> {
    let line = |n: u64| {
        let said = format!(
            r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"step {n}"}}]}}}}"#
        );
        format!("{}\n", serde_json::json!({"t_ms": n * 3, "line": said}))
    };
    project.file("timeline", &(0..lines).map(line).collect::<String>());
    let mut command = Command::new("valgrind");
    project.set_environment(&mut command);
    command
        .args(tool)
        .arg(env!("CARGO_BIN_EXE_dogwatch"))
        .args(["replay", "timeline", "--agent", "claude", "--json"]);
    let Ok(out) = command.output() else {
        skip("valgrind is not installed");
        return None;
    };
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{text}");
    let rest = text.split_once(before).unwrap_or_else(|| panic!("no `{before}` in {text}")).1;
    let number: String = rest.trim_start().chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
    Some(number.replace(',', "").parse().expect("a number"))
}

#[test]
fn a_replayed_line_costs_no_allocation_and_few_instructions() {
    let project = Project::new();
    let per_line = |tool: &[&str], before: &str| {
        let (few, many) = (replayed(&project, 100, tool, before)?, replayed(&project, 600, tool, before)?);
        Some((many - few) / 500)
    };
    let Some(allocations) = per_line(&["--leak-check=no"], "total heap usage:") else { return };
    assert_eq!(allocations, 0, "for one line");
    let callgrind = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let instructions = per_line(&callgrind, "Collected :").expect("valgrind is installed");
    if is_built_for_ci() {
        assert_near(instructions, INSTRUCTIONS_PER_LINE, "instructions for one line");
    }
    assert!(instructions <= MAX_INSTRUCTIONS_PER_LINE, "{instructions} instructions for one line");
}
