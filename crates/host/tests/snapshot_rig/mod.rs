//! A repository to take snapshots of.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use dogwatch_host::git::snapshot::{self, Limits, Outcome, Request, Taken};
use tempfile::TempDir;

/// The ref of the snapshot.
pub const REF: &str = "refs/dogwatch/20261115-201533-k3f9/loop/1";

/// A repository with a work tree.
pub struct Repo {
    pub dir: TempDir,
}

impl Repo {
    /// Creates a repository without a commit.
    pub fn without_commits() -> Repo {
        let repo = Repo { dir: TempDir::new().expect("a directory") };
        fs::create_dir(repo.top()).expect("a directory");
        repo.git(&["init", "-q", "-b", "main"]);
        repo
    }

    /// Creates a repository with `kept`, `changed` and `gone` committed.
    pub fn new() -> Repo {
        let repo = Repo::without_commits();
        for name in ["kept", "changed", "gone"] {
            repo.write(name, name);
        }
        repo.git(&["add", "-A"]);
        repo.commit("first");
        repo
    }

    pub fn top(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.top().join(name)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("written");
    }

    pub fn try_git_at(&self, dir: &Path, args: &[&str]) -> std::process::Output {
        let ours = std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"GIT_"));
        let mut git = Command::new("git");
        ours.for_each(|(name, _)| {
            git.env_remove(name);
        });
        git.args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"]);
        git.args(args).current_dir(dir).env("GIT_EDITOR", "true").output().expect("git is installed")
    }

    pub fn try_git(&self, args: &[&str]) -> std::process::Output {
        self.try_git_at(&self.top(), args)
    }

    #[track_caller]
    pub fn git(&self, args: &[&str]) -> Vec<u8> {
        let out = self.try_git(args);
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    }

    #[track_caller]
    pub fn text(&self, args: &[&str]) -> String {
        String::from_utf8(self.git(args)).expect("plain output")
    }

    pub fn commit(&self, message: &str) {
        self.git(&["commit", "-q", "-m", message]);
    }

    pub fn request(&self) -> Request {
        Request {
            work_dir: self.top(),
            ref_name: REF.to_owned(),
            scratch: self.dir.path().join("scratch"),
            state_dirs: vec![self.path(".dogwatch")],
            limits: Limits::default(),
            keep: None,
            pristine: None,
        }
    }

    pub fn outcome(&self) -> Outcome {
        let outcome = snapshot::take(&self.request());
        assert!(!self.dir.path().join("scratch").exists(), "the scratch directory is gone");
        outcome
    }

    #[track_caller]
    pub fn take(&self) -> Taken {
        taken(self.outcome())
    }

    /// Returns the paths of the snapshot, in order.
    pub fn paths(&self) -> Vec<String> {
        let listing = self.git(&["ls-tree", "-r", "-z", "--name-only", REF]);
        let names = listing.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    #[track_caller]
    pub fn content(&self, path: &str) -> Vec<u8> {
        self.git(&["cat-file", "blob", &format!("{REF}:{path}")])
    }

    pub fn mode(&self, path: &str) -> String {
        self.text(&["ls-tree", REF, path]).split(' ').next().unwrap_or_default().to_owned()
    }

    /// Returns everything that a user can see of the repository, except for the snapshots.
    pub fn visible(&self) -> Vec<Vec<u8>> {
        let dir = self.path(".git");
        let plain = ["HEAD", "index", "config", "logs/HEAD", "packed-refs", "ORIG_HEAD", "index.lock"];
        let mut seen: Vec<Vec<u8>> =
            plain.iter().map(|name| fs::read(dir.join(name)).unwrap_or_default()).collect();
        let mut names: Vec<PathBuf> =
            fs::read_dir(&dir).expect("readable").flatten().map(|e| e.path()).collect();
        names.sort();
        seen.extend(names.iter().map(|path| path.as_os_str().as_bytes().to_vec()));
        seen.push(
            self.try_git(&["--no-optional-locks", "status", "--porcelain=v2", "--branch", "-z"]).stdout,
        );
        seen.push(self.try_git(&["for-each-ref", "--exclude=refs/dogwatch/"]).stdout);
        seen.push(self.try_git(&["reflog", "--all"]).stdout);
        seen.push(self.try_git(&["stash", "list"]).stdout);
        seen
    }
}

/// Returns the snapshot of an outcome that must be one.
#[track_caller]
pub fn taken(outcome: Outcome) -> Taken {
    let Outcome::Taken(taken) = outcome else { panic!("{outcome:?}") };
    taken
}
