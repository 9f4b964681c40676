//! One claimed job: checkout, run, result.

use super::branches::Branches;
use super::child::{Child, Exit, LEASH_ENDED, Start};
use super::command::{Cancel, CommandError};
use super::copying::Copying;
use super::early::{EarlyCheckout, finished};
use super::git::{self, Checkout};
use super::journal::{Copier, FIRST_CLAIM, Remains};
use super::reserving::NO_SHARE;
use super::sessions::{Graph, Sessions};
use super::steering::{limit, post, post_to_new_run, steer, wanted};
use super::{Denied, Worker, nodes, now, remains};
use crate::client::FleetError;
use crate::names::JobId;
use crate::record::{Job, JobResult, Want};
use dogwatch_core::lease::Input;
use dogwatch_core::record::ids::RunId;
use dogwatch_core::text::one_line;
use dogwatch_core::time::moment::{Boot, Wall};
use dogwatch_host::store::journal::SessionLines;
use dogwatch_host::store::{fleet_job, safe_file};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long the rest of the journal may take after the run has ended.
const MAX_REST: Duration = Duration::from_secs(60);

/// How long a claim waits for a server that cannot serve its journal. Then the job is given back.
const MAX_UNSERVED: Duration = Duration::from_secs(60);
/// The pause before such a request is repeated.
const UNSERVED_RETRY: Duration = Duration::from_millis(500);

/// An order to a running job.
#[derive(Debug)]
pub(crate) enum Order {
    /// It may live until this moment.
    Extend(Boot),
    /// It has to end now.
    End {
        /// Whether another worker owns it already.
        lost: bool,
    },
    /// It has to end now, because this worker cannot run it.
    Fail(String),
    /// No work of its account starts until then.
    Limit(Wall),
    /// The operator has lifted the limit.
    Unpark,
}

/// Why a run was ordered to end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ordered {
    /// Another worker owns the job.
    Lost,
    /// The lease is over, or the worker is drained.
    Drained,
    /// This worker cannot run it.
    Failed(String),
    /// It is a node that has to end.
    Ended(&'static str),
}

/// A claimed job.
pub(super) struct Task {
    pub worker: Arc<Worker>,
    pub id: JobId,
    pub job: Job,
    pub epoch: u64,
    pub until: Boot,
    pub inputs: mpsc::Sender<Input>,
    /// The checkout, if it was begun before the claim was confirmed.
    pub early: Option<EarlyCheckout>,
}

/// Why a job could not be run to its end.
enum Failure {
    /// It was ended before it started.
    Canceled,
    /// It will not work anywhere.
    Refused(String),
    /// Another worker may run it.
    NotHere(String),
    /// The server cannot serve its journal. That is not the fault of the job, so it does not count as a crash.
    Unserved(FleetError),
    /// It may work elsewhere or later.
    Crashed(String),
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Failure {
        match error {
            CommandError::Canceled => Failure::Canceled,
            CommandError::Io(_) | CommandError::Failed { .. } | CommandError::TimedOut(_) => {
                Failure::Crashed(error.to_string())
            }
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Crashed(error.to_string())
    }
}

/// The outcome of a job that the operator stopped before its run ended.
const STOPPED: &str = "stopped";
/// How much of the errors of a run is read to find the one that ended it.
const MAX_SAID: u64 = 1024 * 1024;
/// The exit code of such a job: no check has passed.
const UNVERIFIED: i32 = 1;
/// The outcome of a job that no worker can run.
const REFUSED: &str = "refused";

fn refused(why: String) -> JobResult {
    JobResult { outcome: REFUSED.to_owned(), detail: Some(why), ..JobResult::default() }
}

impl Task {
    /// Runs the job, and reports how it ended when no process of it is left.
    pub async fn run(mut self, orders: mpsc::UnboundedReceiver<Order>) {
        let early = self.early.take();
        let (cancel, early) = match early {
            Some(early) => (early.cancel, Some(early.checkout)),
            None => (watch::channel(false).0, None),
        };
        let canceled = Cancel::new(cancel.subscribe());
        let (to_child, child_orders) = mpsc::unbounded_channel();
        // Orders also arrive during preparations.
        let relay = tokio::spawn(relay(orders, to_child, cancel));
        let inputs = self.inputs.clone();
        let (worker, id, epoch) = (self.worker.clone(), self.id.clone(), self.epoch);
        let end = match self.work(child_orders, canceled, early).await {
            Ok(input) => input,
            Err(Failure::Canceled) => Input::Stopped,
            Err(Failure::Refused(why)) => Input::Finished(refused(why)),
            Err(Failure::NotHere(why)) => {
                worker.say(&format!("{id}: left to other workers: {why}"));
                worker.refusals().add_checked_out(&id, &why, now());
                Input::Stopped
            }
            Err(Failure::Unserved(error)) => {
                worker.say(&format!("{id}: the server cannot serve its journal: {error}"));
                Input::Stopped
            }
            Err(Failure::Crashed(why)) => Input::Crashed(why),
        };
        if let Input::Crashed(why) = &end {
            worker.say(&format!("{id}: {why}"));
        }
        if let Input::Finished(JobResult { outcome, detail: Some(why), .. }) = &end
            && outcome == REFUSED
        {
            worker.say(&format!("{id}: refused: {why}"));
        }
        relay.abort();
        worker.give_back(&id, epoch).await;
        let _ = inputs.send(end).await;
    }

