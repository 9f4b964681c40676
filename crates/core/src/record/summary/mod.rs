//! The story of a run: what a person wants to know the morning after, as a fold of its events. `report` writes
//! it down; nothing decides by it.
//!
//! It is bounded whatever the length of the night: of every list the first and the last entries are kept and
//! what lies between is counted, and a row of idle turns is one entry.

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

/// A run, told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSummary {
    pub view: View,
    pub timeline: Ends<Row>,
    pub verdicts: Ends<Judged>,
    pub snapshots: Ends<Kept>,
    pub troubles: Ends<Row>,
    /// The checks of each iteration that had some, without the ends of their output.
    pub attempts: Ends<Attempted>,
    /// The last failed attempt of each node that has not converged since.
    pub failing: BTreeMap<NodeName, NodeAttempt>,
    /// The last file of each node with what there is of a work that will not be finished.
    pub partials: BTreeMap<NodeName, Partial>,
    /// One for each reason, in the order of [`WaitWhy::ALL`].
    pub waits: Vec<Waits>,
    /// The last session of each node that said something, or failed.
    pub last_words: BTreeMap<NodeName, SessionEnded>,
    /// Turns that have begun and not ended.
    pub open: BTreeMap<NodeName, Turn>,
    waiting: BTreeMap<NodeName, (WaitWhy, Moment)>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub at: Wall,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    Started,
    Resumed,
    /// An iteration that ended.
    Turn(Box<Turn>),
    /// A row of idle iterations of one node with one reason.
    Idle(Idle),
    HardStop {
        node: NodeName,
        iteration: Iteration,
        reason: StopReason,
        message: String,
    },
    /// A wait that is worth a line: not one between any two iterations.
    Waited {
        node: NodeName,
        why: WaitWhy,
        lasted: Dur,
        by: WaitEndedBy,
    },
    /// The checks of an iteration, and how many of them failed.
    Checked {
        node: NodeName,
        iteration: Iteration,
        checks: usize,
        failed: usize,
        converged: bool,
    },
    /// Files that the checks rest on are not what they were.
    Tampered {
        node: NodeName,
        iteration: Iteration,
        files: Vec<String>,
    },
    Recovery(Box<RecoveryPlanned>),
    Partial {
        node: NodeName,
        iteration: Iteration,
        file: String,
    },
    Node {
        node: NodeName,
        to: NodeState,
        reason: Option<String>,
    },
    Suspended {
        lasted: Dur,
    },
    Told {
        text: String,
    },
    Paused,
    Unpaused,
    Notice {
        message: String,
    },
    Trouble {
        kind: String,
        detail: String,
    },
    Ended(Box<RunEnded>),
}

/// One iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    pub node: NodeName,
    pub iteration: Iteration,
    pub began: Wall,
    pub cause: Cause,
    /// None when the agent was not called, or has not ended.
    pub session: Option<SessionEnded>,
    pub end: Option<TurnEnd>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TurnEnd {
    pub how: How,
    pub lasted: Dur,
    pub because: String,
}

words! {
    /// How an iteration ended, in the words of its event.
    How {
        Completed = "completed", Idle = "idle", Failed = "failed", TimedOut = "timed_out",
        RateLimited = "rate_limited", AuthFailed = "auth_failed", Interrupted = "interrupted",
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Idle {
    pub node: NodeName,
    pub reason: String,
    pub first: Iteration,
    pub last: Iteration,
    pub count: u64,
    /// Those in which no agent was called.
    pub skipped: u64,
    pub until: Wall,
}

/// A verdict with what it rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    pub at: Wall,
    pub node: NodeName,
    pub iteration: Iteration,
    pub verdict: Judgement,
    pub evidence: Vec<Evidence>,
    pub active_channel: Option<Channel>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// Silence alone would have ended it.
    Deferred {
        by: Channel,
    },
    HardStop {
        reason: StopReason,
        message: String,
        recoverable: bool,
    },
}

/// The checks of an iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempted {
    pub at: Wall,
    pub attempt: NodeAttempt,
}

/// Where what there is of a work lies.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial {
    pub iteration: Iteration,
    /// In the run's directory.
    pub file: String,
    pub snapshot: Option<String>,
}

/// A snapshot that was taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub at: Wall,
    pub node: NodeName,
    pub iteration: Iteration,
    pub name: String,
    pub files: u64,
    pub skipped: u64,
}

/// All waits for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    pub why: WaitWhy,
    pub count: u64,
    /// By the boot clock; of one that a killed dogwatch left, nothing.
    pub lasted: Dur,
    /// Those that did not end by their timer.
    pub woken: u64,
}

impl RunSummary {
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a Recorded>) -> RunSummary {
        let mut story = RunSummary::default();
        for event in events {
            story.apply(event);
        }
        story
    }

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
            Event::Told { text } => self.row(at, What::Told { text: text.clone() }),
            Event::Paused {} => self.row(at, What::Paused),
            Event::Unpaused {} => self.row(at, What::Unpaused),
            Event::Notice { message, .. } => self.row(at, What::Notice { message: message.clone() }),
            Event::Trouble { kind, detail } => {
                let what = What::Trouble { kind: kind.clone(), detail: detail.clone() };
                self.troubles.push(Row { at, what: what.clone() });
                self.row(at, what);
            }
            Event::RunEnded(end) => self.row(at, What::Ended(Box::new(end.clone()))),
            // The rest is told by what it led to.
            _ => {}
        }
    }

    /// Hard stops among the verdicts that are kept.
    pub fn hard_stops(&self) -> impl Iterator<Item = &Judged> {
        self.verdicts.iter().filter(|v| matches!(v.verdict, Judgement::HardStop { .. }))
    }

    fn row(&mut self, at: Wall, what: What) {
        self.timeline.push(Row { at, what });
    }

    /// What was open when the dogwatch before died stays open in nobody's hands.
    fn resumed(&mut self, at: Wall) {
        self.waiting.clear();
        self.row(at, What::Resumed);
    }

    /// A node that goes from one piece of work to the next is told by its iterations.
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
        self.last_words.insert(s.node.clone(), s.clone());
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
        // An idle row goes on over its waits; what ended one early is worth knowing.
        if !ordinary || (by != WaitEndedBy::Timer && why != WaitWhy::Idle) {
            self.row(at.wall, What::Waited { node: node.clone(), why, lasted, by });
        }
    }
}

#[cfg(test)]
mod tests;
