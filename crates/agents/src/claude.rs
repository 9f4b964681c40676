//! Claude Code, `--output-format stream-json`.
//!
//! The order of keys is not stable, so blocks are read before the speaker is known; signs that turn out to belong to a
//! subagent or the user are removed at the end of the line. `result` may appear several times and does not end the
//! session.

use crate::json::{Json, Raw};
use crate::limits;
use crate::lines::Line;
use crate::reader::{MAX_ERROR, MAX_NAME, identified};
use crate::tools::{Args, ended, started};
use dogwatch_core::record::windows::{Percent, Window, WindowName};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::watch::sign::{AgentResult, ResetsAt, Sign};
use tasks::{Task, Tasks};

mod tasks;

/// Reads the stream of Claude Code.
#[derive(Debug, Default)]
pub struct Claude {
    /// The running total of tokens, for versions that do not report a total.
    tokens: u64,
    session: String,
    tasks: Tasks,
    /// The reset time that the service last reported.
    resets_at: Option<ResetsAt>,
}

/// The relevant fields of a line of any type.
#[derive(Default)]
struct Event<'a> {
    kind: Raw<'a>,
    subtype: Raw<'a>,
    session: Raw<'a>,
    version: Raw<'a>,
    model: Raw<'a>,
    /// The call and the subagent that the line comes from.
    parent: Option<Raw<'a>>,
    agent: Raw<'a>,
    /// The text is the CLI's own report of a failed request.
    failed: bool,
    text: Raw<'a>,
    delta: Raw<'a>,
    message: Raw<'a>,
    task: Task<'a>,
    retry: Retry,
    limit: RateLimit<'a>,
    outcome: Outcome<'a>,
}

#[derive(Default)]
struct Retry {
    status: Option<u16>,
    delay_ms: Option<u64>,
}

#[derive(Default)]
struct RateLimit<'a> {
    status: Raw<'a>,
    resets_at: Option<u64>,
    /// The window that the fields above are about, and how much of it is used.
    kind: Raw<'a>,
    utilization: Option<f64>,
    windows: Vec<Window>,
}

#[derive(Default)]
struct Outcome<'a> {
    result: Option<Raw<'a>>,
    is_error: bool,
    errors: Option<Raw<'a>>,
    status: Option<u16>,
    cost_usd: Option<f64>,
    /// The tokens of this result, and those of the whole process.
    tokens: Option<u64>,
    total_tokens: Option<u64>,
}

impl Claude {
    /// Reads a line of stdout.
    pub fn read(&mut self, line: Line<'_>, signs: &mut Vec<Sign>) {
        let mark = signs.len();
        let mut event = Event::default();
        let whole = Json::object(line.bytes, |key, json| field(&mut event, key, json, signs));
        if !whole && !line.cut {
            return signs.truncate(mark);
        }
        match event.kind.0 {
            b"assistant" | b"user" => self.spoken(&event, mark, signs),
            kind => {
                signs.truncate(mark);
                self.other(kind, &event, whole, signs);
            }
        }
    }

    /// Handles messages, tool calls and tool results of the main agent. For a subagent, reports only that it did
    /// something.
    fn spoken(&mut self, event: &Event<'_>, mark: usize, signs: &mut Vec<Sign>) {
        if let Some(parent) = event.parent {
            let did_something = self.tasks.is_more_than_heartbeats(&mut signs[mark..]);
            signs.truncate(mark);
            if did_something {
                self.tasks.did_something(event.agent, parent, signs);
            }
        } else if event.kind.0 == b"user" {
            user(mark, signs);
            self.tasks.calls_ended(mark, signs);
        } else if event.failed {
            signs.truncate(mark);
            signs.push(Sign::error(&event.text.decode_head(MAX_ERROR)));
        }
        if signs.len() == mark {
            signs.push(Sign::Keepalive);
        }
    }

    fn other(&mut self, kind: &[u8], event: &Event<'_>, whole: bool, signs: &mut Vec<Sign>) {
        match kind {
            b"result" if whole => self.result(event, signs),
            b"system" => self.system(event, signs),
            b"stream_event" if event.delta.is_blank() => signs.push(Sign::Keepalive),
            b"stream_event" => match event.parent {
                Some(parent) => self.tasks.did_something(event.agent, parent, signs),
                None => signs.push(Sign::Text),
            },
            b"rate_limit_event" => self.rate_limit(&event.limit, signs),
            b"control_request" => {
                signs.push(Sign::NeedsHuman { text: "the agent asks for permission".into() })
            }
            b"tool_progress" | b"command_lifecycle" | b"keep_alive" | b"control_response"
            | b"tool_use_summary" | b"auth_status" => signs.push(Sign::Keepalive),
            _ => signs.push(Sign::Unknown),
        }
    }

