//! The digest of a work tree, on real files and real git repositories.

use dogwatch_host::fs::digest::{DigestError, Digester, work_tree_digest};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// More time than any test needs.
const AMPLE: Duration = Duration::from_secs(60);

struct Tree {
    dir: tempfile::TempDir,
    digester: Digester,
}

impl Tree {
    fn plain() -> Tree {
        let dir = tempfile::tempdir().expect("a directory");
        let digester = Digester::new(dir.path(), &[dir.path().join(".dogwatch")]);
        let tree = Tree { dir, digester };
        tree.write("src/main.rs", "fn main() {}");
        tree.write("README.md", "hello");
        tree
    }

    fn git() -> Tree {
        let tree = Tree::plain();
        tree.run_git(&["init", "-q"]);
        tree.write(".gitignore", "target/\n*.log\n!keep.log\n");
        tree.commit();
        tree
    }

    fn commit(&self) {
        self.run_git(&["add", "-A"]);
        self.run_git(&["commit", "-q", "--allow-empty", "-m", "x"]);
    }

    fn run_git(&self, args: &[&str]) {
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let done = Command::new("git").args(who).args(args).current_dir(self.dir.path()).status();
        assert!(done.expect("git is installed").success());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("written");
    }

    fn digest(&mut self) -> String {
        self.digester.digest(AMPLE).expect("a digest")
    }

