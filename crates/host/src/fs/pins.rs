//! The files that a node's checks depend on, and their hashes: those that `pin:` names, and files in the work tree
//! that a word of a check names. A check that its agent can rewrite proves nothing.
//!
//! Hashing runs on its own thread and within limits. Exceeding a limit is an error that names it.

mod named;

pub use named::named_files;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use dogwatch_core::record::event::Pin;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::fs::digest::work_tree_digest;
use crate::store::home;
use crate::store::journal::hex;

/// The most files that can be pinned for a node.
pub const MAX_PINS: usize = 10_000;
/// The most files and directories that are visited to find them.
pub const MAX_LOOKED_AT: usize = 1_000_000;
/// The most bytes that are read from all pinned files together.
pub const MAX_PINNED_BYTES: u64 = 1024 * 1024 * 1024;
/// The most bytes of all their names together, because the names are recorded.
pub const MAX_PIN_NAMES: usize = 1024 * 1024;
/// How long hashing may take.
pub const PIN_BOUND: Duration = Duration::from_secs(30);
/// How long the digest of the work tree may take. A state that is not known in time counts as new.
pub const TREE_BOUND: Duration = Duration::from_secs(2);

/// How long hashing may take on the calling thread, if no other thread can be started.
pub const INLINE_BOUND: Duration = Duration::from_secs(2);

/// The size of one read.
const BUFFER: usize = 64 * 1024;

/// What to hash.
#[derive(Clone, Debug)]
pub struct Request {
    /// The directory in which the checks run.
    pub work_dir: PathBuf,
    /// The patterns of `pin`.
    pub globs: Vec<String>,
    /// The check commands, unless the pinned programs are already known.
    pub checks: Vec<String>,
    /// The files that were pinned when the node began. They are included even if they are gone.
    pub known: Vec<String>,
    /// dogwatch's own directories, where nothing is pinned.
    pub state_dirs: Vec<PathBuf>,
    /// Also digest the work tree, to recognize progress without snapshots.
    pub tree: bool,
}

/// The hashes of the pinned files, and the digest of the work tree if it was requested and is known.
#[derive(Debug)]
pub struct Hashed {
    /// The hashes, or why they cannot be computed.
    pub pins: Result<Vec<Pin>, String>,
    /// The digest of the work tree.
    pub tree: Option<String>,
}

impl Hashed {
    fn of(request: &Request, limits: &Limits) -> Hashed {
        let digest = || work_tree_digest(&request.work_dir, &request.state_dirs, TREE_BOUND).ok();
        Hashed { pins: hash(request, limits), tree: request.tree.then(digest).flatten() }
    }
}

/// Hashes the files on another thread and passes the result to `reply`. `reply` is always called, and in bounded
/// time: an unresponsive file system blocks a thread, not the run.
///
/// If the system has no room for a thread, this thread hashes, for a shorter time: a passing shortage must not fail
/// the node.
pub fn hash_aside(request: Request, reply: impl FnOnce(Hashed) + Send + 'static) {
    let start = |work: Box<dyn FnOnce() + Send>| std::thread::Builder::new().name("pins".into()).spawn(work);
    let (request, reply) = (Arc::new(request), Arc::new(Mutex::new(Some(reply))));
    let (theirs, answer_to) = (Arc::clone(&request), Arc::clone(&reply));
    let waiting = move || {
        let (done, answer) = mpsc::sync_channel(1);
        let asked = Arc::clone(&theirs);
        let work = move || {
            // The receiver is gone if hashing took too long.
            let _ = done.send(Hashed::of(&asked, &Limits::default()));
        };
        let late = || Hashed { pins: Err(took_too_long(PIN_BOUND)), tree: None };
        let hashed = match start(Box::new(work)) {
            Ok(_) => answer.recv_timeout(2 * PIN_BOUND).unwrap_or_else(|_| late()),
            Err(_) => Hashed::of(&theirs, &Limits::default()),
        };
        answer_once(&answer_to, hashed);
    };
    if start(Box::new(waiting)).is_err() {
        answer_once(&reply, Hashed::of(&request, &Limits { time: INLINE_BOUND, ..Limits::default() }));
    }
}

/// Calls `reply` unless it was called before.
fn answer_once(reply: &Mutex<Option<impl FnOnce(Hashed)>>, hashed: Hashed) {
    // Ignore poisoning: nothing panics while it holds the lock.
    let reply = reply.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(reply) = reply {
        reply(hashed);
    }
}

