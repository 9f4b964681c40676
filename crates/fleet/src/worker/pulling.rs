//! Pulls jobs for free slots, and graphs whose nodes are jobs of their own.
//!
//! A pull waits on the server. It ends with a job, when its time is over, or when this worker ends it. A job that arrives at
//! that moment is taken, or given back if the worker is drained: no job that was delivered is dropped.

use super::slots::{Rank, Slot, Slots};
use super::{LOOK, Worker, holding};
use crate::client::{Delivery, FleetError};
use crate::names::{self, Name};
use dogwatch_core::time::dur::Dur;
use dogwatch_host::clock;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long one pull waits if more accounts than free slots ask.
const SHARED_PULL: Duration = Duration::from_secs(2);
/// How long one pull waits if another account waits for the slot.
const CONTENDED_PULL: Duration = Duration::from_millis(100);
/// How long after the end of a limit pulls stay short.
const PARKED_SLACK: Dur = Dur::from_secs(60);
/// How long an account without jobs comes after the others.
const EMPTY_FOR: Duration = Duration::from_secs(1);
/// The pause after a pull that failed.
const PULL_RETRY: Duration = Duration::from_millis(500);
/// How long a worker that refused a job pulls none.
const STEP_ASIDE: Duration = Duration::from_millis(50);
/// The pause if the account has no queue of graphs, because it was made by an earlier version.
const NO_QUEUE: Duration = Duration::from_secs(30);

/// Waits for the drain of a worker. A worker that is gone counts as drained.
async fn until_drained(mut drain: watch::Receiver<bool>) {
    let _ = drain.wait_for(|set| *set).await;
}

/// Waits for a free slot for an account. A worker that can take no job frees the slot again and waits, and `report` gets the
/// reason; it gets nothing when the worker can take jobs again.
async fn free_slot(
    worker: &Worker,
    account: &Name,
    free: &Slots,
    was_empty: bool,
    report: impl Fn(Option<&str>),
) -> Slot {
    let mut troubled = false;
    loop {
        let priority = Reverse(worker.known_limit(account).priority);
        let slot = free.take(Rank { was_empty, priority }).await;
        let Some(trouble) = worker.trouble() else {
            if troubled {
                report(None);
            }
            return slot;
        };
        if !std::mem::replace(&mut troubled, true) {
            report(Some(&trouble));
        }
        drop(slot);
        tokio::time::sleep(LOOK).await;
    }
}

/// Pulls jobs of one account for free slots, until the worker is drained.
pub(super) async fn jobs(worker: Arc<Worker>, account: Name, free: Slots) {
    let accounts = worker.settings.join.accounts.len();
    let mut empty_at: Option<tokio::time::Instant> = None;
    let report = |trouble: Option<&str>| {
        worker.say(&match trouble {
            Some(trouble) => format!("taking no jobs: {trouble}"),
            None => "taking jobs again: there is disk space".to_owned(),
        });
        worker.changed.notify_one();
    };
    loop {
        let was_empty = empty_at.is_some_and(|at| at.elapsed() < EMPTY_FOR);
        let ready = async {
            worker.wait_while_parked(&account).await;
            free_slot(&worker, &account, &free, was_empty, report).await
        };
        let slot = tokio::select! {
            slot = ready => slot,
            () = until_drained(worker.drain.clone()) => return,
        };
        let until = worker.known_limit(&account).until;
        // The server may still hold an account back that is free by the clock of this machine.
        let parked = until.is_some_and(|until| until.plus(PARKED_SLACK) > clock::now().wall);
        // With fewer slots than accounts the accounts take turns.
        let expires = match (free.is_contended(), parked || accounts > worker.settings.slots) {
            (true, _) => CONTENDED_PULL,
            (false, true) => SHARED_PULL,
            (false, false) => names::PULL,
        };
        let mut limits = worker.limits.subscribe();
        let stop = async {
            tokio::select! {
                // The server does not serve a pull that was opened before the account was parked.
                _ = limits.wait_for(|all| all.get(&account).is_some_and(|limit| limit.until != until)) => {}
                () = until_drained(worker.drain.clone()) => {}
            }
        };
        match worker.client.pull(account.as_str(), expires, stop).await {
            Ok(Some(delivery)) => {
                empty_at = None;
                take(&worker, delivery, slot).await;
            }
            Ok(None) => empty_at = Some(tokio::time::Instant::now()),
            Err(error) => {
                drop(slot);
                if error != FleetError::NoAnswer && error != FleetError::NoResponders {
                    worker.say(&format!("cannot ask for jobs of {account}: {error}"));
                }
                tokio::time::sleep(PULL_RETRY).await;
            }
        }
    }
}

/// Pulls graphs of one account, until the worker is drained. Such a graph waits for its nodes most of the time. It holds no
/// slot, so it never keeps the slot from them that they wait for.
pub(super) async fn graphs(worker: Arc<Worker>, account: Name, free: Slots) {
    let queue = names::graph_queue(&account);
    loop {
        let place = tokio::select! {
            // The task that pulls jobs reports why the worker takes none.
            place = free_slot(&worker, &account, &free, false, |_| {}) => place,
            () = until_drained(worker.drain.clone()) => return,
        };
        match worker.client.pull(&queue, names::PULL, until_drained(worker.drain.clone())).await {
            Ok(Some(delivery)) => take(&worker, delivery, place).await,
            Ok(None) => {}
            Err(error) => {
                drop(place);
                let pause = if error == FleetError::NoResponders { NO_QUEUE } else { PULL_RETRY };
                let _ = tokio::time::timeout(pause, until_drained(worker.drain.clone())).await;
            }
        }
    }
}

/// Holds a delivered job to its end, unless the worker is drained or refuses it.
async fn take(worker: &Arc<Worker>, delivery: Delivery, slot: Slot) {
    if *worker.drain.borrow() {
        return worker.client.give_back(&delivery, None).await;
    }
    if holding::refuse_at_once(worker, &delivery).await {
        drop(slot);
        // Otherwise the pull of this worker could get the same job again before that of another.
        return tokio::time::sleep(STEP_ASIDE).await;
    }
    let worker = worker.clone();
    tokio::spawn(async move {
        holding::hold(worker, delivery).await;
        drop(slot);
    });
}
