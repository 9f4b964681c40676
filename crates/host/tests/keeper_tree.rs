//! Tests the keeper with real processes: no process that a job started outlives the job.
//!
//! Each test proves this with the stderr of the job: every descendant inherits it, so its end of file shows that the
//! last of them is gone.

#![allow(clippy::wildcard_enum_match_arm, reason = "tests look at a few variants")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use dogwatch_host::process::keeper::{self, Exit, Order, Report};
use dogwatch_host::process::pump::{Pump, Sink, pipes};
use rustix::io::Errno;
use rustix::process::Signal;

#[path = "keeper_rig.rs"]
mod rig;
use rig::{emptied, exited, next, read_to_end, read_until, ready_keeper, start, start_role, started};

fn main() -> ExitCode {
    rig::play_or_test(tests![
        second_job_is_refused_while_the_first_is_there,
        interrupt_and_terminate_reach_the_group,
        terminate_reaches_processes_left_by_the_main_process,
        stopped_child_ends_by_terminate_sweep_and_kill,
        sweep_of_an_empty_tree_is_answered_immediately,
        sweep_waits_for_the_grace_and_no_longer,
        daemon_is_gone_after_sweep,
        daemon_is_gone_after_kill,
        daemon_is_gone_after_shut_down,
        daemon_is_gone_after_the_supervisor_was_killed,
        daemon_is_gone_after_an_order_to_end,
        rabbit_is_gone_after_kill,
        rabbit_is_gone_after_sweep,
        rabbit_is_gone_after_the_supervisor_was_killed,
        garbage_ends_everything,
        prompt_and_errors_cross_without_deadlock,
        a_prompt_that_is_not_read_is_not_an_error,
        a_child_may_outlive_its_closed_streams,
        grandchild_that_holds_stdout_delays_nothing,
    ])
}

// promise: 1
fn second_job_is_refused_while_the_first_is_there() {
    let mut keeper = ready_keeper();
    let ends = start_role(&mut keeper, 1, &["daemon"]);
    started(&mut keeper);
    assert_eq!(exited(&mut keeper), (Exit::Code(0), false));
    let _second = start(&mut keeper, 2, &["true"]);
    let busy = Errno::BUSY.raw_os_error();
    let refused = next(&mut keeper);
    assert!(matches!(refused, Report::Refused { job: 2, errno, .. } if errno == busy), "{refused:?}");
    keeper.send(Order::Kill).expect("the keeper reads");
    assert_eq!(emptied(&mut keeper), 1);
    read_to_end(&ends.stderr);
    let _third = start(&mut keeper, 3, &["true"]);
    started(&mut keeper);
}

fn interrupt_and_terminate_reach_the_group() {
    let mut keeper = ready_keeper();
    for (order, signal) in [(Order::Interrupt, 2), (Order::Terminate, 15)] {
        let ends = start(&mut keeper, 1, &["sh", "-c", "echo ready; sleep 20; true"]);
        started(&mut keeper);
        read_until(&ends.stdout, b"ready");
        keeper.send(order).expect("the keeper reads");
        assert_eq!(exited(&mut keeper).0, Exit::Signal(signal));
        keeper.send(Order::Kill).expect("the keeper reads");
        emptied(&mut keeper);
        read_to_end(&ends.stderr);
    }
}

fn terminate_reaches_processes_left_by_the_main_process() {
    let mut keeper = ready_keeper();
    let ends = start_role(&mut keeper, 1, &["heir"]);
    started(&mut keeper);
    assert_eq!(exited(&mut keeper), (Exit::Code(0), false));
    keeper.send(Order::Terminate).expect("the keeper reads");
    read_to_end(&ends.stderr);
    keeper.send(Order::Kill).expect("the keeper reads");
    emptied(&mut keeper);
}

// promise: 1
fn stopped_child_ends_by_terminate_sweep_and_kill() {
    let mut keeper = ready_keeper();
    for order in [Order::Terminate, Order::Sweep { grace: rig::PATIENCE }, Order::Kill] {
        let signal = if matches!(order, Order::Kill) { 9 } else { 15 };
        let asked = !matches!(order, Order::Terminate);
        let ends = start_role(&mut keeper, 1, &["stop"]);
        started(&mut keeper);
        read_until(&ends.stdout, b"ready");
        keeper.send(order).expect("the keeper reads");
        assert_eq!(exited(&mut keeper), (Exit::Signal(signal), true));
        if asked {
            assert_eq!(emptied(&mut keeper), 0);
        }
        read_to_end(&ends.stderr);
    }
}

