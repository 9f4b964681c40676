//! A snapshot: the work tree, untracked files too, as a commit under `refs/dogwatch/`. Nothing of the user's
//! changes by it: not the index, no branch, no reflog, no file.
//!
//! The driver starts [`Request::command`] as a job; it is this same binary in another role, [`main`], which runs
//! a handful of git commands, prints one line of JSON ([`Outcome`]) and exits. Whoever bounds the job bounds all
//! of it. A run that is killed half-way leaves no ref, only objects that git's own clean-up removes.
//!
//! How it holds what it promises:
//! - No program of the user's runs: hooks and fsmonitor are off, every filter that is configured is overridden
//!   by name. File contents are read by us and handed to `git fast-import` as they are, so that not even line
//!   ends are converted: a snapshot has the bytes that stood in the file.
//! - git works on a copy of the index, so that a locked index does not matter, and with the copy's time stamp
//!   set to the original's: git trusts entries older than the index file, and a younger copy would hide the
//!   changes of the last second.
//! - What is unchanged is known from the index, so that the cost follows what has changed.
//!
//! The commit looks like one of `git stash`: its first parent is HEAD, if there is one, its last parent is a
//! commit of the index as it was. A file that is the same in both trees was clean: in the work tree it stood as
//! git checks it out. Any other file stood there byte by byte. Submodules and nested repositories are left as
//! the index has them; what was left out otherwise is named in the outcome, and in the commit's message, so that
//! a restoring knows what it must not remove.

mod diff;
mod left_out;
pub(crate) mod names;
mod prune;
mod put;
mod restore;
mod stream;
mod take;
pub(crate) mod tree;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use diff::{DiffWish, commit_of, diff};
pub use names::{REFS, UNDO, node_refs, ref_name, run_refs, undo_name};
pub use prune::{Stored, forget, prune, stored};
pub use restore::{Prepared, Restored, Undo, prepare};
pub use take::{take, take_until};

/// The first argument that makes the binary take a snapshot.
pub const ARGUMENT: &str = "__snapshot";

/// How long a snapshot may take before its job is to be killed.
pub const BOUND: Duration = Duration::from_secs(30);

/// How many of the files that were left out are named.
pub const MAX_NAMED: usize = 20;

/// The longest line that [`main`] prints, in bytes: a job's captured output must hold it.
pub const MAX_LINE: usize = 64 * 1024;

/// How much a snapshot may hold that the index does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A larger file is left out. It is held in memory while it is handed over.
    pub file_bytes: u64,
    pub total_bytes: u64,
    pub files: u64,
    /// After so much time no more contents are read; what is there by then is kept.
    pub reading: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            file_bytes: 32 * 1024 * 1024,
            total_bytes: 256 * 1024 * 1024,
            files: 100_000,
            // Leaves git the rest of the bound to write what it was given.
            reading: Duration::from_secs(15),
        }
    }
}

/// What to take, and where to put it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Any directory of the work tree: all of the tree is taken.
    pub work_dir: PathBuf,
    /// From [`ref_name`].
    pub ref_name: String,
    /// A directory for the copy of the index: made, used by one snapshot at a time, removed.
    pub scratch: PathBuf,
    /// dogwatch's own directories, never taken.
    pub state_dirs: Vec<PathBuf>,
    pub limits: Limits,
    /// How many of the node's snapshots stay, besides number 0 and this one; all if None.
    pub keep: Option<u64>,
}

impl Request {
    /// The command that takes it, to be run as a job in `work_dir`. Its output is for [`Outcome::read`].
    pub fn command(&self) -> Vec<String> {
        let mut argv = vec!["/proc/self/exe".to_owned(), ARGUMENT.to_owned()];
        let mut add = |flag: &str, value: String| argv.extend([flag.to_owned(), value]);
        let path = |path: &PathBuf| names::escape(path.as_os_str().as_bytes());
        add("ref", self.ref_name.clone());
        add("work-dir", path(&self.work_dir));
        add("scratch", path(&self.scratch));
        self.state_dirs.iter().for_each(|dir| add("state-dir", path(dir)));
        add("file-bytes", self.limits.file_bytes.to_string());
        add("total-bytes", self.limits.total_bytes.to_string());
        add("files", self.limits.files.to_string());
        add("reading-ms", self.limits.reading.as_millis().to_string());
        if let Some(keep) = self.keep {
            add("keep", keep.to_string());
        }
        argv
    }

