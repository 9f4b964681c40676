//! Shares of an account's budget of the day: a job reserves one before its first session and after each, and gives it back at
//! its end. The rule is `dogwatch_core::lease::reserve`.

use super::Worker;
use super::account::{spent, today};
use crate::client::{Client, FleetError};
use crate::names::{self, JobId, Name};
use crate::record::{JobRecord, JobState, Limit};
use dogwatch_core::lease::reserve::{Amount, Budget, Reservations};

/// How often a change is tried while other workers also write.
const TRIES: u32 = 20;
/// Why a job waits whose account has no free budget, although it is not spent.
pub const NO_SHARE: &str = "other jobs have reserved the rest of the day's budget";

/// Returns the budget of an account.
pub(super) fn budget_of(limit: &Limit) -> Budget {
    Budget { micro_usd: limit.day_micro_usd, tokens: limit.day_tokens }
}

/// Reads the reservations of an account and their revision.
pub(crate) async fn read_reservations(
    client: &Client,
    account: &Name,
) -> Result<(u64, Reservations), FleetError> {
    let stored = client.get(names::KV_LIMITS, &names::reserved_key(account)).await?;
    Ok(stored.map_or((0, Reservations::default()), |stored| {
        (stored.sequence, serde_json::from_slice(&stored.payload).unwrap_or_default())
    }))
}

impl Worker {
    /// Returns the budget of an account. Most accounts have none, and then no request is needed.
    async fn budget(&self, account: &Name) -> Budget {
        let known = self.limits.borrow().get(account).map(budget_of);
        match known {
            Some(budget) => budget,
            None => {
                self.limit(account).await.map_or_else(|_| Budget::default(), |(_, limit)| budget_of(&limit))
            }
        }
    }

    /// Returns the usage of an account on a day.
    pub(super) async fn spent_on(&self, account: &Name, day: &str) -> Result<Amount, FleetError> {
        Ok(Amount {
            micro_usd: spent(&self.client, &names::cost_subject(account, day)).await?,
            tokens: spent(&self.client, &names::tokens_subject(account, day)).await?,
        })
    }

    /// Returns whether a job could reserve a share now.
    pub async fn could_reserve(&self, id: &JobId) -> bool {
        self.budget(&id.account).await == Budget::default() || self.change(id, None, None).await
    }

    /// Reserves a share for a claim. Returns whether the job may start a session.
    pub async fn reserve(&self, id: &JobId, epoch: u64) -> bool {
        self.budget(&id.account).await == Budget::default() || self.change(id, Some(epoch), None).await
    }

    /// Takes the usage of a session from the share of its claim, and reserves the next share. The usage must have been charged.
    /// Returns whether the job may start another session.
    pub async fn settle(&self, id: &JobId, epoch: u64, used: Amount) -> bool {
        self.budget(&id.account).await == Budget::default() || self.change(id, Some(epoch), Some(used)).await
    }

    /// Gives the share of a claim back.
    pub async fn give_back(&self, id: &JobId, epoch: u64) {
        if !self.budget(&id.account).await.is_set() {
            return;
        }
        for _ in 0..TRIES {
            let Ok((revision, mut all)) = read_reservations(&self.client, &id.account).await else { return };
            if !all.give_back(&id.to_string(), epoch) {
                return;
            }
            match self.write(&id.account, &all, revision).await {
                Err(FleetError::Conflict | FleetError::NoAnswer) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    async fn write(&self, account: &Name, all: &Reservations, revision: u64) -> Result<u64, FleetError> {
        self.client.put(names::KV_LIMITS, &names::reserved_key(account), all, Some(revision)).await
    }

    /// Settles usage, if there is any, and reserves a share. Without an epoch nothing is written.
    async fn change(&self, id: &JobId, epoch: Option<u64>, used: Option<Amount>) -> bool {
        let (job, day, budget) = (id.to_string(), today(), self.budget(&id.account).await);
        for _ in 0..TRIES {
            // The order matters: first the reservations, then the counters.
            let Ok((revision, all)) = read_reservations(&self.client, &id.account).await else {
                return false;
            };
            let Ok(spent) = self.spent_on(&id.account, &day).await else { return false };
            let mut all = all.on(&day);
            if let (Some(epoch), Some(used)) = (epoch, used) {
                all.settle(&job, epoch, used);
            }
            let mut granted = all.reserve(budget, spent, &job, epoch.unwrap_or(u64::MAX));
            if !granted && self.sweep(&mut all, &job).await {
                granted = all.reserve(budget, spent, &job, epoch.unwrap_or(u64::MAX));
            }
            // A refusal changes nothing, unless usage was settled.
            if epoch.is_none() || (!granted && used.is_none()) {
                return granted;
            }
            match self.write(&id.account, &all, revision).await {
                Ok(_) => return granted,
                Err(FleetError::Conflict | FleetError::NoAnswer) => {}
                Err(error) => {
                    self.say(&format!("{id}: cannot reserve a share of the budget: {error}"));
                    return false;
                }
            }
        }
        false
    }

    /// Removes the shares of claims that are over: a worker that was lost could not give them back. Returns whether there were
    /// any.
    async fn sweep(&self, all: &mut Reservations, own: &str) -> bool {
        let before = all.jobs.len();
        for (job, share) in all.jobs.clone() {
            let Ok(stored) = self.client.get(names::KV_JOBS, &job).await else { continue };
            let record = stored.and_then(|stored| serde_json::from_slice::<JobRecord>(&stored.payload).ok());
            let live =
                record.is_some_and(|record| record.state == JobState::Running && record.epoch == share.epoch);
            if !live && job != own {
                all.jobs.remove(&job);
            }
        }
        all.jobs.len() < before
    }
}