/// The limits of one hashing.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The number of pinned files.
    pub files: usize,
    /// The number of directory entries to look at.
    pub looked_at: usize,
    /// The number of bytes to hash.
    pub bytes: u64,
    /// Bytes of all names.
    pub names: usize,
    /// How long hashing may take.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            files: MAX_PINS,
            looked_at: MAX_LOOKED_AT,
            bytes: MAX_PINNED_BYTES,
            names: MAX_PIN_NAMES,
            time: PIN_BOUND,
        }
    }
}

/// Returns the pinned files and their hashes, sorted by name.
pub fn hash(request: &Request, limits: &Limits) -> Result<Vec<Pin>, String> {
    let mut look = Look { request, limits, until: Instant::now() + limits.time, looked_at: 0, read: 0 };
    let mut paths: BTreeSet<PathBuf> = request.known.iter().map(PathBuf::from).collect();
    paths.extend(request.checks.iter().flat_map(|check| named_files(&request.work_dir, check)));
    look.find(&mut paths)?;
    if !request.checks.is_empty()
        && let Some(glob) = unmatched(&request.globs, &paths)?.first()
    {
        return Err(format!("pin `{glob}` matches no file"));
    }
    if paths.iter().map(|path| path.as_os_str().len()).sum::<usize>() > limits.names {
        return Err(format!("the names of the pinned files have more than {} bytes", limits.names));
    }
    paths.into_iter().map(|path| look.pin(path)).collect()
}

struct Look<'a> {
    request: &'a Request,
    limits: &'a Limits,
    until: Instant,
    looked_at: usize,
    read: u64,
}

impl Look<'_> {
    /// Adds every file that matches a glob. A link to a directory is followed if it leads into the work tree. Links below it
    /// are not followed, so that the search ends.
    fn find(&mut self, paths: &mut BTreeSet<PathBuf>) -> Result<(), String> {
        let globs = globs(&self.request.globs)?;
        let mut todo: Vec<(PathBuf, bool)> =
            starts(&self.request.globs).into_iter().map(|start| (start, false)).collect();
        while let Some((inside, linked)) = todo.pop() {
            self.look()?;
            let whole = self.request.work_dir.join(&inside);
            let listing = match fs::read_dir(&whole) {
                Ok(listing) => listing,
                // A missing directory contains no files to pin.
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    let is_file =
                        whole.symlink_metadata().is_ok_and(|meta| meta.is_file() || meta.is_symlink());
                    if globs.is_match(&inside) && is_file {
                        paths.insert(inside);
                    }
                    continue;
                }
                Err(error) => return Err(format!("{}: {error}", whole.display())),
            };
            for entry in listing {
                self.look()?;
                let entry = entry.map_err(|error| format!("{}: {error}", whole.display()))?;
                let inside = inside.join(entry.file_name());
                let kind = entry.file_type().map_err(|error| format!("{}: {error}", inside.display()))?;
                if kind.is_dir() {
                    if entry.file_name() != ".git" && !self.request.state_dirs.contains(&entry.path()) {
                        todo.push((inside, linked));
                    }
                    continue;
                }
                if kind.is_symlink() && !linked && self.leads_into_the_work_tree(&whole, &entry.path()) {
                    todo.push((inside.clone(), true));
                }
                if globs.is_match(&inside) {
                    paths.insert(inside);
                }
                if paths.len() > self.limits.files {
                    return Err(format!("more than {} files are pinned", self.limits.files));
                }
            }
        }
        Ok(())
    }

    /// Returns whether a link in `dir` leads to a directory of the work tree. A directory around the link does not count:
    /// everything in it would be pinned, also the work of the agent.
    fn leads_into_the_work_tree(&self, dir: &Path, link: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().ok();
        let root = real(&home::work_tree(&self.request.work_dir));
        let (Some(root), Some(dir), Some(to)) = (root, real(dir), real(link)) else { return false };
        let is_ours = self.request.state_dirs.iter().any(|ours| to.starts_with(ours));
        to.is_dir() && to.starts_with(root) && !dir.starts_with(&to) && !is_ours
    }

    fn look(&mut self) -> Result<(), String> {
        self.looked_at += 1;
        if self.looked_at > self.limits.looked_at {
            return Err(format!("more than {} files to search for pinned files", self.limits.looked_at));
        }
        self.look_at_the_clock()
    }

    fn look_at_the_clock(&self) -> Result<(), String> {
        if Instant::now() > self.until { Err(took_too_long(self.limits.time)) } else { Ok(()) }
    }

    /// Hashes one file. A path that is no longer a file has no content, which also counts as a change.
    fn pin(&mut self, inside: PathBuf) -> Result<Pin, String> {
        let path = inside.to_string_lossy().into_owned();
        let sha256 = match self.content(&self.request.work_dir.join(&inside)) {
            Ok(hash) => hash.transpose()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(format!("{path}: {error}")),
        };
        Ok(Pin { path, sha256 })
    }

    /// Returns the hash of a file, or `None` if the path is not a file. The inner error is an exceeded limit.
    fn content(&mut self, path: &Path) -> io::Result<Option<Result<String, String>>> {
        // Opening a FIFO would block, and opening a device can have side effects.
        let no_waiting = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of open(2)");
        // A link is hashed with its destination, so that pointing it elsewhere is a change even if the content is the
        // same.
        let link = destination(&self.request.work_dir, path)?;
        if !fs::metadata(path).is_ok_and(|meta| meta.is_file()) {
            let hash = link.map(|to| Sha256::digest(to.as_os_str().as_encoded_bytes()));
            return Ok(hash.map(|hash| Ok(hex(&hash))));
        }
        let mut file = File::options().read(true).custom_flags(no_waiting).open(path)?;
        let (mut hash, mut buffer) = (Sha256::new(), vec![0; BUFFER]);
        if let Some(to) = &link {
            hash.update(to.as_os_str().as_encoded_bytes());
            hash.update([0]);
        }
        loop {
            let got = file.read(&mut buffer)?;
            if got == 0 {
                return Ok(Some(Ok(hex(&hash.finalize()))));
            }
            hash.update(&buffer[..got]);
            self.read += got as u64;
            if self.read > self.limits.bytes {
                return Ok(Some(Err(format!("the pinned files have more than {} bytes", self.limits.bytes))));
            }
            if let Err(late) = self.look_at_the_clock() {
                return Ok(Some(Err(late)));
            }
        }
    }
}

