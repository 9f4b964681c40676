//! Reads a journal as it grows: only new lines, in bounded pieces.

use dogwatch_core::record::event::Recorded;
use dogwatch_host::store::journal;
use std::io;
use std::path::{Path, PathBuf};

/// The most bytes to read at once, so that keys are handled while a long journal is read.
pub const PIECE: u64 = 512 * 1024;
/// A journal that is read as it grows.
pub struct Tail {
    path: PathBuf,
    lines: Option<journal::Tail>,
}

/// The result of one read.
#[derive(Debug, Default)]
pub struct Piece {
    pub events: Vec<Recorded>,
    /// The journal holds further events.
    pub more: bool,
    /// The journal was replaced, so the events read before are obsolete.
    pub replaced: bool,
}

impl Tail {
    /// Returns the tail of a run's journal, which is not opened yet.
    pub fn new(run_dir: &Path) -> Tail {
        Tail { path: run_dir.join(journal::FILE), lines: None }
    }

    /// Makes the next read start at the beginning.
    pub fn rewind(&mut self) {
        self.lines = None;
    }

    /// Reads the next piece of the journal.
    ///
    /// A journal that is shorter than the lines read so far was replaced. A resume only removes a torn last line.
    pub fn read(&mut self) -> io::Result<Piece> {
        let replaced = match &self.lines {
            Some(lines) => lines.length()? < lines.offset(),
            None => false,
        };
        if replaced {
            self.rewind();
        }
        let lines = match &mut self.lines {
            Some(lines) => lines,
            none => none.insert(journal::Tail::follow(&self.path)?.in_large_pieces()),
        };
        let (begin, mut events) = (lines.offset(), Vec::new());
        while lines.offset() - begin < PIECE {
            let Some(line) = lines.next_line()? else {
                return Ok(Piece { events, more: false, replaced });
            };
            // A line that is not an event comes from a later version or is damaged. `status` reports it.
            events.extend(dogwatch_codec::read(line).ok());
        }
        Ok(Piece { events, more: true, replaced })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::record::event::Event;
    use dogwatch_core::time::moment::Moment;
    use std::fs::File;
    use std::io::Write;

    fn line(seq: u64) -> String {
        let event = Event::Notice { kind: "test".into(), message: "hello".into() };
        let recorded = Recorded::new(seq, Moment::default(), event);
        dogwatch_codec::to_string(&recorded).expect("an event is JSON") + "\n"
    }

    fn seqs(tail: &mut Tail) -> Vec<u64> {
        tail.read().expect("reads").events.iter().map(|e| e.seq).collect()
    }

    #[test]
    fn only_new_and_complete_lines_are_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut file = File::create(dir.path().join(journal::FILE)).expect("makes it");
        let mut tail = Tail::new(dir.path());
        assert_eq!(seqs(&mut tail), [0; 0]);
        let (first, second) = (line(1), line(2));
        file.write_all(first.as_bytes()).expect("writes");
        file.write_all(&second.as_bytes()[..20]).expect("writes");
        assert_eq!(seqs(&mut tail), [1]);
        file.write_all(&second.as_bytes()[20..]).expect("writes");
        assert_eq!(seqs(&mut tail), [2]);
        assert_eq!(seqs(&mut tail), [0; 0]);
        tail.rewind();
        assert_eq!(seqs(&mut tail), [1, 2]);
    }

    #[test]
    fn a_removed_torn_line_is_dropped_and_a_replaced_journal_is_read_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(journal::FILE);
        std::fs::write(&path, line(1) + "{\"torn").expect("writes");
        let mut tail = Tail::new(dir.path());
        assert_eq!(seqs(&mut tail), [1]);
        let file = File::options().append(true).open(&path).expect("opens");
        file.set_len(line(1).len() as u64).expect("cuts");
        (&file).write_all(line(2).as_bytes()).expect("writes");
        assert_eq!(seqs(&mut tail), [2]);
        file.set_len(3).expect("cuts");
        let piece = tail.read().expect("reads");
        assert!(piece.replaced && piece.events.is_empty());
    }

    #[test]
    fn a_long_journal_is_read_in_pieces_and_an_overlong_line_is_skipped() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(journal::FILE);
        let many: String = (1..).map(line).take(2 * PIECE as usize / line(1).len()).collect();
        std::fs::write(&path, &many).expect("writes");
        let mut tail = Tail::new(dir.path());
        let first = tail.read().expect("reads");
        assert!(first.more && !first.events.is_empty());
        let mut read = first.events.len();
        while let Ok(piece) = tail.read() {
            read += piece.events.len();
            if !piece.more {
                break;
            }
        }
        assert_eq!(read, many.lines().count());
        let long = "x".repeat(journal::MAX_LINE + 1) + "\n" + &line(9);
        std::fs::write(&path, long).expect("writes");
        tail.rewind();
        let mut seqs = Vec::new();
        loop {
            let piece = tail.read().expect("reads");
            seqs.extend(piece.events.iter().map(|e| e.seq));
            if !piece.more {
                break;
            }
        }
        assert_eq!(seqs, [9]);
    }
}
