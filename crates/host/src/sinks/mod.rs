//! Where a job's output goes, on the pump's thread: raw bytes first, meaning second.

mod capture;
mod raw;
mod session;

pub use capture::{COMMAND_CAP, Capture};
pub use raw::{RAW_CAP, RawFile};
pub use session::SessionSink;

use crate::pump;

/// The sink of either kind of job.
pub enum JobSink {
    Command(Capture),
    Session(Box<SessionSink>),
}

impl pump::Sink for JobSink {
    fn stdout(&mut self, bytes: &[u8]) {
        match self {
            JobSink::Command(c) => c.stdout.push(bytes),
            JobSink::Session(s) => s.stdout(bytes),
        }
    }

    fn stderr(&mut self, bytes: &[u8]) {
        match self {
            JobSink::Command(c) => c.stderr.push(bytes),
            JobSink::Session(s) => s.stderr(bytes),
        }
    }

    fn flush(&mut self) {
        match self {
            JobSink::Command(_) => {}
            JobSink::Session(s) => s.report_progress(),
        }
    }
}
