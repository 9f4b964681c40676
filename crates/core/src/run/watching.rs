//! The watchdog within a run: when it is asked, and what becomes of its answers.

use super::cx::Cx;
use super::tree::Tree;
use crate::decision::Decision;
use crate::dur::Dur;
use crate::event::{EndedBy, Event};
use crate::ids::NodeIx;
use crate::moment::Awake;
use crate::timer::{Deadline, Timer};
use crate::watch::{Answer, Channel, Fact, Session, Verdict, Watch};

/// A deferral is written down at most once in this time, per channel.
const DEFERRAL_PERIOD: Dur = Dur::from_secs(30);

/// The watch over a session, and what was written down of it.
pub(super) struct Watching {
    pub watch: Watch,
    deferrals: Vec<(Channel, Awake)>,
    /// A sample was asked for at this moment of silence; its answer comes as a fact.
    asked_at: Option<Awake>,
}

impl Watching {
    pub fn new(cx: &Cx, ix: NodeIx) -> Watching {
        let settings = cx.settings(ix);
        let lasted = cx.view.supervised(cx.now.boot);
        let session = Session {
            node_before: lasted,
            run_before: lasted,
            ..Session::new(cx.now.awake, settings.reader.is_structured())
        };
        let watch = Watch::new(settings.watchdog.clone(), session);
        Watching { watch, deferrals: Vec::new(), asked_at: None }
    }

    /// Sets the timer to the next moment at which the answer may change, or a sample is wanted.
    pub fn arm(&self, cx: &mut Cx, ix: NodeIx) {
        match [self.watch.due(), self.sample_due()].into_iter().flatten().min() {
            Some(at) => cx.timers.set(Timer::Watch(ix), Deadline::Awake(at)),
            None => cx.timers.clear(Timer::Watch(ix)),
        }
    }

    /// Samples cost something, so they are taken only when silence is half over and when it is over.
    fn sample_due(&self) -> Option<Awake> {
        self.watch
            .sample_moments()
            .into_iter()
            .flatten()
            .find(|at| self.asked_at.is_none_or(|asked| asked < *at))
    }

    /// The timer fired: a sample first if one is wanted, else a look.
    pub fn due(&mut self, cx: &mut Cx, ix: NodeIx, tree: &mut Tree) {
        if self.sample_due().is_some_and(|at| cx.now.awake >= at) {
            self.asked_at = Some(cx.now.awake);
            cx.out.push(Decision::Sample(tree.job));
            self.arm(cx, ix);
        } else {
            self.judge(cx, ix, tree);
        }
    }

    /// Asks for an answer and does what follows from it. A verdict stands in the record, with its evidence,
    /// before the first signal is sent.
    pub fn judge(&mut self, cx: &mut Cx, ix: NodeIx, tree: &mut Tree) {
        let Answer { verdict, evidence_summary, active_channel } = self.watch.evaluate(cx.now.awake);
        let (node, iteration) = (cx.name(ix), tree.job.iteration);
        match verdict {
            Verdict::Continue { deferred_by: None } => {}
            Verdict::Continue { deferred_by: Some(by) } => {
                if self.is_news(by, cx.now.awake) {
                    let deferred_by = by;
                    cx.record(Event::WatchdogContinue {
                        node,
                        iteration,
                        deferred_by,
                        evidence_summary,
                        active_channel,
                    });
                }
            }
            Verdict::Notice { message } => cx.record(Event::Notice { kind: "watchdog".to_owned(), message }),
            Verdict::HardStop { reason, message } => {
                if tree.ended_by().is_some() || tree.exit().is_some() {
                    return;
                }
                let recoverable = true;
                cx.record(Event::HardStop {
                    node,
                    iteration,
                    reason,
                    message,
                    evidence_summary,
                    active_channel,
                    recoverable,
                });
                tree.end(cx, EndedBy::Watchdog);
                cx.timers.clear(Timer::Watch(ix));
                return;
            }
        }
        self.arm(cx, ix);
    }

    fn is_news(&mut self, by: Channel, now: Awake) -> bool {
        let told = self.deferrals.iter().find(|(c, _)| *c == by).map(|(_, at)| *at);
        if told.is_some_and(|at| now.since(at) < DEFERRAL_PERIOD) {
            return false;
        }
        self.deferrals.retain(|(c, _)| *c != by);
        self.deferrals.push((by, now));
        true
    }
}

/// Facts that show the agent at work, so that its result was not the end.
pub(super) fn is_progress(fact: &Fact) -> bool {
    match fact {
        Fact::Observed(_) | Fact::ToolStarted(_) | Fact::ToolEnded { .. } | Fact::SubagentStarted { .. } => {
            true
        }
        Fact::Printed
        | Fact::Error { .. }
        | Fact::SubagentEnded { .. }
        | Fact::Sampled { .. }
        | Fact::Suspended { .. } => false,
    }
}
