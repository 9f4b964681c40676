//! Worktrees with real git: created once, reused, and never removed while they contain work.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use dogwatch_core::record::ids::{NodeName, RunId};
use dogwatch_core::run::job::{Arranged, Commit, Made, Worktree};
use dogwatch_host::git::worktree::{self, Request, Source, Tidied};
use tempfile::TempDir;

struct Repo {
    dir: TempDir,
}

impl Repo {
    fn without_commits() -> Repo {
        let repo = Repo { dir: TempDir::new().expect("a directory") };
        fs::create_dir(repo.top()).expect("a directory");
        repo.git(&["init", "-q", "-b", "main"]);
        repo
    }

    fn new() -> Repo {
        let repo = Repo::without_commits();
        fs::write(repo.top().join("a"), "one\n").expect("written");
        fs::write(repo.top().join(".gitignore"), "build\n").expect("written");
        repo.git(&["add", "-A"]);
        repo.git(&["commit", "-q", "-m", "first"]);
        repo
    }

    fn top(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    fn state(&self) -> PathBuf {
        self.top().join(".dogwatch")
    }

    fn try_git_at(&self, dir: &Path, args: &[&str]) -> std::process::Output {
        let mut git = Command::new("git");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"GIT_"))
        {
            git.env_remove(name);
        }
        git.args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(args).current_dir(dir);
        git.output().expect("git is installed")
    }

    #[track_caller]
    fn git_at(&self, dir: &Path, args: &[&str]) -> String {
        let out = self.try_git_at(dir, args);
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("plain output").trim_end().to_owned()
    }

    #[track_caller]
    fn git(&self, args: &[&str]) -> String {
        self.git_at(&self.top(), args)
    }

    fn request(&self, node: &str) -> Request {
        Request::new(&self.top(), &self.state(), &run(), &NodeName::new(node), "HEAD")
    }

    /// Makes a worktree that the record knows.
    #[track_caller]
    fn make(&self, node: &str) -> (PathBuf, Arranged) {
        self.make_from(node, &[])
    }

    /// Makes a worktree from the branches of these nodes.
    #[track_caller]
    fn make_from(&self, node: &str, from: &[&str]) -> (PathBuf, Arranged) {
        let source = |name: &&str| {
            let node = NodeName::new(name);
            Source { branch: worktree::branch(&run(), &node), node }
        };
        let from = from.iter().map(source).collect();
        let request = Request { recorded: true, from, ..self.request(node) };
        match worktree::make(&request) {
            Worktree::Ready(ready) => (request.path, ready),
            Worktree::Failed { why } => panic!("{node}: {why}"),
        }
    }

    #[track_caller]
    fn refused(&self, node: &str) -> String {
        match worktree::make(&self.request(node)) {
            Worktree::Failed { why } => why,
            Worktree::Ready(ready) => panic!("created: {ready:?}"),
        }
    }
}

impl Repo {
    /// Writes files into a worktree and commits them as dogwatch does.
    #[track_caller]
    fn work(&self, node: &str, files: &[(&str, &str)]) -> Made {
        let path = self.request(node).path;
        for (name, text) in files {
            fs::write(path.join(name), text).expect("written");
        }
        self.commit(node)
    }

    #[track_caller]
    fn commit(&self, node: &str) -> Made {
        match worktree::commit(&self.request(node), "work") {
            Commit::Made(made) => made,
            Commit::Failed { why } => panic!("{node}: {why}"),
        }
    }
}

fn run() -> RunId {
    "20261115-201533-k3f9".parse().expect("a run id")
}

#[track_caller]
fn kept(tidied: &Tidied) -> &str {
    match tidied {
        Tidied::Kept { why, .. } => why,
        Tidied::Removed { path } => panic!("{} was removed", path.display()),
    }
}

