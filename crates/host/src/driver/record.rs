//! The record as the driver keeps it: written before it is shown, shown before anything is done.

use crate::journal::Journal;
use dogwatch_core::event::Recorded;
use dogwatch_core::input::Input;
use dogwatch_core::job::Job;
use std::collections::VecDeque;
use std::path::Path;

pub(super) struct Record {
    journal: Journal,
    unshown: Vec<Recorded>,
    broken: bool,
    /// Starts that wait until the record can be written again.
    withheld: Vec<Job>,
}

impl Record {
    pub fn new(journal: Journal) -> Record {
        Record { journal, unshown: Vec::new(), broken: false, withheld: Vec::new() }
    }

    pub fn path(&self) -> &Path {
        self.journal.path()
    }

    pub fn is_in_place(&self) -> bool {
        self.journal.is_in_place()
    }

    pub fn add(&mut self, recorded: Recorded, todo: &mut VecDeque<Input>) {
        if let Err(error) = self.journal.append(&recorded) {
            // Too much waits for the disk: from here on the record has a hole, and a run without a
            // record is not to go on.
            todo.push_back(Input::RecordLost { detail: error.to_string() });
        }
        self.unshown.push(recorded);
    }

    pub fn settle(&mut self, todo: &mut VecDeque<Input>) -> bool {
        if self.broken {
            return false;
        }
        match self.journal.sync() {
            Ok(()) => true,
            Err(error) => {
                self.broken = true;
                let detail = format!(
                    "{}: {error}; nothing new is started until it can be written",
                    self.path().display()
                );
                todo.push_back(Input::RecordFailed { detail });
                false
            }
        }
    }

    pub fn take_unshown(&mut self) -> Vec<Recorded> {
        std::mem::take(&mut self.unshown)
    }

    /// Tries to write what waits; true if the record is whole again.
    pub fn retry(&mut self) -> bool {
        if self.broken && self.journal.sync().is_ok() {
            self.broken = false;
            return true;
        }
        false
    }

    pub fn withhold(&mut self, job: Job) {
        self.withheld.push(job);
    }

    /// Takes a start back that was withheld; true if it was.
    pub fn unwithhold(&mut self, job: Job) -> bool {
        let before = self.withheld.len();
        self.withheld.retain(|j| *j != job);
        self.withheld.len() < before
    }

    pub fn take_withheld(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.withheld)
    }
}
