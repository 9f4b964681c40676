//! The test harness for actors: no process that was started under it outlives it.
//!
//! `actor-harness [--stdin FILE] PROGRAM [ARG]…` is a child subreaper. Its stdin is a socket, on which it sends
//! `pid N` once the program runs, and `code N cpu_ms N` or `signal N cpu_ms N` when the program has exited. When the
//! test closes the socket or dies, or after a minute, the harness kills all remaining descendants until `waitpid`
//! reports no child. It then sends `killed N` and exits.

use dogwatch_core::run::job::Exit;
use dogwatch_host::sys::{SignalFd, Waited, block_all, wait_any};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use std::fs::File;
use std::io::{self, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The longest run time. No test takes that long; a hanging test fails when its output ends.
const MAX_RUNTIME: Duration = Duration::from_secs(60);
/// The pause between two rounds of killing, unless a child exits earlier.
const KILL_INTERVAL: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            send(&format!("failed {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    let main = start()?;
    // Block signals only after the start, because the program would inherit the mask.
    block_all()?;
    let ended = SignalFd::new(&[Signal::CHILD])?;
    send(&format!("pid {main}"));
    let until = Instant::now() + MAX_RUNTIME;
    while Instant::now() < until {
        if reap(main)?.no_children {
            break;
        }
        if wait_for_child_or_socket(&ended, until)? {
            break;
        }
    }
    wait_for_socket(until)?;
    send(&format!("killed {}", kill_all(main, &ended)?));
    Ok(())
}

/// Starts the program and closes our copies of its output, so that the reader sees the end of file.
fn start() -> io::Result<i32> {
    let mut args = std::env::args_os().skip(1).peekable();
    let stdin = match args.next_if(|arg| arg == "--stdin").and_then(|_| args.next()) {
        Some(path) => Stdio::from(File::open(path)?),
        None => Stdio::null(),
    };
    let program = args.next().ok_or(io::ErrorKind::InvalidInput)?;
    let child = Command::new(program).args(args).stdin(stdin).spawn()?;
    let null = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

fn send(line: &str) {
    // Ignore errors: the test may be gone.
    if let Ok(socket) = rustix::io::dup(rustix::stdio::stdin()) {
        let _ = File::from(socket).write_all(format!("{line}\n").as_bytes());
    }
}

struct Reaped {
    no_children: bool,
    others: u64,
}

fn reap(main: i32) -> io::Result<Reaped> {
    let mut others = 0;
    loop {
        match wait_any()? {
            Waited::Reaped(gone) if gone.pid == main => {
                let (what, number) = match gone.how {
                    Exit::Code(code) => ("code", code),
                    Exit::Signal(signal) => ("signal", signal),
                };
                send(&format!("{what} {number} cpu_ms {}", gone.cpu.as_millis()));
            }
            Waited::Reaped(_) => others += 1,
            Waited::NotYet => return Ok(Reaped { no_children: false, others }),
            Waited::NoChild => return Ok(Reaped { no_children: true, others }),
        }
    }
}

/// Waits until a child exits or the socket closes. Returns true if the socket closed.
fn wait_for_child_or_socket(ended: &SignalFd, until: Instant) -> io::Result<bool> {
    let socket = rustix::stdio::stdin();
    let mut fds = [PollFd::new(&socket, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
    poll(&mut fds, Some(&span(until.saturating_duration_since(Instant::now()))))?;
    let socket_ready = !fds[0].revents().is_empty();
    ended.take()?;
    Ok(socket_ready)
}

fn wait_for_socket(until: Instant) -> io::Result<()> {
    let socket = rustix::stdio::stdin();
    let left = until.saturating_duration_since(Instant::now());
    poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&span(left)))?;
    Ok(())
}

/// Kills until no child is left. A `rabbit` may escape some rounds, but its own limit ends it.
fn kill_all(main: i32, ended: &SignalFd) -> io::Result<u64> {
    // Do not count processes that have already exited.
    reap(main)?;
    let mut killed = 0;
    loop {
        for pid in children()?.into_iter().filter_map(Pid::from_raw) {
            // The process may already be a zombie.
            let _ = kill_process(pid, Signal::KILL);
        }
        let reaped = reap(main)?;
        killed += reaped.others;
        if reaped.no_children {
            return Ok(killed);
        }
        poll(&mut [PollFd::new(ended, PollFlags::IN)], Some(&span(KILL_INTERVAL)))?;
        ended.take()?;
    }
}

/// Returns the pids of this process's children. Only this process reaps them, so their pids cannot have been reused.
fn children() -> io::Result<Vec<i32>> {
    let me = getpid().as_raw_nonzero().get();
    let pids = std::fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(pids.filter(|pid| parent(*pid) == Some(me)).collect())
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain anything; state and parent follow it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn span(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
