//! Follows a fleet for `top --fleet` and `serve --fleet`: workers, queues, and the journals of the runs that are shown.
//!
//! One thread holds the connection. Changes of records and journals arrive as hints, and everything shown is read from
//! the buckets and streams: a hint may announce a write that the server refused.

use super::journal::{Pieces, Taken};
use super::state::Fleet;
use super::{control, read_fleet, runtime, silent};
use crate::client::{Client, FleetError, From, Subscription};
use crate::join::JoinLine;
use crate::names::{self, JobId};
use crate::record::{Control, ControlAnswer, JobState};
use dogwatch_core::record::ids::RunId;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::{Skew, Wall};
use dogwatch_host::clock;
use dogwatch_host::store::mirror::{MAX_RUNS, Mirror, RemoteRun};
use dogwatch_host::store::registry::{Origin, Pointer, Registry};
use dogwatch_server::{MachineEntry, MachineState, OtherMachines, Response};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

/// How often the view asks whether the server answers.
const LOOK: Duration = Duration::from_secs(10);
/// After this many looks everything is read again without a hint: a hint may be lost, and the end of a limit is none.
const REFRESH: u32 = 6;
/// The shortest time between two readings.
const PAUSE: Duration = Duration::from_millis(250);
/// The time between two attempts to connect.
const RETRY: Duration = Duration::from_secs(2);
/// How long a request to a run may take.
const ANSWER: Duration = Duration::from_secs(8);
/// How many hints and requests may be queued. A hint that does not fit is replaced by the next reading.
const QUEUE: usize = 256;
/// The source's name in the mirror.
const SOURCE: &str = "fleet";

/// Called when something changed.
pub type OnChange = Arc<dyn Fn() + Send + Sync>;

/// A fleet that is followed.
pub struct FleetView {
    shared: Arc<Shared>,
    asks: mpsc::Sender<Ask>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    mirror: Mirror,
    state: Mutex<State>,
    on_change: OnChange,
}

struct State {
    /// The connection to the server.
    link: MachineEntry,
    fleet: Fleet,
    runs: BTreeMap<RunId, JobId>,
}

struct Ask {
    job: JobId,
    control: Control,
    to: SyncSender<Result<ControlAnswer, FleetError>>,
}

enum Hint {
    Fleet,
    Lines(JobId),
}

impl FleetView {
    /// Starts to follow a fleet. Call it after the signals are blocked, because the thread inherits the mask.
    pub fn start(line: JoinLine, on_change: OnChange) -> io::Result<FleetView> {
        let server = line.servers.join(", ");
        let link = MachineEntry {
            name: format!("connection to {server}"),
            state: MachineState::Connecting,
            since: clock::now().wall,
            why: None,
            version: None,
            runs: 0,
            detail: None,
        };
        let state = Mutex::new(State { link, fleet: Fleet::default(), runs: BTreeMap::new() });
        let shared = Arc::new(Shared { mirror: Mirror::create()?, state, on_change });
        let (asks, asked) = mpsc::channel(QUEUE);
        let (stop, stopped) = watch::channel(false);
        let runtime = runtime().map_err(io::Error::other)?;
        let follower = Arc::clone(&shared);
        let follow = move || runtime.block_on(follower.follow(line, asked, stopped));
        let thread = std::thread::Builder::new().name("fleet".into()).spawn(follow)?;
        Ok(FleetView { shared, asks, stop, thread: Some(thread) })
    }
}

impl Drop for FleetView {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl OtherMachines for FleetView {
    fn registries(&self) -> Vec<Registry> {
        vec![self.shared.mirror.registry().clone()]
    }

    fn machines(&self) -> Vec<MachineEntry> {
        let state = self.shared.state();
        let mut all = vec![state.link.clone()];
        all.extend(state.fleet.entries(clock::now().wall));
        all
    }

    fn summary(&self) -> Option<String> {
        Some(self.shared.state().fleet.summary())
    }

