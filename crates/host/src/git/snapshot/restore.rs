//! Restores a work tree from a snapshot.
//!
//! The present state is snapshotted first, and only files in that snapshot are changed: a file that is ignored, too
//! large, or in a nested repository is neither written nor removed, and is reported. A file that the wanted
//! snapshot left out is not removed either, because it may have existed then. With [`Undo::own`], files that are not
//! the work of the run are kept too. Only files change. The index, HEAD and all branches stay as they are, and no hook,
//! filter or other program of the user runs.

use super::changes::{self, SnapshotError};
use super::left_out::LeftOut;
use super::modes::Modes;
use super::own::OwnWork;
use super::put::{self, Content};
use super::{Limits, MAX_NAMED, Outcome, Request, Skipped, Taken, take_until};
use crate::fs::digest::real;
use crate::git::{Git, GitError};
use dogwatch_core::text::clip;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long a restore may take. Files that are not restored by then stay as they are and are reported.
pub const RESTORE_BOUND: Duration = Duration::from_secs(300);

/// How much of a path is shown.
const MAX_PATH_SHOWN: usize = 200;

/// What to undo.
#[derive(Clone, Debug)]
pub struct Undo {
    /// Any directory of the work tree.
    pub work_dir: PathBuf,
    /// The snapshot to restore.
    pub to: String,
    /// The ref that keeps the present state. It must not exist yet.
    pub keep_as: String,
    /// A scratch directory. It is created, used and removed.
    pub scratch: PathBuf,
    /// dogwatch's own directories, which are never touched.
    pub state_dirs: Vec<PathBuf>,
    /// The limits of the snapshot that is taken first.
    pub limits: Limits,
    /// The work of the run. All other changes are kept. `None` restores every file.
    pub own: Option<OwnWork>,
}

/// One path that differs: its present state, and the wanted one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) path: Vec<u8>,
    pub(super) from: Option<Entry>,
    pub(super) to: Option<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    mode: String,
    id: String,
}

impl Entry {
    fn is_submodule(&self) -> bool {
        self.mode == "160000"
    }
}

/// An undo that is planned but not carried out. The present state is saved.
#[derive(Debug)]
pub struct Prepared {
    undo: Undo,
    git: Git,
    /// The snapshot of the state before.
    pub kept: Taken,
    /// The changes that an undo would make.
    pub survey: Survey,
}

/// The result of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Restored {
    /// The number of files written.
    pub written: u64,
    /// The number of files removed.
    pub removed: u64,
    /// Files that were not restored: their number, and the first of them by name.
    pub left: u64,
    /// Some of the files that were left alone.
    pub named: Vec<Skipped>,
}

/// Saves the present state and determines what would change.
pub fn prepare(undo: Undo) -> Result<Prepared, String> {
    let until = Some(Instant::now() + RESTORE_BOUND);
    let top = changes::top_of(&Git::at(&undo.work_dir).until(until)).map_err(|nothing| match nothing {
        SnapshotError::NoWorkTree(why) | SnapshotError::Failed(why) => why,
    })?;
    let mut git = Git::at(&top).until(until);
    let text = |error: GitError| error.to_string();
    if git.run(&["rev-parse", "--verify", "--quiet", &undo.keep_as]).is_ok() {
        return Err(format!("{} already exists", undo.keep_as));
    }
    let filters = changes::filter_keys(&git).map_err(text)?;
    git.turn_off_filters(&filters);
    let kept = keep(&undo, until)?;
    let prepared = survey(&git, &undo, &kept.ref_name, !filters.is_empty());
    let survey = prepared
        .inspect_err(|_| drop(super::forget(&undo.work_dir, std::slice::from_ref(&kept.ref_name))))?;
    Ok(Prepared { undo, git, kept, survey })
}

fn keep(undo: &Undo, until: Option<Instant>) -> Result<Taken, String> {
    let request = Request {
        work_dir: undo.work_dir.clone(),
        ref_name: undo.keep_as.clone(),
        scratch: undo.scratch.clone(),
        state_dirs: undo.state_dirs.clone(),
        limits: undo.limits,
        keep: None,
        pristine: None,
    };
    match take_until(&request, until) {
        Outcome::Taken(taken) => Ok(taken),
        Outcome::NoWorkTree { why } | Outcome::Failed { why } => {
            Err(format!("cannot save the present state of the work tree, so nothing was changed: {why}"))
        }
    }
}

