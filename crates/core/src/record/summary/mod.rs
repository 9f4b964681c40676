//! The summary of a run: a fold of its events that `report` prints. No decision depends on it.
//!
//! Its size is bounded. Every list keeps its first and last entries and counts the rest, and consecutive idle iterations
//! are one entry.

mod ends;

pub use ends::{Ends, MAX_FIRST, MAX_LAST};

use crate::record::event::{
    Cause, EndingKind, Event, IterationEnd, NodeAttempt, NodeState, Recorded, SessionEnded, WaitEndedBy,
    WaitWhy,
};
use crate::record::ids::{Iteration, NodeName};
use crate::record::view::View;
use crate::record::words::{self, Sentence, Style};
use crate::text::one_line;
use crate::time::dur::Dur;
use crate::time::moment::{Moment, Wall};
use crate::watch::{Channel, Evidence, StopReason};
use std::collections::BTreeMap;

/// The most bytes of the last line of a check's output.
const MAX_LAST_LINE: usize = 200;

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
    /// The results of the checks, with the last line of their output.
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
    waiting: BTreeMap<NodeName, (WaitWhy, Moment, Option<Dur>)>,
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
    /// A single event, in words.
    Event {
        /// The node of the event, if it has one.
        node: Option<NodeName>,
        /// The iteration of the event, if it has one.
        iteration: Option<Iteration>,
        /// The event as a sentence.
        sentence: Sentence,
    },
    /// An iteration ended.
    Turn(Box<Turn>),
    /// Consecutive idle iterations of one node with the same reason.
    Idle(Idle),
    /// A wait other than the usual ones between two iterations.
    Waited {
        /// The node's name.
        node: NodeName,
        /// Why it waited.
        why: WaitWhy,
        /// How long it waited.
        lasted: Dur,
        /// What ended the wait.
        by: WaitEndedBy,
    },
}

/// An iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// The node's name.
    pub node: NodeName,
    /// The iteration's number, from 1.
    pub iteration: Iteration,
    /// When it started.
    pub began: Wall,
    /// Why it started.
    pub cause: Cause,
    /// Whether a session started.
    pub called: bool,
    /// The session; `None` if the agent was not called or the end of its session is not recorded.
    pub session: Option<SessionEnded>,
    /// How it ended; `None` while it is open.
    pub end: Option<TurnEnd>,
}

impl Turn {
    fn new(began: Wall, node: &NodeName, iteration: Iteration, cause: Cause) -> Turn {
        Turn { node: node.clone(), iteration, began, cause, called: false, session: None, end: None }
    }
}

