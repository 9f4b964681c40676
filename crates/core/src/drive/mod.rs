//! The driver: feeds inputs to the core and carries out its decisions, in an order that keeps the record true.
//!
//! The driver is pure. It reaches the outside world only through a [`Shell`], so a simulation and the real program
//! run the same code. A shell acts; the driver decides what is queued, withheld, early or durable, and which decision
//! may be carried out when.
//!
//! Write-ahead rule: an event that precedes an effect is on disk before the effect happens. If the record cannot be
//! written, running jobs stay supervised and new starts are withheld until it can.

mod closing;
mod jobs;
pub mod journal;
mod listen;
mod live;
mod queue;
mod record;
pub mod shell;
#[cfg(test)]
mod tests;

pub use live::{MAX_EARLY, MAX_KEEPERS_PER_TURN};
pub use record::MAX_BLIND;

use crate::record::event::Event;
use crate::run::Run;
use crate::run::decision::Decision;
use crate::run::input::{Input, NodeInput};
use crate::run::job::Job;
use crate::run::life::TreeOrder;
use crate::time::absence::Spans;
use crate::time::moment::Awake;
use journal::Journal;
use live::Jobs;
use queue::Queue;
use record::{Record, Retried};
use shell::Shell;

/// Drives one run. See the module documentation.
pub struct Driver<S: Shell> {
    run: Run,
    shell: S,
    record: Record<S::File>,
    jobs: Jobs,
    queue: Queue,
    /// Detects time in which this process could not run.
    absence: Spans,
    /// When a changed path last caused a wake, to detect a storm.
    woken: Awake,
    exit_code: Option<u8>,
}

/// The result of one turn of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The run continues.
    Continues,
    /// The run is over and closed.
    Over {
        /// The exit code.
        exit_code: u8,
    },
}

impl<S: Shell> Driver<S> {
    /// Creates the driver of a run that has not begun. `inputs` is handled right after the beginning.
    pub fn new(run: Run, journal: Journal<S::File>, shell: S, inputs: Vec<Input>) -> Driver<S> {
        let absence = Spans::new(shell.now());
        let mut queue = Queue::default();
        queue.todo.push_back(Input::Began);
        queue.todo.extend(inputs);
        Driver {
            run,
            shell,
            record: Record::new(journal),
            jobs: Jobs::default(),
            queue,
            absence,
            woken: Awake(0),
            exit_code: None,
        }
    }

    /// Returns the run.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Returns the shell.
    pub fn shell(&self) -> &S {
        &self.shell
    }

    /// Returns the shell.
    pub fn shell_mut(&mut self) -> &mut S {
        &mut self.shell
    }

    /// Ends the driver without closing the run, and returns its shell.
    pub fn into_shell(self) -> S {
        self.shell
    }

    /// Returns the journal.
    pub fn journal(&self) -> &Journal<S::File> {
        self.record.journal()
    }

    /// Returns how many inputs wait for the core.
    pub fn inputs(&self) -> usize {
        self.queue.todo.len()
    }

    /// Returns the most inputs that wait for the start of one job.
    pub fn most_early(&self) -> usize {
        self.jobs.most_early()
    }

    /// Drives the run to its end and returns the exit code.
    pub fn drive(&mut self) -> Result<u8, S::Error> {
        loop {
            if let Turn::Over { exit_code } = self.turn()? {
                return Ok(exit_code);
            }
        }
    }

    /// Handles everything that is known, starts at most one job, then sleeps until something happens.
    ///
    /// Jobs start one at a time, and the driver listens after each start. So running sessions are judged in time even
    /// while hundreds of others start.
    pub fn turn(&mut self) -> Result<Turn, S::Error> {
        while let Some(input) = self.queue.todo.pop_front() {
            self.step(input);
        }
        self.carry_out_all();
        if !self.queue.todo.is_empty() {
            return Ok(Turn::Continues);
        }
        if let Some(code) = self.exit_code.filter(|_| !self.queue.has_starts()) {
            return Ok(Turn::Over { exit_code: self.close(code) });
        }
        if let Some((job, durable)) = self.queue.next_start() {
            self.start_next(job, durable);
        }
        self.settle();
        self.listen()?;
        Ok(Turn::Continues)
    }

    fn step(&mut self, input: Input) {
        for decision in self.run.step(self.shell.now(), input) {
            if let Decision::Record(recorded) = decision {
                self.record.add(*recorded, &mut self.queue.todo);
            } else {
                self.queue.decide(decision);
            }
        }
    }

