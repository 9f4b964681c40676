//! A file with every byte an agent printed, up to a cap. It is made when the first byte comes.

use crate::store::safe_file;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

/// How much of one stream of one iteration is kept.
pub const RAW_CAP: u64 = 64 * 1024 * 1024;

pub struct RawFile {
    path: PathBuf,
    cap: u64,
    file: Option<File>,
    /// All bytes seen, and how many of them are not in the file.
    pub seen: u64,
    pub cut: u64,
    /// Why bytes are missing, if not because of the cap.
    pub error: Option<io::Error>,
}

impl RawFile {
    pub fn new(path: PathBuf, cap: u64) -> RawFile {
        RawFile { path, cap, file: None, seen: 0, cut: 0, error: None }
    }

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
                    // The agent must not wait for our disk: what cannot be written is counted and let go.
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
            none => none.insert(safe_file::create(&self.path, safe_file::PLAIN)?),
        };
        match file.write(bytes)? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            written => Ok(written),
        }
    }
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
