//! External agents: programs that dogwatch did not start and that report their own activity to the watchdog.
//!
//! They are kept in memory only. No timer runs for them: a request for the hung agents is answered from their state at
//! that moment, and a stream wakes up when the next agent may have crossed a limit.

use super::routes::{Machine, MachineState};
use crate::error::ApiError;
use crate::events::{GREETING, Out, Pieces};
use crate::listener::Cut;
use crate::routes::{HandlerResult, answer, json, object, read_body, read_json, wants_sse};
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::header::HeaderMap;
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use dogwatch_core::settings::{Profile, WatchPolicy};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::external::{self, ExternalAgents, ExternalError, ExternalStatus, Hung};
use dogwatch_core::watch::{Channel, Evidence, StopReason};
use dogwatch_host::clock;
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The longest error text that is accepted; longer than the part that a fingerprint uses.
const MAX_ERROR: usize = 16 * 1024;
/// The shortest timeout that an agent may register with, in seconds: durations have whole milliseconds.
const MIN_SECONDS: f64 = 0.001;
/// The shortest time between two checks of a stream of hung agents, however many reports arrive.
const BREATH: Duration = Duration::from_millis(100);

/// The registered external agents.
pub(crate) struct Agents {
    known: Mutex<ExternalAgents>,
    /// Counts reports. A change means that the next deadline may have changed.
    reported: watch::Sender<u64>,
}

impl Agents {
    /// Creates an empty set. `policy` applies to agents that register without limits.
    pub fn under(policy: WatchPolicy) -> Agents {
        let known = ExternalAgents::new(policy);
        Agents { known: Mutex::new(known), reported: watch::Sender::new(0) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut ExternalAgents, Awake) -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut known, clock::awake())
    }

    fn report<T>(
        &self,
        act: impl FnOnce(&mut ExternalAgents, Awake) -> Result<T, ExternalError>,
    ) -> Result<T, ApiError> {
        let done = self.with(act).map_err(refusal)?;
        self.reported.send_modify(|n| *n = n.wrapping_add(1));
        Ok(done)
    }

    /// Returns how many agents work, hang and have ended.
    pub fn counts(&self) -> [(&'static str, usize); 3] {
        let (all, hung) = self.with(|known, now| (known.list(now), known.hung(now).len()));
        let ended = all.iter().filter(|agent| agent.ended).count();
        [("working", all.len() - ended - hung), ("hung", hung), ("ended", ended)]
    }
}

fn refusal(refused: ExternalError) -> ApiError {
    match refused {
        ExternalError::TooMany => ApiError::TooManyAgents,
        ExternalError::Unknown => ApiError::NoSuchAgent,
        ExternalError::Ended => ApiError::AgentEnded,
        ExternalError::Taken => ApiError::AgentTaken,
        ExternalError::BadName => {
            ApiError::BadBody("`id` must be a name of 1 to 200 bytes without control characters")
        }
    }
}

/// An agent that registers, and its limits.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Register {
    /// Its name: 1 to 200 bytes, no control characters.
    #[schemars(length(min = 1, max = 200))]
    id: String,
    /// The limits profile. The default is set by `dogwatch serve`; built in it is `quick` (5 min silent, 15 min total).
    #[serde(default)]
    profile: Option<Profile>,
    /// The longest time without a new message, in seconds.
    #[serde(default)]
    #[schemars(with = "Option<f64>", extend("minimum" = MIN_SECONDS, "maximum" = Dur::LONGEST.as_secs_f64()))]
    idle_timeout_seconds: Option<Value>,
    /// The longest total time, in seconds.
    #[serde(default)]
    #[schemars(with = "Option<f64>", extend("minimum" = MIN_SECONDS, "maximum" = Dur::LONGEST.as_secs_f64()))]
    total_timeout_seconds: Option<Value>,
    /// How many equal errors in a row count as a loop.
    #[serde(default)]
    #[schemars(with = "Option<u32>", extend("minimum" = 1, "maximum" = u32::MAX))]
    max_errors: Option<Value>,
}

impl Register {
    fn asked(&self) -> Result<external::RequestedLimits, ApiError> {
        const IDLE: &str = "`idle_timeout_seconds` must be a number of seconds from 0.001 to 315360000";
        const TOTAL: &str = "`total_timeout_seconds` must be a number of seconds from 0.001 to 315360000";
        Ok(external::RequestedLimits {
            idle: seconds(self.idle_timeout_seconds.as_ref(), IDLE)?,
            total: seconds(self.total_timeout_seconds.as_ref(), TOTAL)?,
            errors: self.max_errors.as_ref().map(max_errors).transpose()?,
        })
    }
}

fn seconds(given: Option<&Value>, shape: &'static str) -> Result<Option<Dur>, ApiError> {
    let Some(given) = given else { return Ok(None) };
    let read = given.as_f64().filter(|secs| *secs >= MIN_SECONDS);
    read.and_then(|secs| Dur::from_secs_f64(secs).ok()).map(Some).ok_or(ApiError::BadBody(shape))
}

