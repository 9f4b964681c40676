//! Copies of the records of runs that other machines supervise, kept while a client watches them.
//!
//! A mirror is a registry with a directory for each run. A copied journal grows as lines arrive, and its `alive` file is
//! locked while the other machine says that the run is live. Readers of local runs therefore read copies with
//! the same code. The directory is private, and it is removed with the mirror.

use crate::store::home;
use crate::store::journal;
use crate::store::registry::{self, Alive, Origin, Pointer, Registry};
use crate::store::safe_file;
use dogwatch_core::record::ids::RunId;
use dogwatch_core::time::moment::Wall;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most bytes of one journal that are copied.
pub const MAX_COPY: u64 = 256 * 1024 * 1024;
/// The most runs of one source that are copied.
pub const MAX_RUNS: usize = 100;
/// Clocks that drift less than this are not measured again, in milliseconds.
const MAX_DRIFT_MS: u64 = 500;

/// A run on another machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemoteRun {
    /// The run.
    pub run: RunId,
    /// Its loop file, on that machine.
    pub path: PathBuf,
    /// When it started.
    pub since: Wall,
    /// Whether a dogwatch on that machine supervises it.
    pub live: bool,
}

/// The copies of the runs of other machines.
#[derive(Debug)]
pub struct Mirror {
    dir: PathBuf,
    registry: Registry,
    copies: Mutex<BTreeMap<RunId, Copied>>,
    /// Shows that this mirror is in use.
    alive: Option<Alive>,
}

#[derive(Debug)]
struct Copied {
    /// Where the lines come from: a host, or a fleet.
    source: String,
    pointer: Pointer,
    journal: File,
    bytes: u64,
    /// The sequence number of the last copied line.
    last: u64,
    alive: Option<Alive>,
}

impl Mirror {
    /// Creates an empty mirror in the user's state directory, and removes the mirrors of processes that were killed.
    pub fn create() -> io::Result<Mirror> {
        Mirror::create_in(&home::user_state_dir().join("mirrors"))
    }

