//! One delivered job: carries out what the lease machine decides.

use super::early::EarlyCheckout;
use super::journal::FIRST_CLAIM;
use super::nodes::{self, Unread};
use super::reserving::NO_SHARE;
use super::running::{self, Order};
use super::steering::wanted;
use super::{Worker, is_new_enough, matches, now};
use crate::client::{Delivery, FleetError, Reply};
use crate::names::{self, JobId, Name};
use crate::record::{JOB_VERSION, Job, JobRecord, JobState, MAX_JOB, Want};
use dogwatch_core::lease::{Decision, Input, Lease, Seen};
use dogwatch_core::time::moment::Boot;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// The server could not write because the key was busy.
const KEY_BUSY: u64 = 10164;
/// How long the queue holds a job back if its account has no budget left.
const PARKED: Duration = Duration::from_secs(5);
/// How long the queue holds a job back that could not be read because the server did not answer.
const LATER: Duration = Duration::from_secs(1);
/// How often the last answer to the queue is tried.
const ANSWER_TRIES: u32 = 5;
/// How many inputs of one job may wait.
const MAX_INPUTS: usize = 64;

/// Holds a delivered job to its end.
pub(super) async fn hold(worker: Arc<Worker>, delivery: Delivery) {
    let (id, job) = match accept(&worker, &delivery).await {
        Ok(accepted) => accepted,
        Err(NotTaken::Never(why)) => {
            worker.say(&format!("{}: removed from the queue: {why}", delivery.subject));
            let _ = worker.client.reply_surely(&delivery, &Reply::Term(why)).await;
            return;
        }
        Err(NotTaken::Over(id)) => {
            let why = "its graph is over".to_owned();
            worker.say(&format!("{id}: removed from the queue: {why}"));
            if let Ok(Some(found)) = nodes::record(&worker.client, &id).await {
                nodes::cancel(&worker.client, &id, found, &why).await;
            }
            let _ = worker.client.reply_surely(&delivery, &Reply::Term(why)).await;
            return;
        }
        Err(NotTaken::Later) => return worker.client.give_back(&delivery, Some(LATER)).await,
        Err(NotTaken::Here(id, why)) => return refuse(&worker, &delivery, &id, &why).await,
    };
    if worker.is_over_budget(&id.account).await {
        return worker.client.give_back(&delivery, Some(PARKED)).await;
    }
    // A graph spends nothing itself, and must not keep the share from its nodes that they wait for.
    if !job.spread && !worker.could_reserve(&id).await {
        worker.refusals().add(&id, NO_SHARE, now());
        worker.changed.notify_one();
        return worker.client.give_back(&delivery, Some(PARKED)).await;
    }
    let Ok(nonce) = nonce() else { return worker.client.give_back(&delivery, Some(LATER)).await };
    let lease = Lease::new(worker.times(), worker.name().as_str(), &nonce, delivery.sequence, &job.title());
    let (inputs, received) = mpsc::channel(MAX_INPUTS);
    let (orders, heard) = mpsc::unbounded_channel();
    let (ticket, is_only) = worker.add(&id, job.spread, orders.clone());
    let heard = Some(heard);
    // A checkout changes nothing that others see, so it need not wait for the record of a job that is delivered for the first time.
    let early = (is_only && delivery.delivered == 1)
        .then(|| EarlyCheckout::begin(worker.clone(), id.clone(), job.clone()));
    let (full, unwritten) = (false, Arc::default());
    let mut holder =
        Holder { worker, delivery, id, job, lease, inputs, orders, heard, is_only, early, full, unwritten };
    holder.run(received).await;
    if let Some(early) = holder.early.take() {
        early.abandon(&holder.worker).await;
    }
    holder.worker.forget(ticket);
}

/// Refuses a delivered job if its message says that this worker does not run it. Returns whether it did.
pub(super) async fn refuse_at_once(worker: &Worker, delivery: &Delivery) -> bool {
    let read = if nodes::node_of(&delivery.subject).is_none() { read_job(delivery).ok() } else { None };
    let Some((id, why)) = read.and_then(|(id, job)| Some((id.clone(), refusal(worker, &id, &job)?))) else {
        return false;
    };
    refuse(worker, delivery, &id, &why).await;
    true
}

/// Gives a job back that this worker does not run, for another one. If the operator has stopped it, it is over instead, and
/// uses up no place of its account any more.
async fn refuse(worker: &Worker, delivery: &Delivery, id: &JobId, why: &str) {
    if wanted(&worker.client, id).await == Some(Want::Stop)
        && let Ok(Some(found)) = nodes::record(&worker.client, id).await
        // A worker that runs such jobs publishes the work of one that has run.
        && found.1.run.is_none()
        && nodes::cancel(&worker.client, id, found, "the operator stopped it").await
    {
        worker.say(&format!("{id}: removed from the queue: the operator stopped it"));
        let _ = worker.client.reply_surely(delivery, &Reply::Term("stopped".to_owned())).await;
        return;
    }
    if !worker.refusals().has(id) {
        worker.say(&format!("{id}: left to other workers: {why}"));
    }
    let delay = worker.refusals().add(id, why, now());
    worker.changed.notify_one();
    worker.client.give_back(delivery, Some(delay).filter(|delay| !delay.is_zero())).await;
}

