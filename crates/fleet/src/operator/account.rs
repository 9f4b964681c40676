//! The limits of an account, as the operator sets them.

use crate::client::{Client, FleetError};
use crate::names::{self, Name};
use crate::record::Limit;
use crate::worker::account::{read_limit, spent, today};
use crate::worker::reserving::read_reservations;
use dogwatch_core::lease::reserve::Amount;
use dogwatch_host::clock;
use serde_json::json;

/// How often a change is tried while workers also write.
const TRIES: u32 = 10;

/// A change of limits. Absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountChange {
    /// How many jobs may run at once.
    pub cap: Option<u64>,
    /// The most millionths of a dollar per day; `Some(None)` removes the budget.
    pub day_micro_usd: Option<Option<u64>>,
    /// The most tokens per day; `Some(None)` removes the budget.
    pub day_tokens: Option<Option<u64>>,
    /// How urgent the jobs are.
    pub priority: Option<i32>,
    /// Lets a parked account continue.
    pub unpark: bool,
}

impl AccountChange {
    fn is_nothing(&self) -> bool {
        *self == AccountChange::default()
    }
}

/// An account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountState {
    /// How many jobs may run at once.
    pub cap: u64,
    /// Its limits.
    pub limit: Limit,
    /// The cost of today, in millionths of a dollar.
    pub micro_usd_today: u64,
    /// The tokens that were used today.
    pub tokens_today: u64,
    /// What running jobs have reserved of today's budget.
    pub reserved: Amount,
}

/// Changes the limits of an account, and returns them with what was used today.
pub(super) async fn change(
    client: &Client,
    account: &Name,
    change: &AccountChange,
) -> Result<AccountState, FleetError> {
    let consumer = client.api(&format!("CONSUMER.INFO.{}.{account}", names::JOBS), &json!({})).await?;
    let mut config = consumer["config"].clone();
    if let Some(cap) = change.cap {
        config["max_ack_pending"] = cap.into();
        let body = json!({ "stream_name": names::JOBS, "config": config, "action": "update" });
        let filter = names::queue_of(account);
        client.api(&format!("CONSUMER.CREATE.{}.{account}.{filter}", names::JOBS), &body).await?;
    }
    // Resume the queue first: workers pull again as soon as the limit is removed.
    if change.unpark {
        client.api(&format!("CONSUMER.PAUSE.{}.{account}", names::JOBS), &json!({})).await?;
    }
    let limit = change_limit(client, account, change).await?;
    let day = today();
    Ok(AccountState {
        cap: config["max_ack_pending"].as_u64().unwrap_or(0),
        limit,
        micro_usd_today: spent(client, &names::cost_subject(account, &day)).await?,
        tokens_today: spent(client, &names::tokens_subject(account, &day)).await?,
        reserved: read_reservations(client, account).await?.1.on(&day).without(""),
    })
}

async fn change_limit(client: &Client, account: &Name, change: &AccountChange) -> Result<Limit, FleetError> {
    for _ in 0..TRIES {
        let (revision, mut limit) = read_limit(client, account).await?;
        if change.is_nothing() {
            return Ok(limit);
        }
        limit.day_micro_usd = change.day_micro_usd.unwrap_or(limit.day_micro_usd);
        limit.day_tokens = change.day_tokens.unwrap_or(limit.day_tokens);
        limit.priority = change.priority.unwrap_or(limit.priority);
        let over = limit.until.is_some_and(|until| until <= clock::now().wall);
        if change.unpark || over {
            (limit.until, limit.why, limit.by) = (None, None, None);
        }
        match client.put(names::KV_LIMITS, account.as_str(), &limit, Some(revision)).await {
            Ok(_) => return Ok(limit),
            Err(FleetError::Conflict) => {}
            Err(error) => return Err(error),
        }
    }
    Err(FleetError::Conflict)
}
