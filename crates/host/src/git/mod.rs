//! Runs git in a uniform way: without programs or settings of the user that could run or block, and with bounded output.

/// Merges of branches.
pub mod merge;
pub(crate) mod role;
/// Snapshots of a work tree.
pub mod snapshot;
/// Git worktrees for nodes.
pub mod worktree;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::process::keeper::EnvChange;
use dogwatch_core::text::clip;

/// The longest output that is read: a list of some 500,000 paths.
pub(crate) const MAX_ANSWER: u64 = 32 * 1024 * 1024;
/// How much of git's stderr is kept.
const MAX_SHOWN: u64 = 4096;
/// How much of it is shown.
const MAX_MESSAGE_SHOWN: usize = 300;

/// Settings that override the user's.
const FIXED: [&str; 15] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    // A shared index would be written next to the user's.
    "core.splitIndex=false",
    "core.logAllRefUpdates=false",
    "core.safecrlf=false",
    "core.quotePath=false",
    // Accept names that only other systems cannot store: they are stored, not checked out.
    "core.protectNTFS=false",
    "core.protectHFS=false",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.addEmbeddedRepo=false",
    "index.threads=true",
    // Compress fast: snapshots are rarely read.
    "core.compression=1",
    "pack.compression=1",
];

/// Git variables that are kept: they control trust and the location of settings. Any other could redirect git
/// elsewhere.
const KEPT: [&str; 3] = ["GIT_CONFIG", "GIT_CEILING_DIRECTORIES", "GIT_EXEC_PATH"];

/// Variables that name a repository or a part of it, whatever the current directory is. Git sets some of them for its
/// hooks.
const PLACES: [&str; 11] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
];

/// Returns the changes of the environment for a program in another work tree than dogwatch's own. With the variables that
/// dogwatch inherited, its git would change the repository and the index that they name.
pub fn for_other_tree() -> impl Iterator<Item = EnvChange> {
    PLACES.into_iter().map(|name| (name.into(), None))
}

/// Removes the variables of [`for_other_tree`] from the environment of a command.
pub fn leave_tree(command: &mut Command) -> &mut Command {
    PLACES.into_iter().fold(command, |command, name| command.env_remove(name))
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    #[error("git is not installed")]
    NotInstalled,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("git {what}: {said}")]
    Refused { what: String, code: Option<i32>, said: String },
    #[error("git {what} printed more than {MAX_ANSWER} bytes")]
    TooMuch { what: String },
    #[error("git {what} timed out")]
    TookTooLong { what: String },
}

/// Git in one directory.
#[derive(Clone, Debug)]
pub(crate) struct Git {
    dir: PathBuf,
    index: Option<PathBuf>,
    filters_off: Vec<OsString>,
    until: Option<Instant>,
}

impl Git {
    /// Creates a git without a time limit, for use in a job that has its own.
    pub(crate) fn at(dir: &Path) -> Git {
        Git { dir: dir.to_owned(), index: None, filters_off: Vec::new(), until: None }
    }

