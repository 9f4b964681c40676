//! The summary of a run: a fold of its events that `report` prints. No decision depends on it.
//!
//! Its size is bounded. Every list keeps its first and last entries and counts the rest, and consecutive idle iterations
//! are one entry.

mod ends;

pub use ends::{Ends, MAX_FIRST, MAX_LAST};

use crate::record::event::{
    Cause, Event, IterationEnd, NodeAttempt, NodeState, Recorded, RecoveryPlanned, RunEnded, SessionEnded,
    WaitEndedBy, WaitWhy, words,
};
use crate::record::ids::{Iteration, NodeName};
use crate::record::view::View;
use crate::time::dur::Dur;
use crate::time::moment::{Moment, Wall};
use crate::watch::{Channel, Evidence, StopReason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The summary of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSummary {
    /// The view of the run.
    pub view: View,
    /// The timeline.
    pub timeline: Ends<Row>,
    /// The watchdog's verdicts, except plain continues.
    pub verdicts: Ends<Judged>,
    /// The snapshots of the work tree.
    pub snapshots: Ends<Kept>,
    /// The problems recorded.
    pub troubles: Ends<Row>,
    /// The results of the checks, without their output.
    pub attempts: Ends<Attempted>,
    /// The last failed attempt of each node whose checks have not passed since.
    pub failing: BTreeMap<NodeName, NodeAttempt>,
    /// The partial work of each node that was given up.
    pub partials: BTreeMap<NodeName, Partial>,
    /// The waits for each reason, in the order of [`WaitWhy::ALL`].
    pub waits: Vec<Waits>,
    /// The last session of each node.
    pub last_sessions: BTreeMap<NodeName, SessionEnded>,
    /// The iterations that are still open.
    pub open: BTreeMap<NodeName, Turn>,
    waiting: BTreeMap<NodeName, (WaitWhy, Moment)>,
}

/// An entry of the timeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// When it happened.
    pub at: Wall,
    /// What happened.
    pub what: What,
}

/// The subject of an entry of the timeline.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// The run started.
    Started,
    /// The run was resumed.
    Resumed,
    /// An iteration ended.
    Turn(Box<Turn>),
    /// Consecutive idle iterations of one node with the same reason.
    Idle(Idle),
    /// The watchdog stopped a session.
    HardStop { node: NodeName, iteration: Iteration, reason: StopReason, message: String },
    /// A wait other than the usual ones between two iterations.
    Waited { node: NodeName, why: WaitWhy, lasted: Dur, by: WaitEndedBy },
    /// The checks of an iteration finished.
    Checked { node: NodeName, iteration: Iteration, checks: usize, failed: usize, converged: bool },
    /// Files that the checks depend on changed.
    Tampered { node: NodeName, iteration: Iteration, files: Vec<String> },
    /// A step of recovery was planned.
    Recovery(Box<RecoveryPlanned>),
    /// Partial work was saved.
    Partial { node: NodeName, iteration: Iteration, file: String },
    /// A node reached a final state.
    Node { node: NodeName, to: NodeState, reason: Option<String> },
    /// The machine was suspended, or dogwatch could not run.
    Suspended { lasted: Dur },
    /// The operator sent a message.
    MessageReceived { text: String },
    /// The run was paused.
    Paused,
    /// The pause was lifted.
    Unpaused,
    /// A notice was recorded.
    Notice { message: String },
    /// A problem was recorded.
    Trouble { kind: String, detail: String },
    /// The run ended.
    Ended(Box<RunEnded>),
}

/// An iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    pub node: NodeName,
    pub iteration: Iteration,
    /// When it started.
    pub began: Wall,
    /// Why it started.
    pub cause: Cause,
    /// The session; `None` if the agent was not called or has not ended.
    pub session: Option<SessionEnded>,
    /// How it ended; `None` while it is open.
    pub end: Option<TurnEnd>,
}