    fn ask(&self, pointer: &Pointer, what: &str, body: &Value) -> Result<Response, String> {
        let control = match what {
            "wake" => Control::Wake,
            "pause" => Control::Pause,
            "resume" => Control::Resume,
            "stop" => Control::Stop,
            "tell" => Control::Tell { text: body["text"].as_str().unwrap_or_default().to_owned() },
            other => return Err(format!("a fleet does not pass on `{other}`")),
        };
        let job = self.shared.state().runs.get(&pointer.run).cloned();
        let job = job.ok_or("the fleet has no job with this run")?;
        let (to, answered) = sync_channel(1);
        self.asks.try_send(Ask { job, control, to }).map_err(|_| "too many requests at once")?;
        let answer = answered.recv_timeout(ANSWER).map_err(|_| "no answer in time")?;
        let (status, body) = match answer {
            Ok(ControlAnswer { ok: true, detail }) => {
                (202, serde_json::json!({"ok": true, "detail": detail}))
            }
            Ok(ControlAnswer { ok: false, detail }) => {
                let message = detail.unwrap_or_else(|| "the run refused".to_owned());
                (409, serde_json::json!({"error": {"message": message}}))
            }
            Err(FleetError::NoResponders) => return Err("no worker runs this job now".to_owned()),
            Err(error) => return Err(error.to_string()),
        };
        let body = serde_json::to_vec(&body).map_err(|error| error.to_string())?;
        Ok(Response { status, content_type: "application/json".into(), body })
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn follow(&self, line: JoinLine, mut asks: mpsc::Receiver<Ask>, mut stop: watch::Receiver<bool>) {
        loop {
            match Client::connect(&line, false, silent()).await {
                Ok(client) => {
                    let mut follower = Follower::new(self, client);
                    if let Err(error) = follower.run(&mut asks, &mut stop).await {
                        self.down(&error);
                    }
                }
                Err(error) => self.down(&error),
            }
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    fn down(&self, error: &FleetError) {
        self.set_link(MachineState::Down, Some(error.to_string()), None);
    }

    fn set_link(&self, to: MachineState, why: Option<String>, version: Option<String>) {
        let changed = {
            let mut state = self.state();
            let before = state.link.clone();
            let link = &mut state.link;
            if link.state != to {
                (link.state, link.since) = (to, clock::now().wall);
            }
            link.why = why;
            // Its version is not that of a dogwatch.
            link.detail = version.map(|version| format!("nats-server {version}")).or(link.detail.take());
            *link != before
        };
        if changed {
            (self.on_change)();
        }
    }
}

/// One connection.
struct Follower<'a> {
    shared: &'a Shared,
    client: Client,
    /// The journals that were read, by job.
    journals: BTreeMap<JobId, (RunId, Pieces, Skew)>,
    /// The jobs whose journals have lines. Only their runs are listed.
    with_lines: BTreeSet<JobId>,
    listening: BTreeMap<JobId, AbortHandle>,
    /// Follows the presence of workers.
    watching: Option<AbortHandle>,
    hints: (mpsc::Sender<Hint>, mpsc::Receiver<Hint>),
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        self.listening.values().chain(&self.watching).for_each(AbortHandle::abort);
    }
}

impl<'a> Follower<'a> {
    fn new(shared: &'a Shared, client: Client) -> Follower<'a> {
        Follower {
            shared,
            client,
            journals: BTreeMap::new(),
            with_lines: BTreeSet::new(),
            listening: BTreeMap::new(),
            watching: None,
            hints: mpsc::channel(QUEUE),
        }
    }

    /// Follows the fleet. Returns when it has to stop, or with an error when the server does not answer.
    async fn run(
        &mut self,
        asks: &mut mpsc::Receiver<Ask>,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(), FleetError> {
        let buckets =
            [names::KV_JOBS, names::KV_LIMITS, names::KV_WANT].map(|bucket| names::key_subject(bucket, ">"));
        let queues = ["dw.jobs.>".to_owned(), "dw.sched.>".to_owned(), names::all_answers()];
        for subject in buckets.into_iter().chain(queues) {
            let heard = self.client.subscribe(&subject).await?;
            // The tasks end with the subscription, when the client is dropped.
            tokio::spawn(pass_on(heard, self.hints.0.clone(), None));
        }
        // The server announces an expired presence only to those that follow the bucket.
        let (mut present, hints) = (self.client.watch(names::KV_HERE, ">"), self.hints.0.clone());
        let watching = tokio::spawn(async move {
            loop {
                present.next().await;
                let _ = hints.try_send(Hint::Fleet);
            }
        });
        self.watching = Some(watching.abort_handle());
        let mut tick = tokio::time::interval(LOOK);
        let mut looks = 0;
        loop {
            let (mut fleet, mut lines) = (false, BTreeSet::new());
            let mut note = |hint: Hint| match hint {
                Hint::Fleet => fleet = true,
                Hint::Lines(job) => {
                    lines.insert(job);
                }
            };
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
                _ = tick.tick() => {
                    looks += 1;
                    if looks % REFRESH != 1 {
                        self.client.api(&format!("STREAM.INFO.{}", names::JOBS), &serde_json::json!({})).await?;
                        continue;
                    }
                    note(Hint::Fleet);
                }
                Some(hint) = self.hints.1.recv() => note(hint),
                Some(ask) = asks.recv() => {
                    let client = self.client.clone();
                    tokio::spawn(async move {
                        let _ = ask.to.try_send(control(&client, &ask.job, &ask.control).await);
                    });
                    continue;
                }
            }
            while let Ok(hint) = self.hints.1.try_recv() {
                note(hint);
            }
            if fleet {
                lines.extend(self.read_fleet().await?);
            }
            for job in lines {
                self.read_lines(&job).await?;
            }
            self.shared.set_link(MachineState::Up, None, self.client.server_version());
            (self.shared.on_change)();
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    /// Reads the state of the fleet. Returns the jobs whose journals have to be read.
    async fn read_fleet(&mut self) -> Result<Vec<JobId>, FleetError> {
        let fleet = read_fleet(&self.client).await?;
        let shown: Vec<(JobId, RunId, bool)> = fleet
            .shown(MAX_RUNS)
            .into_iter()
            .map(|(job, record, run)| (job.clone(), run.clone(), record.state == JobState::Running))
            .collect();
        let live: BTreeSet<&JobId> =
            shown.iter().filter(|(_, _, live)| *live).map(|(job, _, _)| job).collect();
        let mut unread = Vec::new();
        for (job, run, is_live) in &shown {
            let known = self.journals.get(job).is_some_and(|(known, _, _)| known == run);
            // A job that ended wrote its last lines before it was set to done.
            if !known || !is_live || !self.listening.contains_key(job) {
                unread.push(job.clone());
            }
            if !known {
                self.journals.insert(job.clone(), (run.clone(), Pieces::default(), Skew::default()));
                self.with_lines.remove(job);
            }
            if *is_live && !self.listening.contains_key(job) {
                let heard = self.client.subscribe(&job.events_subject()).await?;
                let task = tokio::spawn(pass_on(heard, self.hints.0.clone(), Some(job.clone())));
                self.listening.insert(job.clone(), task.abort_handle());
            }
        }
        self.listening.retain(|job, task| {
            let keep = live.contains(job);
            if !keep {
                task.abort();
            }
            keep
        });
        self.journals.retain(|job, _| shown.iter().any(|(known, _, _)| known == job));
        self.with_lines.retain(|job| self.journals.contains_key(job));
        let runs = shown.iter().map(|(job, run, _)| (run.clone(), job.clone())).collect();
        {
            let mut state = self.shared.state();
            state.fleet = fleet;
            state.runs = runs;
        }
        self.list()?;
        Ok(unread)
    }

    /// Lists the runs in the mirror, with the clocks of their workers.
    fn list(&self) -> Result<(), FleetError> {
        let fleet = self.shared.state().fleet.clone();
        let runs: Vec<(Origin, RemoteRun)> = fleet
            .shown(MAX_RUNS)
            .into_iter()
            // A run without a line of its journal has no name yet, and looks lost.
            .filter(|(job, _, _)| self.with_lines.contains(*job))
            .map(|(job, record, run)| {
                let skew = self.journals.get(job).map(|(_, _, skew)| *skew).unwrap_or_default();
                let (live, since) = (record.state == JobState::Running, record.submitted.unwrap_or_default());
                let path = format!("{}/{}", job.account, job.job).into();
                let (host, graph) = (record.owner.clone(), record.graph.clone());
                let origin = Origin { host, job: Some(job.to_string()), graph, skew };
                (origin, RemoteRun { run: run.clone(), path, since, live })
            })
            .collect();
        self.shared.mirror.list(SOURCE, &runs).map_err(|error| copy_error(&error))
    }

    /// Reads the new lines of a job's journal.
    async fn read_lines(&mut self, job: &JobId) -> Result<(), FleetError> {
        let Some((_, pieces, _)) = self.journals.get(job) else { return Ok(()) };
        let from = if pieces.next == 0 { From::First } else { From::Sequence(pieces.next) };
        let stored = self.client.read(names::EVENTS, &job.events_subject(), from).await?;
        let has_lines = stored.iter().any(|piece| !piece.payload.is_empty());
        if has_lines && self.with_lines.insert(job.clone()) {
            self.list()?;
        }
        let Some((run, pieces, skew)) = self.journals.get_mut(job) else { return Ok(()) };
        let mirror = &self.shared.mirror;
        let before = *skew;
        for piece in &stored {
            let offset = piece.header(names::H_OFFSET).and_then(|offset| offset.parse().ok()).unwrap_or(0);
            match pieces.take(piece.sequence, offset, &piece.payload) {
                Taken::Lines(lines) => {
                    if let Some(measured) = lines.last().and_then(|line| measure(line, &piece.time)) {
                        *skew = measured;
                    }
                    for line in &lines {
                        mirror.append(SOURCE, run, line).map_err(|error| copy_error(&error))?;
                    }
                }
                Taken::Again => {
                    mirror.restart(SOURCE, run).map_err(|error| copy_error(&error))?;
                    // The next hint or refresh reads everything again.
                    let _ = self.hints.0.try_send(Hint::Lines(job.clone()));
                    break;
                }
            }
        }
        if skew.differs(before, 1_000) {
            self.list()?;
        }
        Ok(())
    }
}

/// Measures the clocks of a worker by a line of its journal and the time at which the server stored it.
fn measure(line: &[u8], stored: &str) -> Option<Skew> {
    let recorded = dogwatch_codec::read(line).ok()?;
    let ours = clock::now();
    let age = ours.wall.0.saturating_sub(Wall::from_rfc3339(stored)?.0);
    let theirs = recorded.moment().plus(Dur::from_millis(u64::try_from(age).unwrap_or(0)));
    Some(Skew::between(theirs, ours))
}

fn copy_error(error: &io::Error) -> FleetError {
    FleetError::BadAnswer(format!("cannot copy a journal: {error}"))
}

/// Turns messages into hints.
async fn pass_on(mut heard: Subscription, to: mpsc::Sender<Hint>, job: Option<JobId>) {
    while let Some(heard) = heard.next().await {
        // A sign of life about a job changes nothing that is shown.
        if heard.payload.starts_with(crate::client::IN_PROGRESS.as_bytes()) {
            continue;
        }
        let hint = job.as_ref().map_or(Hint::Fleet, |job| Hint::Lines(job.clone()));
        // A full queue means that a reading is due anyway.
        let _ = to.try_send(hint);
    }
}
