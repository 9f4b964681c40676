//! Agents that attack their keeper. dogwatch still ends every process within its limits, then continues or ends the
//! run.

use crate::kit::{Project, Running, TIMEOUT, all, kinds, one};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Stops the keeper again and again, and ignores all signals but KILL.
const STOPS_FOREVER: &str =
    r#"trap "" INT TERM HUP; (while :; do kill -STOP $PPID; done) & while :; do sleep 1; done"#;

// promise: 3
#[test]
fn an_agent_that_stops_its_keeper_and_exits_completes_its_iteration() {
    let project = Project::shell("kill -STOP $PPID; echo done");
    let began = Instant::now();
    let done = project.run(&["-n", "3"]);
    assert_eq!(done.assert_code(0).end()["completed"], 3);
    assert!(began.elapsed().as_secs() < 20, "a stopped keeper costs at most two checks");
}

// promise: 3
#[test]
fn an_agent_that_stops_its_keeper_again_and_again_is_ended_all_the_same() {
    let project = Project::shell(STOPS_FOREVER);
    let mut run = project.start_run(&[]);
    run.wait_for("session_started");
    // By then the agent ignores signals. An earlier one would end it before it can stop anything.
    wait_until_the_keeper_is_stopped(&project);
    run.signal(Signal::TERM);
    let done = run.finish();
    done.assert_code(143);
    project.assert_no_process_left();
    assert_eq!(one(&done.events(), "session_ended")["signal"], 9);
}

/// A debugger that traces a process, so that not even SIGCONT continues it.
const HOLDER: &str = "
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
held = libc.ptrace(16, int(sys.argv[1]), None, None)
print('held' if held == 0 else 'refused', flush=True)
sys.stdin.read()
";

struct Debugger(Child);

impl Debugger {
    /// Attaches to a process. Prints a message and returns `None` if that is not allowed.
    fn attach(pid: i32) -> Option<Debugger> {
        let mut command = Command::new("python3");
        command.args(["-c", HOLDER, &pid.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 is installed");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("reads");
        let debugger = Debugger(child);
        if line.trim() == "held" {
            return Some(debugger);
        }
        println!("skipped: a process cannot be traced here");
        None
    }
}

impl Drop for Debugger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// promise: 3
#[test]
fn a_keeper_that_cannot_be_continued_is_killed_and_its_processes_are_ended() {
    let project = Project::acting("hold hold; bare { ignore TERM INT HUP; ready kid; hang }; hang");
    let (hold, kid) = (project.fifo("hold"), project.fifo("kid"));
    let run = project.start_run(&[]);
    kid.pid();
    let Some(debugger) = Debugger::attach(project.keeper()) else { return };
    run.signal(Signal::TERM);
    let done = run.finish();
    hold.assert_released();
    done.assert_code(143);
    drop(debugger);
    project.assert_no_process_left();
    let events = done.events();
    assert_eq!((kinds(&events, "keeper_silent").len(), kinds(&events, "keeper_lost").len()), (1, 1));
    assert_eq!(one(&events, "session_ended")["signal"], 9);
}

// promise: 2
#[test]
fn a_keeper_of_a_dead_dogwatch_that_cannot_be_continued_is_killed() {
    let project = Project::acting("counter ../count; on 1 { hold hold; bare { ready kid; hang }; hang }");
    let (hold, kid) = (project.fifo("hold"), project.fifo("kid"));
    let run = project.start_run(&["-n", "1"]);
    kid.pid();
    let Some(debugger) = Debugger::attach(project.keeper()) else { return };
    run.kill();
    let done = project.start(&["resume", "--json"]).finish();
    hold.assert_released();
    done.assert_code(0);
    drop(debugger);
    project.assert_no_process_left();
}

#[test]
fn the_watchdog_ends_an_agent_that_stops_its_keeper_and_the_run_continues() {
    let once = format!("if [ ! -e second ]; then touch second; {STOPS_FOREVER}; fi");
    let project = Project::shell(&once);
    let done = project.run(&["-n", "2", "--timeout", "500ms"]);
    let end = done.assert_code(0).end();
    assert_eq!(end["completed"], 1);
    assert_eq!(all(&done.events(), "hard_stop").len(), 1);
}

#[test]
fn a_stopped_idle_keeper_does_not_delay_the_end() {
    let project = Project::acting("say hi");
    let mut run = project.start_run(&["--delay", "1h"]);
    run.wait_for("wait_started");
    project.signal_keeper(Signal::STOP);
    run.signal(Signal::TERM);
    run.finish().assert_code(143);
    project.assert_no_process_left();
}

// promise: 2
#[test]
fn a_stopped_keeper_of_a_dead_dogwatch_gives_the_lock_back() {
    let project = Project::acting("counter ../count; on 1 { hold hold; bare { ready kid; hang }; hang }");
    let (hold, kid) = (project.fifo("hold"), project.fifo("kid"));
    let run = project.start_run(&["-n", "1"]);
    kid.pid();
    project.signal_keeper(Signal::STOP);
    run.kill();
    project.start(&["resume", "--json"]).finish().assert_code(0);
    hold.assert_released();
    project.assert_no_process_left();
}

// promise: 2
#[test]
fn an_agent_that_outlives_dogwatch_and_stops_its_keeper_again_and_again_is_ended_by_the_next() {
    let once = format!("if [ ! -e second ]; then touch second; {STOPS_FOREVER}; fi");
    let project = Project::shell(&once);
    let mut run = project.start_run(&["-n", "1"]);
    run.wait_for("session_started");
    wait_until_the_keeper_is_stopped(&project);
    run.kill();
    project.start(&["resume", "--json"]).finish().assert_code(0);
    project.assert_no_process_left();
}

/// Waits until a keeper is stopped. dogwatch may end a stopped keeper and start another one meanwhile.
fn wait_until_the_keeper_is_stopped(project: &Project) {
    let until = Instant::now() + TIMEOUT;
    let is_stopped = |pid: i32| {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") T "))
    };
    while !project.find_keeper().is_some_and(is_stopped) {
        assert!(Instant::now() < until, "the agent never stopped its keeper");
        std::thread::yield_now();
    }
}

/// A shell may start background jobs and then replace itself with dogwatch. Its jobs become children of dogwatch that
/// no keeper started.
#[test]
fn background_jobs_of_the_starting_shell_survive_a_lost_keeper() {
    let project = Project::acting("counter count; on 1 { hold hold; orphan { ready kid; hang }; hang }");
    let (hold, kid) = (project.fifo("hold"), project.fifo("kid"));
    let mut shell = Command::new("sh");
    project.set_environment(&mut shell);
    let script = "sleep 300 >/dev/null 2>&1 & echo $! > same
        setsid sleep 300 >/dev/null 2>&1 & echo $! > other
        exec \"$0\" \"$@\"";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_dogwatch"), "run", "loop", "--json", "-n", "2"]);
    let run = Running::start(shell);
    kid.pid();
    project.signal_keeper(Signal::KILL);
    run.finish().assert_code(0);
    hold.assert_released();
    for file in ["same", "other"] {
        let pid = project.read(file);
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).expect("the job survived");
        assert!(!stat.contains(") Z "), "it lives: {stat}");
    }
}
