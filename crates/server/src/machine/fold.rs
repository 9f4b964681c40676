//! Incrementally folds the record of a run: only new lines are read.

use dogwatch_core::record::view::View;
use dogwatch_host::store::journal::{self, Chain, Integrity, KnownHead, Tail};
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The view of a run, and how far its journal has been read.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    pub view: View,
    /// The end of the last folded line, in bytes.
    offset: u64,
    /// The device and inode of the journal, and its state when it was last read to the end.
    file: (u64, u64),
    seen: Option<(u64, i64, i64)>,
    /// The first problem found in the record; events after it are ignored.
    broken: Option<String>,
    chain: Chain,
    /// Whether the run was live when the record was judged, and whether the record is unchanged.
    judged: Option<(bool, Integrity)>,
    /// Why the head of the journal cannot be read although it should exist.
    no_head: Option<String>,
}

/// Reads the head of a journal.
pub(crate) type ReadHead<'a> = dyn Fn() -> Result<Option<KnownHead>, String> + 'a;

impl Fold {
    /// Folds the events written since the last call. Does not open a file that has not changed.
    pub fn catch_up(&mut self, run_dir: &Path, head: &ReadHead<'_>) -> Result<&View, String> {
        let path = run_dir.join(journal::FILE);
        let meta = std::fs::metadata(&path).map_err(|e| e.to_string())?;
        // A journal only grows. One that changed without growing was edited in place.
        let edited = self.seen.is_some_and(|seen| seen != state(&meta) && meta.len() <= seen.0);
        if (meta.dev(), meta.ino()) != self.file || meta.len() < self.offset || edited {
            *self = Fold { file: (meta.dev(), meta.ino()), ..Fold::default() };
        }
        if self.seen != Some(state(&meta)) && self.broken.is_none() {
            let file = dogwatch_host::store::safe_file::read(&path).map_err(|e| e.to_string())?;
            // The head comes first: it must not be newer than the lines that are compared with it.
            self.renew(head());
            self.broken = self.read_on(file).err();
            self.seen = Some(state(&meta));
            self.chain.note_torn(meta.len() > self.offset);
            self.judged = None;
        }
        match &self.broken {
            None => Ok(&self.view),
            Some(why) => Err(why.clone()),
        }
    }

    /// Returns whether the lines read so far are as they were written.
    pub fn integrity(&mut self, live: bool, head: &ReadHead<'_>) -> &Integrity {
        let judged = self.judged.take().filter(|(then, _)| *then == live);
        let judged = judged.unwrap_or_else(|| {
            if !live && self.judge(live) != Integrity::Intact {
                // The run may have confirmed its last lines after the head was read.
                self.renew(head());
            }
            (live, self.judge(live))
        });
        &self.judged.insert(judged).1
    }

    fn renew(&mut self, head: Result<Option<KnownHead>, String>) {
        match head {
            Ok(head) => {
                self.chain.renew(head);
                self.no_head = None;
            }
            Err(why) => self.no_head = Some(why),
        }
    }

    fn judge(&self, live: bool) -> Integrity {
        match (self.chain.integrity(live), &self.no_head) {
            (Integrity::Intact, Some(why)) => Integrity::Unconfirmed(why.clone()),
            (integrity, _) => integrity,
        }
    }

    fn read_on(&mut self, file: File) -> Result<(), String> {
        let mut tail = Tail::from(file, self.offset);
        while let Some(line) = tail.next_line().map_err(|e| e.to_string())? {
            let last = self.view.seq;
            let (recorded, prev) =
                journal::parse(line, last).map_err(|bad| format!("the line after event {last}: {bad}"))?;
            self.chain.add(line, &prev);
            self.view.apply(&recorded);
            self.offset = tail.offset();
        }
        Ok(())
    }
}

/// Returns the metadata that changes when a file is written.
fn state(meta: &Metadata) -> (u64, i64, i64) {
    (meta.len(), meta.mtime(), meta.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::record::event::{Event, Recorded};
    use dogwatch_core::time::moment::Moment;
    use dogwatch_host::store::journal::Journal;
    use std::fs::OpenOptions;
    use std::io::Write;

    fn write(journal: &mut Journal, seq: u64) {
        let event = Event::Trouble { kind: "test".into(), detail: format!("number {seq}") };
        journal.append(&Recorded::new(seq, Moment::default(), event)).expect("takes it");
        journal.sync().expect("writes");
    }

    fn troubles(fold: &mut Fold, dir: &Path) -> u64 {
        fold.catch_up(dir, &|| Ok(None)).expect("reads").troubles
    }

    #[test]
    fn new_events_are_folded_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut journal = Journal::create(dir.path()).expect("creates");
        let mut fold = Fold::default();
        for seq in 1..=3 {
            write(&mut journal, seq);
            assert_eq!(troubles(&mut fold, dir.path()), seq);
            assert_eq!(troubles(&mut fold, dir.path()), seq);
        }
    }

    #[test]
    fn an_incomplete_line_is_deferred_and_a_replaced_record_is_read_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(journal::FILE);
        let mut journal = Journal::create(dir.path()).expect("creates");
        let mut fold = Fold::default();
        write(&mut journal, 1);
        write(&mut journal, 2);
        let whole = std::fs::read(&path).expect("reads");
        OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|f| f.set_len(whole.len() as u64 - 3))
            .expect("cuts");
        assert_eq!(troubles(&mut fold, dir.path()), 1);
        let mut file = OpenOptions::new().append(true).open(&path).expect("opens");
        file.write_all(&whole[whole.len() - 3..]).expect("writes");
        assert_eq!(troubles(&mut fold, dir.path()), 2);
        let first = whole.iter().position(|b| *b == b'\n').expect("has a line") + 1;
        file.set_len(first as u64).expect("cuts");
        assert_eq!(troubles(&mut fold, dir.path()), 1);
    }

    // promise: 7
    #[test]
    fn a_record_with_a_line_at_the_limit_is_folded() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut journal = Journal::create(dir.path()).expect("creates");
        let detail = "x".repeat(journal::MAX_LINE - 1024);
        let event = Event::Trouble { kind: "test".into(), detail };
        journal.append(&Recorded::new(1, Moment::default(), event)).expect("takes it");
        write(&mut journal, 2);
        assert_eq!(troubles(&mut Fold::default(), dir.path()), 2);
    }

    #[test]
    fn an_invalid_record_is_reported_as_broken_and_stays_broken() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut journal = Journal::create(dir.path()).expect("creates");
        write(&mut journal, 1);
        write(&mut journal, 3);
        let mut fold = Fold::default();
        for _ in 0..2 {
            let why = fold.catch_up(dir.path(), &|| Ok(None)).expect_err("lines are missing");
            assert_eq!(why, "the line after event 1: event 3 follows event 1: lines are missing");
        }
        assert!(Fold::default().catch_up(&dir.path().join("nowhere"), &|| Ok(None)).is_err());
    }
}
