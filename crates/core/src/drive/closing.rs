//! The end of a run. The driver writes the last line of the record, or reports in the exit code that it could not.
//! Then it stops the keepers and clears the lock.

use super::Driver;
use super::record::RecordEndError;
use super::shell::Shell;
use crate::time::dur::Dur;

/// How long the end of a run waits for space on a full disk.
const LAST_ROOM: Dur = Dur::from_secs(30);
/// The interval between attempts to write the end of the run.
const LAST_ROOM_RETRY: Dur = Dur::from_millis(250);
/// The exit code of a run whose end could not be recorded.
const NOT_RECORDED: u8 = 5;
/// Exit codes from here on name the signal that ended the run.
const BY_SIGNAL: u8 = 128;

impl<S: Shell> Driver<S> {
    /// Closes the run and returns its exit code. Errors from here on are reported and do not change the outcome.
    pub(super) fn close(&mut self, code: u8) -> u8 {
        self.settle();
        let code = self.record_the_end(code);
        self.shell.shut_down(self.jobs.is_empty());
        code
    }

    /// Writes the end of the record and returns the exit code.
    ///
    /// Without its last line a run looks killed, and `resume` would call the agent again. So this waits for space
    /// on a full disk, and a run whose end is not on disk exits with an error.
    fn record_the_end(&mut self, code: u8) -> u8 {
        let failed = if code < BY_SIGNAL { NOT_RECORDED } else { code };
        let until = self.shell.now().awake.plus(LAST_ROOM);
        let mut warned = false;
        let mut exit_requested = false;
        loop {
            let error = match self.record.finish() {
                Ok(()) => return code,
                Err(RecordEndError::Lost(detail)) => {
                    let what = "the end of the run is not recorded";
                    self.shell.warn(&format!("the record is lost: {detail}; {what}"));
                    return failed;
                }
                Err(RecordEndError::NotNow(error)) => error,
            };
            let path = self.record.path();
            // A signal or the operator asked to exit: do not wait any longer.
            if code >= BY_SIGNAL || exit_requested || self.shell.now().awake >= until {
                let run = self.run.view().started.as_ref().map(|started| started.run.to_string());
                let run = run.unwrap_or_default();
                self.shell.warn(&format!(
                    "cannot write the end of the run to {path}: {error}; make room, then `dogwatch resume {run}`"
                ));
                return failed;
            }
            if !std::mem::replace(&mut warned, true) {
                let what = format!("cannot write the end of the run to {path}: {error}");
                self.shell
                    .warn(&format!("{what}; waiting up to {} s for room", LAST_ROOM.as_millis() / 1_000));
            }
            exit_requested = self.shell.wait_for_space(LAST_ROOM_RETRY);
        }
    }
}