/// The end of an iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnEnd {
    /// The kind of ending.
    pub how: How,
    /// How long the iteration lasted.
    pub lasted: Dur,
    /// Why it has this ending.
    pub because: String,
}

words! {
    /// How an iteration ended. The words are those of its event.
    How {
        /// The iteration completed.
        Completed = "completed",
        /// There was nothing to do.
        Idle = "idle",
        /// The iteration failed.
        Failed = "failed",
        /// The watchdog stopped it.
        TimedOut = "timed_out",
        /// The service refused for now.
        RateLimited = "rate_limited",
        /// The service rejected the login.
        AuthFailed = "auth_failed",
        /// The iteration was interrupted.
        Interrupted = "interrupted",
    }
}

/// Consecutive idle iterations of one node with the same reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Idle {
    /// The node's name.
    pub node: NodeName,
    /// The reason.
    pub reason: String,
    /// The first iteration.
    pub first: Iteration,
    /// The last iteration.
    pub last: Iteration,
    /// The number of iterations.
    pub count: u64,
    /// The number of iterations in which the agent was not called.
    pub skipped: u64,
    /// When the last one ended.
    pub until: Wall,
}

/// A verdict with its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    pub at: Wall,
    pub node: NodeName,
    pub iteration: Iteration,
    /// The verdict.
    pub verdict: Judgement,
    /// The evidence on all channels.
    pub evidence: Vec<Evidence>,
    /// The channel with the most recent evidence.
    pub active_channel: Option<Channel>,
}

/// The verdicts that a summary lists.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// Evidence on another channel deferred a stop for silence.
    Deferred { by: Channel },
    /// The session was stopped.
    HardStop { reason: StopReason, message: String, recoverable: bool },
}

/// The results of the checks of an iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempted {
    /// When the checks finished.
    pub at: Wall,
    /// The results.
    pub attempt: NodeAttempt,
}

/// The partial work of a node that was given up.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial {
    /// The last iteration.
    pub iteration: Iteration,
    /// The file that describes it, in the run's directory.
    pub file: String,
    /// The git ref of the snapshot, if there is one.
    pub snapshot: Option<String>,
}

/// A snapshot of the work tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub at: Wall,
    pub node: NodeName,
    pub iteration: Iteration,
    /// The git ref.
    pub name: String,
    /// The number of files that differ from git's index.
    pub files: u64,
    /// The number of files left out.
    pub skipped: u64,
}

/// The waits for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// The reason.
    pub why: WaitWhy,
    /// The number of waits that ended.
    pub count: u64,
    /// Their total length on the boot clock. A wait that a lost supervisor left open is not included.
    pub lasted: Dur,
    /// The number of waits that ended before their time.
    pub woken: u64,
}

