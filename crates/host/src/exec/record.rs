//! `--json FILE`: appends events to a file, in the format of a run's journal.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_core::text::escape_json;
use dogwatch_core::time::moment::Moment;
use rustix::fs::OFlags;

use crate::store::safe_file::PRIVATE;
use crate::store::secrets::{self, Secrets};

/// Returns the node name that `exec` uses in events.
pub fn node() -> NodeName {
    NodeName::new("exec")
}

/// Returns the iteration that `exec` uses in events.
pub fn iteration() -> Iteration {
    Iteration(1)
}

/// The event file, if there is one.
#[derive(Default)]
pub struct Record {
    file: Option<File>,
    /// The secrets that are kept out of the file.
    secrets: Secrets,
    seq: u64,
    /// The error after which nothing more is written.
    pub lost: Option<io::Error>,
}

impl Record {
    /// Opens the file without blocking: a FIFO without a reader is an error here and cannot block later. Like a journal it is for
    /// this user alone and without secrets of the environment.
    pub fn open(path: &Path) -> io::Result<Record> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file =
            OpenOptions::new().append(true).create(true).mode(PRIVATE).custom_flags(flags).open(path)?;
        Ok(Record { file: Some(file), secrets: secrets::install(&[]).clone(), seq: 0, lost: None })
    }

    /// Appends an event. Each line is one write, so that lines of several writers do not mix.
    pub fn add(&mut self, at: Moment, event: Event) {
        let Some(file) = &mut self.file else { return };
        self.seq += 1;
        let event = self.secrets.hide_in(event);
        let written = dogwatch_codec::to_string(&Recorded::new(self.seq, at, event)).map_err(io::Error::from);
        let written =
            written.and_then(|line| file.write_all((escape_json(&line).into_owned() + "\n").as_bytes()));
        if let Err(error) = written {
            self.file = None;
            self.lost = Some(error);
        }
    }
}
