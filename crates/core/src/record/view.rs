//! The view: the fold of a run's events. The status, the screen, the report and resume read only the view. The core also
//! decides by it, so every decision can be explained from the record.

use crate::record::day::DayUse;
use crate::record::event::{
    Event, NodeCounts, NodeState, Recorded, RecoveryPlanned, RunEnded, RunResumed, RunStarted,
    STOP_WITHDRAWN, STOPPING, SessionEnded, WaitWhy,
};
use crate::record::ids::{NodeIx, NodeName};
use crate::record::notification::{self, NotificationQueue};
use crate::record::prices::MAX_MODELS;
use crate::record::windows::{AccountWindows, MAX_ACCOUNTS, WindowsUsed};
use crate::run::ending::Ending;
use crate::run::job::Conflict;
use crate::run::recovery::Action;
use crate::settings::Strategy;
use crate::time::dur::Dur;
use crate::time::moment::{Awake, Boot, Moment, Wall};
use crate::time::watched::WatchedTime;
use crate::watch::health::{Asking, Health, HealthIssue};
use std::collections::{BTreeMap, BTreeSet};

mod figures;
mod loss;
mod node;

pub use figures::{Counts, Doing, LastSeen, Used};
pub use node::{
    CurrentIteration, LastIteration, NodeTime, NodeUsage, NodeView, NodeWaits, NodeWork, SessionView,
};

/// The state of a run, folded from its events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// The first event.
    pub started: Option<RunStarted>,
    /// When the run started.
    pub began: Moment,
    /// The number of the last event.
    pub seq: u64,
    /// The time of the last event.
    pub last: Moment,
    /// The nodes, in the order of `run_started`.
    pub nodes: Vec<NodeView>,
    by_name: BTreeMap<NodeName, usize>,
    /// The node whose session ended last.
    last_heard: Option<usize>,
    /// The nodes that learn when their work arrives.
    learners: Vec<usize>,
    /// The time that earlier supervisors of this run supervised it.
    time_before: Dur,
    /// When the current supervisor started.
    segment: Boot,
    /// How long the run has lasted for its ceiling.
    pub watched: WatchedTime,
    /// Whether the run is paused.
    pub paused: bool,
    /// Whether the run stops after the current iteration, on request.
    pub stopping: bool,
    /// The commit on which new branches of nodes start.
    pub base: Option<String>,
    /// Operator messages that no prompt has contained yet.
    pub pending_messages: Vec<String>,
    /// The number of problems recorded.
    pub troubles: u64,
    /// The kind and the details of the last problem.
    pub last_trouble: Option<(String, String)>,
    /// The agents that are set aside, by command line, and until when. `None` means for the rest of the run.
    pub resting: BTreeMap<String, Option<Wall>>,
    /// The windows of the accounts that agents use, as last reported.
    pub windows: BTreeMap<String, AccountWindows>,
    /// Until when the operator wants no agent to be called.
    pub limit: Option<Wall>,
    /// The same for single accounts.
    pub account_limits: BTreeMap<String, Wall>,
    /// The models whose sessions have a number of tokens and no cost. An unknown model is an empty text.
    pub unpriced: BTreeSet<String>,
    /// The date of the price table that costs were computed with last.
    pub prices: Option<String>,
    /// The project's usage today, as last recorded.
    day: Option<DayUse>,
    /// The usage of this run's sessions that ended since then.
    since_day_use: Used,
    /// The end of the run, if it ended.
    pub ended: Option<RunEnded>,
    /// When the supervisor was lost, if a keeper noted it. No event has it before the run is resumed.
    lost_at: Option<Wall>,
    /// The pending and the delivered notifications.
    pub notifications: NotificationQueue,
}

