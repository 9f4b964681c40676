//! Implements the driver's `Shell` on the simulated machine.

use super::trees::{Main, Tree};
use super::{DiskFile, Happening, Machine};
use crate::check;
use dogwatch_agents::Listener;
use dogwatch_core::Run;
use dogwatch_core::drive::shell::{
    ChannelError, Collected, KeeperKilled, Mail, Over, Report, Sample, Sent, Shell, Signaled, Unsent, Woken,
};
use dogwatch_core::record::event::{Event, InputDigest, Recorded};
use dogwatch_core::record::ids::{Iteration, NodeIx};
use dogwatch_core::record::notification::Delivery;
use dogwatch_core::record::view::View;
use dogwatch_core::run::agent_channel::AgentResponse;
use dogwatch_core::run::decision::{ContextEntry, WantedPrompt};
use dogwatch_core::run::input::{Input, NodeInput};
use dogwatch_core::run::job::{Arranged, Commit, Exit, Job, JobKind, JobReport, Made, Snapshot, Worktree};
use dogwatch_core::run::life::TreeOrder;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::{Awake, Moment};
use dogwatch_core::time::timer::Wakeup;
use std::collections::BTreeSet;

/// Why the driver cannot continue for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The next thing happens after the end of the drive, or never.
    Limit,
    /// dogwatch was killed.
    Dead,
}

impl Machine {
    /// Returns when the driver is due, in milliseconds since the beginning.
    fn due(&self, until: Wakeup) -> Option<u64> {
        let awake = until.awake.map(|at| self.clocks.at_awake(at));
        let boot = until.boot.map(|at| self.clocks.at_boot(at));
        [awake, boot].into_iter().flatten().min()
    }

    /// Jumps to the next thing that the driver notices. With `at_once`, no time passes.
    fn wait(&mut self, until: Wakeup, at_once: bool) -> Result<(), Stop> {
        while !self.is_ready() || self.together {
            let planned = self.agenda.keys().next().copied();
            let due = self.due(until).map(|due| due.max(self.elapsed()));
            let due = due.filter(|due| planned.is_none_or(|(at, _)| *due < at));
            let Some(next) = due.or(planned.map(|(at, _)| at)) else {
                return if self.is_ready() || at_once { Ok(()) } else { Err(Stop::Limit) };
            };
            if (at_once || self.is_ready()) && next > self.elapsed() {
                return Ok(());
            }
            if self.limit.is_some_and(|limit| next > limit) {
                return Err(Stop::Limit);
            }
            self.clocks.advance_to(next);
            match planned.filter(|_| due.is_none()) {
                Some(key) => {
                    let what = self.agenda.remove(&key).expect("the key exists");
                    self.happen(what);
                }
                None => return Ok(()),
            }
            if !self.life.is_alive() {
                return Err(Stop::Dead);
            }
        }
        Ok(())
    }

    /// Asserts that what was recorded before an effect is on disk, unless the disk fails. An effect on a job needs
    /// only the events of its node: others may be recorded while its start is queued.
    fn assert_recorded(&self, job: Option<Job>, effect: &str) {
        let disk = self.disk.borrow();
        let node = job.map(|job| &self.names[job.node.0]);
        let begins = |event: &Event| matches!(event, Event::RunStarted(_) | Event::RunResumed(_));
        let concerns = |recorded: &&Recorded| match (node, recorded.event.node()) {
            (None, _) => true,
            (Some(_), None) => begins(&recorded.event),
            (Some(node), Some(other)) => node == other,
        };
        if !disk.is_broken() && !disk.is_damaged() {
            check::intent::is_durable(disk.unsynced().filter(concerns), effect);
        }
    }

