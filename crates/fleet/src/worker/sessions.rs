//! Nodes as jobs of their own, from the side of the worker that runs the graph.
//!
//! A session of such a graph is a small process of dogwatch. It connects to a socket of this worker, sends the prompt and
//! prints what comes back. So the run supervises it like any agent, and only this process talks to the server. The worker
//! pushes the state of the node's worktree, queues the node, follows it and applies its result to the worktree. The checks
//! then run as always.

mod following;
mod wire;

pub use wire::{EXIT, MAX_REQUEST, Request};

use super::branches;
use super::command::{Cancel, CommandError};
use super::git::Checkout;
use super::{Worker, nodes, now};
use crate::client::FleetError;
use crate::names::{self, JobId};
use crate::record::{JOB_VERSION, JobRecord, JobState, NodeJob, Want};
use dogwatch_core::lease::spread::{self, MAX_AGAIN, NodeStep};
use dogwatch_core::record::ids::RunId;
use dogwatch_core::time::dur::Dur;
use dogwatch_host::clock;
use dogwatch_host::store::safe_file;
use dogwatch_host::store::socket::{self, Bound};
use following::{Change, Followed, Following};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use wire::Talk;

/// The variable that names the socket for sessions.
pub const SOCKET_VAR: &str = "DOGWATCH_GRAPH_SOCKET";
/// The variable that names the program of sessions.
pub const PROGRAM_VAR: &str = "DOGWATCH_GRAPH_PROGRAM";
/// The most sessions of one graph at once.
pub const MAX_SESSIONS: usize = 1024;
/// How often a request to the server is tried before the session fails.
const TRIES: u32 = 20;
/// The pause between two tries.
const RETRY: Duration = Duration::from_millis(500);
/// The pause before a queued node is ended again.
const AGAIN: Dur = Dur::from_secs(1);
/// How long a session that ended may be the first sign that its run has ended, too.
const RUN_ENDS: Duration = Duration::from_secs(1);

/// How long it may take until the worker knows the run that a session belongs to.
const RUN_NAMED: Duration = Duration::from_secs(10);

/// The socket of a graph's sessions. Dropping it ends the following of all nodes, but not the nodes.
pub(super) struct Sessions {
    path: PathBuf,
    accepting: tokio::task::JoinHandle<()>,
    _bound: Bound,
}

/// The graph whose sessions are served.
pub(super) struct Graph {
    pub worker: Arc<Worker>,
    pub id: JobId,
    pub epoch: u64,
    pub checkout: Checkout,
    /// The directory of the run, once it is known.
    pub run_dir: watch::Receiver<Option<PathBuf>>,
    /// Whether this worker ends the run.
    pub ending: Cancel,
    /// A lock for each node: the next attempt starts when the job of the one before is over.
    pub locks: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// Whether the operator wants the graph to stop.
    pub stops: watch::Sender<bool>,
}

/// Why a session could not be carried out.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Git(#[from] CommandError),
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Sessions {
    /// Listens for the sessions of a graph.
    pub fn open(graph: Graph) -> io::Result<Sessions> {
        let path = graph.checkout.tree.with_file_name("nodes.sock");
        let (listener, bound) = socket::bind(&path)?;
        let listener = UnixListener::from_std(listener)?;
        let accepting = tokio::spawn(accept(listener, Arc::new(graph)));
        Ok(Sessions { path, accepting, _bound: bound })
    }

    /// Returns what the run finds in its environment.
    pub fn variables(&self, program: &Path) -> Vec<(&'static str, PathBuf)> {
        vec![(SOCKET_VAR, self.path.clone()), (PROGRAM_VAR, program.to_owned())]
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: UnixListener, graph: Arc<Graph>) {
    let room = Arc::new(Semaphore::new(MAX_SESSIONS));
    // Aborts what it holds when it is dropped.
    let mut sessions = tokio::task::JoinSet::new();
    sessions.spawn(hear_stop(graph.clone()));
    while let Ok((stream, _)) = listener.accept().await {
        while sessions.try_join_next().is_some() {}
        // The directory is private, and so is the socket. The check keeps root from connecting by mistake.
        let own = stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw());
        let (true, Ok(place)) = (own, room.clone().try_acquire_owned()) else { continue };
        let graph = graph.clone();
        sessions.spawn(async move {
            graph.serve(Talk::new(stream)).await;
            drop(place);
        });
    }
}

