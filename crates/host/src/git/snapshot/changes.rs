//! Finds the differences between work tree and index, by running git on a copy of the index. Contents are not read
//! yet.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::objects::Hash;
use super::privacy;
use super::tree::{self, Files};
use crate::git::{Git, GitError};
use crate::store::safe_file;

/// An error that prevents a snapshot.
#[derive(Debug)]
pub(crate) enum SnapshotError {
    /// The directory is not in a work tree, so later snapshots would fail too.
    NoWorkTree(String),
    Failed(String),
}

impl From<GitError> for SnapshotError {
    fn from(error: GitError) -> SnapshotError {
        let why = error.to_string();
        let missing = matches!(error, GitError::NotInstalled);
        if missing { SnapshotError::NoWorkTree(why) } else { SnapshotError::Failed(why) }
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
    /// Whether others cannot read the objects of the repository.
    pub(crate) closed: bool,
    /// The data for a snapshot that is written without git, if that is possible here.
    pub(super) quick: Option<Quick>,
}

/// A repository of the usual format whose index is what HEAD has.
#[derive(Debug)]
pub(super) struct Quick {
    /// The directory of the objects.
    pub(super) objects: PathBuf,
    /// The directory of the refs of snapshots.
    pub(super) refs: PathBuf,
    pub(super) hash: Hash,
    /// The files of the index.
    pub(super) files: Files,
    pub(super) index_tree: String,
    /// All trees of HEAD. They need not be written.
    pub(super) trees: Vec<String>,
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

/// The facts about a repository that a snapshot needs before it looks at files.
pub(crate) struct Repository {
    /// The top of the work tree.
    pub(crate) top: PathBuf,
    /// HEAD, if there is a commit.
    head: Option<Head>,
    index: PathBuf,
    settings: Settings,
}

impl Repository {
    /// Examines the repository of a directory. Usually takes two git processes, which run in parallel.
    pub(crate) fn find(git: &Git) -> Result<Repository, SnapshotError> {
        let (settings, place) = std::thread::scope(|scope| {
            let settings = scope.spawn(|| settings_of(git));
            let place = git.run(&PLACE);
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

/// Asks for the top of the work tree, the index, the objects, our refs, and HEAD.
const PLACE: [&str; 11] = [
    "rev-parse",
    "--is-inside-work-tree",
    "--show-toplevel",
    "--git-path",
    "index",
    "--git-path",
    "objects",
    "--git-path",
    "refs/dogwatch",
    "HEAD^{commit}",
    "HEAD^{tree}",
];
/// Asks for the commit of HEAD, and fails without one.
const HEAD: [&str; 4] = ["rev-parse", "--quiet", "--verify", "HEAD^{commit}"];

#[derive(Debug, PartialEq, Eq)]
struct Place {
    top: PathBuf,
    head: Option<Head>,
    index: PathBuf,
}

/// HEAD, and where its repository keeps objects and refs.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    commit: String,
    /// The tree and the directories, if they were requested.
    more: Option<HeadTree>,
}

#[derive(Debug, PartialEq, Eq)]
struct HeadTree {
    tree: String,
    objects: PathBuf,
    refs: PathBuf,
}

impl Place {
    /// Parses the answer to all questions: seven lines.
    fn read(dir: &Path, answer: &[u8]) -> Option<Place> {
        let lines: Vec<&[u8]> = answer.strip_suffix(b"\n")?.split(|byte| *byte == b'\n').collect();
        let [b"true", top, index, objects, refs, commit, tree] = lines[..] else { return None };
        let path = |bytes: &[u8]| dir.join(OsStr::from_bytes(bytes));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let more = HeadTree { tree: text(tree), objects: path(objects), refs: path(refs) };
        let head = Some(Head { commit: text(commit), more: Some(more) });
        Some(Place { top: path(top), head, index: path(index) })
    }

    /// Asks one question at a time.
    fn find(git: &Git) -> Result<Place, SnapshotError> {
        let top = top_of(git)?;
        let head = git.word(&HEAD).ok().map(|commit| Head { commit, more: None });
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
    let (differing, listing) = files_of(git);
    let mut found = Found::default();
    found.add_differing(&differing?);
    let (listing, all_others) = match listing {
        Ok(listing) => (listing, true),
        // Without the files of the index, the list may be short enough.
        Err(GitError::TooMuch { .. }) => match git.run(&[OTHERS, &["-t"]].concat()) {
            Ok(listing) => (listing, true),
            // Tracked files are still included.
            Err(GitError::TooMuch { .. }) => (Vec::new(), false),
            Err(error) => return Err(error.into()),
        },
        Err(error) => return Err(error.into()),
    };
    let files = found.add_listing(&listing);
    let (commit, more) = head.map_or((None, None), |head| (Some(head.commit), head.more));
    let modes_count = settings.modes_count;
    let closed = privacy::is_closed(more.as_ref().map(|more| more.objects.as_path()));
    if let Some(quick) =
        more.filter(|_| settings.is_usual).zip(files).and_then(|(more, files)| quick(more, files))
    {
        let (index_tree, changes) = (quick.index_tree.clone(), found.changes);
        let (staged, quick) = (BTreeSet::new(), Some(quick));
        let head = commit;
        return Ok(Changes { index_tree, head, changes, staged, all_others, modes_count, closed, quick });
    }
    let (staged, tree) = index_of(git, commit.as_deref());
    let index_tree = match tree {
        Ok(tree) => tree,
        Err(_) if !found.in_conflict.is_empty() => tree_without(git, &found.in_conflict)?,
        Err(error) => return Err(error.into()),
    };
    let changes = found.changes;
    // Only the count of changed files needs it.
    let staged = paths(&staged.unwrap_or_default());
    Ok(Changes { index_tree, head: commit, changes, staged, all_others, modes_count, closed, quick: None })
}

/// Returns what a snapshot without git needs, if the index is what HEAD has.
fn quick(head: HeadTree, files: Files) -> Option<Quick> {
    let HeadTree { tree, objects, refs } = head;
    let hash = Hash::of(&tree)?;
    let mut trees = Vec::new();
    let index_tree = tree::build(&files, hash, |tree| trees.push(tree.id))?;
    (index_tree == tree).then_some(Quick { objects, refs, hash, files, index_tree, trees })
}

fn settings_of(git: &Git) -> GitOutput {
    match git.run(&[
        "config",
        "-z",
        "--get-regexp",
        r"^(filter\..*|core\.(filemode|sharedrepository)|extensions\..*)$",
    ]) {
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
    /// Whether objects and refs are plain files with the permissions of every other file.
    is_usual: bool,
}

/// Extensions that do not change how objects and refs are stored, and those that do not with one value.
const USUAL_EXTENSIONS: [&[u8]; 6] = [
    b"extensions.noop",
    b"extensions.partialclone",
    b"extensions.preciousobjects",
    b"extensions.relativeworktrees",
    b"extensions.worktreeconfig",
    b"extensions.objectformat",
];

impl Settings {
    /// Parses `git config -z`: key, newline, value; a key alone means true. The last value wins.
    fn read(listing: &[u8]) -> Settings {
        let mut settings = Settings { filters: Vec::new(), modes_count: true, is_usual: true };
        for entry in listing.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
            let end = entry.iter().position(|byte| *byte == b'\n');
            let (key, value) = entry.split_at(end.unwrap_or(entry.len()));
            if key == b"core.filemode" {
                let no: [&[u8]; 5] = [b"\nfalse", b"\nno", b"\noff", b"\n0", b"\n"];
                settings.modes_count = !no.iter().any(|word| value.eq_ignore_ascii_case(word));
            } else if key.starts_with(b"filter.") {
                settings.filters.push(key.to_vec());
            } else {
                let files = key == b"extensions.refstorage" && value == b"\nfiles";
                settings.is_usual &= files || USUAL_EXTENSIONS.contains(&key);
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

/// Lists untracked files.
const OTHERS: &[&str] = &["ls-files", "-z", "--others", "--exclude-standard"];

/// Runs in parallel the git commands that look at the work tree: files that differ from the index, and files that are not
/// in it together with those that are.
fn files_of(git: &Git) -> (GitOutput, GitOutput) {
    std::thread::scope(|scope| {
        let differing = scope.spawn(|| {
            let quiet = ["--no-ext-diff", "--no-renames", "--ignore-submodules=all"];
            git.run(&[&["diff-files", "-z", "--raw"], &quiet[..]].concat())
        });
        let listing = git.run(&[OTHERS, &["-t", "--cached", "--stage"]].concat());
        (joined(differing.join()), listing)
    })
}

/// Runs in parallel the git commands that compare the index with HEAD, and write it as a tree.
fn index_of(git: &Git, head: Option<&str>) -> (GitOutput, Result<String, GitError>) {
    std::thread::scope(|scope| {
        let staged = scope.spawn(|| match head {
            Some(head) => {
                let quiet = ["--name-only", "--no-renames", "--ignore-submodules=all", head];
                git.run(&[&["diff-index", "--cached", "-z"], &quiet[..]].concat())
            }
            None => git.run(&["ls-files", "-z", "--cached"]),
        });
        let tree = write_tree(git);
        (joined(staged.join()), tree)
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

    /// Parses `ls-files -z -t --stage`: `? path` for an untracked file, and `H mode id stage`, a tab and the path for one in
    /// the index. Returns the files of the index, or `None` if one of them is in conflict.
    fn add_listing(&mut self, listing: &[u8]) -> Option<Files> {
        let (mut files, mut whole) = (Files::new(), true);
        for entry in listing.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
            if let Some(path) = entry.strip_prefix(b"? ") {
                self.changes.insert(path.to_vec(), Change::Untracked);
                continue;
            }
            match in_index(entry) {
                Some((path, file)) => drop(files.insert(path, file)),
                None => whole = false,
            }
        }
        whole.then_some(files)
    }
}

/// Parses the entry of a file in the index that is not in conflict.
fn in_index(entry: &[u8]) -> Option<(Vec<u8>, (String, String))> {
    let tab = entry.iter().position(|byte| *byte == b'\t')?;
    let facts = std::str::from_utf8(&entry[..tab]).ok()?;
    let mut words = facts.split(' ').skip(1);
    let (Some(mode), Some(id), Some("0")) = (words.next(), words.next(), words.next()) else { return None };
    Some((entry[tab + 1..].to_vec(), (mode.to_owned(), id.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_newline_is_asked_for_again() {
        let read = |answer: &[u8]| Place::read(Path::new("/a/b"), answer);
        let more = HeadTree {
            tree: "beef".to_owned(),
            objects: "/a/b/../.git/objects".into(),
            refs: "/a/b/../.git/refs/dogwatch".into(),
        };
        let head = Some(Head { commit: "c0ffee".to_owned(), more: Some(more) });
        let place = Place { top: "/a".into(), head, index: "/a/b/../.git/index".into() };
        let paths = "../.git/index\n../.git/objects\n../.git/refs/dogwatch\nc0ffee\nbeef\n";
        assert_eq!(read(format!("true\n/a\n{paths}").as_bytes()), Some(place));
        assert_eq!(read(format!("true\n/a\nb\n{paths}").as_bytes()), None);
        assert_eq!(read(format!("false\n/a\n{paths}").as_bytes()), None);
        assert_eq!(read(b""), None);
    }

    #[test]
    fn files_in_the_index_are_distinguished_from_others() {
        let mut found = Found::default();
        let files = found.add_listing(b"? new\tfile\0H 100644 e69d 0\ta b\0S 120000 beef 0\tc\0");
        let files = files.expect("nothing is in conflict");
        assert_eq!(files.get(&b"a b"[..]), Some(&("100644".to_owned(), "e69d".to_owned())));
        assert_eq!((files.len(), found.changes.get(&b"new\tfile"[..])), (2, Some(&Change::Untracked)));
        assert_eq!(Found::default().add_listing(b"H 100644 e69d 0\ta\0M 100644 e69d 2\tb\0"), None);
        assert_eq!(Found::default().add_listing(b"? a\0"), Some(Files::new()));
    }

    #[test]
    fn only_a_repository_of_the_usual_format_is_written_directly() {
        let usual = |listing: &[u8]| Settings::read(listing).is_usual;
        assert!(usual(b"") && usual(b"core.filemode\nfalse\0filter.lfs.clean\na\0"));
        assert!(usual(b"extensions.objectformat\nsha256\0extensions.refstorage\nfiles\0"));
        for odd in [
            &b"extensions.refstorage\nreftable\0"[..],
            b"core.sharedrepository\ngroup\0",
            b"extensions.compatobjectformat\nsha1\0",
            b"extensions.unheard\0",
        ] {
            assert!(!usual(odd), "{}", String::from_utf8_lossy(odd));
        }
    }

    #[test]
    fn the_last_value_of_a_setting_wins() {
        let listing =
            b"filter.lfs.clean\na\nb\0core.filemode\nfalse\0filter.x.required\0core.filemode\ntrue\0";
        let filters = vec![b"filter.lfs.clean".to_vec(), b"filter.x.required".to_vec()];
        assert_eq!(Settings::read(listing), Settings { filters, modes_count: true, is_usual: true });
        assert!(!Settings::read(b"core.filemode\nOff\0").modes_count);
        assert!(Settings::read(b"core.filemode\0").modes_count);
        assert!(Settings::read(b"").modes_count);
    }
}
