//! The operator's connection, for programs without an async runtime.

pub mod account;
pub mod journal;
pub mod schedules;
pub mod state;
pub mod view;

pub use account::{AccountChange, AccountState};
pub use state::{Account, Fleet};
pub use view::FleetView;

use crate::blob;
use crate::client::{Client, FleetError, Log};
use crate::join::JoinLine;
use crate::names::{self, JobId, Name};
use crate::record::{Control, ControlAnswer, JobRecord, Limit, Presence, Want};
use crate::setup::{self, Setup};
use crate::submit;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

/// The stored value for a revoked worker.
const REVOKED: &str = "revoked";

/// A connection of the operator. Its methods block for a limited time.
pub struct Operator {
    client: Client,
    runtime: Runtime,
}

impl Operator {
    /// Connects to the fleet.
    pub fn connect(line: &JoinLine) -> Result<Operator, FleetError> {
        let runtime = runtime()?;
        let client = runtime.block_on(Client::connect(line, false, silent()))?;
        Ok(Operator { client, runtime })
    }

    /// Runs requests on the connection and waits for them.
    pub fn run<T>(&self, requests: impl AsyncFnOnce(&Client) -> T) -> T {
        self.runtime.block_on(requests(&self.client))
    }

    /// Returns the version of the server.
    pub fn server_version(&self) -> Option<String> {
        self.client.server_version()
    }

    /// Creates the streams and buckets, and the queues of these accounts.
    pub fn set_up(&self, accounts: &[Name], setup: Setup) -> Result<(), FleetError> {
        self.runtime.block_on(async {
            setup::create(&self.client, setup).await?;
            create_accounts(&self.client, accounts, setup).await
        })
    }

    /// Creates the queues of these accounts, if they are missing.
    pub fn create_accounts(&self, accounts: &[Name]) -> Result<(), FleetError> {
        self.runtime.block_on(create_accounts(&self.client, accounts, Setup::default()))
    }

    /// Changes the limits of an account, and returns them with what was used today.
    pub fn change_account(&self, account: &Name, change: &AccountChange) -> Result<AccountState, FleetError> {
        self.runtime.block_on(account::change(&self.client, account, change))
    }

    /// Sends a request to the owner of a job.
    pub fn control(&self, job: &JobId, request: &Control) -> Result<ControlAnswer, FleetError> {
        self.runtime.block_on(control(&self.client, job, request))
    }

    /// Reads the record of a job.
    pub fn job(&self, job: &JobId) -> Result<Option<JobRecord>, FleetError> {
        self.runtime.block_on(async {
            let stored = self.client.get(names::KV_JOBS, &job.to_string()).await?;
            Ok(stored.filter(|stored| !stored.is_removal()).and_then(|stored| parse(&stored.payload)))
        })
    }

    /// Removes a schedule. Returns whether there was one.
    pub fn unschedule(&self, id: &JobId) -> Result<bool, FleetError> {
        self.runtime.block_on(schedules::remove(&self.client, id))
    }

    /// Reads an object that a worker stored.
    pub fn blob(&self, worker: &Name, name: &str) -> Result<Option<Vec<u8>>, FleetError> {
        self.runtime.block_on(blob::get(&self.client, worker, name))
    }

    /// Reads the state of the whole fleet.
    pub fn fleet(&self) -> Result<Fleet, FleetError> {
        self.runtime.block_on(read_fleet(&self.client))
    }

    /// Records that a worker was revoked. Its presence ends at once.
    pub fn revoke(&self, worker: &Name) -> Result<(), FleetError> {
        self.runtime.block_on(async {
            self.client.put(names::KV_WANT, &names::worker_key(worker), &REVOKED, None).await?;
            self.client.remove(names::KV_HERE, worker.as_str()).await
        })
    }

    /// Forgets what the operator wanted of an earlier worker with this name.
    pub fn admit(&self, worker: &Name) -> Result<(), FleetError> {
        self.runtime.block_on(self.client.remove(names::KV_WANT, &names::worker_key(worker)))
    }

    /// Asks a worker to give its jobs back and take no more.
    pub fn drain(&self, worker: &Name, wanted: bool) -> Result<(), FleetError> {
        self.runtime.block_on(async {
            let key = names::worker_key(worker);
            match wanted {
                true => self.client.put(names::KV_WANT, &key, &Want::Stop, None).await.map(drop),
                false => self.client.remove(names::KV_WANT, &key).await,
            }
        })
    }
}