/// The differences between the wanted and the present snapshot.
#[derive(Debug)]
pub struct Survey {
    steps: Vec<Step>,
    /// The paths that the wanted snapshot stores byte by byte. The others were as git checks them out.
    as_they_are: BTreeSet<Vec<u8>>,
    /// Files that the wanted and the present snapshot left out; they must not be touched.
    then: LeftOut,
    now: LeftOut,
    /// The unusual permissions of files in the wanted snapshot.
    modes: Modes,
    filtered: BTreeSet<Vec<u8>>,
    /// Files that differ and are kept, because they are not the work of the run.
    kept: BTreeMap<Vec<u8>, String>,
    /// An operation that is in progress, such as a merge or a rebase.
    pub under_way: Option<&'static str>,
    /// The commits that HEAD pointed to then and points to now, if they differ.
    pub moved_head: Option<(String, String)>,
}

fn survey(git: &Git, undo: &Undo, kept: &str, has_filters: bool) -> Result<Survey, String> {
    let text = |error: GitError| error.to_string();
    let commit = |name: &str| git.run(&["cat-file", "commit", name]).map_err(text);
    let (wanted, present) = (commit(&undo.to)?, commit(kept)?);
    let (then, now, modes) = (LeftOut::read(&wanted), LeftOut::read(&present), Modes::read(&wanted));
    if now.more {
        return Err(
            "the work tree has more files than a snapshot can hold, so nothing was changed".to_owned()
        );
    }
    let parents = parents(git, &undo.to).map_err(text)?;
    let index = parents.last().ok_or_else(|| format!("{} is not a dogwatch snapshot", undo.to))?;
    let as_they_are =
        differing(git, index, &undo.to).map_err(text)?.into_iter().map(|step| step.path).collect();
    let mut steps = differing(git, kept, &undo.to).map_err(text)?;
    let kept = match &undo.own {
        Some(own) => {
            let mut files = own.kept(git, kept, &steps).map_err(text)?;
            files.extend(own.kept_modes(git, &Modes::read(&present), &modes).map_err(text)?);
            files
        }
        None => BTreeMap::new(),
    };
    steps.retain(|step| !kept.contains_key(&step.path));
    let filtered = if has_filters { filtered(git, &steps).map_err(text)? } else { BTreeSet::new() };
    let head_then = parents.first().filter(|_| parents.len() > 1).cloned();
    let head_now = git.word(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]).ok();
    let moved_head = head_then.zip(head_now).filter(|(then, now)| then != now);
    let under_way = git.under_way().map_err(text)?;
    Ok(Survey { steps, as_they_are, then, now, modes, filtered, kept, under_way, moved_head })
}

/// Returns the parents of a snapshot: the commit of HEAD, if there was one, then that of the index.
fn parents(git: &Git, name: &str) -> Result<Vec<String>, GitError> {
    let answer = git.run(&["rev-parse", &format!("{name}^@")])?;
    Ok(String::from_utf8_lossy(&answer).lines().map(str::to_owned).collect())
}

/// Parses `diff-tree -z --raw`: `:old-mode new-mode old-id new-id status`, then the path.
pub(super) fn differing(git: &Git, from: &str, to: &str) -> Result<Vec<Step>, GitError> {
    let args =
        ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", "--full-index", from, to, "--"];
    let listing = git.run(&args)?;
    let mut fields = listing.split(|byte| *byte == 0);
    let mut steps = Vec::new();
    while let (Some(facts), Some(path)) = (fields.next(), fields.next()) {
        let facts = String::from_utf8_lossy(facts);
        let mut facts = facts.trim_start_matches(':').split(' ');
        let (from, to) = (facts.next().unwrap_or_default(), facts.next().unwrap_or_default());
        let entry = |mode: &str, id: Option<&str>| {
            let entry = Entry { mode: mode.to_owned(), id: id.unwrap_or_default().to_owned() };
            (mode != "000000").then_some(entry)
        };
        let from = entry(from, facts.next());
        steps.push(Step { path: path.to_vec(), from, to: entry(to, facts.next()) });
    }
    Ok(steps)
}

