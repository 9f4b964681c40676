//! External agents: programs that dogwatch did not start and that report what they do, watched by the same watchdog.
//!
//! The server keeps them in memory only. No timer runs for them: a caller that asks which agents hang gets the answer
//! of that moment, and a caller that follows the stream is woken when the next agent may have crossed a limit.

use super::routes::{Asked, Machine};
use super::stream::{Caller, Out};
use crate::events::{GREETING, Pieces};
use crate::listener::Cut;
use crate::refusal::Refusal;
use crate::routes::{Answer, answer, json, object, read_body, read_json, wants_sse};
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::header::HeaderMap;
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use dogwatch_core::settings::{Profile, WatchPolicy};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::external::{self, ExternalAgents, Hung, Refused, Seen};
use dogwatch_core::watch::{Channel, Evidence, StopReason};
use dogwatch_host::clock;
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The longest text of an error that is taken; more than a fingerprint looks at.
const MAX_ERROR: usize = 16 * 1024;
/// Who follows those that hang is told no oftener than this, however many reports come.
const BREATH: Duration = Duration::from_millis(100);

pub(crate) struct Agents {
    known: Mutex<ExternalAgents>,
    /// Something was reported: what is due may have changed.
    reported: watch::Sender<u64>,
}

impl Agents {
    /// `policy` holds for agents that register without limits of their own.
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
        act: impl FnOnce(&mut ExternalAgents, Awake) -> Result<T, Refused>,
    ) -> Result<T, Refusal> {
        let done = self.with(act).map_err(refusal)?;
        self.reported.send_modify(|n| *n = n.wrapping_add(1));
        Ok(done)
    }

    /// How many work, hang and have ended.
    pub fn counts(&self) -> [(&'static str, usize); 3] {
        let (all, hung) = self.with(|known, now| (known.list(now), known.hung(now).len()));
        let ended = all.iter().filter(|agent| agent.ended).count();
        [("working", all.len() - ended - hung), ("hung", hung), ("ended", ended)]
    }
}

fn refusal(refused: Refused) -> Refusal {
    match refused {
        Refused::TooMany => Refusal::TooManyAgents,
        Refused::Unknown => Refusal::NoSuchAgent,
        Refused::Ended => Refusal::AgentEnded,
        Refused::Taken => Refusal::AgentTaken,
        Refused::BadName => Refusal::BadBody("`id` is a name of 1 to 200 bytes without control characters"),
    }
}

/// An agent that registers, and the limits it is held to.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Register {
    /// Its name: 1 to 200 bytes, no control characters.
    #[schemars(length(min = 1, max = 200))]
    id: String,
    /// Without it the settings of `dogwatch serve` count; built in they are `quick`: 5 minutes of silence, 15 in all.
    #[serde(default)]
    profile: Option<Profile>,
    /// The longest time without a new message, in seconds.
    #[serde(default)]
    #[schemars(with = "Option<f64>", extend("exclusiveMinimum" = 0))]
    idle_timeout_seconds: Option<Value>,
    /// The longest time in all, in seconds.
    #[serde(default)]
    #[schemars(with = "Option<f64>", extend("exclusiveMinimum" = 0))]
    total_timeout_seconds: Option<Value>,
    /// So many equal errors in a row are a loop.
    #[serde(default)]
    #[schemars(with = "Option<u32>", extend("minimum" = 1))]
    max_errors: Option<Value>,
}

impl Register {
    fn asked(&self) -> Result<external::Asked, Refusal> {
        const IDLE: &str = "`idle_timeout_seconds` must be a number of seconds from 0.001 to 315360000";
        const TOTAL: &str = "`total_timeout_seconds` must be a number of seconds from 0.001 to 315360000";
        Ok(external::Asked {
            idle: seconds(self.idle_timeout_seconds.as_ref(), IDLE)?,
            total: seconds(self.total_timeout_seconds.as_ref(), TOTAL)?,
            errors: self.max_errors.as_ref().map(max_errors).transpose()?,
        })
    }
}

fn seconds(given: Option<&Value>, shape: &'static str) -> Result<Option<Dur>, Refusal> {
    let Some(given) = given else { return Ok(None) };
    let read = given.as_f64().and_then(|secs| Dur::from_secs_f64(secs).ok());
    read.filter(|dur| !dur.is_zero()).map(Some).ok_or(Refusal::BadBody(shape))
}