    async fn work(
        self,
        mut orders: mpsc::UnboundedReceiver<Order>,
        cancel: Cancel,
        early: Option<JoinHandle<Result<Checkout, CommandError>>>,
    ) -> Result<Input, Failure> {
        let worker = self.worker.clone();
        // The nodes of a graph reserve for themselves.
        let reserve = async { self.job.spread || worker.reserve(&self.id, self.epoch).await };
        let wanted = wanted(&worker.client, &self.id);
        let (begun, wanted, reserved) = match self.epoch {
            // The first claim finds nothing, so it does not wait for the server before the checkout.
            FIRST_CLAIM => {
                let check_out = async {
                    match early {
                        Some(early) => finished(early).await,
                        None => worker.repositories.check_out(&self.id, &self.job, None, &cancel).await,
                    }
                };
                let (wanted, reserved, checkout) = tokio::join!(wanted, reserve, check_out);
                let first = Copier::first(&worker.client, &self.id);
                (Ok((first, Remains::default(), Some(checkout))), wanted, reserved)
            }
            _ => {
                let (begun, wanted, reserved) = tokio::join!(self.begin(&cancel), wanted, reserve);
                (begun.map(|(copier, remains)| (copier, remains, None)), wanted, reserved)
            }
        };
        let stop = wanted == Some(Want::Stop);
        let stopped = || JobResult { outcome: STOPPED.to_owned(), ..JobResult::default() };
        let starts = reserved && !stop;
        if let Ok((_, _, Some(Ok(checkout)))) = &begun
            && !starts
        {
            worker.repositories.remove(checkout);
        }
        if stop && self.epoch == FIRST_CLAIM {
            return Ok(Input::Finished(stopped()));
        }
        if !reserved && !stop {
            worker.refusals().add(&self.id, NO_SHARE, now());
            return Ok(Input::Stopped);
        }
        let (copier, remains, checkout) = begun?;
        let tree = remains.tree.as_deref();
        let checkout = match checkout {
            Some(checkout) => checkout?,
            None if stop && tree.is_none() => return Ok(Input::Finished(stopped())),
            None => worker.repositories.check_out(&self.id, &self.job, tree, &cancel).await?,
        };
        let allowed = if stop { Ok(()) } else { (worker.settings.allow)(&checkout.tree, &self.job) };
        if let Err(denied) = allowed {
            worker.repositories.remove(&checkout);
            return Err(match denied {
                Denied::Everywhere(why) => Failure::Refused(why),
                Denied::Here(why) => Failure::NotHere(why),
            });
        }
        fleet_job::mark(&checkout.tree, &self.id.to_string())?;
        let (before, mut ended) = remains::read(&remains);
        let branches = Branches::of(&remains);
        branches.restore(&checkout, &self.id, &cancel).await?;
        let (named, run_dir) = watch::channel(None);
        if let Some(run) = &before {
            let dir = remains::restore(&checkout.tree, run, &remains.journal)?;
            named.send_replace(Some(dir));
        }
        let mut over = ended.as_ref().is_some_and(|(outcome, _)| outcome != "interrupted");
        if stop && !over {
            // The work that an earlier claim saved is the result.
            (over, ended) = (true, Some((STOPPED.to_owned(), UNVERIFIED)));
        }
        let mut copying = Copying {
            worker: worker.clone(),
            id: self.id.clone(),
            epoch: self.epoch,
            checkout: checkout.clone(),
            copier,
            run: before.clone(),
            inputs: self.inputs.clone(),
            branches,
            spread: self.job.spread,
            sessions: SessionLines::of(&remains.journal),
            named,
            ended: if over { ended } else { None },
            fenced: false,
            waits: None,
        };
        let end = if over {
            // The earlier owner died between the end of the run and the end of the job.
            let code = copying.ended.as_ref().map_or(0, |(_, code)| *code);
            self.finish(&mut copying, code, &cancel).await
        } else {
            let errors = checkout.tree.with_file_name(git::STDERR);
            let sessions =
                self.job.spread.then(|| self.sessions(&checkout, &run_dir, &cancel)).transpose()?;
            let mut child = self.start(&checkout, before.as_ref(), &errors, sessions.as_ref())?;
            let (exited, over) = watch::channel(false);
            let copying = tokio::spawn(copying.run(over));
            let (exit, ordered) = self.follow(&mut child, &mut orders, &run_dir).await;
            drop(sessions);
            if let Exit::Signal(_) = exit {
                // The keepers of a killed dogwatch end what it started; give them their time.
                tokio::time::sleep(Duration::from_millis(worker.times().stop.as_millis())).await;
            }
            exited.send_replace(true);
            let copying = tokio::time::timeout(MAX_REST, copying).await;
            let Ok(Ok(mut copying)) = copying else { return Ok(Input::Stopped) };
            self.judge(&mut copying, exit, ordered, &errors, &cancel).await
        };
        worker.repositories.remove(&checkout);
        Ok(end)
    }

