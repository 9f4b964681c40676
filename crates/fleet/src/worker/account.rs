//! Limits that all workers of an account share: refusals of the provider, the budget of a day, and notices about poison.

use super::Worker;
use super::running::Order;
use crate::client::FleetError;
use crate::names::{self, JobId, Name};
use crate::record::Limit;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use dogwatch_host::clock;
use serde_json::{Value, json};
use std::sync::Arc;

/// How long after the reset the account stays parked: clocks differ, and a provider may be late.
pub const AFTER_RESET: Dur = Dur::from_secs(15);
/// A limit that ends at most so much later than the known one is the same.
const SAME: i64 = 5_000;
/// How often a limit is written if other workers write, too.
const TRIES: u32 = 5;

/// Follows the limit of an account, and passes it on to its runs here.
pub(super) async fn follow(worker: Arc<Worker>, account: Name) {
    let subject = names::key_subject(names::KV_LIMITS, account.as_str());
    let mut connections = worker.client.connections();
    let Ok(mut changes) = worker.client.subscribe(&subject).await else { return };
    let mut known = None;
    loop {
        if let Ok((_, limit)) = worker.limit(&account).await
            && limit.until != known
        {
            known = limit.until;
            if let Some(until) = known.filter(|until| *until > clock::now().wall) {
                let by = limit.by.map_or_else(|| "a worker".to_owned(), |name| name.to_string());
                worker.say(&format!("account {account} is parked until {until}: the provider refused {by}"));
                worker.tell_account(&account, || Order::Limit(until));
            }
        }
        tokio::select! {
            heard = changes.next() => if heard.is_none() { return },
            _ = connections.changed() => {}
        }
    }
}

impl Worker {
    /// Reads the limit of an account and its revision.
    async fn limit(&self, account: &Name) -> Result<(u64, Limit), FleetError> {
        let stored = self.client.get(names::KV_LIMITS, account.as_str()).await?;
        Ok(stored.map_or((0, Limit::default()), |stored| {
            (stored.sequence, serde_json::from_slice(&stored.payload).unwrap_or_default())
        }))
    }

    /// Returns until when the account is parked, if it is.
    pub async fn parked_until(&self, account: &Name) -> Option<Wall> {
        let (_, limit) = self.limit(account).await.ok()?;
        limit.until.filter(|until| *until > clock::now().wall)
    }

    /// Reports that the provider refused work until `resets_at`: parks the account for all workers.
    pub async fn raise_limit(&self, account: &Name, resets_at: Wall) {
        let until = resets_at.plus(AFTER_RESET);
        for _ in 0..TRIES {
            let Ok((revision, mut limit)) = self.limit(account).await else { continue };
            if limit.until.is_some_and(|known| known.0 + SAME >= until.0) {
                return;
            }
            limit.until = Some(until);
            limit.by = Some(self.name().clone());
            if self.client.put(names::KV_LIMITS, account.as_str(), &limit, Some(revision)).await.is_ok() {
                return self.park(account, until).await;
            }
        }
    }

    /// Keeps the queue from delivering jobs of the account. Jobs that are held continue.
    async fn park(&self, account: &Name, until: Wall) {
        let subject = format!("CONSUMER.PAUSE.{}.{account}", names::JOBS);
        if let Err(error) = self.client.api(&subject, &json!({ "pause_until": until })).await {
            self.say(&format!("cannot park account {account}: {error}"));
        }
    }

    /// Adds what a session cost to the account's day. The id makes a repeated report count once.
    pub async fn charge(&self, account: &Name, run: &str, seq: u64, micro_usd: u64) {
        let subject = names::cost_subject(account, &today());
        let (id, amount) = (format!("{run}/{seq}"), format!("+{micro_usd}"));
        let headers = [("Nats-Msg-Id", id.as_str()), ("Nats-Incr", amount.as_str())];
        for _ in 0..TRIES {
            match self.client.publish(&subject, &headers, Vec::new(), None).await {
                Ok(_) => return,
                Err(FleetError::NoAnswer | FleetError::NoResponders) => {}
                Err(error) => return self.say(&format!("cannot charge account {account}: {error}")),
            }
        }
    }

    /// Returns whether the account has spent its money of the day. Then it is parked until the next one.
    pub async fn is_over_budget(&self, account: &Name) -> bool {
        let Ok((_, limit)) = self.limit(account).await else { return false };
        let Some(budget) = limit.day_micro_usd else { return false };
        let spent = self.client.last(names::COST, &names::cost_subject(account, &today())).await;
        let spent = spent.ok().flatten().and_then(|stored| counter(&stored.payload)).unwrap_or(0);
        if spent < budget {
            return false;
        }
        let until = tomorrow();
        self.say(&format!("account {account} has spent its budget of the day; parked until {until}"));
        self.park(account, until).await;
        true
    }

    /// Reports a job that no worker will take again.
    pub fn report_poison(&self, id: &JobId, why: &str) {
        self.say(&format!("{id}: poisoned after three unclean ends: {why}"));
    }
}

/// Reads the value of a counter: `{"val":"123"}`.
fn counter(payload: &[u8]) -> Option<u64> {
    let value: Value = serde_json::from_slice(payload).ok()?;
    value["val"].as_str()?.parse().ok()
}

/// Returns the day in UTC.
fn today() -> String {
    clock::now().wall.to_string().chars().take(10).collect()
}

/// Returns the end of the day in UTC.
fn tomorrow() -> Wall {
    const DAY: i64 = 24 * 3600 * 1000;
    Wall((clock::now().wall.0 / DAY + 1) * DAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_counter_is_a_text() {
        assert_eq!(counter(br#"{"val":"1250000"}"#), Some(1_250_000));
        assert_eq!(counter(b"{}"), None);
    }
}
