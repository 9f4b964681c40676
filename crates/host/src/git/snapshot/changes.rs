//! Finds the differences between work tree and index, by running git on a copy of the index. Contents are not read
//! yet.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::git::{Git, GitError};
use crate::store::safe_file;

/// Why there is no snapshot.
#[derive(Debug)]
pub(crate) enum SnapshotError {
    /// There is no work tree here, so there never will be one.
    NoWorkTree(String),
    Failed(String),
}

impl From<GitError> for SnapshotError {
    fn from(error: GitError) -> SnapshotError {
        match error {
            GitError::NotInstalled => SnapshotError::NoWorkTree(error.to_string()),
            other @ (GitError::Io(_)
            | GitError::Refused { .. }
            | GitError::TooMuch { .. }
            | GitError::TookTooLong { .. }) => SnapshotError::Failed(other.to_string()),
        }
    }
}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> SnapshotError {
        SnapshotError::Failed(error.to_string())
    }
}

/// One changed file, by its path below the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Deleted,
    /// In the index. `executable` is git's view, because some file systems have no exec bit.
    Tracked {
        executable: bool,
    },
    Untracked,
}

#[derive(Debug)]
pub(crate) struct Changes {
    /// The index as a tree, without paths in conflict.
    pub(crate) index_tree: String,
    pub(crate) head: Option<String>,
    pub(crate) changes: BTreeMap<Vec<u8>, Change>,
    /// Files whose entry in the index differs from HEAD.
    staged: BTreeSet<Vec<u8>>,
    /// False if there are too many untracked files to list. Then none is listed.
    pub(crate) all_others: bool,
    /// Whether the exec bit of a file is meaningful.
    pub(crate) modes_count: bool,
}

impl Changes {
    /// Returns how many files differ from HEAD, in the index or in the work tree.
    pub(crate) fn since_head(&self) -> u64 {
        let only_staged = self.staged.iter().filter(|path| !self.changes.contains_key(*path)).count();
        (self.changes.len() + only_staged) as u64
    }
}

/// Finds the top of the work tree that contains a directory.
pub(crate) fn top(work_dir: &Path) -> Result<PathBuf, SnapshotError> {
    top_of(&Git::at(work_dir))
}

pub(crate) fn top_of(git: &Git) -> Result<PathBuf, SnapshotError> {
    let answer = git.run(&["rev-parse", "--is-inside-work-tree", "--show-toplevel"]);
    match answer {
        Ok(answer) => match answer.strip_prefix(b"true\n").and_then(|rest| rest.strip_suffix(b"\n")) {
            Some(top) => Ok(PathBuf::from(std::ffi::OsString::from_vec(top.to_vec()))),
            None => Err(SnapshotError::NoWorkTree("not a git work tree".to_owned())),
        },
        Err(GitError::Refused { said, .. }) => Err(why_not(said)),
        Err(other) => Err(other.into()),
    }
}

fn why_not(said: String) -> SnapshotError {
    let no_tree = ["not a git repository", "must be run in a work tree", "not in a git directory"];
    if said.contains("dubious ownership") {
        return SnapshotError::NoWorkTree(format!(
            "{said}; run `git config --global --add safe.directory DIR` to trust it"
        ));
    }
    if no_tree.iter().any(|words| said.contains(words)) {
        return SnapshotError::NoWorkTree("not a git work tree".to_owned());
    }
    SnapshotError::Failed(format!("git rev-parse: {said}"))
}

/// What a snapshot needs to know about a repository before it looks at files.
pub(crate) struct Repository {
    /// The top of the work tree.
    pub(crate) top: PathBuf,
    /// The commit of HEAD, if there is one.
    head: Option<String>,
    index: PathBuf,
    settings: Settings,
}

impl Repository {
    /// Examines the repository of a directory. Usually takes two git processes, which run in parallel.
    pub(crate) fn find(git: &Git) -> Result<Repository, SnapshotError> {
        let (settings, place) = std::thread::scope(|scope| {
            let settings = scope.spawn(|| settings_of(git));
            let place = git.run(&[&PLACE[..], &HEAD[1..]].concat());
            (joined(settings.join()), place)
        });
        let place = match place.ok().and_then(|answer| Place::read(git.dir(), &answer)) {
            Some(place) => place,
            // No commit yet, a path with a newline, or no work tree at all.
            None => Place::find(git)?,
        };
        let Place { top, head, index } = place;
        Ok(Repository { top, head, index, settings: Settings::read(&settings?) })
    }
}

