//! The end of a run: its last line is on disk, or the exit code says that it is not; then the keepers go, and the
//! lock is free.

use super::Driver;
use super::record::Unwritten;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::time::{Duration, Instant};

/// How long the end of a run waits for room on a full disk.
const LAST_ROOM: Duration = Duration::from_secs(30);
/// How often it tries meanwhile.
const LAST_ROOM_RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
/// The exit code of a run whose end is not in its record.
const NOT_RECORDED: u8 = 5;
/// From here on an exit code names the signal that ended the run.
const BY_SIGNAL: u8 = 128;

impl Driver<'_> {
    /// The run is over. Trouble from here on is reported and does not change how the run ended.
    pub(super) fn close(mut self, code: u8) -> u8 {
        self.settle();
        let code = self.record_the_end(code);
        let clean = self.slots.is_empty();
        if let Err(error) = self.slots.shut_down() {
            self.front.warn(&format!("a keeper does not end: {error}; the next run ends its processes"));
        } else if clean && let Err(error) = self.setup.lock.clear() {
            self.front
                .warn(&format!("cannot clear the lock: {error}; the next run looks for leftover processes"));
        }
        code
    }

    /// Without its last line a run looks as if it had been killed, and `resume` would call the agent again. So a
    /// full disk is waited for, and a run whose end is not on disk does not exit as if all were well.
    fn record_the_end(&mut self, code: u8) -> u8 {
        let failed = if code < BY_SIGNAL { NOT_RECORDED } else { code };
        let until = Instant::now() + LAST_ROOM;
        let mut told = false;
        loop {
            let error = match self.record.finish() {
                Ok(()) => return code,
                Err(Unwritten::Lost(detail)) => {
                    self.front
                        .warn(&format!("the record is lost: {detail}; the end of the run is not in it"));
                    return failed;
                }
                Err(Unwritten::NotNow(error)) => error,
            };
            let path = self.record.path().display().to_string();
            // The operator wants to leave now.
            if code >= BY_SIGNAL || Instant::now() >= until || self.is_asked_to_leave() {
                self.front.warn(&format!(
                    "cannot write the end of the run to {path}: {error}; make room, then `dogwatch resume {}`",
                    self.setup.run_id
                ));
                return failed;
            }
            if !std::mem::replace(&mut told, true) {
                let bound = LAST_ROOM.as_secs();
                let text = format!(
                    "cannot write the end of the run to {path}: {error}; waiting up to {bound} s for room"
                );
                self.front.warn(&text);
            }
            // An error only means that it is tried again a little sooner.
            let _ = poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(&LAST_ROOM_RETRY));
        }
    }

    fn is_asked_to_leave(&mut self) -> bool {
        use rustix::process::Signal;
        let taken: io::Result<Vec<_>> = std::iter::from_fn(|| self.signals.take().transpose()).collect();
        let leave = [Signal::INT, Signal::TERM, Signal::HUP];
        taken.is_ok_and(|taken| taken.iter().any(|number| leave.iter().any(|s| s.as_raw() == *number)))
    }
}
