//! Detects changes of a journal. Every line contains the hash of the line before it, and the hash of the last line, the
//! head, is kept in the user's registry: outside of the record, where a careless agent does not write.
//!
//! The head file holds two ends of the journal: the last one that was written, and the one that is being written. So a
//! kill between the two writes never looks like a change. The file is overwritten in place, with one system call.

use super::{Durability, GENESIS, chain_hash};
use crate::clock;
use crate::store::safe_file;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The size of a head file. It never changes, so one write replaces all of it.
const HEAD_BYTES: usize = 512;

/// An end of a journal: the length up to a line, and the hash of that line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The number of bytes up to the end of the line.
    pub length: u64,
    /// The hash of the line.
    pub hash: String,
}

impl End {
    /// The end of an empty journal.
    fn genesis() -> End {
        End { length: 0, hash: GENESIS.to_owned() }
    }
}

/// The content of a head file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownHead {
    /// The boot in which it was written.
    boot_id: String,
    /// The end of what was written.
    written: End,
    /// The end of what was about to be written.
    next: End,
    /// The hash of the file with the unredacted plan, if there is one. `resume` uses that file, and no line covers it.
    #[serde(default)]
    plan: Option<String>,
}

impl KnownHead {
    /// Reads a head file.
    pub fn read(path: &Path) -> io::Result<KnownHead> {
        safe_file::read_json(path, HEAD_BYTES as u64)
    }

    /// Returns the hash of the file with the unredacted plan.
    pub fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }

    /// Returns the hash of the last line that was written.
    pub fn hash(&self) -> &str {
        &self.written.hash
    }
}

/// The head file of a journal that is being written.
#[derive(Debug)]
pub struct HeadFile {
    file: File,
    head: KnownHead,
    /// The end of the journal at the last sync. A sync that fails cuts the journal back to it.
    synced: End,
    durability: Durability,
}

impl HeadFile {
    /// Creates or replaces the head file of a journal that ends here. `None` is the beginning.
    pub fn create(
        path: &Path,
        end: Option<End>,
        plan: Option<String>,
        durability: Durability,
    ) -> io::Result<HeadFile> {
        let end = end.unwrap_or_else(End::genesis);
        let file = safe_file::update(path, safe_file::PRIVATE)?;
        let head = KnownHead { boot_id: clock::boot_id(), written: end.clone(), next: end.clone(), plan };
        let head = HeadFile { file, head, synced: end, durability };
        head.put()?;
        if durability == Durability::Synced {
            // An empty file after a power failure would look like a change.
            head.file.sync_all()?;
        }
        Ok(head)
    }

    /// Announces lines before they are written to the journal.
    pub(super) fn announce(&mut self, lines: &[u8]) {
        let lines = lines.strip_suffix(b"\n").unwrap_or(lines);
        let last = memchr::memrchr(b'\n', lines).map_or(0, |at| at + 1);
        let length = self.head.written.length + lines.len() as u64 + 1;
        self.head.next = End { length, hash: chain_hash(&lines[last..]) };
        self.save();
    }

    /// Confirms that the announced lines were written.
    pub(super) fn confirm(&mut self) {
        self.head.written = self.head.next.clone();
        self.save();
    }

    /// Goes back to the last sync if the journal is about to be cut to it.
    pub(super) fn cut(&mut self, length: u64) {
        if length == self.synced.length {
            self.head.written = self.synced.clone();
            self.save();
        }
    }

    /// Notes that the journal was synced.
    pub(super) fn synced(&mut self) {
        self.synced = self.head.written.clone();
    }

    /// Writes the head. A failure must not stop the run: the record then looks unconfirmed, which readers report.
    fn save(&self) {
        let _ = self.put();
    }

    fn put(&self) -> io::Result<()> {
        let mut text = serde_json::to_vec(&self.head)?;
        text.resize(HEAD_BYTES, b' ');
        self.file.write_all_at(&text, 0)
    }
}

impl Drop for HeadFile {
    /// Makes the head of a run that ended durable.
    fn drop(&mut self) {
        if self.durability == Durability::Synced {
            let _ = self.file.sync_data();
        }
    }
}

/// Whether a record is as dogwatch wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Integrity {
    /// Every line is as it was written. Also for a run without a known head, if its chain is unbroken.
    #[default]
    Intact,
    /// The last lines cannot be compared, because the machine or the registry failed. Says why.
    Unconfirmed(String),
    /// The record was changed. Says how.
    Changed(String),
}

impl Integrity {
    /// Returns what is wrong with the record, in words.
    pub fn problem(&self) -> Option<String> {
        match self {
            Integrity::Intact => None,
            Integrity::Unconfirmed(why) => Some(format!("the record cannot be confirmed: {why}")),
            Integrity::Changed(how) => Some(format!("the record was changed: {how}")),
        }
    }

