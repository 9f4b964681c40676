//! The end of a command: its last event, its exit code and the messages for stderr.

use std::io;

use dogwatch_core::record::event::{EndedBy, Event};
use dogwatch_core::run::job::{Exit, SessionExit};
use dogwatch_core::watch::feed::Stream;
use rustix::process::Signal;

use super::record::{iteration, node};
use super::{Exec, Outcome, by_signal};
use crate::clock;

/// The exit code after a stop by the watchdog, as in `timeout(1)`.
const TIMED_OUT: u8 = 124;
/// The exit code after an error of dogwatch itself.
pub(super) const INTERNAL: u8 = 5;
/// The exit code if the command succeeded but its output could not be written, as in the core utilities.
const OUTPUT_LOST: u8 = 1;

impl Exec {
    pub(super) fn record_end(&mut self) {
        let Some(exit) = self.life.exit() else { return };
        let end = clock::awake();
        let mut report = self.copy_state.with(|listener| listener.report(end, "", Some(exit), |_| None));
        report.leftovers = self.leftovers.clone();
        // Record what arrived at the very end. Nothing is judged any more.
        self.take_facts();
        let (ended_by, lasted) = (self.ended_by(), end.since(self.started));
        let how = SessionExit { exit: Some(exit), ended_by, lasted, said: String::new() };
        self.add(Event::SessionEnded(report.session_ended(node(), iteration(), how)));
    }

    fn ended_by(&self) -> EndedBy {
        match (&self.stop, self.passed) {
            (Some(_), _) => EndedBy::Watchdog,
            (None, Some(signal)) if signal == Signal::INT.as_raw() => EndedBy::Operator,
            (None, Some(_)) => EndedBy::Signal,
            (None, None) => EndedBy::Itself,
        }
    }

    pub(super) fn outcome(mut self) -> Outcome {
        if let Some(error) = self.record.lost.take() {
            self.said.push(format!("events were lost: {error}"));
        }
        let lost = self.copy_state.lost();
        for (stream, error) in &lost {
            let (stream, error) = (stream.as_str(), io::Error::from(*error));
            self.said.push(format!("cannot write to {stream}: {error}; output of the command was lost"));
        }
        let code = match (self.failed, &self.stop, self.life.exit(), self.passed) {
            (Some(code), ..) => code,
            (None, Some(message), ..) => {
                self.said.push(format!("ended: {message}"));
                TIMED_OUT
            }
            (None, None, Some(Exit::Code(code)), _) => u8::try_from(code & 0xff).unwrap_or(INTERNAL),
            (None, None, Some(Exit::Signal(signal)), _) => by_signal(signal),
            (None, None, None, signal) => signal.map_or(INTERNAL, by_signal),
        };
        let code = if code == 0 && !lost.is_empty() { OUTPUT_LOST } else { code };
        let stream = if self.merged { Stream::Stdout } else { Stream::Stderr };
        Outcome { code, midline: self.copy_state.midline(stream), said: self.said }
    }
}