    /// Sets a deadline, for use outside a job. Every git process is killed at that time.
    pub(crate) fn until(mut self, until: Option<Instant>) -> Git {
        self.until = until;
        self
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Uses this index from now on.
    pub(crate) fn use_index(&mut self, index: &Path) {
        self.index = Some(index.to_owned());
    }

    /// Disables the filters that these settings keys configure. Attributes name a filter, but only settings define
    /// its program, and a filter without a program does nothing.
    pub(crate) fn turn_off_filters(&mut self, keys: &[Vec<u8>]) {
        let mut names: Vec<&[u8]> = keys.iter().filter_map(|key| filter_name(key)).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            for (key, value) in [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")] {
                self.filters_off.extend(setting(name, key, value));
            }
        }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        let foreign = |name: &OsStr| {
            let name = name.as_bytes();
            name.starts_with(b"GIT_") && !KEPT.iter().any(|kept| name.starts_with(kept.as_bytes()))
        };
        std::env::vars_os().filter(|(name, _)| foreign(name)).for_each(|(name, _)| {
            command.env_remove(name);
        });
        command
            .current_dir(&self.dir)
            .env("LC_ALL", "C")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("DOGWATCH_EMPTY", "")
            .env("DOGWATCH_FALSE", "false");
        // This command does not accept the option. Its paths begin with `./`, so they are taken literally.
        if args.first() != Some(&"check-ignore") {
            command.arg("--literal-pathspecs");
        }
        FIXED.iter().for_each(|setting| {
            command.args(["-c", setting]);
        });
        command.args(&self.filters_off).args(args);
        if let Some(index) = &self.index {
            command.env("GIT_INDEX_FILE", index);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs git to its end and returns its output.
    pub(crate) fn run(&self, args: &[&str]) -> Result<Vec<u8>, GitError> {
        self.start(self.command(args), args)?.finish()
    }

    /// Starts a command from [`Git::command`].
    pub(crate) fn start(&self, command: Command, args: &[&str]) -> Result<Running, GitError> {
        Running::start(command, args, self.until)
    }

    /// Runs git and returns the first line of its output.
    pub(crate) fn word(&self, args: &[&str]) -> Result<String, GitError> {
        let answer = self.run(args)?;
        Ok(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned())
    }

    /// Runs git and returns the path that it prints, which may be any bytes.
    pub(crate) fn path(&self, args: &[&str]) -> Result<PathBuf, GitError> {
        let mut answer = self.run(args)?;
        answer.pop_if(|byte| *byte == b'\n');
        Ok(self.dir.join(OsString::from_vec(answer)))
    }

    /// Returns the operation that is in progress in this work tree: a merge, a rebase, and so on.
    pub(crate) fn under_way(&self) -> Result<Option<&'static str>, GitError> {
        for (file, what) in UNDER_WAY {
            if self.path(&["rev-parse", "--git-path", file])?.exists() {
                return Ok(Some(what));
            }
        }
        Ok(None)
    }
}

/// Returns the name in `filter.NAME.key`. The name may contain dots.
fn filter_name(key: &[u8]) -> Option<&[u8]> {
    let rest = key.strip_prefix(b"filter.")?;
    let end = rest.iter().rposition(|byte| *byte == b'.')?;
    Some(&rest[..end])
}

/// Builds the arguments for one setting. `-c` splits at the first `=`, `--config-env` at the last.
fn setting(name: &[u8], key: &str, value: &str) -> Vec<OsString> {
    let key = [b"filter.", name, b".", key.as_bytes()].concat();
    if name.contains(&b'=') {
        let variable: &[u8] = if value.is_empty() { b"DOGWATCH_EMPTY" } else { b"DOGWATCH_FALSE" };
        return vec![OsString::from_vec([b"--config-env=", &key[..], b"=", variable].concat())];
    }
    vec!["-c".into(), OsString::from_vec([&key[..], b"=", value.as_bytes()].concat())]
}

/// The files that show which operation is in progress.
const UNDER_WAY: [(&str, &str); 6] = [
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("MERGE_HEAD", "merge"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("BISECT_LOG", "bisect"),
];

/// A running git process whose stderr is drained.
pub(crate) struct Running {
    pub(crate) child: Child,
    what: String,
    said: JoinHandle<Vec<u8>>,
    bound: Option<JoinHandle<bool>>,
}

impl Running {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the enum belongs to another crate and may gain variants"
    )]
    fn start(mut command: Command, args: &[&str], until: Option<Instant>) -> Result<Running, GitError> {
        let mut child = command.spawn().map_err(|error| match error.kind() {
            // A missing directory gives the same error.
            io::ErrorKind::NotFound if command.get_current_dir().is_some_and(Path::exists) => {
                GitError::NotInstalled
            }
            _ => GitError::Io(error),
        })?;
        let stderr = child.stderr.take();
        let drain = move || stderr.map(head).unwrap_or_default();
        let started = std::thread::Builder::new().name("git-stderr".into()).spawn(drain);
        let both = started.and_then(|said| Ok((said, until.map(|until| bound(&child, until)).transpose()?)));
        match both {
            Ok((said, bound)) => {
                let what = args.first().copied().unwrap_or_default().to_owned();
                Ok(Running { child, what, said, bound })
            }
            // A git without a deadline, or one that may block on its stderr, must not keep running.
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(GitError::Io(error))
            }
        }
    }

    /// Reads the output and waits for the end.
    pub(crate) fn finish(self) -> Result<Vec<u8>, GitError> {
        self.finish_with(&[]).map(|(_, answer)| answer)
    }

    /// Like [`Running::finish`], for a git whose other exit codes are answers too. Also returns the exit code.
    pub(crate) fn finish_with(mut self, answers: &[i32]) -> Result<(i32, Vec<u8>), GitError> {
        let mut answer = Vec::new();
        if let Some(stdout) = self.child.stdout.take() {
            let read = stdout.take(MAX_ANSWER + 1).read_to_end(&mut answer)?;
            if read as u64 > MAX_ANSWER {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return Err(GitError::TooMuch { what: self.what });
            }
        }
        let status = self.child.wait()?;
        let said = self.said.join().unwrap_or_default();
        if self.bound.is_some_and(|bound| bound.join().unwrap_or(false)) {
            return Err(GitError::TookTooLong { what: self.what });
        }
        match status.code() {
            Some(code) if code == 0 || answers.contains(&code) => Ok((code, answer)),
            Some(_) | None => Err(refused(self.what, status, &said)),
        }
    }
}

