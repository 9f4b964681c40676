//! FIFOs that synchronize tests with actors: an actor reports that it is ready, waits at a gate, and releases the FIFO
//! when it is gone.

use super::TIMEOUT;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn make(path: &Path) {
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).expect("a FIFO");
}

/// The read end of a FIFO, for an actor's `ready` and `hold`.
pub struct Fifo {
    reader: OwnedFd,
    path: PathBuf,
}

impl Fifo {
    /// Creates a FIFO and opens it for reading.
    pub fn new(path: &Path) -> Fifo {
        make(path);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let reader = rustix::fs::open(path, flags, Mode::empty()).expect("opens without waiting");
        Fifo { reader, path: path.to_owned() }
    }

    /// Reads the line that `ready` writes, and returns the pid in it.
    pub fn pid(&self) -> i32 {
        let until = Instant::now() + TIMEOUT;
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            let mut byte = [0];
            match rustix::io::read(&self.reader, &mut byte) {
                Ok(1..) => line.push(byte[0]),
                Ok(0) | Err(Errno::AGAIN) => {
                    // A FIFO whose writer is gone stays readable forever, so check the deadline as well.
                    let came = self.readable_within(left(until)) && Instant::now() < until;
                    assert!(came, "no process wrote to {}", self.path.display());
                }
                Err(error) => panic!("{}: {error}", self.path.display()),
            }
        }
        String::from_utf8_lossy(&line).trim().parse().expect("a pid and a newline")
    }

    /// Waits until all processes that held the FIFO are gone.
    pub fn wait_until_released(&self) {
        assert!(self.released_within(TIMEOUT), "a process still holds {}", self.path.display());
    }

    /// Asserts that all processes that held the FIFO are gone right now.
    pub fn assert_released(&self) {
        assert!(self.released_within(Duration::ZERO), "a process still holds {}", self.path.display());
    }

    fn released_within(&self, bound: Duration) -> bool {
        let until = Instant::now() + bound;
        let mut chunk = [0; 4096];
        while self.readable_within(left(until)) {
            match rustix::io::read(&self.reader, &mut chunk) {
                Ok(0) => return true,
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(error) => panic!("{}: {error}", self.path.display()),
            }
        }
        false
    }

    /// Waits until there is data or the last writer is gone. Before the first writer opens it, a FIFO is not readable.
    fn readable_within(&self, bound: Duration) -> bool {
        let bound = Timespec::try_from(bound).expect("seconds");
        poll(&mut [PollFd::new(&self.reader, PollFlags::IN)], Some(&bound)).expect("polls") > 0
    }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// A FIFO that an actor may `await`.
pub struct Gate {
    path: PathBuf,
}

impl Gate {
    /// Creates the FIFO of a gate.
    pub fn new(path: &Path) -> Gate {
        make(path);
        Gate { path: path.to_owned() }
    }

    /// Waits for one actor at the gate and lets it pass.
    pub fn open(&self) {
        let until = Instant::now() + TIMEOUT;
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Opening fails without a reader. Closing this end lets the reader continue.
        while rustix::fs::open(&self.path, flags, Mode::empty()).is_err() {
            assert!(Instant::now() < until, "no process opened {}", self.path.display());
            std::thread::yield_now();
        }
    }
}