/// Returns where a path leads if it, or a directory on the way to it, is a link. Fails if there is nothing at the path.
fn destination(work_dir: &Path, path: &Path) -> io::Result<Option<PathBuf>> {
    let is_link = path.symlink_metadata()?.is_symlink();
    match (path.canonicalize(), path.strip_prefix(work_dir)) {
        (Ok(real), Ok(inside)) => {
            let direct = !is_link && work_dir.canonicalize().is_ok_and(|dir| dir.join(inside) == real);
            Ok((!direct).then_some(real))
        }
        // A dangling link.
        (Err(_), _) if is_link => fs::read_link(path).map(Some),
        (Ok(real), Err(_)) => Ok(is_link.then_some(real)),
        (Err(error), _) => Err(error),
    }
}

/// Returns the globs that match none of the paths.
fn unmatched<'a>(texts: &'a [String], paths: &BTreeSet<PathBuf>) -> Result<Vec<&'a str>, String> {
    let mut none = Vec::new();
    for text in texts {
        let glob = globs(std::slice::from_ref(text))?;
        if !paths.iter().any(|path| glob.is_match(path)) {
            none.push(text.as_str());
        }
    }
    Ok(none)
}

/// Returns the globs that match no file in the work tree.
pub fn matching_nothing(request: &Request) -> Result<Vec<String>, String> {
    let limits = Limits::default();
    let mut look =
        Look { request, limits: &limits, until: Instant::now() + limits.time, looked_at: 0, read: 0 };
    let mut paths = BTreeSet::new();
    look.find(&mut paths)?;
    Ok(unmatched(&request.globs, &paths)?.into_iter().map(str::to_owned).collect())
}

fn took_too_long(bound: Duration) -> String {
    format!("reading the pinned files took longer than {} s", bound.as_secs())
}

/// Compiles the globs. A directory matches everything in it.
fn globs(texts: &[String]) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    let bad = |text: &str, error: globset::Error| format!("pin `{text}`: {}", error.kind());
    for text in texts {
        let text = tidy(text);
        for text in [text.clone(), format!("{text}/**")] {
            let glob = GlobBuilder::new(&text).literal_separator(true).build();
            set.add(glob.map_err(|error| bad(&text, error))?);
        }
    }
    set.build().map_err(|error| format!("pin: {}", error.kind()))
}

fn tidy(glob: &str) -> String {
    let parts: Vec<&str> = glob.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    parts.join("/")
}

/// Returns where to begin: the directories before the first wildcard, none of them below another.
fn starts(globs: &[String]) -> BTreeSet<PathBuf> {
    let fixed = globs.iter().map(|glob| {
        let glob = tidy(glob);
        let parts = glob.split('/').take_while(|part| !part.contains(['*', '?', '[', '{', '\\']));
        parts.collect::<PathBuf>()
    });
    let all: BTreeSet<PathBuf> = fixed.collect();
    let mut starts = BTreeSet::new();
    for path in all {
        // The set is sorted, so a directory comes before everything below it.
        if !starts.iter().any(|above: &PathBuf| path.starts_with(above)) {
            starts.insert(path);
        }
    }
    starts
}

#[cfg(test)]
mod tests;
