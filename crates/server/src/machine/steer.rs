//! Forwards wake, pause, resume, stop, tell and limit to the run's own socket. A wake also continues a sleeping run, in a new
//! process. For every other run that is not running, the refusal names the command to type.

use super::routes::{Machine, MachineState, RunPath, find, run_blocking};
use crate::client::Client;
use crate::error::ApiError;
use crate::peer::Peer;
use crate::routes::{
    HandlerResult, answer, json as json_answer, read_body, read_limit, read_message, read_stop,
};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use dogwatch_core::record::event::Outcome;
use dogwatch_core::record::view::View;
use dogwatch_core::run::caller::Source;
use dogwatch_host::store::registry::{self, Pointer};
use dogwatch_host::store::socket;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How long a run may take to answer. The run's own timeout is 1 s.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Handles a request to steer a run: reads and validates its body, and passes it on.
pub(crate) async fn steer(
    State(machine): MachineState,
    path: RunPath,
    request: Request<Body>,
    what: &'static str,
) -> HandlerResult {
    let Path(run) = path.map_err(|_| ApiError::BadPath)?;
    let (peer, limits) = (Peer::of(&request), machine.limits);
    let body = match what {
        "stop" => json!(read_stop(limits, request).await?),
        "tell" => json!({"text": read_message(limits, request).await?}),
        "limit" => json!(read_limit(limits, request).await?),
        _ => read_body(limits, request).await.map(|_| json!({}))?,
    };
    pass_on(&machine, peer, &run, what, body).await
}

async fn pass_on(
    machine: &Arc<Machine>,
    peer: Option<Peer>,
    run: &str,
    what: &'static str,
    body: Value,
) -> HandlerResult {
    let pointer = find(machine, run).await?;
    // The run sees only this server, so the server must examine the caller. A process of any session is refused.
    let from = run_blocking(machine, move |_| Peer::source(peer, None, &[])).await??;
    if from != Source::Operator {
        return Err(ApiError::NotOperator);
    }
    run_blocking(machine, move |m| ask(m, &pointer, what, &body)).await?
}

fn ask(machine: &Machine, pointer: &Pointer, what: &str, body: &Value) -> HandlerResult {
    if let Some(origin) = &pointer.origin {
        let others = machine.others.as_ref().ok_or(ApiError::NoAnswer)?;
        let said = others.ask(pointer, what, body);
        let said = said.map_err(|why| ApiError::NotRunning(format!("{}: {why}", origin.host)))?;
        let status = StatusCode::from_u16(said.status).map_err(|_| ApiError::NoAnswer)?;
        return Ok(answer(status, "application/json", said.body.into()));
    }
    if !registry::is_live(&pointer.run_dir) {
        return if what == "wake" && sleeps(machine, pointer)? {
            continue_run(machine, pointer)
        } else {
            Err(not_running(machine, pointer, what))
        };
    }
    let asked = Client::connect_within(&socket::path(&pointer.run_dir), PATIENCE)
        .and_then(|mut client| client.post(&format!("/v1/{what}"), body));
    match asked {
        // Forward the run's response unchanged, including its refusals.
        Ok(said) => {
            let status = StatusCode::from_u16(said.status).map_err(|_| ApiError::NoAnswer)?;
            Ok(answer(status, "application/json", said.body.into()))
        }
        Err(_) if !registry::is_live(&pointer.run_dir) => Err(not_running(machine, pointer, what)),
        Err(_) => Err(ApiError::NoAnswer),
    }
}

/// Returns whether an idle limit stopped the run and no dogwatch process is left to wake.
fn sleeps(machine: &Machine, pointer: &Pointer) -> Result<bool, ApiError> {
    machine.runs.look(pointer, |view, _| {
        view.is_asleep() || view.ended.as_ref().is_some_and(|end| end.outcome == Outcome::Idle)
    })
}

/// Starts a dogwatch process that continues the run. If two callers wake it at once, both get the same response.
fn continue_run(machine: &Machine, pointer: &Pointer) -> HandlerResult {
    match (machine.continue_run)(pointer) {
        Ok(()) => json_answer(StatusCode::ACCEPTED, &Woken { ok: true, continued: true }),
        Err(_) if registry::is_live(&pointer.run_dir) => {
            json_answer(StatusCode::ACCEPTED, &Woken { ok: true, continued: true })
        }
        Err(why) => Err(ApiError::CannotContinue(why)),
    }
}

/// The wake request was accepted.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Woken {
    ok: bool,
    /// True if the run was asleep and continues in a new process. Absent if a wait was ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    continued: bool,
}

fn not_running(machine: &Machine, pointer: &Pointer, what: &str) -> ApiError {
    match machine.runs.look(pointer, |view, _| advice(view, pointer, what)) {
        Ok(text) => ApiError::NotRunning(text),
        Err(refusal) => refusal,
    }
}

fn advice(view: &View, pointer: &Pointer, what: &str) -> String {
    let run = &pointer.run;
    match &view.ended {
        None => format!("the supervisor of run {run} died; type `dogwatch resume {run}` to continue it"),
        Some(end) if end.outcome == Outcome::Idle && what == "resume" => {
            format!("run {run} went to sleep; wake it, or type `dogwatch wake {run}`")
        }
        Some(end) => format!(
            "run {run} has ended ({}); type `dogwatch run {}` to start a new one",
            end.outcome,
            pointer.path.display()
        ),
    }
}
