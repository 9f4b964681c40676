//! Implements the driver's [`Shell`] on this machine.

use super::inbox::Reply;
use super::{HostShell, mcp_setup};
use crate::clock;
use crate::store::journal::DiskFile;
use crate::store::windows::WindowStore;
use dogwatch_core::Run;
use dogwatch_core::drive::shell::{
    ChannelError, Collected, KeeperKilled, Mail, Over, Report, Sample, Sent, Shell, Signaled, Unsent, Woken,
};
use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::record::ids::{Iteration, NodeIx};
use dogwatch_core::record::notification::Delivery;
use dogwatch_core::record::view::View;
use dogwatch_core::run::agent_channel::AgentResponse;
use dogwatch_core::run::decision::{ContextEntry, WantedPrompt};
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::Job;
use dogwatch_core::run::keeper_deadline::KeeperState;
use dogwatch_core::run::life::TreeOrder;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::{Awake, Boot, Moment};
use dogwatch_core::time::timer::Wakeup;
use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

impl Shell for HostShell<'_> {
    type File = DiskFile;
    type Reply = Reply;
    type ViewReply = SyncSender<View>;
    type Error = io::Error;

    fn now(&self) -> Moment {
        clock::now()
    }

    fn last_stop(&self) -> Option<Awake> {
        self.clocks.stops.last()
    }

    fn sleep(&mut self, until: Wakeup, at_once: bool) -> io::Result<Woken> {
        self.poll(until, at_once)
    }

    fn take_mail(&mut self) -> Vec<Mail<Reply, SyncSender<View>>> {
        self.inbox.take().into()
    }

    fn take_signals(&mut self) -> io::Result<Vec<Signaled>> {
        HostShell::take_signals(self)
    }

    fn is_token(&self, job: Job, token: &str) -> bool {
        let channel = self.slots.mcp_of(job);
        channel.is_some_and(|channel| mcp_setup::same(&channel.token, token))
    }

    fn reply(&mut self, to: Reply, answer: Result<AgentResponse, ChannelError>) {
        to.send(answer);
    }

    fn send_view(&mut self, to: SyncSender<View>, view: &View) {
        // The caller may have given up; that is not an error here.
        let _ = to.try_send(view.clone());
    }

    fn show(&mut self, event: &Recorded, view: &View) {
        if let Event::WindowsUsed(used) = &event.event {
            // Only an aid for later runs: this run has it in its record.
            let _ = WindowStore::of_user().keep(used);
        }
        self.reporter.show(event, view);
    }

    fn tick(&mut self, view: &View) {
        self.reporter.tick(clock::now(), view);
    }

    fn warn(&mut self, text: &str) {
        self.reporter.warn(text);
    }

    fn unwatched_paths(&mut self) -> Option<String> {
        self.watchers.uncovered()
    }

    fn rearm_waker(&mut self) {
        self.watchers.rearm();
    }

    fn pause_waker(&mut self, until: Awake) -> bool {
        self.clocks.calm.set_at(Duration::from_millis(until.0)).is_ok()
    }

    fn rearm_tree(&mut self, owner: Option<NodeIx>) {
        HostShell::rearm_tree(self, owner);
    }

    fn keep_prompt(&mut self, run: &Run, job: Job) -> Result<(), String> {
        self.write_prompt(run, job).map_err(|error| error.to_string())
    }

    fn start(&mut self, run: &Run, job: Job, number: u64) -> Result<Sent, Unsent> {
        let mut inputs = Vec::new();
        match self.try_start(run, job, number, &mut inputs) {
            Ok(sent) => Ok(Sent { inputs, ..sent }),
            Err(unsent) => Err(Unsent { inputs, ..unsent }),
        }
    }

    fn started(&mut self, job: Job) {
        self.survey_tree(job);
    }

    fn order(&mut self, job: Job, order: TreeOrder) -> Result<(), String> {
        let keeper = self.slots.keeper(job.node);
        keeper.map_or(Ok(()), |keeper| keeper.send(order.into()).map_err(|error| error.to_string()))
    }

    fn receive(&mut self, node: NodeIx) -> Result<Option<Report>, String> {
        self.next_report(node)
    }

    fn nudge(&mut self, job: Job) -> bool {
        self.slots.keeper(job.node).is_some_and(|keeper| keeper.nudge() == KeeperState::Stopped)
    }

    fn sample(&mut self, run: &Run, job: Job, main: u32) -> Sample {
        let structured = run.session(job.node).reader.is_structured();
        let Some(keeper) = self.slots.keeper(job.node) else { return Sample::default() };
        // A stopped keeper cannot report that the agent has exited. The session would then look silent.
        keeper.nudge();
        let taken = self.sampler.sample(keeper.pid(), main, structured);
        Sample { children: taken.children, cpu_ms: taken.cpu_ms }
    }

    fn flush(&mut self, nodes: &BTreeSet<NodeIx>) {
        self.flush_evidence(nodes);
    }

    fn kill_keeper(&mut self, job: Job, number: u64) -> KeeperKilled {
        self.kill_keeper_and_tree(job, number)
    }

    fn abandon(&mut self, job: Job) {
        self.leave(job.node);
    }

    fn collect(&mut self, run: &Run, over: &Over) -> Collected {
        self.collect_output(run, over)
    }

    fn no_output(&mut self, run: &Run, job: Job, error: &str) {
        self.prompts.command_failed(run, job, error);
    }

    fn release_keepers(&mut self) {
        self.slots.release_idle();
    }

    fn renew_leash(&mut self, until: Boot) {
        if let Some(leash) = &mut self.leash {
            leash.renew(until);
            self.slots.renew_leash(leash);
        }
    }

    fn assemble(&mut self, run: &Run, wanted: &WantedPrompt) -> Vec<Input> {
        // The idle wait after the session depends on the time zone.
        let zone = self.zone.changed(self.now());
        let prompt = self.assemble_prompt(run, wanted);
        zone.into_iter().chain(prompt).collect()
    }

    fn forget_prompts(&mut self, view: &View) {
        self.prompts.forget_closed(view);
    }

    fn hash_pins(&mut self, run: &Run, node: NodeIx, iteration: Iteration, tree: bool) -> Option<Input> {
        HostShell::hash_pins(self, run, node, iteration, tree);
        None
    }

    fn keep_log(&mut self, run: &Run, node: NodeIx, iteration: Iteration) -> Option<Input> {
        HostShell::keep_log(self, run, node, iteration)
    }

    fn keep_partial(&mut self, run: &Run, node: NodeIx, iteration: Iteration, file: &str) -> Option<Input> {
        HostShell::keep_partial(self, run, node, iteration, file)
    }

    fn keep_context(&mut self, entry: &ContextEntry) -> Result<(), String> {
        self.append_context(entry).map_err(|error| error.to_string())
    }

    fn has_day_limit(&self) -> bool {
        self.day_book.is_some()
    }

    fn read_day(&mut self) -> Option<Input> {
        let read = self.day_book.as_mut()?.read(clock::now().wall);
        Some(match read {
            Ok(day) => Input::DayUsed(day),
            Err(error) => {
                let detail = format!("cannot read today's usage of the project: {error}");
                Input::TroubleMet { kind: "day_budget", detail }
            }
        })
    }

    fn notify(&mut self, run: &Run, delivery: Delivery) -> Result<(), String> {
        self.send_notification(run, delivery)
    }

    fn wait_for_space(&mut self, pause: Dur) -> bool {
        self.wait_for_exit(pause)
    }

    fn shut_down(&mut self, clean: bool) {
        if let Err(error) = std::mem::take(&mut self.slots).shut_down() {
            self.reporter.warn(&format!("cannot stop a keeper: {error}; the next run kills its processes"));
        } else if clean && let Err(error) = self.paths.lock.clear() {
            self.reporter
                .warn(&format!("cannot clear the lock: {error}; the next run looks for leftover processes"));
        }
    }
}