    /// Creates an empty mirror in a directory.
    pub fn create_in(mirrors: &Path) -> io::Result<Mirror> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        home::make_private(mirrors)?;
        for old in std::fs::read_dir(mirrors)?.flatten().map(|entry| entry.path()) {
            if !registry::is_live(&old) {
                let _ = std::fs::remove_dir_all(&old);
            }
        }
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = mirrors.join(name);
        // Another process may take the directory for an old one until it is locked.
        let new = || {
            home::make_private(&dir)?;
            Alive::hold(&dir)
        };
        let alive = Some(new().or_else(|_| new())?);
        let registry = Registry::at(dir.join("runs"));
        home::make_private(registry.dir())?;
        Ok(Mirror { dir, registry, copies: Mutex::default(), alive })
    }

    /// Returns the registry of the copied runs.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Takes the list of the runs of one source, each with its machine. Runs that it no longer lists are removed.
    pub fn list(&self, source: &str, runs: &[(Origin, RemoteRun)]) -> io::Result<()> {
        let mut copies = self.copies();
        let gone: Vec<RunId> = copies
            .iter()
            .filter(|(_, copied)| copied.source == source)
            .map(|(run, _)| run.clone())
            .filter(|run| runs.iter().all(|(_, known)| known.run != *run))
            .collect();
        for run in gone {
            copies.remove(&run);
            self.registry.forget(&run);
            let _ = std::fs::remove_dir_all(self.run_dir(&run));
        }
        for (origin, known) in runs.iter().take(MAX_RUNS) {
            self.take_run(&mut copies, source, origin, known)?;
        }
        Ok(())
    }

    fn take_run(
        &self,
        copies: &mut BTreeMap<RunId, Copied>,
        source: &str,
        origin: &Origin,
        known: &RemoteRun,
    ) -> io::Result<()> {
        let RemoteRun { run, path, since, live } = known;
        let run_dir = self.run_dir(run);
        let pointer = Pointer {
            run: run.clone(),
            run_dir: run_dir.clone(),
            path: path.clone(),
            pid: std::process::id(),
            since: *since,
            head: false,
            origin: Some(origin.clone()),
        };
        let copied = match copies.get_mut(run) {
            // A run that moved is live on one machine only.
            Some(copied) if copied.source != source && (copied.alive.is_some() || !live) => return Ok(()),
            Some(copied) => {
                source.clone_into(&mut copied.source);
                copied
            }
            None => {
                home::make_private(&run_dir)?;
                let journal = safe_file::create_new(&run_dir.join(journal::FILE), safe_file::PRIVATE)?;
                let (source, pointer) = (source.to_owned(), pointer.clone());
                // Before the run is listed: a listed run without the lock looks lost.
                let alive = if *live { Some(Alive::hold(&run_dir)?) } else { None };
                let new = Copied { source, pointer, journal, bytes: 0, last: 0, alive };
                self.registry.add(&new.pointer)?;
                copies.entry(run.clone()).or_insert(new)
            }
        };
        let changed = copied.pointer.differs(&pointer) || copied.alive.is_some() != *live;
        copied.alive = match (copied.alive.take(), live) {
            (_, false) => None,
            (Some(alive), true) => Some(alive),
            (None, true) => Some(Alive::hold(&run_dir)?),
        };
        if changed {
            // A new pointer also tells readers to look at the lock again.
            self.registry.add(&pointer)?;
            copied.pointer = pointer;
        }
        Ok(())
    }

    /// Adds a line to the copy of a journal. Ignores lines that it has already, and those beyond the limit.
    pub fn append(&self, source: &str, run: &RunId, line: &[u8]) -> io::Result<()> {
        let mut copies = self.copies();
        let Some(copied) = copies.get_mut(run).filter(|copied| copied.source == source) else {
            return Ok(());
        };
        let Some(head) = journal::head(line) else { return Ok(()) };
        let length = line.len() as u64 + 1;
        if head.seq <= copied.last || copied.bytes + length > MAX_COPY {
            return Ok(());
        }
        let whole = [line, b"\n"].concat();
        copied.journal.write_all(&whole)?;
        copied.last = head.seq;
        copied.bytes += length;
        Ok(())
    }

    /// Empties the copy of a journal that was replaced.
    pub fn restart(&self, source: &str, run: &RunId) -> io::Result<()> {
        let mut copies = self.copies();
        let Some(copied) = copies.get_mut(run).filter(|copied| copied.source == source) else {
            return Ok(());
        };
        let path = self.run_dir(run).join(journal::FILE);
        std::fs::remove_file(&path)?;
        copied.journal = safe_file::create_new(&path, safe_file::PRIVATE)?;
        (copied.bytes, copied.last) = (0, 0);
        Ok(())
    }

    /// Returns the sequence number of the last copied line of each run of a source.
    pub fn known(&self, source: &str) -> BTreeMap<RunId, u64> {
        let copies = self.copies();
        let ours = copies.iter().filter(|(_, copied)| copied.source == source);
        ours.map(|(run, copied)| (run.clone(), copied.last)).collect()
    }

    fn copies(&self) -> MutexGuard<'_, BTreeMap<RunId, Copied>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_dir(&self, run: &RunId) -> PathBuf {
        self.dir.join("records").join(run.as_str())
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.copies().clear();
        let _ = std::fs::remove_dir_all(&self.dir);
        self.alive.take();
    }
}

