//! The result of a claimed job: its work tree, its branch, or a bundle.

use super::command::{Cancel, CommandError};
use super::copying::Copying;
use super::nodes;
use super::running::Task;
use crate::blob;
use crate::record::JobResult;
use dogwatch_core::lease::Input;

impl Task {
    /// Saves the work tree for the next owner.
    pub(super) async fn save(&self, copying: &mut Copying) {
        let message = format!("dogwatch: work tree of {} (claim {})", self.id, self.epoch);
        match copying.checkout.capture_tree(&message, &Cancel::never()).await {
            Ok(commit) => {
                copying.push_tree(&commit).await;
                // A piece without lines carries the name.
                copying.fenced = copying.copier.copy(&[]).await.is_err();
            }
            Err(error) => self.worker.say(&format!("{}: cannot save the work tree: {error}", self.id)),
        }
    }

    /// Pushes the result of a run that is over.
    pub(super) async fn finish(&self, copying: &mut Copying, code: i32, ending: &Cancel) -> Input {
        let cancel = Cancel::never();
        let outcome =
            copying.ended.as_ref().map_or_else(|| "failed".to_owned(), |(outcome, _)| outcome.clone());
        let mut result = JobResult { outcome, exit_code: Some(code), ..JobResult::default() };
        let message = format!("dogwatch: result of {}", self.id);
        match copying.checkout.capture(&message, &cancel).await {
            Err(error) => result.detail = Some(error.to_string()),
            Ok(commit) => {
                let commit = match self.merge(copying, commit, ending).await {
                    Ok(merged) => merged,
                    Err(CommandError::Canceled) => return Input::Stopped,
                    Err(error) => {
                        result.detail = Some(format!("the nodes could not be merged: {error}"));
                        self.job.commit.clone()
                    }
                };
                let branch = match self.job.node {
                    Some(_) => self.id.result_ref(self.epoch),
                    None => self.id.branch(self.epoch),
                };
                match copying.checkout.push(&commit, &branch, &cancel).await {
                    Ok(()) => result.branch = Some(branch),
                    Err(error) => {
                        let why = self.bundle(copying, &commit, &mut result).await;
                        result.detail = Some(format!("the push was refused: {error}{why}"));
                    }
                }
                result.commit = Some(commit);
            }
        }
        if self.job.spread {
            self.tidy(copying).await;
        }
        self.worker.say(&format!("{}: ended {}", self.id, result.outcome));
        Input::Finished(result)
    }

    /// Merges the work of nodes that have worktrees of their own into the result.
    async fn merge(
        &self,
        copying: &Copying,
        commit: String,
        cancel: &Cancel,
    ) -> Result<String, CommandError> {
        let (branches, checkout) = (&copying.branches, &copying.checkout);
        let Some(run) = copying.run.as_ref().filter(|_| !branches.is_empty()) else { return Ok(commit) };
        // The merge starts from what the other nodes did in the work tree.
        checkout.git(&["update-ref", "--no-deref", "HEAD", &commit], cancel).await?;
        let (program, claim) = (&self.worker.settings.program, (&self.id, self.epoch));
        let merged = branches.merge(program, checkout, claim, run, cancel).await;
        branches.remove(checkout, claim, run).await;
        merged
    }

    /// Removes what the nodes of a graph pushed on their way. The branches of the graph have all of it.
    async fn tidy(&self, copying: &Copying) {
        let own = |job: &str| nodes::is_node_of(job, &self.id.job, copying.branches.nodes());
        if let Err(error) = copying.checkout.remove_refs(own).await {
            self.worker.say(&format!("{}: cannot remove the refs of its nodes: {error}", self.id));
        }
    }

    /// Stores the result as a bundle. Returns the reason if that fails.
    async fn bundle(&self, copying: &Copying, commit: &str, result: &mut JobResult) -> String {
        if commit == self.job.commit {
            return "; there is nothing to save".to_owned();
        }
        let worker = self.worker.name();
        let name = format!("{worker}/{}/{}/result.bundle", self.id, self.epoch);
        let bytes = match copying.checkout.bundle(commit, &self.job.commit, &Cancel::never()).await {
            Ok(bytes) => bytes,
            Err(error) => return format!("; {error}"),
        };
        match blob::put(&self.worker.client, worker, &name, &bytes).await {
            Ok(()) => {
                result.bundle = Some(name);
                String::new()
            }
            Err(error) => format!("; cannot store a bundle: {error}"),
        }
    }
}