/// Asks for the top of the work tree and for the index.
const PLACE: [&str; 5] = ["rev-parse", "--is-inside-work-tree", "--show-toplevel", "--git-path", "index"];
/// Asks for the commit of HEAD, and fails without one.
const HEAD: [&str; 4] = ["rev-parse", "--quiet", "--verify", "HEAD^{commit}"];

#[derive(Debug, PartialEq, Eq)]
struct Place {
    top: PathBuf,
    head: Option<String>,
    index: PathBuf,
}

impl Place {
    /// Parses the answer to both questions: four lines.
    fn read(dir: &Path, answer: &[u8]) -> Option<Place> {
        let lines: Vec<&[u8]> = answer.strip_suffix(b"\n")?.split(|byte| *byte == b'\n').collect();
        let [b"true", top, index, head] = lines[..] else { return None };
        let path = |bytes: &[u8]| dir.join(OsStr::from_bytes(bytes));
        let head = Some(String::from_utf8_lossy(head).into_owned());
        Some(Place { top: path(top), head, index: path(index) })
    }

    /// Asks one question at a time.
    fn find(git: &Git) -> Result<Place, SnapshotError> {
        let top = top_of(git)?;
        let head = git.word(&HEAD).ok();
        let index = git.path(&["rev-parse", "--git-path", "index"])?;
        Ok(Place { top, head, index })
    }
}

/// Finds the changes. `git` must be at the top; from here on it uses a copy of the index in `scratch`.
pub(crate) fn changes(
    git: &mut Git,
    repository: Repository,
    scratch: &Path,
) -> Result<Changes, SnapshotError> {
    let Repository { head, index, settings, .. } = repository;
    git.turn_off_filters(&settings.filters);
    let copy = scratch.join("index");
    copy_index(&index, &copy)?;
    git.use_index(&copy);
    let (differing, others, staged, tree) = four_ways(git, head.as_deref());
    let mut found = Found::default();
    found.add_differing(&differing?);
    let all_others = match others {
        Ok(listing) => {
            found.add_others(&listing);
            true
        }
        // Tracked files are still included.
        Err(GitError::TooMuch { .. }) => false,
        Err(error) => return Err(error.into()),
    };
    let index_tree = match tree {
        Ok(tree) => tree,
        Err(_) if !found.in_conflict.is_empty() => tree_without(git, &found.in_conflict)?,
        Err(error) => return Err(error.into()),
    };
    let changes = found.changes;
    // Only the count of changed files needs it.
    let staged = paths(&staged.unwrap_or_default());
    Ok(Changes { index_tree, head, changes, staged, all_others, modes_count: settings.modes_count })
}

fn settings_of(git: &Git) -> GitOutput {
    match git.run(&["config", "-z", "--get-regexp", r"^(filter\..*|core\.filemode)$"]) {
        // Exit code 1 means that none is set.
        Err(GitError::Refused { code: Some(1), .. }) => Ok(Vec::new()),
        answer => answer,
    }
}

/// Returns the keys of the configured filters, for [`Git::turn_off_filters`].
pub(crate) fn filter_keys(git: &Git) -> Result<Vec<Vec<u8>>, GitError> {
    Ok(Settings::read(&settings_of(git)?).filters)
}

#[derive(Debug, PartialEq, Eq)]
struct Settings {
    /// The keys that begin with `filter.`.
    filters: Vec<Vec<u8>>,
    modes_count: bool,
}

impl Settings {
    /// Parses `git config -z`: key, newline, value; a key alone means true. The last value wins.
    fn read(listing: &[u8]) -> Settings {
        let mut settings = Settings { filters: Vec::new(), modes_count: true };
        for entry in listing.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
            let end = entry.iter().position(|byte| *byte == b'\n');
            let (key, value) = entry.split_at(end.unwrap_or(entry.len()));
            if key == b"core.filemode" {
                let no: [&[u8]; 5] = [b"\nfalse", b"\nno", b"\noff", b"\n0", b"\n"];
                settings.modes_count = !no.iter().any(|word| value.eq_ignore_ascii_case(word));
            } else {
                settings.filters.push(key.to_vec());
            }
        }
        settings
    }
}