    fn try_start(&mut self, run: &Run, job: Job, number: u64) -> Result<Sent, Unsent> {
        let before = self.trees.get(&job.node).map(|tree| tree.job);
        assert_eq!(before, None, "{job:?} was started while another tree was alive");
        let act = self.script.as_mut().expect("a machine has a script")(job);
        if let Some(error) = act.refused.clone() {
            return Err(Unsent { error, again: false, inputs: Vec::new() });
        }
        if let Some(error) = act.unstarted.clone() {
            return Err(Unsent { error, again: true, inputs: Vec::new() });
        }
        if job.kind == JobKind::Session {
            assert!(self.prompts.contains(&(job.node, job.iteration)), "{job:?} has no prompt");
            self.sessions.push(self.elapsed());
        }
        let session = run.session(job.node);
        let listener = Machine::listens(job.kind, &act).then(|| {
            let mut listener = Listener::new(session.reader);
            if session.resumes.is_some() {
                listener.resume_from(session.charged);
            }
            listener
        });
        let refused = act.keeper_refuses.clone();
        let tree = Tree::new(job, number, act, listener);
        if let Some((error, again)) = refused {
            self.trees.insert(job.node, tree);
            let report = Report::Refused { number, error, again };
            self.plan(Dur::ZERO, Happening::Reports(job.node, report));
        } else {
            self.spawn(tree);
        }
        let has_channel = job.kind == JobKind::Session;
        Ok(Sent { argv: vec!["agent".to_owned()], has_channel, ..Sent::default() })
    }

    fn report_of(&mut self, mut tree: Tree, over: &Over) -> JobReport {
        let (job, now) = (over.job, self.clocks.now());
        let mut report = match &mut tree.listener {
            Some(listener) => {
                let resolve =
                    |at: &dogwatch_core::watch::sign::ResetsAt| at.resolve(now.wall, |_, _| Some(0));
                listener.report(now.awake, "", over.exit, resolve)
            }
            None => tree.act.report.clone(),
        };
        report.leftovers = over.leftovers.clone();
        let worked = over.exit == Some(Exit::Code(0)) && !over.signaled;
        if job.kind == JobKind::Snapshot && worked {
            let (name, tree) = (format!("refs/{}", job.iteration), self.worktree(job.iteration));
            report.snapshot = Some(Snapshot::Taken { name, files: 1, skipped: 0, tree });
        }
        if job.kind == JobKind::Worktree && worked {
            let (path, branch) = (format!("/trees/{}", job.node.0), format!("dogwatch/{}", job.node.0));
            let arranged = Arranged { path, branch, ..Arranged::default() };
            // A script may already have a result.
            report.worktree.get_or_insert(Worktree::Ready(arranged));
        }
        if job.kind == JobKind::Commit && worked {
            let (branch, commit) = (format!("dogwatch/{}", job.node.0), format!("c{}", job.node.0));
            report.commit = Some(Commit::Made(Made { branch, commit, files: 1, skipped: 0 }));
        }
        report
    }
}

impl Shell for Machine {
    type File = DiskFile;
    type Reply = ();
    type ViewReply = ();
    type Error = Stop;

    fn now(&self) -> Moment {
        self.clocks.now()
    }

    fn last_stop(&self) -> Option<Awake> {
        self.last_stop
    }

    fn sleep(&mut self, until: Wakeup, at_once: bool) -> Result<Woken, Stop> {
        if !self.life.acts() {
            return Err(Stop::Dead);
        }
        self.wait(until, at_once)?;
        let more = self.agenda.keys().next().is_some_and(|(at, _)| *at <= self.elapsed());
        let is_due = self.due(until).is_some_and(|due| due <= self.elapsed());
        Ok(Woken {
            mail: !self.inbox.is_empty(),
            signals: !self.signals.is_empty(),
            due: is_due && (self.together || !more && !self.is_ready()),
            waker: std::mem::take(&mut self.waker_calm),
            tick: false,
            keepers: self.reporting(),
            lost_idle: std::mem::take(&mut self.lost_idle),
        })
    }

    fn take_mail(&mut self) -> Vec<Mail<(), ()>> {
        self.inbox.drain(..).collect()
    }

    fn take_signals(&mut self) -> Result<Vec<Signaled>, Stop> {
        Ok(std::mem::take(&mut self.signals))
    }

