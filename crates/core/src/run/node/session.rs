//! The session of an iteration: what happens while its agent works.

use super::super::cx::Cx;
use super::super::job_tree::JobTree;
use super::super::watching::{Watching, health_issue_found, is_progress};
use crate::record::event::{EndedBy, Event, Observation};
use crate::record::ids::{Iteration, NodeIx};
use crate::run::input::NodeInput;
use crate::time::timer::{Deadline, Timer};
use crate::watch::Fact;

/// The identity of a session, and the parts of its node that it changes.
pub(super) struct Session<'a> {
    pub ix: NodeIx,
    pub iteration: Iteration,
    pub agent: u32,
    pub resumes: Option<&'a String>,
    pub tree: &'a mut JobTree,
    pub watch: &'a mut Option<Box<Watching>>,
}

impl Session<'_> {
    /// Handles an input that does not end the session.
    pub fn handle(self, cx: &mut Cx, input: NodeInput) {
        let (ix, iteration) = (self.ix, self.iteration);
        match input {
            NodeInput::Started { pid, argv } => self.started(cx, pid, argv),
            NodeInput::Observed(seen) => self.observed(cx, seen),
            NodeInput::Noted(fact) => self.noted(cx, fact),
            NodeInput::HealthIssueFound(issue) => health_issue_found(cx, ix, iteration, issue),
            NodeInput::Reported(report) => {
                cx.record(Event::AgentReported { node: cx.name(ix), iteration, report: *report });
            }
            NodeInput::Used(usage) => cx.record(Event::Used { node: cx.name(ix), iteration, usage }),
            NodeInput::ResultSeen => self.result_seen(cx),
            NodeInput::Due(Timer::Result(_)) => self.tree.end(cx, EndedBy::ResultGrace),
            NodeInput::Due(Timer::Watch(_)) => {
                if let Some(watching) = self.watch {
                    watching.due(cx, ix, self.tree);
                }
            }
            // An input that does not belong to a session is late or foreign, and harmless.
            NodeInput::Due(_)
            | NodeInput::Refused { .. }
            | NodeInput::Sent
            | NodeInput::Unstarted { .. }
            | NodeInput::KeeperSeen { .. }
            | NodeInput::Exited(_)
            | NodeInput::PipesClosed
            | NodeInput::Ended(_)
            | NodeInput::PromptAssembled { .. }
            | NodeInput::PinsHashed { .. } => {}
        }
    }

    fn started(self, cx: &mut Cx, pid: u32, argv: Vec<String>) {
        self.tree.started(cx);
        let begun = Watching::new(cx, self.ix, self.agent);
        begun.arm(cx, self.ix);
        *self.watch = Some(Box::new(begun));
        cx.record(Event::SessionStarted {
            node: cx.name(self.ix),
            iteration: self.iteration,
            pid,
            argv,
            agent: self.agent,
            resumes: self.resumes.cloned(),
        });
    }

    fn observed(self, cx: &mut Cx, seen: Observation) {
        cx.timers.clear(Timer::Result(self.ix));
        cx.record(Event::Observed { node: cx.name(self.ix), iteration: self.iteration, seen });
        if let Some(watching) = self.watch {
            watching.observe(cx, self.ix, seen);
        }
    }

    fn noted(self, cx: &mut Cx, fact: Fact) {
        if is_progress(&fact) {
            cx.timers.clear(Timer::Result(self.ix));
        }
        if let Some(watching) = self.watch {
            watching.note(cx, self.ix, self.tree, fact);
        }
    }

    /// Gives the agent a grace to exit after its result.
    fn result_seen(self, cx: &mut Cx) {
        if self.tree.exit().is_none() && self.tree.ended_by().is_none() {
            let at = cx.now.awake.plus(cx.settings(self.ix).watchdog.result_grace);
            cx.timers.set(Timer::Result(self.ix), Deadline::Awake(at));
        }
    }
}