/// Returns the paths that pass through a filter program on checkout.
fn filtered(git: &Git, steps: &[Step]) -> Result<BTreeSet<Vec<u8>>, GitError> {
    let paths = steps.iter().map(|s| s.path.clone());
    let listing = asked(git, &["check-attr", "-z", "--stdin", "filter"], paths)?;
    let mut fields = listing.split(|byte| *byte == 0);
    let mut found = BTreeSet::new();
    while let (Some(path), Some(_), Some(value)) = (fields.next(), fields.next(), fields.next()) {
        if !matches!(value, b"unspecified" | b"unset") {
            found.insert(path.to_vec());
        }
    }
    Ok(found)
}

/// Returns the paths that git ignores by the rules that are in the work tree now.
fn ignored<'a>(
    git: &Git,
    steps: impl Iterator<Item = &'a Step> + Send,
) -> Result<BTreeSet<Vec<u8>>, GitError> {
    let listing =
        match asked(git, &["check-ignore", "-z", "--stdin"], steps.map(|s| [b"./", &s.path[..]].concat())) {
            // Exit code 1 means that none is ignored.
            Err(GitError::Refused { code: Some(1), .. }) => Vec::new(),
            answer => answer?,
        };
    Ok(listing
        .split(|byte| *byte == 0)
        .filter_map(|path| path.strip_prefix(b"./"))
        .map(<[u8]>::to_vec)
        .collect())
}

/// Sends a list of paths to git and returns its output.
fn asked(
    git: &Git,
    args: &[&str],
    mut paths: impl Iterator<Item = Vec<u8>> + Send,
) -> Result<Vec<u8>, GitError> {
    let mut command = git.command(args);
    command.stdin(Stdio::piped());
    let mut running = git.start(command, args)?;
    let stdin = running.child.stdin.take();
    std::thread::scope(|scope| {
        // Git answers while it reads, so write and read at the same time.
        scope.spawn(move || {
            stdin.map(|mut stdin| paths.try_for_each(|path| stdin.write_all(&[&path[..], b"\0"].concat())))
        });
        running.finish()
    })
}

impl Prepared {
    /// Returns how many files would be written, and how many removed.
    pub fn counts(&self) -> (usize, usize) {
        let written = self.survey.steps.iter().filter(|s| s.to.is_some()).count();
        (written, self.survey.steps.len() - written)
    }

    /// Returns the files that would change, and whether each would be removed.
    pub fn paths(&self) -> impl Iterator<Item = (&[u8], bool)> {
        self.survey.steps.iter().map(|step| (step.path.as_slice(), step.to.is_none()))
    }

    /// Returns the files that differ and would be kept, each with the reason: they are not the work of the run.
    pub fn kept_files(&self) -> impl ExactSizeIterator<Item = (&[u8], &str)> {
        self.survey.kept.iter().map(|(path, why)| (path.as_slice(), why.as_str()))
    }

    /// Returns a result with the kept files and no change.
    pub fn unchanged(&self) -> Restored {
        let mut restored = Restored::default();
        for (path, why) in &self.survey.kept {
            restored.leave(path, why.clone());
        }
        restored
    }

    /// Cancels the undo and removes the saved state.
    pub fn give_up(self) -> Result<(), String> {
        super::forget(&self.undo.work_dir, &[self.kept.ref_name]).map(drop)
    }

    /// Changes the work tree. Files that cannot be restored stay as they are and are reported.
    pub fn restore(self) -> Result<Restored, String> {
        let _ = fs::remove_dir_all(&self.undo.scratch);
        crate::store::home::make_private(&self.undo.scratch).map_err(|error| error.to_string())?;
        let mut restored = self.unchanged();
        let done = self.all_steps(&mut restored);
        let _ = fs::remove_dir_all(&self.undo.scratch);
        done.map(|()| restored)
    }

