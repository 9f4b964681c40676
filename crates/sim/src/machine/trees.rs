//! Process trees and their keepers.

use super::{Happening, Machine};
use crate::act::{Act, Does, Keeper};
use dogwatch_agents::Listener;
use dogwatch_core::drive::shell::{KeeperKilled, Mail, Report, Sample};
use dogwatch_core::record::event::{EndStep, WaitEndedBy};
use dogwatch_core::record::ids::NodeIx;
use dogwatch_core::run::agent_channel::AgentRequest;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::{Exit, Job, JobKind, Leftovers};
use dogwatch_core::run::life::TreeOrder;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::watch::feed::Stream;
use std::collections::VecDeque;
use std::sync::Arc;

/// A process tree with its keeper and its pipes.
pub(super) struct Tree {
    pub job: Job,
    pub number: u64,
    pub act: Act,
    pub main: Main,
    /// Other live processes.
    pub others: u64,
    pub keeper_lives: bool,
    /// When its keeper reports the start, in milliseconds since the beginning. Other reports come later.
    reports_from: u64,
    /// When its processes die after they were killed, in milliseconds since the beginning.
    dies_at: Option<u64>,
    /// Whether dogwatch has given up the keeper.
    buried: bool,
    reports: VecDeque<Report>,
    /// Output that was printed but not read.
    pipe: Vec<(Stream, Arc<[u8]>)>,
    has_printed: bool,
    pub listener: Option<Listener>,
}

fn pid_of(number: u64) -> u32 {
    u32::try_from(100 + number).unwrap_or(u32::MAX)
}

/// The main process of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Main {
    /// It was ordered to start.
    Ordered,
    Runs,
    Over,
}

impl Tree {
    pub fn new(job: Job, number: u64, act: Act, listener: Option<Listener>) -> Tree {
        Tree {
            job,
            number,
            main: Main::Ordered,
            others: 0,
            keeper_lives: true,
            reports_from: 0,
            dies_at: None,
            buried: false,
            reports: VecDeque::new(),
            pipe: Vec::new(),
            has_printed: false,
            listener,
            act,
        }
    }

    /// Returns whether the keeper has a report, or is gone and would be noticed now.
    pub fn has_report(&self) -> bool {
        !self.reports.is_empty() || (!self.keeper_lives && !self.buried)
    }

    /// Returns the number of live processes.
    pub fn processes(&self) -> u64 {
        self.others + u64::from(self.main == Main::Runs)
    }

    fn reports(&self) -> bool {
        self.keeper_lives && self.act.keeper == Keeper::Reports
    }
}

impl Machine {
    fn tree(&mut self, number: u64) -> Option<&mut Tree> {
        self.trees.values_mut().find(|tree| tree.number == number)
    }

    /// Starts the processes of a tree. The keeper reports after its delay.
    pub(super) fn spawn(&mut self, mut tree: Tree) {
        let (number, node, act) = (tree.number, tree.job.node, &mut tree.act);
        let script = std::mem::take(&mut act.script);
        let started = Report::Started { number, pid: pid_of(number) };
        self.plan(act.start_report_after, Happening::Reports(node, started));
        tree.reports_from = self.clocks.elapsed() + act.start_report_after.as_millis();
        tree.main = Main::Runs;
        tree.others = u64::from(act.holds_pipes != Some(Dur::ZERO) || !act.sweep.is_zero()) + act.forks;
        if let (true, Some(lasts)) = (act.touches, act.lasts) {
            let half = Dur::from_millis(lasts.as_millis() / 2);
            self.plan(half, Happening::Posted(Input::WakeAsked(WaitEndedBy::Path)));
        }
        for (at, does) in script {
            self.plan(at, Happening::Does(number, does));
        }
        if let Some(lasts) = act.lasts {
            self.plan(lasts, Happening::Exits(number));
        }
        if let Some(dies) = act.keeper_dies {
            self.plan(dies, Happening::KeeperDies(number));
        }
        self.trees.insert(node, tree);
    }

    pub(super) fn exits_by_itself(&mut self, number: u64) {
        let Some(exit) = self.tree(number).map(|tree| tree.act.exit) else { return };
        self.exits(number, exit);
    }