/// Kills the process at that time unless it has exited before, and returns whether it had to. Uses a pidfd, so that
/// a later process with the same pid is never hit.
fn bound(child: &Child, until: Instant) -> io::Result<JoinHandle<bool>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let pid = Pid::from_child(child);
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    std::thread::Builder::new().name("git-bound".into()).spawn(move || {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return pidfd_send_signal(&process, Signal::KILL).is_ok();
            }
            let left = Timespec::try_from(left).ok();
            // A signal to this process ends the poll early; then it is repeated.
            if poll(&mut [PollFd::new(&process, PollFlags::IN)], left.as_ref()).is_ok_and(|n| n > 0) {
                return false;
            }
        }
    })
}

/// Returns the beginning of stderr. The rest is read and dropped, so that git never blocks.
fn head(mut stderr: ChildStderr) -> Vec<u8> {
    let mut said = Vec::new();
    let _ = (&mut stderr).take(MAX_SHOWN).read_to_end(&mut said);
    let _ = io::copy(&mut stderr, &mut io::sink());
    said
}

fn refused(what: String, status: ExitStatus, said: &[u8]) -> GitError {
    let text = String::from_utf8_lossy(said);
    let line = text.lines().find(|line| line.starts_with("fatal:")).or_else(|| text.lines().next());
    let said = match line.map(|line| clip(line.trim_start_matches("fatal:").trim(), MAX_MESSAGE_SHOWN)) {
        Some(line) if !line.is_empty() => line.to_owned(),
        Some(_) | None => status.to_string(),
    };
    GitError::Refused { what, code: status.code(), said }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_git_that_misses_its_deadline_is_killed() {
        let dir = tempfile::tempdir().expect("a directory");
        let git = |secs| Git::at(dir.path()).until(Some(Instant::now() + Duration::from_secs(secs)));
        assert!(git(600).word(&["version"]).is_ok_and(|said| said.starts_with("git version")));
        git(600).run(&["init", "-q"]).expect("a repository");
        // This git waits for input that never comes.
        let (late, args) = (git(0), ["cat-file", "--batch"]);
        let mut command = late.command(&args);
        command.stdin(Stdio::piped());
        let held = late.start(command, &args).expect("starts");
        assert!(matches!(held.finish(), Err(GitError::TookTooLong { .. })));
    }

    #[test]
    fn a_filter_of_any_name_is_overridden() {
        assert_eq!(filter_name(b"filter.lfs.clean"), Some(&b"lfs"[..]));
        assert_eq!(filter_name(b"filter.a.b.process"), Some(&b"a.b"[..]));
        assert_eq!(filter_name(b"filter.broken"), None);
        assert_eq!(setting(b"lfs", "clean", ""), ["-c", "filter.lfs.clean="]);
        assert_eq!(setting(b"a=b", "required", "false"), ["--config-env=filter.a=b.required=DOGWATCH_FALSE"]);
    }
}
