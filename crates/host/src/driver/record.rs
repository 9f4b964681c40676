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
    /// Too much waited for the disk: the record has a hole and ends before it.
    lost: bool,
    /// Starts that wait until the record can be written again.
    withheld: Vec<Job>,
}

impl Record {
    pub fn new(journal: Journal) -> Record {
        Record { journal, unshown: Vec::new(), broken: false, lost: false, withheld: Vec::new() }
    }

    pub fn path(&self) -> &Path {
        self.journal.path()
    }

    pub fn is_in_place(&self) -> bool {
        self.journal.is_in_place()
    }

    pub fn add(&mut self, recorded: Recorded, todo: &mut VecDeque<Input>) {
        if !self.lost
            && let Err(error) = self.journal.append(&recorded)
        {
            // A run without a record is not to go on. Told once: the telling is an event as well.
            self.lost = true;
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
                self.fail(&error, todo);
                false
            }
        }
    }

    /// Something that belongs to the record could not be written: from now on starts are withheld.
    pub fn fail(&mut self, error: &std::io::Error, todo: &mut VecDeque<Input>) {
        if !std::mem::replace(&mut self.broken, true) {
            let shown = self.path().display();
            let detail = format!("{shown}: {error}; nothing new is started until it can be written");
            todo.push_back(Input::RecordFailed { detail });
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

    pub fn withheld(&self) -> &[Job] {
        &self.withheld
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::MAX_PENDING;
    use dogwatch_core::event::Event;
    use dogwatch_core::moment::Moment;

    #[test]
    fn a_record_that_can_take_no_more_is_told_once_and_has_no_line_after_the_hole() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut record = Record::new(Journal::create(dir.path()).expect("creates"));
        let mut todo = VecDeque::new();
        for (seq, bytes) in [(1, MAX_PENDING / 2), (2, MAX_PENDING), (3, 10), (4, 10)] {
            let event = Event::Notice { kind: "test".into(), message: "x".repeat(bytes) };
            record.add(Recorded::new(seq, Moment::default(), event), &mut todo);
        }
        assert_eq!(todo.len(), 1);
        assert!(record.settle(&mut todo));
        let text = std::fs::read_to_string(record.path()).expect("reads");
        assert_eq!(text.lines().count(), 1, "only what came before the hole");
    }
}
