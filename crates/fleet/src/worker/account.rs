//! Limits that all workers of an account share: refusals of the provider and the budget of a day.

use super::Worker;
use super::reserving::budget_of;
use super::running::Order;
use crate::client::{Client, FleetError, Stored};
use crate::names::{self, JobId, Name};
use crate::record::{Limit, Parked, why_parked};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use dogwatch_host::clock;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How long after the reset the account stays parked: clocks differ, and a provider may be late.
pub const AFTER_RESET: Dur = Dur::from_secs(15);
/// Limits whose ends differ by at most this many milliseconds are the same.
const SAME: i64 = 5_000;
/// How often a limit is written if other workers also write.
const TRIES: u32 = 5;
/// The pause before the limits of an account are read again.
const RETRY: Duration = Duration::from_millis(500);

/// Follows the limits of an account, and passes them on to its runs here.
pub(super) async fn follow(worker: Arc<Worker>, account: Name) {
    let (client, reserved) = (&worker.client, names::reserved_key(&account));
    let mut limits = client.watch(names::KV_LIMITS, account.as_str());
    let mut shares = client.watch(names::KV_LIMITS, &reserved);
    // An account without limits has no key, and then the watch says nothing.
    let mut connections = client.connections();
    let mut limit = loop {
        match worker.limit(&account).await {
            Ok((_, limit)) => break limit,
            Err(_) => drop(tokio::time::timeout(RETRY, connections.changed()).await),
        }
    };
    let mut known = None;
    loop {
        worker.limits.send_modify(|all| drop(all.insert(account.clone(), limit.clone())));
        if limit.until != known {
            let before = std::mem::replace(&mut known, limit.until);
            worker.pass_on(&account, before, &limit);
        }
        limit = loop {
            tokio::select! {
                stored = limits.next() => break parse_limit(&stored),
                _ = shares.next() => worker.shares.send_modify(|()| {}),
            }
        };
    }
}

impl Worker {
    /// Passes a changed limit on to the runs of the account.
    fn pass_on(&self, account: &Name, before: Option<Wall>, limit: &Limit) {
        let now = clock::now().wall;
        match limit.until.filter(|until| *until > now) {
            Some(until) => {
                self.say(&format!("account {account} is parked until {until}: {}", why_parked(limit)));
                self.order_account(account, || Order::Limit(until));
            }
            None if before.is_some_and(|until| until > now) => {
                self.say(&format!("account {account} is no longer parked"));
                self.order_account(account, || Order::Unpark);
            }
            None => {}
        }
    }

    /// Reads the limit of an account and its revision.
    pub(super) async fn limit(&self, account: &Name) -> Result<(u64, Limit), FleetError> {
        read_limit(&self.client, account).await
    }

    /// Returns until when the account is parked, if it is.
    pub async fn parked_until(&self, account: &Name) -> Option<Wall> {
        let (_, limit) = self.limit(account).await.ok()?;
        limit.until.filter(|until| *until > clock::now().wall)
    }

    /// Parks the account for all workers.
    pub async fn raise_limit(&self, account: &Name, until: Wall, why: Parked) {
        for _ in 0..TRIES {
            let Ok((revision, limit)) = self.limit(account).await else { continue };
            if self.raise(account, (revision, limit), until, why).await {
                return;
            }
        }
    }

    /// Parks the account unless its limit has changed since it was read. Returns whether it is parked now.
    async fn raise(&self, account: &Name, read: (u64, Limit), until: Wall, why: Parked) -> bool {
        let (revision, mut limit) = read;
        if limit.until.is_some_and(|known| known.0 + SAME >= until.0) {
            return true;
        }
        limit.until = Some(until);
        (limit.why, limit.by) = (Some(why), Some(self.name().clone()));
        let raised =
            self.client.put(names::KV_LIMITS, account.as_str(), &limit, Some(revision)).await.is_ok();
        if raised {
            self.park(account, until).await;
        }
        raised
    }