    /// Carries out all pending decisions, with a single sync for all events that precede them. Jobs are only queued
    /// here: `turn` starts one at a time.
    fn carry_out_all(&mut self) {
        let batch = self.queue.take_batch();
        let durable = !batch.waits_for_disk || self.settle();
        for effect in batch.effects {
            if let Decision::Start(job) = effect {
                self.queue.start_later(job, durable);
            } else {
                self.carry_out(effect);
            }
        }
        self.shell.forget_prompts(self.run.view());
    }

    fn start_next(&mut self, job: Job, durable: bool) {
        if let Some(detail) = self.record.lost(&mut self.queue.todo) {
            let error = format!("the record is lost: {detail}");
            self.queue.todo.push_back(Input::Job(job, NodeInput::Refused { error }));
        } else if !self.record.is_broken() && (durable || self.settle()) {
            self.start(job);
        } else {
            self.record.withhold(job);
        }
    }

    /// Writes and syncs the recorded events, then shows them. Returns false if they could not be written.
    fn settle(&mut self) -> bool {
        let durable = self.record.settle(&mut self.queue.todo);
        for event in self.record.take_unshown() {
            if let Event::WaitStarted { .. } = event.event {
                let unwatched = self.shell.unwatched_paths();
                let notice = |message| Input::Noticed { kind: "wake_paths", message };
                self.queue.todo.extend(unwatched.map(notice));
            }
            self.shell.show(&event, self.run.view());
        }
        durable
    }

    fn carry_out(&mut self, effect: Decision) {
        let (run, shell, todo) = (&self.run, &mut self.shell, &mut self.queue.todo);
        match effect {
            Decision::Record(_) | Decision::Start(_) => {}
            Decision::AssemblePrompt(wanted) => {
                if self.shell.has_day_limit() {
                    // The day's usage includes this run's, which is read from its journal. So write that first.
                    self.settle();
                    self.queue.todo.extend(self.shell.read_day());
                }
                self.queue.todo.extend(self.shell.assemble(&self.run, &wanted));
            }
            Decision::HashPins { node, iteration, tree } => {
                todo.extend(shell.hash_pins(run, node, iteration, tree))
            }
            Decision::KeepLog { node, iteration } => todo.extend(shell.keep_log(run, node, iteration)),
            Decision::KeepPartial { node, iteration, file } => {
                todo.extend(shell.keep_partial(run, node, iteration, &file));
            }
            Decision::KeepContext(entry) => {
                todo.push_back(Input::ContextKept { error: shell.keep_context(&entry).err() });
            }
            Decision::Notify(delivery) => {
                let (key, how) = (delivery.notification.key.clone(), delivery.how);
                let error = shell.notify(run, *delivery).err();
                todo.extend(error.map(|error| Input::Notified { key, how, error: Some(error) }));
            }
            Decision::ReleaseKeepers => shell.release_keepers(),
            Decision::RenewLeash { until } => shell.renew_leash(until),
            Decision::Order(job, TreeOrder::Sweep) => self.sweep(job),
            Decision::Order(job, step) => self.end(job, step),
            Decision::Nudge(job) => self.nudge(job),
            Decision::DropKeeper(job) => self.drop_keeper(job),
            Decision::Sample(job) => self.sample(job),
            Decision::RetryRecord => self.retry_record(),
            Decision::Finish { exit_code } => self.exit_code = Some(exit_code),
        }
    }

    /// Stops a job. A job that has not been started yet is refused instead.
    fn end(&mut self, job: Job, order: TreeOrder) {
        if self.queue.cancel_start(job) {
            let error = "not started: stopped while waiting to start".to_owned();
            self.queue.todo.push_back(Input::Job(job, NodeInput::Refused { error }));
        } else if self.record.cancel_withheld(job) {
            let error = "not started: the record cannot be written".to_owned();
            self.queue.todo.push_back(Input::Job(job, NodeInput::Refused { error }));
        } else {
            self.signal(job, order);
        }
    }

    fn retry_record(&mut self) {
        let withheld = self.record.withheld().to_vec();
        if !withheld.into_iter().all(|job| self.shell.keep_prompt(&self.run, job).is_ok()) {
            return;
        }
        match self.record.retry(&mut self.queue.todo) {
            Retried::NotYet => {}
            Retried::Written => {
                self.queue.todo.push_back(Input::RecordRecovered);
                for job in self.record.take_withheld() {
                    self.start(job);
                }
            }
            Retried::Lost => {
                for job in self.record.take_withheld() {
                    let error = "not started: the record is lost".to_owned();
                    self.queue.todo.push_back(Input::Job(job, NodeInput::Refused { error }));
                }
            }
        }
    }
}
