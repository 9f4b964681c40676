//! Removes the directory of a finished run, completely or not at all.

use crate::store::registry::Alive;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most files counted to find the size of a directory. The size of a larger one is a lower bound.
pub const MAX_LOOKED_AT: usize = 1_000_000;

/// The name prefix of a directory that is being removed. No run has such a name.
const REMOVING: &str = ".going-";

/// Removes the directory of a run. Renames it first, so that a partly removed one is never taken for a run. If the
/// removal is interrupted, [`clear`] removes the rest.
pub fn retire(run_dir: &Path) -> io::Result<()> {
    // Hold the run so that no other process resumes it meanwhile. Fails if the run is alive.
    let alive = Alive::hold(run_dir)?;
    let name = run_dir.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut renamed = std::ffi::OsString::from(REMOVING);
    renamed.push(name);
    let renamed = run_dir.with_file_name(renamed);
    fs::rename(run_dir, &renamed)?;
    drop(alive);
    fs::remove_dir_all(renamed)
}

/// Removes the rest of directories whose removal was interrupted. Returns how many it removed.
pub fn clear(runs: &Path) -> u64 {
    let entries = fs::read_dir(runs).into_iter().flatten().flatten();
    let left: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(REMOVING))
        .map(|entry| entry.path())
        .collect();
    left.iter().filter(|path| fs::remove_dir_all(path).is_ok()).count() as u64
}

/// Returns the total size of all files in a directory. Does not follow links.
pub fn size(dir: &Path) -> u64 {
    let mut waiting = vec![dir.to_owned()];
    let (mut bytes, mut looked_at) = (0_u64, 0);
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            looked_at += 1;
            if looked_at > MAX_LOOKED_AT {
                return bytes;
            }
            match entry.metadata() {
                Ok(facts) if facts.is_dir() => waiting.push(entry.path()),
                // Equal prompts are one file with several names.
                Ok(facts) => bytes = bytes.saturating_add(facts.len() / facts.nlink().max(1)),
                Err(_) => {}
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_in(runs: &Path) -> PathBuf {
        let run = runs.join("20261115-201533-k3f9");
        fs::create_dir_all(run.join("loop/000001")).expect("a directory");
        fs::write(run.join("events.jsonl"), "12345").expect("written");
        fs::write(run.join("loop/000001/stdout"), "1234567").expect("written");
        run
    }

    #[test]
    fn a_run_is_removed_completely_and_its_size_is_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        let run = run_in(dir.path());
        std::os::unix::fs::symlink("/", run.join("link")).expect("a link");
        assert_eq!(size(&run), 12 + 1);
        retire(&run).expect("goes");
        assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 0);
    }

    // promise: 16
    #[test]
    fn a_run_that_is_alive_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let run = run_in(dir.path());
        let alive = Alive::hold(&run).expect("takes it");
        assert!(retire(&run).is_err());
        assert!(run.join("loop/000001/stdout").exists());
        drop(alive);
        retire(&run).expect("goes");
    }

    #[test]
    fn only_interrupted_removals_are_cleared() {
        let dir = tempfile::tempdir().expect("a directory");
        let run = run_in(dir.path());
        fs::create_dir(dir.path().join(".going-20261115-201533-x9x9")).expect("a directory");
        fs::write(dir.path().join(".going-20261115-201533-x9x9/stdout"), "").expect("written");
        assert_eq!(clear(dir.path()), 1);
        assert_eq!(clear(dir.path()), 0);
        assert!(run.exists());
    }
}
