//! A whole run as data: its plan, its agents, its faults and its operator. It is drawn from a seed, and printed and
//! shrunk when it fails.

use super::actor::{Actor, Quirk};
use super::fault::{Fault, Request};
use super::plans;
use crate::act::Act;
use crate::dice::Dice;
use crate::machine::Holder;
use dogwatch_core::run::job::{Arranged, Conflict, Job, JobKind, Worktree};
use dogwatch_core::settings::{Plan, ReaderName};
use dogwatch_core::time::dur::Dur;
use std::fmt;

/// The virtual time in which anything may fail.
pub const HORIZON: Dur = Dur::from_hours(24);

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed that it was drawn from. It also decides the details of sessions.
    pub seed: u64,
    /// The plan of the run.
    pub plan: Plan,
    /// The behaviors of agents. Each session has one of them.
    pub actors: Vec<Actor>,
    /// The faults that occur around some processes.
    pub quirks: Vec<Quirk>,
    /// The faults of the machine.
    pub faults: Vec<(Dur, Fault)>,
    /// The requests of the operator.
    pub requests: Vec<(Dur, Request)>,
    /// Whether things that happen in one moment are noticed together.
    pub together: bool,
    /// How often the operator resumes a run that was stopped.
    pub resumes: u64,
    /// The process that holds the leash of the run, if there is one.
    pub leash: Option<Holder>,
    /// How many tokens other runs of the project use in an hour.
    pub others: u64,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scenario { seed, plan, actors, quirks, faults, requests, together, resumes, leash, others } =
            self;
        writeln!(f, "seed {seed}, together {together}, resumes {resumes}")?;
        writeln!(f, "leash {leash:?}, others use {others} tokens per hour")?;
        writeln!(f, "actors {actors:?}, quirks {quirks:?}")?;
        faults.iter().try_for_each(|(at, fault)| writeln!(f, "at {at}: {fault:?}"))?;
        requests.iter().try_for_each(|(at, request)| writeln!(f, "at {at}: {request:?}"))?;
        writeln!(f, "plan {}", dogwatch_codec::pretty_plan(plan).map_err(|_| fmt::Error)?)
    }
}

impl Scenario {
    /// Draws the scenario of a seed.
    pub fn draw(seed: u64) -> Scenario {
        let mut dice = Dice::new(seed);
        let mut plan = plans::draw(&mut dice);
        let some = |dice: &mut Dice, most: u64| 0..dice.below(most + 1);
        let actors = (0..1 + dice.below(5)).map(|_| *dice.of(Actor::ALL)).collect();
        let quirks = some(&mut dice, 4).map(|_| *dice.of(Quirk::ALL)).collect();
        let mut faults: Vec<_> =
            some(&mut dice, 6).map(|_| (moment(&mut dice), Fault::draw(&mut dice))).collect();
        faults.sort_by_key(|(at, _)| *at);
        let mut requests: Vec<_> =
            some(&mut dice, 14).map(|_| (moment(&mut dice), Request::draw(&mut dice))).collect();
        let (together, resumes) = (dice.one_in(2), dice.below(3));
        // Draw new things here, after the others: then the seeds of earlier failures stay the same.
        for node in plan.nodes.iter_mut().filter(|_| dice.one_in(3)) {
            node.settings.setup = vec!["make".to_owned()];
        }
        if dice.one_in(6) {
            let minutes = i64::try_from(dice.below(600)).expect("small");
            requests.push((moment(&mut dice), Request::Limit(minutes)));
        }
        let leash = dice.one_in(8).then(|| Holder::draw(&mut dice));
        let others = dice.below(2_000);
        if dice.one_in(8) {
            let budget = plan.graph.as_mut().map(|graph| &mut graph.budget);
            let budget = budget.unwrap_or(&mut plan.nodes[0].settings.budget);
            budget.day.tokens = Some(1_000 + dice.below(30_000));
        }
        Scenario { seed, plan, actors, quirks, faults, requests, together, resumes, leash, others }
    }

