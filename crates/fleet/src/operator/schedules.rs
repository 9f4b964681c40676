//! The schedules of a fleet.

use crate::client::{Client, FleetError};
use crate::names::{self, JobId};
use serde_json::json;

/// The most schedules that are listed.
pub const MAX_SCHEDULES: usize = 1_000;

/// Returns the schedules, each with its rule.
pub(super) async fn list(client: &Client) -> Result<Vec<(JobId, String)>, FleetError> {
    let wanted = json!({ "subjects_filter": "dw.sched.*.*" });
    let info = client.api(&format!("STREAM.INFO.{}", names::JOBS), &wanted).await?;
    let mut all = Vec::new();
    for subject in info["state"]["subjects"].as_object().into_iter().flatten().take(MAX_SCHEDULES) {
        let name = subject.0.strip_prefix("dw.sched.").and_then(|name| name.parse().ok());
        let stored = client.last(names::JOBS, subject.0).await?;
        let rule = stored.and_then(|stored| stored.header("Nats-Schedule").map(str::to_owned));
        all.extend(name.zip(rule));
    }
    Ok(all)
}

/// Removes a schedule. Returns whether there was one.
pub(super) async fn remove(client: &Client, id: &JobId) -> Result<bool, FleetError> {
    let filter = names::schedule_subject(&id.account, &id.job);
    let purged = client.api(&format!("STREAM.PURGE.{}", names::JOBS), &json!({ "filter": filter })).await?;
    Ok(purged["purged"].as_u64().unwrap_or(0) > 0)
}
