//! Requests to a run: those of operators, and limits of its account.

use super::Worker;
use crate::client::{Client, Subscription};
use crate::names::{self, JobId};
use crate::record::{Control, ControlAnswer, Want};
use dogwatch_core::text::one_line;
use dogwatch_core::time::moment::Wall;
use dogwatch_server::{Client as RunClient, socket_path};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long a request to a run may take.
const RUN_ANSWER: Duration = Duration::from_secs(2);
/// How often a request to a run that is just starting is tried.
const RUN_TRIES: u32 = 20;

/// Returns what the operator wants of a job.
pub(super) async fn wanted(client: &Client, id: &JobId) -> Option<Want> {
    let stored = client.get(names::KV_WANT, &id.to_string()).await.ok()??;
    if stored.is_removal() { None } else { serde_json::from_slice(&stored.payload).ok() }
}

/// Passes the end of a limit on to a run.
pub(super) async fn limit(run_dir: watch::Receiver<Option<PathBuf>>, until: Wall) {
    post_to_new_run(run_dir, "/v1/limit", serde_json::json!({ "until": until })).await;
}

/// Sends a request to a run that may just be starting.
pub(super) async fn post_to_new_run(
    mut run_dir: watch::Receiver<Option<PathBuf>>,
    path: &'static str,
    body: serde_json::Value,
) {
    let Ok(dir) = run_dir.wait_for(Option::is_some).await.map(|dir| dir.clone()) else { return };
    for _ in 0..RUN_TRIES {
        if post(dir.clone(), path, body.clone()).await.ok {
            return;
        }
        tokio::time::sleep(RUN_ANSWER / 10).await;
    }
}

/// Sends a request to a run.
pub(super) async fn post(dir: Option<PathBuf>, path: &'static str, body: serde_json::Value) -> ControlAnswer {
    let Some(dir) = dir else {
        return ControlAnswer { ok: false, detail: Some("the run is just starting".to_owned()) };
    };
    let call = move || -> io::Result<ControlAnswer> {
        let answer = RunClient::connect_within(&socket_path(&dir), RUN_ANSWER)?.post(path, &body)?;
        let ok = answer.status < 300;
        let detail = (!ok).then(|| one_line(&String::from_utf8_lossy(&answer.body), 300));
        Ok(ControlAnswer { ok, detail })
    };
    let failed = |error: String| ControlAnswer { ok: false, detail: Some(error) };
    match tokio::task::spawn_blocking(call).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => failed(error.to_string()),
        Err(error) => failed(error.to_string()),
    }
}

/// Passes requests of operators to the run.
pub(super) async fn steer(
    worker: Arc<Worker>,
    controls: Option<Subscription>,
    run_dir: watch::Receiver<Option<PathBuf>>,
) {
    let Some(mut controls) = controls else { return };
    while let Some(heard) = controls.next().await {
        let dir = run_dir.borrow().clone();
        let answer = match serde_json::from_slice(&heard.payload) {
            Ok(Control::Wake) => post(dir, "/v1/wake", serde_json::json!({})).await,
            Ok(Control::Pause) => post(dir, "/v1/pause", serde_json::json!({})).await,
            Ok(Control::Resume) => post(dir, "/v1/resume", serde_json::json!({})).await,
            Ok(Control::Stop) => post(dir, "/v1/stop", serde_json::json!({})).await,
            Ok(Control::Tell { text }) => post(dir, "/v1/tell", serde_json::json!({ "text": text })).await,
            Err(error) => ControlAnswer { ok: false, detail: Some(error.to_string()) },
        };
        if let (Some(reply), Ok(body)) = (heard.reply, serde_json::to_vec(&answer)) {
            // The operator may be gone.
            let _ = worker.client.send(&reply, body).await;
        }
    }
}
