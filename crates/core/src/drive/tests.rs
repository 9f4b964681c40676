//! Tests of the record and its journal on a file in memory that can fail.

use super::journal::{Journal, JournalError, JournalFile, Line, MAX_PENDING};
use super::record::{MAX_BLIND, Record, RecordEndError, Retried};
use crate::record::event::{Event, Recorded};
use crate::run::input::Input;
use crate::time::moment::Moment;
use std::collections::VecDeque;

/// A file in memory. Each line is `SEQ<PREV BYTES\n`.
#[derive(Debug, Default)]
struct MemFile {
    bytes: Vec<u8>,
    synced: usize,
    /// How many more bytes fit.
    room: Option<usize>,
    cannot_truncate: bool,
    cannot_sync: bool,
    state: Option<JournalError>,
}

impl JournalFile for MemFile {
    fn encode(&mut self, recorded: &Recorded, prev: &str) -> Result<Line, String> {
        let size = if let Event::Notice { message, .. } = &recorded.event { message.len() } else { 0 };
        let line = format!("{}<{prev} {}\n", recorded.seq, "x".repeat(size));
        Ok(Line { bytes: line.into_bytes(), hash: recorded.seq.to_string() })
    }

    fn length(&self) -> Result<u64, JournalError> {
        self.state.clone().map_or(Ok(self.bytes.len() as u64), Err)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let fits = self.room.unwrap_or(usize::MAX).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..fits]);
        self.room = self.room.map(|room| room - fits);
        if fits == bytes.len() { Ok(()) } else { Err("no space".to_owned()) }
    }

    fn truncate(&mut self, len: u64) -> Result<(), String> {
        if self.cannot_truncate {
            return Err("cannot truncate".to_owned());
        }
        self.bytes.truncate(usize::try_from(len).expect("small"));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), String> {
        if self.cannot_sync {
            return Err("i/o error".to_owned());
        }
        self.synced = self.bytes.len();
        Ok(())
    }

    fn path(&self) -> String {
        "events.jsonl".to_owned()
    }
}

fn notice(seq: u64, bytes: usize) -> Recorded {
    let event = Event::Notice { kind: "test".into(), message: "x".repeat(bytes) };
    Recorded::new(seq, Moment::default(), event)
}

fn paused(seq: u64) -> Recorded {
    Recorded::new(seq, Moment::default(), Event::Paused {})
}

fn journal() -> Journal<MemFile> {
    Journal::new(MemFile::default(), 0, "0".to_owned())
}

fn lines(journal: &Journal<MemFile>) -> String {
    String::from_utf8(journal.file().bytes.clone()).expect("text")
}

// promise: 5
#[test]
fn a_write_that_fails_halfway_leaves_whole_lines_and_is_repeated_once() {
    for cannot_truncate in [false, true] {
        let mut journal = journal();
        journal.append(&notice(1, 3)).expect("fits");
        journal.sync().expect("writes");
        let whole = lines(&journal);
        let file = journal.file_mut();
        (file.room, file.cannot_truncate) = (Some(4), cannot_truncate);
        journal.append(&notice(2, 3)).expect("fits");
        assert!(matches!(journal.flush(), Err(JournalError::Io(_))));
        assert_eq!(lines(&journal) == whole, !cannot_truncate, "half a line is cut off if possible");
        let file = journal.file_mut();
        (file.room, file.cannot_truncate) = (None, false);
        journal.flush().expect("writes");
        assert_eq!(lines(&journal), "1<0 xxx\n2<1 xxx\n");
    }
}

// promise: 5
#[test]
fn an_intent_is_synced_and_progress_is_only_written() {
    let mut journal = journal();
    journal.append(&notice(1, 3)).expect("fits");
    journal.sync().expect("writes");
    assert_eq!((journal.file().synced, lines(&journal).len()), (0, 8));
    journal.append(&paused(2)).expect("fits");
    journal.sync().expect("writes");
    assert_eq!(journal.file().synced, lines(&journal).len());
}