    fn is_token(&self, job: Job, token: &str) -> bool {
        let tree = self.trees.get(&job.node).filter(|tree| tree.job == job);
        tree.is_some_and(|tree| token == format!("token {}", tree.number))
    }

    fn reply(&mut self, (): (), answer: Result<AgentResponse, ChannelError>) {
        self.answers.push(answer);
    }

    fn send_view(&mut self, (): (), view: &View) {
        assert_eq!(&View::fold(&self.events), view, "a client gets another view than the record has");
    }

    fn show(&mut self, event: &Recorded, view: &View) {
        if let (Event::HardStop { node, .. }, Some(started)) = (&event.event, &view.started) {
            let settings = started.settings.nodes.iter().find(|plan| plan.name == *node);
            settings.into_iter().for_each(|plan| self.truth.judged(event, &plan.settings.watchdog));
        }
        if self.keeps_events() {
            self.events.push(event.clone());
        }
    }

    fn tick(&mut self, _: &View) {}

    fn warn(&mut self, text: &str) {
        self.warnings.push(text.to_owned());
    }

    fn unwatched_paths(&mut self) -> Option<String> {
        None
    }

    fn rearm_waker(&mut self) {}

    fn pause_waker(&mut self, until: Awake) -> bool {
        let after = until.since(self.clocks.now().awake);
        self.plan(after, Happening::WakerCalm);
        true
    }

    fn rearm_tree(&mut self, _: Option<NodeIx>) {}

    fn keep_prompt(&mut self, _: &Run, job: Job) -> Result<(), String> {
        let mut disk = self.disk.borrow_mut();
        let full = disk.faults.full || disk.faults.prompts > 0;
        if job.kind == JobKind::Session && (full || !self.life.acts()) {
            disk.faults.prompts = disk.faults.prompts.saturating_sub(1);
            return Err("no space left on device".to_owned());
        }
        Ok(())
    }

    fn start(&mut self, run: &Run, job: Job, number: u64) -> Result<Sent, Unsent> {
        if !self.life.acts() {
            return Err(Unsent::default());
        }
        self.assert_recorded(Some(job), "the start of a job");
        assert!(!self.disk.borrow().is_broken(), "{job:?} was started although the record is broken");
        self.assert_leashed("the start of a job");
        if job.kind == JobKind::Session {
            self.assert_day();
        }
        self.clocks.advance(self.start_takes);
        self.try_start(run, job, number)
    }

    fn started(&mut self, job: Job) {
        assert!(self.trees.contains_key(&job.node), "{job:?} was reported and does not exist");
    }

    fn order(&mut self, job: Job, order: TreeOrder) -> Result<(), String> {
        if !self.life.acts() {
            return Ok(());
        }
        if !matches!(order, TreeOrder::Sweep) {
            self.assert_recorded(Some(job), "a signal");
        }
        self.obeys(job, order)
    }

    fn receive(&mut self, node: NodeIx) -> Result<Option<Report>, String> {
        self.next_report(node)
    }

    fn nudge(&mut self, job: Job) -> bool {
        self.trees.get(&job.node).is_some_and(|tree| tree.act.keeper == crate::Keeper::Stopped)
    }

    fn sample(&mut self, _: &Run, job: Job, _: u32) -> Sample {
        self.samples(job)
    }

    fn flush(&mut self, nodes: &BTreeSet<NodeIx>) {
        nodes.iter().for_each(|node| self.drains(*node));
    }

    fn kill_keeper(&mut self, job: Job, number: u64) -> KeeperKilled {
        self.kills_keeper(job, number)
    }

    fn abandon(&mut self, job: Job) {
        let tree = self.trees.remove(&job.node);
        let runs = tree.is_some_and(|tree| tree.main == Main::Runs && tree.processes() > 0);
        assert!(!runs, "{job:?} was abandoned while it ran");
    }

