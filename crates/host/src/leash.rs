//! `--leash FD`: the run may live as long as times keep arriving on an inherited pipe.
//!
//! A line is a time in milliseconds on the boot clock (CLOCK_BOOTTIME, which /proc/uptime shows), until which the run
//! may live, or `+N` for N milliseconds from the moment the line is read. The last line counts. The end of the pipe ends
//! the leash. A thread reads the lines; the driver passes each time to the keepers, which enforce it.

use crate::clock;
use crate::driver::inbox::{Inbox, Mail};
use crate::process::keeper::Order;
use dogwatch_core::run::input::Input;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Boot;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, Mode, OFlags, open};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long the first line may take. Nothing starts before it.
pub const FIRST_LINE: Duration = Duration::from_secs(10);
/// How far ahead a time may be.
pub const MAX_AHEAD: Dur = Dur::from_hours(24);
/// The longest line, in bytes.
pub const MAX_LINE: usize = 32;

/// Why a descriptor cannot be a leash.
#[derive(Debug, thiserror::Error)]
pub enum LeashError {
    /// There is no such descriptor, or it cannot be read.
    #[error("cannot read the leash from descriptor {fd}: {error}")]
    Unreadable {
        /// The descriptor.
        fd: u32,
        /// The error.
        error: io::Error,
    },
    /// The descriptor is not a pipe.
    #[error("descriptor {0} is not a pipe, so it cannot be a leash")]
    NotAPipe(u32),
    /// The first line did not come in time, or the pipe was closed before.
    #[error("no time arrived on the leash (descriptor {fd}) {why}")]
    NoTime {
        /// The descriptor.
        fd: u32,
        /// How it ended.
        why: &'static str,
    },
    /// The first line is not a time.
    #[error("`{0}` is not a time for the leash")]
    BadLine(String),
}

/// The reading end of a leash.
#[derive(Debug)]
pub struct Leash {
    pipe: OwnedFd,
    lines: Vec<u8>,
    until: Boot,
}

enum Read {
    Line(String),
    Nothing,
    Closed,
}

impl Leash {
    /// Opens the inherited descriptor and waits for the first line.
    pub fn open(fd: u32) -> Result<Leash, LeashError> {
        let unreadable = |error: Errno| LeashError::Unreadable { fd, error: error.into() };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = format!("/proc/self/fd/{fd}");
        let stat = rustix::fs::stat(path.as_str()).map_err(unreadable)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Fifo {
            return Err(LeashError::NotAPipe(fd));
        }
        let pipe = open(path.as_str(), flags, Mode::empty()).map_err(unreadable)?;
        let mut leash = Leash { pipe, lines: Vec::new(), until: Boot(0) };
        let deadline = Instant::now() + FIRST_LINE;
        loop {
            match leash.next_line().map_err(|error| LeashError::Unreadable { fd, error })? {
                Read::Line(line) => {
                    leash.until = time(&line).ok_or(LeashError::BadLine(line))?;
                    return Ok(leash);
                }
                Read::Closed => return Err(LeashError::NoTime { fd, why: "before it was closed" }),
                Read::Nothing => {}
            }
            if !leash.wait(Some(deadline)).map_err(|error| LeashError::Unreadable { fd, error })? {
                return Err(LeashError::NoTime { fd, why: "within 10 seconds" });
            }
        }
    }

    /// Returns until when the run may live, as far as it was known when the leash was opened.
    pub fn until(&self) -> Boot {
        self.until
    }

    /// Returns what the driver passes on to its keepers.
    pub fn for_keepers(&self) -> io::Result<KeeperLeash> {
        Ok(KeeperLeash { pipe: self.pipe.try_clone()?, until: self.until })
    }