async fn create_accounts(client: &Client, accounts: &[Name], setup: Setup) -> Result<(), FleetError> {
    for account in accounts {
        // The cap of an account that exists is the operator's.
        if !submit::has_account(client, account).await? {
            setup::account(client, account, names::DEFAULT_CAP, setup).await?;
        }
    }
    Ok(())
}

/// Returns an async runtime for this thread.
pub(crate) fn runtime() -> Result<Runtime, FleetError> {
    let made = Builder::new_current_thread().enable_all().build();
    made.map_err(|error| {
        FleetError::BadAnswer(format!("cannot start the runtime of the connection: {error}"))
    })
}

/// Returns a log that drops its lines: requests return their own errors.
pub(crate) fn silent() -> Log {
    Arc::new(|_| {})
}

/// Reads presence, records, limits and queues.
pub(crate) async fn read_fleet(client: &Client) -> Result<Fleet, FleetError> {
    let mut fleet = Fleet::default();
    for stored in client.keys(names::KV_HERE, ">").await? {
        fleet.machines.extend(parse::<Presence>(&stored.payload));
    }
    for stored in client.keys(names::KV_JOBS, ">").await? {
        // A key of a later version is not shown.
        let job = stored.subject.parse::<JobId>().ok().zip(parse::<JobRecord>(&stored.payload));
        fleet.jobs.extend(job);
    }
    for stored in client.keys(names::KV_LIMITS, ">").await? {
        let limit = stored.subject.parse::<Name>().ok().zip(parse::<Limit>(&stored.payload));
        fleet.limits.extend(limit);
    }
    let list =
        client.api(&format!("CONSUMER.LIST.{}", names::JOBS), &serde_json::json!({"offset": 0})).await?;
    for queue in list["consumers"].as_array().into_iter().flatten() {
        let number = |field: &str| queue[field].as_u64().unwrap_or(0);
        let Some(name) = queue["name"].as_str().and_then(|name| name.parse::<Name>().ok()) else { continue };
        fleet.queues.push(Account {
            name,
            queued: number("num_pending"),
            held: number("num_ack_pending"),
            cap: queue["config"]["max_ack_pending"].as_u64().unwrap_or(0),
            parked: queue["paused"].as_bool().unwrap_or(false),
        });
    }
    fleet.schedules = schedules::list(client).await?;
    for stored in client.keys(names::KV_WANT, ">").await? {
        let worker = stored.subject.strip_prefix(names::WORKER_KEYS).and_then(|name| name.parse().ok());
        let (job, want) = (stored.subject.parse().ok(), parse::<Want>(&stored.payload));
        match (worker, want) {
            (Some(worker), Some(_)) => fleet.draining.push(worker),
            (Some(worker), None) if parse::<String>(&stored.payload).as_deref() == Some(REVOKED) => {
                fleet.revoked.push(worker);
            }
            (Some(_), None) => {}
            (None, want) => fleet.wants.extend(job.zip(want)),
        }
    }
    fleet.sort();
    Ok(fleet)
}

fn parse<T: DeserializeOwned>(payload: &[u8]) -> Option<T> {
    serde_json::from_slice(payload).ok()
}

/// Sends a request to the owner of a job. `stop` and `pause` also go to its record of wishes, which the next owner reads.
pub(crate) async fn control(
    client: &Client,
    job: &JobId,
    control: &Control,
) -> Result<ControlAnswer, FleetError> {
    let want = match control {
        Control::Stop => Some(Want::Stop),
        Control::Pause => Some(Want::Pause),
        Control::Resume => Some(Want::Run),
        Control::Wake | Control::Tell { .. } => None,
    };
    if let Some(want) = want {
        client.put(names::KV_WANT, &job.to_string(), &want, None).await?;
    }
    let body = serde_json::to_vec(control).map_err(|error| FleetError::BadAnswer(error.to_string()))?;
    match client.request(&job.control_subject(), body).await {
        Ok(answer) => {
            serde_json::from_slice(&answer).map_err(|error| FleetError::BadAnswer(error.to_string()))
        }
        Err(FleetError::NoResponders) if want.is_some() => Ok(ControlAnswer {
            ok: true,
            detail: Some("no worker runs it now; the next one reads this".into()),
        }),
        Err(error) => Err(error),
    }
}