#[test]
fn a_node_gets_a_tree_and_a_branch_and_nothing_else_changes() {
    let repo = Repo::new();
    fs::write(repo.top().join("a"), "uncommitted\n").expect("written");
    let (path, ready) = repo.make("api: v1");
    assert_eq!(fs::read_to_string(path.join("a")).expect("checked out"), "one\n");
    assert_eq!(ready.branch, "dogwatch/20261115-201533-k3f9/api%3A%20v1");
    assert_eq!(repo.git_at(&path, &["symbolic-ref", "--short", "HEAD"]), ready.branch);
    assert_eq!(repo.git(&["rev-parse", "HEAD"]), ready.commit);
    assert!(!ready.reused);
    assert_eq!(repo.git(&["symbolic-ref", "HEAD"]), "refs/heads/main");
    assert_eq!(fs::read_to_string(repo.top().join("a")).expect("there"), "uncommitted\n");
}

#[test]
fn after_a_resume_the_tree_is_reused_with_its_content() {
    let repo = Repo::new();
    let (path, first) = repo.make("node");
    fs::write(path.join("half"), "done").expect("written");
    fs::write(path.join("b"), "b").expect("written");
    repo.git_at(&path, &["add", "b"]);
    repo.git_at(&path, &["commit", "-q", "-m", "work"]);
    let (_, second) = repo.make("node");
    assert!(second.reused && second.commit != first.commit);
    assert_eq!(fs::read_to_string(path.join("half")).expect("still there"), "done");
}

#[test]
fn a_vanished_tree_is_created_again_from_its_branch() {
    let repo = Repo::new();
    let (path, _) = repo.make("node");
    fs::write(path.join("b"), "b").expect("written");
    repo.git_at(&path, &["add", "b"]);
    repo.git_at(&path, &["commit", "-q", "-m", "work"]);
    fs::remove_dir_all(&path).expect("removed");
    let (_, ready) = repo.make("node");
    assert!(!ready.reused);
    assert_eq!(fs::read_to_string(path.join("b")).expect("checked out"), "b");
}

#[test]
fn a_tree_left_incomplete_by_a_killed_git_is_created_again() {
    let repo = Repo::new();
    let (path, _) = repo.make("node");
    // The state that git leaves before its checkout: no index, and its own lock still present.
    let index = repo.git_at(&path, &["rev-parse", "--path-format=absolute", "--git-path", "index"]);
    fs::remove_file(&index).expect("removed");
    fs::remove_file(path.join("a")).expect("removed");
    fs::write(Path::new(&index).with_file_name("locked"), "initializing").expect("written");
    let (_, ready) = repo.make("node");
    assert!(!ready.reused);
    assert_eq!(fs::read_to_string(path.join("a")).expect("checked out"), "one\n");
    // A worktree that is only still locked is complete.
    fs::write(Path::new(&index).with_file_name("locked"), "initializing").expect("written");
    assert!(repo.make("node").1.reused);
    assert!(matches!(worktree::tidy(&path, true), Tidied::Removed { .. }));
}

#[test]
fn many_at_once_are_created_one_after_the_other() {
    let repo = Repo::new();
    let names: Vec<String> = (0..12).map(|n| format!("node-{n}")).collect();
    std::thread::scope(|scope| {
        for name in &names {
            scope.spawn(|| repo.make(name));
        }
    });
    let listed = repo.git(&["worktree", "list", "--porcelain"]);
    assert_eq!(listed.matches("branch refs/heads/dogwatch/").count(), names.len(), "{listed}");
}