fn sweep_of_an_empty_tree_is_answered_immediately() {
    let mut keeper = ready_keeper();
    let _ends = start(&mut keeper, 1, &["true"]);
    started(&mut keeper);
    exited(&mut keeper);
    for order in [Order::Sweep { grace: rig::PATIENCE }, Order::Kill] {
        keeper.send(order).expect("the keeper reads");
        assert_eq!(next(&mut keeper), Report::Empty { job: 1, killed: 0, names: Vec::new() });
    }
}

// promise: 3
fn sweep_waits_for_the_grace_and_no_longer() {
    let mut keeper = ready_keeper();
    // Exits on TERM immediately: the test must not wait for the whole grace of half a minute.
    let ends = start_role(&mut keeper, 1, &["heir"]);
    started(&mut keeper);
    assert_eq!(exited(&mut keeper), (Exit::Code(0), false));
    let asked = Instant::now();
    keeper.send(Order::Sweep { grace: rig::PATIENCE }).expect("the keeper reads");
    assert_eq!(emptied(&mut keeper), 1);
    assert!(asked.elapsed() < rig::PATIENCE / 2);
    read_to_end(&ends.stderr);
    // Ignores TERM: it gets its full grace period.
    let grace = Duration::from_millis(200);
    let ends = start_role(&mut keeper, 2, &["daemon"]);
    started(&mut keeper);
    exited(&mut keeper);
    let asked = Instant::now();
    keeper.send(Order::Sweep { grace }).expect("the keeper reads");
    assert_eq!(emptied(&mut keeper), 1);
    assert!(asked.elapsed() >= grace);
    read_to_end(&ends.stderr);
}

// promise: 1
fn daemon_is_gone_after_sweep() {
    let mut keeper = ready_keeper();
    for role in ["daemon", "bare-daemon"] {
        let ends = start_role(&mut keeper, 1, &[role]);
        started(&mut keeper);
        assert_eq!(exited(&mut keeper), (Exit::Code(0), false));
        keeper.send(Order::Sweep { grace: Duration::from_millis(20) }).expect("the keeper reads");
        assert_eq!(emptied(&mut keeper), 1);
        assert_eq!(read_to_end(&ends.stderr), b"");
    }
}

// promise: 1
fn daemon_is_gone_after_kill() {
    let mut keeper = ready_keeper();
    let ends = start_role(&mut keeper, 1, &["daemon-and-stay"]);
    started(&mut keeper);
    read_until(&ends.stdout, b"readyready");
    keeper.send(Order::Kill).expect("the keeper reads");
    assert_eq!(exited(&mut keeper).0, Exit::Signal(9));
    emptied(&mut keeper);
    assert_eq!(read_to_end(&ends.stderr), b"");
}

// promise: 1
fn daemon_is_gone_after_shut_down() {
    let mut keeper = ready_keeper();
    let ends = start_role(&mut keeper, 1, &["daemon"]);
    started(&mut keeper);
    read_until(&ends.stdout, b"ready");
    keeper.shut_down().expect("all can be ended");
    assert_eq!(read_to_end(&ends.stderr), b"");
}

/// Runs a supervisor as a child of the test, kills it with SIGKILL and waits until no process holds its stderr.
fn kill_supervisor_of(role: &str) {
    let pipes = pipes().expect("three pipes");
    let [stdin, stdout, stderr] = pipes.child;
    let mut supervisor = Command::new("/proc/self/exe")
        .args(["role", "supervisor", role])
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .expect("this binary runs");
    read_until(&pipes.parent.stdout, b"ready");
    supervisor.kill().expect("it lives");
    supervisor.wait().expect("it is ours");
    assert_eq!(read_to_end(&pipes.parent.stderr), b"");
    // Its keeper has become a child of this process and has closed its last descriptor. Only its exit status is left.
    rustix::process::wait(rustix::process::WaitOptions::empty()).expect("the keeper is our child now");
}

// promise: 1
fn daemon_is_gone_after_the_supervisor_was_killed() {
    kill_supervisor_of("daemon");
    kill_supervisor_of("bare-daemon");
}

// promise: 1
fn rabbit_is_gone_after_the_supervisor_was_killed() {
    kill_supervisor_of("rabbit");
}

// promise: 1
fn daemon_is_gone_after_an_order_to_end() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut keeper = ready_keeper();
        let ends = start_role(&mut keeper, 1, &["daemon"]);
        started(&mut keeper);
        read_until(&ends.stdout, b"ready");
        rig::signal_keeper(&keeper, signal);
        assert_eq!(read_to_end(&ends.stderr), b"");
        keeper.shut_down().expect("it has ended by itself");
    }
}

