//! The end of a run. The driver writes the last line of the record, or reports in the exit code that it could not.
//! Then it stops the keepers and clears the lock.

use super::Driver;
use super::record::RecordEndError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::time::{Duration, Instant};

/// How long the end of a run waits for space on a full disk.
const LAST_ROOM: Duration = Duration::from_secs(30);
/// The interval between attempts to write the end of the run.
const LAST_ROOM_RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
/// The exit code of a run whose end could not be recorded.
const NOT_RECORDED: u8 = 5;
/// Exit codes from here on name the signal that ended the run.
const BY_SIGNAL: u8 = 128;

impl Driver<'_> {
    /// Closes the run and returns its exit code. Errors from here on are reported and do not change the outcome.
    pub(super) fn close(mut self, code: u8) -> u8 {
        self.settle();
        let code = self.record_the_end(code);
        let clean = self.slots.is_empty();
        if let Err(error) = self.slots.shut_down() {
            self.reporter.warn(&format!("cannot stop a keeper: {error}; the next run kills its processes"));
        } else if clean && let Err(error) = self.setup.lock.clear() {
            self.reporter
                .warn(&format!("cannot clear the lock: {error}; the next run looks for leftover processes"));
        }
        code
    }

    /// Writes the end of the record and returns the exit code.
    ///
    /// Without its last line a run looks killed, and `resume` would call the agent again. So this waits for space
    /// on a full disk, and a run whose end is not on disk exits with an error.
    fn record_the_end(&mut self, code: u8) -> u8 {
        let failed = if code < BY_SIGNAL { NOT_RECORDED } else { code };
        let until = Instant::now() + LAST_ROOM;
        let mut warned = false;
        loop {
            let error = match self.record.finish() {
                Ok(()) => return code,
                Err(RecordEndError::Lost(detail)) => {
                    self.reporter
                        .warn(&format!("the record is lost: {detail}; the end of the run is not recorded"));
                    return failed;
                }
                Err(RecordEndError::NotNow(error)) => error,
            };
            let path = self.record.path().display().to_string();
            // A signal or the operator asked to exit: do not wait any longer.
            if code >= BY_SIGNAL || Instant::now() >= until || self.exit_requested() {
                self.reporter.warn(&format!(
                    "cannot write the end of the run to {path}: {error}; make room, then `dogwatch resume {}`",
                    self.setup.run_id
                ));
                return failed;
            }
            if !std::mem::replace(&mut warned, true) {
                let bound = LAST_ROOM.as_secs();
                let text = format!(
                    "cannot write the end of the run to {path}: {error}; waiting up to {bound} s for room"
                );
                self.reporter.warn(&text);
            }
            // Ignore errors: the only effect is that the next attempt comes a little sooner.
            let _ = poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(&LAST_ROOM_RETRY));
        }
    }

    fn exit_requested(&mut self) -> bool {
        use rustix::process::Signal;
        let taken: io::Result<Vec<_>> = std::iter::from_fn(|| self.signals.take().transpose()).collect();
        let exit_signals = [Signal::INT, Signal::TERM, Signal::HUP];
        taken.is_ok_and(|taken| taken.iter().any(|number| exit_signals.iter().any(|s| s.as_raw() == *number)))
    }
}
