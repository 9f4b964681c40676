//! Queues jobs.

use crate::client::{Client, FleetError};
use crate::names::{self, JobId, Name};
use crate::record::{Job, JobRecord};
use dogwatch_core::time::moment::Wall;
use serde_json::json;

/// Queues a job. Its record is created first: a name that exists is refused, however long ago the job was queued.
pub async fn job(client: &Client, id: &JobId, job: &Job, at: Wall) -> Result<u64, FleetError> {
    let record = JobRecord { title: job.title(), submitted: Some(at), ..JobRecord::default() };
    client.put(names::KV_JOBS, &id.to_string(), &record, Some(0)).await?;
    let body = serde_json::to_vec(job).map_err(|error| FleetError::BadAnswer(error.to_string()))?;
    let message_id = id.to_string();
    let headers = [("Nats-Msg-Id", message_id.as_str())];
    loop {
        let subject = if job.spread { id.graph_subject() } else { id.queue_subject() };
        match client.publish(&subject, &headers, body.clone(), None).await {
            // The message id makes a second try count once.
            Err(FleetError::NoAnswer) => {}
            answer => return answer,
        }
    }
}

/// Queues a job again and again: `every` is a cron expression with six fields, or `@every 1h`.
pub async fn schedule(
    client: &Client,
    account: &Name,
    name: &Name,
    every: &str,
    job: &Job,
) -> Result<(), FleetError> {
    let job = Job { scheduled: true, ..job.clone() };
    let body = serde_json::to_vec(&job).map_err(|error| FleetError::BadAnswer(error.to_string()))?;
    let target = JobId { account: account.clone(), job: name.clone() }.queue_subject();
    let headers = [("Nats-Schedule", every), ("Nats-Schedule-Target", target.as_str())];
    client.publish(&names::schedule_subject(account, name), &headers, body, None).await.map(drop)
}

/// Returns whether the account has a queue.
pub async fn has_account(client: &Client, account: &Name) -> Result<bool, FleetError> {
    /// The server's number for a consumer that does not exist.
    const NO_CONSUMER: u64 = 10014;
    match client.api(&format!("CONSUMER.INFO.{}.{account}", names::JOBS), &json!({})).await {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Some(NO_CONSUMER) => Ok(false),
        Err(error) => Err(error),
    }
}
