//! Reads the raw output of an iteration as it grows. The file may be missing, or may not be a regular file.

use super::out::{Out, Stop};
use crate::screen::{ShownLine, Tone, words};
use dogwatch_agents::readable::Renderer;
use dogwatch_core::settings::ReaderName;
use dogwatch_host::store::safe_file;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::PathBuf;

/// The most bytes to read at once, whatever the size of the log.
const CHUNK: usize = 64 * 1024;

/// The stdout or stderr file of an iteration.
pub struct Source {
    dir: PathBuf,
    /// `stdout` or `stderr`.
    stream: &'static str,
    file: Option<File>,
    /// Why the file cannot be read, for the note.
    refused: Option<String>,
    renderer: Renderer,
    read: u64,
}

impl Source {
    /// Returns the stdout or stderr file in the directory of an iteration. The file is opened by the first read.
    pub fn new(dir: PathBuf, stderr: bool, renderer: Renderer) -> Source {
        let (stream, renderer) =
            if stderr { ("stderr", Renderer::new(ReaderName::Plain, "")) } else { ("stdout", renderer) };
        Source { dir, stream, file: None, refused: None, renderer, read: 0 }
    }

    /// Returns the lines of the next piece of output, or `None` if there is no more now. The first read starts at most
    /// `last` bytes before the end.
    pub fn next_lines(&mut self, last: u64) -> Option<Vec<ShownLine>> {
        if self.file.is_none()
            && let Some(file) = self.open()
        {
            let start = file.metadata().map_or(0, |meta| meta.len()).saturating_sub(last);
            let _ = file.seek(SeekFrom::Start(start));
        }
        let mut buffer = vec![0; CHUNK];
        match self.read(&mut buffer) {
            0 => None,
            n => Some(self.renderer.feed(&buffer[..n])),
        }
    }

    /// Prints all output that is available now.
    pub fn drain(&mut self, out: &mut Out) -> Result<(), Stop> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let n = self.read(&mut buffer);
            if n == 0 {
                return Ok(());
            }
            self.read += n as u64;
            if out.raw {
                out.bytes(&buffer[..n])?;
            } else {
                out.lines(&self.renderer.feed(&buffer[..n]))?;
            }
        }
    }

    /// Prints the last line if it has no line end. Call it when no more output will come.
    pub fn finish(&mut self, out: &mut Out) -> Result<(), Stop> {
        out.lines(&self.renderer.finish())
    }

    /// Returns a note that explains missing output, or `None` if there was output.
    pub fn note(&self) -> Option<ShownLine> {
        if self.read > 0 {
            return None;
        }
        let text = match &self.refused {
            Some(why) => format!("  (cannot read its {}: {why})", self.stream),
            None => format!("  (no output on {}{})", self.stream, self.other()),
        };
        Some(ShownLine { tone: Tone::Quiet, text })
    }

    fn other(&self) -> String {
        let (name, how) = match self.stream {
            "stdout" => ("stderr", "--stderr shows"),
            _ => ("stdout", "omit --stderr to see"),
        };
        match std::fs::symlink_metadata(self.dir.join(name)) {
            Ok(meta) if meta.is_file() && meta.len() > 0 => {
                format!("; {how} {} of {name}", words::size(meta.len()))
            }
            Ok(_) | Err(_) => String::new(),
        }
    }

    /// Returns the open file. It is created with the first byte of output.
    fn open(&mut self) -> Option<&mut File> {
        if self.file.is_none() && self.refused.is_none() {
            match safe_file::read_named(&self.dir.join(self.stream)) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => self.refused = Some(error.to_string()),
            }
        }
        self.file.as_mut()
    }

    fn read(&mut self, buffer: &mut [u8]) -> usize {
        let Some(file) = self.open() else { return 0 };
        loop {
            match file.read(buffer) {
                Ok(n) => return n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.refused = Some(error.to_string());
                    self.file = None;
                    return 0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_irregular_output_file_gives_a_note_and_does_not_block() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut out = Out::choose(false, false).expect("not raw, so any stdout is fine");
        let note = |out: &mut Out| {
            let mut source =
                Source::new(dir.path().to_owned(), false, Renderer::new(ReaderName::Plain, "/w"));
            assert!(source.drain(out).is_ok());
            source.note().expect("there is nothing to show").text
        };
        assert_eq!(note(&mut out), "  (no output on stdout)");
        std::fs::write(dir.path().join("stderr"), "trouble").expect("writes");
        assert_eq!(note(&mut out), "  (no output on stdout; --stderr shows 7 B of stderr)");
        let path = dir.path().join("stdout");
        std::fs::create_dir(&path).expect("makes it");
        assert_eq!(note(&mut out), "  (cannot read its stdout: not a regular file)");
        std::fs::remove_dir(&path).expect("removes it");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).expect("a FIFO");
        assert_eq!(note(&mut out), "  (cannot read its stdout: not a regular file)");
    }
}