    /// Becomes the writer of the journal, and reads what earlier claims left. Tries again while the server refuses: the servers
    /// of a cluster do when they start or elect a leader.
    async fn begin(&self, cancel: &Cancel) -> Result<(Copier, Remains), Failure> {
        let give_up = Instant::now() + MAX_UNSERVED;
        let mut waits = false;
        loop {
            let begin = async {
                let mut copier = Copier::begin(&self.worker.client, &self.id, self.epoch).await?;
                let remains = copier.remains().await?;
                Ok((copier, remains))
            };
            let begun = tokio::select! {
                begun = begin => begun,
                () = cancel.wait() => return Err(Failure::Canceled),
            };
            match begun {
                Ok(begun) => return Ok(begun),
                // A later claim writes the journal, so this one is over.
                Err(FleetError::Conflict) => return Err(Failure::Canceled),
                Err(error) if Instant::now() >= give_up => return Err(Failure::Unserved(error)),
                Err(error) => {
                    if !std::mem::replace(&mut waits, true) {
                        self.worker.say(&format!("{}: waits for its journal: {error}", self.id));
                    }
                    tokio::time::sleep(UNSERVED_RETRY).await;
                }
            }
        }
    }

    /// Serves the sessions of a graph whose nodes are jobs of their own.
    fn sessions(
        &self,
        checkout: &Checkout,
        run_dir: &watch::Receiver<Option<PathBuf>>,
        cancel: &Cancel,
    ) -> io::Result<Sessions> {
        Sessions::open(Graph {
            worker: self.worker.clone(),
            id: self.id.clone(),
            epoch: self.epoch,
            checkout: checkout.clone(),
            run_dir: run_dir.clone(),
            ending: cancel.clone(),
            locks: Default::default(),
            stops: watch::channel(false).0,
        })
    }

    fn start(
        &self,
        checkout: &Checkout,
        run: Option<&RunId>,
        errors: &Path,
        sessions: Option<&Sessions>,
    ) -> io::Result<Child> {
        let job = &self.job;
        let program = &self.worker.settings.program;
        let mut args = vec![job.path.clone().into()];
        if sessions.is_some() {
            args.push("--spread".into());
        }
        if let Some(node) = &job.node {
            let prompt = checkout.tree.with_file_name(git::PROMPT);
            std::fs::write(&prompt, &node.prompt)?;
            let only = std::ffi::OsString::from(&node.node);
            args.extend(["--only".into(), only, "--prompt".into(), prompt.into()]);
        }
        if let Some(pristine) = &checkout.pristine {
            args.extend(["--pristine".into(), pristine.to_string().into()]);
        }
        if let Some(count) = job.iterations {
            args.extend(["-n".into(), count.to_string().into()]);
        }
        if let Some(timeout) = &job.timeout {
            args.extend(["--timeout".into(), timeout.into()]);
        }
        for set in &job.set {
            args.extend(["--set".into(), set.into()]);
        }
        Child::start(&Start {
            program,
            tree: &checkout.tree,
            args,
            resume: run,
            loop_args: &job.args,
            until: self.until,
            env: sessions
                .map_or_else(Vec::new, |sessions| sessions.variables(program))
                .into_iter()
                .chain([(fleet_job::VARIABLE, self.id.to_string().into())])
                .collect(),
            errors,
        })
    }

