//! The record as the driver keeps it: events are written before they are shown, and shown before any effect.

use crate::store::journal::{Journal, JournalError};
use dogwatch_core::record::event::Recorded;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::Job;
use std::collections::VecDeque;
use std::io;
use std::path::Path;

/// How many times in a row, 5 s apart, the state of the journal may be unknown before it counts as lost.
const MAX_BLIND: u32 = 12;

pub(super) struct Record {
    journal: Journal,
    unshown: Vec<Recorded>,
    broken: bool,
    /// How many times in a row the state of the file could not be read.
    blind: u32,
    /// Why the record ended before the run, if it did.
    lost: Option<String>,
    /// No more lines are written: the file has a gap, or another program changed it.
    closed: bool,
    /// Starts that wait until the record can be written again.
    withheld: Vec<Job>,
}

/// The result of another attempt to write the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retried {
    NotYet,
    /// The record is complete again.
    Written,
    /// The record is lost; retrying is over.
    Lost,
}

/// Why the end of the record is not on disk.
#[derive(Debug)]
pub(super) enum RecordEndError {
    /// It can never be written.
    Lost(String),
    /// It may be possible to write it soon.
    NotNow(io::Error),
}

impl Record {
    /// Creates a record that writes to `journal`.
    pub fn new(journal: Journal) -> Record {
        Record {
            journal,
            unshown: Vec::new(),
            broken: false,
            blind: 0,
            lost: None,
            closed: false,
            withheld: Vec::new(),
        }
    }

    /// Returns the path of the journal.
    pub fn path(&self) -> &Path {
        self.journal.path()
    }

    /// Appends an event. It is written with the next `settle`.
    pub fn add(&mut self, recorded: Recorded, todo: &mut VecDeque<Input>) {
        if !self.closed
            && let Err(error) = self.journal.append(&recorded)
        {
            self.closed = true;
            self.lose(error.to_string(), todo);
        }
        self.unshown.push(recorded);
    }

    /// Marks the record as lost; a run without a record must stop. Reported only once, because the report is an
    /// event too.
    fn lose(&mut self, detail: String, todo: &mut VecDeque<Input>) {
        if self.lost.is_none() {
            self.lost = Some(detail.clone());
            todo.push_front(Input::RecordLost { detail });
        }
    }

    /// Returns why the record is lost, if it is. Checks the file first, because a start is about to depend on it.
    pub fn lost(&mut self, todo: &mut VecDeque<Input>) -> Option<&str> {
        if self.lost.is_none()
            && let Err(fault) = self.journal.verify()
        {
            self.take_fault(fault, todo);
        }
        self.lost.as_deref()
    }

    /// Writes and syncs pending events. Returns false while that is impossible.
    pub fn settle(&mut self, todo: &mut VecDeque<Input>) -> bool {
        if self.broken {
            return false;
        }
        match self.journal.sync() {
            Ok(()) => true,
            Err(fault) => self.take_fault(fault, todo),
        }
    }

    /// Handles a journal fault. Returns whether the record can still be written.
    fn take_fault(&mut self, fault: JournalError, todo: &mut VecDeque<Input>) -> bool {
        match fault {
            JournalError::Moved(detail) => {
                self.lose(detail, todo);
                self.journal.write_on();
                self.journal.sync().is_ok()
            }
            JournalError::Changed(detail) => {
                self.lose(detail, todo);
                self.closed = true;
                self.journal.abandon();
                true
            }
            JournalError::Unknown(error) | JournalError::Io(error) => {
                self.fail(&error, todo);
                false
            }
        }
    }

    /// Notes that part of the record could not be written. From now on starts are withheld.
    pub fn fail(&mut self, error: &io::Error, todo: &mut VecDeque<Input>) {
        if !std::mem::replace(&mut self.broken, true) {
            let shown = self.path().display();
            let detail = format!("{shown}: {error}; nothing new is started until it can be written");
            todo.push_back(Input::RecordFailed { detail });
        }
    }

    /// Takes the events that were not shown yet.
    pub fn take_unshown(&mut self) -> Vec<Recorded> {
        std::mem::take(&mut self.unshown)
    }

    /// Returns whether a write failed and none has succeeded since.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Tries again to write the pending events.
    pub fn retry(&mut self, todo: &mut VecDeque<Input>) -> Retried {
        if !self.broken {
            return Retried::NotYet;
        }
        let retried = match self.journal.verify().and_then(|()| self.journal.sync()) {
            Ok(()) => Retried::Written,
            Err(JournalError::Unknown(error)) => {
                self.blind += 1;
                if self.blind < MAX_BLIND {
                    return Retried::NotYet;
                }
                let detail = format!("{}: {error}", self.path().display());
                self.take_fault(JournalError::Changed(detail), todo);
                Retried::Lost
            }
            Err(JournalError::Io(_)) => return Retried::NotYet,
            Err(fault @ (JournalError::Moved(_) | JournalError::Changed(_))) => {
                self.take_fault(fault, todo);
                Retried::Lost
            }
        };
        (self.broken, self.blind) = (false, 0);
        retried
    }

