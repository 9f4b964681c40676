//! Detects when this process was last stopped by a signal.
//!
//! A process gets no notice of a stop: SIGSTOP cannot be caught, SIGCONT also arrives without a stop (`timeout(1)`
//! sends one with every TERM), and no clock pauses. An interrupted sleep does reveal it.
//!
//! A thread sleeps in one relative `clock_nanosleep` for longer than any run lasts. To stop a process, the kernel
//! wakes each of its threads. That interrupts the sleep, so at the moment the stop begins the kernel writes the
//! remaining time to the memory that the caller passed. After SIGCONT the kernel restarts the sleep by itself,
//! without returning to user space. So the thread never runs and causes no wake-ups, and `start + length − remaining`
//! is the moment of the last stop.
//!
//! A tracer and the cgroup v2 freezer interrupt the sleep in the same way. The caller recognizes a real stop by the
//! SIGCONT that ends it.

use std::cell::UnsafeCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::signal::block_all;

/// The length of one sleep in seconds: 68 years.
const SLEEP: i64 = i32::MAX as i64;
/// The stack size. The thread only makes system calls.
const STACK: usize = 16 * 1024;
/// The `tv_sec` of a remaining time that the kernel has not written yet.
const UNWRITTEN: libc::time_t = -1;

/// Records when this process was last stopped.
#[derive(Debug)]
pub struct StopClock(Option<Arc<Sleeper>>);

#[derive(Debug)]
struct Sleeper {
    /// The start of the sleep, in nanoseconds of the awake clock.
    start: AtomicU64,
    /// The remaining time, written by the kernel.
    remaining: UnsafeCell<libc::timespec>,
}

// SAFETY: `remaining` is written by the kernel on behalf of the sleeping thread, or by that thread between two
// sleeps. Other threads use only volatile reads, and read twice to detect a partly written value.
unsafe impl Sync for Sleeper {}

impl StopClock {
    /// Starts the thread. If that fails, no stop is ever detected, but everything else works.
    pub fn start() -> StopClock {
        let sleeper = Arc::new(Sleeper {
            start: AtomicU64::new(0),
            remaining: UnsafeCell::new(libc::timespec { tv_sec: UNWRITTEN, tv_nsec: 0 }),
        });
        let its = Arc::clone(&sleeper);
        let thread = std::thread::Builder::new().name("stop-clock".into()).stack_size(STACK);
        StopClock(thread.spawn(move || its.sleep()).is_ok().then_some(sleeper))
    }

    /// Returns the moment on the awake clock at which the last stop began, if there was one.
    pub fn last_stop(&self) -> Option<Duration> {
        let sleeper = self.0.as_ref()?;
        let remaining = sleeper.read();
        let left = Duration::new(u64::try_from(remaining.0).ok()?, u32::try_from(remaining.1).ok()?);
        let length = Duration::from_secs(SLEEP.unsigned_abs());
        let start = Duration::from_nanos(sleeper.start.load(Ordering::Acquire));
        (start + length).checked_sub(left)
    }
}

