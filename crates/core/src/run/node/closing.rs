//! The end of an iteration: the session is judged, a snapshot of the work tree is taken, and the ending is
//! recorded.

use super::super::cx::Cx;
use super::super::job_tree::JobTree;
use super::super::watching::asking_over;
use super::{Closing, JudgedTree, KeptFor, Node, Phase, SNAPSHOT_BOUND, Turn, clear_job_timers};
use crate::record::event::{EndedBy, Event, HumanEndedBy, IterationEnd};
use crate::record::ids::{Iteration, NodeIx};
use crate::run::ending::{Ending, Facts, judge};
use crate::run::job::{Job, JobKind, JobReport, SessionExit, Snapshot};
use crate::text::figures::seconds;
use crate::text::fingerprint::fingerprint;
use crate::text::one_line;
use crate::time::dur::Dur;
use crate::time::timer::{Deadline, Timer};

/// The most of an agent's last message that goes into the record, in bytes.
const MAX_SHOWN: usize = 300;

/// How many idle iterations of a node without an `idle` block lead to a notice.
const IGNORED_IDLE: u64 = 3;

/// How many completed iterations in less than `HOT_TIME` lead to a notice about a loop that nothing slows down.
const HOT_ITERATIONS: u64 = 20;
/// In less than how much time `HOT_ITERATIONS` lead to a notice.
const HOT_TIME: Dur = Dur::from_secs(20);

impl Node {
    pub(super) fn session_refused(&mut self, cx: &mut Cx, error: &str) -> Turn {
        clear_job_timers(cx, self.ix);
        let ended_by = self.ending.unwrap_or(EndedBy::NeverStarted);
        let facts = Facts {
            ended_by,
            exit: None,
            structured: false,
            result: None,
            marker: None,
            limit: None,
            resets_at: None,
            auth_failed: false,
            complaint: error,
        };
        let judged = judge(&facts);
        let closing = Closing { judged, fingerprint: Some(fingerprint(error)) };
        self.verify(cx, closing)
    }

    pub(super) fn session_over(&mut self, cx: &mut Cx, report: JobReport) -> Turn {
        let Phase::Session(tree, _) = &self.phase else { return Turn::Stay };
        clear_job_timers(cx, self.ix);
        let (exit, lasted) = (tree.exit(), tree.lasted(cx));
        // The keeper may have ended the tree before this process could.
        let leash = self.ending.filter(|by| *by == EndedBy::Leash);
        let ended_by = leash.or(tree.ended_by()).unwrap_or(EndedBy::Itself);
        let result = report.totals.result.as_ref();
        let complaint = complaint(&report);
        let facts = Facts {
            ended_by,
            exit,
            structured: cx.agent(self.ix, self.agent).1.is_structured(),
            result,
            marker: report.marker.as_ref(),
            limit: report.totals.limit.as_ref().map(|l| l.kind),
            resets_at: report.resets_at,
            auth_failed: report.totals.auth_failed.is_some(),
            complaint: &complaint,
        };
        let mut judged = judge(&facts);
        if let (EndedBy::Watchdog, Some(status)) = (ended_by, refused(cx, self.ix)) {
            judged.because =
                format!("{} while it waited for a service that refused ({status})", judged.because);
        }
        asking_over(cx, self.ix, HumanEndedBy::Session);
        let failed = judged.ending == Ending::Failed;
        let said = result.filter(|r| !r.is_error).map_or(complaint.as_str(), |r| pending_end(&r.text));
        let unpriced = unpriced(cx, &report);
        let how = SessionExit { exit, ended_by, lasted, said: one_line(said, MAX_SHOWN) };
        cx.record(Event::SessionEnded(report.session_ended(cx.name(self.ix), self.iteration, how)));
        if let Some(message) = unpriced {
            cx.record(Event::Notice { kind: "price_unknown".into(), message });
        }
        if let Some(m) = report.marker {
            let (node, iteration) = (cx.name(self.ix), self.iteration);
            cx.record(Event::MarkerSeen { node, iteration, state: m.state, attrs: m.attrs });
        }
        let print = failed.then(|| fingerprint(&judged.because));
        let closing = Closing { judged, fingerprint: print };
        self.judged = JudgedTree::Unknown;
        // After the end of a leash nothing more may start, not even a snapshot.
        if !cx.plan.snapshots || ended_by == EndedBy::Leash {
            return self.verify(cx, closing);
        }
        self.keep(cx, self.iteration, KeptFor::Session(Box::new(closing)));
        Turn::Stay
    }