    /// Returns whether the record was changed.
    pub fn is_changed(&self) -> bool {
        matches!(self, Integrity::Changed(_))
    }
}

/// Follows the chain of a journal, line by line.
#[derive(Clone, Debug)]
pub struct Chain {
    known: Option<KnownHead>,
    /// The number of lines so far.
    lines: u64,
    /// The end of the last line.
    end: End,
    /// The first line that does not contain the hash of the line before it.
    broken: Option<u64>,
    /// Whether the line at the known head was as it was written. `None` before that line.
    head_matches: Option<bool>,
    next_matches: bool,
    /// Whether half a line follows.
    torn: bool,
}

impl Default for Chain {
    fn default() -> Chain {
        Chain::new(None)
    }
}

impl Chain {
    /// Starts at the beginning of a journal. The head must have been read before the journal is.
    pub fn new(known: Option<KnownHead>) -> Chain {
        let head_matches = known.as_ref().and_then(|known| (known.written.length == 0).then_some(true));
        let end = End::genesis();
        Chain { known, lines: 0, end, broken: None, head_matches, next_matches: false, torn: false }
    }

    /// Uses a newer head for the lines that follow. A head that lags behind the lines says nothing new.
    pub fn renew(&mut self, known: Option<KnownHead>) {
        let lags = |known: &KnownHead| known.written.length < self.end.length && known.next != self.end;
        if self.known == known || known.as_ref().is_some_and(lags) {
            return;
        }
        self.head_matches = known.as_ref().and_then(|known| match known.written.length {
            length if length == self.end.length => Some(known.written == self.end),
            length => (length < self.end.length).then_some(true),
        });
        self.next_matches = known.as_ref().is_some_and(|known| known.next == self.end);
        self.known = known;
    }

    /// Adds a line without its newline, and the hash of the previous line that it contains.
    pub fn add(&mut self, line: &[u8], prev: &str) {
        self.lines += 1;
        if prev != self.end.hash {
            self.broken.get_or_insert(self.lines);
        }
        self.end = End { length: self.end.length + line.len() as u64 + 1, hash: chain_hash(line) };
        if let Some(known) = &self.known {
            if self.end.length >= known.written.length && self.head_matches.is_none() {
                self.head_matches = Some(self.end == known.written);
            }
            self.next_matches = self.end == known.next;
        }
    }

    /// Notes whether half a line follows. A disk that failed leaves one, and `resume` cuts it off.
    pub fn note_torn(&mut self, torn: bool) {
        self.torn = torn;
    }

    /// Returns the first line that does not continue the chain.
    pub fn broken(&self) -> Option<u64> {
        self.broken
    }

    /// Returns the end of the last line.
    pub fn end(&self) -> &End {
        &self.end
    }