    /// Keeps the queue from delivering jobs of the account. Jobs that are held continue.
    async fn park(&self, account: &Name, until: Wall) {
        let subject = format!("CONSUMER.PAUSE.{}.{account}", names::JOBS);
        if let Err(error) = self.client.api(&subject, &json!({ "pause_until": until })).await {
            self.say(&format!("cannot park account {account}: {error}"));
        }
    }

    /// Adds what a session used to the account's day, and parks the account if its budget is spent. The id makes a repeated
    /// report count once.
    pub async fn charge(&self, account: &Name, id: &str, micro_usd: u64, tokens: u64) {
        let day = today();
        let counters =
            [(names::cost_subject(account, &day), micro_usd), (names::tokens_subject(account, &day), tokens)];
        for (subject, amount) in counters.iter().filter(|(_, amount)| *amount > 0) {
            // Both counters are in one stream, which knows an id once.
            let (id, amount) = (format!("{subject}/{id}"), format!("+{amount}"));
            let headers = [("Nats-Msg-Id", id.as_str()), ("Nats-Incr", amount.as_str())];
            for _ in 0..TRIES {
                match self.client.publish(subject, &headers, Vec::new(), None).await {
                    Ok(_) => break,
                    Err(FleetError::NoAnswer | FleetError::NoResponders) => {}
                    Err(error) => {
                        self.say(&format!("cannot charge account {account}: {error}"));
                        break;
                    }
                }
            }
        }
        self.is_over_budget(account).await;
    }

    /// Returns whether the account has spent its budget of the day. Then it is parked until the next one.
    pub async fn is_over_budget(&self, account: &Name) -> bool {
        // Most accounts have no budget, and then no request is needed.
        let known = self.limits.borrow().get(account).cloned();
        if known.is_some_and(|limit| !budget_of(&limit).is_set()) {
            return false;
        }
        for _ in 0..TRIES {
            let Ok((revision, limit)) = self.limit(account).await else { return false };
            if !self.exceeds(account, &limit).await {
                return false;
            }
            // The operator may raise the budget at the same moment.
            if self.raise(account, (revision, limit), tomorrow(), Parked::Budget).await {
                return true;
            }
        }
        false
    }

    /// Returns whether the usage of the day reaches a budget.
    async fn exceeds(&self, account: &Name, limit: &Limit) -> bool {
        let spent = self.spent_on(account, &today()).await;
        spent.is_ok_and(|spent| budget_of(limit).is_spent(spent))
    }

    /// Reports a job that no worker will take again.
    pub fn report_poison(&self, id: &JobId, why: &str) {
        self.say(&format!("{id}: poisoned after three unclean ends: {why}"));
    }
}

/// Reads the limits of an account and their revision.
pub(crate) async fn read_limit(client: &Client, account: &Name) -> Result<(u64, Limit), FleetError> {
    let stored = client.get(names::KV_LIMITS, account.as_str()).await?;
    Ok(stored.map_or((0, Limit::default()), |stored| (stored.sequence, parse_limit(&stored))))
}

/// Returns the limits of an account. A key that was removed has none.
fn parse_limit(stored: &Stored) -> Limit {
    serde_json::from_slice(&stored.payload).unwrap_or_default()
}

/// Reads a counter.
pub(crate) async fn spent(client: &Client, subject: &str) -> Result<u64, FleetError> {
    let stored = client.last(names::COST, subject).await?;
    Ok(stored.and_then(|stored| counter(&stored.payload)).unwrap_or(0))
}

/// Reads the value of a counter: `{"val":"123"}`.
fn counter(payload: &[u8]) -> Option<u64> {
    let value: Value = serde_json::from_slice(payload).ok()?;
    value["val"].as_str()?.parse().ok()
}

/// Returns the day in UTC.
pub(crate) fn today() -> String {
    clock::now().wall.to_string().chars().take(10).collect()
}

/// Returns the end of the day in UTC.
pub(super) fn tomorrow() -> Wall {
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
