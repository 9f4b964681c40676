//! The end of one file, as it grows.

use dogwatch_agents::{MAX_SUBAGENT_LOG_LINE, Reading, Splitter, SubagentLog};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, open, statat};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Read at a time.
const CHUNK: usize = 64 * 1024;
/// A file that grew by more than this since it was last read is read from so far before its end: nobody works that
/// much in a moment, and reading it would take longer than a judge waits.
const MAX_GROWTH: u64 = 16 * 1024 * 1024;

pub struct Tail {
    file: File,
    offset: u64,
    lines: Splitter,
    reading: Reading,
}

impl Tail {
    /// Opens a regular file, from its beginning or from where it ends now.
    pub fn open(path: &Path, from_end: bool) -> io::Result<Tail> {
        // Looked at first: a pipe that is opened, even for a moment, wakes who waits at its other end.
        let before = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
        regular(before.st_mode)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = open(path, flags, Mode::empty())?;
        let stat = fstat(&fd)?;
        regular(stat.st_mode)?;
        let offset = if from_end { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 };
        Ok(Tail {
            file: File::from(fd),
            offset,
            lines: Splitter::with_max(MAX_SUBAGENT_LOG_LINE),
            reading: Reading::default(),
        })
    }

    /// Reads what was appended; answers how many lines of it show a subagent at work.
    pub fn read(&mut self, trail: &mut SubagentLog, buffer: &mut Vec<u8>) -> u64 {
        buffer.resize(CHUNK, 0);
        let size = self.file.metadata().map_or(0, |meta| meta.len());
        if size < self.offset {
            // It was cut off: what is in it now is not new.
            self.offset = size;
            self.lines = Splitter::with_max(MAX_SUBAGENT_LOG_LINE);
        }
        if size - self.offset > MAX_GROWTH {
            self.offset = size - MAX_GROWTH;
        }
        let mut seen = 0;
        // No further than it was when we began: one who writes faster than we read would never let us go.
        while self.offset < size {
            let wanted = usize::try_from(size - self.offset).unwrap_or(CHUNK).min(CHUNK);
            let Ok(count @ 1..) = self.file.read_at(&mut buffer[..wanted], self.offset) else { break };
            self.offset += count as u64;
            let reading = &mut self.reading;
            self.lines.feed(&buffer[..count], |line| seen += u64::from(trail.read(reading, line)));
        }
        seen
    }
}

fn regular(mode: u32) -> io::Result<()> {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Ok(()),
        _ => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    }
}