    /// Reads back what [`Request::command`] wrote, without its first two words.
    fn parse(args: impl Iterator<Item = OsString>) -> Option<Request> {
        let mut request = Request {
            work_dir: PathBuf::new(),
            ref_name: String::new(),
            scratch: PathBuf::new(),
            state_dirs: Vec::new(),
            limits: Limits::default(),
            keep: None,
        };
        let words: Vec<String> = args.map(|arg| arg.into_string().ok()).collect::<Option<_>>()?;
        for pair in words.chunks(2) {
            let [flag, value] = pair else { return None };
            request.set(flag, value)?;
        }
        let whole = !request.ref_name.is_empty() && request.scratch.is_absolute();
        whole.then_some(request)
    }

    fn set(&mut self, flag: &str, value: &str) -> Option<()> {
        match flag {
            "ref" => self.ref_name = value.to_owned(),
            "work-dir" => self.work_dir = names::unescape_path(value)?,
            "scratch" => self.scratch = names::unescape_path(value)?,
            "state-dir" => self.state_dirs.push(names::unescape_path(value)?),
            "file-bytes" => self.limits.file_bytes = value.parse().ok()?,
            "total-bytes" => self.limits.total_bytes = value.parse().ok()?,
            "files" => self.limits.files = value.parse().ok()?,
            "reading-ms" => self.limits.reading = Duration::from_millis(value.parse().ok()?),
            "keep" => self.keep = Some(value.parse().ok()?),
            _ => return None,
        }
        Some(())
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "snapshot", rename_all = "snake_case")]
pub enum Outcome {
    Taken(Taken),
    /// There is nothing to snapshot here, and there will not be: worth one notice per run.
    NoWorkTree {
        why: String,
    },
    /// The work tree is as it was; worth a trouble.
    Failed {
        why: String,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    #[serde(rename = "ref")]
    pub ref_name: String,
    pub commit: String,
    pub tree: String,
    /// Files whose contents differ from the index, or may; untracked ones among them.
    pub files: u64,
    pub untracked: u64,
    pub deleted: u64,
    /// Of the contents of `files`.
    pub bytes: u64,
    /// Left out: all of them, and the first by name.
    pub skipped: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<Skipped>,
    /// The older snapshots of this node that went for it.
    #[serde(default)]
    pub pruned: u64,
    /// Why the older ones are still there: worth a trouble, the snapshot itself is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune_failed: Option<String>,
}

/// A file that is not in the snapshot as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub path: String,
    pub why: String,
}

impl Outcome {
    /// Reads what the job printed.
    pub fn read(stdout: &[u8]) -> Outcome {
        match serde_json::from_slice(stdout) {
            Ok(outcome) => outcome,
            Err(_) => Outcome::Failed { why: "the snapshot ended without a word".to_owned() },
        }
    }
}

/// The role: takes the snapshot that the arguments ask for and prints what came of it.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    // Otherwise it would be called `exe`, after the link that it was started by.
    let _ = rustix::thread::set_name(c"dogwatch-snap");
    let outcome = match Request::parse(args) {
        Some(request) => take(&request),
        None => {
            Outcome::Failed { why: "the snapshot was asked for in words that it does not know".to_owned() }
        }
    };
    let failed = matches!(outcome, Outcome::Failed { .. });
    let mut line = serde_json::to_vec(&outcome).expect("texts and numbers always become JSON");
    line.push(b'\n');
    match std::io::stdout().write_all(&line) {
        Ok(()) if !failed => ExitCode::SUCCESS,
        Ok(()) | Err(_) => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_read_as_it_was_written() {
        let odd = PathBuf::from(std::ffi::OsStr::from_bytes(b"/a b/\xff%\n=c"));
        let limits = Limits { file_bytes: 1, total_bytes: 2, files: 3, reading: Duration::from_millis(1500) };
        let request = Request {
            work_dir: odd.clone(),
            ref_name: "refs/dogwatch/x".to_owned(),
            scratch: odd.clone(),
            state_dirs: vec![odd, "/b".into()],
            limits,
            keep: Some(7),
        };
        let words = request.command().into_iter().skip(2).map(OsString::from);
        assert_eq!(Request::parse(words), Some(request));
    }

    #[test]
    fn words_that_ask_for_nothing_are_refused() {
        let parse = |words: &[&str]| Request::parse(words.iter().map(OsString::from));
        for words in
            [&[][..], &["ref"], &["ref", "x"], &["colour", "blue"], &["ref", "x", "scratch", "relative"]]
        {
            assert_eq!(parse(words), None, "{words:?}");
        }
    }

    #[test]
    fn silence_and_nonsense_are_failures() {
        for output in [&b""[..], b"fatal: no", b"{\"snapshot\":\"taken\""] {
            assert!(matches!(Outcome::read(output), Outcome::Failed { .. }));
        }
    }
}
