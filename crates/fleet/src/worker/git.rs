//! Git for a worker: a bare cache for each repository, a checkout for each job, and pushes of results.

use super::command::{self, Cancel, CommandError};
use crate::names::JobId;
use crate::record::Job;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long one git command may take.
pub const MAX_GIT: Duration = Duration::from_secs(600);

/// The repositories that this worker has copies of.
#[derive(Clone)]
pub struct Repositories {
    dir: PathBuf,
    locks: Arc<Mutex<BTreeMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>>,
}

/// The checkout of a job.
#[derive(Clone, Debug)]
pub struct Checkout {
    cache: PathBuf,
    /// The work tree.
    pub tree: PathBuf,
    repo: String,
}

impl Repositories {
    /// Keeps caches and checkouts below this directory.
    pub fn at(dir: &Path) -> Repositories {
        Repositories { dir: dir.to_owned(), locks: Arc::default() }
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
        let cache = self.dir.join("cache").join(format!("{name}-{:016x}.git", fnv(&job.repo)));
        let place = self.dir.join("jobs").join(id.to_string()).join("tree");
        let checkout = Checkout { cache: cache.clone(), tree: place.clone(), repo: job.repo.clone() };
        let lock = self.lock_of(&cache);
        let _held = lock.lock().await;
        if !cache.join("HEAD").exists() {
            let made = std::fs::create_dir_all(&cache).map_err(|error| CommandError::Io(error.to_string()));
            made?;
            checkout.git_in(&cache, &["init", "--quiet", "--bare", "."], cancel).await?;
        }
        self.clear(&checkout, cancel).await?;
        let text = place.display().to_string();
        let add = ["worktree", "add", "--quiet", "--force", "--detach", &text];
        // Most jobs start from a commit that the cache has: one command is enough then.
        if tree.is_none()
            && checkout.git_in(&cache, &[&add[..], &[&job.commit]].concat(), cancel).await.is_ok()
        {
            return Ok(checkout);
        }
        for commit in [Some(job.commit.as_str()), tree].into_iter().flatten() {
            checkout.need(id, commit, cancel).await?;
        }
        let start = tree.unwrap_or(&job.commit);
        let head = match tree {
            Some(tree) => {
                checkout.git_in(&cache, &["rev-parse", "--verify", &format!("{tree}^1")], cancel).await?
            }
            None => job.commit.clone(),
        };
        checkout.git_in(&cache, &[&add[..], &[head.trim()]].concat(), cancel).await?;
        if tree.is_some() {
            checkout.git(&["read-tree", "--reset", "-u", start], cancel).await?;
            checkout.git(&["read-tree", head.trim()], cancel).await?;
        }
        Ok(checkout)
    }

    /// Removes leftovers of an earlier claim.
    async fn clear(&self, checkout: &Checkout, cancel: &Cancel) -> Result<(), CommandError> {
        let io = |error: std::io::Error| CommandError::Io(error.to_string());
        if let Some(parent) = checkout.tree.parent() {
            std::fs::create_dir_all(parent).map_err(io)?;
        }
        if !checkout.tree.exists() {
            return Ok(());
        }
        std::fs::remove_dir_all(&checkout.tree).map_err(io)?;
        checkout.git_in(&checkout.cache, &["worktree", "prune"], cancel).await.map(drop)
    }

    /// Removes the checkout of a job. The next claim removes leftovers.
    pub async fn remove(&self, checkout: &Checkout) {
        let lock = self.lock_of(&checkout.cache);
        let _held = lock.lock().await;
        let _ = std::fs::remove_dir_all(&checkout.tree);
        if let Some(parent) = checkout.tree.parent() {
            let _ = std::fs::remove_dir(parent);
        }
        let _ = checkout.git_in(&checkout.cache, &["worktree", "prune"], &Cancel::never()).await;
    }
}

impl Checkout {
    async fn git(&self, args: &[&str], cancel: &Cancel) -> Result<String, CommandError> {
        self.git_in(&self.tree, args, cancel).await
    }

    async fn git_in(&self, dir: &Path, args: &[&str], cancel: &Cancel) -> Result<String, CommandError> {
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
        git.args(["-c", "commit.gpgSign=false", "-c", "core.fsmonitor=false"]);
        git.args(args).current_dir(dir).env("GIT_TERMINAL_PROMPT", "0").env_remove("GIT_DIR");
        git.env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE");
        for who in ["AUTHOR", "COMMITTER"] {
            git.env(format!("GIT_{who}_NAME"), "dogwatch")
                .env(format!("GIT_{who}_EMAIL"), "dogwatch@localhost");
        }
        for (name, value) in env {
            git.env(name, value);
        }
        command::run(git, MAX_GIT, cancel).await
    }

    /// Fetches a commit unless the cache has it.
    async fn need(&self, id: &JobId, commit: &str, cancel: &Cancel) -> Result<(), CommandError> {
        let have = format!("{commit}^{{commit}}");
        if self.git_in(&self.cache, &["cat-file", "-e", &have], cancel).await.is_ok() {
            return Ok(());
        }
        let saved = format!("+refs/dogwatch/{0}/*:refs/fetched/{0}/*", id.job);
        for spec in ["+refs/heads/*:refs/origin/*", &saved, commit] {
            let fetch = ["fetch", "--quiet", "--no-tags", "--", &self.repo, spec];
            self.git_in(&self.cache, &fetch, cancel).await?;
            if self.git_in(&self.cache, &["cat-file", "-e", &have], cancel).await.is_ok() {
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
        let index = self.tree.with_file_name("index");
        let _ = std::fs::remove_file(&index);
        let env = [("GIT_INDEX_FILE", index.display().to_string())];
        self.git_with(&self.tree, &["read-tree", "HEAD"], &env, cancel).await?;
        self.git_with(&self.tree, &["add", "--all", "--", "."], &env, cancel).await?;
        let tree = self.git_with(&self.tree, &["write-tree"], &env, cancel).await?;
        let _ = std::fs::remove_file(&index);
        let before = self.git(&["rev-parse", "HEAD^{tree}"], cancel).await?;
        if tree.trim() == before.trim() {
            return self.commit_of("HEAD", cancel).await;
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

/// Returns a short hash of a text.
fn fnv(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
