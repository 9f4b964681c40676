//! Checks this directory and the user's directories: file watching, the record, the locks and the settings.

use super::Finding;
use crate::loading::PROJECT_FILE;
use crate::screen::words;
use dogwatch_config::diagnostic::{Severity, Source};
use dogwatch_config::{Flags, Sources, load};
use dogwatch_host::fs::wake;
use dogwatch_host::process::program;
use dogwatch_host::prompt;
use dogwatch_host::store::home;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The most directories to count. More are never watched.
const MAX_DIRECTORIES: u64 = 200_000;
/// How long counting may take.
const COUNT_BOUND: Duration = Duration::from_secs(2);

/// Enough free space for a night of raw output and snapshots, in bytes.
const ROOM: u64 = 1024 * 1024 * 1024;
/// Too little free space for even one session, in bytes.
const NO_ROOM: u64 = 100 * 1024 * 1024;

/// How much the clock of a file system may differ from the machine's. A network file system uses the server's clock.
const MAX_SKEW: Duration = Duration::from_secs(5);

/// Compares the allowed file watches with the number that this work tree needs.
pub fn watching(here: &Path) -> Finding {
    let (directories, all) = program::count_directories(here, MAX_DIRECTORIES, COUNT_BOUND);
    let limit = |name: &str| -> Option<u64> {
        std::fs::read_to_string(format!("/proc/sys/fs/inotify/{name}")).ok()?.trim().parse().ok()
    };
    judge_watching(directories, all, limit("max_user_watches"), limit("max_user_instances"))
}

fn judge_watching(directories: u64, all: bool, watches: Option<u64>, instances: Option<u64>) -> Finding {
    const NAME: &str = "watching";
    let more = if all { "" } else { " or more" };
    let needs = format!("{}{more} here", words::count(directories, "directory"));
    let (Some(watches), Some(instances)) = (watches, instances) else {
        let advice = "dogwatch scans for changes instead; no action needed unless that is too slow";
        return Finding::warning(NAME, format!("{needs}; this system has no inotify"), advice);
    };
    let found = format!("{needs}; {watches} watches and {instances} instances allowed");
    let ours = u64::try_from(wake::MAX_WATCHES).unwrap_or(u64::MAX);
    if !all || directories > ours {
        return Finding::warning(
            NAME,
            found,
            "too many directories to watch, so dogwatch scans for changes; keep large data in ignored directories",
        );
    }
    // Half of the watches are left to the user's editors and file managers.
    if directories.saturating_mul(2) > watches {
        let advice = format!(
            "run `sudo sysctl fs.inotify.max_user_watches={}`; until then dogwatch scans for changes",
            ours * 4
        );
        return Finding::warning(NAME, found, advice);
    }
    if instances < 16 {
        return Finding::warning(NAME, found, "run `sudo sysctl fs.inotify.max_user_instances=512`");
    }
    Finding::ok(NAME, found)
}

/// Checks the project's state directory, the user's lock directory and the free disk space.
pub fn record(here: &Path) -> Vec<Finding> {
    let state = here.join(home::STATE_DIR);
    let state_advice = "make it writable, or use another directory with --state-dir";
    let locks = home::user_state_dir();
    let lock_advice = format!(
        "make {} writable, or set XDG_STATE_HOME to a directory on a local disk that you may write to; \
         --state-dir does not move the locks",
        nearest(&locks).display()
    );
    vec![
        trial("state directory", &state, state_advice),
        trial("lock directory", &locks, &lock_advice),
        room(&state),
    ]
}

/// Tries a directory. `advice` helps if it is not writable.
fn trial(name: &str, dir: &Path, advice: &str) -> Finding {
    let there = nearest(dir);
    let shown = dir.display();
    match try_file(&there) {
        Ok(Tried { locks: false, .. }) => Finding::problem(
            name,
            format!("{shown}: the file system does not support locks"),
            "two runs could use the same work tree; use a local disk (--state-dir, XDG_STATE_HOME)",
        ),
        Ok(Tried { skew, .. }) if skew > MAX_SKEW => Finding::warning(
            name,
            format!("{shown}: the clock of the file system is {} s off", skew.as_secs()),
            "set the clocks of both machines",
        ),
        Ok(_) => Finding::ok(name, format!("{shown} is writable and supports locks")),
        Err(error) => Finding::problem(name, format!("cannot write to {shown}: {error}"), advice),
    }
}