    /// Judges the journal up to here. The lines of a live run may be newer than its head.
    pub fn integrity(&self, live: bool) -> Integrity {
        if let Some(line) = self.broken {
            return Integrity::Changed(format!("line {line} does not continue the line before it"));
        }
        let Some(known) = &self.known else { return Integrity::Intact };
        let restarted = known.boot_id != clock::boot_id();
        match self.head_matches {
            Some(true) if live || self.end == known.written || self.next_matches => Integrity::Intact,
            Some(true) if restarted => {
                Integrity::Unconfirmed("the machine failed while its last events were written".to_owned())
            }
            Some(true) => Integrity::Changed("events were added that dogwatch did not write".to_owned()),
            Some(false) => Integrity::Changed(format!(
                "its last events differ from what dogwatch wrote (head {})",
                known.written.hash
            )),
            None if self.torn => Integrity::Unconfirmed("its last line is torn".to_owned()),
            None if restarted => {
                Integrity::Unconfirmed("the machine failed before its last events were on disk".to_owned())
            }
            None => {
                let gone = known.written.length - self.end.length;
                Integrity::Changed(format!("its last {gone} bytes were removed"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FILE, Journal, JournalFile, load_known};
    use super::*;
    use dogwatch_core::record::event::{Event, Recorded};
    use dogwatch_core::time::moment::Moment;
    use std::path::PathBuf;

    struct Kept {
        dir: tempfile::TempDir,
        journal: Journal,
    }

    impl Kept {
        /// A journal with this many events, all of them confirmed.
        fn new(events: u64) -> Kept {
            let dir = tempfile::tempdir().expect("a directory");
            let head = HeadFile::create(&dir.path().join("head"), None, None, Durability::Synced)
                .expect("a head file");
            let journal = Journal::create(dir.path()).expect("a journal").keeping(head);
            let mut kept = Kept { dir, journal };
            (1..=events).for_each(|seq| kept.append(seq));
            kept
        }

        fn append(&mut self, seq: u64) {
            let event = Event::Notice { kind: "test".into(), message: format!("number {seq}") };
            self.journal.append(&Recorded::new(seq, Moment::default(), event)).expect("appends");
            self.journal.sync().expect("writes");
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join(FILE)
        }

        fn known(&self) -> KnownHead {
            KnownHead::read(&self.dir.path().join("head")).expect("a head")
        }

        fn integrity(&self, live: bool) -> Integrity {
            load_known(self.dir.path(), Some(self.known())).expect("reads").chain.integrity(live)
        }

        fn edit(&self, change: impl FnOnce(String) -> String) {
            let text = std::fs::read_to_string(self.path()).expect("reads");
            std::fs::write(self.path(), change(text)).expect("writes");
        }
    }

    // promise: 5
    #[test]
    fn an_edited_last_line_is_found_and_every_other_change_too() {
        assert_eq!(Kept::new(3).integrity(false), Integrity::Intact);
        for (line, said) in [(1, "line 2 does not continue"), (2, "line 3"), (3, "its last events differ")] {
            let kept = Kept::new(3);
            kept.edit(|text| text.replace(&format!("number {line}"), "number Z"));
            for live in [false, true] {
                let found = kept.integrity(live);
                assert!(found.problem().is_some_and(|problem| problem.contains(said)), "{line}: {found:?}");
            }
        }
        let kept = Kept::new(3);
        kept.edit(|text| text[..text.len() - 9].to_owned());
        assert!(matches!(kept.integrity(false), Integrity::Unconfirmed(why) if why.contains("torn")));
        kept.edit(|text| text.lines().take(2).map(|line| format!("{line}\n")).collect());
        assert!(matches!(kept.integrity(false), Integrity::Changed(how) if how.contains("were removed")));
    }

    // promise: 5
    #[test]
    fn added_events_are_found_unless_the_run_is_live() {
        let kept = Kept::new(2);
        let more = Kept::new(3);
        // The chain of the longer journal is unbroken, so only the head shows the change.
        std::fs::copy(more.path(), kept.path()).expect("copies");
        assert_eq!(kept.integrity(true), Integrity::Intact);
        assert!(matches!(kept.integrity(false), Integrity::Changed(how) if how.contains("were added")));
    }

    // promise: 5
    #[test]
    fn a_kill_between_the_two_files_is_not_taken_for_a_change() {
        let mut kept = Kept::new(1);
        let line = {
            let event = Event::Notice { kind: "test".into(), message: "two".into() };
            let prev = kept.known().hash().to_owned();
            let file = kept.journal.file_mut();
            file.encode(&Recorded::new(2, Moment::default(), event), &prev).expect("a line")
        };
        // Announced, not written.
        kept.journal.file_mut().head.as_mut().expect("a head").announce(&line.bytes);
        assert_eq!(kept.integrity(false), Integrity::Intact);
        // Written, not confirmed.
        kept.edit(|text| text + &String::from_utf8_lossy(&line.bytes));
        assert_eq!(kept.integrity(false), Integrity::Intact);
    }

    #[test]
    fn a_head_of_an_earlier_boot_leaves_the_last_events_unconfirmed() {
        for (events, said) in [(2, "before its last events were on disk"), (4, "while its last events")] {
            let (kept, other) = (Kept::new(3), Kept::new(events));
            std::fs::copy(other.path(), kept.path()).expect("copies");
            let known = KnownHead { boot_id: "earlier".to_owned(), ..kept.known() };
            let found = load_known(kept.dir.path(), Some(known)).expect("reads").chain.integrity(false);
            assert!(matches!(&found, Integrity::Unconfirmed(why) if why.contains(said)), "{found:?}");
        }
    }

    #[test]
    fn a_chain_that_grows_takes_newer_heads() {
        let mut kept = Kept::new(1);
        let mut chain = Chain::new(Some(kept.known()));
        for seq in 1..=4 {
            if seq > 1 {
                kept.append(seq);
            }
            // A reader may see the lines of a live run before the head that covers them.
            let old = kept.known();
            let text = std::fs::read_to_string(kept.path()).expect("reads");
            let line = text.lines().last().expect("a line");
            let prev = line.rsplit('"').nth(1).expect("a hash");
            chain.add(line.as_bytes(), prev);
            chain.renew(Some(old));
            assert_eq!(chain.integrity(false), Integrity::Intact, "{seq}");
        }
        kept.edit(|text| text + "\n");
        assert_eq!(chain.end(), &kept.known().written);
    }
}
