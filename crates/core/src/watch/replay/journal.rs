//! Replays each session of a run from its journal.
//!
//! Under its own policy a session is judged when the journal records a verdict, and the verdicts must be the same. Under
//! another policy it is judged at every due moment. Events after the first signal to the agent are ignored, because they
//! do not show how the agent would have continued.

use super::line::{IterationName, Replayed, SessionName};
use super::player::{Finish, Looks, Player};
use crate::record::event::{EndStep, Event, Recorded};
use crate::record::ids::{Iteration, NodeName};
use crate::record::view::View;
use crate::settings::{Plan, ReaderName, WatchPolicy};
use crate::time::moment::Awake;
use crate::watch::limits::Label;
use crate::watch::{Fact, Session, StopReason};

/// A replay that takes a journal event by event.
pub struct JournalReplay<P> {
    view: View,
    plan: Option<Plan>,
    /// Derives the policy to replay from a node's own policy; `None` keeps it.
    policy: Option<P>,
    open: Vec<Running>,
    done: Vec<(usize, Replayed)>,
    begun: usize,
    last: Awake,
    measure: bool,
}

/// A session that is being replayed.
struct Running {
    number: usize,
    name: IterationName,
    player: Player,
    /// When the replay of this session ended, if it did.
    over: Option<Awake>,
    /// When the session started.
    began: Awake,
    /// The verdict that stopped the session, and when.
    stopped: Option<(StopReason, Awake)>,
    agent: ReaderName,
    agent_session: Option<String>,
    label: Option<Label>,
    differing: Vec<String>,
}

impl<P: Fn(&WatchPolicy, ReaderName) -> WatchPolicy> JournalReplay<P> {
    /// Creates a replay with another policy, or with each node's own.
    pub fn new(policy: Option<P>) -> JournalReplay<P> {
        let view = View::default();
        let (open, done) = (vec![], vec![]);
        JournalReplay { view, plan: None, policy, open, done, begun: 0, last: Awake(0), measure: false }
    }

    /// Also measures what the sessions need of the limits.
    pub fn measuring(self) -> JournalReplay<P> {
        JournalReplay { measure: true, ..self }
    }

    /// Takes the next event.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    pub fn take(&mut self, recorded: &Recorded) {
        let at = recorded.awake_ms;
        // A lost supervisor saw nothing more of its sessions after its last event, and the clock may be that of another
        // boot.
        if matches!(recorded.event, Event::RunResumed(_)) {
            self.close_all();
        }
        self.last = at;
        match &recorded.event {
            Event::RunStarted(run) => self.plan = Some(run.settings.clone()),
            Event::SessionStarted { node, iteration, agent, .. } => {
                self.begin(recorded, node, *iteration, *agent);
            }
            Event::Observed { node, iteration, seen } => {
                self.with(node, *iteration, |r| r.player.fact(at, &Fact::Observed(*seen)));
            }
            Event::Fact { node, iteration, fact } => {
                self.with(node, *iteration, |r| r.player.fact(at, fact));
            }
            Event::NeedsHuman { node, iteration, what, .. } => {
                let fact = Fact::NeedsHuman { what: what.clone() };
                self.with(node, *iteration, |r| r.player.fact(at, &fact));
            }
            Event::WatchdogContinue { node, iteration, deferred_by, .. } => {
                let own = self.policy.is_none();
                self.with(node, *iteration, |r| r.written(at, own, ("continue", deferred_by.as_str())));
            }
            Event::HardStop { node, iteration, reason, .. } => {
                let own = self.policy.is_none();
                self.with(node, *iteration, |r| {
                    r.stopped = Some((*reason, at));
                    r.written(at, own, ("hard_stop", reason.as_str()));
                    r.over = Some(at);
                });
            }
            Event::SessionSignalled { node, iteration, step: EndStep::Interrupt, .. } => {
                self.with(node, *iteration, |r| r.over = Some(at));
            }
            Event::SessionEnded(end) => {
                self.with(&end.node, end.iteration, |r| r.over = Some(at));
                let running = self.open.iter_mut().find(|r| r.name.is(&end.node, end.iteration));
                if let Some(running) = running {
                    running.agent_session.clone_from(&end.session);
                }
            }
            Event::VerdictLabeled { node, iteration, label } => self.label(node, *iteration, *label),
            event => {
                if let Some((kind, end)) = event.ending() {
                    self.close(&end.node, end.iteration, Some(kind.as_str()));
                }
            }
        }
        self.view.apply(recorded);
    }

    /// Ends the replay and returns the sessions in the order of their starts.
    pub fn finish(mut self) -> Vec<Replayed> {
        self.close_all();
        self.done.sort_by_key(|(number, _)| *number);
        self.done.into_iter().map(|(_, replayed)| replayed).collect()
    }

    fn begin(&mut self, recorded: &Recorded, node: &NodeName, iteration: Iteration, agent: u32) {
        let Some(plan) = self.plan.as_ref().and_then(|p| p.nodes.iter().find(|n| n.name == *node)) else {
            return;
        };
        // A session of a fallback agent is judged by the reader of that agent.
        let reader =
            plan.settings.agents().nth(agent as usize).map_or(plan.settings.reader, |(_, reader)| reader);
        let session = Session {
            node_before: self.view.node_watched(node, recorded.awake_ms),
            run_before: self.view.watched.lasted(recorded.awake_ms),
            ..Session::new(recorded.awake_ms, reader.is_structured())
        };
        let own = &plan.settings.watchdog;
        let (policy, looks) = match &self.policy {
            Some(policy) => (policy(own, reader), Looks::EveryDue),
            None => (own.clone(), Looks::AsWritten),
        };
        let name = IterationName { node: node.clone(), iteration };
        let player = Player::new(policy, session, Some(SessionName::Iteration(name.clone())), looks)
            .measuring(self.measure);
        let others = &plan.settings.recovery.agents;
        let agent = agent.checked_sub(1).and_then(|at| others.get(at as usize)).map(|other| other.reader);
        let number = self.begun;
        self.begun += 1;
        self.open.push(Running {
            number,
            name,
            player,
            began: recorded.awake_ms,
            over: None,
            stopped: None,
            agent: agent.unwrap_or(plan.settings.reader),
            agent_session: None,
            label: None,
            differing: vec![],
        });
    }

    /// Calls `act` if the session is known and its replay has not ended.
    fn with(&mut self, node: &NodeName, iteration: Iteration, act: impl FnOnce(&mut Running)) {
        let known = self.open.iter_mut().find(|r| r.name.is(node, iteration));
        if let Some(running) = known.filter(|r| r.over.is_none()) {
            act(running);
        }
    }

    /// Labels a stop. A later label replaces an earlier one.
    fn label(&mut self, node: &NodeName, iteration: Iteration, label: Label) {
        if let Some(running) = self.open.iter_mut().find(|r| r.name.is(node, iteration)) {
            running.label = Some(label);
        }
        let of = |replayed: &Replayed| match &replayed.summary.session {
            Some(SessionName::Iteration(name)) => name.is(node, iteration),
            Some(SessionName::Turn { .. }) | None => false,
        };
        if let Some((_, replayed)) = self.done.iter_mut().find(|(_, replayed)| of(replayed)) {
            replayed.label = Some(label);
        }
    }

    fn close(&mut self, node: &NodeName, iteration: Iteration, word: Option<&'static str>) {
        if let Some(at) = self.open.iter().position(|r| r.name.is(node, iteration)) {
            let running = self.open.remove(at);
            self.done.push(running.close(self.last, word, self.policy.is_none()));
        }
    }

    fn close_all(&mut self) {
        let (last, own) = (self.last, self.policy.is_none());
        self.done.extend(self.open.drain(..).map(|running| running.close(last, None, own)));
    }
}