    /// Ends the main process. Its keeper reports it, unless it is gone.
    fn exits(&mut self, number: u64, exit: Exit) {
        let Some(tree) = self.tree(number).filter(|tree| tree.main == Main::Runs) else { return };
        tree.main = Main::Over;
        let job = tree.job;
        let alone = tree.others == 0 && tree.act.keeper == Keeper::Reports;
        let (lives, node, holds) = (tree.keeper_lives, tree.job.node, tree.act.holds_pipes);
        let repeats = tree.act.repeats_exit;
        if lives {
            for after in [Some(Dur::ZERO), repeats].into_iter().flatten() {
                self.report_later(node, after, Report::Exited { number, exit, alone });
            }
        }
        if let Some(holds) = holds {
            self.plan(holds, Happening::PipesClose(number));
        }
        self.note_exit(job);
    }

    fn note_exit(&mut self, job: Job) {
        if job.kind == JobKind::Session {
            let at = self.clocks.now().awake;
            self.truth.exited(self.names[job.node.0].clone(), job.iteration, at);
        }
    }

    /// Plans a report of a keeper, after the report of the start.
    fn report_later(&mut self, node: NodeIx, after: Dur, report: Report) {
        let from = self.trees.get(&node).map_or(0, |tree| tree.reports_from);
        let wait = Dur::from_millis(from.saturating_sub(self.elapsed()));
        self.plan(after.max(wait), Happening::Reports(node, report));
    }

    pub(super) fn pipes_close(&mut self, number: u64) {
        self.pumps(number);
        if let Some(job) = self.tree(number).map(|tree| tree.job) {
            self.inbox.push_back(Mail::PipesClosed { job });
        }
    }

    /// Hands over a report. A keeper serves the jobs of its node one after another, so the job of a report may be over.
    pub(super) fn keeper_reports(&mut self, node: NodeIx, report: Report) {
        let number = report.number();
        if let Some(tree) =
            self.trees.get_mut(&node).filter(|tree| tree.number >= number && tree.keeper_lives)
        {
            tree.reports.push_back(report);
        }
    }

    /// Returns the next report of a node's keeper. It is an error if the keeper is gone.
    pub(super) fn next_report(&mut self, node: NodeIx) -> Result<Option<Report>, String> {
        let Some(tree) = self.trees.get_mut(&node) else { return Ok(None) };
        match tree.reports.pop_front() {
            Some(report) => Ok(Some(report)),
            None if tree.keeper_lives => Ok(None),
            None => Err("it is gone".to_owned()),
        }
    }

    /// The nodes whose keepers have reports.
    pub(super) fn reporting(&self) -> Vec<NodeIx> {
        self.trees.iter().filter(|(_, tree)| tree.has_report()).map(|(node, _)| *node).collect()
    }

    pub(super) fn keeper_dies(&mut self, number: u64) {
        if let Some(tree) = self.tree(number) {
            tree.keeper_lives = false;
        }
    }

    pub(super) fn obeys(&mut self, job: Job, order: TreeOrder) -> Result<(), String> {
        let Some(tree) = self.trees.get_mut(&job.node).filter(|tree| tree.job == job) else { return Ok(()) };
        let (number, reports, act) = (tree.number, tree.reports(), &tree.act);
        if !tree.keeper_lives {
            return Err("its socket is closed".to_owned());
        }
        if !reports {
            return Ok(());
        }
        match order {
            TreeOrder::Step(EndStep::Interrupt) if !act.ignores_interrupt() => {
                self.exits(number, Exit::Code(0))
            }
            TreeOrder::Step(EndStep::Terminate) if !act.ignores_terminate() => {
                self.exits(number, Exit::Code(143))
            }
            TreeOrder::Step(EndStep::Interrupt | EndStep::Terminate) => {}
            TreeOrder::Step(EndStep::Kill) => self.kills(number, Dur::ZERO),
            TreeOrder::Sweep => {
                let takes = act.sweep;
                self.kills(number, takes);
            }
        }
        Ok(())
    }

    /// The keeper kills until the tree is empty, and reports that.
    fn kills(&mut self, number: u64, takes: Dur) {
        let Some(tree) = self.tree(number) else { return };
        let (node, unkillable) = (tree.job.node, tree.act.unkillable);
        if unkillable.is_zero() {
            return self.empties(number, takes);
        }
        let lasts = Dur::from_secs(5);
        if unkillable > lasts {
            let detail = "SIGKILL did not end 1 process: 7 stuck (D)".to_owned();
            self.report_later(node, lasts, Report::Unkillable { number, detail });
        }
        self.plan(unkillable, Happening::Dies(number));
    }