    /// Returns the behavior of a job. It depends on nothing but the scenario and the job.
    pub(super) fn act(&self, job: Job, tries: u64) -> (Option<Actor>, Act) {
        let what = match job.kind {
            JobKind::Session => 1,
            JobKind::Gate => 2,
            JobKind::Probe => 3,
            JobKind::Snapshot => 4,
            JobKind::Worktree => 5,
            JobKind::Commit => 6,
            JobKind::Setup(n) => 50 + n as u64,
            JobKind::Command(n) => 10 + n as u64,
            JobKind::Check(n) => 100 + n as u64,
        };
        let place = job.node.0 as u64 * 1_000_003 + job.iteration.0 * 1_009 + what;
        let mut dice = Dice::new(self.seed ^ (place << 20) ^ tries);
        let (actor, act) = if job.kind == JobKind::Session {
            let actor = *dice.of(&self.actors);
            (Some(actor), actor.play(self.reader(job), &mut dice))
        } else {
            (None, self.chore(job, &mut dice))
        };
        let spoiled = self.quirks.iter().fold(act, |act, quirk| match dice.one_in(8) {
            true => quirk.spoil(act, &mut dice),
            false => act,
        });
        (actor, spoiled)
    }

    /// Returns the behavior of a job that is not a session.
    fn chore(&self, job: Job, dice: &mut Dice) -> Act {
        let mut act = chore(dice);
        let parent = self.plan.nodes[job.node.0].depends_on.first().filter(|_| dice.one_in(4));
        if let (JobKind::Worktree, Some(from)) = (job.kind, parent.cloned()) {
            let conflict = Conflict { from, files: vec!["x".to_owned()], detail: "CONFLICT".to_owned() };
            let (path, branch) = ("/trees/x".to_owned(), "dogwatch/x".to_owned());
            let arranged = Arranged { path, branch, conflicts: vec![conflict], ..Arranged::default() };
            act.report.worktree = Some(Worktree::Ready(arranged));
        }
        act
    }

    /// Returns the reader that a node's agent is written for.
    pub(super) fn reader(&self, job: Job) -> ReaderName {
        self.plan.nodes[job.node.0].settings.reader
    }

    /// Returns the scenario without one of its parts, for each part that can be removed.
    pub fn smaller(&self) -> Vec<Scenario> {
        let mut all = Vec::new();
        for n in 0..self.faults.len() {
            let mut less = self.clone();
            less.faults.remove(n);
            all.push(less);
        }
        for n in 0..self.requests.len() {
            let mut less = self.clone();
            less.requests.remove(n);
            all.push(less);
        }
        for n in 0..self.quirks.len() {
            let mut less = self.clone();
            less.quirks.remove(n);
            all.push(less);
        }
        for n in 0..self.actors.len().saturating_sub(1) {
            let mut less = self.clone();
            less.actors.remove(n);
            all.push(less);
        }
        if self.plan.nodes.len() > 1 {
            let mut less = self.clone();
            less.plan.nodes.pop();
            all.push(less);
        }
        if self.leash.is_some() {
            all.push(Scenario { leash: None, ..self.clone() });
        }
        if self.resumes > 0 {
            all.push(Scenario { resumes: self.resumes - 1, ..self.clone() });
        }
        all.extend(plans::smaller(&self.plan).into_iter().map(|plan| Scenario { plan, ..self.clone() }));
        all
    }
}

/// Draws a time. Half of all things happen in the first hour, because many runs do not last longer.
fn moment(dice: &mut Dice) -> Dur {
    let most = if dice.one_in(2) { 3_600 } else { HORIZON.as_millis() / 1_000 };
    dice.secs(most)
}

/// Returns the behavior of a command.
fn chore(dice: &mut Dice) -> Act {
    let lasts = dice.secs(20);
    match dice.below(16) {
        0 => Act::hangs(),
        1 => Act::absent(),
        2..=5 => Act::exits(1, lasts).saying("1 test failed"),
        6 => Act::exits(2, lasts),
        _ => Act::exits(0, lasts),
    }
}