/// Follows the operator's request to stop the graph.
async fn hear_stop(graph: Arc<Graph>) {
    let mut wishes = graph.worker.client.watch(names::KV_WANT, &graph.id.to_string());
    loop {
        let stored = wishes.next().await;
        let want = serde_json::from_slice::<Want>(&stored.payload);
        let stops = !stored.is_removal() && want.is_ok_and(|want| want == Want::Stop);
        graph.stops.send_if_modified(|before| std::mem::replace(before, stops) != stops);
    }
}

impl Graph {
    /// Serves one session to its end.
    async fn serve(&self, mut talk: Talk<UnixStream>) {
        let request = match talk.request().await {
            Ok(request) => request,
            Err(error) => return talk.fail(&error.to_string()).await,
        };
        let lock = self
            .locks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(request.node.clone())
            .or_default()
            .clone();
        let _only = tokio::select! {
            only = lock.lock() => only,
            () = talk.closed() => return,
        };
        let mut id = None;
        let done = {
            let work = self.carry_out(&request, &talk, &mut id);
            tokio::select! {
                done = work => Some(done),
                () = talk.closed() => None,
            }
        };
        match done {
            Some(Ok(followed)) => talk.finish(&followed).await,
            Some(Err(error)) => talk.fail(&error.to_string()).await,
            None => self.abandon(id).await,
        }
    }

    /// Ends the node of a session that was ended. If the run ends as well, because the graph is given back or was lost, the
    /// node continues: the next holder of the graph finds it.
    async fn abandon(&self, id: Option<JobId>) {
        let Some(id) = id else { return };
        if tokio::time::timeout(RUN_ENDS, self.ending.wait()).await.is_ok() || !self.is_held().await {
            return;
        }
        self.worker.say(&format!("{}: ending {id}, because its session was ended", self.id));
        nodes::end(&self.worker.client, &id, "its session was ended").await;
    }

    /// Returns whether this claim still holds the graph.
    async fn is_held(&self) -> bool {
        let found = nodes::record(&self.worker.client, &self.id).await;
        found.is_ok_and(|found| {
            found.is_some_and(|(_, record)| {
                record.state == JobState::Running
                    && record.epoch == self.epoch
                    && record.owner == self.worker.name().as_str()
            })
        })
    }

    /// Queues the node, or finds it, follows it to its end and applies its result.
    async fn carry_out(
        &self,
        request: &Request,
        talk: &Talk<UnixStream>,
        current: &mut Option<JobId>,
    ) -> Result<Followed, SessionError> {
        let (run, attempt) = self.attempt(request).await?;
        let tree = branches::tree_of(&self.checkout, &run, &request.node);
        for again in 0..=MAX_AGAIN {
            let id = nodes::job_name(&self.id.job, &request.node, attempt, again)
                .map(|job| JobId { account: self.id.account.clone(), job })
                .ok_or_else(|| SessionError::Refused("the name of the node is too long".to_owned()))?;
            let found = self.find(&id).await?;
            match spread::node_step(found.as_ref(), again) {
                NodeStep::Fail => break,
                NodeStep::Skip => continue,
                NodeStep::Follow => *current = Some(id.clone()),
                NodeStep::Queue { recorded } => {
                    *current = Some(id.clone());
                    self.queue(&id, request, &tree, recorded).await?;
                }
            }
            talk.say(&format!("node {} is the job {id}", request.node)).await;
            let followed = self.follow(&id, talk).await?;
            if let (Some(commit), Some(branch)) = (&followed.commit, &followed.branch) {
                self.apply(&tree, commit, branch).await?;
            } else if followed.is_ok() {
                return Err(SessionError::Refused(format!("{id} could not push its result")));
            }
            return Ok(followed);
        }
        Err(SessionError::Refused(format!("the node was stopped {MAX_AGAIN} times")))
    }

    /// Returns the run, and the number of this attempt among those that were not interrupted. It is the same for the next
    /// holder of the graph, which repeats the iteration under another number.
    async fn attempt(&self, request: &Request) -> Result<(RunId, u64), SessionError> {
        let refused = || SessionError::Refused("the run has no journal".to_owned());
        let mut named = self.run_dir.clone();
        let dir = tokio::time::timeout(RUN_NAMED, named.wait_for(Option::is_some)).await;
        let dir = dir.ok().and_then(|dir| dir.ok()?.clone()).ok_or_else(refused)?;
        let run = dir.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        let mut journal = Vec::new();
        safe_file::read(&dir.join("events.jsonl"))?.read_to_end(&mut journal)?;
        let interrupted = following::interruptions(&journal, &request.node);
        Ok((run.ok_or_else(refused)?, request.iteration.saturating_sub(interrupted)))
    }