fn max_errors(given: &Value) -> Result<u32, ApiError> {
    let read = whole(given).ok().flatten().and_then(|n| u32::try_from(n).ok());
    read.filter(|n| *n > 0)
        .ok_or(ApiError::BadBody("`max_errors` must be a whole number from 1 to 4294967295"))
}

/// The total number of messages. A missing number, or one that has not grown, only shows that the agent lives.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Activity {
    /// A whole number.
    #[serde(default, alias = "message_count", deserialize_with = "whole")]
    #[schemars(extend("minimum" = 0, "maximum" = u64::MAX))]
    messages: Option<u64>,
}

/// Parses a non-negative whole number. Accepts `12.0` as well, because some languages write whole numbers that way.
fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(from)? else { return Ok(None) };
    let by_point = |n: f64| (n >= 0.0 && n.fract() == 0.0 && n < u64::MAX as f64).then_some(n as u64);
    let whole = number.as_u64().or_else(|| number.as_f64().and_then(by_point));
    whole.map(Some).ok_or_else(|| D::Error::custom("not a whole number"))
}

/// An error that an agent reports.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentError {
    /// The error message; at most 16 KiB.
    #[serde(alias = "error_message")]
    text: String,
}

/// The error was recorded.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ErrorTaken {
    ok: bool,
    /// The number of errors that this agent has reported.
    error_count: u64,
    /// Set from the third error on.
    warning: Option<String>,
}

/// All registered agents.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AgentsAnswer {
    agents: Vec<AgentStatus>,
}

/// The status of one external agent.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AgentStatus {
    id: String,
    state: AgentState,
    messages: u64,
    /// The same as `messages`.
    message_count: u64,
    /// The count before it last grew.
    last_message_count: u64,
    /// The number of errors it has reported, equal or not.
    error_count: u64,
    /// The text of the last error, at most 1000 bytes, without control characters and secrets.
    last_error: Option<String>,
    /// Set from the third error on.
    warning: Option<String>,
    /// The limit that the agent exceeds, or exceeded when it ended; `null` if none.
    reason: Option<StopReason>,
    /// The reason as a sentence.
    message: Option<String>,
    /// Its limits; `null` means unlimited.
    idle_timeout_seconds: Option<Dur>,
    total_timeout_seconds: Option<Dur>,
    max_errors: Option<u32>,
    /// The time since it registered, up to its end if it has ended.
    watched_s: Dur,
    evidence_summary: Vec<Evidence>,
    active_channel: Option<Channel>,
}

/// The state of an external agent.
#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AgentState {
    Working,
    Hung,
    Ended,
}

/// The agents that exceed a limit now.
#[derive(Serialize, JsonSchema)]
pub(crate) struct HungAnswer {
    hung: Vec<HungAgent>,
}

/// An agent that exceeds a limit.
#[derive(Clone, Serialize, JsonSchema)]
pub(crate) struct HungAgent {
    id: String,
    reason: StopReason,
    message: String,
    evidence_summary: Vec<Evidence>,
    active_channel: Option<Channel>,
}

impl From<ExternalStatus> for AgentStatus {
    fn from(seen: ExternalStatus) -> AgentStatus {
        let stop = seen.stop().map(|(reason, message)| (reason, message.to_owned()));
        let state = match &stop {
            _ if seen.ended => AgentState::Ended,
            Some(_) => AgentState::Hung,
            None => AgentState::Working,
        };
        let warning = seen.warning();
        let (reason, message) = stop.unzip();
        AgentStatus {
            id: seen.id,
            state,
            messages: seen.messages,
            message_count: seen.messages,
            last_message_count: seen.last_messages,
            error_count: seen.errors,
            last_error: seen.last_error,
            warning,
            reason,
            message,
            idle_timeout_seconds: seen.limits.idle,
            total_timeout_seconds: seen.limits.total,
            max_errors: seen.limits.errors,
            watched_s: seen.lasted,
            evidence_summary: seen.answer.evidence_summary,
            active_channel: seen.answer.active_channel,
        }
    }
}

impl From<Hung> for HungAgent {
    fn from(hung: Hung) -> HungAgent {
        HungAgent {
            id: hung.id,
            reason: hung.reason,
            message: hung.message,
            evidence_summary: hung.answer.evidence_summary,
            active_channel: hung.answer.active_channel,
        }
    }
}

type Named = Result<Path<String>, PathRejection>;

pub(crate) async fn list(State(machine): MachineState) -> HandlerResult {
    let agents = machine.agents.with(|known, now| known.list(now));
    json(StatusCode::OK, &AgentsAnswer { agents: agents.into_iter().map(AgentStatus::from).collect() })
}

pub(crate) async fn register(State(machine): MachineState, request: Request<Body>) -> HandlerResult {
    const SHAPE: &str = "the body must be {\"id\": \"…\"}, optionally with \"profile\" (quick, standard or deep), \
                         \"idle_timeout_seconds\", \"total_timeout_seconds\" and \"max_errors\"";
    let body: Register = read_json(machine.limits, request, SHAPE).await?;
    let (policy, asked) = (body.profile.map(WatchPolicy::of), body.asked()?);
    machine.agents.report(|known, now| known.register_under(now, &body.id, policy, asked))?;
    json(StatusCode::CREATED, &serde_json::json!({"ok": true}))
}

