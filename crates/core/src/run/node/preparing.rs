//! Preparation of a node's first iteration, in order: its own worktree, the hashes of its pinned files, and a
//! snapshot of the work tree. Also the prompt context, which describes earlier results.

use super::super::cx::Cx;
use super::super::job_tree::JobTree;
use super::{Node, Phase, Turn, clear_job_timers};
use crate::record::event::{Cause, Event, Pin};
use crate::run::decision::{Decision, Diagnosis, PromptContext};
use crate::run::job::{Job, JobKind, Worktree};
use crate::settings::{AttemptPolicy, CheckPolicy};

impl Node {
    /// Returns whether the directory for the node's sessions exists.
    pub(in crate::run) fn has_place(&self, cx: &Cx) -> bool {
        !cx.settings(self.ix).worktree || cx.view.node(self.ix).work.worktree_found
    }

    /// Starts the next missing step of the preparation. Steps that the record already contains are skipped.
    pub(in crate::run) fn prepare(&mut self, cx: &mut Cx, cause: Cause) -> Turn {
        self.prepares = cause;
        let (settings, view) = (cx.settings(self.ix), cx.view.node(self.ix));
        if self.ending.is_some() {
            return self.ended_unprepared();
        } else if !self.has_place(cx) {
            let job = Job { node: self.ix, iteration: self.iteration, kind: JobKind::Worktree };
            self.phase = Phase::Arranging(JobTree::start(cx, job));
        } else if settings.checks.any() && view.attempts.pins.is_none() {
            self.phase = Phase::Pinning(None);
            let tree = settings.checks.attempts == AttemptPolicy::Progress && !cx.plan.snapshots;
            cx.out.push(Decision::HashPins { node: self.ix, iteration: self.iteration, tree });
        } else if cx.plan.snapshots && !self.first_kept && self.iteration.0 == 0 {
            self.first_kept = true;
            self.keep_first(cx);
        } else {
            self.phase = Phase::Resting;
            return Turn::WaitOver(cause);
        }
        Turn::Stay
    }

    /// Ends the preparation because the run asked for the end before the iteration began. The run decides what
    /// follows.
    fn ended_unprepared(&mut self) -> Turn {
        self.phase = Phase::Resting;
        Turn::WaitOver(self.prepares)
    }

    pub(super) fn arranged(&mut self, cx: &mut Cx, worktree: Option<Worktree>) -> Turn {
        let Phase::Arranging(tree) = std::mem::replace(&mut self.phase, Phase::Resting) else {
            return Turn::Stay;
        };
        clear_job_timers(cx, self.ix);
        let unfinished = || Worktree::Failed { why: format!("ended after {}", tree.lasted(cx)) };
        match worktree.unwrap_or_else(unfinished) {
            Worktree::Ready { path, branch } => {
                cx.record(Event::WorktreeReady { node: cx.name(self.ix), path, branch });
                self.prepare(cx, self.prepares)
            }
            Worktree::Failed { .. } if self.ending.is_some() => self.ended_unprepared(),
            Worktree::Failed { why } => Turn::CannotBegin(format!("no worktree: {why}")),
        }
    }

    /// Records the initial hashes of the pinned files. If a file cannot be read, a later change could not be detected,
    /// so the node does not start.
    pub(super) fn pinned_first(
        &mut self,
        cx: &mut Cx,
        pins: Result<Vec<Pin>, String>,
        tree: Option<String>,
    ) -> Turn {
        match pins {
            Ok(files) => {
                cx.record(Event::ChecksPinned { node: cx.name(self.ix), files, tree });
                self.prepare(cx, self.prepares)
            }
            Err(_) if self.ending.is_some() => self.ended_unprepared(),
            Err(why) => Turn::CannotBegin(format!("the checks cannot be pinned: {why}")),
        }
    }

    /// Returns the earlier results that the prompt includes.
    pub(super) fn prompt_context(&self, cx: &Cx) -> PromptContext {
        let (view, settings) = (cx.view.node(self.ix), cx.settings(self.ix));
        let CheckPolicy { commands, .. } = &settings.checks;
        let diagnosis =
            view.recovery.due.zip(view.recovery.last.as_ref()).map(|(class, stopped)| Diagnosis {
                class,
                iteration: stopped.iteration,
                reason: stopped.reason.to_string(),
                message: stopped.message.clone(),
                evidence: stopped.evidence.clone(),
                tried: view.recovery.tried.iter().rev().skip(1).rev().cloned().collect(),
                attempt: view.recovery.used,
                budget: settings.recovery.budget,
            });
        PromptContext {
            failed: view.attempts.failing().cloned().collect(),
            tampered: view.attempts.tampered.clone(),
            attempt: if commands.is_empty() { self.iteration.0 } else { view.attempts.count + 1 },
            max_attempts: settings.max_iterations,
            diagnosis,
        }
    }
}
