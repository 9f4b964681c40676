//! Restoring in real repositories: the tree is as it was, the previous state is saved, and nothing else is touched.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use dogwatch_host::git::snapshot::{self, Limits, OthersWork, Outcome, OwnWork, Request, Restored, Undo};
use tempfile::TempDir;

const THEN: &str = "refs/dogwatch/20261115-201533-k3f9/loop/0";
const NOW: &str = "refs/dogwatch/20261115-201533-k3f9/loop/undo-1";

struct Repo {
    dir: TempDir,
    limits: Limits,
}

impl Repo {
    fn without_commits() -> Repo {
        let repo = Repo { dir: TempDir::new().expect("a directory"), limits: Limits::default() };
        fs::create_dir(repo.top()).expect("a directory");
        repo.git(&["init", "-q", "-b", "main"]);
        repo
    }

    fn new() -> Repo {
        let repo = Repo::without_commits();
        repo.write("kept", "kept\n");
        repo.write("changed", "before\n");
        repo.write("dir/gone", "gone\n");
        repo.write(".gitignore", "ignored\n");
        repo.git(&["add", "-A"]);
        repo.git(&["commit", "-q", "-m", "first"]);
        repo
    }

    fn top(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.top().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("written");
    }

    #[track_caller]
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    #[track_caller]
    fn git(&self, args: &[&str]) -> String {
        let mut git = Command::new("git");
        for (name, _) in std::env::vars_os().filter(|(n, _)| n.as_encoded_bytes().starts_with(b"GIT_")) {
            git.env_remove(name);
        }
        git.args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(args).current_dir(self.top());
        let out = git.env("GIT_EDITOR", "true").output().expect("git is installed");
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("plain output").trim_end().to_owned()
    }

    fn take(&self, name: &str) {
        let request = Request {
            work_dir: self.top(),
            ref_name: name.to_owned(),
            scratch: self.dir.path().join("scratch"),
            state_dirs: vec![self.path(".dogwatch")],
            limits: self.limits,
            keep: None,
            pristine: None,
        };
        let outcome = snapshot::take(&request);
        assert!(matches!(outcome, Outcome::Taken(_)), "{outcome:?}");
    }

    fn set_mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).expect("the file is ours");
    }

    fn undo_to(&self, to: &str, keep_as: &str) -> Result<Restored, String> {
        self.undo_own(to, keep_as, None)
    }

    fn undo_own(&self, to: &str, keep_as: &str, own: Option<OwnWork>) -> Result<Restored, String> {
        let undo = Undo {
            work_dir: self.top(),
            to: to.to_owned(),
            keep_as: keep_as.to_owned(),
            scratch: self.dir.path().join("scratch"),
            state_dirs: vec![self.path(".dogwatch")],
            limits: self.limits,
            own,
        };
        snapshot::prepare(undo)?.restore()
    }

    #[track_caller]
    fn undo(&self) -> Restored {
        let restored = self.undo_to(THEN, NOW).expect("undone");
        assert!(!self.dir.path().join("scratch").exists(), "the scratch directory is gone");
        restored
    }

    /// Returns git's state apart from the work tree.
    fn kept_by_git(&self) -> [String; 4] {
        let index = fs::read(self.path(".git/index")).unwrap_or_default();
        let heads = self.git(&["for-each-ref", "--exclude=refs/dogwatch/"]);
        let head = fs::read_to_string(self.path(".git/HEAD")).expect("readable");
        let files = fs::read_dir(self.path(".git")).expect("readable").flatten();
        let mut files: Vec<String> = files.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        files.sort();
        [format!("{index:?}"), heads, head, files.join(" ")]
    }
}

#[track_caller]
fn reason<'a>(restored: &'a Restored, path: &str) -> &'a str {
    let found = restored.named.iter().find(|left| left.path == path);
    &found.unwrap_or_else(|| panic!("{path} in {restored:?}")).why
}

