//! The last step of a finished node with its own worktree: what its agent left uncommitted goes onto its branch, so that
//! the nodes that depend on it, and the user, find all its work there.

use super::super::cx::Cx;
use super::super::job_tree::JobTree;
use super::super::over::{End, NodeEnd};
use super::{Node, Phase, Turn, clear_job_timers};
use crate::record::event::{Event, Outcome};
use crate::run::job::{Commit, Job, JobKind, Made};

impl Node {
    /// Commits the node's work. The node ends with `over` afterward.
    pub(in crate::run) fn commit(&mut self, cx: &mut Cx, over: NodeEnd) {
        self.ending = None;
        let job = Job { node: self.ix, iteration: self.iteration, kind: JobKind::Commit };
        self.phase = Phase::Committing(JobTree::start(cx, job), Box::new(over));
    }

    /// Records the result of the commit and ends the node. If the run is ending and the commit was killed, the node does
    /// not end: a resume commits its work again.
    pub(super) fn committed(&mut self, cx: &mut Cx, commit: Option<Commit>) -> Turn {
        let Phase::Committing(tree, over) = std::mem::replace(&mut self.phase, Phase::Resting) else {
            return Turn::Stay;
        };
        clear_job_timers(cx, self.ix);
        let unfinished = || Commit::Failed { why: format!("ended after {}", tree.lasted(cx)) };
        match commit.unwrap_or_else(unfinished) {
            Commit::Made(Made { branch, commit, files, skipped }) => {
                cx.record(Event::WorkCommitted { node: cx.name(self.ix), branch, commit, files, skipped });
                Turn::NodeOver(over)
            }
            Commit::Failed { .. } if self.ending.is_some() => Turn::Stay,
            Commit::Failed { why } => {
                let why = format!("the work cannot be committed to its branch: {why}");
                cx.trouble("commit", format!("{}: {why}", cx.name(self.ix)));
                let end = End::new(Outcome::Catastrophic, 1, why);
                Turn::NodeOver(Box::new(NodeEnd::failed("commit_failed", end)))
            }
        }
    }
}