    fn flips(&mut self, change: impl FnOnce(&Tree)) -> bool {
        let before = self.digest();
        change(self);
        let after = self.digest();
        let afresh = work_tree_digest(self.dir.path(), &[self.path(".dogwatch")], AMPLE).expect("a digest");
        assert_eq!(after, afresh, "the cache makes no difference");
        before != after
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

#[test]
fn every_kind_of_change_gives_another_digest() {
    let mut tree = Tree::git();
    assert!(tree.flips(|t| t.write("README.md", "hello there")), "content");
    assert!(tree.flips(|t| t.write("README.md", "hello_there")), "same size, same second");
    assert!(tree.flips(|t| t.write("new.md", "")), "a new file, untracked and empty");
    assert!(tree.flips(|t| fs::rename(t.path("new.md"), t.path("newer.md")).expect("renamed")), "a name");
    assert!(tree.flips(|t| set_mode(&t.path("README.md"), 0o755)), "the exec bit");
    assert!(tree.flips(|t| symlink("README.md", t.path("link")).expect("linked")), "a link");
    assert!(
        tree.flips(|t| {
            fs::remove_file(t.path("link")).expect("removed");
            symlink("newer.md", t.path("link")).expect("linked");
        }),
        "a link's target"
    );
    assert!(
        tree.flips(|t| {
            fs::remove_file(t.path("link")).expect("removed");
            t.write("link", "newer.md");
        }),
        "a file in place of a link with the same text"
    );
    assert!(tree.flips(|t| fs::remove_file(t.path("src/main.rs")).expect("removed")), "a tracked file gone");
    assert!(tree.flips(|t| t.write("a/b/c/d.txt", "deep")), "a file in new directories");
    assert!(tree.flips(|t| t.write("keep.log", "wanted back")), "a file that an ignore rule re-includes");
    assert!(tree.flips(|t| t.write(".gitignore", "*.md\n")), "the rules themselves");
}

#[test]
fn the_digest_ignores_changes_other_than_content() {
    let mut tree = Tree::git();
    let touch = |path: &Path, at: SystemTime| {
        fs::File::options().write(true).open(path).expect("open").set_modified(at).expect("touched");
    };
    assert!(!tree.flips(|t| touch(&t.path("README.md"), SystemTime::UNIX_EPOCH)), "a touch into the past");
    assert!(!tree.flips(|t| t.write("README.md", "hello")), "the same again");
    assert!(!tree.flips(|t| set_mode(&t.path("README.md"), 0o600)), "who may read it");
    assert!(!tree.flips(|t| fs::create_dir(t.path("empty")).expect("made")), "an empty directory");
    assert!(!tree.flips(|t| drop(fs::read(t.path("README.md")))), "a read");
    assert!(
        !tree.flips(|t| {
            t.write("tmp", "hello");
            fs::rename(t.path("tmp"), t.path("README.md")).expect("renamed");
        }),
        "another inode of the same content"
    );
}

#[test]
fn git_directory_ignored_files_and_own_state_make_no_difference() {
    let mut tree = Tree::git();
    assert!(!tree.flips(|t| t.commit()), "a commit");
    assert!(!tree.flips(|t| t.run_git(&["gc", "-q"])), "git's own housekeeping");
    assert!(!tree.flips(|t| t.write("target/debug/out", "x")), "a file in an ignored directory");
    assert!(!tree.flips(|t| t.write("src/x.log", "x")), "an ignored file");
    assert!(!tree.flips(|t| t.write(".dogwatch/runs/1/events.jsonl", "x")), "our state");
    tree.write(".git/info/exclude", "private\n");
    assert!(!tree.flips(|t| t.write("private", "x")), "what the repository excludes");
}

#[test]
fn rules_of_a_directory_hold_below_it_and_deeper_ones_win() {
    let mut tree = Tree::git();
    tree.write("sub/.gitignore", "!*.log\n/only-here\n");
    assert!(tree.flips(|t| t.write("sub/deep/x.log", "x")), "re-included by the deeper rules");
    assert!(!tree.flips(|t| t.write("sub/only-here", "x")));
    assert!(tree.flips(|t| t.write("sub/deep/only-here", "x")));
}

#[test]
fn a_work_tree_inside_a_repository_follows_the_rules_above_it() {
    let tree = Tree::git();
    tree.write("part/a", "a");
    let mut part = Digester::new(&tree.path("part"), &[]);
    let before = part.digest(AMPLE).expect("a digest");
    tree.write("part/x.log", "x");
    assert_eq!(part.digest(AMPLE).expect("a digest"), before);
    // A work tree that is ignored as a whole is treated as a separate tree. Otherwise no change in it would
    // count.
    tree.write("target/work/a", "a");
    let mut ignored = Digester::new(&tree.path("target/work"), &[]);
    let before = ignored.digest(AMPLE).expect("a digest");
    tree.write("target/work/a", "b");
    assert_ne!(ignored.digest(AMPLE).expect("a digest"), before);
}

#[test]
fn a_linked_work_tree_is_read_as_its_repository_is() {
    let tree = Tree::git();
    tree.write(".git/info/exclude", "private\n");
    let other = tempfile::tempdir().expect("a directory");
    let linked = other.path().join("linked");
    tree.run_git(&["worktree", "add", "-q", linked.to_str().expect("UTF-8")]);
    let mut digester = Digester::new(&linked, &[]);
    let before = digester.digest(AMPLE).expect("a digest");
    fs::write(linked.join("private"), "x").expect("written");
    assert_eq!(digester.digest(AMPLE).expect("a digest"), before);
    assert_eq!(before, work_tree_digest(tree.dir.path(), &[], AMPLE).expect("a digest"), "the same files");
}

#[test]
fn a_directory_without_git_has_a_digest_too() {
    let mut tree = Tree::plain();
    assert!(tree.flips(|t| t.write("README.md", "other")));
    tree.write(".gitignore", "*.log\n");
    assert!(!tree.flips(|t| t.write("x.log", "x")), "its ignore rules still apply");
}

#[test]
fn the_same_files_elsewhere_have_the_same_digest() {
    let (mut one, mut other) = (Tree::git(), Tree::git());
    assert_eq!(one.digest(), other.digest());
}

#[test]
fn fifos_and_sockets_are_part_of_the_digest_and_never_opened() {
    let mut tree = Tree::plain();
    let fifo = |t: &Tree, name: &str| {
        let done = Command::new("mkfifo").arg(t.path(name)).status();
        assert!(done.expect("mkfifo is installed").success());
    };
    assert!(tree.flips(|t| fifo(t, "fifo")));
    assert!(tree.flips(|t| drop(std::os::unix::net::UnixListener::bind(t.path("socket")).expect("bound"))));
    // Rules are read from regular files only.
    assert!(tree.flips(|t| fifo(t, ".gitignore")));
}

#[test]
fn a_link_to_the_directory_above_is_not_followed() {
    let mut tree = Tree::plain();
    assert!(tree.flips(|t| symlink("..", t.path("src/up")).expect("linked")));
}

#[test]
fn rules_are_read_up_to_their_limit() {
    const MAX_RULES_BYTES: usize = 1024 * 1024;
    for (padding, ignored) in [(MAX_RULES_BYTES - 6, true), (MAX_RULES_BYTES, false)] {
        let mut tree = Tree::plain();
        tree.write(".gitignore", &format!("#{}\nlate\n", "x".repeat(padding - 2)));
        assert_eq!(!tree.flips(|t| t.write("late", "x")), ignored, "after {padding} bytes");
    }
}

#[test]
fn more_files_than_the_limit_have_no_digest() {
    let tree = Tree::plain();
    let within = |n| Digester::new(tree.dir.path(), &[]).with_limits(n, 1024).digest(AMPLE);
    assert!(within(3).is_ok() && within(2).is_ok());
    assert!(matches!(within(1), Err(DigestError::TooMany)));
}

#[test]
fn a_file_too_large_to_read_counts_by_its_inode_and_differs_when_in_doubt() {
    let tree = Tree::plain();
    let mut small = Digester::new(tree.dir.path(), &[]).with_limits(10, 12);
    assert_eq!(small.digest(AMPLE).expect("a digest"), small.digest(AMPLE).expect("a digest"));
    // The 12 bytes of source exceed the read limit by one, and they are too recent for time stamps to be reliable.
    let mut smaller = Digester::new(tree.dir.path(), &[]).with_limits(10, 11);
    assert_ne!(smaller.digest(AMPLE).expect("a digest"), smaller.digest(AMPLE).expect("a digest"));
}

#[test]
fn a_timeout_is_an_error_and_the_next_call_continues() {
    let mut tree = Tree::plain();
    assert!(matches!(tree.digester.digest(Duration::ZERO), Err(DigestError::TookTooLong(_))));
    let afresh = work_tree_digest(tree.dir.path(), &[], AMPLE).expect("a digest");
    assert_eq!(tree.digest(), afresh);
    assert!(matches!(tree.digester.digest(Duration::ZERO), Err(DigestError::TookTooLong(_))));
    assert_eq!(tree.digest(), afresh);
}

#[test]
fn a_missing_root_is_an_error() {
    let tree = Tree::plain();
    let missing = work_tree_digest(&tree.path("missing"), &[], AMPLE);
    assert!(matches!(missing, Err(DigestError::Unreadable(_))));
}

#[test]
fn unreadable_files_are_part_of_the_digest() {
    let mut tree = Tree::plain();
    set_mode(tree.dir.path(), 0o755);
    let as_nobody = |tree: &mut Tree| {
        std::thread::scope(|scope| scope.spawn(|| as_another_user(|| tree.digest())).join())
            .expect("a digest")
    };
    let before = as_nobody(&mut tree);
    tree.write("secret/file", "x");
    set_mode(&tree.path("secret"), 0);
    let closed = as_nobody(&mut tree);
    assert_ne!(before, closed);
    set_mode(&tree.path("README.md"), 0);
    assert_ne!(as_nobody(&mut tree), closed);
    set_mode(&tree.path("secret"), 0o755);
}

/// Root can read everything, so this thread alone switches to another user first.
fn as_another_user<T>(work: impl FnOnce() -> T) -> T {
    if rustix::process::geteuid().is_root() {
        let nobody = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(rustix::process::Uid::ROOT, nobody, rustix::process::Uid::ROOT)
            .expect("root may");
    }
    work()
}
