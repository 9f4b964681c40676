//! The record as the driver keeps it: events are written before they are shown, and shown before any effect.

use super::journal::{Journal, JournalError, JournalFile};
use crate::record::event::Recorded;
use crate::run::input::Input;
use crate::run::job::Job;
use std::collections::VecDeque;

/// How many times in a row, 5 s apart, the state of the journal may be unknown before it counts as lost.
pub const MAX_BLIND: u32 = 12;

/// The journal, and the events and starts that wait for it.
#[derive(Debug)]
pub(super) struct Record<F> {
    journal: Journal<F>,
    unshown: Vec<Recorded>,
    /// Part of the record could not be written: the journal, or a prompt. Starts are withheld.
    broken: bool,
    /// The journal itself could not be written. A prompt that cannot be written does not keep events from the disk.
    journal_fails: bool,
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
    NotNow(String),
}

impl<F: JournalFile> Record<F> {
    /// Creates a record that writes to `journal`.
    pub fn new(journal: Journal<F>) -> Record<F> {
        Record {
            journal,
            unshown: Vec::new(),
            broken: false,
            journal_fails: false,
            blind: 0,
            lost: None,
            closed: false,
            withheld: Vec::new(),
        }
    }

    /// Returns the journal.
    pub fn journal(&self) -> &Journal<F> {
        &self.journal
    }

    /// Returns the journal.
    #[cfg(test)]
    pub fn journal_mut(&mut self) -> &mut Journal<F> {
        &mut self.journal
    }

    /// Returns the path of the journal.
    pub fn path(&self) -> String {
        self.journal.file().path()
    }

    /// Appends an event. It is written with the next `settle`.
    pub fn add(&mut self, recorded: Recorded, todo: &mut VecDeque<Input>) {
        if !self.closed
            && let Err(error) = self.journal.append(&recorded)
        {
            self.closed = true;
            self.lose(error, todo);
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
        if self.journal_fails {
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
                self.journal.keep_writing();
                self.journal.sync().is_ok()
            }
            JournalError::Changed(detail) => {
                self.lose(detail, todo);
                self.closed = true;
                self.journal.abandon();
                true
            }
            JournalError::Unknown(error) | JournalError::Io(error) => {
                self.journal_fails = true;
                self.fail(&error, todo);
                false
            }
        }
    }

    /// Notes that part of the record could not be written. From now on starts are withheld.
    pub fn fail(&mut self, error: &str, todo: &mut VecDeque<Input>) {
        if !std::mem::replace(&mut self.broken, true) {
            let path = self.path();
            let detail = format!("{path}: {error}; nothing new is started until it can be written");
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
                let detail = format!("{}: {error}", self.path());
                self.take_fault(JournalError::Changed(detail), todo);
                Retried::Lost
            }
            Err(JournalError::Io(_)) => return Retried::NotYet,
            Err(fault @ (JournalError::Moved(_) | JournalError::Changed(_))) => {
                self.take_fault(fault, todo);
                Retried::Lost
            }
        };
        (self.broken, self.journal_fails, self.blind) = (false, false, 0);
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
    pub fn cancel_withheld(&mut self, job: Job) -> bool {
        let before = self.withheld.len();
        self.withheld.retain(|j| *j != job);
        self.withheld.len() < before
    }

    /// Takes all withheld starts.
    pub fn take_withheld(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.withheld)
    }
}