    /// Reads the record of a node.
    async fn find(&self, id: &JobId) -> Result<Option<JobRecord>, SessionError> {
        for _ in 1..TRIES {
            match nodes::record(&self.worker.client, id).await {
                Ok(found) => return Ok(found.map(|(_, record)| record)),
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
        Ok(nodes::record(&self.worker.client, id).await?.map(|(_, record)| record))
    }

    /// Pushes the state of the worktree and queues the node. A node that was queued before keeps its record; its message gets
    /// the same id, so the queue takes it once.
    async fn queue(
        &self,
        id: &JobId,
        request: &Request,
        tree: &Checkout,
        recorded: bool,
    ) -> Result<(), SessionError> {
        let message = format!("dogwatch: state of node {} before {id}", request.node);
        let commit = tree.capture(&message, &self.ending).await?;
        tree.push(&commit, &id.tree_ref(0), &self.ending).await?;
        let node = NodeJob {
            v: JOB_VERSION,
            graph: self.id.job.clone(),
            node: request.node.clone(),
            commit,
            prompt: request.prompt.clone(),
        };
        let record = JobRecord {
            title: node.title(),
            graph: Some(self.id.job.to_string()),
            submitted: Some(clock::now().wall),
            ..JobRecord::default()
        };
        let body = node.document().map_err(SessionError::Refused)?;
        let client = &self.worker.client;
        for tried in 1..=TRIES {
            let made = match recorded {
                true => Ok(0),
                false => client.put(names::KV_JOBS, &id.to_string(), &record, Some(0)).await,
            };
            let sent = match made {
                Ok(_) | Err(FleetError::Conflict) => {
                    let key = id.to_string();
                    let headers = [("Nats-Msg-Id", key.as_str())];
                    client.publish(&id.node_subject(), &headers, body.clone(), None).await
                }
                Err(error) => Err(error),
            };
            match sent {
                Ok(_) => break,
                Err(error) if tried == TRIES => return Err(error.into()),
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
        Ok(())
    }

    /// Follows a node until it is over, and passes on what it reports.
    async fn follow(&self, id: &JobId, talk: &Talk<UnixStream>) -> Result<Followed, SessionError> {
        let client = &self.worker.client;
        let mut following = Following::new(client.clone(), id.clone());
        let (since, mut stops) = (now(), self.stops.subscribe());
        let (mut found, mut again): (Option<(u64, Box<JobRecord>)>, _) = (None, None);
        loop {
            let waits = || found.as_ref().and_then(|(_, record)| spread::waits_until(record, since));
            let until = again.take().or_else(waits);
            // Without a connection the lease of the graph decides how long to wait.
            match following.next(talk, &mut stops, until).await {
                Change::Record(revision, record) => found = Some((revision, record)),
                Change::Removed => return Err(SessionError::Refused(format!("{id} was removed"))),
                Change::Stops | Change::Woke => {}
            }
            let Some((revision, record)) = &found else { continue };
            if record.state.is_over() {
                following.read_rest(talk).await;
                return Ok(following.end(record));
            }
            // A node that runs may finish.
            let graph_stops = *stops.borrow();
            if let Some(why) = spread::why_end(record, graph_stops, since, now())
                && record.state != JobState::Running
            {
                nodes::cancel(client, id, (*revision, (**record).clone()), why).await;
                // The record changes now, unless the server did not answer.
                again = Some(now().plus(AGAIN));
            }
        }
    }

    /// Makes the worktree of the node equal to the result.
    async fn apply(&self, tree: &Checkout, commit: &str, branch: &str) -> Result<(), SessionError> {
        let fetch = ["fetch", "--quiet", "--no-tags", "--", &tree.repo, branch];
        tree.git_in(&tree.cache, &fetch, &self.ending).await?;
        // A file that the node removed may be untracked here. In the index it is removed by the reset.
        tree.git(&["add", "--all", "--", "."], &self.ending).await?;
        tree.git(&["reset", "--quiet", "--hard", commit], &self.ending).await?;
        Ok(())
    }
}
