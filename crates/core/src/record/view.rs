//! The view: the fold of a run's events. Status, screen, report and resume read only this, and so does
//! the core itself when it decides, so what was decided can always be seen from the record.

use crate::record::artifacts::Artifacts;
use crate::record::day::DayUse;
use crate::record::event::{
    EndedBy, Event, InputDigest, IterationEnd, NodeCounts, NodeState, Observation, Recorded, RecoveryPlanned,
    Report, ReportKind, RunEnded, RunStarted, SessionEnded, Usage, WaitEndedBy, WaitWhy,
};
use crate::record::ids::{Iteration, NodeIx, NodeName};
use crate::record::notification::{self, NotificationQueue};
use crate::run::attempts::{Attempts, Recoveries, Stopped};
use crate::run::circuit::Failures;
use crate::run::ending::Ending;
use crate::run::idle::IdleStreak;
use crate::run::recovery::Action;
use crate::time::dur::Dur;
use crate::time::moment::{Awake, Boot, Moment, Wall};
use crate::time::watched::WatchedTime;
use crate::watch::health::{Asking, Health, Retrying};
use crate::watch::{Channel, Fact, StopReason};
use std::collections::BTreeMap;

mod node;

/// A run as its record tells it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    pub started: Option<RunStarted>,
    pub began: Moment,
    /// Number and moment of the last event.
    pub seq: u64,
    pub last: Moment,
    pub nodes: Vec<NodeView>,
    by_name: BTreeMap<NodeName, usize>,
    /// Supervised time of earlier processes of this run, and where the present one began.
    time_before: Dur,
    segment: Boot,
    /// How long it has lasted for its ceiling.
    pub watched: WatchedTime,
    pub paused: bool,
    /// What people said that no prompt has carried yet.
    pub told: Vec<String>,
    pub troubles: u64,
    pub last_trouble: Option<(String, String)>,
    /// Agents that cannot work just now, by their command line, and until when; without a time for good.
    pub resting: BTreeMap<String, Option<Wall>>,
    /// What all runs of the project had used today when it was last told, and what sessions of this one have since.
    day: Option<DayUse>,
    since_told: Used,
    pub ended: Option<RunEnded>,
    /// Of what somebody is to be told, and has been.
    pub news: NotificationQueue,
}

/// A node as the record tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    pub name: NodeName,
    pub state: NodeState,
    /// Why it came into that state.
    pub reason: Option<String>,
    /// The last number given to an iteration.
    pub iteration: Iteration,
    pub counts: Counts,
    pub doing: Doing,
    /// The wait that a pause has put off: why, how long it was to be, until when.
    pub put_off: Option<(WaitWhy, Dur, Wall)>,
    pub failures: Failures,
    pub spell: IdleStreak,
    pub attempts: Attempts,
    pub recovery: Recoveries,
    /// Time it was under way in earlier processes of this run, and where the present stretch began.
    time_before: Dur,
    under_way: Option<Boot>,
    /// How long it was under way for its ceiling.
    pub watched: WatchedTime,
    /// Which agent of its chain worked last.
    pub agent: u32,
    /// Its own worktree: where, and on which branch.
    pub worktree: Option<(String, String)>,
    /// The worktree was there when this supervisor looked. While nobody supervises, people tidy up.
    pub worktree_found: bool,
    /// The work tree as it was kept last.
    pub snapshot: Option<String>,
    /// The iteration of that snapshot.
    pub kept: Option<Iteration>,
    /// How long the open iteration had lasted when its supervisor was lost.
    pub lost_after: Option<Dur>,
    /// What its agent prints is known, so that talk can be told from work.
    structured: bool,
    /// How long the session of the current iteration lasted, once it has.
    session: Dur,
    /// What the sessions so far have used, and what the present one has.
    pub used: Used,
    pub using: Usage,
    /// The agent's own session that was last told of, and what it was charged: many of ours may be one of its.
    charged: (Option<String>, Used),
    /// How often in a row a service has refused without saying for how long.
    pub refusals: u32,
    /// What ails the present session.
    pub condition: Health,
    pub last_session: Option<SessionEnded>,
    pub last_end: Option<IterationEnd>,
    /// How the last iteration ended that is not open any more.
    pub last_ending: Option<Ending>,
    /// When the present iteration began, if one is open.
    pub open: Option<Awake>,
    /// A wake that came while there was no wait to end.
    pub wake: Option<WaitEndedBy>,
    /// What this iteration's agent was about to see.
    pub sight: Option<InputDigest>,
    /// The last sign of work, of whichever session.
    pub last_seen: Option<LastSeen>,
    /// What the agent told of its progress in this iteration, beside its output.
    pub reported: Option<Report>,
    /// Files that its agents saved.
    pub artifacts: Artifacts,
}