// promise: 17
#[test]
fn the_tree_is_restored_and_the_replaced_state_can_be_restored_too() {
    let repo = Repo::new();
    repo.write("note", "untracked then\n");
    repo.write("ignored", "mine\n");
    repo.take(THEN);
    repo.write("changed", "after\n");
    repo.write("note", "untracked now\n");
    repo.write("new/deep/file", "new\n");
    repo.write("ignored", "still mine\n");
    fs::remove_dir_all(repo.path("dir")).expect("removed");
    let restored = repo.undo();
    assert_eq!((restored.written, restored.removed, restored.left), (3, 1, 0), "{restored:?}");
    assert_eq!(repo.read("changed"), "before\n");
    assert_eq!(repo.read("note"), "untracked then\n");
    assert_eq!(repo.read("dir/gone"), "gone\n");
    assert_eq!(repo.read("ignored"), "still mine\n");
    assert!(!repo.path("new").exists());
    assert_eq!(repo.git(&["status", "--porcelain"]), "?? note");
    let back = repo.undo_to(NOW, &format!("{NOW}2")).expect("undone");
    assert_eq!(back.left, 0, "{back:?}");
    assert_eq!(repo.read("changed"), "after\n");
    assert_eq!(repo.read("note"), "untracked now\n");
    assert_eq!(repo.read("new/deep/file"), "new\n");
    assert!(!repo.path("dir").exists());
}

// promise: 17
#[test]
fn index_head_branches_and_hooks_are_unchanged() {
    let repo = Repo::new();
    repo.take(THEN);
    repo.write("changed", "committed since\n");
    repo.git(&["commit", "-q", "-a", "-m", "second"]);
    repo.write("kept", "staged\n");
    repo.git(&["add", "kept"]);
    fs::write(repo.path(".git/index.lock"), "").expect("a lock");
    for hook in ["post-checkout", "reference-transaction", "post-index-change"] {
        let path = repo.path(".git/hooks").join(hook);
        fs::write(&path, "#!/bin/sh\nexec sleep 1000\n").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    }
    let before = repo.kept_by_git();
    let restored = repo.undo();
    assert_eq!((restored.written, restored.left), (2, 0), "{restored:?}");
    assert_eq!(repo.kept_by_git(), before);
    assert_eq!(repo.read("changed"), "before\n");
    assert_eq!(repo.read("kept"), "kept\n");
}

#[test]
fn bytes_modes_and_links_come_back_and_clean_files_as_git_checks_them_out() {
    let repo = Repo::new();
    repo.write(".gitattributes", "*.txt text eol=crlf\n");
    repo.write("clean.txt", "one\r\ntwo\r\n");
    repo.write("dirty.txt", "one\r\ntwo\r\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-q", "-m", "text"]);
    repo.write("dirty.txt", "mixed\r\nends\n");
    repo.write("odd\nname", "odd");
    repo.write("run.sh", "#!/bin/sh\n");
    fs::set_permissions(repo.path("run.sh"), fs::Permissions::from_mode(0o755)).expect("executable");
    symlink("kept", repo.path("link")).expect("a link");
    repo.take(THEN);
    for name in ["clean.txt", "dirty.txt", "odd\nname", "run.sh", "link"] {
        fs::remove_file(repo.path(name)).expect("removed");
    }
    repo.write("link/was/a/link", "now a directory");
    let restored = repo.undo();
    assert_eq!(restored.left, 0, "{restored:?}");
    assert_eq!(repo.read("clean.txt"), "one\r\ntwo\r\n");
    assert_eq!(repo.read("dirty.txt"), "mixed\r\nends\n");
    assert_eq!(repo.read("odd\nname"), "odd");
    assert_eq!(fs::read_link(repo.path("link")).expect("a link"), Path::new("kept"));
    let mode = fs::metadata(repo.path("run.sh")).expect("there").permissions().mode();
    assert_eq!(mode & 0o111, 0o111 & mode, "executable");
    assert!(mode & 0o100 != 0);
}