/// Returns the directory itself, or what exists nearest above it. That may be a file, in which no directory can be made.
fn nearest(dir: &Path) -> PathBuf {
    dir.ancestors().find(|place| place.exists()).unwrap_or(Path::new("/")).to_owned()
}

struct Tried {
    locks: bool,
    skew: Duration,
}

/// Writes and locks a temporary file, then removes it.
fn try_file(dir: &Path) -> io::Result<Tried> {
    let path = dir.join(format!(".dogwatch-doctor-{}", std::process::id()));
    let mut file = File::options().write(true).create_new(true).open(&path)?;
    let tried = file.write_all(b"x").and_then(|()| {
        let other = File::options().write(true).open(&path)?;
        // While one descriptor holds the lock, the other must not get it.
        let locks = file.try_lock().is_ok() && other.try_lock().is_err();
        let (now, then) = (SystemTime::now(), file.metadata()?.modified()?);
        let skew = now.duration_since(then).or_else(|_| then.duration_since(now)).unwrap_or_default();
        Ok(Tried { locks, skew })
    });
    std::fs::remove_file(&path)?;
    tried
}

fn room(state: &Path) -> Finding {
    let advice = "free some space; a run that cannot write its record starts no new sessions";
    match rustix::fs::statvfs(nearest(state)) {
        Ok(facts) => {
            let free = facts.f_bavail.saturating_mul(facts.f_frsize);
            let found = format!("{:.1} GB free for the record", free as f64 / 1e9);
            // Some file systems do not report inodes.
            let full = facts.f_files > 0 && facts.f_favail == 0;
            match free {
                _ if full => Finding::problem("disk", "no free inodes", advice),
                0..NO_ROOM => Finding::problem("disk", found, advice),
                NO_ROOM..ROOM => Finding::warning("disk", found, advice),
                _ => Finding::ok("disk", found),
            }
        }
        Err(error) => Finding::warning("disk", format!("cannot read the free space: {error}"), advice),
    }
}

/// Checks the user's and the project's settings files.
pub fn settings(here: &Path) -> Vec<Finding> {
    let user = home::user_config_file().map(|path| settings_file("user settings", &path, true));
    let project = settings_file("project settings", &here.join(PROJECT_FILE), false);
    user.into_iter().chain([project]).collect()
}

fn settings_file(name: &str, path: &Path, is_user: bool) -> Finding {
    let shown = path.display().to_string();
    let text = match prompt::read_bounded(path) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Finding::ok(name, format!("none ({shown})"));
        }
        Err(e) => {
            return Finding::problem(
                name,
                format!("{shown}: {e}"),
                "make sure that it is a text file and that you may read it",
            );
        }
    };
    let source = Some(Source { name: &shown, text: &text });
    // A stand-in for any loop: only the settings are checked.
    let stand_in = Source { name: "doctor", text: "---\nagent: sh\n---\nx\n" };
    let flags = Flags::default();
    let mut sources = Sources::of_file(stand_in, &flags, &dogwatch_agents::detect);
    *(if is_user { &mut sources.user } else { &mut sources.project }) = source;
    let found = match load(&sources, "doctor") {
        Ok(loaded) => loaded.warnings,
        Err(found) => found,
    };
    let advice = "`dogwatch check DIR` shows the line";
    match found.iter().find(|f| f.file == shown) {
        Some(first) if first.severity == Severity::Error => {
            Finding::problem(name, format!("{}: {}", first.position(), first.message), advice)
        }
        Some(first) => Finding::warning(name, format!("{}: {}", first.position(), first.message), advice),
        None => Finding::ok(name, shown),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_tree_may_need_half_of_the_allowed_watches() {
        let level = |directories, all, watches| judge_watching(directories, all, watches, Some(128)).level;
        assert_eq!(level(4096, true, Some(8192)), Level::Ok);
        assert_eq!(level(4097, true, Some(8192)), Level::Warning);
        assert_eq!(level(65_536, true, Some(1_000_000)), Level::Ok);
        assert_eq!(level(65_537, true, Some(1_000_000)), Level::Warning);
        assert_eq!(level(10, false, Some(1_000_000)), Level::Warning);
        assert_eq!(level(10, true, None), Level::Warning);
    }

    #[test]
    fn the_trial_leaves_no_file_behind() {
        let dir = tempfile::tempdir().expect("a directory");
        let finding = trial("state", &dir.path().join("not/yet"), "");
        assert_eq!(finding.level, Level::Ok, "{finding:?}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0);
    }
}
