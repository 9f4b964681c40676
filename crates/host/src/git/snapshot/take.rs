//! Takes a snapshot: the steps in order, and the reading of changed files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use super::changes::{self, Change, Changes, Repository, SnapshotError};
use super::left_out::LeftOut;
use super::loose::{self, Loose};
use super::modes::{Modes, umask};
use super::pristine;
use super::privacy::Privacy;
use super::prune::prune_node;
use super::stream::{self, Commits, Stream};
use super::{Limits, MAX_NAMED, Outcome, Request, Skipped, Taken};
use crate::fs::digest::real;
use crate::git::{Git, MAX_ANSWER};

/// How much of a path is shown.
const MAX_PATH_SHOWN: usize = 200;

/// Takes a snapshot in this process, for [`super::main`] and for tests. It runs git and may take long.
pub fn take(request: &Request) -> Outcome {
    take_until(request, None)
}

/// Like [`take`], with a deadline, for use outside a job.
pub fn take_until(request: &Request, until: Option<Instant>) -> Outcome {
    if let Some(taken) = pristine::take(request, crate::clock::now().wall.0 / 1000) {
        return Outcome::Taken(taken);
    }
    let git = Git::at(&request.work_dir).until(until);
    let taken = Repository::find(&git).and_then(|repository| with_scratch(request, repository, until));
    match taken {
        Ok(taken) => Outcome::Taken(taken),
        Err(SnapshotError::NoWorkTree(why)) => Outcome::NoWorkTree { why },
        Err(SnapshotError::Failed(why)) => Outcome::Failed { why },
    }
}

fn with_scratch(
    request: &Request,
    repository: Repository,
    until: Option<Instant>,
) -> Result<Taken, SnapshotError> {
    // A leftover of a process that was killed.
    let _ = fs::remove_dir_all(&request.scratch);
    crate::store::home::make_private(&request.scratch)?;
    let taken = take_at(request, repository, until);
    let _ = fs::remove_dir_all(&request.scratch);
    taken
}

fn take_at(
    request: &Request,
    repository: Repository,
    until: Option<Instant>,
) -> Result<Taken, SnapshotError> {
    let mut git = Git::at(&repository.top).until(until);
    let changes = changes::changes(&mut git, repository, &request.scratch)?;
    let when = crate::clock::now().wall.0 / 1000;
    let mut taken = match write_loose(git.dir(), request, &changes, when) {
        Some(taken) => taken,
        None => import(&git, request, &changes, when)?,
    };
    taken.changed = changes.since_head().saturating_sub(taken.skipped);
    if let Some(keep) = request.keep {
        match prune_node(&git, &request.ref_name, keep) {
            Ok(pruned) => taken.pruned = pruned,
            Err(error) => taken.prune_failed = Some(error.to_string()),
        }
    }
    Ok(taken)
}

/// Writes a small snapshot directly. Returns `None` if that is not possible; then nothing but a few objects was written.
fn write_loose(top: &Path, request: &Request, changes: &Changes, when: i64) -> Option<Taken> {
    let quick = changes.quick.as_ref().filter(|_| is_small(top, changes))?;
    let mut taken = Taken { ref_name: request.ref_name.clone(), ..Taken::default() };
    let mut commits = Loose::new(quick, when);
    write(&mut commits, top, request, changes, &mut taken).ok()?;
    (taken.commit, taken.tree) = commits.finish().ok()?;
    Some(taken)
}

fn is_small(top: &Path, changes: &Changes) -> bool {
    let size =
        |path: &[u8]| fs::symlink_metadata(top.join(OsStr::from_bytes(path))).map_or(0, |facts| facts.len());
    changes.changes.len() <= loose::MAX_FILES
        && changes.changes.keys().map(|path| size(path)).sum::<u64>() <= loose::MAX_BYTES
}

