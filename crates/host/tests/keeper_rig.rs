//! Support for the process tests: a `main` that is a test runner, a keeper or a misbehaving child, and a check after
//! each test that no process is left.
//!
//! The test process is a child subreaper. A process that escapes a keeper becomes its child, is found by `waitpid`
//! after the test, fails the test, and is killed. Every misbehaving role also exits by itself after a while, so that
//! even a killed test run leaves no process behind.

#![allow(clippy::wildcard_enum_match_arm, reason = "tests look at a few variants")]
#![allow(dead_code)]

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use dogwatch_host::process::keeper::{self, Exit, Keeper, Order, Report, StartOrder};
use dogwatch_host::process::pump::{ParentEnds, pipes};
use dogwatch_host::sys::{self, Forked, Waited};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal};

/// How long a test waits for one event: far more than needed, even on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long a misbehaving child lives before it exits by itself.
const MAX_AGE: Duration = Duration::from_secs(20);

/// The name and the function of a test.
pub type Test = (&'static str, fn());

/// Lists the test functions with their names.
#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name as fn())),*] };
}

/// Runs the role named by the first argument, or the tests if there is none.
pub fn play_or_test(tests: &[Test]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(keeper::ARGUMENT) => keeper::main(),
        Some("role") => play(&arguments[1..]),
        _ => run(tests, &arguments),
    }
}