/// Copies the index with its time stamp. Git replaces the file atomically, so the open file is consistent.
fn copy_index(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = match safe_file::read_named(from) {
        Ok(file) => file,
        // Nothing was ever added.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let time = from.metadata()?.modified()?;
    let mut copy = fs::OpenOptions::new().write(true).create_new(true).open(to)?;
    io::copy(&mut from, &mut copy)?;
    copy.set_modified(time)
}

type GitOutput = Result<Vec<u8>, GitError>;

/// Runs in parallel the git commands that read the whole index.
fn four_ways(git: &Git, head: Option<&str>) -> (GitOutput, GitOutput, GitOutput, Result<String, GitError>) {
    std::thread::scope(|scope| {
        let differing = scope.spawn(|| {
            let quiet = ["--no-ext-diff", "--no-renames", "--ignore-submodules=all"];
            git.run(&[&["diff-files", "-z", "--raw"], &quiet[..]].concat())
        });
        let others = scope.spawn(|| git.run(&["ls-files", "-z", "--others", "--exclude-standard"]));
        let staged = scope.spawn(|| match head {
            Some(head) => {
                let quiet = ["--name-only", "--no-renames", "--ignore-submodules=all", head];
                git.run(&[&["diff-index", "--cached", "-z"], &quiet[..]].concat())
            }
            None => git.run(&["ls-files", "-z", "--cached"]),
        });
        let tree = write_tree(git);
        (joined(differing.join()), joined(others.join()), joined(staged.join()), tree)
    })
}

/// Parses a list of paths that end with a zero byte.
fn paths(listing: &[u8]) -> BTreeSet<Vec<u8>> {
    listing.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect()
}

fn joined(answer: std::thread::Result<GitOutput>) -> GitOutput {
    answer.unwrap_or_else(|_| Err(io::Error::other("a thread of the snapshot panicked").into()))
}

/// Writes the index as a tree. Objects missing in a partial clone are not fetched.
fn write_tree(git: &Git) -> Result<String, GitError> {
    let answer = git.run(&["write-tree", "--missing-ok"])?;
    Ok(String::from_utf8_lossy(&answer).trim().to_owned())
}

/// Writes the index as a tree without the paths in conflict, which have several entries each.
fn tree_without(git: &Git, paths: &[Vec<u8>]) -> Result<String, SnapshotError> {
    use std::io::Write;
    let args = ["update-index", "-z", "--force-remove", "--stdin"];
    let mut command = git.command(&args);
    command.stdin(std::process::Stdio::piped());
    let mut running = git.start(command, &args)?;
    if let Some(mut stdin) = running.child.stdin.take() {
        for path in paths {
            stdin.write_all(path)?;
            stdin.write_all(b"\0")?;
        }
    }
    running.finish()?;
    Ok(write_tree(git)?)
}

#[derive(Debug, Default)]
struct Found {
    changes: BTreeMap<Vec<u8>, Change>,
    in_conflict: Vec<Vec<u8>>,
}

impl Found {
    /// Parses `diff-files -z --raw`: `:old-mode new-mode old-id new-id status`, then the path.
    fn add_differing(&mut self, listing: &[u8]) {
        let mut fields = listing.split(|byte| *byte == 0);
        while let (Some(facts), Some(path)) = (fields.next(), fields.next()) {
            let mut facts = facts.split(|byte| *byte == b' ');
            let (new_mode, status) = (facts.nth(1).unwrap_or_default(), facts.nth(2).unwrap_or_default());
            if status.starts_with(b"U") {
                self.in_conflict.push(path.to_vec());
            }
            let change = match new_mode {
                b"000000" => Change::Deleted,
                // A repository has replaced a file: it has its own history.
                b"160000" => continue,
                mode => Change::Tracked { executable: mode == b"100755" },
            };
            self.changes.insert(path.to_vec(), change);
        }
    }

    fn add_others(&mut self, listing: &[u8]) {
        for path in listing.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
            self.changes.insert(path.to_vec(), Change::Untracked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_newline_is_asked_for_again() {
        let read = |answer: &[u8]| Place::read(Path::new("/a/b"), answer);
        let head = Some("c0ffee".to_owned());
        let place = Place { top: "/a".into(), head, index: "/a/b/../.git/index".into() };
        assert_eq!(read(b"true\n/a\n../.git/index\nc0ffee\n"), Some(place));
        assert_eq!(read(b"true\n/a\nb\n../.git/index\nc0ffee\n"), None);
        assert_eq!(read(b"false\n/a\n../.git/index\nc0ffee\n"), None);
        assert_eq!(read(b""), None);
    }

    #[test]
    fn the_last_value_of_a_setting_wins() {
        let listing =
            b"filter.lfs.clean\na\nb\0core.filemode\nfalse\0filter.x.required\0core.filemode\ntrue\0";
        let filters = vec![b"filter.lfs.clean".to_vec(), b"filter.x.required".to_vec()];
        assert_eq!(Settings::read(listing), Settings { filters, modes_count: true });
        assert!(!Settings::read(b"core.filemode\nOff\0").modes_count);
        assert!(Settings::read(b"core.filemode\0").modes_count);
        assert!(Settings::read(b"").modes_count);
    }
}