/// A sign of work: where it was seen, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSeen {
    pub channel: Channel,
    pub at: Wall,
}

/// How the iterations ended so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that count against `-n` and the budget: all but interrupted and rate-limited ones.
    pub iterations: u64,
    /// Idle ones included.
    pub completed: u64,
    pub idle: u64,
    pub failed: u64,
    pub timed_out: u64,
    pub interrupted: u64,
}

/// What sessions have used. Cost that some session did not tell is unknown, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    pub tokens: u64,
    pub cost_usd: f64,
    /// Sessions that did not say.
    pub unknown_tokens: u64,
    pub unknown_cost: u64,
}

impl Used {
    pub fn plus(self, other: Used) -> Used {
        Used {
            tokens: self.tokens.saturating_add(other.tokens),
            cost_usd: self.cost_usd + other.cost_usd,
            unknown_tokens: self.unknown_tokens.saturating_add(other.unknown_tokens),
            unknown_cost: self.unknown_cost.saturating_add(other.unknown_cost),
        }
    }

    fn add(&mut self, s: &SessionEnded) {
        match s.tokens {
            Some(n) => self.tokens = self.tokens.saturating_add(n),
            None => self.unknown_tokens += 1,
        }
        match s.cost_usd {
            Some(c) => self.cost_usd += c,
            None => self.unknown_cost += 1,
        }
    }
}

/// What a node is at.
#[derive(Clone, Debug, PartialEq)]
pub enum Doing {
    Nothing,
    Preparing,
    /// The checks decide.
    Checking,
    Working {
        pid: u32,
        since: Awake,
        messages: u64,
        last_output: Option<Awake>,
    },
    /// A pause has no end.
    Waiting {
        why: WaitWhy,
        delay: Dur,
        until: Option<Wall>,
    },
}