impl Sleeper {
    /// Sleeps until the process exits.
    fn sleep(&self) {
        // A signal handled by this thread would end the sleep and be lost to the thread that waits for it.
        if block_all().is_err() {
            return;
        }
        let length = libc::timespec { tv_sec: SLEEP as libc::time_t, tv_nsec: 0 };
        loop {
            // SAFETY: only this thread writes, and it does not sleep now. See `Sync` about the readers.
            unsafe {
                self.remaining.get().write_volatile(libc::timespec { tv_sec: UNWRITTEN, tv_nsec: 0 });
            }
            let now = clock_gettime(ClockId::Monotonic);
            let (secs, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
            self.start.store(secs.saturating_mul(1_000_000_000).saturating_add(nanos), Ordering::Release);
            // SAFETY: both pointers are valid for the whole call: `length` is a local variable, and the thread keeps
            // `self` alive. Uses the raw call because a C library may write the remaining time only when it returns.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_clock_nanosleep,
                    libc::CLOCK_MONOTONIC,
                    0,
                    &raw const length,
                    self.remaining.get(),
                )
            };
            let interrupted = io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
            if result != 0 && !interrupted {
                return;
            }
        }
    }

    /// Returns seconds and nanoseconds, once two reads agree.
    fn read(&self) -> (i64, i64) {
        let read = || {
            // SAFETY: the memory is valid as long as `self`. A volatile read sees what the kernel has written.
            let now = unsafe { self.remaining.get().read_volatile() };
            (now.tv_sec, now.tv_nsec)
        };
        let mut last = read();
        loop {
            let now = read();
            if now == last {
                return now;
            }
            last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    use std::time::Instant;

    const CHILD: &str = "DOGWATCH_STOP_CLOCK_CHILD";

    fn awake() -> Duration {
        let now = clock_gettime(ClockId::Monotonic);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).expect("nanoseconds"))
    }

    /// Not a test: the process that the test below stops. It answers every line with its last stop.
    #[test]
    fn stopped_child() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let clock = StopClock::start();
        let sleeper = clock.0.as_ref().expect("the thread has started");
        let sleeps = || {
            let tasks = std::fs::read_dir("/proc/self/task").expect("tasks").filter_map(Result::ok);
            let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
            stats.into_iter().any(|stat| stat.contains("(stop-clock) S "))
        };
        while sleeper.start.load(Ordering::Acquire) == 0 || !sleeps() {
            std::thread::yield_now();
        }
        for line in std::io::stdin().lines() {
            let _ = line.expect("a line");
            let last = clock.last_stop().map_or(0, |at| at.as_micros());
            println!("\nlast stop {last}");
        }
    }

    #[test]
    fn a_stop_is_dated_and_sigcont_alone_is_not_a_stop() {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["stopped_child", "--nocapture", "--test-threads=1"])
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let pid = rustix::process::Pid::from_child(&child);
        let mut stdin = child.stdin.take().expect("a pipe");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut ask = || {
            stdin.write_all(b"?\n").expect("it listens");
            let answer = lines.by_ref().map_while(Result::ok).find_map(|line| {
                line.strip_prefix("last stop ").and_then(|number| number.parse::<u64>().ok())
            });
            Duration::from_micros(answer.expect("it answers"))
        };
        let send = |signal| rustix::process::kill_process(pid, signal).expect("it lives");
        let threads = || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).expect("it lives");
            let stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
            stats.collect::<Vec<_>>()
        };
        let wait_until = |condition: &dyn Fn(&[String]) -> bool| {
            let until = Instant::now() + Duration::from_secs(10);
            while !condition(&threads()) && Instant::now() < until {
                std::thread::yield_now();
            }
        };
        assert_eq!(ask(), Duration::ZERO, "it was never stopped");
        for _ in 0..6 {
            send(rustix::process::Signal::CONT);
        }
        assert_eq!(ask(), Duration::ZERO, "SIGCONT alone is not a stop");
        let mut last = Duration::ZERO;
        for _ in 0..3 {
            // A stop interrupts the sleep only once the thread sleeps again, and is written before that thread stops.
            wait_until(&|stats| stats.iter().any(|stat| stat.contains("(stop-clock) S ")));
            let before = awake();
            send(rustix::process::Signal::STOP);
            wait_until(&|stats| stats.iter().all(|stat| stat.contains(") T ")));
            let after = awake();
            std::thread::sleep(Duration::from_millis(100));
            send(rustix::process::Signal::CONT);
            let at = ask();
            let slack = Duration::from_millis(20);
            assert!(at + slack >= before && at <= after + slack, "{before:?} {at:?} {after:?}");
            assert!(at > last);
            last = at;
            send(rustix::process::Signal::CONT);
            assert_eq!(ask(), last, "another SIGCONT changes nothing");
        }
        drop(stdin);
        assert!(child.wait().expect("it ends").success());
    }
}
