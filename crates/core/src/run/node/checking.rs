//! The checks of an iteration. All checks run in order, each with a timeout; then the result is recorded. The
//! agent's own claims about its work are not considered.

use super::super::cx::Cx;
use super::super::job_tree::JobTree;
use super::{Closing, Hashed, JudgedTree, Node, Phase, Turn, clear_job_timers};
use crate::record::event::{CheckResult, EndedBy, Event, NodeAttempt, Pin};
use crate::run::attempts::UNCHARGED_NOTICE;
use crate::run::decision::Decision;
use crate::run::ending::Ending;
use crate::run::job::{Exit, Job, JobKind, JobReport, OutputTail};
use crate::settings::{AttemptPolicy, Tampered};
use crate::time::dur::Dur;

/// The exit code of a check that could not be started, as in a shell.
const NOT_STARTED: i32 = 127;
/// The exit code of a check that timed out, as in `timeout`.
const TIMED_OUT: i32 = 124;

/// The running check, and the results of the checks before it.
pub(super) struct Checking {
    pub tree: JobTree,
    closing: Box<Closing>,
    results: Vec<CheckResult>,
    /// How often the current check has been run again.
    tries: u32,
    /// The exit code of its first run, if that failed.
    first_rc: Option<i32>,
    /// A changed pinned file was reported before the checks, so a second comparison has nothing to add.
    warned: bool,
}

impl Node {
    /// Runs the checks, the last step of an iteration. They run however the session ended, unless the run is ending or
    /// the agent never worked.
    pub(super) fn verify(&mut self, cx: &mut Cx, closing: Closing) -> Turn {
        let judge = !matches!(closing.judged.ending, Ending::Interrupted { .. } | Ending::AuthFailed);
        if !judge || self.ending.is_some() || !cx.settings(self.ix).checks.any() {
            return self.close(cx, closing);
        }
        cx.record(Event::ChecksStarted { node: cx.name(self.ix), iteration: self.iteration });
        let pinned = self.has_pins(cx);
        let closing = Box::new(closing);
        let checks = &cx.settings(self.ix).checks;
        let tree = checks.attempts == AttemptPolicy::Progress
            && !cx.plan.snapshots
            && matches!(self.judged, JudgedTree::Unknown);
        if pinned || tree || !checks.pin.is_empty() {
            self.phase = Phase::Pinning(Hashed::Before(closing));
            cx.out.push(Decision::HashPins { node: self.ix, iteration: self.iteration, tree });
        } else {
            self.start_check(cx, closing, Vec::new(), false);
        }
        Turn::Stay
    }

    fn has_pins(&self, cx: &Cx) -> bool {
        cx.view.node(self.ix).attempts.pins.as_ref().is_some_and(|pins| !pins.is_empty())
    }

    /// Handles the hashes of the pinned files.
    pub(super) fn pinned(
        &mut self,
        cx: &mut Cx,
        pins: Result<Vec<Pin>, String>,
        tree: Option<String>,
    ) -> Turn {
        let Phase::Pinning(when) = std::mem::replace(&mut self.phase, Phase::Resting) else {
            return Turn::Stay;
        };
        let (closing, passed) = match when {
            Hashed::First => return self.pinned_first(cx, pins, tree),
            Hashed::Before(closing) => (closing, None),
            Hashed::After(checking) => (checking.closing, Some(checking.results)),
        };
        if let Some(tree) = tree {
            self.judged = JudgedTree::Known(tree);
        }
        if self.ending.is_some() {
            return self.close(cx, *closing);
        }
        let attempts = &cx.view.node(self.ix).attempts;
        let (changed, why) = match (pins, &passed) {
            (Ok(now), None) => (attempts.changed(&now), "changed"),
            (Ok(now), Some(_)) => (attempts.changed_by_checks(&now), "changed while the checks ran"),
            (Err(error), _) => (vec![error], "not verified"),
        };
        let policy = cx.settings(self.ix).checks.tampered;
        if !changed.is_empty() {
            let (node, iteration) = (cx.name(self.ix), self.iteration);
            cx.record(Event::CheckTampered { node, iteration, files: changed.clone(), policy });
        }
        match (policy, passed) {
            // A check that passes after tampering proves nothing.
            (Tampered::Fail, _) if !changed.is_empty() => {
                self.attempt_over(cx, *closing, vec![tampered(&changed, why)])
            }
            (Tampered::Fail | Tampered::Warn, None) => {
                self.start_check(cx, closing, Vec::new(), !changed.is_empty());
                Turn::Stay
            }
            (Tampered::Fail | Tampered::Warn, Some(results)) => self.attempt_over(cx, *closing, results),
        }
    }

    fn start_check(&mut self, cx: &mut Cx, closing: Box<Closing>, results: Vec<CheckResult>, warned: bool) {
        let job = Job { node: self.ix, iteration: self.iteration, kind: JobKind::Check(results.len()) };
        let tree = JobTree::start(cx, job);
        self.phase =
            Phase::Checking(Box::new(Checking { tree, closing, results, tries: 0, first_rc: None, warned }));
    }

    pub(super) fn check_refused(&mut self, cx: &mut Cx, error: String) -> Turn {
        let tail = OutputTail { text: error, truncated: false };
        self.check_done(cx, NOT_STARTED, false, tail)
    }

    pub(super) fn check_over(&mut self, cx: &mut Cx, report: JobReport) -> Turn {
        let Phase::Checking(checking) = &self.phase else { return Turn::Stay };
        let (rc, timed_out) = shell_code(&checking.tree);
        self.check_done(cx, rc, timed_out, report.tail)
    }