#[test]
fn without_git_commits_or_a_free_path_the_reason_is_given() {
    let repo = Repo::without_commits();
    assert!(repo.refused("node").contains("has no commit yet"));
    let elsewhere = TempDir::new().expect("a directory");
    let request = Request { repo: elsewhere.path().to_owned(), ..repo.request("node") };
    let Worktree::Failed { why } = worktree::make(&request) else { panic!("not a repository") };
    assert!(why.contains("not a git work tree"), "{why}");

    let repo = Repo::new();
    let request = Request { base: "0123456789".to_owned(), ..repo.request("node") };
    let Worktree::Failed { why } = worktree::make(&request) else { panic!("no such commit") };
    assert!(why.contains("`0123456789` is not a commit"), "{why}");
    let path = repo.request("node").path;
    fs::create_dir_all(&path).expect("a directory");
    fs::write(path.join("mine"), "").expect("written");
    assert!(repo.refused("node").contains("is in the way"));
    assert!(path.join("mine").exists());
}

#[test]
fn no_hook_runs_so_none_can_hang() {
    let repo = Repo::new();
    for hook in ["post-checkout", "reference-transaction"] {
        let path = repo.top().join(".git/hooks").join(hook);
        fs::write(&path, "#!/bin/sh\ntouch \"$(dirname \"$0\")/../ran\"\nexec sleep 1000\n")
            .expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    }
    let (path, _) = repo.make("node");
    assert!(matches!(worktree::tidy(&path, true), Tidied::Removed { .. }));
    assert!(!repo.top().join(".git/ran").exists());
}

#[test]
fn a_clean_tree_is_removed_and_its_branch_stays() {
    let repo = Repo::new();
    let (path, ready) = repo.make("node");
    fs::write(path.join("b"), "b").expect("written");
    repo.git_at(&path, &["add", "b"]);
    repo.git_at(&path, &["commit", "-q", "-m", "work"]);
    let commit = repo.git_at(&path, &["rev-parse", "HEAD"]);
    fs::create_dir(path.join("build")).expect("a directory");
    fs::write(path.join("build/out"), "ignored").expect("written");
    assert!(matches!(&worktree::tidy_run(&repo.state(), &run(), false)[..], [Tidied::Removed { .. }]));
    assert!(path.exists(), "a dry run removes nothing");
    assert!(matches!(&worktree::tidy_run(&repo.state(), &run(), true)[..], [Tidied::Removed { .. }]));
    assert!(!repo.state().join("worktrees").exists());
    assert_eq!(repo.git(&["rev-parse", &ready.branch]), commit);
}

// promise: 16
#[test]
fn a_tree_with_anything_uncommitted_or_unheld_stays() {
    let repo = Repo::new();
    let (path, _) = repo.make("node");
    let tidy = || worktree::tidy(&path, true);
    fs::write(path.join("new"), "untracked").expect("written");
    assert_eq!(kept(&tidy()), "uncommitted files: 1");
    repo.git_at(&path, &["add", "new"]);
    assert_eq!(kept(&tidy()), "uncommitted files: 1");
    repo.git_at(&path, &["checkout", "-q", "--detach"]);
    repo.git_at(&path, &["commit", "-q", "-m", "on no branch"]);
    assert!(kept(&tidy()).contains("no branch contains"));
    repo.git_at(&path, &["branch", "rescue"]);
    repo.git_at(&path, &["worktree", "lock", path.to_str().expect("plain")]);
    assert!(kept(&tidy()).contains("locked"));
    repo.git_at(&path, &["worktree", "unlock", path.to_str().expect("plain")]);
    assert!(path.join("new").exists());
    assert!(matches!(tidy(), Tidied::Removed { .. }));
}

// promise: 16
#[test]
fn a_worktree_in_the_middle_of_a_merge_and_a_plain_directory_are_kept() {
    let repo = Repo::new();
    let (path, _) = repo.make("node");
    fs::write(path.join("a"), "theirs\n").expect("written");
    repo.git_at(&path, &["commit", "-q", "-a", "-m", "theirs"]);
    fs::write(repo.top().join("a"), "ours\n").expect("written");
    repo.git(&["commit", "-q", "-a", "-m", "ours"]);
    repo.try_git_at(&path, &["merge", "main"]);
    assert_eq!(kept(&worktree::tidy(&path, true)), "a merge is in progress");
    let other = repo.state().join("worktrees").join(run().as_str()).join("other");
    fs::create_dir(&other).expect("a directory");
    fs::write(other.join("mine"), "").expect("written");
    assert_eq!(kept(&worktree::tidy(&other, true)), "not a git worktree");
    assert!(other.join("mine").exists() && path.exists());
}

