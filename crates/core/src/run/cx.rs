//! What a run and its nodes share: the record and its fold, the timers, the decisions of this step.

use crate::record::event::{Event, NodeState, Recorded, RunStarted};
use crate::record::ids::{NodeIx, NodeName};
use crate::record::notification::{self, How, MAX_UNTOLD};
use crate::record::view::View;
use crate::run::decision::Decision;
use crate::settings::{Budget, Plan, ReaderName, Settings};
use crate::text::clip;
use crate::text::redact;
use crate::time::moment::Moment;
use crate::time::timer::Timers;

/// How much of an agent's command line names it.
const MAX_LABEL: usize = 200;

pub(super) struct Cx {
    pub now: Moment,
    pub plan: Plan,
    pub view: View,
    pub timers: Timers,
    pub out: Vec<Decision>,
    start: Option<RunStarted>,
}

impl Cx {
    pub fn new(started: RunStarted, plan: Plan) -> Cx {
        Cx {
            now: Moment::default(),
            plan,
            view: View::default(),
            timers: Timers::default(),
            out: Vec::new(),
            start: Some(started),
        }
    }

    /// A run that goes on; `None` if its record does not even say how it started.
    pub fn resume(view: View, plan: Option<Plan>) -> Option<Cx> {
        let recorded = view.started.as_ref()?.settings.clone();
        let plan = plan.unwrap_or(recorded);
        Some(Cx {
            now: Moment::default(),
            plan,
            view,
            timers: Timers::default(),
            out: Vec::new(),
            start: None,
        })
    }

    pub fn record_start(&mut self) {
        if let Some(started) = self.start.take() {
            self.record(Event::RunStarted(Box::new(started)));
        }
    }

    /// The one place where an event comes into being: numbered, folded, handed out.
    pub fn record(&mut self, event: Event) {
        let recorded = Recorded::new(self.view.seq + 1, self.now, event);
        let fresh = notification::of_event(&recorded, &self.view);
        self.view.apply(&recorded);
        self.out.push(Decision::Record(Box::new(recorded)));
        for delivery in fresh {
            if self.view.news.untold.contains(&delivery) {
                self.out.push(Decision::Notify(Box::new(delivery)));
            } else {
                let why = format!("{MAX_UNTOLD} others wait to be told already");
                self.notified(delivery.news.key, delivery.how, Some(why));
            }
        }
    }

    /// A failure to tell somebody is trouble, and no more.
    pub fn notified(&mut self, key: String, how: How, error: Option<String>) {
        let trouble = error.as_ref().map(|why| format!("{key} could not be told by {how}: {why}"));
        self.record(Event::Notified { key, how, ok: error.is_none(), detail: error });
        if let Some(trouble) = trouble {
            self.trouble("notify", trouble);
        }
    }

    pub fn trouble(&mut self, kind: &str, detail: String) {
        self.record(Event::Trouble { kind: kind.to_owned(), detail });
    }

    pub fn transition(&mut self, ix: NodeIx, to: NodeState, reason: Option<String>) {
        let from = self.view.node(ix).state;
        if from != to {
            self.record(Event::NodeTransition { node: self.name(ix), from, to, reason });
        }
    }

    pub fn settings(&self, ix: NodeIx) -> &Settings {
        &self.plan.nodes[ix.0].settings
    }

    pub fn name(&self, ix: NodeIx) -> NodeName {
        self.plan.nodes[ix.0].name.clone()
    }

    /// A loop file's budget is the run's; a graph has one for all its nodes together.
    pub fn budget(&self) -> &Budget {
        match &self.plan.graph {
            Some(graph) => &graph.budget,
            None => &self.plan.nodes[0].settings.budget,
        }
    }

    /// An agent of the node's chain: its command line and its reader.
    pub fn agent(&self, ix: NodeIx, n: u32) -> (&[String], ReaderName) {
        let settings = self.settings(ix);
        let nth = usize::try_from(n).unwrap_or(usize::MAX);
        settings.agents().nth(nth).unwrap_or((&settings.agent, settings.reader))
    }

    /// By what an agent is known in the record.
    pub fn agent_label(&self, ix: NodeIx, n: u32) -> String {
        clip(&redact::argv(self.agent(ix, n).0).join(" "), MAX_LABEL).to_owned()
    }
}