// promise: 1
fn rabbit_is_gone_after_kill() {
    let mut keeper = ready_keeper();
    for _ in 0..5 {
        let ends = start_role(&mut keeper, 1, &["rabbit"]);
        started(&mut keeper);
        assert_eq!(exited(&mut keeper), (Exit::Code(0), false));
        keeper.send(Order::Kill).expect("the keeper reads");
        assert!(emptied(&mut keeper) >= 1);
        assert_eq!(read_to_end(&ends.stderr), b"");
    }
}

// promise: 1
fn rabbit_is_gone_after_sweep() {
    let mut keeper = ready_keeper();
    let ends = start_role(&mut keeper, 1, &["rabbit"]);
    started(&mut keeper);
    assert_eq!(exited(&mut keeper), (Exit::Code(0), false));
    keeper.send(Order::Sweep { grace: Duration::from_millis(50) }).expect("the keeper reads");
    assert!(emptied(&mut keeper) >= 1);
    assert_eq!(read_to_end(&ends.stderr), b"");
}

// promise: 1
/// Sends a keeper invalid frames, invalid orders, and an order without its descriptors.
fn garbage_ends_everything() {
    let cases: [&[u8]; 4] = [b"\xff\xff\xff\xff", b"\x01\0\0\0\xee", b"\x01\0\0\0\x01", b"\x02\0\0\0\x05\0"];
    for garbage in cases {
        let (mut ours, theirs) = UnixStream::pair().expect("a socket");
        let mut child = Command::new("/proc/self/exe")
            .arg(keeper::ARGUMENT)
            .stdin(std::os::fd::OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("this binary runs");
        ours.write_all(garbage).expect("it reads");
        let mut answer = Vec::new();
        ours.set_read_timeout(Some(rig::PATIENCE)).expect("a bound");
        // `Ready`, then end of file; or a reset if the keeper exited without reading everything.
        let _ = ours.read_to_end(&mut answer);
        assert!(child.wait().expect("it ends").success(), "{garbage:?}");
    }
}

#[derive(Default)]
struct Kept {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Sink for Kept {
    fn stdout(&mut self, bytes: &[u8]) {
        self.stdout.extend_from_slice(bytes);
    }
    fn stderr(&mut self, bytes: &[u8]) {
        self.stderr.extend_from_slice(bytes);
    }
}

fn prompt_and_errors_cross_without_deadlock() {
    let mut keeper = ready_keeper();
    let ends = start_role(&mut keeper, 1, &["talk"]);
    let pump = Pump::start(ends, vec![b'p'; 200_000], Kept::default(), || {}).expect("a thread");
    started(&mut keeper);
    assert_eq!(exited(&mut keeper), (Exit::Code(0), true));
    let kept = pump.join();
    assert_eq!((kept.stdout.as_slice(), kept.stderr.len()), (&b"200000"[..], 200_000));
}

fn a_prompt_that_is_not_read_is_not_an_error() {
    let mut keeper = ready_keeper();
    let ends = start(&mut keeper, 1, &["echo", "hello"]);
    // More than any pipe holds.
    let pump = Pump::start(ends, vec![b'p'; 4 << 20], Kept::default(), || {}).expect("a thread");
    started(&mut keeper);
    assert_eq!(exited(&mut keeper), (Exit::Code(0), true));
    assert_eq!(pump.join().stdout, b"hello\n");
}

fn a_child_may_outlive_its_closed_streams() {
    let mut keeper = ready_keeper();
    let mut ends = start_role(&mut keeper, 1, &["mute"]);
    let stdin = ends.stdin.take();
    let (done, is_done) = std::sync::mpsc::channel();
    let pump = Pump::start(ends, Vec::new(), Kept::default(), move || {
        done.send(()).expect("the test waits");
    })
    .expect("a thread");
    started(&mut keeper);
    is_done.recv_timeout(rig::PATIENCE).expect("both streams have ended");
    pump.join();
    assert_eq!(keeper.receive().expect("the keeper lives"), None, "the child lives");
    drop(stdin);
    assert_eq!(exited(&mut keeper), (Exit::Code(0), true));
}

// promise: 1
fn grandchild_that_holds_stdout_delays_nothing() {
    let mut keeper = ready_keeper();
    let ends = start_role(&mut keeper, 1, &["heir"]);
    let pump = Pump::start(ends, Vec::new(), Kept::default(), || {}).expect("a thread");
    started(&mut keeper);
    assert_eq!(exited(&mut keeper), (Exit::Code(0), false));
    pump.stop();
    assert_eq!(pump.join().stdout, b"bye");
    keeper.send(Order::Sweep { grace: rig::PATIENCE }).expect("the keeper reads");
    assert_eq!(emptied(&mut keeper), 1);
}
