//! Claude Code, `--output-format stream-json`.
//!
//! Key order is not stable, so blocks are read before it is known who speaks; signs that turn out to be a
//! subagent's or the user's are taken back at the end of the line. `result` may come several times and is
//! not the end of the session.

use crate::json::{Json, Raw};
use crate::lines::Line;
use crate::reader::{MAX_ERROR, MAX_NAME};
use dogwatch_core::sign::{AgentResult, Sign};

/// So many running subagents are remembered by their task id.
const MAX_AGENTS: usize = 64;

#[derive(Debug, Default)]
pub struct Claude {
    /// Tokens of all results so far, for versions that do not sum up themselves.
    tokens: u64,
    /// Tasks that are subagents and have not ended.
    agents: Vec<String>,
}

/// The fields of a line that matter, whatever its type.
#[derive(Default)]
struct Event<'a> {
    kind: Raw<'a>,
    subtype: Raw<'a>,
    /// It comes from inside a subagent.
    nested: bool,
    /// The text is the CLI's own report of a failed request.
    failed: bool,
    text: Raw<'a>,
    delta: Raw<'a>,
    task: Task<'a>,
    outcome: Outcome<'a>,
}

#[derive(Default)]
struct Task<'a> {
    id: Raw<'a>,
    kind: Raw<'a>,
}

#[derive(Default)]
struct Outcome<'a> {
    result: Option<Raw<'a>>,
    is_error: bool,
    errors: Option<Raw<'a>>,
    status: Option<u16>,
    cost_usd: Option<f64>,
    /// Of this result, and of the whole process.
    tokens: Option<u64>,
    total_tokens: Option<u64>,
}

impl Claude {
    pub fn read(&mut self, line: Line<'_>, signs: &mut Vec<Sign>) {
        let mark = signs.len();
        let mut event = Event::default();
        let whole = Json::object(line.bytes, |key, json| field(&mut event, key, json, signs));
        if !whole && !line.cut {
            return signs.truncate(mark);
        }
        match event.kind.0 {
            b"assistant" => assistant(&event, mark, signs),
            b"user" => user(&event, mark, signs),
            kind => {
                signs.truncate(mark);
                self.other(kind, &event, whole, signs);
            }
        }
    }

    fn other(&mut self, kind: &[u8], event: &Event<'_>, whole: bool, signs: &mut Vec<Sign>) {
        match kind {
            b"result" if whole => self.result(event, signs),
            b"system" => signs.push(self.system(event)),
            b"stream_event" if event.nested => signs.push(Sign::Subagent),
            b"stream_event" if !event.delta.is_blank() => signs.push(Sign::Text),
            b"stream_event" | b"tool_progress" | b"command_lifecycle" | b"rate_limit_event"
            | b"keep_alive" | b"control_request" | b"control_response" | b"tool_use_summary"
            | b"auth_status" => {
                signs.push(Sign::Keepalive);
            }
            _ => signs.push(Sign::Unknown),
        }
    }

    fn system(&mut self, event: &Event<'_>) -> Sign {
        match event.subtype.0 {
            b"task_started" if event.task.kind.0 == b"local_agent" => {
                self.agents.truncate(MAX_AGENTS - 1);
                self.agents.push(event.task.id.decode_head(MAX_NAME));
                Sign::Subagent
            }
            b"task_notification" if self.agent_ended(event.task.id) => Sign::Subagent,
            b"init"
            | b"status"
            | b"api_retry"
            | b"task_started"
            | b"task_progress"
            | b"task_updated"
            | b"task_notification"
            | b"background_tasks_changed"
            | b"session_state_changed"
            | b"thinking_tokens"
            | b"permission_denied"
            | b"ui_invalidate"
            | b"compact_boundary"
            | b"hook_started"
            | b"hook_progress"
            | b"hook_response"
            | b"files_persisted"
            | b"local_command_output" => Sign::Keepalive,
            _ => Sign::Unknown,
        }
    }

    fn agent_ended(&mut self, task: Raw<'_>) -> bool {
        let id = task.decode_head(MAX_NAME);
        let known = self.agents.iter().position(|agent| *agent == id);
        known.map(|at| self.agents.swap_remove(at)).is_some()
    }

    fn result(&mut self, event: &Event<'_>, signs: &mut Vec<Sign>) {
        let outcome = &event.outcome;
        self.tokens += outcome.tokens.unwrap_or(0);
        let tokens = outcome.total_tokens.or(outcome.tokens.map(|_| self.tokens));
        if tokens.is_some() || outcome.cost_usd.is_some() {
            signs.push(Sign::Usage { tokens, cost_usd: outcome.cost_usd });
        }
        let is_error = outcome.is_error || event.subtype.0.starts_with(b"error");
        // A result that is no string says nothing, but a failure is one even without a word.
        let text = match (outcome.result, is_error) {
            (Some(text), _) => text.decode(),
            (None, true) => outcome.errors.map(|e| e.decode_head(MAX_ERROR)).unwrap_or_default(),
            (None, false) => return,
        };
        let result = AgentResult { api_status: outcome.status, ..AgentResult::new(&text, is_error) };
        signs.push(Sign::Result(result));
    }
}

