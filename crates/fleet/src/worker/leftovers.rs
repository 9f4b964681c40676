//! What an earlier process of this worker left behind: checkouts of jobs that are over.

use super::Worker;
use crate::names::{self, JobId};
use crate::record::JobRecord;

/// The most checkouts that a worker examines when it starts.
const MAX_LOOKED: usize = 1_000;

/// Removes the checkouts of jobs that are over. A killed worker could not, and such a job never comes back.
pub(super) async fn remove(worker: &Worker) {
    for id in worker.repositories.checked_out().into_iter().take(MAX_LOOKED) {
        if worker.settings.join.accounts.contains(&id.account) && is_over(worker, &id).await {
            worker.say(&format!("{id} is over: removing its checkout, which an earlier process left"));
            worker.repositories.remove_job(&id);
        }
    }
}

/// Returns whether no worker runs the job again. A job that is not known may still be.
async fn is_over(worker: &Worker, id: &JobId) -> bool {
    match worker.client.get(names::KV_JOBS, &id.to_string()).await {
        Ok(Some(stored)) if stored.is_removal() => true,
        Ok(Some(stored)) => {
            serde_json::from_slice::<JobRecord>(&stored.payload).is_ok_and(|record| record.state.is_over())
        }
        Ok(None) | Err(_) => false,
    }
}
