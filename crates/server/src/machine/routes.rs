//! The handlers of the machine API.

use super::ContinueRun;
use super::agents::Agents;
use super::assets::asset;
use super::hub::Hub;
use super::others::{MachineEntry, OtherMachines};
use super::output::{self, Place};
use super::runs::{BAD_RUNS_QUERY, RunEntry, Runs, RunsQuery};
use super::stream::{self, Pace, Source};
use super::table::table;
use crate::error::ApiError;
use crate::events::{Caller, Form, so_far};
use crate::listener::{Cut, Limits};
use crate::routes::{EventsQuery, HandlerResult, answer, json};
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::response::Response;
use axum::routing::get;
use dogwatch_core::record::ids::RunId;
use dogwatch_core::record::status::OrchestratorStatus;
use dogwatch_core::record::view::View;
use dogwatch_core::time::moment::Moment;
use dogwatch_host::git::snapshot::Patch;
use dogwatch_host::store::registry::Pointer;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};

/// The state shared by all handlers.
pub(crate) struct Machine {
    pub runs: Runs,
    pub hub: Arc<Hub>,
    pub agents: Agents,
    pub others: Option<Arc<dyn OtherMachines>>,
    pub continue_run: ContinueRun,
    pub limits: Limits,
    pub streams: Arc<Semaphore>,
    pub closing: watch::Receiver<bool>,
    pub pace: Pace,
}

pub(crate) type MachineState = State<Arc<Machine>>;
pub(crate) type RunPath = Result<Path<String>, PathRejection>;
type OutputPath = Result<Path<(String, String, String)>, PathRejection>;
type StreamPath = Result<Path<(String, String, String, String)>, PathRejection>;

/// Builds the router from the route table. The OpenAPI document is built from the same table, so they always agree.
pub(crate) fn router(machine: Arc<Machine>) -> Router {
    let pages = Router::new()
        .route("/", get(asset))
        .route("/favicon.ico", get(asset))
        .route("/app/{*path}", get(asset));
    table()
        .into_iter()
        .fold(pages, |router, op| router.route(op.path, op.handler))
        .fallback(async || ApiError::NoSuchRoute)
        .method_not_allowed_fallback(async || ApiError::WrongMethod)
        .with_state(machine)
}

/// Adds the security headers to a response: no caching, no content sniffing, no framing.
pub(crate) async fn add_security_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut add = |name: HeaderName, value| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    add(CACHE_CONTROL, "no-store");
    add(X_CONTENT_TYPE_OPTIONS, "nosniff");
    add(REFERRER_POLICY, "no-referrer");
    add(CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'");
    add(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    response
}

/// Runs file access on a blocking thread, off the thread that serves all clients.
pub(crate) async fn run_blocking<T: Send + 'static>(
    machine: &Arc<Machine>,
    read: impl FnOnce(&Machine) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let machine = Arc::clone(machine);
    tokio::task::spawn_blocking(move || read(&machine)).await.map_err(|_| ApiError::Broken)
}

/// Finds the run named in a path.
pub(crate) async fn find(machine: &Arc<Machine>, run: &str) -> Result<Pointer, ApiError> {
    let run: RunId = run.parse().map_err(|_| ApiError::BadPath)?;
    run_blocking(machine, move |m| m.runs.find(&run)).await?
}

/// Returns the current view of the run named in a path. Finds and reads it in one blocking call, because this is the
/// most frequent request.
async fn look<T: Send + 'static>(
    machine: &Arc<Machine>,
    run: &str,
    see: fn(&View, Option<Moment>) -> T,
) -> Result<T, ApiError> {
    let run: RunId = run.parse().map_err(|_| ApiError::BadPath)?;
    run_blocking(machine, move |m| m.runs.look(&m.runs.find(&run)?, see)).await?
}

/// The runs of this machine, newest first.
#[derive(JsonSchema, Serialize)]
pub(crate) struct RunsAnswer {
    runs: Vec<RunEntry>,
}

pub(crate) async fn runs(
    State(machine): MachineState,
    query: Result<Query<RunsQuery>, QueryRejection>,
) -> HandlerResult {
    let Query(query) = query.map_err(|_| ApiError::BadQuery(BAD_RUNS_QUERY))?;
    let limit = query.limit()?;
    let body = run_blocking(&machine, move |m| {
        json(StatusCode::OK, &RunsAnswer { runs: m.runs.list(&query, limit) })
    });
    body.await?
}