/// Returns a random text for a claim.
fn nonce() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Why this worker does not take a delivered job.
enum NotTaken {
    /// No worker can run this message.
    Never(String),
    /// The graph of this node is over.
    Over(JobId),
    /// The server does not answer.
    Later,
    /// This worker does not run this job.
    Here(JobId, String),
}

/// Reads a delivered job, or returns why this worker does not take it.
async fn accept(worker: &Worker, delivery: &Delivery) -> Result<(JobId, Job), NotTaken> {
    let (id, job) = match nodes::node_of(&delivery.subject) {
        Some(id) => nodes::read(&worker.client, id, delivery).await.map_err(|unread| match unread {
            Unread::Never(why) => NotTaken::Never(why),
            Unread::Over(id) => NotTaken::Over(id),
            Unread::Later => NotTaken::Later,
        })?,
        None => read_job(delivery)?,
    };
    match refusal(worker, &id, &job) {
        Some(why) => Err(NotTaken::Here(id, why)),
        None => Ok((id, job)),
    }
}

/// Reads a job that the operator queued.
fn read_job(delivery: &Delivery) -> Result<(JobId, Job), NotTaken> {
    if delivery.payload.len() > MAX_JOB {
        return Err(NotTaken::Never(format!("the job is larger than {MAX_JOB} bytes")));
    }
    let mut job: Job = serde_json::from_slice(&delivery.payload)
        .map_err(|error| NotTaken::Never(format!("not a job: {error}")))?;
    let subject = delivery.subject.as_str();
    let graph = subject.strip_prefix("dw.graphs.");
    job.spread = graph.is_some();
    let name = graph.or(subject.strip_prefix("dw.jobs.")).unwrap_or_default();
    let mut id: JobId = name.parse().map_err(|_| NotTaken::Never("the subject names no job".to_owned()))?;
    if job.scheduled {
        let each: Result<Name, _> = format!("{}-{}", id.job, delivery.sequence).parse();
        id.job = each.map_err(|_| NotTaken::Never("the name of the schedule is too long".to_owned()))?;
    }
    if id.account != job.account {
        return Err(NotTaken::Never("the job names another account".to_owned()));
    }
    Ok((id, job))
}

/// Returns why this worker does not run the job.
fn refusal(worker: &Worker, id: &JobId, job: &Job) -> Option<String> {
    let settings = &worker.settings;
    if job.v > JOB_VERSION {
        return Some(format!("it is written for a newer dogwatch than {}", settings.version));
    }
    if let Some(label) = job.needs.iter().find(|label| !settings.labels.contains(label)) {
        return Some(format!("it needs the label {label}"));
    }
    if let Some(need) = job.min_version.as_deref().filter(|need| !is_new_enough(&settings.version, need)) {
        return Some(format!("it needs dogwatch {need} or newer"));
    }
    if !settings.repositories.iter().any(|pattern| matches(pattern, &job.repo)) {
        return Some("its repository is not allowed".to_owned());
    }
    worker.refusals().after_checkout(id)
}

struct Holder {
    worker: Arc<Worker>,
    delivery: Delivery,
    id: JobId,
    job: Job,
    lease: Lease,
    inputs: mpsc::Sender<Input>,
    orders: mpsc::UnboundedSender<Order>,
    heard: Option<mpsc::UnboundedReceiver<Order>>,
    /// Whether this worker holds no other delivery of the job. Two deliveries would share a checkout.
    is_only: bool,
    early: Option<EarlyCheckout>,
    /// Whether the run was ended because the disk is full.
    full: bool,
    /// Why the record could not be written last time. Each reason is reported once.
    unwritten: Arc<Mutex<Option<FleetError>>>,
}

impl Holder {
    async fn run(&mut self, mut received: mpsc::Receiver<Input>) {
        let mut drain = self.worker.drain.clone();
        let mut drained = false;
        let mut input = Input::Delivered;
        loop {
            for decision in self.lease.step(now(), input) {
                self.carry_out(decision).await;
            }
            if self.lease.is_over() {
                return;
            }
            let wakeup = self.lease.next_wakeup();
            input = tokio::select! {
                biased;
                _ = drain.wait_for(|set| *set), if !drained => {
                    drained = true;
                    Input::Drained
                }
                // This side holds a sender, too, so the channel stays open.
                Some(input) = received.recv() => input,
                () = sleep_until(wakeup) => Input::Woke,
            };
        }
    }

