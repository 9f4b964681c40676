//! A disk with one file, the journal. Only synced bytes survive a loss of power; written ones survive the death of
//! dogwatch. It can be made to fail.

use super::mortal::Mortal;
use dogwatch_core::drive::journal::{JournalError, JournalFile, Line};
use dogwatch_core::record::event::Recorded;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// How the disk misbehaves from now on. Each number counts the calls that fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskFaults {
    /// Writes fail. Half of the bytes are in the file.
    pub writes: u32,
    /// Syncs fail. The bytes written since the last sync become zeros.
    pub syncs: u32,
    /// Cutting the file fails.
    pub truncates: u32,
    /// The state of the file cannot be read.
    pub blind: u32,
    /// Prompts cannot be written.
    pub prompts: u32,
    /// The disk is full until this is reset.
    pub full: bool,
}

/// The content of the disk.
#[derive(Debug, Default)]
pub struct Disk {
    bytes: Vec<u8>,
    /// How many bytes survive a loss of power.
    synced: usize,
    /// Whether lines have no content, for runs with more events than fit in memory.
    pub(crate) forgets: bool,
    /// How the disk misbehaves.
    pub faults: DiskFaults,
    /// Why the journal's path no longer leads to the open file, if it does not.
    pub moved: Option<String>,
    damaged: bool,
    /// Whether the last write or sync failed, so that an effect may precede its record.
    failed: bool,
    /// Whether the state of the file could not be read the last time.
    blind: bool,
    /// The events that are not synced, with the length that the file has after each.
    unsynced: VecDeque<(usize, Recorded)>,
    /// The length of the file with all encoded events.
    encoded: usize,
}

/// The open journal.
#[derive(Debug)]
pub struct DiskFile {
    disk: Rc<RefCell<Disk>>,
    life: Mortal,
}

impl Disk {
    /// Returns the number of bytes of the file.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number of bytes that survive a loss of power.
    pub fn synced(&self) -> usize {
        self.synced
    }

    /// Returns whether the record is broken as far as dogwatch can know.
    pub(crate) fn is_broken(&self) -> bool {
        self.failed || self.blind
    }

    /// Returns the recorded events that a loss of power would lose.
    pub(crate) fn unsynced(&self) -> impl Iterator<Item = &Recorded> {
        self.unsynced.iter().map(|(_, recorded)| recorded)
    }

    /// Returns the complete lines in the first `len` bytes.
    pub(crate) fn lines(&self, len: usize) -> Vec<&[u8]> {
        self.bytes[..len]
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.ends_with(b"\n"))
            .collect()
    }

    /// Cuts the file as the next dogwatch finds it: half a line at its end is removed.
    pub(crate) fn cut(&mut self, len: usize) {
        let whole = self.bytes[..len].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.bytes.truncate(whole);
        (self.synced, self.encoded) = (whole, whole);
        (self.failed, self.blind, self.moved) = (false, false, None);
        self.unsynced.clear();
    }

    /// Another program cuts the file.
    pub(crate) fn damage(&mut self) {
        self.bytes.truncate(self.bytes.len() / 2);
        self.synced = self.synced.min(self.bytes.len());
        self.damaged = true;
    }

    /// Returns whether another program removed or cut the file, so that the run cannot be resumed.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged || self.moved.is_some()
    }
}

impl DiskFile {
    /// Opens the journal.
    pub(crate) fn open(disk: &Rc<RefCell<Disk>>, life: Mortal) -> DiskFile {
        DiskFile { disk: Rc::clone(disk), life }
    }

    /// Reads the event of a line.
    pub(crate) fn read(line: &[u8]) -> Recorded {
        let json = line.splitn(2, |byte| *byte == b' ').nth(1).expect("a hash and an event");
        dogwatch_codec::read(json).expect("an event that was written can be read")
    }
}

/// Returns whether this call fails, and counts it.
fn fails(calls: &mut u32) -> bool {
    let failing = *calls > 0;
    *calls = calls.saturating_sub(1);
    failing
}

impl JournalFile for DiskFile {
    fn encode(&mut self, recorded: &Recorded, prev: &str) -> Result<Line, String> {
        let disk = &mut *self.disk.borrow_mut();
        assert!(prev.parse() == Ok(recorded.seq - 1), "the line before {recorded:?} is {prev}");
        let mut bytes = Vec::new();
        if !disk.forgets {
            bytes.extend_from_slice(prev.as_bytes());
            bytes.push(b' ');
            dogwatch_codec::write(&mut bytes, recorded).map_err(|error| error.to_string())?;
            disk.unsynced.push_back((disk.encoded + bytes.len() + 1, recorded.clone()));
        }
        bytes.push(b'\n');
        disk.encoded += bytes.len();
        Ok(Line { bytes, hash: recorded.seq.to_string() })
    }

    fn length(&self) -> Result<u64, JournalError> {
        let disk = &mut *self.disk.borrow_mut();
        disk.blind = fails(&mut disk.faults.blind);
        if disk.blind {
            return Err(JournalError::Unknown("too many open files".to_owned()));
        }
        if let Some(why) = &disk.moved {
            return Err(JournalError::Moved(why.clone()));
        }
        Ok(disk.bytes.len() as u64)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let disk = &mut *self.disk.borrow_mut();
        let dies = !self.life.acts();
        if dies || disk.faults.full || fails(&mut disk.faults.writes) {
            // A process that dies in the middle of a write leaves half of it.
            let half = if self.life.was_last_act() || !dies { bytes.len() / 2 } else { 0 };
            disk.bytes.extend_from_slice(&bytes[..half]);
            disk.failed = true;
            return Err("no space left on device".to_owned());
        }
        disk.bytes.extend_from_slice(bytes);
        disk.failed = false;
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> Result<(), String> {
        let disk = &mut *self.disk.borrow_mut();
        if !self.life.acts() || fails(&mut disk.faults.truncates) {
            disk.failed = true;
            return Err("input/output error".to_owned());
        }
        disk.bytes.truncate(usize::try_from(len).expect("small"));
        disk.synced = disk.synced.min(disk.bytes.len());
        Ok(())
    }

    fn sync(&mut self) -> Result<(), String> {
        let disk = &mut *self.disk.borrow_mut();
        if !self.life.acts() {
            return Err("input/output error".to_owned());
        }
        if fails(&mut disk.faults.syncs) {
            // The kernel drops the pages and reports the next sync as successful.
            let synced = disk.synced;
            disk.bytes[synced..].fill(0);
            disk.failed = true;
            return Err("input/output error".to_owned());
        }
        disk.synced = disk.bytes.len();
        while disk.unsynced.front().is_some_and(|(end, _)| *end <= disk.synced) {
            disk.unsynced.pop_front();
        }
        disk.failed = false;
        Ok(())
    }

    fn path(&self) -> String {
        "events.jsonl".to_owned()
    }
}