    /// The last process of a tree is gone, and the keeper reports that.
    pub(super) fn empties(&mut self, number: u64, takes: Dur) {
        self.exits(number, Exit::Signal(9));
        let Some(tree) = self.tree(number) else { return };
        let (node, killed) = (tree.job.node, std::mem::take(&mut tree.others));
        self.plan(takes, Happening::PipesClose(number));
        let killed = Leftovers { count: killed, names: Vec::new() };
        self.report_later(node, takes, Report::Empty { number, killed });
    }

    /// Kills a keeper and the processes of its job.
    pub(super) fn kills_keeper(&mut self, job: Job, number: u64) -> KeeperKilled {
        let now = self.elapsed();
        let Some(tree) = self.trees.get_mut(&job.node).filter(|tree| tree.number == number) else {
            return KeeperKilled { killed: 0, all: true };
        };
        (tree.keeper_lives, tree.buried) = (false, true);
        tree.reports.clear();
        if *tree.dies_at.get_or_insert(now + tree.act.unkillable.as_millis()) > now {
            return KeeperKilled { killed: 0, all: false };
        }
        let (killed, ran) = (tree.processes(), tree.main == Main::Runs);
        (tree.main, tree.others) = (Main::Over, 0);
        if ran {
            self.note_exit(job);
        }
        KeeperKilled { killed, all: true }
    }

    pub(super) fn agent_does(&mut self, number: u64, does: Does) {
        let now = self.clocks.now();
        let Some(tree) = self.tree(number).filter(|tree| tree.processes() > 0) else { return };
        let (job, lag) = (tree.job, tree.act.pump_lag);
        match does {
            Does::Prints(stream, bytes) => {
                tree.pipe.push((stream, bytes));
                // The first line of a session is a greeting.
                if std::mem::replace(&mut tree.has_printed, true) && tree.act.progress {
                    let name = self.names[job.node.0].clone();
                    self.truth.progressed(name, job.iteration, now.awake);
                }
                match lag {
                    Dur::ZERO => self.pumps(number),
                    lag => self.plan(lag, Happening::Pumps(number)),
                }
            }
            Does::Changes(digest) => {
                self.inbox.push_back(Mail::WorkTreeChanged { node: None, digest });
            }
            Does::Asks(body, token) => {
                let token = token.unwrap_or_else(|| format!("token {number}"));
                let (node, iteration) = (self.names[job.node.0].clone(), job.iteration);
                let request = Box::new(AgentRequest { node, iteration, body });
                self.inbox.push_back(Mail::AgentRequested { token, request, reply: () });
            }
            Does::Forks(children) => tree.others += children,
        }
    }

    /// The pump of a job reads what is in its pipes.
    pub(super) fn pumps(&mut self, number: u64) {
        let now = self.clocks.now();
        let at = now.awake;
        let Some(tree) = self.tree(number) else { return };
        let (job, pipe) = (tree.job, std::mem::take(&mut tree.pipe));
        let Some(listener) = &mut tree.listener else { return };
        pipe.into_iter().for_each(|(stream, bytes)| listener.chunk(at, stream, &bytes));
        let inputs = listener.take_inputs(job, now.wall);
        self.inbox.extend(inputs.into_iter().map(|input| Mail::FromSession { job, input }));
    }

    /// Hands over everything that a session has printed.
    pub(super) fn drains(&mut self, node: NodeIx) {
        let now = self.clocks.now();
        let Some(number) = self.trees.get(&node).map(|tree| tree.number) else { return };
        self.pumps(number);
        let Some(tree) = self.tree(number) else { return };
        let (job, Some(listener)) = (tree.job, &mut tree.listener) else { return };
        listener.feed().flush(now.awake);
        let inputs = listener.take_inputs(job, now.wall);
        self.inbox.extend(inputs.into_iter().map(|input| Mail::FromSession { job, input }));
    }

    pub(super) fn samples(&self, job: Job) -> Sample {
        let Some(tree) = self.trees.get(&job.node) else { return Sample::default() };
        let (awake, busy) = (self.clocks.now().awake.0, tree.act.is_busy);
        let children = tree.act.forks + u64::from(busy);
        Sample { children: u32::try_from(children).unwrap_or(u32::MAX), cpu_ms: if busy { awake } else { 0 } }
    }

    /// Returns whether a job of this kind has a listener.
    pub(super) fn listens(kind: JobKind, act: &Act) -> bool {
        kind == JobKind::Session && act.script.iter().any(|(_, does)| matches!(does, Does::Prints(..)))
    }
}