    fn check_done(&mut self, cx: &mut Cx, rc: i32, timed_out: bool, tail: OutputTail) -> Turn {
        let Phase::Checking(checking) = std::mem::replace(&mut self.phase, Phase::Resting) else {
            return Turn::Stay;
        };
        let mut checking = *checking;
        clear_job_timers(cx, self.ix);
        if self.ending.is_some() {
            return self.close(cx, *checking.closing);
        }
        let policy = &cx.settings(self.ix).checks;
        let (commands, index) = (policy.commands.len(), checking.results.len());
        if rc != 0 && checking.tries < policy.recheck {
            checking.first_rc.get_or_insert(rc);
            checking.tries += 1;
            checking.tree = JobTree::start(cx, checking.tree.job);
            self.phase = Phase::Checking(Box::new(checking));
            return Turn::Stay;
        }
        let failed = rc != 0;
        checking.results.push(CheckResult {
            cmd: policy.commands.get(index).cloned().unwrap_or_default(),
            rc,
            duration_s: checking.tree.lasted(cx),
            truncated: failed && tail.truncated,
            tail: failed.then_some(tail.text),
            timed_out,
            flaky: !failed && checking.first_rc.is_some(),
            first_rc: checking.first_rc,
        });
        if index + 1 < commands {
            self.start_check(cx, checking.closing, checking.results, checking.warned);
            return Turn::Stay;
        }
        // A check runs code of the agent, which may have rewritten what a later check runs.
        let passed = checking.results.iter().all(|result| result.rc == 0);
        if passed && !checking.warned && self.has_pins(cx) {
            self.phase = Phase::Pinning(Hashed::After(Box::new(checking)));
            cx.out.push(Decision::HashPins { node: self.ix, iteration: self.iteration, tree: false });
            return Turn::Stay;
        }
        self.attempt_over(cx, *checking.closing, checking.results)
    }

    fn attempt_over(&mut self, cx: &mut Cx, closing: Closing, results: Vec<CheckResult>) -> Turn {
        let converged = results.iter().all(|r| r.rc == 0);
        let attempts = &cx.view.node(self.ix).attempts;
        let backoff_s = attempts.backoff.filter(|_| attempts.count > 0);
        let uncounted = !converged && !self.is_attempt(cx, &closing.judged.ending);
        let judges_progress = cx.settings(self.ix).checks.attempts == AttemptPolicy::Progress;
        let new_tree = match &self.judged {
            JudgedTree::Untouched => false,
            JudgedTree::Unknown => true,
            JudgedTree::Known(tree) => attempts.is_new_tree(tree),
        };
        let progress =
            judges_progress && !converged && !uncounted && new_tree && attempts.fails_differently(&results);
        let tree = match std::mem::replace(&mut self.judged, JudgedTree::Untouched) {
            JudgedTree::Known(tree) if judges_progress => Some(tree),
            JudgedTree::Known(_) | JudgedTree::Unknown | JudgedTree::Untouched => None,
        };
        cx.record(Event::NodeAttempt(NodeAttempt {
            node: cx.name(self.ix),
            iteration: self.iteration,
            duration_s: cx.now.awake.since(self.began),
            converged,
            backoff_s,
            uncounted,
            progress,
            tree,
            results,
        }));
        if progress {
            self.notice_long_progress(cx);
        }
        cx.out.push(Decision::KeepLog { node: self.ix, iteration: self.iteration });
        self.close(cx, closing)
    }

    /// Reminds the user of a loop that keeps making progress: no limit on attempts ends it.
    fn notice_long_progress(&self, cx: &mut Cx) {
        let uncharged = cx.view.node(self.ix).attempts.uncharged;
        if uncharged.is_multiple_of(UNCHARGED_NOTICE) {
            let name = cx.name(self.ix);
            let message = format!(
                "node {name}: {uncharged} iterations made progress and were not charged; `budget` or \
                 `max_iterations` limits them"
            );
            cx.record(Event::Notice { kind: "uncharged_iterations".to_owned(), message });
        }
    }

    /// Returns whether the ending counts as an attempt. An idle answer does not, unless the node has no `idle` block.
    fn is_attempt(&self, cx: &Cx, ending: &Ending) -> bool {
        match ending {
            Ending::Idle { .. } => cx.settings(self.ix).idle.is_none(),
            Ending::RateLimited { .. } | Ending::Interrupted { .. } | Ending::AuthFailed => false,
            Ending::Completed | Ending::Failed | Ending::TimedOut => true,
        }
    }
}

/// Returns the exit code of a job as a shell would report it, and whether the job timed out.
pub(super) fn shell_code(tree: &JobTree) -> (i32, bool) {
    match (tree.ended_by(), tree.exit()) {
        (Some(EndedBy::Watchdog), _) => (TIMED_OUT, true),
        (_, Some(Exit::Code(code))) => (code, false),
        (_, Some(Exit::Signal(signal))) => (128 + signal, false),
        (_, None) => (NOT_STARTED, false),
    }
}

/// The number of changed files that are named.
const MAX_NAMED_FILES: usize = 20;

/// Returns one failed result for all changed pinned files, in place of the results of the checks.
fn tampered(files: &[String], why: &str) -> CheckResult {
    let mut tail: String =
        files.iter().take(MAX_NAMED_FILES).map(|file| format!("{why}: {file}\n")).collect();
    if files.len() > MAX_NAMED_FILES {
        tail.push_str(&format!("… and {} more\n", files.len() - MAX_NAMED_FILES));
    }
    tail.push_str("no check counts until these pinned files have their original content");
    CheckResult {
        cmd: "pinned files".to_owned(),
        rc: 1,
        duration_s: Dur::ZERO,
        tail: Some(tail),
        truncated: files.len() > MAX_NAMED_FILES,
        timed_out: false,
        flaky: false,
        first_rc: None,
    }
}