/// What the main agent said and called; of a subagent only that it did something.
fn assistant(event: &Event<'_>, mark: usize, signs: &mut Vec<Sign>) {
    if event.nested {
        signs.truncate(mark);
        return signs.push(Sign::Subagent);
    }
    if event.failed {
        signs.truncate(mark);
        return signs.push(Sign::Error { text: event.text.decode_head(MAX_ERROR) });
    }
    if signs.len() == mark {
        signs.push(Sign::Keepalive);
    }
}

/// Tool results come in the user's name; all else in it is an echo.
fn user(event: &Event<'_>, mark: usize, signs: &mut Vec<Sign>) {
    if event.nested {
        signs.truncate(mark);
        return signs.push(Sign::Subagent);
    }
    let mut at = mark;
    while at < signs.len() {
        if matches!(signs[at], Sign::ToolEnded { .. }) { at += 1 } else { drop(signs.remove(at)) }
    }
    if signs.len() == mark {
        signs.push(Sign::Keepalive);
    }
}

fn field<'a>(event: &mut Event<'a>, key: &[u8], json: &mut Json<'a>, signs: &mut Vec<Sign>) {
    match key {
        b"type" => event.kind = json.text().unwrap_or_default(),
        b"subtype" => event.subtype = json.text().unwrap_or_default(),
        b"parent_tool_use_id" => event.nested = !json.is_null(),
        b"message" => json.fields(|key, json| {
            if key == b"content" {
                json.items(|json| block(event, json, signs));
            }
        }),
        b"event" => json.fields(|key, json| {
            if key == b"delta" {
                json.fields(|key, json| delta(event, key, json));
            }
        }),
        b"error" => event.failed |= !json.is_null(),
        b"is_api_error_message" => event.failed |= json.is_true(),
        b"task_id" => event.task.id = json.text().unwrap_or_default(),
        b"task_type" => event.task.kind = json.text().unwrap_or_default(),
        _ => outcome(&mut event.outcome, key, json),
    }
}

/// One content block, of whichever kind.
fn block<'a>(event: &mut Event<'a>, json: &mut Json<'a>, signs: &mut Vec<Sign>) {
    let (mut kind, mut text, mut id, mut name) = (Raw(b""), Raw(b""), Raw(b""), Raw(b""));
    let mut is_error = false;
    json.fields(|key, json| match key {
        b"type" => kind = json.text().unwrap_or_default(),
        b"text" | b"thinking" => text = json.text().unwrap_or_default(),
        b"id" | b"tool_use_id" => id = json.text().unwrap_or_default(),
        b"name" => name = json.text().unwrap_or_default(),
        b"is_error" => is_error = json.is_true(),
        _ => {}
    });
    match kind.0 {
        b"text" if !text.is_blank() => {
            event.text = text;
            signs.push(Sign::Message);
        }
        b"thinking" if !text.is_blank() => signs.push(Sign::Text),
        b"tool_use" | b"server_tool_use" | b"mcp_tool_use" => {
            signs.push(Sign::ToolStarted { id: id.decode_head(MAX_NAME), name: name.decode_head(MAX_NAME) });
        }
        // `tool_result`, and the kinds that the API's own tools have.
        kind if kind.ends_with(b"tool_result") => {
            signs.push(Sign::ToolEnded { id: id.decode_head(MAX_NAME), ok: !is_error });
        }
        _ => {}
    }
}

/// A piece of text, thinking or tool input, printed with `--include-partial-messages`.
fn delta<'a>(event: &mut Event<'a>, key: &[u8], json: &mut Json<'a>) {
    if let b"text" | b"thinking" | b"partial_json" = key {
        event.delta = json.text().unwrap_or_default();
    }
}

fn outcome<'a>(outcome: &mut Outcome<'a>, key: &[u8], json: &mut Json<'a>) {
    match key {
        b"result" => outcome.result = json.text(),
        b"is_error" => outcome.is_error = json.is_true(),
        b"errors" => json.items(|json| outcome.errors = outcome.errors.or(json.text())),
        b"api_error_status" => outcome.status = json.status(),
        b"total_cost_usd" => outcome.cost_usd = json.number(),
        b"usage" => outcome.tokens = tokens(json),
        // Per model, and of the whole process so far.
        b"modelUsage" => json.fields(|_, json| {
            let sum = tokens(json).unwrap_or(0) + outcome.total_tokens.unwrap_or(0);
            outcome.total_tokens = Some(sum);
        }),
        _ => {}
    }
}

fn tokens(json: &mut Json<'_>) -> Option<u64> {
    let mut sum = None;
    json.fields(|key, json| {
        if let b"input_tokens"
        | b"output_tokens"
        | b"cache_read_input_tokens"
        | b"cache_creation_input_tokens"
        | b"inputTokens"
        | b"outputTokens"
        | b"cacheReadInputTokens"
        | b"cacheCreationInputTokens" = key
        {
            sum = Some(u64::saturating_add(sum.unwrap_or(0), json.whole().unwrap_or(0)));
        }
    });
    sum
}