    /// Writes the end of the record.
    pub fn finish(&mut self) -> Result<(), RecordEndError> {
        let synced = match &self.lost {
            Some(detail) => return Err(RecordEndError::Lost(detail.clone())),
            None => self.journal.sync().and_then(|()| self.journal.verify()),
        };
        synced.map_err(|fault| match fault {
            JournalError::Moved(detail) | JournalError::Changed(detail) => RecordEndError::Lost(detail),
            JournalError::Unknown(error) | JournalError::Io(error) => RecordEndError::NotNow(error),
        })
    }

    /// Withholds a start until the record can be written.
    pub fn withhold(&mut self, job: Job) {
        self.withheld.push(job);
    }

    /// Returns the withheld starts.
    pub fn withheld(&self) -> &[Job] {
        &self.withheld
    }

    /// Cancels a withheld start. Returns whether there was one.
    pub fn unwithhold(&mut self, job: Job) -> bool {
        let before = self.withheld.len();
        self.withheld.retain(|j| *j != job);
        self.withheld.len() < before
    }

    /// Takes all withheld starts.
    pub fn take_withheld(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.withheld)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::journal::MAX_PENDING;
    use dogwatch_core::record::event::Event;
    use dogwatch_core::time::moment::Moment;

    fn notice(seq: u64, bytes: usize) -> Recorded {
        let event = Event::Notice { kind: "test".into(), message: "x".repeat(bytes) };
        Recorded::new(seq, Moment::default(), event)
    }

    #[test]
    fn a_full_record_is_reported_once_and_has_no_line_after_the_gap() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut record = Record::new(Journal::create(dir.path()).expect("creates"));
        let mut todo = VecDeque::new();
        for (seq, bytes) in [(1, MAX_PENDING / 2), (2, MAX_PENDING), (3, 10), (4, 10)] {
            record.add(notice(seq, bytes), &mut todo);
        }
        assert_eq!(todo.len(), 1);
        assert!(record.settle(&mut todo));
        let text = std::fs::read_to_string(record.path()).expect("reads");
        assert_eq!(text.lines().count(), 1, "only lines before the gap");
        assert!(matches!(record.finish(), Err(RecordEndError::Lost(_))), "its end is not in the file");
    }

    // promise: 10
    #[test]
    fn a_journal_that_another_program_changed_is_lost_once_and_never_written_to_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut record = Record::new(Journal::create(dir.path()).expect("creates"));
        let mut todo = VecDeque::new();
        record.add(notice(1, 10), &mut todo);
        assert!(record.settle(&mut todo));
        std::fs::write(record.path(), "").expect("cuts it");
        for seq in 2..5 {
            record.add(notice(seq, 10), &mut todo);
            record.settle(&mut todo);
        }
        assert!(
            matches!(&todo.make_contiguous(), [Input::RecordLost { detail }] if detail.contains("0 bytes"))
        );
        assert!(record.lost(&mut todo).is_some());
        assert_eq!(std::fs::metadata(record.path()).expect("is there").len(), 0);
        assert!(matches!(record.finish(), Err(RecordEndError::Lost(_))));
    }

    /// Makes a directory's path unresolvable for a while: stat fails with ELOOP, even for root.
    fn hide(run: &Path, hidden: &Path) {
        std::fs::rename(run, hidden).expect("moves");
        std::os::unix::fs::symlink(run, run).expect("a link to itself");
    }

    // promise: 10
    #[test]
    fn a_state_that_cannot_be_read_for_a_moment_holds_starts_back_and_loses_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let (run, hidden) = (dir.path().join("run"), dir.path().join("hidden"));
        std::fs::create_dir(&run).expect("a directory");
        let mut record = Record::new(Journal::create(&run).expect("creates"));
        let mut todo = VecDeque::new();
        hide(&run, &hidden);
        record.add(notice(1, 10), &mut todo);
        assert!(!record.settle(&mut todo));
        assert!(matches!(todo.make_contiguous(), [Input::RecordFailed { .. }]), "{todo:?}");
        assert_eq!(record.retry(&mut todo), Retried::NotYet);
        assert_eq!(record.lost(&mut todo), None);
        std::fs::remove_file(&run).and_then(|()| std::fs::rename(&hidden, &run)).expect("moves back");
        assert_eq!(record.retry(&mut todo), Retried::Written);
        record.finish().expect("whole again");
        assert_eq!(std::fs::read_to_string(record.path()).expect("reads").lines().count(), 1);
    }

    // promise: 10
    #[test]
    fn a_state_that_can_never_be_read_again_is_lost_after_so_many_tries() {
        let dir = tempfile::tempdir().expect("a directory");
        let (run, hidden) = (dir.path().join("run"), dir.path().join("hidden"));
        std::fs::create_dir(&run).expect("a directory");
        let mut record = Record::new(Journal::create(&run).expect("creates"));
        let mut todo = VecDeque::new();
        hide(&run, &hidden);
        assert_eq!(record.lost(&mut todo), None);
        let tries = (1..).find(|_| record.retry(&mut todo) == Retried::Lost).expect("gives up");
        assert_eq!(tries, MAX_BLIND);
        assert!(matches!(todo.make_contiguous(), [Input::RecordLost { .. }, Input::RecordFailed { .. }]));
    }
}