impl RunSummary {
    /// Folds a sequence of events into a summary.
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a Recorded>) -> RunSummary {
        let mut summary = RunSummary::default();
        for event in events {
            summary.apply(event);
        }
        summary
    }

    /// Applies the next event.
    pub fn apply(&mut self, recorded: &Recorded) {
        self.view.apply(recorded);
        let at = recorded.at;
        match &recorded.event {
            Event::RunStarted(_) => self.row(at, What::Started),
            Event::RunResumed(_) => self.resumed(at),
            Event::NodeTransition { node, to, reason, .. } => self.transition(at, node, *to, reason),
            Event::IterationStarted { node, iteration, cause } => {
                let (node, iteration) = (node.clone(), *iteration);
                let turn = Turn {
                    node: node.clone(),
                    iteration,
                    began: at,
                    cause: *cause,
                    session: None,
                    end: None,
                };
                self.open.insert(node, turn);
            }
            Event::WatchdogContinue { node, iteration, deferred_by, evidence_summary, active_channel } => {
                self.verdicts.push(Judged {
                    at,
                    node: node.clone(),
                    iteration: *iteration,
                    verdict: Judgement::Deferred { by: *deferred_by },
                    evidence: evidence_summary.clone(),
                    active_channel: *active_channel,
                });
            }
            Event::HardStop { .. } => self.hard_stop(at, &recorded.event),
            Event::SessionEnded(s) => self.session_over(s),
            Event::SnapshotTaken { node, iteration, name, files, skipped } => self.snapshots.push(Kept {
                at,
                node: node.clone(),
                iteration: *iteration,
                name: name.clone(),
                files: *files,
                skipped: *skipped,
            }),
            Event::CheckTampered { node, iteration, files, .. } => {
                let (node, iteration, files) = (node.clone(), *iteration, files.clone());
                self.row(at, What::Tampered { node, iteration, files });
            }
            Event::NodeAttempt(attempt) => self.attempted(at, attempt),
            Event::RecoveryPlanned(plan) => self.row(at, What::Recovery(Box::new(plan.clone()))),
            Event::PartialKept { node, iteration, file, snapshot } => {
                let (iteration, file) = (*iteration, file.clone());
                let partial = Partial { iteration, file: file.clone(), snapshot: snapshot.clone() };
                self.partials.insert(node.clone(), partial);
                self.row(at, What::Partial { node: node.clone(), iteration, file });
            }
            Event::IterationCompleted(end) => self.turn(at, end, How::Completed),
            Event::IterationIdle { end, reason, skipped, .. } => self.idle(at, end, reason, *skipped),
            Event::IterationFailed(end) => self.turn(at, end, How::Failed),
            Event::IterationTimedOut(end) => self.turn(at, end, How::TimedOut),
            Event::IterationRateLimited { end, .. } => self.turn(at, end, How::RateLimited),
            Event::IterationAuthFailed(end) => self.turn(at, end, How::AuthFailed),
            Event::IterationInterrupted { end, .. } => self.turn(at, end, How::Interrupted),
            Event::WaitStarted { node, why, .. } => {
                self.waiting.insert(node.clone(), (*why, recorded.moment()));
            }
            Event::WaitEnded { node, by } => self.wait_over(recorded.moment(), node, *by),
            Event::Suspended { for_s, .. } => self.row(at, What::Suspended { lasted: *for_s }),
            Event::MessageReceived { text, from } => {
                self.row(at, What::MessageReceived { text: from.label(text) })
            }
            Event::Paused {} => self.row(at, What::Paused),
            Event::Unpaused {} => self.row(at, What::Unpaused),
            Event::Notice { message, .. } => self.row(at, What::Notice { message: message.clone() }),
            Event::Trouble { kind, detail } => {
                let what = What::Trouble { kind: kind.clone(), detail: detail.clone() };
                self.troubles.push(Row { at, what: what.clone() });
                self.row(at, what);
            }
            Event::RunEnded(end) => self.row(at, What::Ended(Box::new(end.clone()))),
            // The other events show in the entries that follow from them.
            _ => {}
        }
    }

    /// Returns the hard stops among the kept verdicts.
    pub fn hard_stops(&self) -> impl Iterator<Item = &Judged> {
        self.verdicts.iter().filter(|v| matches!(v.verdict, Judgement::HardStop { .. }))
    }

    fn row(&mut self, at: Wall, what: What) {
        self.timeline.push(Row { at, what });
    }

    /// Forgets the open waits: their end was not recorded when the supervisor was lost.
    fn resumed(&mut self, at: Wall) {
        self.waiting.clear();
        self.row(at, What::Resumed);
    }

    /// Adds an entry for a final state. The other transitions show in the iterations.
    fn transition(&mut self, at: Wall, node: &NodeName, to: NodeState, reason: &Option<String>) {
        if matches!(to, NodeState::Done | NodeState::Failed | NodeState::Blocked) {
            self.row(at, What::Node { node: node.clone(), to, reason: reason.clone() });
        }
    }

    fn hard_stop(&mut self, at: Wall, event: &Event) {
        let Event::HardStop {
            node,
            iteration,
            reason,
            message,
            evidence_summary,
            active_channel,
            recoverable,
        } = event
        else {
            return;
        };
        let (node, iteration, reason) = (node.clone(), *iteration, *reason);
        self.verdicts.push(Judged {
            at,
            node: node.clone(),
            iteration,
            verdict: Judgement::HardStop { reason, message: message.clone(), recoverable: *recoverable },
            evidence: evidence_summary.clone(),
            active_channel: *active_channel,
        });
        self.row(at, What::HardStop { node, iteration, reason, message: message.clone() });
    }

    fn attempted(&mut self, at: Wall, attempt: &NodeAttempt) {
        let failed = attempt.results.iter().filter(|r| r.rc != 0).count();
        self.row(
            at,
            What::Checked {
                node: attempt.node.clone(),
                iteration: attempt.iteration,
                checks: attempt.results.len(),
                failed,
                converged: attempt.converged,
            },
        );
        if attempt.converged {
            self.failing.remove(&attempt.node);
        } else {
            self.failing.insert(attempt.node.clone(), attempt.clone());
        }
        let mut attempt = attempt.clone();
        attempt.results.iter_mut().for_each(|result| result.tail = None);
        self.attempts.push(Attempted { at, attempt });
    }

    fn session_over(&mut self, s: &SessionEnded) {
        self.last_sessions.insert(s.node.clone(), s.clone());
        if let Some(turn) = self.open.get_mut(&s.node).filter(|t| t.iteration == s.iteration) {
            turn.session = Some(s.clone());
        }
    }

    fn turn(&mut self, at: Wall, end: &IterationEnd, how: How) {
        let open = self.open.remove(&end.node).filter(|t| t.iteration == end.iteration);
        let mut turn = open.unwrap_or_else(|| Turn {
            node: end.node.clone(),
            iteration: end.iteration,
            began: at,
            cause: Cause::Next,
            session: None,
            end: None,
        });
        turn.end = Some(TurnEnd { how, lasted: end.duration_s, because: end.because.clone() });
        self.row(at, What::Turn(Box::new(turn)));
    }

    fn idle(&mut self, at: Wall, end: &IterationEnd, reason: &str, skipped: bool) {
        self.open.remove(&end.node);
        if let Some(Row { what: What::Idle(row), .. }) = self.timeline.last_mut()
            && row.node == end.node
            && row.reason == reason
        {
            row.last = end.iteration;
            row.count += 1;
            row.skipped += u64::from(skipped);
            row.until = at;
            return;
        }
        let row = Idle {
            node: end.node.clone(),
            reason: reason.to_owned(),
            first: end.iteration,
            last: end.iteration,
            count: 1,
            skipped: u64::from(skipped),
            until: at,
        };
        self.row(at, What::Idle(row));
    }

    fn wait_over(&mut self, at: Moment, node: &NodeName, by: WaitEndedBy) {
        let Some((why, since)) = self.waiting.remove(node) else { return };
        let lasted = at.boot.since(since.boot);
        if self.waits.is_empty() {
            let none = |why: &WaitWhy| Waits { why: *why, count: 0, lasted: Dur::ZERO, woken: 0 };
            self.waits = WaitWhy::ALL.iter().map(none).collect();
        }
        if let Some(waits) = self.waits.iter_mut().find(|w| w.why == why) {
            waits.count += 1;
            waits.lasted = waits.lasted.saturating_add(lasted);
            waits.woken += u64::from(by != WaitEndedBy::Timer);
        }
        let ordinary = matches!(why, WaitWhy::Idle | WaitWhy::Delay | WaitWhy::Backoff | WaitWhy::Error);
        // Idle waits are part of the idle entry. Other usual waits are listed only if they ended early.
        if !ordinary || (by != WaitEndedBy::Timer && why != WaitWhy::Idle) {
            self.row(at.wall, What::Waited { node: node.clone(), why, lasted, by });
        }
    }
}

#[cfg(test)]
mod tests;
