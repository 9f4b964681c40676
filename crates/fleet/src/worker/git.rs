//! Git for a worker: a bare cache for each repository, a checkout for each job, and pushes of results.

use super::command::{self, Cancel, CommandError};
use crate::names::{JobId, short_hash};
use crate::record::Job;
use dogwatch_host::git::leave_tree;
use dogwatch_host::git::snapshot::Pristine;
use dogwatch_host::store::fleet_job;
use dogwatch_host::store::home::{STATE_DIR, StateDir};
use dogwatch_host::store::registry::Registry;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long one git command may take.
pub const MAX_GIT: Duration = Duration::from_secs(600);

/// The file next to a checkout that holds what its run prints to stderr.
pub const STDERR: &str = "stderr";
/// The file next to a checkout that holds the prompt of a node.
pub const PROMPT: &str = "prompt";
/// The directory of the checkouts, each in one of its own with the name of its job.
const JOBS: &str = "jobs";
/// How many trees of commits a worker remembers.
const MAX_TREES: usize = 256;
/// How many refs one push removes.
const MAX_REMOVED: usize = 256;

/// The repositories that this worker has copies of.
#[derive(Clone)]
pub struct Repositories {
    dir: PathBuf,
    locks: Arc<Mutex<BTreeMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>>,
    /// The trees of commits, which never change. Many jobs start from the same commit.
    trees: Arc<Mutex<BTreeMap<String, Pristine>>>,
}

/// The checkout of a job.
#[derive(Clone, Debug)]
pub struct Checkout {
    pub(super) cache: PathBuf,
    /// What the cache knows about the work tree.
    link: PathBuf,
    /// The work tree.
    pub tree: PathBuf,
    pub(super) repo: String,
    /// The commit and its tree, if the work tree has exactly its files. Before the checkout: the same, if it is remembered.
    pub pristine: Option<Pristine>,
}

impl Repositories {
    /// Keeps caches and checkouts below this directory.
    pub fn at(dir: &Path) -> Repositories {
        Repositories { dir: dir.to_owned(), locks: Arc::default(), trees: Arc::default() }
    }

    fn trees(&self) -> MutexGuard<'_, BTreeMap<String, Pristine>> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the tree of a commit.
    fn remember(&self, pristine: &Pristine) {
        let mut trees = self.trees();
        if trees.len() >= MAX_TREES {
            trees.clear();
        }
        trees.insert(pristine.commit.clone(), pristine.clone());
    }

    fn lock_of(&self, cache: &Path) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.entry(cache.to_owned()).or_default().clone()
    }

    /// Makes a fresh checkout of the job at a commit. `tree` is the commit that holds the work tree of an earlier claim;
    /// its first parent is the HEAD of that time.
    pub async fn check_out(
        &self,
        id: &JobId,
        job: &Job,
        tree: Option<&str>,
        cancel: &Cancel,
    ) -> Result<Checkout, CommandError> {
        let name: String =
            job.repo.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        // The hash keeps two addresses apart that differ only in other characters.
        let cache = self.dir.join("cache").join(format!("{name}-{:016x}.git", short_hash(&job.repo)));
        let mut checkout = Checkout {
            link: cache.join("worktrees").join(id.to_string()),
            tree: self.dir.join(JOBS).join(id.to_string()).join("tree"),
            repo: job.repo.clone(),
            pristine: self.trees().get(&job.commit).cloned(),
            cache: cache.clone(),
        };
        let lock = self.lock_of(&cache);
        let _held = lock.lock().await;
        match checkout.fill(id, &job.commit, tree, cancel).await {
            Ok(()) => {
                if let Some(pristine) = &checkout.pristine {
                    self.remember(pristine);
                }
                Ok(checkout)
            }
            Err(error) => {
                self.remove(&checkout);
                Err(error)
            }
        }
    }

    /// Returns the jobs that have a checkout.
    pub fn checked_out(&self) -> Vec<JobId> {
        let dirs = std::fs::read_dir(self.dir.join(JOBS)).into_iter().flatten().flatten();
        dirs.filter_map(|dir| dir.file_name().to_str()?.parse().ok()).collect()
    }

    /// Removes everything of a job, whatever repository it is of.
    pub fn remove_job(&self, id: &JobId) {
        let caches = std::fs::read_dir(self.dir.join("cache")).into_iter().flatten().flatten();
        let links = caches.map(|cache| cache.path().join("worktrees").join(id.to_string()));
        for dir in links.chain([self.dir.join(JOBS).join(id.to_string())]) {
            let _ = std::fs::remove_dir_all(dir);
        }
    }

    /// Removes the checkout of a job. The next claim removes leftovers.
    pub fn remove(&self, checkout: &Checkout) {
        let _ = checkout.unlink();
        for file in [STDERR, PROMPT, fleet_job::MARK] {
            let _ = std::fs::remove_file(checkout.tree.with_file_name(file));
        }
        if let Some(parent) = checkout.tree.parent() {
            let _ = std::fs::remove_dir(parent);
        }
    }
}

