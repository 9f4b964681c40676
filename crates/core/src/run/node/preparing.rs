//! Preparation of a node's first iteration, in order: its own worktree, the setup of a new one, the hashes of its pinned
//! files, and a snapshot of the work tree. Also the prompt context, which describes earlier results.

use super::super::cx::Cx;
use super::super::job_tree::JobTree;
use super::super::merging;
use super::checking::shell_code;
use super::{Hashed, Node, Phase, Turn, clear_job_timers};
use crate::record::event::{Cause, Event, Pin, SetupFinished};
use crate::run::decision::{Decision, Diagnosis, PromptContext};
use crate::run::job::{Job, JobKind, JobReport, OutputTail, Worktree};
use crate::settings::{AttemptPolicy, CheckPolicy};
use crate::text::one_line;

/// The reason of a node that could not start, if no other word is more specific.
const CANNOT_BEGIN: &str = "cannot_begin";
/// The most of a command and of its last line that the reason shows, in bytes.
const MAX_LINE_SHOWN: usize = 120;

impl Node {
    /// Returns whether the directory for the node's sessions exists.
    pub(in crate::run) fn has_place(&self, cx: &Cx) -> bool {
        let (settings, work) = (cx.settings(self.ix), &cx.view.node(self.ix).work);
        !settings.worktree || (work.worktree_found && work.set_up >= settings.setup.len())
    }

    /// Starts the next missing step of the preparation. Steps that the record already contains are skipped.
    pub(in crate::run) fn prepare(&mut self, cx: &mut Cx, cause: Cause) -> Turn {
        self.prepares = cause;
        if let Some(conflict) = merging::refused(cx, self.ix) {
            return Turn::CannotBegin("merge_conflict", conflict);
        }
        merging::require_resolution(cx, self.ix);
        let (settings, view) = (cx.settings(self.ix), cx.view.node(self.ix));
        if self.ending.is_some() {
            return self.ended_unprepared();
        } else if settings.worktree && !view.work.worktree_found {
            self.arrange(cx, JobKind::Worktree);
        } else if !self.has_place(cx) {
            self.arrange(cx, JobKind::Setup(view.work.set_up));
        } else if settings.checks.any() && view.attempts.pins.is_none() {
            self.phase = Phase::Pinning(Hashed::First);
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

    fn arrange(&mut self, cx: &mut Cx, kind: JobKind) {
        let job = Job { node: self.ix, iteration: self.iteration, kind };
        self.phase = Phase::Arranging(JobTree::start(cx, job));
    }

    /// Handles the end of a job that creates the worktree or sets it up.
    pub(super) fn arranged(&mut self, cx: &mut Cx, report: JobReport) -> Turn {
        let Phase::Arranging(tree) = std::mem::replace(&mut self.phase, Phase::Resting) else {
            return Turn::Stay;
        };
        clear_job_timers(cx, self.ix);
        if let JobKind::Setup(index) = tree.job.kind {
            return self.set_up(cx, index, &tree, report.tail);
        }
        let unfinished = || Worktree::Failed { why: format!("ended after {}", tree.lasted(cx)) };
        match report.worktree.unwrap_or_else(unfinished) {
            Worktree::Ready(arranged) => {
                merging::record(cx, self.ix, arranged);
                self.prepare(cx, self.prepares)
            }
            Worktree::Failed { .. } if self.ending.is_some() => self.ended_unprepared(),
            Worktree::Failed { why } => Turn::CannotBegin(CANNOT_BEGIN, format!("no worktree: {why}")),
        }
    }

    /// Records the result of a setup command. In a worktree that is not set up, no agent can work.
    fn set_up(&mut self, cx: &mut Cx, index: usize, tree: &JobTree, tail: OutputTail) -> Turn {
        if self.ending.is_some() {
            return self.ended_unprepared();
        }
        let (rc, timed_out) = shell_code(tree);
        let cmd = cx.settings(self.ix).setup.get(index).cloned().unwrap_or_default();
        let failed = rc != 0;
        let last = tail.text.lines().rev().map(str::trim).find(|line| !line.is_empty());
        let last = last.map_or_else(String::new, |line| format!(": {}", one_line(line, MAX_LINE_SHOWN)));
        let how = if timed_out { "timed out".to_owned() } else { format!("exit code {rc}") };
        let why = format!("setup failed: `{}` ({how}){last}", one_line(&cmd, MAX_LINE_SHOWN));
        cx.record(Event::SetupFinished(SetupFinished {
            node: cx.name(self.ix),
            cmd,
            rc,
            duration_s: tree.lasted(cx),
            truncated: failed && tail.truncated,
            tail: failed.then_some(tail.text),
            timed_out,
        }));
        if failed { Turn::CannotBegin("setup_failed", why) } else { self.prepare(cx, self.prepares) }
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
            Err(why) => Turn::CannotBegin(CANNOT_BEGIN, format!("the checks cannot be pinned: {why}")),
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
            conflicts: merging::unresolved(cx, self.ix),
            diagnosis,
        }
    }
}