/// Supports the arguments of the standard test runner that cargo and nextest use.
fn run(tests: &[Test], arguments: &[String]) -> ExitCode {
    // `--format terse`, as nextest asks for it, is one flag and not a flag and the name of a test.
    let mut before = "";
    let (flags, names): (Vec<&String>, Vec<&String>) = arguments.iter().partition(|one| {
        let value = std::mem::replace(&mut before, one) == "--format";
        value || one.starts_with('-')
    });
    let flag = |name: &str| flags.iter().any(|flag| *flag == name);
    let exact = flag("--exact");
    let named = |name: &str, test: &str| if exact { name == test } else { test.contains(name) };
    let chosen = |test: &&Test| match names.as_slice() {
        [] => true,
        names => names.iter().any(|name| named(name, test.0)),
    };
    // No test here is ignored by default.
    let tests: Vec<&Test> = tests.iter().filter(|_| !flag("--ignored")).filter(chosen).collect();
    if flag("--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let me = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(me)).expect("Linux has subreapers since 3.4");
    let failed = tests.iter().filter(|test| !passes(test)).count();
    println!("{} passed, {failed} failed", tests.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn passes((name, test): &Test) -> bool {
    let ended = std::panic::catch_unwind(test).is_ok();
    let left = end_leftovers();
    let passed = ended && left == 0;
    println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    if left > 0 {
        println!("    {left} processes were left");
    }
    passed
}

/// Kills and reaps every child of this process. Returns how many there were.
fn end_leftovers() -> usize {
    let mut left = 0;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        match sys::wait_any().expect("wait4 does not fail otherwise") {
            Waited::NoChild => return left,
            Waited::Reaped(_) => left += 1,
            Waited::NotYet => kill_children(),
        }
    }
    left.max(1)
}

fn kill_children() {
    for task in std::fs::read_dir("/proc/self/task").expect("proc is mounted").flatten() {
        let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for pid in list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// Returns an order to start a role of this binary with the given stdin, stdout and stderr.
fn role_order(job: u64, role: &[&str], stdio: [OwnedFd; 3]) -> StartOrder {
    let me = std::env::current_exe().expect("proc is mounted");
    let me = me.to_str().expect("cargo builds below a path of plain characters");
    let argv = [me, "role"].iter().chain(role).map(|argument| argument.as_bytes().to_vec()).collect();
    StartOrder { job, argv, env: Vec::new(), cwd: "/".into(), stdio }
}

/// Starts a role of this binary under a keeper. Returns the parent's ends of its pipes.
pub fn start_role(keeper: &mut Keeper, job: u64, role: &[&str]) -> ParentEnds {
    let pipes = pipes().expect("three pipes");
    keeper.send(Order::Start(role_order(job, role, pipes.child))).expect("the keeper reads");
    pipes.parent
}

/// Starts a program under a keeper. Returns the parent's ends of its pipes.
pub fn start(keeper: &mut Keeper, job: u64, argv: &[&str]) -> ParentEnds {
    let pipes = pipes().expect("three pipes");
    let argv = argv.iter().map(|argument| argument.as_bytes().to_vec()).collect();
    let order = StartOrder { job, argv, env: Vec::new(), cwd: "/".into(), stdio: pipes.child };
    keeper.send(Order::Start(order)).expect("the keeper reads");
    pipes.parent
}

/// Starts a keeper and waits until it is ready.
pub fn ready_keeper() -> Keeper {
    let mut keeper = Keeper::start(None).expect("the keeper starts");
    let pid = keeper.pid();
    assert_eq!(next(&mut keeper), Report::Ready { pid });
    keeper
}

/// Waits for the next report.
pub fn next(keeper: &mut Keeper) -> Report {
    loop {
        if let Some(report) = keeper.receive().expect("the keeper lives") {
            return report;
        }
        wait_readable(keeper.as_fd());
    }
}

/// Expects `Started` as the next report and returns the pid.
pub fn started(keeper: &mut Keeper) -> u32 {
    match next(keeper) {
        Report::Started { pid, .. } => pid,
        other => panic!("not started: {other:?}"),
    }
}

/// Expects `Exited` as the next report and returns how it ended and whether it was alone.
pub fn exited(keeper: &mut Keeper) -> (Exit, bool) {
    match next(keeper) {
        Report::Exited { how, alone, .. } => (how, alone),
        other => panic!("not exited: {other:?}"),
    }
}

/// Expects `Empty` as the next report and returns the number of killed processes.
pub fn emptied(keeper: &mut Keeper) -> u64 {
    match next(keeper) {
        Report::Empty { killed, .. } => killed,
        other => panic!("not empty: {other:?}"),
    }
}

/// Sends a signal to a keeper.
pub fn signal_keeper(keeper: &Keeper, signal: Signal) {
    let pid = i32::try_from(keeper.pid()).ok().and_then(Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("it is our child");
}

/// Waits until a descriptor is readable.
pub fn wait_readable(fd: BorrowedFd<'_>) {
    let bound = PATIENCE.try_into().expect("half a minute fits");
    let ready = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&bound)).expect("poll");
    assert!(ready > 0, "waited {PATIENCE:?} for nothing");
}

/// Reads until the output contains `wanted`.
pub fn read_until(fd: &OwnedFd, wanted: &[u8]) {
    let mut seen = Vec::new();
    while !seen.windows(wanted.len()).any(|window| window == wanted) {
        assert!(read_more(fd, &mut seen) > 0, "ended after {:?}", String::from_utf8_lossy(&seen));
    }
}

/// Reads until the last process that holds the other end is gone. No process can escape this check.
pub fn read_to_end(fd: &OwnedFd) -> Vec<u8> {
    let mut seen = Vec::new();
    while read_more(fd, &mut seen) > 0 {}
    seen
}

fn read_more(fd: &OwnedFd, seen: &mut Vec<u8>) -> usize {
    wait_readable(fd.as_fd());
    let mut chunk = [0; 4096];
    let got = rustix::io::read(fd, &mut chunk).expect("it was readable");
    seen.extend_from_slice(&chunk[..got]);
    got
}

fn play(role: &[String]) -> ExitCode {
    let role: Vec<&str> = role.iter().map(String::as_str).collect();
    match role.as_slice() {
        ["exit", code] => return ExitCode::from(code.parse::<u8>().expect("a small number")),
        ["die", signal] => die_of(signal.parse().expect("a number")),
        ["stay"] => stay(),
        ["stop"] => stop(),
        ["daemon"] => daemon(),
        ["bare-daemon"] => bare_daemon(),
        ["daemon-and-stay"] => {
            daemon();
            stay();
        }
        ["rabbit"] => rabbit(Instant::now() + MAX_AGE),
        ["short-rabbit"] => rabbit(Instant::now() + Duration::from_millis(200)),
        ["heir"] => heir(),
        ["mute"] => mute(),
        ["talk"] => talk(),
        ["supervisor", wish @ ..] => supervisor(wish),
        other => panic!("no such role: {other:?}"),
    }
    ExitCode::SUCCESS
}

fn die_of(signal: i32) {
    let signal = Signal::from_named_raw(signal).expect("a named signal");
    let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
}

/// Writes a word to stdout and flushes it.
fn print_word(word: &str) {
    let mut out = std::io::stdout();
    out.write_all(word.as_bytes()).and_then(|()| out.flush()).expect("the test reads");
}

/// Sleeps until it is killed or its maximum age is reached.
fn sleep() {
    let bound = MAX_AGE.try_into().expect("seconds fit");
    let _ = poll(&mut [], Some(&bound));
}

fn stay() {
    print_word("ready");
    sleep();
}

fn stop() {
    print_word("ready");
    die_of(Signal::STOP.as_raw());
    sleep();
}

fn ignore_requests() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        sys::ignore(signal).expect("these can be ignored");
    }
}

fn forked() -> Forked {
    sys::fork().expect("a role has one thread")
}

/// Leaves a process behind that has its own session, no parent, and ignores all requests. Returns in the first
/// process only after that one has printed `ready`.
fn daemon() {
    let (ready, tell) = rustix::pipe::pipe().expect("a pipe");
    if let Forked::Parent(_) = forked() {
        drop(tell);
        // The end of file is the signal.
        let _ = rustix::io::read(&ready, &mut [0_u8]);
        return;
    }
    let _ = rustix::process::setsid();
    if let Forked::Parent(_) = forked() {
        std::process::exit(0);
    }
    ignore_requests();
    print_word("ready");
    drop((ready, tell));
    sleep();
    std::process::exit(0);
}

/// Like the daemon, but with an empty environment, so that it cannot be identified by it.
fn bare_daemon() {
    if std::env::vars_os().next().is_none() {
        return daemon();
    }
    let error = Command::new("/proc/self/exe").args(["role", "bare-daemon"]).env_clear().exec();
    panic!("{error}");
}

/// Forks, changes the session and lets the parent exit, as fast as possible.
fn rabbit(until: Instant) {
    ignore_requests();
    print_word("ready");
    while Instant::now() < until {
        match forked() {
            Forked::Parent(_) => std::process::exit(0),
            Forked::Child => drop(rustix::process::setsid()),
        }
    }
}

/// Leaves a grandchild that holds stdout, in the same process group.
fn heir() {
    match forked() {
        Forked::Parent(_) => print_word("bye"),
        Forked::Child => sleep(),
    }
}

/// Closes stdout and stderr and stays alive until its stdin closes.
fn mute() {
    let null = std::fs::File::options().write(true).open("/dev/null").expect("there is /dev/null");
    rustix::stdio::dup2_stdout(&null).expect("dup2");
    rustix::stdio::dup2_stderr(&null).expect("dup2");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Writes 200 kB to stderr before it reads stdin, then prints how many bytes it read.
fn talk() {
    std::io::stderr().write_all(&vec![b'e'; 200_000]).expect("the test reads");
    let mut given = Vec::new();
    std::io::stdin().read_to_end(&mut given).expect("stdin can be read");
    print_word(&given.len().to_string());
}

/// A supervisor that starts a role under a keeper, with its own stdout and stderr, and waits. The keeper holds stderr
/// as well, so the end of file means that the keeper has exited too.
fn supervisor(role: &[&str]) {
    let mut keeper = Keeper::start(Some(std::io::stderr().as_fd())).expect("the keeper starts");
    assert!(matches!(next(&mut keeper), Report::Ready { .. }));
    let null = std::fs::File::open("/dev/null").expect("there is /dev/null");
    let copy = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().expect("a copy");
    let stdio = [null.into(), copy(std::io::stdout().as_fd()), copy(std::io::stderr().as_fd())];
    keeper.send(Order::Start(role_order(1, role, stdio))).expect("the keeper reads");
    started(&mut keeper);
    sleep();
}

/// Run alone, this file tests that its roles exit by themselves.
fn main() -> ExitCode {
    play_or_test(tests![a_rabbit_dies_of_old_age])
}

fn a_rabbit_dies_of_old_age() {
    let mut keeper = ready_keeper();
    let ends = start_role(&mut keeper, 1, &["short-rabbit"]);
    started(&mut keeper);
    read_to_end(&ends.stderr);
    keeper.shut_down().expect("nothing is left");
}
