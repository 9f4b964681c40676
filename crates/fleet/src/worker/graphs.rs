//! Pulls graphs whose nodes are jobs of their own. Such a graph waits for its nodes most of the time. It holds no slot, so it
//! never keeps the slot from them that they wait for.

use super::slots::{Rank, Slots};
use super::{Worker, holding};
use crate::client::FleetError;
use crate::names::{self, Name};
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

/// The pause after a pull that failed.
const RETRY: Duration = Duration::from_secs(1);
/// The pause if the account has no such queue, because it was made by an earlier version.
const NO_QUEUE: Duration = Duration::from_secs(30);

/// Pulls graphs of one account.
pub(super) async fn pull(worker: Arc<Worker>, account: Name, free: Slots) {
    let queue = names::graph_queue(&account);
    loop {
        let rank = Rank { was_empty: false, priority: Reverse(worker.known_limit(&account).priority) };
        let place = free.take(rank).await;
        // The worker says elsewhere why it takes no jobs.
        if worker.trouble().is_some() {
            drop(place);
            tokio::time::sleep(names::PULL).await;
            continue;
        }
        match worker.client.pull(&queue, names::PULL).await {
            Ok(Some(delivery)) => {
                let worker = worker.clone();
                tokio::spawn(async move {
                    holding::hold(worker, delivery).await;
                    drop(place);
                });
            }
            Ok(None) => {}
            Err(error) => {
                drop(place);
                let pause = if error == FleetError::NoResponders { NO_QUEUE } else { RETRY };
                tokio::time::sleep(pause).await;
            }
        }
    }
}