    /// Reads lines on a separate thread until the pipe is closed.
    pub fn follow(mut self, inbox: Inbox) -> io::Result<()> {
        let read = move || {
            let mut reported = false;
            loop {
                let input = match self.next_line() {
                    Ok(Read::Line(line)) => match time(&line) {
                        Some(until) => Input::LeashRenewed { until },
                        // One report is enough: the time that counts does not change.
                        None if std::mem::replace(&mut reported, true) => continue,
                        None => {
                            let detail =
                                format!("`{line}` is not a time for the leash; the last time counts");
                            Input::TroubleMet { kind: "leash", detail }
                        }
                    },
                    Ok(Read::Nothing) => match self.wait(None) {
                        Ok(_) => continue,
                        Err(_) => Input::LeashClosed,
                    },
                    Ok(Read::Closed) | Err(_) => Input::LeashClosed,
                };
                let over = input == Input::LeashClosed;
                inbox.post(Mail::Input(input));
                if over {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("leash".into()).spawn(read).map(drop)
    }

    /// Returns the next complete line. A line that is too long is cut, so it does not parse as a time.
    fn next_line(&mut self) -> io::Result<Read> {
        loop {
            if let Some(end) = self.lines.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.lines.drain(..=end).take(end).collect();
                return Ok(Read::Line(String::from_utf8_lossy(&line).trim().to_owned()));
            }
            if self.lines.len() > MAX_LINE {
                let line = std::mem::take(&mut self.lines);
                return Ok(Read::Line(String::from_utf8_lossy(&line[..MAX_LINE]).into_owned()));
            }
            let mut bytes = [0; 512];
            match rustix::io::read(&self.pipe, &mut bytes) {
                Ok(0) => return Ok(Read::Closed),
                Ok(count) => self.lines.extend_from_slice(&bytes[..count]),
                Err(Errno::AGAIN) => return Ok(Read::Nothing),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until there is something to read. Returns false if the deadline passed first.
    fn wait(&self, deadline: Option<Instant>) -> io::Result<bool> {
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let left = left.map(|left| left.try_into().expect("a bound of seconds fits a timespec"));
            match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], left.as_ref()) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The part of a leash that keepers get.
#[derive(Debug)]
pub struct KeeperLeash {
    pipe: OwnedFd,
    until: Boot,
}

impl KeeperLeash {
    /// Takes a new time.
    pub fn renew(&mut self, until: Boot) {
        self.until = until;
    }

    /// Returns the order for a keeper that has no leash yet.
    pub fn first_order(&self) -> io::Result<Order> {
        Ok(Order::Leash {
            until: since_boot(self.until),
            watch: Some(self.pipe.as_fd().try_clone_to_owned()?),
        })
    }

    /// Returns the order for a keeper that has one.
    pub fn order(&self) -> Order {
        Order::Leash { until: since_boot(self.until), watch: None }
    }
}

fn since_boot(at: Boot) -> Duration {
    Duration::from_millis(at.0)
}

/// Returns the time that a line means now, or `None` if it is not a time or too far ahead.
fn time(line: &str) -> Option<Boot> {
    let now = clock::now().boot;
    let at = match line.strip_prefix('+') {
        Some(ahead) => now.plus(Dur::from_millis(whole(ahead)?)),
        None => Boot(whole(line)?),
    };
    (at <= now.plus(MAX_AHEAD)).then_some(at)
}

fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    fn opened(text: &str) -> Result<Leash, LeashError> {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(text.as_bytes()).expect("writes");
        drop(writer);
        Leash::open(reader.as_raw_fd().unsigned_abs())
    }

    #[test]
    fn a_line_is_a_time_of_the_boot_clock_or_relative_to_now() {
        let before = clock::now().boot;
        let ahead = opened("+5000\n").expect("a leash").until().since(before).as_millis();
        assert!((5_000..60_000).contains(&ahead), "{ahead}");
        assert_eq!(opened("1234\n").expect("a leash").until(), Boot(1_234), "a time in the past");
        let far = before.plus(MAX_AHEAD).plus(Dur::from_hours(1)).0;
        for bad in ["", "x", "-5", "+", "+-5", "++5", "1.5", "99999999999999999999", &far.to_string()] {
            assert!(matches!(opened(&format!("{bad}\n")), Err(LeashError::BadLine(_))), "{bad}");
        }
        let long = "1".repeat(MAX_LINE + 1);
        assert!(matches!(opened(&long), Err(LeashError::BadLine(_))));
    }

    #[test]
    fn a_leash_is_a_pipe_with_a_line() {
        assert!(matches!(opened(""), Err(LeashError::NoTime { .. })));
        assert!(matches!(opened("+5000"), Err(LeashError::NoTime { .. })), "the line is not complete");
        let file = std::fs::File::open("/dev/null").expect("opens");
        assert!(matches!(Leash::open(file.as_raw_fd().unsigned_abs()), Err(LeashError::NotAPipe(_))));
        assert!(matches!(Leash::open(9_999), Err(LeashError::Unreadable { .. })));
    }
}