    fn collect(&mut self, _: &Run, over: &Over) -> Collected {
        self.drains(over.job.node);
        let Some(tree) = self.trees.remove(&over.job.node) else {
            return Collected { report: JobReport::default(), inputs: Vec::new() };
        };
        assert_eq!((tree.processes(), tree.job), (0, over.job), "the tree of an ended job is not empty");
        let report = self.report_of(tree, over);
        Collected { report, inputs: Vec::new() }
    }

    fn no_output(&mut self, _: &Run, _: Job, _: &str) {}

    fn release_keepers(&mut self) {
        assert!(self.trees.is_empty(), "a sleeping run has no process tree");
    }

    fn assemble(&mut self, _: &Run, wanted: &WantedPrompt) -> Vec<Input> {
        if self.keeps_events() {
            self.prompt_contexts.push(wanted.prompt_context.clone());
        }
        let (node, iteration) = (wanted.node, wanted.iteration);
        self.prompts.insert((node, iteration));
        let now = self.elapsed();
        let input_digest = wanted.input_digest.then(|| match &mut self.sees {
            Some(sees) => sees(now),
            None => InputDigest { prompt: "p".to_owned(), tree: "t".to_owned() },
        });
        vec![Input::Node(
            node,
            iteration,
            NodeInput::PromptAssembled { bytes: 2, sha256: "00".to_owned(), input_digest },
        )]
    }

    fn forget_prompts(&mut self, view: &View) {
        self.prompts.retain(|(node, iteration)| view.node(*node).iteration <= *iteration);
    }

    fn hash_pins(&mut self, _: &Run, node: NodeIx, iteration: Iteration, tree: bool) -> Option<Input> {
        let pins = self.pins.as_mut().map_or(Ok(Vec::new()), |pins| pins(iteration));
        let tree = if tree { self.worktree(iteration) } else { None };
        Some(Input::Node(node, iteration, NodeInput::PinsHashed { pins, tree }))
    }

    fn keep_log(&mut self, _: &Run, _: NodeIx, _: Iteration) -> Option<Input> {
        if self.life.acts() {
            self.assert_recorded(None, "the log of an attempt");
        }
        None
    }

    fn keep_partial(&mut self, _: &Run, _: NodeIx, _: Iteration, file: &str) -> Option<Input> {
        if self.life.acts() {
            self.assert_recorded(None, "a summary of partial work");
            self.partials.push(file.to_owned());
        }
        None
    }

    fn keep_context(&mut self, entry: &ContextEntry) -> Result<(), String> {
        if self.life.acts() {
            self.assert_recorded(None, "a context entry");
            self.context.push(entry.clone());
        }
        if self.context_fails { Err("disk full".to_owned()) } else { Ok(()) }
    }

    fn has_day_limit(&self) -> bool {
        self.day.has_limit()
    }

    fn read_day(&mut self) -> Option<Input> {
        Some(self.day_input())
    }

    fn notify(&mut self, _: &Run, delivery: Delivery) -> Result<(), String> {
        if !self.life.acts() {
            return Ok(());
        }
        self.assert_recorded(None, "a notification");
        let error = self.notification_fails.then(|| "no answer".to_owned());
        let (key, how) = (delivery.notification.key.clone(), delivery.how);
        self.notifications.push((self.elapsed(), delivery));
        if let Some(takes) = self.notification_takes {
            self.plan(takes, Happening::Posted(Input::Notified { key, how, error }));
        }
        Ok(())
    }

    fn wait_for_space(&mut self, pause: Dur) -> bool {
        self.clocks.advance(pause);
        let asked =
            self.signals.iter().any(|signal| matches!(signal, Signaled::Interrupt | Signaled::End(_)));
        asked || !self.life.is_alive()
    }

    fn shut_down(&mut self, clean: bool) {
        if self.life.acts() {
            let alive: Vec<Job> = self.trees.values().map(|tree| tree.job).collect();
            assert_eq!(clean, alive.is_empty(), "the run ended while process trees were alive: {alive:?}");
        }
    }
}