fn max_errors(given: &Value) -> Result<u32, Refusal> {
    let read = whole(given).ok().flatten().and_then(|n| u32::try_from(n).ok());
    read.filter(|n| *n > 0)
        .ok_or(Refusal::BadBody("`max_errors` must be a whole number from 1 to 4294967295"))
}

/// The number of messages it has had in all. A number that has not grown, or none, is a sign of life and no more.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Activity {
    #[serde(default, alias = "message_count", deserialize_with = "whole")]
    messages: Option<u64>,
}

/// In JSON 12.0 is as whole as 12, and some languages write it so.
fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(from)? else { return Ok(None) };
    let by_point = |n: f64| (n >= 0.0 && n.fract() == 0.0 && n < u64::MAX as f64).then_some(n as u64);
    let whole = number.as_u64().or_else(|| number.as_f64().and_then(by_point));
    whole.map(Some).ok_or_else(|| D::Error::custom("not a whole number"))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentError {
    /// What went wrong; at most 16 KiB.
    #[serde(alias = "error_message")]
    text: String,
}

/// The error was taken.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ErrorTaken {
    ok: bool,
    /// All errors that this agent has reported.
    error_count: u64,
    /// From the third error on.
    warning: Option<String>,
}

/// All agents that have registered.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AgentsAnswer {
    agents: Vec<AgentStatus>,
}

/// One external agent.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AgentStatus {
    id: String,
    state: AgentState,
    messages: u64,
    /// The same as `messages`.
    message_count: u64,
    /// The count before it last grew.
    last_message_count: u64,
    /// All errors that it reported, alike or not.
    error_count: u64,
    /// The text of the last one, at most 1000 bytes of it, without control characters and secrets.
    last_error: Option<String>,
    /// From the third error on.
    warning: Option<String>,
    /// The limit that it is over, or was over when it ended; `null` if there is none.
    reason: Option<StopReason>,
    /// The same as a sentence.
    message: Option<String>,
    /// Its limits; `null` is no limit.
    idle_timeout_seconds: Option<Dur>,
    total_timeout_seconds: Option<Dur>,
    max_errors: Option<u32>,
    /// Since it registered; until its end if it has ended.
    watched_s: Dur,
    evidence_summary: Vec<Evidence>,
    active_channel: Option<Channel>,
}

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AgentState {
    Working,
    Hung,
    Ended,
}

/// Those over a limit now.
#[derive(Serialize, JsonSchema)]
pub(crate) struct HungAnswer {
    hung: Vec<HungAgent>,
}

#[derive(Clone, Serialize, JsonSchema)]
pub(crate) struct HungAgent {
    id: String,
    reason: StopReason,
    message: String,
    evidence_summary: Vec<Evidence>,
    active_channel: Option<Channel>,
}

