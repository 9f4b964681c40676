//! The table of all routes with their parameters, responses and refusals. The router and the OpenAPI document are both
//! built from it.

use super::agents::{
    self, Activity, AgentError, AgentStatus, AgentsAnswer, ErrorTaken, HungAnswer, Register,
};
use super::metrics::metrics;
use super::openapi::openapi;
use super::output::{Outputs, Readable};
use super::routes::{
    Machine, MachineState, MachinesAnswer, RunPath, RunsAnswer, events, machines, orchestrator, output,
    outputs, run, runs,
};
use super::steer;
use crate::error::ApiError;
use crate::routes::{LimitBody, MessageBody, Stop};
use axum::body::Body;
use axum::http::Request;
use axum::routing::{MethodRouter, delete, get, post};
use dogwatch_core::record::ids::{NodeName, RunId};
use dogwatch_core::record::status::{OrchestratorStatus, Status};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use std::sync::Arc;

/// Returns the JSON schema of a type.
pub(crate) type Look = fn(&mut SchemaGenerator) -> Schema;

fn look<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The media type of a response.
#[derive(Clone, Copy)]
pub(crate) enum Media {
    Json(Look),
    Kind(&'static str),
}

/// The JSON body of a request.
#[derive(Clone, Copy)]
pub(crate) struct Input {
    pub look: Look,
    pub required: bool,
}

/// A query parameter or header.
#[derive(Clone, Copy)]
pub(crate) struct Param {
    pub name: &'static str,
    pub about: &'static str,
    pub look: Look,
}

/// One route.
pub(crate) struct Op {
    pub method: &'static str,
    pub path: &'static str,
    pub summary: &'static str,
    pub query: Vec<Param>,
    pub headers: Vec<Param>,
    pub body: Option<Input>,
    pub answers: Vec<(u16, Media)>,
    pub refusals: Vec<ApiError>,
    pub handler: MethodRouter<Arc<Machine>>,
}

impl Op {
    fn new(
        method: &'static str,
        path: &'static str,
        summary: &'static str,
        handler: MethodRouter<Arc<Machine>>,
    ) -> Op {
        let mut refusals = vec![ApiError::NoToken, ApiError::BadHost, ApiError::BadOrigin, ApiError::Broken];
        if path.contains("{run}") {
            refusals.extend([ApiError::BadPath, ApiError::NoSuchRun, ApiError::NoRecord(String::new())]);
        }
        if path.contains("{id}") {
            refusals.extend([ApiError::BadPath, ApiError::NoSuchAgent]);
        }
        if method == "post" && path.contains("{id}") {
            refusals.push(ApiError::AgentEnded);
        }
        if method == "post" {
            refusals.extend([ApiError::BodyTooLarge, ApiError::BodyTooSlow]);
        }
        Op {
            method,
            path,
            summary,
            query: vec![],
            headers: vec![],
            body: None,
            answers: vec![],
            refusals,
            handler,
        }
    }

    fn get(path: &'static str, summary: &'static str, handler: MethodRouter<Arc<Machine>>) -> Op {
        Op::new("get", path, summary, handler)
    }

    fn post(path: &'static str, summary: &'static str, handler: MethodRouter<Arc<Machine>>) -> Op {
        Op::new("post", path, summary, handler)
    }

    fn delete(path: &'static str, summary: &'static str, handler: MethodRouter<Arc<Machine>>) -> Op {
        Op::new("delete", path, summary, handler)
    }

    fn says<T: JsonSchema>(mut self, status: u16) -> Op {
        self.answers.push((status, Media::Json(look::<T>)));
        self
    }

    fn is(mut self, status: u16, kind: &'static str) -> Op {
        self.answers.push((status, Media::Kind(kind)));
        self
    }

    fn takes<T: JsonSchema>(mut self, required: bool) -> Op {
        self.body = Some(Input { look: look::<T>, required });
        self.refusals.push(ApiError::BadBody(""));
        if required {
            self.refusals.push(ApiError::NotJson);
        }
        self
    }

    fn query(mut self, name: &'static str, about: &'static str, look: Look) -> Op {
        self.query.push(Param { name, about, look });
        self.refusals.push(ApiError::BadQuery(""));
        self
    }

    fn header(mut self, name: &'static str, about: &'static str, look: Look) -> Op {
        self.headers.push(Param { name, about, look });
        self
    }

    fn refuses(mut self, refusals: impl IntoIterator<Item = ApiError>) -> Op {
        self.refusals.extend(refusals);
        self
    }

    /// Returns the operation id, for example `get_v1_runs_run_events`.
    pub fn id(&self) -> String {
        let words = self.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        words.fold(self.method.to_owned(), |id, word| format!("{id}_{word}"))
    }
}

/// The request was accepted; the events show its effect.
#[derive(JsonSchema, Serialize)]
#[allow(dead_code, reason = "only describes a response that is written by hand")]
struct Taken {
    ok: bool,
}

fn limit(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "minimum": 1, "maximum": 1000, "default": 200})
}

fn text(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string"})
}

fn number(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "minimum": 0, "maximum": u64::MAX})
}

fn truth(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "boolean"})
}

fn range(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "examples": ["bytes=0-1023", "bytes=1-", "bytes=-500"]})
}

fn iteration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "minimum": 1, "maximum": u64::MAX})
}

fn stream(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", "examples": ["stdout", "stderr", "prompt", "readable", "diff"]})
}

fn agent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 200})
}