    /// Follows the process to its end. Returns also why it was ordered to end, if it was.
    async fn follow(
        &self,
        child: &mut Child,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        run_dir: &watch::Receiver<Option<PathBuf>>,
    ) -> (Exit, Option<Ordered>) {
        let mut ordered = None;
        let ended = async {
            match &self.job.node {
                Some(node) => nodes::ended(&self.worker, &self.id, node).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(ended);
        let controls = self.worker.client.subscribe(&self.id.control_subject()).await;
        let steering = tokio::spawn(steer(self.worker.clone(), controls.ok(), run_dir.clone()));
        if let Some(until) = self.worker.parked_until(&self.id.account).await {
            tokio::spawn(limit(run_dir.clone(), until));
        }
        if wanted(&self.worker.client, &self.id).await == Some(Want::Pause) {
            tokio::spawn(post_to_new_run(run_dir.clone(), "/v1/pause", serde_json::json!({})));
        }
        let exit = loop {
            tokio::select! {
                exit = child.exited() => break exit,
                why = &mut ended, if ordered.is_none() => {
                    ordered = Some(Ordered::Ended(why));
                    child.end();
                }
                order = orders.recv() => match order {
                    Some(Order::Extend(until)) => child.extend(until),
                    Some(Order::End { lost }) => {
                        if lost || ordered.is_none() {
                            ordered = Some(if lost { Ordered::Lost } else { Ordered::Drained });
                        }
                        child.end();
                    }
                    Some(Order::Fail(why)) => {
                        ordered.get_or_insert(Ordered::Failed(why));
                        child.end();
                    }
                    Some(Order::Limit(until)) => drop(tokio::spawn(limit(run_dir.clone(), until))),
                    Some(Order::Unpark) => {
                        let dir = run_dir.borrow().clone();
                        tokio::spawn(post(dir, "/v1/wake", serde_json::json!({})));
                    }
                    None => {
                        child.end();
                        break child.exited().await;
                    }
                },
            }
        };
        steering.abort();
        (exit, ordered)
    }

    /// Decides what the end of the process means.
    async fn judge(
        &self,
        copying: &mut Copying,
        exit: Exit,
        ordered: Option<Ordered>,
        errors: &Path,
        cancel: &Cancel,
    ) -> Input {
        let said = || {
            let text = safe_file::read_up_to(errors, MAX_SAID).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            one_line(text.lines().find(|line| line.contains("error")).unwrap_or(&text), 300)
        };
        let over = copying.ended.as_ref().is_some_and(|(outcome, _)| outcome != "interrupted");
        if ordered == Some(Ordered::Lost) || copying.fenced {
            return Input::Stopped;
        }
        match (exit, ordered) {
            (Exit::Code(code), _) if over => self.finish(copying, code, cancel).await,
            (_, Some(Ordered::Ended(why))) => {
                self.worker.say(&format!("{}: ended, because {why}", self.id));
                Input::Finished(nodes::stopped(why))
            }
            (Exit::Code(_), Some(Ordered::Failed(why))) => {
                self.save(copying).await;
                Input::Crashed(why)
            }
            (Exit::Code(2), _) => Input::Finished(refused(said())),
            (Exit::Code(LEASH_ENDED | 129 | 130 | 143), _) => {
                self.save(copying).await;
                Input::Stopped
            }
            (Exit::Code(code), _) => Input::Crashed(format!("dogwatch exited with {code}: {}", said())),
            (Exit::Signal(signal), _) => {
                self.save(copying).await;
                Input::Crashed(format!("dogwatch was killed by signal {signal}"))
            }
        }
    }
}

/// Passes orders on, and cancels preparations when the job has to end.
async fn relay(
    mut orders: mpsc::UnboundedReceiver<Order>,
    to_child: mpsc::UnboundedSender<Order>,
    cancel: watch::Sender<bool>,
) {
    while let Some(order) = orders.recv().await {
        if matches!(order, Order::End { .. } | Order::Fail(_)) {
            cancel.send_replace(true);
        }
        // The child may have ended already.
        let _ = to_child.send(order);
    }
}