impl View {
    /// Folds a sequence of events into a view.
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a Recorded>) -> View {
        let mut view = View::default();
        for event in events {
            view.apply(event);
        }
        view
    }

    /// Returns a node by its index.
    pub fn node(&self, ix: NodeIx) -> &NodeView {
        &self.nodes[ix.0]
    }

    /// Returns the directory in which a node works.
    pub fn place<'a>(&'a self, node: &'a NodeView) -> &'a str {
        let own = node.work.worktree.as_ref().map(|(path, _)| path.as_str());
        own.or(self.started.as_ref().map(|started| started.work_dir.as_str())).unwrap_or("")
    }

    /// Returns whether an idle limit stopped the run and it waits for a wake.
    pub fn is_asleep(&self) -> bool {
        let asleep = |doing: &Doing| matches!(doing, Doing::Waiting { why: WaitWhy::Asleep, .. });
        self.ended.is_none() && self.nodes.iter().any(|node| asleep(&node.doing))
    }

    /// Returns whether the run ended.
    pub fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns how long the run was supervised, up to `now`.
    pub fn supervised(&self, now: Boot) -> Dur {
        self.time_before.saturating_add(now.since(self.segment))
    }

    /// Returns the usage of all sessions, including the current ones.
    pub fn spent(&self) -> Used {
        self.nodes.iter().fold(Used::default(), |sum, n| Used {
            tokens: sum.tokens + n.usage.ended.tokens + n.usage.current.tokens.unwrap_or(0),
            cost_usd: sum.cost_usd + n.usage.ended.cost_usd + n.usage.current.cost_usd.unwrap_or(0.0),
            unknown_tokens: sum.unknown_tokens + n.usage.ended.unknown_tokens,
            unknown_cost: sum.unknown_cost + n.usage.ended.unknown_cost,
            computed_usd: sum.computed_usd + n.usage.ended.computed_usd + n.usage.current.computed(),
        })
    }

    /// Returns the usage of all runs of the project today, including the current sessions of this run. Returns `None`
    /// if nothing is recorded for today yet.
    pub fn spent_today(&self, now: Wall) -> Option<Used> {
        let day = self.day.filter(|day| day.since <= now && now < day.until)?;
        let open = self.nodes.iter().map(|n| Used {
            tokens: n.usage.current.tokens.unwrap_or(0),
            cost_usd: n.usage.current.cost_usd.unwrap_or(0.0),
            ..Used::default()
        });
        Some(open.fold(day.used().plus(self.since_day_use), Used::plus))
    }

    /// Returns whether this usage is already recorded and no session has ended since.
    pub fn knows_day(&self, day: &DayUse) -> bool {
        self.day == Some(*day) && self.since_day_use == Used::default()
    }

    /// Returns how long the node has been running for its ceiling.
    pub fn node_watched(&self, node: &NodeName, now: Awake) -> Dur {
        self.by_name.get(node).map_or(Dur::ZERO, |ix| self.nodes[*ix].time.watched.lasted(now))
    }

    /// Returns whether a service refused the node's last iteration.
    pub fn is_limited(&self, node: &NodeName) -> bool {
        let node = self.by_name.get(node).map(|ix| &self.nodes[*ix]);
        node.is_some_and(|n| matches!(n.last.ending, Some(Ending::RateLimited { .. })))
    }

    /// Returns the iteration counts of all nodes together.
    pub fn totals(&self) -> Counts {
        self.nodes.iter().map(|node| node.counts).fold(Counts::default(), Counts::plus)
    }

    /// Returns the number of nodes in each final state.
    pub fn node_counts(&self) -> NodeCounts {
        let count = |state| self.nodes.iter().filter(|n| n.state == state).count() as u64;
        NodeCounts {
            done: count(NodeState::Done),
            failed: count(NodeState::Failed),
            blocked: count(NodeState::Blocked),
        }
    }

    /// Applies the next event. The methods of [`NodeView`] apply the changes of a node.
    pub fn apply(&mut self, recorded: &Recorded) {
        let at = recorded.moment();
        let fresh = notification::of_event(recorded, self);
        self.notifications.apply(&recorded.event, fresh);
        match &recorded.event {
            Event::RunStarted(s) => self.start(at, s),
            Event::RunResumed(resumed) => self.resume(at, resumed),
            Event::Paused {} => self.paused = true,
            Event::Unpaused {} => self.paused = false,
            Event::Notice { kind, .. } if kind == STOPPING => self.stopping = true,
            Event::Notice { kind, .. } if kind == STOP_WITHDRAWN => self.stopping = false,
            Event::MessageReceived { text, from } => self.pending_messages.push(from.label(text)),
            Event::Suspended { for_s, unwatched } => self.suspend(*for_s, *unwatched),
            Event::DayUsed(day) => (self.day, self.since_day_use) = (Some(*day), Used::default()),
            Event::WindowsUsed(used) => self.windows_used(used),
            Event::LimitSet { until, account: None } => self.limit = Some(*until),
            Event::LimitSet { until, account: Some(account) } => self.limit_account(account, *until),
            Event::Trouble { kind, detail } => self.note_trouble(kind, detail),
            Event::RunEnded(end) => self.ended = Some(end.clone()),
            Event::NodeTransition { node, to, reason, .. } => self.on(node, |n| n.change(at, *to, reason)),
            Event::IterationStarted { node, iteration, .. } => {
                self.on(node, |n| n.begin(at.awake, *iteration))
            }
            Event::PromptAssembled { node, input_digest, .. } => {
                self.pending_messages.clear();
                self.on(node, |n| n.current.input_digest = input_digest.clone());
            }
            Event::SessionStarted { node, pid, agent, .. } => {
                self.on(node, |n| n.session_started(at.awake, *pid, *agent))
            }
            Event::Observed { node, seen, .. } => self.on(node, |n| n.observe(at, seen)),
            Event::Fact { node, fact, .. } => self.on(node, |n| n.note_fact(at, fact)),
            Event::AgentReported { node, iteration, report } => {
                self.on(node, |n| n.report(*iteration, report))
            }
            Event::Used { node, usage, .. } => self.on(node, |n| n.usage.current = *usage),
            Event::NeedsHuman { node, what, until, .. } => {
                self.on(node, |n| {
                    n.session.health.asking = Some(Asking { what: what.clone(), until: *until })
                });
            }
            Event::NeedsHumanEnded { node, .. } => self.on(node, |n| n.session.health.asking = None),
            Event::AgentRetrying { node, status, delay_s, .. } => {
                let issue = HealthIssue::Retrying { status: *status, delay: *delay_s };
                self.on(node, |n| n.session.health.found(at.awake, issue));
            }
            Event::AgentDrifted { node, .. } => {
                self.on(node, |n| n.session.health.found(at.awake, HealthIssue::Drifted));
            }
            Event::HardStop { node, iteration, reason, message, evidence_summary, .. } => {
                self.on(node, |n| n.hard_stop(*iteration, *reason, message, evidence_summary));
            }
            Event::SessionEnded(s) => {
                self.since_day_use.add(s);
                self.note_prices(s);
                self.last_heard = self.by_name.get(&s.node).copied();
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
            Event::IterationInterrupted { end, .. } => self.on(&end.node, |n| n.interrupted(end)),
            Event::SnapshotTaken { node, name, iteration, tree, .. } => self.on(node, |n| {
                (n.work.snapshot, n.work.snapshot_of) = (Some(name.clone()), Some(*iteration));
                // The tree of a later iteration counts once the checks have judged it.
                let first = tree.iter().filter(|_| iteration.0 == 0);
                first.for_each(|tree| n.attempts.tree_seen(tree));
            }),
            Event::WorktreeReady { node, path, branch, base, reused, .. } => {
                self.base = self.base.take().or_else(|| base.clone());
                self.on(node, |n| n.work.arranged(path, branch, *reused));
            }
            Event::MergeConflicted { node, from, files, detail, .. } => self.on(node, |n| {
                let (from, files, detail) = (from.clone(), files.clone(), detail.clone());
                n.work.conflicts.push(Conflict { from, files, detail });
            }),
            Event::SetupFinished(s) => self.on(&s.node, |n| n.work.set_up += usize::from(s.rc == 0)),
            Event::WorkCommitted { node, commit, .. } => {
                self.on(node, |n| n.work.commit = Some(commit.clone()));
            }
            Event::ChecksPinned { node, files, tree } => self.on(node, |n| {
                n.attempts.pins = Some(files.clone());
                tree.iter().for_each(|tree| n.attempts.tree_seen(tree));
            }),
            Event::ChecksStarted { node, .. } => self.on(node, NodeView::checks_started),
            Event::CheckTampered { node, files, .. } => {
                self.on(node, |n| n.attempts.tampered = files.clone())
            }
            Event::NodeAttempt(a) => self.on(&a.node, |n| n.attempts.add(a)),
            Event::RecoveryPlanned(plan) => self.plan_recovery(plan),
            Event::WaitStarted { node, why, delay_s, until, because, .. } => self.on(node, |n| {
                n.wait(*why, *delay_s, *until);
                n.waits.because.clone_from(because);
            }),
            Event::WaitEnded { node, by } => self.on(node, |n| n.wait_over(*by)),
            Event::WakeRemembered { node, by } => self.on(node, |n| n.waits.wake = Some(*by)),
            // A label may come long after the end of the run, so its time must not count as the run's.
            Event::VerdictLabeled { .. } => return self.seq = recorded.seq,
            // These say what happened and change nothing.
            Event::CommandFinished(_)
            | Event::MarkerSeen { .. }
            | Event::SessionSignalled { .. }
            | Event::WatchdogContinue { .. }
            | Event::PartialKept { .. }
            | Event::RunSlept { .. }
            | Event::IdleLearned { .. }
            | Event::Notice { .. }
            | Event::Notified { .. }
            | Event::Unknown => {}
        }
        self.learn(recorded);
        self.seq = recorded.seq;
        self.last = at;
    }

    /// Passes the event to the nodes that learn when their work arrives.
    fn learn(&mut self, recorded: &Recorded) {
        let Some(started) = &self.started else { return };
        for ix in &self.learners {
            let (node, plan) = (&mut self.nodes[*ix], &started.settings.nodes[*ix]);
            if let (Some(history), Some(policy)) = (&mut node.learned, &plan.settings.idle) {
                history.apply(policy, &node.name, recorded);
            }
        }
    }

    fn start(&mut self, at: Moment, s: &RunStarted) {
        self.began = at;
        self.segment = at.boot;
        self.watched.start(at.awake);
        self.nodes = s.nodes.iter().map(NodeView::new).collect();
        for (node, plan) in self.nodes.iter_mut().zip(&s.settings.nodes) {
            node.session.structured = plan.settings.reader.is_structured();
            let learns = plan.settings.idle.as_ref().is_some_and(|idle| idle.strategy == Strategy::Learned);
            node.learned = learns.then(Box::default);
            node.attempt_policy = plan.settings.checks.attempts;
        }
        self.learners = (0..self.nodes.len()).filter(|ix| self.nodes[*ix].learned.is_some()).collect();
        self.by_name = s.nodes.iter().enumerate().map(|(i, n)| (n.clone(), i)).collect();
        self.started = Some(s.clone());
    }

    /// Returns until when the run was supervised: to the loss of its supervisor if that is known, or else to its last
    /// event. A clock that was set adds at most the time between the two supervisors.
    fn supervised_until(&self, at: Moment, resumed: &RunResumed) -> Moment {
        let last = self.last;
        let after = |wall: Wall| loss::since(wall, last.wall);
        let lost = resumed.lost_at.filter(|_| self.ended.is_none()).map_or(Dur::ZERO, after);
        let between = if at.boot < last.boot { after(at.wall) } else { at.boot.since(last.boot) };
        last.plus(lost.min(between))
    }

    /// Continues after a lost supervisor. The time since its loss was not supervised and does not count.
    fn resume(&mut self, at: Moment, resumed: &RunResumed) {
        self.move_to(resumed);
        let until = self.supervised_until(at, resumed);
        self.time_before = self.supervised(until.boot);
        self.watched.resume(until.awake, at.awake);
        for node in &mut self.nodes {
            node.idle_streak.before = node.idle_streak.lasted(until.boot);
            node.idle_streak.since = node.idle_streak.since.map(|_| at.boot);
            let lasted = node.current.started.map(|began| until.awake.since(began));
            node.current.lost_after = node.current.lost_after.or(lasted);
            self.since_day_use = self.since_day_use.plus(node.charge_interrupted());
            node.doing = Doing::Nothing;
            node.session.health = Health::default();
            node.session.calls.clear();
            node.work.worktree_found = false;
            node.time.before = node.lasted(until.boot);
            node.time.running_since = node.time.running_since.map(|_| at.boot);
            node.time.watched.resume(until.awake, at.awake);
            node.failures.resume(until.boot, at.boot);
        }
        self.segment = at.boot;
        self.lost_at = None;
        self.ended = None;
        self.stopping = false;
    }

    /// Returns the session that ended last, in whichever node.
    pub fn last_session(&self) -> Option<&SessionEnded> {
        self.nodes.get(self.last_heard?)?.last.session.as_ref()
    }

    /// Notes the new place of a run that was moved.
    fn move_to(&mut self, resumed: &RunResumed) {
        let Some(started) = &mut self.started else { return };
        if let (Some(work_dir), Some(path)) = (&resumed.work_dir, &resumed.path) {
            let old = std::mem::replace(&mut started.work_dir, work_dir.clone());
            started.path.clone_from(path);
            for (tree, _) in self.nodes.iter_mut().filter_map(|node| node.work.worktree.as_mut()) {
                if let Some(inside) = tree.strip_prefix(&old) {
                    *tree = format!("{work_dir}{inside}");
                }
            }
        }
    }

    /// Takes the time in which dogwatch could not run from the ceilings of the run and of its nodes.
    fn suspend(&mut self, lasted: Dur, unwatched: bool) {
        if unwatched {
            self.watched.take_out(lasted);
            self.nodes.iter_mut().for_each(|n| n.time.watched.take_out(lasted));
        }
    }

    fn note_prices(&mut self, s: &SessionEnded) {
        self.prices = s.prices.clone().or(self.prices.take());
        if s.cost_usd.is_none() && s.counts.is_some() && self.unpriced.len() < MAX_MODELS {
            self.unpriced.insert(s.model.clone().unwrap_or_default());
        }
    }

    fn windows_used(&mut self, used: &WindowsUsed) {
        if self.windows.len() < MAX_ACCOUNTS || self.windows.contains_key(&used.account) {
            self.windows.entry(used.account.clone()).or_default().take(used);
        }
    }

    fn limit_account(&mut self, account: &str, until: Wall) {
        if self.account_limits.len() < MAX_ACCOUNTS || self.account_limits.contains_key(account) {
            self.account_limits.insert(account.to_owned(), until);
        }
    }

    fn note_trouble(&mut self, kind: &str, detail: &str) {
        self.troubles += 1;
        self.last_trouble = Some((kind.to_owned(), detail.to_owned()));
    }

    /// Applies a recovery plan. An agent that is set aside is set aside for all nodes; the next agent starts without
    /// failures.
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

    /// Returns the number of nodes that converged, but are flaky.
    pub fn flakes(&self) -> u64 {
        self.nodes.iter().filter(|n| n.attempts.flaked(n.attempt_policy)).count() as u64
    }

    /// Returns until when an agent is set aside, if it is at this moment. The inner `None` means for the rest of the run.
    pub fn rests(&self, agent: &str, now: Wall) -> Option<Option<Wall>> {
        self.resting.get(agent).copied().filter(|until| until.is_none_or(|u| now < u))
    }

    /// Changes a node by name. Events of unknown nodes are skipped: a newer version may have written the record.
    fn on(&mut self, name: &NodeName, change: impl FnOnce(&mut NodeView)) {
        if let Some(ix) = self.by_name.get(name) {
            change(&mut self.nodes[*ix]);
        }
    }
}