/// The end of an iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnEnd {
    /// The kind of ending.
    pub how: EndingKind,
    /// How long the iteration lasted.
    pub lasted: Dur,
    /// Why it has this ending.
    pub because: String,
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
    /// When it happened.
    pub at: Wall,
    /// The node's name.
    pub node: NodeName,
    /// The iteration's number, from 1.
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
    Deferred {
        /// The channel whose evidence deferred the stop.
        by: Channel,
    },
    /// The session was stopped.
    HardStop {
        /// The rule that fired.
        reason: StopReason,
        /// The reason as a sentence for people.
        message: String,
        /// Whether another attempt makes sense.
        recoverable: bool,
    },
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
    /// When it happened.
    pub at: Wall,
    /// The node's name.
    pub node: NodeName,
    /// The iteration's number, from 1.
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
    /// Their planned length. `None` if none had one, as a pause.
    pub planned: Option<Dur>,
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
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the other events show in the entries that follow from them"
    )]
    pub fn apply(&mut self, recorded: &Recorded) {
        self.view.apply(recorded);
        let at = recorded.at;
        let event = &recorded.event;
        if let Some((how, end)) = event.ending()
            && how != EndingKind::Idle
        {
            return self.turn(at, end, how);
        }
        match event {
            Event::RunResumed(_) => {
                // The ends of these waits were not recorded when the supervisor was lost.
                self.waiting.clear();
                self.row(at, event);
            }
            // The other transitions show in the iterations.
            Event::NodeTransition {
                to: NodeState::Done | NodeState::Failed | NodeState::Blocked, ..
            } => {
                self.row(at, event);
            }
            Event::IterationStarted { node, iteration, cause } => {
                let turn = Turn::new(at, node, *iteration, *cause);
                self.open.insert(node.clone(), turn);
            }
            Event::WatchdogContinue { deferred_by, evidence_summary, active_channel, .. } => {
                let verdict = Judgement::Deferred { by: *deferred_by };
                self.judged(at, event, verdict, evidence_summary, *active_channel);
            }
            Event::HardStop { reason, message, evidence_summary, active_channel, recoverable, .. } => {
                let (reason, recoverable) = (*reason, *recoverable);
                let verdict = Judgement::HardStop { reason, message: message.clone(), recoverable };
                self.judged(at, event, verdict, evidence_summary, *active_channel);
                self.row(at, event);
            }
            Event::SessionStarted { node, iteration, .. } => {
                if let Some(turn) = self.open.get_mut(node).filter(|t| t.iteration == *iteration) {
                    turn.called = true;
                }
            }
            Event::SessionEnded(s) => self.session_over(s),
            Event::SnapshotTaken { node, iteration, name, files, skipped, .. } => self.snapshots.push(Kept {
                at,
                node: node.clone(),
                iteration: *iteration,
                name: name.clone(),
                files: *files,
                skipped: *skipped,
            }),
            Event::NodeAttempt(attempt) => {
                self.row(at, event);
                self.attempted(at, attempt);
            }
            Event::PartialKept { node, iteration, file, snapshot } => {
                let (file, snapshot) = (file.clone(), snapshot.clone());
                self.partials.insert(node.clone(), Partial { iteration: *iteration, file, snapshot });
                self.row(at, event);
            }
            Event::IterationIdle { end, reason, skipped, .. } => self.idle(at, end, reason, *skipped),
            Event::WaitStarted { node, why, delay_s, .. } => {
                self.waiting.insert(node.clone(), (*why, recorded.moment(), *delay_s));
            }
            Event::WaitEnded { node, by } => self.wait_over(recorded.moment(), node, *by),
            Event::Trouble { .. } => {
                self.troubles.push(entry(at, event));
                self.row(at, event);
            }
            Event::RunStarted(_)
            | Event::CheckTampered { .. }
            | Event::VerdictLabeled { .. }
            | Event::RecoveryPlanned(_)
            | Event::MergeConflicted { .. }
            | Event::Suspended { .. }
            | Event::MessageReceived { .. }
            | Event::Paused {}
            | Event::Unpaused {}
            | Event::Notice { .. } => self.row(at, event),
            Event::RunEnded(_) => {
                // The end of a run ends its waits without an event.
                for node in self.waiting.keys().cloned().collect::<Vec<_>>() {
                    self.add_wait(recorded.moment(), &node, true);
                }
                self.row(at, event);
            }
            // The other events show in the entries that follow from them.
            _ => {}
        }
    }

    /// Returns the hard stops among the kept verdicts.
    pub fn hard_stops(&self) -> impl Iterator<Item = &Judged> {
        self.verdicts.iter().filter(|v| matches!(v.verdict, Judgement::HardStop { .. }))
    }

    fn row(&mut self, at: Wall, event: &Event) {
        self.timeline.push(entry(at, event));
    }

    fn judged(
        &mut self,
        at: Wall,
        event: &Event,
        verdict: Judgement,
        evidence: &[Evidence],
        active_channel: Option<Channel>,
    ) {
        let (Some(node), Some(iteration)) = (event.node().cloned(), event.iteration()) else { return };
        self.verdicts.push(Judged {
            at,
            node,
            iteration,
            verdict,
            evidence: evidence.to_vec(),
            active_channel,
        });
    }

    fn attempted(&mut self, at: Wall, attempt: &NodeAttempt) {
        if attempt.converged {
            self.failing.remove(&attempt.node);
        } else {
            self.failing.insert(attempt.node.clone(), attempt.clone());
        }
        let mut attempt = attempt.clone();
        for result in &mut attempt.results {
            let last =
                result.tail.as_deref().and_then(|tail| tail.lines().rfind(|line| !line.trim().is_empty()));
            result.tail = last.map(|line| one_line(line, MAX_LAST_LINE));
        }
        self.attempts.push(Attempted { at, attempt });
    }

    fn session_over(&mut self, s: &SessionEnded) {
        self.last_sessions.insert(s.node.clone(), s.clone());
        if let Some(turn) = self.open.get_mut(&s.node).filter(|t| t.iteration == s.iteration) {
            turn.session = Some(s.clone());
        }
    }

    fn turn(&mut self, at: Wall, end: &IterationEnd, how: EndingKind) {
        let open = self.open.remove(&end.node).filter(|t| t.iteration == end.iteration);
        let mut turn = open.unwrap_or_else(|| Turn::new(at, &end.node, end.iteration, Cause::Next));
        turn.end = Some(TurnEnd { how, lasted: end.duration_s, because: end.because.clone() });
        self.timeline.push(Row { at, what: What::Turn(Box::new(turn)) });
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
        self.timeline.push(Row { at, what: What::Idle(row) });
    }

    /// Adds a wait that is over to the sums.
    fn add_wait(&mut self, at: Moment, node: &NodeName, early: bool) -> Option<(WaitWhy, Dur)> {
        let (why, since, planned) = self.waiting.remove(node)?;
        let lasted = at.boot.since(since.boot);
        if self.waits.is_empty() {
            let none =
                |why: &WaitWhy| Waits { why: *why, count: 0, lasted: Dur::ZERO, planned: None, woken: 0 };
            self.waits = WaitWhy::ALL.iter().map(none).collect();
        }
        if let Some(waits) = self.waits.iter_mut().find(|w| w.why == why) {
            waits.count += 1;
            waits.lasted = waits.lasted.saturating_add(lasted);
            waits.planned = match (waits.planned, planned) {
                (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
                (sum, more) => sum.or(more),
            };
            waits.woken += u64::from(early);
        }
        Some((why, lasted))
    }

    fn wait_over(&mut self, at: Moment, node: &NodeName, by: WaitEndedBy) {
        let Some((why, lasted)) = self.add_wait(at, node, by != WaitEndedBy::Timer) else { return };
        let ordinary = matches!(why, WaitWhy::Idle | WaitWhy::Delay | WaitWhy::Backoff | WaitWhy::Error);
        // Idle waits are part of the idle entry. Other usual waits are listed only if they ended early.
        if !ordinary || (by != WaitEndedBy::Timer && why != WaitWhy::Idle) {
            let what = What::Waited { node: node.clone(), why, lasted, by };
            self.timeline.push(Row { at: at.wall, what });
        }
    }
}

fn entry(at: Wall, event: &Event) -> Row {
    let sentence = words::sentence(event, Style::Full);
    Row { at, what: What::Event { node: event.node().cloned(), iteration: event.iteration(), sentence } }
}

#[cfg(test)]
mod tests;