    fn system(&mut self, event: &Event<'_>, signs: &mut Vec<Sign>) {
        let mark = signs.len();
        match event.subtype.0 {
            b"init" => self.init(event, signs),
            b"api_retry" => signs.push(Sign::Retrying {
                status: event.retry.status,
                delay: event.retry.delay_ms.map(Dur::from_millis),
            }),
            b"permission_denied" => {
                signs.push(Sign::NeedsHuman { text: event.message.decode_head(MAX_ERROR) });
            }
            b"task_started"
            | b"task_progress"
            | b"task_updated"
            | b"task_notification"
            | b"background_tasks_changed" => self.tasks.changed(event.subtype.0, &event.task, signs),
            b"status"
            | b"session_state_changed"
            | b"thinking_tokens"
            | b"ui_invalidate"
            | b"compact_boundary"
            | b"hook_started"
            | b"hook_progress"
            | b"hook_response"
            | b"files_persisted"
            | b"local_command_output" => {}
            _ => signs.push(Sign::Unknown),
        }
        if signs.len() == mark {
            signs.push(Sign::Keepalive);
        }
    }

    /// Handles the init line, which is printed once per turn, not once per process.
    fn init(&mut self, event: &Event<'_>, signs: &mut Vec<Sign>) {
        let id = event.session.decode_head(MAX_NAME);
        if !id.is_empty() && id != self.session {
            self.session.clone_from(&id);
            signs.push(Sign::SessionId { id });
            signs.extend(identified(event.version, event.model));
        }
    }

    /// Handles a rate limit line. It accompanies every answer and mostly reports no limit. The result ends the session,
    /// but only this line contains the reset time.
    fn rate_limit(&mut self, limit: &RateLimit<'_>, signs: &mut Vec<Sign>) {
        self.resets_at = match limit.status.0 {
            b"rejected" => limit.resets_at.and_then(ResetsAt::from_epoch),
            _ => None,
        };
        let mut windows = limit.windows.clone();
        if windows.is_empty() {
            windows.extend(window(limit.kind.0, limit.utilization, limit.resets_at));
        }
        signs.push(match windows.is_empty() {
            true => Sign::Keepalive,
            false => Sign::Windows { seen_at: None, windows },
        });
    }

    fn result(&mut self, event: &Event<'_>, signs: &mut Vec<Sign>) {
        let outcome = &event.outcome;
        self.tokens = self.tokens.saturating_add(outcome.tokens.unwrap_or(0));
        let tokens = outcome.total_tokens.or(outcome.tokens.map(|_| self.tokens));
        if tokens.is_some() || outcome.cost_usd.is_some() {
            signs.push(Sign::Usage { tokens, cost_usd: outcome.cost_usd });
        }
        let is_error = outcome.is_error || event.subtype.0.starts_with(b"error");
        // A result that is not a string is ignored, but an error counts even without a text.
        let text = match (outcome.result, is_error) {
            (Some(text), _) => text.decode(),
            (None, true) => outcome.errors.map(|e| e.decode_head(MAX_ERROR)).unwrap_or_default(),
            (None, false) => return,
        };
        if is_error {
            signs.extend(limits::refusal(outcome.status, &text, self.resets_at.clone()));
        }
        let result = AgentResult { api_status: outcome.status, ..AgentResult::new(&text, is_error) };
        signs.push(Sign::Result(result));
    }
}

/// Returns a window by its name. One that is not known, or without a figure, is ignored.
fn window(name: &[u8], utilization: Option<f64>, resets_at: Option<u64>) -> Option<Window> {
    let known = WindowName::ALL.iter().find(|known| known.as_str().as_bytes() == name)?;
    let resets_at = match resets_at.and_then(ResetsAt::from_epoch) {
        Some(ResetsAt::At(at)) => Some(at),
        Some(ResetsAt::In(_) | ResetsAt::Clock(_)) | None => None,
    };
    Some(Window { window: *known, used_percent: Percent::of_fraction(utilization?)?, resets_at })
}

/// Keeps the tool results of a user line; everything else in it is an echo.
fn user(mark: usize, signs: &mut Vec<Sign>) {
    let mut at = mark;
    while at < signs.len() {
        if matches!(signs[at], Sign::ToolEnded { .. }) { at += 1 } else { drop(signs.remove(at)) }
    }
}

fn field<'a>(event: &mut Event<'a>, key: &[u8], json: &mut Json<'a>, signs: &mut Vec<Sign>) {
    match key {
        b"type" => event.kind = json.text().unwrap_or_default(),
        b"subtype" => event.subtype = json.text().unwrap_or_default(),
        b"session_id" => event.session = json.text().unwrap_or_default(),
        b"claude_code_version" => event.version = json.text().unwrap_or_default(),
        b"model" => event.model = json.text().unwrap_or_default(),
        b"parent_tool_use_id" => event.parent = (!json.is_null()).then(|| json.text().unwrap_or_default()),
        b"agent_id" => event.agent = json.text().unwrap_or_default(),
        b"message" if json.kind() == Some(b'"') => event.message = json.text().unwrap_or_default(),
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
        b"error_status" => event.retry.status = json.status(),
        b"retry_delay_ms" => event.retry.delay_ms = json.number().map(|ms| ms.clamp(0.0, 1e12) as u64),
        b"rate_limit_info" => json.fields(|key, json| match key {
            b"status" => event.limit.status = json.text().unwrap_or_default(),
            b"resetsAt" => event.limit.resets_at = json.whole(),
            b"rateLimitType" => event.limit.kind = json.text().unwrap_or_default(),
            b"utilization" => event.limit.utilization = json.number(),
            b"unifiedWindows" => json.fields(|name, json| {
                let (mut utilization, mut resets_at) = (None, None);
                json.fields(|key, json| match key {
                    b"utilization" => utilization = json.number(),
                    b"resetsAt" => resets_at = json.whole(),
                    _ => {}
                });
                event.limit.windows.extend(window(name, utilization, resets_at));
            }),
            _ => {}
        }),
        b"usage" => usage(event, json),
        b"task_id" | b"task_type" | b"is_backgrounded" | b"patch" | b"tasks" => event.task.field(key, json),
        _ => outcome(&mut event.outcome, key, json),
    }
}

