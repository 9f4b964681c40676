//! The checks of an iteration: all of them, in their order, each bounded; then what they decided is written
//! down. What the agent says of its work is no part of it.

use super::super::cx::Cx;
use super::super::tree::Tree;
use super::{Closing, Node, Phase, Turn, clear_job_timers};
use crate::record::event::{CheckResult, EndedBy, Event, NodeAttempt, Pin};
use crate::run::decision::Decision;
use crate::run::ending::Ending;
use crate::run::job::{Exit, Job, JobKind, JobReport, Tail};
use crate::settings::Tampered;
use crate::time::dur::Dur;

/// What a shell says of a command that could not be started, and `timeout` of one that took too long.
const NOT_STARTED: i32 = 127;
const TIMED_OUT: i32 = 124;

/// A check that runs, and what those before it said.
pub(super) struct Checking {
    pub tree: Tree,
    closing: Box<Closing>,
    results: Vec<CheckResult>,
    /// How often the present check was run already, and what the first time gave.
    tries: u32,
    first_rc: Option<i32>,
}

impl Node {
    /// The iteration is over but for the checks. They run whatever became of the agent, unless the run is to
    /// end or the agent never got to work.
    pub(super) fn verify(&mut self, cx: &mut Cx, closing: Closing) -> Turn {
        let judge = match closing.judged.ending {
            Ending::Interrupted { .. } | Ending::AuthFailed => false,
            Ending::Completed
            | Ending::Idle { .. }
            | Ending::Failed
            | Ending::TimedOut
            | Ending::RateLimited { .. } => true,
        };
        if !judge || self.ending.is_some() || !cx.settings(self.ix).checks.any() {
            return self.close(cx, closing);
        }
        cx.record(Event::ChecksStarted { node: cx.name(self.ix), iteration: self.iteration });
        let pinned = cx.view.node(self.ix).attempts.pins.as_ref().is_some_and(|pins| !pins.is_empty());
        let closing = Box::new(closing);
        if pinned || !cx.settings(self.ix).checks.pin.is_empty() {
            self.phase = Phase::Pinning(Some(closing));
            cx.out.push(Decision::HashPins { node: self.ix, iteration: self.iteration });
        } else {
            self.start_check(cx, closing, Vec::new());
        }
        Turn::Stay
    }

    /// The contents of the files that the checks rest on, before the first iteration or before the checks.
    pub(super) fn pinned(&mut self, cx: &mut Cx, pins: Result<Vec<Pin>, String>) -> Turn {
        let Phase::Pinning(closing) = std::mem::replace(&mut self.phase, Phase::Resting) else {
            return Turn::Stay;
        };
        let Some(closing) = closing else { return self.pinned_first(cx, pins) };
        if self.ending.is_some() {
            return self.close(cx, *closing);
        }
        let (changed, why) = match pins {
            Ok(now) => (cx.view.node(self.ix).attempts.changed(&now), "was changed"),
            Err(error) => (vec![error], "cannot be told"),
        };
        if changed.is_empty() {
            self.start_check(cx, closing, Vec::new());
            return Turn::Stay;
        }
        let policy = cx.settings(self.ix).checks.tampered;
        let (node, iteration) = (cx.name(self.ix), self.iteration);
        cx.record(Event::CheckTampered { node, iteration, files: changed.clone(), policy });
        match policy {
            Tampered::Warn => {
                self.start_check(cx, closing, Vec::new());
                Turn::Stay
            }
            // What would pass now proves nothing.
            Tampered::Fail => {
                let results = changed.into_iter().take(MAX_TOLD).map(|file| tampered(&file, why)).collect();
                self.attempt_over(cx, *closing, results)
            }
        }
    }

    fn start_check(&mut self, cx: &mut Cx, closing: Box<Closing>, results: Vec<CheckResult>) {
        let job = Job { node: self.ix, iteration: self.iteration, kind: JobKind::Check(results.len()) };
        let tree = Tree::start(cx, job);
        self.phase = Phase::Checking(Box::new(Checking { tree, closing, results, tries: 0, first_rc: None }));
    }

    pub(super) fn check_refused(&mut self, cx: &mut Cx, error: String) -> Turn {
        let tail = Tail { text: error, truncated: false };
        self.check_done(cx, NOT_STARTED, false, tail)
    }

    pub(super) fn check_over(&mut self, cx: &mut Cx, report: JobReport) -> Turn {
        let Phase::Checking(checking) = &self.phase else { return Turn::Stay };
        let timed_out = checking.tree.ended_by() == Some(EndedBy::Watchdog);
        let rc = match checking.tree.exit() {
            _ if timed_out => TIMED_OUT,
            Some(Exit::Code(code)) => code,
            Some(Exit::Signal(signal)) => 128 + signal,
            None => NOT_STARTED,
        };
        self.check_done(cx, rc, timed_out, report.tail)
    }

    fn check_done(&mut self, cx: &mut Cx, rc: i32, timed_out: bool, tail: Tail) -> Turn {
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
            checking.tree = Tree::start(cx, checking.tree.job);
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
            self.start_check(cx, checking.closing, checking.results);
            return Turn::Stay;
        }
        self.attempt_over(cx, *checking.closing, checking.results)
    }

    fn attempt_over(&mut self, cx: &mut Cx, closing: Closing, results: Vec<CheckResult>) -> Turn {
        let converged = results.iter().all(|r| r.rc == 0);
        let view = cx.view.node(self.ix);
        let backoff_s = view.attempts.backoff.filter(|_| view.attempts.count > 0);
        cx.record(Event::NodeAttempt(NodeAttempt {
            node: cx.name(self.ix),
            iteration: self.iteration,
            duration_s: cx.now.awake.since(self.began),
            converged,
            backoff_s,
            uncounted: !converged && !self.is_attempt(cx, &closing.judged.ending),
            results,
        }));
        cx.out.push(Decision::KeepLog { node: self.ix, iteration: self.iteration });
        self.close(cx, closing)
    }

    /// Without an `idle` block the agent's word that there is nothing to do changes nothing.
    fn is_attempt(&self, cx: &Cx, ending: &Ending) -> bool {
        match ending {
            Ending::Idle { .. } => cx.settings(self.ix).idle.is_none(),
            Ending::RateLimited { .. } | Ending::Interrupted { .. } | Ending::AuthFailed => false,
            Ending::Completed | Ending::Failed | Ending::TimedOut => true,
        }
    }
}

/// So many changed files are told one by one.
const MAX_TOLD: usize = 20;

fn tampered(file: &str, why: &str) -> CheckResult {
    CheckResult {
        cmd: format!("pin {file}"),
        rc: 1,
        duration_s: Dur::ZERO,
        tail: Some(format!(
            "{file} {why}; it is pinned, and no check counts until it is as it was when the work began"
        )),
        truncated: false,
        timed_out: false,
        flaky: false,
        first_rc: None,
    }
}