/// Returns the error of an operation on files.
fn io_error(error: io::Error) -> CommandError {
    CommandError::Io(error.to_string())
}

impl Checkout {
    /// Makes the work tree an empty worktree of the cache whose HEAD is this commit. `git worktree add` does the same with two
    /// processes more.
    fn link(&self, head: &str) -> io::Result<()> {
        std::fs::create_dir_all(&self.link)?;
        std::fs::create_dir_all(&self.tree)?;
        std::fs::write(self.link.join("HEAD"), format!("{head}\n"))?;
        std::fs::write(self.link.join("commondir"), "../..\n")?;
        std::fs::write(self.link.join("gitdir"), format!("{}/.git\n", self.tree.display()))?;
        std::fs::write(self.tree.join(".git"), format!("gitdir: {}\n", self.link.display()))
    }

    /// Removes the work tree and what the cache knows about it.
    fn unlink(&self) -> io::Result<()> {
        let runs = StateDir::at(self.tree.join(STATE_DIR)).runs();
        let registry = Registry::of_user();
        for dir in std::fs::read_dir(runs).into_iter().flatten().flatten() {
            let run = dir.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(run) = run.filter(|run| registry.knows(run, &dir.path())) {
                registry.forget(&run);
            }
        }
        for dir in [&self.tree, &self.link] {
            match std::fs::remove_dir_all(dir) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    async fn fill(
        &mut self,
        id: &JobId,
        commit: &str,
        tree: Option<&str>,
        cancel: &Cancel,
    ) -> Result<(), CommandError> {
        let is_new = !self.cache.join("HEAD").exists();
        if is_new {
            std::fs::create_dir_all(&self.cache).map_err(io_error)?;
            self.git_in(&self.cache, &["init", "--quiet", "--bare", "."], cancel).await?;
        }
        // An earlier claim may have left something.
        self.unlink().map_err(io_error)?;
        if is_new {
            self.fetch(id, commit, cancel).await?;
        }
        // Most jobs start from a commit that the cache has: one round of git is enough then.
        if tree.is_none() && self.check_out_known(commit, cancel).await {
            return Ok(());
        }
        for commit in [Some(commit), tree].into_iter().flatten() {
            if !self.has(commit, cancel).await {
                self.fetch(id, commit, cancel).await?;
            }
        }
        self.pristine = None;
        let start = tree.unwrap_or(commit);
        let head = tree.map_or_else(|| format!("{start}^{{commit}}"), |tree| format!("{tree}^1"));
        let head = self.git_in(&self.cache, &["rev-parse", "--verify", &head], cancel).await?;
        self.link(head.trim()).map_err(io_error)?;
        self.git(&["read-tree", "--reset", "-u", start], cancel).await?;
        if tree.is_some() {
            self.git(&["read-tree", head.trim()], cancel).await?;
        }
        Ok(())
    }

    /// Checks out a commit that the cache has. Returns false, and leaves nothing, if it has not.
    async fn check_out_known(&mut self, commit: &str, cancel: &Cancel) -> bool {
        let is_id = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_id || self.link(commit).is_err() {
            return false;
        }
        let fill = ["read-tree", "--reset", "-u", commit];
        let (filled, pristine) = tokio::join!(self.git(&fill, cancel), self.tree_of(commit, cancel));
        if filled.is_err() {
            // A worktree without its commit would make git refuse to fetch.
            let _ = self.unlink();
            return false;
        }
        self.pristine = pristine;
        true
    }

    /// Returns a commit and its tree.
    async fn tree_of(&self, commit: &str, cancel: &Cancel) -> Option<Pristine> {
        if let Some(known) = self.pristine.clone().filter(|known| known.commit == commit) {
            return Some(known);
        }
        let tree = format!("{commit}^{{tree}}");
        let find = ["rev-parse", "--verify", "--quiet", &tree];
        let tree = self.git_in(&self.cache, &find, cancel).await.ok()?;
        format!("{commit}:{}", tree.trim()).parse().ok()
    }

    pub(super) async fn git(&self, args: &[&str], cancel: &Cancel) -> Result<String, CommandError> {
        self.git_in(&self.tree, args, cancel).await
    }

    pub(super) async fn git_in(
        &self,
        dir: &Path,
        args: &[&str],
        cancel: &Cancel,
    ) -> Result<String, CommandError> {
        self.git_with(dir, args, &[], cancel).await
    }

    async fn git_with(
        &self,
        dir: &Path,
        args: &[&str],
        env: &[(&str, String)],
        cancel: &Cancel,
    ) -> Result<String, CommandError> {
        let mut git = std::process::Command::new("git");
        // Hooks and helpers of the machine must neither run for a job nor ask for anything.
        git.args(["-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "-c", "gc.auto=0"]);
        git.args([
            "-c",
            "commit.gpgSign=false",
            "-c",
            "core.fsmonitor=false",
            "-c",
            "maintenance.auto=false",
        ]);
        git.args(args).current_dir(dir).env("GIT_TERMINAL_PROMPT", "0");
        leave_tree(&mut git);
        for who in ["AUTHOR", "COMMITTER"] {
            git.env(format!("GIT_{who}_NAME"), "dogwatch")
                .env(format!("GIT_{who}_EMAIL"), "dogwatch@localhost");
        }
        for (name, value) in env {
            git.env(name, value);
        }
        command::run(git, MAX_GIT, cancel).await
    }

    /// Returns whether the cache has a commit.
    async fn has(&self, commit: &str, cancel: &Cancel) -> bool {
        let commit = format!("{commit}^{{commit}}");
        self.git_in(&self.cache, &["cat-file", "-e", &commit], cancel).await.is_ok()
    }

    /// Fetches a commit.
    async fn fetch(&self, id: &JobId, commit: &str, cancel: &Cancel) -> Result<(), CommandError> {
        let saved = format!("+refs/dogwatch/{0}/*:refs/fetched/{0}/*", id.job);
        for spec in ["+refs/heads/*:refs/origin/*", &saved, commit] {
            let fetch = ["fetch", "--quiet", "--no-tags", "--", &self.repo, spec];
            self.git_in(&self.cache, &fetch, cancel).await?;
            if self.has(commit, cancel).await {
                break;
            }
        }
        Ok(())
    }

    /// Returns the commit of a ref or an expression.
    pub async fn commit_of(&self, what: &str, cancel: &Cancel) -> Result<String, CommandError> {
        let found = self.git(&["rev-parse", "--verify", &format!("{what}^{{commit}}")], cancel).await?;
        Ok(found.trim().to_owned())
    }

    /// Returns a commit with everything in the work tree: HEAD itself if nothing differs from it.
    pub async fn capture(&self, message: &str, cancel: &Cancel) -> Result<String, CommandError> {
        // Nodes of one graph have their worktrees next to each other. No name of a worktree contains a `~`.
        let mut index = self.tree.clone().into_os_string();
        index.push("~index");
        let index = PathBuf::from(index);
        let _ = std::fs::remove_file(&index);
        let env = [("GIT_INDEX_FILE", index.display().to_string())];
        let (find, read) = (["rev-parse", "HEAD", "HEAD^{tree}"], ["read-tree", "HEAD"]);
        let (found, read) =
            tokio::join!(self.git(&find, cancel), self.git_with(&self.tree, &read, &env, cancel));
        let (found, _) = (found?, read?);
        self.git_with(&self.tree, &["add", "--all", "--", "."], &env, cancel).await?;
        let tree = self.git_with(&self.tree, &["write-tree"], &env, cancel).await?;
        let _ = std::fs::remove_file(&index);
        if let Some((head, before)) = found.split_once('\n')
            && tree.trim() == before.trim()
        {
            return Ok(head.trim().to_owned());
        }
        let made = self.git(&["commit-tree", tree.trim(), "-p", "HEAD", "-m", message], cancel).await?;
        Ok(made.trim().to_owned())
    }

    /// Returns a commit of the work tree whose first parent is HEAD, even if nothing differs.
    pub async fn capture_tree(&self, message: &str, cancel: &Cancel) -> Result<String, CommandError> {
        let commit = self.capture(message, cancel).await?;
        if commit != self.commit_of("HEAD", cancel).await? {
            return Ok(commit);
        }
        let made = self.git(&["commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", message], cancel).await?;
        Ok(made.trim().to_owned())
    }

    /// Pushes a commit to a ref of the repository.
    pub async fn push(&self, commit: &str, to: &str, cancel: &Cancel) -> Result<(), CommandError> {
        let spec = format!("+{commit}:{to}");
        let args = ["push", "--quiet", "--no-verify", "--", &self.repo, &spec];
        self.git_in(&self.cache, &args, cancel).await.map(drop)
    }

    /// Returns another work tree of the same repository.
    pub(super) fn beside(&self, tree: PathBuf) -> Checkout {
        Checkout { tree, pristine: None, ..self.clone() }
    }

    /// Removes the refs of these jobs from the repository.
    pub async fn remove_refs(&self, of: impl Fn(&str) -> bool) -> Result<(), CommandError> {
        let cancel = Cancel::never();
        let list = ["ls-remote", "--quiet", "--", &self.repo, "refs/dogwatch/*"];
        let listed = self.git_in(&self.cache, &list, &cancel).await?;
        let names = listed.lines().filter_map(|line| line.split_once('\t').map(|(_, name)| name));
        let job = |name: &str| name.strip_prefix("refs/dogwatch/")?.split('/').next().map(&of);
        let gone: Vec<&str> = names.filter(|name| job(name) == Some(true)).collect();
        for part in gone.chunks(MAX_REMOVED) {
            let push = [&["push", "--quiet", "--no-verify", "--delete", "--", &self.repo], part].concat();
            self.git_in(&self.cache, &push, &cancel).await?;
        }
        Ok(())
    }

    /// Returns a commit and what it needs beyond `base` as a bundle.
    pub async fn bundle(&self, commit: &str, base: &str, cancel: &Cancel) -> Result<Vec<u8>, CommandError> {
        let file = self.tree.with_file_name("bundle");
        let name = "refs/dogwatch/bundle";
        self.git(&["update-ref", name, commit], cancel).await?;
        let (path, without) = (file.display().to_string(), format!("^{base}"));
        let full = ["bundle", "create", "--quiet", &path, name, &without];
        let made = self.git(&full, cancel).await;
        let _ = self.git(&["update-ref", "-d", name], cancel).await;
        made?;
        let bytes = std::fs::read(&file).map_err(|error| CommandError::Io(error.to_string()));
        let _ = std::fs::remove_file(&file);
        bytes
    }
}