    /// Takes a snapshot of the work tree before the first iteration.
    pub(super) fn keep_first(&mut self, cx: &mut Cx) {
        self.keep(cx, Iteration(0), KeptFor::First);
    }

    /// Takes a snapshot of an open iteration whose supervisor was lost. The iteration stays open until the snapshot is
    /// taken, so that a second crash does not lose it.
    pub(in crate::run) fn keep_lost(&mut self, cx: &mut Cx) {
        self.keep(cx, self.iteration, KeptFor::Lost);
    }

    /// Returns whether the snapshot of an iteration whose supervisor was lost is in progress.
    pub(in crate::run) fn is_rescuing(&self) -> bool {
        matches!(self.phase, Phase::Keeping(_, KeptFor::Lost))
    }

    /// Returns whether a snapshot or a commit of the agent's work is in progress. A stop waits for it.
    pub(super) fn is_keeping_work(&self) -> bool {
        matches!(self.phase, Phase::Keeping(_, KeptFor::Session(_) | KeptFor::Lost) | Phase::Committing(..))
    }

    /// Limits a snapshot or commit that has not started when the run is asked to stop: on a full disk it may never start.
    pub(super) fn bound_snapshot(&self, cx: &mut Cx) {
        let at = Deadline::Awake(cx.now.awake.plus(SNAPSHOT_BOUND));
        if !cx.timers.is_set(Timer::PrepJob(self.ix)) {
            cx.timers.set(Timer::PrepJob(self.ix), at);
        }
    }

    /// Starts a snapshot of the work tree, before any other job can change it.
    fn keep(&mut self, cx: &mut Cx, iteration: Iteration, why: KeptFor) {
        let job = Job { node: self.ix, iteration, kind: JobKind::Snapshot };
        self.phase = Phase::Keeping(JobTree::start(cx, job), why);
    }

    /// Records the result of a snapshot and continues. A failed snapshot leaves the work tree unchanged and does not
    /// stop the run.
    pub(super) fn kept(&mut self, cx: &mut Cx, snapshot: Option<Snapshot>) -> Turn {
        let Phase::Keeping(tree, why) = std::mem::replace(&mut self.phase, Phase::Resting) else {
            return Turn::Stay;
        };
        clear_job_timers(cx, self.ix);
        let (node, iteration) = (cx.name(self.ix), tree.job.iteration);
        let unfinished = || format!("ended after {}", tree.lasted(cx));
        match snapshot.unwrap_or_else(|| Snapshot::Failed { why: unfinished() }) {
            Snapshot::Taken { name, files, skipped, tree } => {
                if let Some(tree) = &tree {
                    self.judged = JudgedTree::Known(tree.clone());
                }
                cx.record(Event::SnapshotTaken { node, iteration, name, files, skipped, tree });
            }
            Snapshot::NoWorkTree { why } => {
                cx.plan.snapshots = false;
                let message = format!("no snapshots will be taken: {why}");
                cx.record(Event::Notice { kind: "no_snapshots".to_owned(), message });
            }
            Snapshot::Failed { why } => cx.trouble("snapshot", format!("iteration {iteration}: {why}")),
        }
        match why {
            KeptFor::Session(closing) => self.verify(cx, *closing),
            KeptFor::First => self.prepare(cx, self.prepares),
            KeptFor::Lost => Turn::Rescued,
        }
    }