impl Running {
    /// Compares a verdict of the journal with that of the replay.
    fn written(&mut self, at: Awake, own: bool, (verdict, detail): (&'static str, &'static str)) {
        if !own {
            return;
        }
        self.player.look(at);
        let last = self.player.last();
        if last != (verdict, Some(detail)) {
            let (ours, about) = (last.0, last.1.unwrap_or("nothing"));
            let IterationName { node, iteration } = &self.name;
            self.differing.push(format!(
                "{node}, iteration {iteration}: the journal has {verdict} ({detail}), the replay {ours} ({about})"
            ));
        }
    }

    fn close(self, last: Awake, word: Option<&'static str>, own: bool) -> (usize, Replayed) {
        // The end of a session that a verdict stopped does not show how it would have ended otherwise.
        let finish = match word.filter(|_| self.stopped.is_none()) {
            Some(word) => Finish::Known(word),
            None => Finish::Looked,
        };
        let mut replayed = self.player.finish(self.over.unwrap_or(last), &finish);
        replayed.differing = self.differing;
        (replayed.agent, replayed.label) = (Some(self.agent), self.label);
        replayed.agent_session = self.agent_session;
        if !own {
            let stopped = self.stopped.map(|(reason, at)| (reason, at.since(self.began).as_secs_f64()));
            let now = replayed.summary.reason.map(|reason| (reason, replayed.summary.ended_at_s));
            replayed.differing.extend(difference(&self.name, stopped, now, word));
        }
        (self.number, replayed)
    }
}

/// Describes how the end of a session under another policy differs from what happened.
fn difference(
    IterationName { node, iteration }: &IterationName,
    before: Option<(StopReason, f64)>,
    now: Option<(StopReason, f64)>,
    word: Option<&str>,
) -> Option<String> {
    let text = match (before, now) {
        (None, None) => return None,
        (Some((was, _)), Some((is, _))) if was == is => return None,
        (None, Some((is, at))) => {
            let end = word.map_or_else(|| "was not stopped".to_owned(), |word| format!("ended as {word}"));
            format!("would have been stopped after {at:.1}s by {is}; it {end}")
        }
        (Some((was, at)), None) => format!("was stopped after {at:.1}s by {was}; would have continued"),
        (Some((was, at)), Some((is, then))) => {
            format!("was stopped after {at:.1}s by {was}; would have been after {then:.1}s by {is}")
        }
    };
    Some(format!("{node}, iteration {iteration}: {text}"))
}
