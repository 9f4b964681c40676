//! The state that a run and its nodes share: the record and its fold, the timers, and the decisions of this step.

use crate::learn::{Arrivals, IdleWait, Schedule};
use crate::record::event::{Event, NodeState, Recorded, RunStarted};
use crate::record::ids::{NodeIx, NodeName};
use crate::record::notification::{self, How, MAX_PENDING_NOTIFICATIONS};
use crate::record::view::View;
use crate::record::windows::WindowsUsed;
use crate::run::decision::Decision;
use crate::settings::{Budget, Plan, ReaderName, Settings};
use crate::text::redact;
use crate::text::{clip, without_error_numbers};
use crate::time::dur::Dur;
use crate::time::moment::Moment;
use crate::time::timer::Timers;
use std::collections::BTreeMap;

/// The longest label of an agent, which is the start of its command line, in bytes.
const MAX_LABEL: usize = 200;

pub(super) struct Cx {
    pub now: Moment,
    pub plan: Plan,
    pub view: View,
    pub timers: Timers,
    pub out: Vec<Decision>,
    /// Local time minus UTC, in seconds, as last reported by the shell.
    pub utc_offset_s: Option<i32>,
    start: Option<RunStarted>,
    /// Removes secrets from an event before it is recorded.
    pub filter: Option<Filter>,
    /// The arrival times that the nodes learned in earlier runs.
    pub learned: BTreeMap<NodeName, Arrivals>,
    /// The windows of accounts that other runs reported.
    pub windows: Vec<WindowsUsed>,
}

/// A pure function that the shell supplies: it knows the secrets, and the core does not.
pub type Filter = Box<dyn Fn(Event) -> Event + Send>;

impl Cx {
    /// Creates the state of a new run.
    pub fn new(started: RunStarted, plan: Plan) -> Cx {
        Cx { start: Some(started), ..Cx::with(View::default(), plan) }
    }

    fn with(view: View, plan: Plan) -> Cx {
        Cx {
            now: Moment::default(),
            plan,
            view,
            timers: Timers::default(),
            out: Vec::new(),
            utc_offset_s: None,
            start: None,
            filter: None,
            learned: BTreeMap::new(),
            windows: Vec::new(),
        }
    }

    /// Records what other runs learned about windows, as far as this run does not know it.
    pub fn record_windows(&mut self) {
        for used in std::mem::take(&mut self.windows) {
            if self.view.windows.get(&used.account).is_none_or(|known| known.is_new(&used)) {
                self.record(Event::WindowsUsed(used));
            }
        }
    }

    /// Restores the state of a resumed run. Returns `None` if its record has no `run_started`.
    pub fn resume(view: View, plan: Option<Plan>) -> Option<Cx> {
        let recorded = view.started.as_ref()?.settings.clone();
        Some(Cx::with(view, plan.unwrap_or(recorded)))
    }

    /// Records `run_started`, once, and what the nodes learned in earlier runs.
    pub fn record_start(&mut self) {
        let Some(started) = self.start.take() else { return };
        self.record(Event::RunStarted(Box::new(started)));
        self.record_windows();
        let mut learned = std::mem::take(&mut self.learned);
        let learners = self.view.nodes.iter().filter(|node| node.learned.is_some());
        for node in learners.map(|node| node.name.clone()).collect::<Vec<_>>() {
            let state = learned.remove(&node).unwrap_or_default().recorded();
            self.record(Event::IdleLearned { node, state });
        }
    }

    /// Returns the idle wait that the node's history suggests now, if the node learns.
    pub fn learned_wait(&self, ix: NodeIx) -> Option<IdleWait> {
        let policy = self.settings(ix).idle.as_ref()?;
        let streak = &self.view.node(ix).idle_streak;
        self.learned_by(ix, &Schedule::of(policy, streak.skipped), streak.count)
    }

    /// Returns the time until the next probe: its interval, or more if the node's history allows it.
    pub fn until_probe(&self, ix: NodeIx) -> Dur {
        let settings = self.settings(ix);
        let every = settings.wake_on.every;
        let longest = settings.idle.as_ref().map_or(every, |idle| idle.longest);
        self.learned_by(ix, &Schedule::of_probe(every, longest), 1).map_or(every, |decided| decided.wait)
    }

    fn learned_by(&self, ix: NodeIx, schedule: &Schedule, looks: u64) -> Option<IdleWait> {
        let node = self.view.node(ix);
        let history = node.learned.as_deref()?;
        let offset = self.utc_offset_s.map_or(history.offset_ms(), |offset| i64::from(offset) * 1_000);
        let age = node.idle_streak.lasted(self.now.boot).as_millis();
        Some(history.arrivals.decide(schedule, self.now.wall.0, offset, age, looks))
    }

    /// Records an event: numbers it, folds it into the view and hands it to the shell. Every event is created here.
    pub fn record(&mut self, event: Event) {
        let event = match &self.filter {
            Some(filter) => filter(event),
            None => event,
        };
        let recorded = Recorded::new(self.view.seq + 1, self.now, event);
        let fresh = notification::of_event(&recorded, &self.view);
        self.view.apply(&recorded);
        self.out.push(Decision::Record(Box::new(recorded)));
        for delivery in fresh {
            if self.view.notifications.pending.contains(&delivery) {
                self.out.push(Decision::Notify(Box::new(delivery)));
            } else {
                let why = format!("{MAX_PENDING_NOTIFICATIONS} notifications are already pending");
                self.notified(delivery.notification.key, delivery.how, Some(why));
            }
        }
    }

    /// Records the result of a notification. A failed delivery is recorded as trouble and has no other effect.
    pub fn notified(&mut self, key: String, how: How, error: Option<String>) {
        let trouble = error.as_ref().map(|why| format!("cannot deliver {key} by {how}: {why}"));
        self.record(Event::Notified { key, how, ok: error.is_none(), detail: error });
        if let Some(trouble) = trouble {
            self.trouble("notify", trouble);
        }
    }

    /// Records a problem.
    pub fn trouble(&mut self, kind: &str, detail: String) {
        self.record(Event::Trouble { kind: kind.to_owned(), detail: without_error_numbers(&detail) });
    }

    /// Records a change of a node's state.
    pub fn transition(&mut self, ix: NodeIx, to: NodeState, reason: Option<String>) {
        let from = self.view.node(ix).state;
        if from != to {
            self.record(Event::NodeTransition { node: self.name(ix), from, to, reason });
        }
    }

    /// Returns the settings of a node.
    pub fn settings(&self, ix: NodeIx) -> &Settings {
        &self.plan.nodes[ix.0].settings
    }

    /// Returns the name of a node.
    pub fn name(&self, ix: NodeIx) -> NodeName {
        self.plan.nodes[ix.0].name.clone()
    }

    /// Returns the budget of the run: that of the loop file, or that of the whole graph.
    pub fn budget(&self) -> &Budget {
        match &self.plan.graph {
            Some(graph) => &graph.budget,
            None => &self.plan.nodes[0].settings.budget,
        }
    }

    /// Returns the command line and the reader of an agent in the node's chain.
    pub fn agent(&self, ix: NodeIx, n: u32) -> (&[String], ReaderName) {
        let settings = self.settings(ix);
        let nth = usize::try_from(n).unwrap_or(usize::MAX);
        settings.agents().nth(nth).unwrap_or((&settings.agent, settings.reader))
    }

    /// Returns the label that identifies an agent in the record.
    pub fn agent_label(&self, ix: NodeIx, n: u32) -> String {
        clip(&redact::argv(self.agent(ix, n).0).join(" "), MAX_LABEL).to_owned()
    }
}