    async fn carry_out(&mut self, decision: Decision) {
        let worker = &self.worker;
        match decision {
            Decision::Read => {
                let (worker, inputs, key) = (worker.clone(), self.inputs.clone(), self.id.to_string());
                tokio::spawn(async move {
                    let input = read(&worker, &key).await;
                    let _ = inputs.send(input).await;
                });
            }
            Decision::Write { expected, record } => {
                // The checkout of a job that was delivered before need not wait for the claim.
                if self.heard.is_some() && self.is_only && is_first_claim(&record) && self.early.is_none() {
                    let (worker, id) = (worker.clone(), self.id.clone());
                    self.early = Some(EarlyCheckout::begin(worker, id, self.job.clone()));
                }
                let (worker, inputs, key) = (worker.clone(), self.inputs.clone(), self.id.to_string());
                let unwritten = self.unwritten.clone();
                tokio::spawn(async move {
                    let input = write(&worker, &key, expected, &record, &unwritten).await;
                    let _ = inputs.send(input).await;
                });
            }
            Decision::KeepDelivery => {
                // The next one repeats it.
                let _ = worker.client.reply(&self.delivery, &Reply::InProgress).await;
                self.look_at_disk();
            }
            Decision::Start { epoch, run, until } => {
                let how = if run.is_some() { "continues" } else { "starts" };
                worker.say(&format!("{}: {how} (claim {epoch})", self.id));
                if let Some(heard) = self.heard.take() {
                    let task = running::Task {
                        worker: worker.clone(),
                        id: self.id.clone(),
                        job: self.job.clone(),
                        epoch,
                        until,
                        inputs: self.inputs.clone(),
                        early: self.early.take(),
                    };
                    tokio::spawn(task.run(heard));
                }
            }
            // A run that has ended needs no orders.
            Decision::Extend(until) => drop(self.orders.send(Order::Extend(until))),
            Decision::End => {
                let lost = self.lease.is_lost();
                if lost {
                    worker.say(&format!("{}: another worker has taken it; ending the run here", self.id));
                }
                let _ = self.orders.send(Order::End { lost });
            }
            Decision::Ack => self.answer(&Reply::Ack).await,
            Decision::Term(why) => {
                worker.say(&format!("{}: removed from the queue: {why}", self.id));
                self.answer(&Reply::Term(why)).await;
            }
            Decision::GiveBack => {
                worker.say(&format!("{}: given back", self.id));
                self.answer(&Reply::Nak(None)).await;
            }
            Decision::ReportPoison(why) => worker.report_poison(&self.id, &why),
            Decision::StepBack => {}
        }
    }

    /// Ends the run if the disk is full: it cannot write its record, and another worker can continue it. The look costs no
    /// wake-up of its own.
    fn look_at_disk(&mut self) {
        if self.worker.is_full() && !std::mem::replace(&mut self.full, true) {
            self.worker.say(&format!("{}: the disk is full: ending the run", self.id));
            let _ = self.orders.send(Order::Fail("the disk of the worker is full".to_owned()));
        }
    }

    /// Gives the last answer to the queue. If it is lost, the next delivery finds the record and repeats it.
    async fn answer(&self, reply: &Reply) {
        for _ in 0..ANSWER_TRIES {
            if self.worker.client.reply_surely(&self.delivery, reply).await.is_ok() {
                return;
            }
        }
    }
}

/// Returns whether a record claims a job that no worker has run yet.
fn is_first_claim(record: &JobRecord) -> bool {
    record.epoch == FIRST_CLAIM && record.state == JobState::Running
}

/// Waits until a moment, or forever.
pub(super) async fn sleep_until(at: Option<Boot>) {
    match at {
        None => std::future::pending().await,
        Some(at) => tokio::time::sleep(Duration::from_millis(at.since(now()).as_millis())).await,
    }
}

async fn read(worker: &Worker, key: &str) -> Input {
    match worker.client.get(names::KV_JOBS, key).await {
        Ok(None) => Input::Found(None),
        // The operator removed the job.
        Ok(Some(stored)) if stored.is_removal() => {
            let record = JobRecord { state: JobState::Done, ..JobRecord::default() };
            Input::Found(Some(Seen { revision: stored.sequence, record }))
        }
        Ok(Some(stored)) => match serde_json::from_slice(&stored.payload) {
            Ok(record) => Input::Found(Some(Seen { revision: stored.sequence, record })),
            Err(error) => {
                worker.say(&format!("{key}: cannot read its record: {error}"));
                Input::ReadFailed
            }
        },
        Err(_) => Input::ReadFailed,
    }
}

async fn write(
    worker: &Worker,
    key: &str,
    expected: u64,
    record: &JobRecord,
    unwritten: &Mutex<Option<FleetError>>,
) -> Input {
    let written = worker.client.put(names::KV_JOBS, key, record, Some(expected)).await;
    let error = written.as_ref().err().filter(|error| error.code() != Some(KEY_BUSY)).cloned();
    let before =
        std::mem::replace(&mut *unwritten.lock().unwrap_or_else(PoisonError::into_inner), error.clone());
    match written {
        Ok(revision) => Input::Written(revision),
        Err(FleetError::Conflict) => Input::Refused,
        Err(FleetError::NoAnswer) => Input::Unanswered,
        Err(_) => {
            if let Some(error) = error.filter(|error| before.as_ref() != Some(error)) {
                worker.say(&format!("{key}: cannot write its record: {error}"));
            }
            Input::Busy
        }
    }
}