    fn all_steps(&self, restored: &mut Restored) -> Result<(), String> {
        let (fit, unfit): (Vec<&Step>, Vec<&Step>) =
            self.survey.steps.iter().partition(|s| self.untouchable(s).is_none());
        for step in unfit {
            restored.leave(&step.path, self.untouchable(step).unwrap_or_default());
        }
        // The ignore rules of that time show which files were ignored then and must stay, so restore them first.
        let (rules, others): (Vec<&Step>, Vec<&Step>) = fit.into_iter().partition(|s| is_rules(s));
        self.all_of(&rules, restored)?;
        let gone = || others.iter().copied().filter(|s| s.to.is_none());
        let ignored = match gone().next() {
            Some(_) => ignored(&self.git, gone()).map_err(|error| error.to_string())?,
            None => BTreeSet::new(),
        };
        let (kept, others): (Vec<&Step>, Vec<&Step>) =
            others.iter().copied().partition(|s| s.to.is_none() && ignored.contains(&s.path));
        for step in kept {
            restored.leave(&step.path, "git ignored it then, so it may have existed".to_owned());
        }
        self.all_of(&others, restored)?;
        self.set_modes(restored);
        Ok(())
    }

    /// Restores the permissions of files whose content is the same as then.
    fn set_modes(&self, restored: &mut Restored) {
        let changed: BTreeSet<&[u8]> = self.survey.steps.iter().map(|step| step.path.as_slice()).collect();
        for (path, mode) in self.survey.modes.iter() {
            if changed.contains(path) || self.survey.now.holds(path) || self.survey.kept.contains_key(path) {
                continue;
            }
            match put::set_mode(self.git.dir(), path, mode) {
                Ok(set) => restored.written += u64::from(set),
                Err(why) => restored.leave(path, why),
            }
        }
    }

    fn all_of(&self, steps: &[&Step], restored: &mut Restored) -> Result<(), String> {
        // Remove files first, because a file may replace a directory.
        for step in steps.iter().filter(|s| s.to.is_none()) {
            match put::remove(self.git.dir(), &step.path) {
                Ok(()) => restored.removed += 1,
                Err(why) => restored.leave(&step.path, why),
            }
        }
        let wanted = steps.iter().copied().filter(|s| s.to.is_some());
        let (raw, checked_out): (Vec<&Step>, Vec<&Step>) =
            wanted.partition(|s| self.survey.as_they_are.contains(&s.path) || is_link(s));
        self.put_raw(&raw, restored)?;
        self.put_checked_out(&checked_out, restored)
    }

    /// Returns why a path must not be touched, if it must not.
    fn untouchable(&self, step: &Step) -> Option<String> {
        let is = |entry: &Option<Entry>| entry.as_ref().is_some_and(Entry::is_submodule);
        let ours = || {
            let top = real(self.git.dir());
            let path = top.join(OsStr::from_bytes(&step.path));
            // A node's own worktree is below the state directory, but its files are not dogwatch's.
            let within = |dir: &PathBuf| path.starts_with(real(dir)) && !top.starts_with(real(dir));
            self.undo.state_dirs.iter().any(within)
        };
        if is(&step.from) || is(&step.to) {
            return Some("a nested repository".to_owned());
        }
        if self.survey.now.holds(&step.path) {
            return Some("it could not be saved, so it stays as it is".to_owned());
        }
        if step.to.is_none() && (self.survey.then.more || self.survey.then.holds(&step.path)) {
            return Some("the snapshot left it out, so it may have existed".to_owned());
        }
        // The snapshot has the content of the index in its place.
        if self.survey.then.holds(&step.path) {
            return Some("the snapshot left it out, so its content of that time is unknown".to_owned());
        }
        if self.survey.filtered.contains(&step.path)
            && step.to.is_some()
            && !self.survey.as_they_are.contains(&step.path)
        {
            return Some("it needs a filter, which dogwatch does not run; use `git checkout`".to_owned());
        }
        ours().then(|| "it belongs to dogwatch".to_owned())
    }