/// Passes all changes to git, which creates the commit and the ref at the end.
fn import(git: &Git, request: &Request, changes: &Changes, when: i64) -> Result<Taken, SnapshotError> {
    let args = ["fast-import", "--quiet", "--force", "--depth=0"];
    let mut command = git.command(&args);
    command.stdin(Stdio::piped());
    let mut running = git.start(command, &args)?;
    let pid = running.child.id();
    let mut taken = Taken { ref_name: request.ref_name.clone(), ..Taken::default() };
    let written = match running.child.stdin.take() {
        Some(stdin) => Stream::new(BufWriter::new(stdin), when).and_then(|mut stream| {
            write(&mut stream, git.dir(), request, changes, &mut taken)?;
            stream.end()
        }),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    };
    // Git's own error message says more than the broken pipe.
    let finished = running.finish();
    if finished.is_err() {
        remove_crash_report(git, pid);
    }
    let answer = finished?;
    written?;
    (taken.commit, taken.tree) = stream::ids(&answer)
        .ok_or_else(|| SnapshotError::Failed("git fast-import did not name the commit".to_owned()))?;
    Ok(taken)
}

/// Removes the crash report that git leaves in the repository after invalid input.
fn remove_crash_report(git: &Git, pid: u32) {
    let name = format!("fast_import_crash_{pid}");
    if let Ok(path) = git.run(&["rev-parse", "--git-path", &name]) {
        let path = path.strip_suffix(b"\n").unwrap_or(&path);
        let _ = fs::remove_file(git.dir().join(OsStr::from_bytes(path)));
    }
}

fn write(
    commits: &mut impl Commits,
    top: &Path,
    request: &Request,
    changes: &Changes,
    taken: &mut Taken,
) -> io::Result<()> {
    let mut reading = Reading {
        top,
        modes_count: changes.modes_count,
        umask: umask(),
        privacy: Privacy::new(top, changes.closed),
        limits: request.limits,
        until: Instant::now() + request.limits.reading,
        taken,
        left_out: LeftOut::default(),
        modes: Modes::default(),
    };
    if !changes.all_others {
        reading.taken.skipped += 1;
        reading.name(b"(untracked files)", format!("the list is longer than {MAX_ANSWER} bytes"));
        reading.left_out.more = true;
    }
    let mut contents = Vec::new();
    for (path, change) in in_order(top, &request.state_dirs, &changes.changes) {
        match reading.read(path, change) {
            Ok((mode, content)) => contents.push((mode, path, commits.content(&content)?)),
            Err(why) => reading.skip(path, why),
        }
    }
    let message = message(&request.ref_name, &reading.left_out, &reading.modes);
    commits.begin(&request.ref_name, changes.head.as_deref(), &changes.index_tree, &message)?;
    // Remove files first, because a file may replace a directory.
    for (path, _) in changes.changes.iter().filter(|(_, change)| **change == Change::Deleted) {
        commits.remove(path)?;
        reading.taken.deleted += 1;
    }
    for (mode, path, content) in contents {
        commits.put(mode, path, content)?;
    }
    Ok(())
}

/// Returns the message of a snapshot's commit.
pub(super) fn message(ref_name: &str, left_out: &LeftOut, modes: &Modes) -> String {
    let title = ref_name.strip_prefix(super::REFS).unwrap_or(ref_name);
    let left_out = left_out.to_words();
    let modes = modes.to_words(left_out.is_empty());
    format!("dogwatch snapshot {title}{left_out}{modes}")
}

/// Returns the files to read: tracked files first, then others from the smallest, so that a large data file does
/// not use up the limit before the sources.
fn in_order<'a>(
    top: &Path,
    state_dirs: &[PathBuf],
    changes: &'a BTreeMap<Vec<u8>, Change>,
) -> Vec<(&'a [u8], Change)> {
    let top = real(top);
    let ours: Vec<PathBuf> =
        state_dirs.iter().filter_map(|dir| Some(real(dir).strip_prefix(&top).ok()?.to_owned())).collect();
    let is_ours = |path: &[u8]| ours.iter().any(|dir| Path::new(OsStr::from_bytes(path)).starts_with(dir));
    let size =
        |path: &[u8]| fs::symlink_metadata(top.join(OsStr::from_bytes(path))).map_or(0, |facts| facts.len());
    let mut order: Vec<(u64, &[u8], Change)> = changes
        .iter()
        .filter(|(path, change)| **change != Change::Deleted && !is_ours(path))
        .map(|(path, change)| {
            let rank = if *change == Change::Untracked { size(path).saturating_add(1) } else { 0 };
            (rank, path.as_slice(), *change)
        })
        .collect();
    order.sort_by_key(|(rank, ..)| *rank);
    order.into_iter().map(|(_, path, change)| (path, change)).collect()
}

