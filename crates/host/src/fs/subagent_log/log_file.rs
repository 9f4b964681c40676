//! The tail of one growing file.

use dogwatch_agents::{MAX_SUBAGENT_LOG_LINE, Reading, Splitter, SubagentLog};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, open, statat};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The size of one read.
const CHUNK: usize = 64 * 1024;
/// The most that is read after a file has grown. Of larger growth only the end is read: real sessions write less,
/// and reading it all would take longer than a judgment can wait.
const MAX_GROWTH: u64 = 16 * 1024 * 1024;

/// A file that is read as it grows.
pub struct LogFile {
    file: File,
    offset: u64,
    lines: Splitter,
    reading: Reading,
}

impl LogFile {
    /// Opens a regular file, to be read from its beginning or from its present end.
    pub fn open(path: &Path, reading: Reading, from_end: bool) -> io::Result<LogFile> {
        // Check before opening: opening a pipe, even briefly, wakes the process at its other end.
        let before = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
        regular(before.st_mode)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = open(path, flags, Mode::empty())?;
        let stat = fstat(&fd)?;
        regular(stat.st_mode)?;
        let offset = if from_end { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 };
        Ok(LogFile {
            file: File::from(fd),
            offset,
            lines: Splitter::with_max(MAX_SUBAGENT_LOG_LINE),
            reading,
        })
    }

    /// Reads appended lines. Returns how many of them show subagent activity.
    pub fn read(&mut self, log: &mut SubagentLog, buffer: &mut Vec<u8>) -> u64 {
        buffer.resize(CHUNK, 0);
        let size = self.file.metadata().map_or(0, |meta| meta.len());
        if size < self.offset {
            // The file was truncated. Its present content is not new.
            self.offset = size;
            self.lines = Splitter::with_max(MAX_SUBAGENT_LOG_LINE);
        }
        if size - self.offset > MAX_GROWTH {
            self.offset = size - MAX_GROWTH;
        }
        let mut seen = 0;
        // Read only up to the size found above. Otherwise a fast writer could keep this loop running forever.
        while self.offset < size {
            let wanted = usize::try_from(size - self.offset).unwrap_or(CHUNK).min(CHUNK);
            let Ok(count @ 1..) = self.file.read_at(&mut buffer[..wanted], self.offset) else { break };
            self.offset += count as u64;
            let reading = &mut self.reading;
            self.lines.feed(&buffer[..count], |line| seen += u64::from(log.read(reading, line)));
        }
        seen
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the enum belongs to another crate and may gain variants")]
fn regular(mode: u32) -> io::Result<()> {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Ok(()),
        _ => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    }
}