impl View {
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a Recorded>) -> View {
        let mut view = View::default();
        for event in events {
            view.apply(event);
        }
        view
    }

    pub fn node(&self, ix: NodeIx) -> &NodeView {
        &self.nodes[ix.0]
    }

    /// An idle limit stopped it, and it waits to be woken.
    pub fn is_asleep(&self) -> bool {
        let asleep = |doing: &Doing| matches!(doing, Doing::Waiting { why: WaitWhy::Asleep, .. });
        self.ended.is_none() && self.nodes.iter().any(|node| asleep(&node.doing))
    }

    pub fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// Time this run was supervised, up to `now`.
    pub fn supervised(&self, now: Boot) -> Dur {
        self.time_before.saturating_add(now.since(self.segment))
    }

    /// What all sessions have used, the present ones included.
    pub fn spent(&self) -> Used {
        self.nodes.iter().fold(Used::default(), |sum, n| Used {
            tokens: sum.tokens + n.used.tokens + n.using.tokens.unwrap_or(0),
            cost_usd: sum.cost_usd + n.used.cost_usd + n.using.cost_usd.unwrap_or(0.0),
            unknown_tokens: sum.unknown_tokens + n.used.unknown_tokens,
            unknown_cost: sum.unknown_cost + n.used.unknown_cost,
        })
    }

    /// What all runs of the project have used today, the present sessions of this one included; nothing is known of a
    /// day that has just begun.
    pub fn spent_today(&self, now: Wall) -> Option<Used> {
        let day = self.day.filter(|day| day.since <= now && now < day.until)?;
        let open = self.nodes.iter().map(|n| Used {
            tokens: n.using.tokens.unwrap_or(0),
            cost_usd: n.using.cost_usd.unwrap_or(0.0),
            ..Used::default()
        });
        Some(open.fold(day.used().plus(self.since_told), Used::plus))
    }

    /// Whether the last word on this day's use is still the whole of it.
    pub fn knows_day(&self, day: &DayUse) -> bool {
        self.day == Some(*day) && self.since_told == Used::default()
    }

    /// How long the node has lasted for its ceiling.
    pub fn node_watched(&self, node: &NodeName, now: Awake) -> Dur {
        self.by_name.get(node).map_or(Dur::ZERO, |ix| self.nodes[*ix].watched.lasted(now))
    }

    /// Whether the node's last iteration was refused by a service.
    pub fn is_limited(&self, node: &NodeName) -> bool {
        let node = self.by_name.get(node).map(|ix| &self.nodes[*ix]);
        node.is_some_and(|n| matches!(n.last_ending, Some(Ending::RateLimited { .. })))
    }

    /// All nodes' counts in one.
    pub fn totals(&self) -> Counts {
        self.nodes.iter().fold(Counts::default(), |sum, n| Counts {
            iterations: sum.iterations + n.counts.iterations,
            completed: sum.completed + n.counts.completed,
            idle: sum.idle + n.counts.idle,
            failed: sum.failed + n.counts.failed,
            timed_out: sum.timed_out + n.counts.timed_out,
            interrupted: sum.interrupted + n.counts.interrupted,
        })
    }

    pub fn node_counts(&self) -> NodeCounts {
        let count = |state| self.nodes.iter().filter(|n| n.state == state).count() as u64;
        NodeCounts {
            done: count(NodeState::Done),
            failed: count(NodeState::Failed),
            blocked: count(NodeState::Blocked),
        }
    }

    pub fn apply(&mut self, recorded: &Recorded) {
        let at = recorded.moment();
        let fresh = notification::of_event(recorded, self);
        self.news.apply(&recorded.event, fresh);
        match &recorded.event {
            Event::RunStarted(s) => self.start(at, s),
            Event::RunResumed(_) => self.resume(at),
            Event::NodeTransition { node, to, reason, .. } => {
                self.on(node, |n| n.change(at, *to, reason.clone()));
            }
            Event::IterationStarted { node, iteration, .. } => {
                self.on(node, |n| n.begin(at.awake, *iteration))
            }
            Event::CommandFinished(_) | Event::MarkerSeen { .. } => {}
            Event::PromptAssembled { node, sight, .. } => {
                self.told.clear();
                self.on(node, |n| n.sight = sight.clone());
            }
            Event::SessionStarted { node, pid, agent, .. } => {
                let doing = Doing::Working { pid: *pid, since: at.awake, messages: 0, last_output: None };
                self.on(node, |n| {
                    n.doing = doing;
                    n.condition = Health::default();
                    n.agent = *agent;
                    n.recovery.due = None;
                    // What changed before the agent began it can see.
                    n.wake = None;
                });
            }
            Event::Observed { node, seen, .. } => self.on(node, |n| n.observe(at, seen)),
            Event::AgentReported { node, iteration, report } => match report.kind {
                ReportKind::Progress => self.on(node, |n| n.reported = Some(report.clone())),
                ReportKind::Artifact => {
                    let bytes = report.bytes.unwrap_or(0);
                    self.on(node, |n| n.artifacts.add(*iteration, &report.text, bytes));
                }
                ReportKind::State | ReportKind::Error | ReportKind::Checks | ReportKind::Server => {}
            },
            Event::HardStop { node, iteration, reason, message, evidence_summary, .. } => {
                let silent = matches!(reason, StopReason::NoOutputAtStart | StopReason::NoOutputDeadline);
                let mut stopped = Stopped {
                    iteration: *iteration,
                    reason: *reason,
                    message: message.clone(),
                    evidence: evidence_summary.clone(),
                    refused: None,
                };
                self.on(node, |n| {
                    stopped.refused = n.condition.refused().filter(|_| silent);
                    n.recovery.stopped(stopped);
                });
            }
            Event::SessionSignalled { .. } | Event::Notice { .. } => {}
            Event::DayUsed(day) => {
                self.day = Some(*day);
                self.since_told = Used::default();
            }
            Event::SessionEnded(s) => {
                self.since_told.add(s);
                self.on(&s.node, |n| n.session_over(s));
            }
            Event::IterationCompleted(end) => self.on(&end.node, |n| n.completed(end)),
            Event::IterationIdle { end, reason, skipped, .. } => {
                self.on(&end.node, |n| n.idled(at.boot, end, reason, *skipped));
            }
            Event::IterationFailed(end) => self.on(&end.node, |n| n.failed(at.boot, end, Ending::Failed)),
            Event::IterationAuthFailed(end) => {
                self.on(&end.node, |n| n.failed(at.boot, end, Ending::AuthFailed))
            }
            Event::IterationTimedOut(end) => self.on(&end.node, |n| n.timed_out(end)),
            Event::IterationRateLimited { end, limit, resets_at } => {
                self.on(&end.node, |n| n.limited(end, *limit, *resets_at));
            }
            Event::Used { node, usage, .. } => self.on(node, |n| n.using = *usage),
            // A tool's start or end is progress, too; a heartbeat is not.
            Event::Fact { fact, .. } if fact.is_heartbeat() => {}
            Event::Fact { node, fact: fact @ (Fact::ToolStarted(_) | Fact::ToolEnded { .. }), .. } => {
                self.on(node, |n| {
                    n.observe(at, &Observation::single(Channel::Stdout, at.awake));
                    if matches!(fact, Fact::ToolEnded { ok: true, .. }) {
                        n.recovery.progressed();
                    }
                });
            }
            Event::NeedsHuman { node, what, until, .. } => {
                let asking = Asking { what: what.clone(), until: *until };
                self.on(node, |n| n.condition.asking = Some(asking));
            }
            Event::NeedsHumanEnded { node, .. } => self.on(node, |n| n.condition.asking = None),
            Event::AgentRetrying { node, status, delay_s, .. } => {
                let retrying = Retrying { since: at.awake, status: *status, delay: *delay_s };
                self.on(node, |n| n.condition.retrying = Some(retrying));
            }
            Event::AgentDrifted { node, .. } => self.on(node, |n| n.condition.drifted = true),
            Event::WorktreeReady { node, path, branch } => {
                self.on(node, |n| {
                    n.worktree = Some((path.clone(), branch.clone()));
                    n.worktree_found = true;
                });
            }
            Event::ChecksPinned { node, files } => {
                self.on(node, |n| n.attempts.pins = Some(files.clone()));
            }
            Event::ChecksStarted { node, .. } => self.on(node, |n| {
                n.doing = Doing::Checking;
                n.attempts.tampered.clear();
            }),
            Event::CheckTampered { node, files, .. } => {
                self.on(node, |n| n.attempts.tampered = files.clone());
            }
            Event::NodeAttempt(a) => self.on(&a.node, |n| n.attempts.add(a)),
            Event::RecoveryPlanned(plan) => self.plan_recovery(plan),
            Event::PartialKept { .. } => {}
            Event::SnapshotTaken { node, name, iteration, .. } => self.on(node, |n| {
                n.snapshot = Some(name.clone());
                n.kept = Some(*iteration);
            }),
            Event::Suspended { for_s, unwatched: true } => {
                self.watched.take_out(*for_s);
                self.nodes.iter_mut().for_each(|n| n.watched.take_out(*for_s));
            }
            Event::Suspended { unwatched: false, .. } => {}
            Event::Fact { .. } | Event::WatchdogContinue { .. } => {}
            Event::IterationInterrupted { end, .. } => self.on(&end.node, |n| {
                n.counts.interrupted += 1;
                n.over(end, Ending::Interrupted { by: EndedBy::Operator });
            }),
            Event::WaitStarted { node, why, delay_s, until } => {
                self.on(node, |n| n.wait(*why, *delay_s, *until))
            }
            Event::WaitEnded { node, by } => self.on(node, |n| n.wait_over(*by)),
            Event::RunSlept { .. } => {}
            Event::WakeRemembered { node, by } => self.on(node, |n| n.wake = Some(*by)),
            Event::Paused {} => self.paused = true,
            Event::Unpaused {} => self.paused = false,
            Event::Told { text } => self.told.push(text.clone()),
            Event::Trouble { kind, detail } => {
                self.troubles += 1;
                self.last_trouble = Some((kind.clone(), detail.clone()));
            }
            Event::Notified { .. } => {}
            Event::RunEnded(end) => self.ended = Some(end.clone()),
            Event::Unknown => {}
        }
        self.seq = recorded.seq;
        self.last = at;
    }

    fn start(&mut self, at: Moment, s: &RunStarted) {
        self.began = at;
        self.segment = at.boot;
        self.watched.start(at.awake);
        self.nodes = s.nodes.iter().map(NodeView::new).collect();
        for (node, plan) in self.nodes.iter_mut().zip(&s.settings.nodes) {
            node.structured = plan.settings.reader.is_structured();
        }
        self.by_name = s.nodes.iter().enumerate().map(|(i, n)| (n.clone(), i)).collect();
        self.started = Some(s.clone());
    }

    /// Time between the last event of the dead process and now was not supervised.
    fn resume(&mut self, at: Moment) {
        self.time_before = self.supervised(self.last.boot);
        self.watched.resume(self.last.awake, at.awake);
        for node in &mut self.nodes {
            node.spell.before = node.spell.lasted(self.last.boot);
            node.spell.since = node.spell.since.map(|_| at.boot);
            let lasted = node.open.map(|began| self.last.awake.since(began));
            node.lost_after = node.lost_after.or(lasted);
            node.doing = Doing::Nothing;
            node.condition = Health::default();
            node.worktree_found = false;
            node.time_before = node.lasted(self.last.boot);
            node.under_way = node.under_way.map(|_| at.boot);
            node.watched.resume(self.last.awake, at.awake);
        }
        self.segment = at.boot;
        self.ended = None;
    }

    /// An agent that was sent to rest rests for all nodes; the next one begins afresh.
    fn plan_recovery(&mut self, plan: &RecoveryPlanned) {
        if let Some(agent) = &plan.agent {
            self.resting.insert(agent.clone(), plan.until);
        }
        self.on(&plan.node, |n| {
            n.recovery.planned(plan);
            if plan.action == Action::NextAgent {
                n.failures.clear();
                n.refusals = 0;
            }
        });
    }

    /// Nodes that converged, but not at the first try.
    pub fn flakes(&self) -> u64 {
        self.nodes.iter().filter(|n| n.attempts.flaked()).count() as u64
    }

    /// Whether an agent rests at this time of day, and until when.
    pub fn rests(&self, agent: &str, now: Wall) -> Option<Option<Wall>> {
        self.resting.get(agent).copied().filter(|until| until.is_none_or(|u| now < u))
    }

    /// Events of a node that the run does not have are passed over: the record may be newer than we.
    fn on(&mut self, name: &NodeName, change: impl FnOnce(&mut NodeView)) {
        if let Some(ix) = self.by_name.get(name) {
            change(&mut self.nodes[*ix]);
        }
    }
}