    /// Records how the iteration ended.
    pub(super) fn close(&mut self, cx: &mut Cx, closing: Closing) -> Turn {
        let Closing { judged, fingerprint } = closing;
        self.phase = Phase::Resting;
        let end = IterationEnd {
            node: cx.name(self.ix),
            iteration: self.iteration,
            duration_s: cx.now.awake.since(self.began),
            because: judged.because,
            fingerprint,
        };
        let event = match &judged.ending {
            Ending::Completed => Event::IterationCompleted(end),
            Ending::Idle { reason, skipped } => {
                let idle_streak = &cx.view.node(self.ix).idle_streak;
                let (consecutive, streak_s) =
                    (idle_streak.count.saturating_add(1), idle_streak.lasted(cx.now.boot));
                Event::IterationIdle { end, reason: reason.clone(), consecutive, streak_s, skipped: *skipped }
            }
            Ending::Failed => Event::IterationFailed(end),
            Ending::TimedOut => Event::IterationTimedOut(end),
            Ending::RateLimited { limit, resets_at } => {
                Event::IterationRateLimited { end, limit: *limit, resets_at: *resets_at }
            }
            Ending::AuthFailed => Event::IterationAuthFailed(end),
            Ending::Interrupted { by } => Event::IterationInterrupted { end, by: by.as_str().to_owned() },
        };
        cx.record(event);
        if matches!(judged.ending, Ending::Idle { .. }) {
            self.notice_ignored_idling(cx);
        } else if judged.ending == Ending::Completed {
            self.notice_hot_loop(cx);
        }
        Turn::IterationOver(judged.ending)
    }

    /// Records one notice about an agent that is called again and again although it finds nothing to do.
    fn notice_ignored_idling(&self, cx: &mut Cx) {
        if cx.settings(self.ix).idle.is_none() && cx.view.node(self.ix).counts.idle == IGNORED_IDLE {
            let message = format!(
                "{IGNORED_IDLE} iterations found no work, but there is no `idle` block, so the agent is called again; \
                 `idle: {{}}` makes dogwatch wait"
            );
            cx.record(Event::Notice { kind: "idle_ignored".to_owned(), message });
        }
    }

    /// Records one notice about an agent that ends at once and is called again and again: most likely it does not work, and
    /// nothing would end the loop.
    fn notice_hot_loop(&self, cx: &mut Cx) {
        let (settings, node) = (cx.settings(self.ix), cx.view.node(self.ix));
        let is_endless = settings.max_iterations.is_none() && !settings.checks.any();
        let took = node.lasted(cx.now.boot);
        let is_hot = node.counts.completed == HOT_ITERATIONS && took < HOT_TIME;
        if is_endless && settings.delay == Dur::ZERO && is_hot {
            let message = format!(
                "{HOT_ITERATIONS} iterations took {}; check that the agent works, and set `delay`, `done_when` or \
                 `max_iterations` if it does",
                seconds(took)
            );
            cx.record(Event::Notice { kind: "hot_loop".to_owned(), message });
        }
    }
}

/// Returns the status with which a service had refused the agent, if the agent waited for it in silence until the
/// watchdog stopped it.
fn refused(cx: &Cx, ix: NodeIx) -> Option<u16> {
    cx.view.node(ix).recovery.last.as_ref()?.refused
}

/// Returns the best description of what went wrong: the agent's own error, or else its last line.
fn complaint(report: &JobReport) -> String {
    let totals = &report.totals;
    match (&totals.result, &totals.last_error) {
        (Some(r), _) if r.is_error && !r.text.trim().is_empty() => r.text.clone(),
        (_, Some(error)) => error.clone(),
        _ => report.last_line.clone(),
    }
}

/// Returns the last line that is neither empty nor a comment: agents summarize at the end.
fn pending_end(text: &str) -> &str {
    text.lines().rev().map(str::trim).find(|l| !l.is_empty() && !l.starts_with("<!--")).unwrap_or("")
}

/// Returns the notice that the cost of a session is unknown though its tokens are known. It is given once per model.
fn unpriced(cx: &Cx, report: &JobReport) -> Option<String> {
    let JobReport { totals, computed_cost, .. } = report;
    if totals.by_model.is_empty() || totals.cost_usd.is_some() || computed_cost.is_some() {
        return None;
    }
    let model = totals.model.clone().unwrap_or_default();
    if cx.view.unpriced.contains(&model) {
        return None;
    }
    Some(match model.is_empty() {
        true => "the agent does not report its model, so the cost of its sessions is unknown".to_owned(),
        false => format!(
            "no price for the model `{}`, so the cost of its sessions is unknown; `dogwatch prices` says where to add it",
            one_line(&model, MAX_SHOWN)
        ),
    })
}
