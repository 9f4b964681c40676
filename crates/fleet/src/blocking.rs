//! Blocking calls for programs without an async runtime. Each call starts a runtime and ends it.

use crate::client::{Client, FleetError, Log};
use crate::join::JoinLine;
use crate::names::JobId;
use crate::operator::{runtime, silent};
use crate::record::{Job, JobRecord, JobState};
use crate::setup::{self, Setup};
use crate::worker::{self, Settings};
use crate::{names, submit};
use dogwatch_core::time::moment::Wall;
use tokio::sync::watch;

/// Ends a worker from another thread.
pub struct Drain {
    drain: watch::Sender<bool>,
    abandon: watch::Sender<bool>,
}

impl Drain {
    /// Asks the worker to give its jobs back and end.
    pub fn start(&self) {
        self.drain.send_replace(true);
    }

    /// Ends the worker at once. Its leashes end its runs, and other workers take its jobs when their leases are over.
    pub fn abandon(&self) {
        self.abandon.send_replace(true);
    }
}

/// What a worker watches to know when it has to end.
pub struct Drained {
    drain: watch::Receiver<bool>,
    abandon: watch::Receiver<bool>,
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It gave its jobs back.
    Drained,
    /// It was ended at once.
    Abandoned,
}

/// Returns a switch that ends a worker, and what the worker watches.
pub fn drain() -> (Drain, Drained) {
    let (drain, drained) = watch::channel(false);
    let (abandon, abandoned) = watch::channel(false);
    (Drain { drain, abandon }, Drained { drain: drained, abandon: abandoned })
}

/// Works until it is drained or abandoned.
pub fn work(settings: Settings, log: Log, mut end: Drained) -> Result<Ended, FleetError> {
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = worker::work(settings, log, end.drain) => ended.map(|()| Ended::Drained),
            Ok(_) = end.abandon.wait_for(|set| *set) => Ok(Ended::Abandoned),
        }
    });
    if ended == Ok(Ended::Abandoned) {
        worker::end_commands();
        // Waiting for blocking calls could take as long as they do.
        runtime.shutdown_background();
    }
    ended
}

/// Creates the streams and buckets, and the queue of an account with its cap on jobs at once.
pub fn set_up(join: &JoinLine, account: &names::Name, cap: i64, setup: Setup) -> Result<(), FleetError> {
    runtime()?.block_on(async {
        let client = Client::connect(join, false, silent()).await?;
        setup::create(&client, setup).await?;
        setup::account(&client, account, cap, setup).await
    })
}

/// Follows the records of all jobs, and calls `on_change` with each value until it returns false. Connects again by itself.
pub fn follow(
    join: &JoinLine,
    mut on_change: impl FnMut(JobId, JobRecord) -> bool,
) -> Result<(), FleetError> {
    runtime()?.block_on(async {
        let client = Client::connect(join, true, silent()).await?;
        let mut records = client.watch(names::KV_JOBS, ">");
        loop {
            let stored = records.next().await;
            // A removed record has no content.
            let record = serde_json::from_slice(&stored.payload).ok();
            let change = stored.subject.parse().ok().zip(record);
            if change.is_some_and(|(id, record)| !on_change(id, record)) {
                return Ok(());
            }
        }
    })
}

/// Follows the records, and calls `notify` once for each poisoned job, also if more than one process follows them. Returns only
/// with an error.
pub fn follow_poison(join: &JoinLine, notify: impl Fn(JobId, JobRecord)) -> Result<(), FleetError> {
    runtime()?.block_on(async {
        let client = Client::connect(join, true, silent()).await?;
        let mut records = client.watch(names::KV_JOBS, ">");
        loop {
            let stored = records.next().await;
            let record = serde_json::from_slice::<JobRecord>(&stored.payload).ok();
            let Some((id, record)) = stored.subject.parse::<JobId>().ok().zip(record) else { continue };
            if record.state != JobState::Poisoned {
                continue;
            }
            // The first process to create the key notifies.
            if client.put(names::KV_WANT, &names::notified_key(&id), &true, Some(0)).await.is_ok() {
                notify(id, record);
            }
        }
    })
}

/// Queues jobs. With `every`, each is queued again by that schedule.
pub fn submit(
    join: &JoinLine,
    jobs: &[(JobId, Job)],
    every: Option<&str>,
    at: Wall,
) -> Result<(), SubmitError> {
    let runtime = runtime()?;
    runtime.block_on(async {
        let client = Client::connect(join, false, silent()).await?;
        for (id, job) in jobs {
            if !submit::has_account(&client, &id.account).await? {
                return Err(SubmitError::NoAccount(id.account.clone()));
            }
            match every {
                Some(every) => submit::schedule(&client, &id.account, &id.job, every, job).await?,
                None => match submit::job(&client, id, job, at).await {
                    Ok(_) => {}
                    Err(FleetError::Conflict) => return Err(SubmitError::Exists(id.clone())),
                    Err(error) => return Err(error.into()),
                },
            }
        }
        client.flush().await;
        Ok(())
    })
}

/// Why a job was not queued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The fleet has no such account.
    #[error("the fleet has no account {0}")]
    NoAccount(names::Name),
    /// A job of that name exists.
    #[error("job {0} already exists")]
    Exists(JobId),
    /// The request failed.
    #[error(transparent)]
    Fleet(#[from] FleetError),
}