// promise: 5
#[test]
fn lines_whose_sync_failed_are_written_again_before_they_count_as_durable() {
    let mut journal = journal();
    journal.append(&paused(1)).expect("fits");
    journal.sync().expect("writes");
    let synced = lines(&journal).len();
    journal.append(&notice(2, 3)).expect("fits");
    journal.sync().expect("writes");
    journal.append(&paused(3)).expect("fits");
    journal.file_mut().cannot_sync = true;
    assert!(matches!(journal.sync(), Err(JournalError::Io(_))));
    // The kernel may drop the pages and report the next sync as successful.
    let file = journal.file_mut();
    file.bytes[synced..].fill(0);
    file.cannot_sync = false;
    journal.sync().expect("writes");
    assert_eq!(lines(&journal), "1<0 \n2<1 xxx\n3<2 \n");
    assert_eq!(journal.file().synced, lines(&journal).len());
}

// promise: 4
#[test]
fn a_full_record_is_reported_once_and_has_no_line_after_the_gap() {
    let mut record = Record::new(journal());
    let mut todo = VecDeque::new();
    for (seq, bytes) in [(1, MAX_PENDING / 2), (2, MAX_PENDING), (3, 10), (4, 10)] {
        record.add(notice(seq, bytes), &mut todo);
    }
    assert_eq!(todo.len(), 1);
    assert!(record.settle(&mut todo));
    assert_eq!(lines(record.journal()).lines().count(), 1, "only lines before the gap");
    assert!(matches!(record.finish(), Err(RecordEndError::Lost(_))), "its end is not in the file");
}

// promise: 10
#[test]
fn a_journal_that_another_program_changed_is_lost_once_and_never_written_to_again() {
    let mut record = Record::new(journal());
    let mut todo = VecDeque::new();
    record.add(notice(1, 10), &mut todo);
    assert!(record.settle(&mut todo));
    record.journal_mut().file_mut().bytes.clear();
    for seq in 2..5 {
        record.add(notice(seq, 10), &mut todo);
        record.settle(&mut todo);
    }
    assert!(matches!(&todo.make_contiguous(), [Input::RecordLost { detail }] if detail.contains("0 bytes")));
    assert!(record.lost(&mut todo).is_some());
    assert!(record.journal().file().bytes.is_empty());
    assert!(matches!(record.finish(), Err(RecordEndError::Lost(_))));
}

// promise: 10
#[test]
fn a_state_that_cannot_be_read_for_a_moment_holds_starts_back_and_loses_nothing() {
    let mut record = Record::new(journal());
    let mut todo = VecDeque::new();
    record.journal_mut().file_mut().state = Some(JournalError::Unknown("a loop of links".to_owned()));
    record.add(notice(1, 10), &mut todo);
    assert!(!record.settle(&mut todo));
    assert!(matches!(todo.make_contiguous(), [Input::RecordFailed { .. }]), "{todo:?}");
    assert_eq!(record.retry(&mut todo), Retried::NotYet);
    assert_eq!(record.lost(&mut todo), None);
    record.journal_mut().file_mut().state = None;
    assert_eq!(record.retry(&mut todo), Retried::Written);
    record.finish().expect("whole again");
    assert_eq!(lines(record.journal()).lines().count(), 1);
}

// promise: 10
#[test]
fn a_state_that_can_never_be_read_again_is_lost_after_so_many_tries() {
    let mut record = Record::new(journal());
    let mut todo = VecDeque::new();
    record.journal_mut().file_mut().state = Some(JournalError::Unknown("a loop of links".to_owned()));
    assert_eq!(record.lost(&mut todo), None);
    let tries = (1..).find(|_| record.retry(&mut todo) == Retried::Lost).expect("gives up");
    assert_eq!(tries, MAX_BLIND);
    assert!(matches!(todo.make_contiguous(), [Input::RecordLost { .. }, Input::RecordFailed { .. }]));
}