// promise: 17
#[test]
fn a_file_too_large_to_save_is_neither_overwritten_nor_removed() {
    let mut repo = Repo::new();
    repo.limits.file_bytes = 100;
    repo.write("big-then", "x".repeat(101));
    repo.take(THEN);
    // It is small now, so the present snapshot contains it while the earlier one does not.
    repo.write("big-then", "small");
    repo.write("changed", "y".repeat(101));
    repo.write("big-now", "z".repeat(101));
    repo.write("small-now", "goes");
    let restored = repo.undo();
    assert_eq!((restored.removed, restored.left), (1, 1), "{restored:?}");
    assert_eq!(reason(&restored, "big-then"), "the snapshot left it out, so it may have existed");
    assert_eq!(repo.read("big-then"), "small");
    assert_eq!(repo.read("changed").len(), 101, "not saved, so not overwritten");
    assert_eq!(repo.read("big-now").len(), 101);
    assert!(!repo.path("small-now").exists());
}

// promise: 17
#[test]
fn permissions_come_back_exactly_also_if_only_they_changed() {
    let repo = Repo::new();
    let set = |name: &str, mode: u32| {
        fs::set_permissions(repo.path(name), fs::Permissions::from_mode(mode)).expect("the file is ours");
    };
    let mode = |name: &str| fs::metadata(repo.path(name)).expect("there").permissions().mode() & 0o7777;
    for (name, bits) in [("gone", 0o640), ("edited", 0o444), ("opened", 0o440), ("tool", 0o750)] {
        repo.write(name, name);
        set(name, bits);
    }
    repo.take(THEN);
    fs::remove_file(repo.path("gone")).expect("removed");
    fs::remove_file(repo.path("edited")).expect("removed");
    repo.write("edited", "another content");
    set("opened", 0o666);
    set("tool", 0o777);
    let restored = repo.undo();
    assert_eq!(restored.left, 0, "{restored:?}");
    let now: Vec<u32> = ["gone", "edited", "opened", "tool"].into_iter().map(mode).collect();
    assert_eq!(now, [0o640, 0o444, 0o440, 0o750]);
    assert_eq!(repo.read("edited"), "edited");
}