/// Reads the usage of a result or of a subagent's task.
fn usage<'a>(event: &mut Event<'a>, json: &mut Json<'a>) {
    event.outcome.tokens = tokens(json, |key, json| event.task.usage(key, json));
}

/// Reads one content block of any kind.
fn block<'a>(event: &mut Event<'a>, json: &mut Json<'a>, signs: &mut Vec<Sign>) {
    let (mut kind, mut text, mut id, mut name) = (Raw(b""), Raw(b""), Raw(b""), Raw(b""));
    let (mut is_error, mut args, mut content) = (false, Args::default(), &b""[..]);
    json.fields(|key, json| match key {
        b"type" => kind = json.text().unwrap_or_default(),
        b"text" | b"thinking" => text = json.text().unwrap_or_default(),
        b"id" | b"tool_use_id" => id = json.text().unwrap_or_default(),
        b"name" => name = json.text().unwrap_or_default(),
        b"is_error" => is_error = json.is_true(),
        b"input" => args = Args::of(json),
        b"content" => content = json.span(),
        _ => {}
    });
    match kind.0 {
        b"text" if !text.is_blank() => {
            event.text = text;
            signs.push(Sign::Message);
        }
        b"thinking" if !text.is_blank() => signs.push(Sign::Text),
        b"tool_use" | b"server_tool_use" | b"mcp_tool_use" => {
            signs.push(started(ReaderName::Claude, id, name.decode_head(MAX_NAME), args));
        }
        // `tool_result`, and the result kinds of the API's own tools.
        kind if kind.ends_with(b"tool_result") => {
            signs.push(ended(ReaderName::Claude, id, !is_error, content, None));
        }
        _ => {}
    }
}

/// Reads a piece of text, thinking or tool input, printed with `--include-partial-messages`.
fn delta<'a>(event: &mut Event<'a>, key: &[u8], json: &mut Json<'a>) {
    match key {
        b"text" | b"thinking" => event.delta = json.text().unwrap_or_default(),
        // Empty arguments are not text: a heartbeat has none.
        b"partial_json" => event.delta = json.text().filter(|piece| piece.0 != b"{}").unwrap_or_default(),
        _ => {}
    }
}

fn outcome<'a>(outcome: &mut Outcome<'a>, key: &[u8], json: &mut Json<'a>) {
    match key {
        b"result" => outcome.result = json.text(),
        b"is_error" => outcome.is_error = json.is_true(),
        b"errors" => json.items(|json| {
            let error = json.text().filter(|error| !is_diagnostic(error.0));
            outcome.errors = outcome.errors.or(error);
        }),
        b"api_error_status" => outcome.status = json.status(),
        b"total_cost_usd" => outcome.cost_usd = json.number(),
        // One entry per model, each a running total of the process.
        b"modelUsage" => json.fields(|_, json| {
            let sum = tokens(json, |_, _| {}).unwrap_or(0);
            outcome.total_tokens = Some(sum.saturating_add(outcome.total_tokens.unwrap_or(0)));
        }),
        _ => {}
    }
}

/// Returns whether an error is a note of Claude Code about itself, such as `[ede_diagnostic] result_type=user`. After an
/// interrupt it is the only error, and it says nothing to the user.
pub(crate) fn is_diagnostic(error: &[u8]) -> bool {
    let name = error.strip_prefix(b"[").and_then(|rest| rest.split(|byte| *byte == b']').next());
    name.is_some_and(|name| name.ends_with(b"_diagnostic"))
}

fn tokens<'a>(json: &mut Json<'a>, mut other: impl FnMut(&[u8], &mut Json<'a>)) -> Option<u64> {
    let mut sum = None;
    json.fields(|key, json| match key {
        b"input_tokens"
        | b"output_tokens"
        | b"cache_read_input_tokens"
        | b"cache_creation_input_tokens"
        | b"inputTokens"
        | b"outputTokens"
        | b"cacheReadInputTokens"
        | b"cacheCreationInputTokens" => {
            sum = Some(u64::saturating_add(sum.unwrap_or(0), json.whole().unwrap_or(0)));
        }
        _ => other(key, json),
    });
    sum
}