    /// Writes contents byte by byte, read one after the other from a single git process.
    fn put_raw(&self, steps: &[&Step], restored: &mut Restored) -> Result<(), String> {
        if steps.is_empty() {
            return Ok(());
        }
        let args = ["cat-file", "--batch"];
        let mut command = self.git.command(&args);
        command.stdin(Stdio::piped());
        let mut running = self.git.start(command, &args).map_err(|error| error.to_string())?;
        let (stdin, stdout) = (running.child.stdin.take(), running.child.stdout.take());
        let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else {
            return Err("cannot open pipes to git".to_owned());
        };
        let mut answers = BufReader::new(stdout);
        for step in steps {
            let Some(to) = &step.to else { continue };
            let asked = writeln!(stdin, "{}", to.id).and_then(|()| stdin.flush());
            let content = asked.map_err(|error| error.to_string()).and_then(|()| one_object(&mut answers));
            match content {
                Ok(Some(content)) => self.put(step, Content::Bytes(&content), restored),
                Ok(None) => restored.leave(&step.path, "git no longer has its content".to_owned()),
                Err(why) => restored.leave(&step.path, why),
            }
        }
        drop(stdin);
        running.finish().map(drop).map_err(|error| error.to_string())
    }

    /// Writes files as git checks them out: first into a scratch directory, from there into place.
    fn put_checked_out(&self, steps: &[&Step], restored: &mut Restored) -> Result<(), String> {
        if steps.is_empty() {
            return Ok(());
        }
        let text = |error: GitError| error.to_string();
        let mut git = self.git.clone();
        git.use_index(&self.undo.scratch.join("index"));
        git.run(&["read-tree", &self.undo.to]).map_err(text)?;
        let out = self.undo.scratch.join("out");
        let _ = fs::remove_dir_all(&out);
        crate::store::home::make_private(&out).map_err(|error| error.to_string())?;
        let prefix = out.to_str().ok_or("the path of the state directory is not UTF-8")?;
        let prefix = format!("--prefix={prefix}/");
        let args = ["checkout-index", "-z", "--force", "--stdin", &prefix];
        let mut command = git.command(&args);
        command.stdin(Stdio::piped());
        let mut running = git.start(command, &args).map_err(text)?;
        if let Some(mut stdin) = running.child.stdin.take() {
            // If git exits early, its own error message says more than the broken pipe.
            let _ = steps.iter().try_for_each(|s| stdin.write_all(&[&s.path[..], b"\0"].concat()));
        }
        let finished = running.finish();
        for step in steps {
            let from = out.join(OsStr::from_bytes(&step.path));
            if from.is_file() {
                self.put(step, Content::File(&from), restored);
            } else {
                let why = finished
                    .as_ref()
                    .err()
                    .map_or("git did not check it out".to_owned(), ToString::to_string);
                restored.leave(&step.path, why);
            }
        }
        Ok(())
    }

    fn put(&self, step: &Step, content: Content<'_>, restored: &mut Restored) {
        let Some(to) = &step.to else { return };
        match put::put(
            self.git.dir(),
            &step.path,
            (&to.mode, self.survey.modes.get(&step.path)),
            content,
            step.from.is_some(),
        ) {
            Ok(()) => restored.written += 1,
            Err(why) => restored.leave(&step.path, why),
        }
    }
}

fn is_rules(step: &Step) -> bool {
    step.path.rsplit(|byte| *byte == b'/').next() == Some(b".gitignore")
}

fn is_link(step: &Step) -> bool {
    step.to.as_ref().is_some_and(|to| to.mode == "120000")
}

/// Parses one object: `id type size`, a newline, the content, a newline; or `id missing`.
fn one_object(answers: &mut impl BufRead) -> Result<Option<Vec<u8>>, String> {
    let mut head = String::new();
    answers.read_line(&mut head).map_err(|error| error.to_string())?;
    let mut words = head.trim_end().split(' ');
    let (Some("blob"), Some(size)) = (words.nth(1), words.next()) else {
        return if head.is_empty() { Err("git exited without an answer".to_owned()) } else { Ok(None) };
    };
    let size: usize = size.parse().map_err(|_| format!("git answered `{}`", head.trim_end()))?;
    let mut content = vec![0; size + 1];
    answers.read_exact(&mut content).map_err(|error| error.to_string())?;
    content.pop();
    Ok(Some(content))
}

impl Restored {
    fn leave(&mut self, path: &[u8], why: String) {
        self.left += 1;
        if self.named.len() < MAX_NAMED {
            let path = String::from_utf8_lossy(path);
            self.named.push(Skipped { path: clip(&path, MAX_PATH_SHOWN).to_owned(), why });
        }
    }
}