// promise: 17
#[test]
fn a_private_file_is_neither_overwritten_nor_removed() {
    let repo = Repo::new();
    let private = |name: &str, text: &str| {
        repo.write(name, text);
        fs::set_permissions(repo.path(name), fs::Permissions::from_mode(0o600)).expect("the file is ours");
    };
    private("then.env", "old");
    private("changed", "a password of then");
    repo.take(THEN);
    private("then.env", "new");
    private("changed", "a password of now");
    private("now.env", "made later");
    repo.write("open", "goes");
    let restored = repo.undo();
    assert_eq!((restored.removed, restored.left), (1, 0), "{restored:?}");
    assert_eq!((repo.read("then.env"), repo.read("now.env")), ("new".to_owned(), "made later".to_owned()));
    assert_eq!(repo.read("changed"), "a password of now");
    let mode = fs::metadata(repo.path("then.env")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A file that was private then and is open now may hold what was private. It is saved first, and stays.
    for name in ["then.env", "changed"] {
        fs::set_permissions(repo.path(name), fs::Permissions::from_mode(0o644)).expect("the file is ours");
    }
    let restored = repo.undo_to(THEN, "refs/dogwatch/again").expect("restores");
    assert_eq!(reason(&restored, "then.env"), "the snapshot left it out, so it may have existed");
    assert_eq!(repo.read("then.env"), "new");
    let unknown = "the snapshot left it out, so its content of that time is unknown";
    assert_eq!(
        (reason(&restored, "changed"), repo.read("changed")),
        (unknown, "a password of now".to_owned())
    );
}

// promise: 17
#[test]
fn ignored_files_are_kept_when_the_ignore_rules_change() {
    let repo = Repo::new();
    repo.write("ignored", "a secret");
    repo.take(THEN);
    fs::remove_file(repo.path(".gitignore")).expect("removed");
    repo.write("new", "goes");
    let restored = repo.undo();
    assert_eq!(repo.read("ignored"), "a secret");
    assert_eq!(reason(&restored, "ignored"), "git ignored it then, so it may have existed");
    assert!(repo.path(".gitignore").exists() && !repo.path("new").exists());
    // The reverse case: the file is ignored now and blocks a file of the snapshot.
    repo.take(&format!("{THEN}0"));
    repo.write(".gitignore", "ignored\nnote\n");
    repo.write("note", "ignored now");
    repo.git(&["update-ref", "refs/dogwatch/x", &with_note(&repo)]);
    let restored = repo.undo_to("refs/dogwatch/x", &format!("{NOW}2")).expect("undone");
    assert_eq!(reason(&restored, "note"), "an ignored file is in its place");
    assert_eq!(repo.read("note"), "ignored now");
}

/// Takes a snapshot that contains `note`.
fn with_note(repo: &Repo) -> String {
    let rules = repo.read(".gitignore");
    let note = repo.read("note");
    repo.write(".gitignore", "ignored\n");
    repo.write("note", "untracked then");
    repo.take("refs/dogwatch/with-note");
    repo.write(".gitignore", rules);
    repo.write("note", note);
    repo.git(&["rev-parse", "refs/dogwatch/with-note"])
}

#[test]
fn no_filter_runs_and_its_files_are_left_to_git() {
    let repo = Repo::new();
    repo.git(&["config", "filter.up.smudge", "touch ../ran; cat"]);
    repo.git(&["config", "filter.up.clean", "cat"]);
    repo.write(".gitattributes", "*.up filter=up\n");
    repo.write("a.up", "one");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-q", "-m", "filtered"]);
    repo.take(THEN);
    repo.write("a.up", "two");
    repo.write("changed", "two");
    let _ = fs::remove_file(repo.dir.path().join("ran"));
    let restored = repo.undo();
    assert!(reason(&restored, "a.up").contains("filter"), "{restored:?}");
    assert_eq!((repo.read("a.up").as_str(), repo.read("changed").as_str()), ("two", "before\n"));
    assert!(!repo.dir.path().join("ran").exists());
}

#[test]
fn restoring_works_without_commits_and_during_a_rebase() {
    let repo = Repo::without_commits();
    repo.write("a", "one");
    repo.take(THEN);
    repo.write("a", "two");
    repo.write("b", "two");
    let restored = repo.undo();
    assert_eq!((restored.written, restored.removed, restored.left), (1, 1, 0), "{restored:?}");
    assert_eq!(repo.read("a"), "one");

    let repo = Repo::new();
    repo.take(THEN);
    fs::create_dir(repo.path(".git/rebase-merge")).expect("a directory, as git creates it");
    repo.write("changed", "after");
    let undo = Undo {
        work_dir: repo.top(),
        to: THEN.to_owned(),
        keep_as: NOW.to_owned(),
        scratch: repo.dir.path().join("scratch"),
        state_dirs: Vec::new(),
        limits: Limits::default(),
        own: None,
    };
    let prepared = snapshot::prepare(undo).expect("prepared");
    assert_eq!((prepared.survey.under_way, prepared.counts()), (Some("rebase"), (1, 0)));
    prepared.give_up().expect("given up");
    assert_eq!(repo.read("changed"), "after");
    assert_eq!(repo.git(&["for-each-ref", NOW]), "", "the saved state was removed");
}

#[test]
fn a_missing_or_foreign_snapshot_changes_nothing() {
    let repo = Repo::new();
    repo.write("changed", "after");
    let gone = repo.undo_to(THEN, NOW).expect_err("no such snapshot");
    assert!(!gone.is_empty());
    assert_eq!(repo.git(&["for-each-ref", "refs/dogwatch/"]), "", "nothing is left of the attempt");
    repo.git(&["update-ref", THEN, "HEAD"]);
    let none = repo.undo_to(THEN, NOW).expect_err("not a snapshot");
    assert!(none.contains("not a dogwatch snapshot"), "{none}");
    assert_eq!(repo.read("changed"), "after");
    let nowhere = TempDir::new().expect("a directory");
    let undo = Undo {
        work_dir: nowhere.path().to_owned(),
        to: THEN.to_owned(),
        keep_as: NOW.to_owned(),
        scratch: repo.dir.path().join("scratch"),
        state_dirs: Vec::new(),
        limits: Limits::default(),
        own: None,
    };
    assert_eq!(snapshot::prepare(undo).expect_err("no git"), "not a git work tree");
}

#[test]
fn own_files_are_never_touched_but_a_worktree_below_them_is() {
    let repo = Repo::new();
    repo.write(".dogwatch/runs/record", "then");
    repo.git(&["add", "-f", ".dogwatch/runs/record"]);
    repo.take(THEN);
    repo.write(".dogwatch/runs/record", "now");
    repo.write("changed", "after");
    repo.git(&["add", "-f", ".dogwatch/runs/record"]);
    let restored = repo.undo();
    assert_eq!(reason(&restored, ".dogwatch/runs/record"), "it belongs to dogwatch");
    assert_eq!(
        (repo.read(".dogwatch/runs/record").as_str(), repo.read("changed").as_str()),
        ("now", "before\n")
    );
    repo.write("changed", "after");
    let undo = Undo {
        work_dir: repo.top(),
        to: THEN.to_owned(),
        keep_as: format!("{NOW}2"),
        scratch: repo.dir.path().join("scratch"),
        state_dirs: vec![repo.dir.path().to_owned()],
        limits: Limits::default(),
        own: None,
    };
    let restored = snapshot::prepare(undo).and_then(snapshot::Prepared::restore).expect("undone");
    assert_eq!(restored.left, 0, "{restored:?}");
    assert_eq!(repo.read("changed"), "before\n");
}

// promise: 17
#[test]
fn only_the_work_of_the_run_is_undone() {
    const DONE: &str = "refs/dogwatch/run/node/2";
    const AGAIN: &str = "refs/dogwatch/run/node/3";
    let repo = Repo::new();
    for file in ["own", "later", "gone", "mode"] {
        repo.write(file, "then\n");
    }
    repo.set_mode("mode", 0o640);
    repo.take(THEN);
    for file in ["own", "later", "gone", "made", "made-later"] {
        repo.write(file, "by the run\n");
    }
    repo.take(DONE);
    repo.write("theirs", "by another run\n");
    repo.take(AGAIN);
    repo.write("later", "by the user\n");
    repo.write("made-later", "by the user\n");
    repo.write("new", "by the user\n");
    repo.set_mode("mode", 0o660);
    fs::remove_file(repo.path("gone")).expect("removed");
    let others = OthersWork { from: DONE.to_owned(), to: AGAIN.to_owned(), why: "run x".to_owned() };
    let snapshots = [AGAIN, DONE, THEN].map(str::to_owned).to_vec();
    let own = OwnWork { snapshots, others: vec![others] };
    let restored = repo.undo_own(THEN, NOW, Some(own.clone())).expect("undone");
    assert_eq!((restored.written, restored.removed, restored.left), (2, 1, 5), "{restored:?}");
    let read = |file: &str| fs::read_to_string(repo.path(file)).ok();
    assert_eq!([read("own"), read("gone")], ["then\n", "then\n"].map(|text| Some(text.to_owned())));
    assert_eq!(read("made"), None);
    for file in ["later", "made-later", "new"] {
        assert_eq!(repo.read(file), "by the user\n");
        assert_eq!(reason(&restored, file), "changed after the last snapshot of the run");
    }
    assert_eq!((repo.read("theirs").as_str(), reason(&restored, "theirs")), ("by another run\n", "run x"));
    assert!(reason(&restored, "mode").contains("permissions"));

    // The state after the undo is known from the first snapshot, so another undo changes it again.
    let restored = repo.undo_own(DONE, &format!("{NOW}2"), Some(own)).expect("undone");
    assert_eq!((restored.written, restored.left), (3, 5), "{restored:?}");
    assert_eq!((repo.read("own").as_str(), repo.read("new").as_str()), ("by the run\n", "by the user\n"));
}