/// The other machines whose runs are listed here.
#[derive(JsonSchema, Serialize)]
pub(crate) struct MachinesAnswer {
    machines: Vec<MachineEntry>,
    /// What all machines share, for example the queue of a fleet.
    summary: Option<String>,
}

pub(crate) async fn machines(State(machine): MachineState) -> HandlerResult {
    let others = machine.others.as_ref();
    let machines = others.map(|others| others.machines()).unwrap_or_default();
    json(StatusCode::OK, &MachinesAnswer { machines, summary: others.and_then(|others| others.summary()) })
}

pub(crate) async fn run(State(machine): MachineState, path: RunPath) -> HandlerResult {
    let Path(run) = path.map_err(|_| ApiError::BadPath)?;
    let run: RunId = run.parse().map_err(|_| ApiError::BadPath)?;
    let status = run_blocking(&machine, move |m| m.runs.status(&m.runs.find(&run)?)).await??;
    json(StatusCode::OK, &status)
}

pub(crate) async fn orchestrator(State(machine): MachineState, path: RunPath) -> HandlerResult {
    let Path(run) = path.map_err(|_| ApiError::BadPath)?;
    let status = look(&machine, &run, OrchestratorStatus::of).await?;
    json(StatusCode::OK, &status)
}

pub(crate) async fn events(
    State(machine): MachineState,
    path: RunPath,
    headers: HeaderMap,
    query: Result<Query<EventsQuery>, QueryRejection>,
    Extension(cut): Extension<Cut>,
) -> HandlerResult {
    let Path(run) = path.map_err(|_| ApiError::BadPath)?;
    let wanted = EventsQuery::wanted(query, &headers)?;
    let pointer = find(&machine, &run).await?;
    let place = Arc::clone(&machine.streams).try_acquire_owned().map_err(|_| ApiError::TooManyStreams)?;
    let caller = Caller { place, limits: Some((cut, machine.pace)) };
    let tail = wanted.open(&pointer.run_dir)?;
    let pieces = match wanted.form {
        Form::Sse => {
            let interest = machine.hub.watch(&pointer.run_dir).map_err(|_| ApiError::NoWatch)?;
            let source = Source { run_dir: pointer.run_dir, interest, closing: machine.closing.clone() };
            stream::live(tail, wanted, source, machine.pace, caller)
        }
        Form::Lines => so_far(tail, wanted, caller),
    };
    Ok(answer(StatusCode::OK, wanted.form.kind(), Body::from_stream(pieces)))
}

pub(crate) async fn outputs(State(machine): MachineState, path: OutputPath) -> HandlerResult {
    let Path((run, node, iteration)) = path.map_err(|_| ApiError::BadPath)?;
    let place = Place::parse(&node, &iteration)?;
    let pointer = find(&machine, &run).await?;
    let files = run_blocking(&machine, move |_| output::list(&pointer.run_dir, &place)).await??;
    json(StatusCode::OK, &files)
}

pub(crate) async fn output(
    State(machine): MachineState,
    path: StreamPath,
    headers: HeaderMap,
    Extension(cut): Extension<Cut>,
) -> HandlerResult {
    let Path((run, node, iteration, stream)) = path.map_err(|_| ApiError::BadPath)?;
    let place = Place::parse(&node, &iteration)?;
    let pointer = find(&machine, &run).await?;
    match stream.as_str() {
        "readable" => {
            let made = run_blocking(&machine, move |m| {
                m.runs.look(&pointer, |view, _| output::readable(&pointer.run_dir, &place, &headers, view))
            });
            json(StatusCode::OK, &made.await???)
        }
        "diff" => {
            let made = run_blocking(&machine, move |m| {
                let view = m.runs.look(&pointer, |view, _| view.clone())?;
                output::changes(&pointer, &place, &view)
            });
            let Patch { mut text, cut } = made.await??;
            if cut {
                text.push_str("[dogwatch: the rest is not shown; `dogwatch diff` prints all of it]\n");
            }
            Ok(answer(StatusCode::OK, "text/plain; charset=utf-8", Body::from(text)))
        }
        stream => output::answer(&pointer.run_dir, &place, stream, &headers, cut),
    }
}
