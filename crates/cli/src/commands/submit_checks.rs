//! Refuses a job of this repository that no worker could run: what is missing is seen before it is queued.

use super::submit::git;
use crate::error::{CliError, print_diagnostics, print_line};
use crate::loading::LoopFile;
use crate::spread;
use dogwatch_config::Flags;
use std::path::Path;

/// The most branches of the repository that are compared with the commit.
const MAX_HEADS: usize = 10_000;

/// The job, as far as it is checked.
pub struct Wanted<'a> {
    /// The address of the repository.
    pub repo: &'a str,
    /// The commit to run.
    pub commit: &'a str,
    /// The loop or graph, relative to the top of the repository.
    pub path: &'a str,
    /// Overridden keys.
    pub set: &'a [String],
    /// The arguments of the loop.
    pub args: &'a [String],
    /// Whether the nodes of the graph are jobs of their own.
    pub spread: bool,
}

impl Wanted<'_> {
    /// Refuses the job if a worker could not run it, and warns of what it does not contain. Returns the variables that `redact` of
    /// the loop names.
    pub fn check(&self) -> Result<Vec<String>, CliError> {
        let top = git(&["rev-parse", "--show-toplevel"]).map_err(CliError::usage)?;
        let top = Path::new(&top);
        self.is_committed(top)?;
        self.is_pushed()?;
        let path = self.path.trim_end_matches('/');
        let unchanged = |what: &[&str]| {
            git(&[&["-C", &top.to_string_lossy(), "diff", "--quiet", self.commit, "--"], what].concat())
                .is_ok()
        };
        if !unchanged(&[]) {
            print_line(&format!(
                "warning: this work tree differs from commit {}; only what is committed is part of the job",
                short(self.commit)
            ));
        }
        // The files here are those of the commit, so they can be read here.
        if unchanged(&[path, "dogwatch.toml"]) {
            return self.loads(&top.join(path), top);
        }
        Ok(Vec::new())
    }

    /// Refuses a loop that is not in the commit.
    fn is_committed(&self, top: &Path) -> Result<(), CliError> {
        let path = self.path.trim_end_matches('/').trim_start_matches("./");
        let object = match path {
            "" | "." => format!("{}^{{tree}}", self.commit),
            path => format!("{}:{path}", self.commit),
        };
        let short = short(self.commit);
        let Ok(kind) = git(&["cat-file", "-t", &object]) else {
            return Err(match top.join(path).exists() {
                true => CliError::with_help(
                    format!("{path} is not in commit {short}, which the job would run"),
                    "commit and push it first, or pass --commit REV",
                ),
                false => CliError::with_help(
                    format!("{path} does not exist in this repository"),
                    "pass the path of the loop relative to the top of the repository",
                ),
            });
        };
        if kind != "tree" {
            return Ok(());
        }
        let files = git(&["ls-tree", "--name-only", &object]).map_err(CliError::usage)?;
        let is_loop = |name: &str| name == "RALPH.md" || name.starts_with("graph.");
        match files.lines().any(is_loop) {
            true => Ok(()),
            false => Err(CliError::with_help(
                format!("{path} has neither RALPH.md nor a graph file in commit {short}"),
                "commit and push the loop file first, or pass the path of the loop",
            )),
        }
    }

    /// Refuses a commit that the repository does not have. Warns if git cannot say so.
    fn is_pushed(&self) -> Result<(), CliError> {
        let heads = match git(&["ls-remote", "--heads", "--", self.repo]) {
            Ok(heads) => heads,
            Err(why) => {
                print_line(&format!("warning: cannot ask {} whether it has the commit: {why}", self.repo));
                return Ok(());
            }
        };
        let mut heads: Vec<&str> = heads.lines().filter_map(|line| line.split('\t').next()).collect();
        if heads.contains(&self.commit) {
            return Ok(());
        }
        let compares_all = heads.len() <= MAX_HEADS;
        heads.truncate(MAX_HEADS);
        // Commits that are not behind a head that is known here: none if the repository has this one.
        let missing = ["rev-list", "--ignore-missing", "--max-count=1", self.commit, "--not"];
        if git(&[&missing, &heads[..]].concat()).is_ok_and(|missing| missing.is_empty()) {
            return Ok(());
        }
        let known = git(&[&["rev-list", "--ignore-missing", "--no-walk", "--count"], &heads[..]].concat());
        heads.sort_unstable();
        heads.dedup();
        if compares_all && known.is_ok_and(|known| known == heads.len().to_string()) {
            return Err(CliError::with_help(
                format!("{} does not have commit {}", self.repo, short(self.commit)),
                "push it first: workers fetch it from there",
            ));
        }
        print_line(&format!(
            "warning: {} may not have commit {}; push it before a worker takes the job",
            self.repo,
            short(self.commit)
        ));
        Ok(())
    }

    /// Refuses a loop that `dogwatch check` refuses, or a graph whose nodes cannot be jobs. Returns the variables that `redact` names.
    fn loads(&self, path: &Path, top: &Path) -> Result<Vec<String>, CliError> {
        let mut file = LoopFile::find(path)?;
        top.clone_into(&mut file.work_dir);
        let flags = Flags { set: self.set.to_vec(), ..Flags::default() };
        let mut loaded = file.load(&flags, self.args, false)?;
        print_diagnostics(&loaded.warnings);
        if self.spread {
            spread::hold(&mut loaded.plan)?;
        }
        Ok(loaded.plan.nodes.iter().flat_map(|node| node.settings.redact.clone()).collect())
    }
}

fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}
