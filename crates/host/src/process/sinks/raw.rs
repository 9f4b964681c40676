//! Stores every byte of one output stream in a file, up to a cap. The first byte creates the file.

use crate::store::{home, safe_file};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The most bytes stored per stream of one iteration.
pub const RAW_CAP: u64 = 64 * 1024 * 1024;

/// The file of one stream.
pub struct RawFile {
    path: PathBuf,
    cap: u64,
    file: Option<File>,
    /// The number of bytes received.
    pub seen: u64,
    /// The number of received bytes that are not in the file.
    pub cut: u64,
    /// The first write error, if any.
    pub error: Option<io::Error>,
}

impl RawFile {
    /// Prepares a file at `path` without creating it.
    pub fn new(path: PathBuf, cap: u64) -> RawFile {
        RawFile { path, cap, file: None, seen: 0, cut: 0, error: None }
    }

    /// Appends bytes. An error is recorded in `error`, not returned.
    pub fn write(&mut self, bytes: &[u8]) {
        let room = self.cap.saturating_sub(self.seen);
        let keep = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        self.seen += bytes.len() as u64;
        self.cut += (bytes.len() - keep) as u64;
        let mut rest = &bytes[..keep];
        while !rest.is_empty() {
            match self.write_some(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Do not make the agent wait for the disk: count the bytes and drop them.
                    self.cut += rest.len() as u64;
                    self.error.get_or_insert(error);
                    return;
                }
            }
        }
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                self.path.parent().map_or(Ok(()), make_dir)?;
                none.insert(safe_file::create(&self.path, safe_file::PRIVATE)?)
            }
        };
        match file.write(bytes)? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            written => Ok(written),
        }
    }
}

/// Creates the directory of an iteration: the first output may arrive before the driver has done it. Without the directory
/// of its node the record is gone, and a new directory would hide that.
fn make_dir(dir: &Path) -> io::Result<()> {
    if let Some(node) = dir.parent() {
        std::fs::metadata(node)?;
    }
    home::make_own_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 9
    #[test]
    fn the_cap_holds_to_the_byte_and_the_cut_is_counted() {
        for (written, kept, cut) in [(9, 9, 0), (10, 10, 0), (11, 10, 1)] {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("out");
            let mut raw = RawFile::new(path.clone(), 10);
            for _ in 0..written {
                raw.write(b"x");
            }
            assert_eq!((raw.seen, raw.cut), (written, cut));
            assert_eq!(std::fs::metadata(path).expect("exists").len(), kept);
        }
    }

    #[test]
    fn the_first_byte_creates_the_directory_of_an_iteration_but_not_of_a_removed_record() {
        let run = tempfile::tempdir().expect("a directory");
        let mut raw = RawFile::new(run.path().join("loop/000002/stdout"), 10);
        raw.write(b"lost");
        assert_eq!(raw.error.as_ref().map(io::Error::kind), Some(io::ErrorKind::NotFound));
        std::fs::create_dir(run.path().join("loop")).expect("created");
        raw.write(b"kept");
        assert_eq!(std::fs::read(run.path().join("loop/000002/stdout")).expect("exists"), b"kept");
        assert_eq!((raw.seen, raw.cut), (8, 4));
    }

    // promise: 9
    #[test]
    fn a_disk_that_takes_nothing_loses_nothing_silently() {
        let mut raw = RawFile::new(PathBuf::from("not opened"), 100);
        raw.file = Some(File::options().write(true).open("/dev/full").expect("every Linux has it"));
        raw.write(b"hello");
        assert_eq!((raw.seen, raw.cut), (5, 5));
        assert_eq!(raw.error.map(|e| e.kind()), Some(io::ErrorKind::StorageFull));
    }
}