#[test]
fn a_creation_that_was_never_recorded_starts_over() {
    let repo = Repo::new();
    let (path, _) = repo.make("node");
    fs::write(path.join("half"), "made").expect("written");
    let request = repo.request("node");
    let Worktree::Ready(ready) = worktree::make(&request) else { panic!("not created") };
    assert!(!ready.reused && !path.join("half").exists());
    assert_eq!(ready.base, Some(repo.git(&["rev-parse", "HEAD"])));
}

#[test]
fn uncommitted_work_is_committed_with_a_fixed_identity_and_without_private_files() {
    let repo = Repo::new();
    let (path, _) = repo.make("node");
    fs::remove_file(path.join("a")).expect("removed");
    fs::create_dir(path.join("build")).expect("a directory");
    fs::write(path.join("build/ignored"), "x").expect("written");
    fs::write(path.join("secret"), "key").expect("written");
    fs::set_permissions(path.join("secret"), fs::Permissions::from_mode(0o600)).expect("private");
    fs::write(path.join("tool.sh"), "#!/bin/sh\n").expect("written");
    fs::set_permissions(path.join("tool.sh"), fs::Permissions::from_mode(0o755)).expect("executable");
    // A git that was killed leaves its lock.
    let lock = repo.git_at(&path, &["rev-parse", "--git-path", "index.lock"]);
    fs::write(path.join(lock), "").expect("written");
    let made = repo.work("node", &[("new", "text\n")]);
    assert_eq!((made.files, made.skipped), (3, 1), "{made:?}");
    let shown = repo.git(&["show", "--format=%an <%ae>%n%s", "--name-status", &made.branch]);
    assert_eq!(shown, "dogwatch <dogwatch@localhost>\nwork\n\nD\ta\nA\tnew\nA\ttool.sh");
    assert!(repo.git(&["ls-tree", &made.branch, "tool.sh"]).starts_with("100755"));
    assert_eq!(repo.git_at(&path, &["status", "--porcelain"]), "?? secret");
    let again = repo.commit("node");
    assert_eq!((again.files, again.commit), (0, made.commit));
}

#[test]
fn work_on_another_branch_is_found_on_the_branch_of_the_node() {
    let repo = Repo::new();
    let (path, _) = repo.make("node");
    fs::write(path.join("b"), "b").expect("written");
    repo.git_at(&path, &["add", "b"]);
    repo.git_at(&path, &["commit", "-q", "-m", "on the branch"]);
    repo.git_at(&path, &["checkout", "-q", "-b", "feature", "main"]);
    let made = repo.work("node", &[("c", "c")]);
    assert_eq!(repo.git(&["show", &format!("{}:c", made.branch)]), "c");
    // The commit that is not on `feature` stays in the history.
    assert!(repo.git(&["log", "--format=%s", &made.branch]).contains("on the branch"));
}