impl From<Seen> for AgentStatus {
    fn from(seen: Seen) -> AgentStatus {
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

pub(crate) async fn list(State(machine): Asked) -> Answer {
    let agents = machine.agents.with(|known, now| known.list(now));
    json(StatusCode::OK, &AgentsAnswer { agents: agents.into_iter().map(AgentStatus::from).collect() })
}

pub(crate) async fn register(State(machine): Asked, request: Request<Body>) -> Answer {
    const SHAPE: &str = "the body must be {\"id\": \"…\"}, optionally with \"profile\" (quick, standard or deep), \
                         \"idle_timeout_seconds\", \"total_timeout_seconds\" and \"max_errors\"";
    let body: Register = read_json(machine.limits, request, SHAPE).await?;
    let (policy, asked) = (body.profile.map(WatchPolicy::of), body.asked()?);
    machine.agents.report(|known, now| known.register_under(now, &body.id, policy, asked))?;
    json(StatusCode::CREATED, &serde_json::json!({"ok": true}))
}

/// The state of one agent, also of an ended one.
pub(crate) async fn agent(State(machine): Asked, id: Named) -> Answer {
    let Path(id) = id.map_err(|_| Refusal::BadPath)?;
    let seen = machine.agents.with(|known, now| known.get(now, &id)).ok_or(Refusal::NoSuchAgent)?;
    json(StatusCode::OK, &AgentStatus::from(seen))
}

/// Ends one agent for its caller. The answer holds the reason, and so does every later `GET`.
pub(crate) async fn clean_up(State(machine): Asked, id: Named) -> Answer {
    let Path(id) = id.map_err(|_| Refusal::BadPath)?;
    let seen = machine.agents.report(|known, now| known.clean_up(now, &id))?;
    json(StatusCode::OK, &AgentStatus::from(seen))
}

/// Without a body it is a sign of life.
pub(crate) async fn activity(State(machine): Asked, id: Named, request: Request<Body>) -> Answer {
    const SHAPE: &str = "the body must be {\"messages\": NUMBER}, or empty";
    let Path(id) = id.map_err(|_| Refusal::BadPath)?;
    let body = read_body(machine.limits, request).await?;
    let body: Activity = match body.is_empty() {
        true => Activity::default(),
        false => object(&body, SHAPE)?,
    };
    machine.agents.report(|known, now| known.activity(now, &id, body.messages))?;
    taken()
}

pub(crate) async fn error(State(machine): Asked, id: Named, request: Request<Body>) -> Answer {
    const SHAPE: &str = "the body must be {\"text\": \"…\"} and nothing else";
    let Path(id) = id.map_err(|_| Refusal::BadPath)?;
    let body: AgentError = read_json(machine.limits, request, SHAPE).await?;
    if body.text.len() > MAX_ERROR {
        return Err(Refusal::BodyTooLarge);
    }
    let seen = machine.agents.report(|known, now| known.error(now, &id, &body.text))?;
    let answer = ErrorTaken { ok: true, error_count: seen.errors, warning: seen.warning() };
    json(StatusCode::ACCEPTED, &answer)
}

pub(crate) async fn done(State(machine): Asked, id: Named, request: Request<Body>) -> Answer {
    let Path(id) = id.map_err(|_| Refusal::BadPath)?;
    read_body(machine.limits, request).await?;
    machine.agents.report(|known, now| known.done(now, &id))?;
    taken()
}

fn taken() -> Answer {
    json(StatusCode::ACCEPTED, &serde_json::json!({"ok": true}))
}

/// Those that hang now, or, as a stream, each of them when it begins to.
pub(crate) async fn hung(
    State(machine): Asked,
    headers: HeaderMap,
    Extension(cut): Extension<Cut>,
) -> Answer {
    if !wants_sse(&headers) {
        let hung = machine.agents.with(|known, now| known.hung(now));
        return json(StatusCode::OK, &HungAnswer { hung: hung.into_iter().map(HungAgent::from).collect() });
    }
    let place = Arc::clone(&machine.streams).try_acquire_owned().map_err(|_| Refusal::TooManyStreams)?;
    let (to, pieces) = mpsc::channel(1);
    let Caller { place, cut, pace } = Caller { place, cut, pace: machine.pace };
    tokio::spawn(follow(Arc::clone(&machine), Out { to, cut, pace }));
    let body = Body::from_stream(Pieces::new(pieces, Some(place)));
    Ok(answer(StatusCode::OK, "text/event-stream", body))
}

async fn follow(machine: Arc<Machine>, out: Out) -> Option<()> {
    let mut reported = machine.agents.reported.subscribe();
    let mut closing = machine.closing.clone();
    let mut told = BTreeSet::new();
    out.send(Bytes::from_static(GREETING)).await?;
    loop {
        reported.mark_unchanged();
        let (hung, wait) = machine.agents.with(|known, now| {
            let hung = known.hung(now);
            let wait = known.due_after(now).map(|due| Duration::from_millis(due.since(now).as_millis()));
            (hung, wait)
        });
        let now: BTreeSet<String> = hung.iter().map(|h| h.id.clone()).collect();
        for agent in hung.into_iter().filter(|h| !told.contains(&h.id)).map(HungAgent::from) {
            let text = serde_json::to_string(&agent).ok()?;
            out.send(format!("event: hung\ndata: {text}\n\n").into()).await?;
        }
        told = now;
        tokio::time::sleep(BREATH).await;
        tokio::select! {
            () = out.to.closed() => return None,
            _ = async { closing.wait_for(|closing| *closing).await.map(|_| ()) } => return None,
            _ = reported.changed() => {}
            () = sleep_or_for_ever(wait) => {}
            () = tokio::time::sleep(out.pace.keepalive) => out.send(Bytes::from_static(b": here\n\n")).await?,
        }
    }
}

async fn sleep_or_for_ever(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
