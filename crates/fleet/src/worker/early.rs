//! A checkout that begins before its claim is confirmed.

use super::Worker;
use super::command::{Cancel, CommandError};
use super::git::Checkout;
use crate::names::JobId;
use crate::record::Job;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A checkout that is in progress.
pub(super) struct EarlyCheckout {
    pub cancel: watch::Sender<bool>,
    pub checkout: JoinHandle<Result<Checkout, CommandError>>,
}

impl EarlyCheckout {
    /// Begins the checkout of a job that no worker has run yet.
    pub fn begin(worker: Arc<Worker>, id: JobId, job: Job) -> EarlyCheckout {
        let (cancel, canceled) = watch::channel(false);
        let checkout = tokio::spawn(async move {
            worker.repositories.check_out(&id, &job, None, &Cancel::new(canceled)).await
        });
        EarlyCheckout { cancel, checkout }
    }

    /// Removes the checkout, because the job is not claimed.
    pub async fn abandon(self, worker: &Worker) {
        self.cancel.send_replace(true);
        if let Ok(checkout) = finished(self.checkout).await {
            worker.repositories.remove(&checkout);
        }
    }
}

/// Waits for a checkout.
pub(super) async fn finished(
    checkout: JoinHandle<Result<Checkout, CommandError>>,
) -> Result<Checkout, CommandError> {
    checkout.await.unwrap_or_else(|error| Err(CommandError::Io(error.to_string())))
}