impl Pointer {
    /// Returns whether a new pointer differs. A small drift of the clocks does not count.
    fn differs(&self, new: &Pointer) -> bool {
        let drifted = match (&self.origin, &new.origin) {
            (Some(old), Some(new)) => old.host != new.host || old.skew.differs(new.skew, MAX_DRIFT_MS),
            (old, new) => old != new,
        };
        drifted || (&self.path, self.since) != (&new.path, new.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::record::event::{Event, Recorded};
    use dogwatch_core::time::moment::{Moment, Skew};

    fn run(n: u8) -> RemoteRun {
        let since = Wall(1_794_773_733_000);
        RemoteRun { run: RunId::new(since, [n; 4]), path: "/loop/RALPH.md".into(), since, live: true }
    }

    fn origin(host: &str) -> Origin {
        Origin { host: host.to_owned(), job: None, graph: None, skew: Skew::default() }
    }

    fn list(mirror: &Mirror, host: &str, runs: &[RemoteRun]) {
        let runs: Vec<_> = runs.iter().map(|run| (origin(host), run.clone())).collect();
        mirror.list(host, &runs).expect("takes it");
    }

    fn line(seq: u64) -> Vec<u8> {
        let event = Event::Notice { kind: "test".into(), message: "hello".into() };
        dogwatch_codec::to_string(&Recorded::new(seq, Moment::default(), event))
            .expect("an event is JSON")
            .into_bytes()
    }

    fn mirror() -> (tempfile::TempDir, Mirror) {
        let dir = tempfile::tempdir().expect("a directory");
        let mirror = Mirror::create_in(&dir.path().join("mirrors")).expect("creates");
        (dir, mirror)
    }

    #[test]
    fn a_copied_run_is_listed_and_live_while_its_machine_reports_it_live() {
        let (_dir, mirror) = mirror();
        let mut known = run(1);
        list(&mirror, "box", std::slice::from_ref(&known));
        let pointer = mirror.registry().find(&known.run).expect("is listed");
        assert_eq!(pointer.origin, Some(origin("box")));
        assert!(registry::is_live(&pointer.run_dir));
        known.live = false;
        list(&mirror, "box", std::slice::from_ref(&known));
        assert!(!registry::is_live(&pointer.run_dir));
        list(&mirror, "box", &[]);
        assert_eq!(mirror.registry().list(), []);
        assert!(!pointer.run_dir.exists());
    }

    #[test]
    fn every_line_is_copied_once_and_a_replaced_journal_starts_again() {
        let (_dir, mirror) = mirror();
        let known = run(1);
        list(&mirror, "box", std::slice::from_ref(&known));
        let dir = mirror.registry().find(&known.run).expect("is listed").run_dir;
        for seq in [1, 2, 2, 1, 3] {
            mirror.append("box", &known.run, &line(seq)).expect("copies");
        }
        mirror.append("other", &known.run, &line(4)).expect("is ignored");
        mirror.append("box", &known.run, b"not an event").expect("is ignored");
        let seqs = |dir: &Path| -> Vec<u64> {
            let text = std::fs::read_to_string(dir.join(journal::FILE)).expect("reads");
            text.lines().filter_map(|line| journal::head(line.as_bytes()).map(|head| head.seq)).collect()
        };
        assert_eq!(seqs(&dir), [1, 2, 3]);
        assert_eq!(mirror.known("box"), BTreeMap::from([(known.run.clone(), 3)]));
        assert_eq!(mirror.known("other"), BTreeMap::new());
        mirror.restart("box", &known.run).expect("restarts");
        mirror.append("box", &known.run, &line(1)).expect("copies");
        assert_eq!(seqs(&dir), [1]);
    }

    #[test]
    fn a_run_that_moved_belongs_to_the_machine_where_it_is_live() {
        let (_dir, mirror) = mirror();
        let (mut here, there) = (run(1), run(1));
        here.live = false;
        let host = || mirror.registry().find(&there.run).and_then(|p| p.origin).map(|o| o.host);
        list(&mirror, "old", std::slice::from_ref(&here));
        assert_eq!(host().as_deref(), Some("old"));
        list(&mirror, "new", std::slice::from_ref(&there));
        assert_eq!(host().as_deref(), Some("new"));
        list(&mirror, "old", std::slice::from_ref(&here));
        assert_eq!(host().as_deref(), Some("new"));
    }

    #[test]
    fn a_run_that_another_worker_of_a_fleet_took_over_keeps_its_lines() {
        let (_dir, mirror) = mirror();
        let known = run(1);
        let on = |host: &str| mirror.list("fleet", &[(origin(host), known.clone())]).expect("takes it");
        on("anna");
        mirror.append("fleet", &known.run, &line(1)).expect("copies");
        on("bert");
        let pointer = mirror.registry().find(&known.run).expect("is listed");
        assert_eq!(pointer.origin.map(|origin| origin.host).as_deref(), Some("bert"));
        assert_eq!(mirror.known("fleet"), BTreeMap::from([(known.run.clone(), 1)]));
        assert!(registry::is_live(&pointer.run_dir));
    }

    #[test]
    fn a_mirror_is_removed_with_its_owner_and_that_of_a_killed_process_by_the_next_one() {
        let (dir, first) = mirror();
        let mirrors = dir.path().join("mirrors");
        let count = || std::fs::read_dir(&mirrors).expect("lists").count();
        let killed = mirrors.join("1-0");
        std::fs::create_dir_all(killed.join("records")).expect("makes it");
        let second = Mirror::create_in(&mirrors).expect("creates");
        assert_eq!(count(), 2, "the first one is in use, the killed one is gone");
        list(&first, "box", &[run(1)]);
        drop((first, second));
        assert_eq!(count(), 0);
    }
}
