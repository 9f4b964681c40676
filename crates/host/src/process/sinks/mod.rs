//! The receivers of job output, which run on the pump's thread. They store raw bytes first and interpret them second.

mod capture;
mod check_output;
mod raw;
mod session;

pub use capture::{COMMAND_CAP, Capture};
pub use check_output::Tails;
pub use raw::{RAW_CAP, RawFile};
pub use session::SessionSink;

use crate::process::pump;
use dogwatch_core::watch::feed::Stream;
use std::os::fd::BorrowedFd;

/// The sink of any kind of job.
pub enum JobSink {
    /// Captures output for the prompt.
    Command(Capture),
    /// Keeps the end of the output.
    Check(Tails),
    /// Stores and interprets the output of an agent.
    Session(Box<SessionSink>),
}

impl pump::Sink for JobSink {
    fn stdout(&mut self, bytes: &[u8]) {
        match self {
            JobSink::Command(c) => c.stdout.push(bytes),
            JobSink::Check(c) => c.stdout.push(bytes),
            JobSink::Session(s) => s.write(Stream::Stdout, bytes),
        }
    }

    fn stderr(&mut self, bytes: &[u8]) {
        match self {
            JobSink::Command(c) => c.stderr.push(bytes),
            JobSink::Check(c) => c.stderr.push(bytes),
            JobSink::Session(s) => s.write(Stream::Stderr, bytes),
        }
    }

    fn flush(&mut self) {
        match self {
            JobSink::Command(_) | JobSink::Check(_) => {}
            JobSink::Session(s) => s.report_progress(),
        }
    }

    fn outlives_output(&self) -> bool {
        match self {
            JobSink::Command(_) | JobSink::Check(_) => false,
            JobSink::Session(s) => s.follows_subagents(),
        }
    }

    fn full(&self) -> Option<BorrowedFd<'_>> {
        match self {
            JobSink::Command(_) | JobSink::Check(_) => None,
            JobSink::Session(s) => s.full(),
        }
    }
}
