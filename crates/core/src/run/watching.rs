//! The watchdog within a run: when it judges a session, and what follows from its verdicts.

use super::cx::Cx;
use super::job_tree::JobTree;
use crate::record::event::{EndedBy, Event, HumanEndedBy, Observation};
use crate::record::ids::{Iteration, NodeIx};
use crate::run::decision::Decision;
use crate::run::job::Job;
use crate::time::dur::Dur;
use crate::time::moment::Awake;
use crate::time::timer::{Deadline, Timer};
use crate::watch::health::HealthIssue;
use crate::watch::{Fact, Monitor, Session, StopReason, Verdict, Watch};

/// How long the watchdog waits for a sample before it judges without one.
const SAMPLE_FIRST: Dur = Dur::from_millis(100);

/// The watch over a session.
pub(super) struct Watching(Monitor);

impl Watching {
    /// Starts the watch over a session.
    pub fn new(cx: &Cx, ix: NodeIx, agent: u32) -> Watching {
        let settings = cx.settings(ix);
        let session = Session {
            node_before: cx.view.node(ix).time.watched.lasted(cx.now.awake),
            run_before: cx.view.watched.lasted(cx.now.awake),
            ..Session::new(cx.now.awake, cx.agent(ix, agent).1.is_structured())
        };
        Watching(Monitor::new(settings.watchdog.clone(), session))
    }

    /// Sets the timer to the next moment at which the verdict may change or a sample is needed.
    pub fn arm(&self, cx: &mut Cx, ix: NodeIx) {
        self.arm_from(cx, ix, Awake(0));
    }

    fn arm_from(&self, cx: &mut Cx, ix: NodeIx, earliest: Awake) {
        match self.0.due() {
            Some(at) => cx.timers.set(Timer::Watch(ix), Deadline::Awake(at.max(earliest))),
            None => cx.timers.clear(Timer::Watch(ix)),
        }
    }

    /// Handles the timer: requests a sample if one is needed, and judges the session otherwise.
    pub fn due(&mut self, cx: &mut Cx, ix: NodeIx, tree: &mut JobTree) {
        if self.0.wants_sample(cx.now.awake) {
            cx.out.push(Decision::Sample(tree.job));
            // The sample arrives as a fact and is judged then. The timer only covers a sample that does not arrive.
            self.arm_from(cx, ix, cx.now.awake.plus(SAMPLE_FIRST));
        } else {
            self.judge(cx, ix, tree);
        }
    }

    /// Handles observed progress. It moves a deadline and needs no verdict.
    pub fn observe(&mut self, cx: &mut Cx, ix: NodeIx, seen: Observation) {
        self.0.take(cx.now.awake, &Fact::Observed(seen));
        self.record_answered(cx, ix);
        self.arm(cx, ix);
    }

    /// Records a single fact and judges the session.
    pub fn note(&mut self, cx: &mut Cx, ix: NodeIx, tree: &mut JobTree, fact: Fact) {
        if matches!(fact, Fact::NeedsHuman { .. }) && self.0.watch().is_asking() {
            // The agent already waits for an answer; a repeated question changes nothing.
            return;
        }
        self.0.take(cx.now.awake, &fact);
        let until = cx.settings(ix).watchdog.human.duration().map(|limit| cx.now.wall.plus(limit));
        cx.record(fact.into_event(cx.name(ix), tree.job.iteration, until));
        self.record_answered(cx, ix);
        self.judge(cx, ix, tree);
    }

    /// Records the end of a human wait if the agent has continued.
    fn record_answered(&self, cx: &mut Cx, ix: NodeIx) {
        if !self.0.watch().is_asking() {
            asking_over(cx, ix, HumanEndedBy::Progress);
        }
    }

    /// Judges the session and acts on the verdict. The verdict and its evidence are recorded before the first signal
    /// is sent.
    pub fn judge(&mut self, cx: &mut Cx, ix: NodeIx, tree: &mut JobTree) {
        let Some(answer) = self.0.judge(cx.now.awake) else { return self.arm(cx, ix) };
        let reason = match answer.verdict {
            Verdict::HardStop { reason, .. } => Some(reason),
            Verdict::Continue { .. } | Verdict::Notice { .. } => None,
        };
        if reason.is_some() && (tree.ended_by().is_some() || tree.exit().is_some()) {
            return;
        }
        if reason == Some(StopReason::HumanDeadlineExceeded) {
            asking_over(cx, ix, HumanEndedBy::Deadline);
        }
        // A recovery prompt cannot help when the node or the run has reached its ceiling.
        let ceiling =
            matches!(reason, Some(StopReason::NodeCeilingExceeded | StopReason::RunCeilingExceeded));
        let recoverable = !ceiling;
        let event = answer.event(cx.name(ix), tree.job.iteration, recoverable);
        event.into_iter().for_each(|event| cx.record(event));
        if reason.is_some() {
            tree.end(cx, EndedBy::Watchdog);
            cx.timers.clear(Timer::Watch(ix));
        } else {
            self.arm(cx, ix);
        }
    }
}

/// Records the verdict on a job without a watch: it has no evidence on any channel.
pub(super) fn record_ceiling(cx: &mut Cx, job: Job, reason: StopReason, message: &str) {
    let now = cx.now.awake;
    let watch = Watch::new(cx.settings(job.node).watchdog.clone(), Session::new(now, false));
    let answer = watch.answer(now, Verdict::HardStop { reason, message: message.to_owned() });
    let event = answer.event(cx.name(job.node), job.iteration, false);
    event.into_iter().for_each(|event| cx.record(event));
}

/// Records a health issue of the agent when it begins.
pub(super) fn health_issue_found(cx: &mut Cx, ix: NodeIx, iteration: Iteration, issue: HealthIssue) {
    if cx.view.node(ix).session.health.knows(issue) {
        return;
    }
    cx.record(issue.event(cx.name(ix), iteration));
}

/// Records the end of a human wait, if one is open.
pub(super) fn asking_over(cx: &mut Cx, ix: NodeIx, by: HumanEndedBy) {
    let node = cx.view.node(ix);
    if node.session.health.asking.is_some() {
        let iteration = node.iteration;
        cx.record(Event::NeedsHumanEnded { node: cx.name(ix), iteration, by });
    }
}

/// Returns whether a fact shows that the agent still works, so that its result was not final.
pub(super) fn is_progress(fact: &Fact) -> bool {
    fact.is_call() || matches!(fact, Fact::Observed(_) | Fact::SubagentStarted { .. })
}