/// Returns whether a commit of all files leaves out an untracked one, as a snapshot does: a nested repository, a private
/// file, or a large one.
pub(crate) fn is_left_out(privacy: &mut Privacy<'_>, path: &[u8], limits: &Limits) -> bool {
    let Ok(facts) = fs::symlink_metadata(privacy.top.join(OsStr::from_bytes(path))) else { return true };
    cannot_store(path).is_some()
        || privacy.covers(path, facts.permissions().mode())
        || !(facts.is_file() || facts.is_symlink())
        || facts.len() > limits.file_bytes
}

/// Returns why git cannot store a path.
fn cannot_store(path: &[u8]) -> Option<&'static str> {
    if path.ends_with(b"/") {
        return Some("a nested repository");
    }
    let git = path.split(|byte| *byte == b'/').any(|part| part.eq_ignore_ascii_case(b".git"));
    git.then_some("git cannot store this name")
}

struct Reading<'a> {
    top: &'a Path,
    modes_count: bool,
    umask: u32,
    privacy: Privacy<'a>,
    limits: Limits,
    until: Instant,
    taken: &'a mut Taken,
    left_out: LeftOut,
    modes: Modes,
}

impl Reading<'_> {
    /// Returns the mode and the content of a file, or why it is left out.
    fn read(&mut self, path: &[u8], change: Change) -> Result<(&'static str, Vec<u8>), String> {
        if let Some(why) = cannot_store(path) {
            return Err(why.to_owned());
        }
        if self.taken.files >= self.limits.files {
            return Err(format!("more than {} files", self.limits.files));
        }
        if Instant::now() >= self.until {
            return Err("out of time".to_owned());
        }
        let file = self.top.join(OsStr::from_bytes(path));
        let facts = fs::symlink_metadata(&file).map_err(|error| error.to_string())?;
        if self.privacy.covers(path, facts.permissions().mode()) {
            return Err("only its owner may read it, and others may read the repository".to_owned());
        }
        let (mode, content) = if facts.is_symlink() {
            (
                "120000",
                fs::read_link(&file).map_err(|error| error.to_string())?.as_os_str().as_bytes().to_vec(),
            )
        } else if facts.is_file() {
            let executable = match change {
                Change::Tracked { executable } => executable,
                Change::Untracked | Change::Deleted => {
                    self.modes_count && facts.permissions().mode() & 0o100 != 0
                }
            };
            let content = self.content(&file, facts.len())?;
            self.modes.note(path, facts.permissions().mode(), executable, self.umask);
            (if executable { "100755" } else { "100644" }, content)
        } else {
            return Err("not a file".to_owned());
        };
        self.taken.files += 1;
        self.taken.untracked += u64::from(change == Change::Untracked);
        self.taken.bytes += content.len() as u64;
        Ok((mode, content))
    }

    fn content(&self, path: &Path, size: u64) -> Result<Vec<u8>, String> {
        self.has_room(size)?;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).expect("flags of open fit a C int");
        let open = File::options().read(true).custom_flags(flags).open(path);
        let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        // The file may grow while it is read.
        let read = open.and_then(|file| file.take(self.limits.file_bytes + 1).read_to_end(&mut content));
        read.map_err(|error| error.to_string())?;
        self.has_room(content.len() as u64)?;
        Ok(content)
    }

    fn has_room(&self, size: u64) -> Result<(), String> {
        if size > self.limits.file_bytes {
            return Err(format!("larger than {} bytes", self.limits.file_bytes));
        }
        if self.taken.bytes.saturating_add(size) > self.limits.total_bytes {
            return Err(format!("more than {} bytes in total", self.limits.total_bytes));
        }
        Ok(())
    }

    fn skip(&mut self, path: &[u8], why: String) {
        self.taken.skipped += 1;
        self.left_out.add(path);
        self.name(path, why);
    }

    fn name(&mut self, path: &[u8], why: String) {
        if self.taken.named.len() < MAX_NAMED {
            let path = String::from_utf8_lossy(path);
            let path = dogwatch_core::text::clip(&path, MAX_PATH_SHOWN).to_owned();
            self.taken.named.push(Skipped { path, why });
        }
    }
}