/// Returns the status of one agent, ended or not.
pub(crate) async fn agent(State(machine): MachineState, id: Named) -> HandlerResult {
    let Path(id) = id.map_err(|_| ApiError::BadPath)?;
    let seen = machine.agents.with(|known, now| known.get(now, &id)).ok_or(ApiError::NoSuchAgent)?;
    json(StatusCode::OK, &AgentStatus::from(seen))
}

/// Ends one agent on behalf of the caller. The response contains the reason, and so does every later `GET`.
pub(crate) async fn clean_up(State(machine): MachineState, id: Named) -> HandlerResult {
    let Path(id) = id.map_err(|_| ApiError::BadPath)?;
    let seen = machine.agents.report(|known, now| known.clean_up(now, &id))?;
    json(StatusCode::OK, &AgentStatus::from(seen))
}

/// Records activity. An empty body only shows that the agent is alive.
pub(crate) async fn activity(
    State(machine): MachineState,
    id: Named,
    request: Request<Body>,
) -> HandlerResult {
    const SHAPE: &str = "the body must be {\"messages\": NUMBER}, or empty";
    let Path(id) = id.map_err(|_| ApiError::BadPath)?;
    let body = read_body(machine.limits, request).await?;
    let body: Activity = match body.is_empty() {
        true => Activity::default(),
        false => object(&body, SHAPE)?,
    };
    machine.agents.report(|known, now| known.activity(now, &id, body.messages))?;
    taken()
}

pub(crate) async fn error(State(machine): MachineState, id: Named, request: Request<Body>) -> HandlerResult {
    const SHAPE: &str = "the body must be {\"text\": \"…\"} and nothing else";
    let Path(id) = id.map_err(|_| ApiError::BadPath)?;
    let body: AgentError = read_json(machine.limits, request, SHAPE).await?;
    if body.text.len() > MAX_ERROR {
        return Err(ApiError::BodyTooLarge);
    }
    let seen = machine.agents.report(|known, now| known.error(now, &id, &body.text))?;
    let answer = ErrorTaken { ok: true, error_count: seen.errors, warning: seen.warning() };
    json(StatusCode::ACCEPTED, &answer)
}

pub(crate) async fn done(State(machine): MachineState, id: Named, request: Request<Body>) -> HandlerResult {
    let Path(id) = id.map_err(|_| ApiError::BadPath)?;
    read_body(machine.limits, request).await?;
    machine.agents.report(|known, now| known.done(now, &id))?;
    taken()
}

fn taken() -> HandlerResult {
    json(StatusCode::ACCEPTED, &serde_json::json!({"ok": true}))
}

/// Returns the agents that hang now, or streams each one when it starts to hang.
pub(crate) async fn hung(
    State(machine): MachineState,
    headers: HeaderMap,
    Extension(cut): Extension<Cut>,
) -> HandlerResult {
    if !wants_sse(&headers) {
        let hung = machine.agents.with(|known, now| known.hung(now));
        return json(StatusCode::OK, &HungAnswer { hung: hung.into_iter().map(HungAgent::from).collect() });
    }
    let place = Arc::clone(&machine.streams).try_acquire_owned().map_err(|_| ApiError::TooManyStreams)?;
    let limits = Some((cut, machine.pace));
    let pieces = Pieces::from(Some(place), limits, |out| follow(Arc::clone(&machine), out));
    Ok(answer(StatusCode::OK, "text/event-stream", Body::from_stream(pieces)))
}

async fn follow(machine: Arc<Machine>, out: Out) -> Option<()> {
    let mut reported = machine.agents.reported.subscribe();
    let mut closing = machine.closing.clone();
    let mut sent = BTreeSet::new();
    out.send(Bytes::from_static(GREETING)).await?;
    loop {
        reported.mark_unchanged();
        let (hung, wait) = machine.agents.with(|known, now| {
            let hung = known.hung(now);
            let wait = known.due_after(now).map(|due| Duration::from_millis(due.since(now).as_millis()));
            (hung, wait)
        });
        let now: BTreeSet<String> = hung.iter().map(|h| h.id.clone()).collect();
        for agent in hung.into_iter().filter(|h| !sent.contains(&h.id)).map(HungAgent::from) {
            let text = serde_json::to_string(&agent).ok()?;
            out.send(format!("event: hung\ndata: {text}\n\n").into()).await?;
        }
        sent = now;
        tokio::time::sleep(BREATH).await;
        tokio::select! {
            () = out.to.closed() => return None,
            _ = async { closing.wait_for(|closing| *closing).await.map(|_| ()) } => return None,
            _ = reported.changed() => {}
            () = sleep_or_pending(wait) => {}
            () = tokio::time::sleep(machine.pace.keepalive) => out.send(Bytes::from_static(b": here\n\n")).await?,
        }
    }
}

async fn sleep_or_pending(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