/// Returns the schema of a path parameter.
pub(crate) fn path_look(name: &str) -> Look {
    match name {
        "run" => look::<RunId>,
        "node" => look::<NodeName>,
        "iteration" => iteration,
        "stream" => stream,
        _ => agent,
    }
}

const SSE: &str = "text/event-stream";

pub(crate) fn table() -> Vec<Op> {
    let mut all = vec![
        Op::get(
            "/v1/runs",
            "List the runs of this machine, newest first, including dead and ended ones",
            get(runs),
        )
        .query("project", "list only the runs of this work tree", text)
        .query("limit", "the maximum number of runs", limit)
        .says::<RunsAnswer>(200),
        Op::get("/v1/machines", "List the other machines whose runs are shown", get(machines))
            .says::<MachinesAnswer>(200),
        Op::get("/v1/runs/{run}", "Show the status of a run", get(run)).says::<Status>(200),
        Op::get(
            "/v1/runs/{run}/orchestrator",
            "Show the status as an orchestrator document",
            get(orchestrator),
        )
        .says::<OrchestratorStatus>(200),
        Op::get(
            "/v1/runs/{run}/events",
            "Return the lines of the journal, or a stream of events",
            get(events),
        )
        .query("after", "only events with a greater sequence number", number)
        .query("observed", "include the frequent `observed` events", truth)
        .query("sentences", "add the field `sentence`, the event in words, to each event", truth)
        .header("Last-Event-ID", "for streams: like `after`, and takes precedence over it", number)
        .is(200, "application/x-ndjson")
        .is(200, SSE)
        .refuses([ApiError::BadLastEventId, ApiError::TooManyStreams, ApiError::NoWatch]),
        Op::get(
            "/v1/runs/{run}/output/{node}/{iteration}",
            "List the output files of an iteration",
            get(outputs),
        )
        .says::<Outputs>(200)
        .refuses([ApiError::NoSuchOutput]),
        Op::get(
            "/v1/runs/{run}/output/{node}/{iteration}/{stream}",
            "Return the output of an agent, its prompt, or what the iteration changed",
            get(output),
        )
        .header("Range", "a byte range; a response has at most 8 MiB", range)
        .says::<Readable>(200)
        .is(200, "text/plain")
        .is(206, "text/plain")
        .refuses([ApiError::NoSuchOutput, ApiError::BadRange(0)]),
    ];
    all.extend(steering());
    all.extend(external());
    all.push(
        Op::get("/metrics", "Return metrics of the runs for Prometheus", get(metrics)).is(200, "text/plain"),
    );
    all.push(Op::get("/openapi.json", "Return this document", get(openapi)).says::<serde_json::Value>(200));
    all
}

fn steering() -> Vec<Op> {
    let op = |path: &'static str, summary| {
        let what = path.rsplit('/').next().unwrap_or_default();
        let steer = async move |machine: MachineState, run: RunPath, request: Request<Body>| {
            steer::steer(machine, run, request, what).await
        };
        let refusals = [ApiError::NotRunning(String::new()), ApiError::NoAnswer, ApiError::Busy];
        Op::post(path, summary, post(steer)).refuses(refusals)
    };
    vec![
        op("/v1/runs/{run}/wake", "End the wait now, or continue a sleeping run")
            .says::<steer::Woken>(202)
            .refuses([ApiError::CannotContinue(String::new())]),
        op("/v1/runs/{run}/pause", "Pause a run after the current iteration").says::<Taken>(202),
        op("/v1/runs/{run}/resume", "Resume a paused run").says::<Taken>(202),
        op("/v1/runs/{run}/stop", "Stop a run after the current iteration")
            .says::<Taken>(202)
            .takes::<Stop>(false),
        op("/v1/runs/{run}/tell", "Send a message to the agent with the next prompt")
            .says::<Taken>(202)
            .takes::<MessageBody>(true)
            .refuses([ApiError::EmptyText]),
        op("/v1/runs/{run}/limit", "Call no agent until a time, as if its service had refused")
            .says::<Taken>(202)
            .takes::<LimitBody>(true),
    ]
}

fn external() -> Vec<Op> {
    vec![
        Op::get("/v1/agents", "List the external agents by name", get(agents::list))
            .says::<AgentsAnswer>(200),
        Op::post("/v1/agents", "Register an external agent", post(agents::register))
            .takes::<Register>(true)
            .says::<Taken>(201)
            .refuses([ApiError::AgentTaken, ApiError::TooManyAgents]),
        Op::get(
            "/v1/agents/hung",
            "List the agents that exceed a limit, or stream each one when it starts to",
            get(agents::hung),
        )
        .says::<HungAnswer>(200)
        .is(200, SSE)
        .refuses([ApiError::TooManyStreams]),
        Op::post(
            "/v1/agents/{id}/activity",
            "Report activity; a growing number of messages counts as work",
            post(agents::activity),
        )
        .takes::<Activity>(false)
        .says::<Taken>(202),
        Op::post("/v1/agents/{id}/error", "Report an error", post(agents::error))
            .takes::<AgentError>(true)
            .says::<ErrorTaken>(202),
        Op::post("/v1/agents/{id}/done", "Report that the agent has ended", post(agents::done))
            .says::<Taken>(202),
        Op::get("/v1/agents/{id}", "Show one external agent, ended or not", get(agents::agent))
            .says::<AgentStatus>(200),
        Op::delete(
            "/v1/agents/{id}",
            "End an external agent and return the reason",
            delete(agents::clean_up),
        )
        .says::<AgentStatus>(200),
    ]
}