#[test]
fn a_dependent_starts_from_the_merge_of_its_dependencies() {
    let repo = Repo::new();
    repo.make("a");
    repo.work("a", &[("shared", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")]);
    for (node, from, to) in [("b", "1\n", "b\n"), ("c", "9\n", "c\n")] {
        let (path, ready) = repo.make_from(node, &["a"]);
        assert!(ready.conflicts.is_empty());
        let text = fs::read_to_string(path.join("shared")).expect("the work of a");
        repo.work(node, &[("shared", &text.replace(from, to)), (node, "own\n")]);
    }
    let (path, ready) = repo.make_from("d", &["b", "c"]);
    assert_eq!(ready.conflicts, []);
    assert_eq!(fs::read_to_string(path.join("shared")).expect("merged"), "b\n2\n3\n4\n5\n6\n7\n8\nc\n");
    assert!(path.join("b").exists() && path.join("c").exists());
    assert_eq!(repo.git_at(&path, &["status", "--porcelain"]), "");
    assert_eq!(repo.git_at(&path, &["log", "-1", "--format=%an"]), "dogwatch");
}

#[test]
fn conflicts_are_named_and_marked_with_the_branches() {
    let repo = Repo::new();
    for (node, text) in [("x", "from x\n"), ("y", "from y\n")] {
        repo.make(node);
        repo.work(node, &[("a", text)]);
    }
    repo.make("z");
    fs::remove_file(repo.request("z").path.join("a")).expect("removed");
    repo.commit("z");
    let (path, ready) = repo.make_from("all", &["x", "y", "z"]);
    let [first, second] = ready.conflicts.as_slice() else { panic!("{ready:?}") };
    assert_eq!((first.from.as_str(), first.files.as_slice()), ("y", &["a".to_owned()][..]));
    assert!(first.detail.contains("Merge conflict in a"), "{}", first.detail);
    assert!(second.from.as_str() == "z" && second.detail.contains("modify/delete"), "{second:?}");
    let text = fs::read_to_string(path.join("a")).expect("marked");
    let branch = |node: &str| worktree::branch(&run(), &NodeName::new(node));
    assert!(text.contains(&format!("<<<<<<< {}", branch("all"))), "{text}");
    assert!(text.contains(&format!(">>>>>>> {}", branch("y"))), "{text}");
}

#[test]
fn renames_modes_links_and_submodules_survive_a_merge() {
    let repo = Repo::new();
    let sub = repo.dir.path().join("sub");
    fs::create_dir(&sub).expect("a directory");
    repo.git_at(&sub, &["init", "-q"]);
    repo.git_at(&sub, &["commit", "-q", "--allow-empty", "-m", "sub"]);
    let long: String = (0..50).map(|n| format!("line {n}\n")).collect();
    fs::write(repo.top().join("long"), &long).expect("written");
    repo.git(&["add", "long"]);
    let id = repo.git_at(&sub, &["rev-parse", "HEAD"]);
    repo.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{id},module")]);
    repo.git(&["commit", "-q", "-m", "more"]);
    let (moved, _) = repo.make("moved");
    fs::rename(moved.join("long"), moved.join("renamed")).expect("renamed");
    repo.commit("moved");
    let (edited, _) = repo.make("edited");
    fs::set_permissions(edited.join("long"), fs::Permissions::from_mode(0o755)).expect("executable");
    std::os::unix::fs::symlink("a", edited.join("link")).expect("a link");
    repo.work("edited", &[("long", &long.replace("line 7\n", "line seven\n"))]);
    let (path, ready) = repo.make_from("both", &["moved", "edited"]);
    assert_eq!(ready.conflicts, []);
    assert!(fs::read_to_string(path.join("renamed")).expect("followed").contains("line seven"));
    assert!(!path.join("long").exists());
    let mode = fs::metadata(path.join("renamed")).expect("there").permissions().mode();
    assert_eq!(mode & 0o111, 0o111);
    assert_eq!(fs::read_link(path.join("link")).expect("a link"), Path::new("a"));
    assert!(repo.git(&["ls-tree", &ready.branch, "module"]).contains(&format!("160000 commit {id}")));
}

#[test]
fn worktrees_that_are_made_at_once_are_made_one_after_the_other() {
    let repo = Repo::new();
    let names: Vec<String> = (0..8).map(|n| format!("n{n}")).collect();
    std::thread::scope(|scope| {
        for name in &names {
            scope.spawn(|| repo.make(name));
        }
    });
    assert_eq!(repo.git(&["worktree", "list"]).lines().count(), 1 + names.len());
}
