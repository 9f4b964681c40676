//! Codex: `sessions/<year>/<month>/<day>/rollout-<time>-<thread>.jsonl`. Each record has a `type` and a `payload`. The
//! model's messages and calls are `response_item`s; turns begin and end with `event_msg`s.

use super::{About, Record, failed, unknown};
use crate::json::{Json, Raw};
use crate::limits::status_in;
use crate::reader::{MAX_ERROR, MAX_NAME};
use crate::tools::{Args, COLLAB, ended_with_text, started};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::time::moment::Wall;
use dogwatch_core::watch::sign::Sign;
use std::borrow::Cow;

/// The number of leading lines of a command's output that may contain its exit code.
const HEADER_LINES: usize = 8;

/// The beginnings of results that mean a failed call.
const FAILURES: [&str; 8] = [
    "exec_command failed",
    "write_stdin failed",
    "apply_patch verification failed",
    "execution error",
    "failed to parse",
    "tool call error",
    "unsupported call",
    "aborted by user",
];

/// Reads Codex rollouts.
#[derive(Debug, Default)]
pub struct Codex {
    turn: Turn,
    /// Calls that the stream does not report as tools.
    silent: Vec<Silent>,
    /// Commands that keep running after their call has returned to the model: the process session and the call. The
    /// stream reports their end when the process exits.
    running: Vec<(String, String)>,
    unnamed: u64,
    /// The last item is a message of the agent.
    answered: bool,
    /// The description of the session in the records.
    pub about: About,
}

/// A call in flight that the stream does not report: an update of the plan, or a poll of a running command.
#[derive(Debug)]
struct Silent {
    id: String,
    /// The call whose command this call polls.
    polls: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    #[default]
    None,
    /// The turn began with `task_started`.
    Task,
    /// The turn began with just the user's message, as in older versions.
    Message,
    Ended(&'static str),
}

/// The most silent calls in flight, and the most running commands, that are remembered.
const MAX_SILENT: usize = 64;

/// The relevant fields of a record.
#[derive(Default)]
struct Row<'a> {
    kind: Raw<'a>,
    at: Option<Wall>,
    payload: Raw<'a>,
    role: Raw<'a>,
    dir: Raw<'a>,
    version: Raw<'a>,
    model: Raw<'a>,
    id: Raw<'a>,
    call: Raw<'a>,
    name: Raw<'a>,
    namespace: Raw<'a>,
    /// The arguments: JSON in a string, or a plain value.
    arguments: Option<Raw<'a>>,
    input: &'a [u8],
    output: &'a [u8],
    message: Raw<'a>,
    failed: bool,
    said: bool,
}

impl Codex {
    /// Reads a record; see [`super::Transcript::read`].
    pub fn read(&mut self, line: &[u8], signs: &mut Vec<Sign>) -> (Option<Wall>, Record) {
        let mut row = Row::default();
        if !Json::object(line, |key, json| field(&mut row, key, json)) {
            return (None, Record::Unknown("not JSON".to_owned()));
        }
        let record = match row.kind.0 {
            b"response_item" => self.item(&row, signs),
            b"event_msg" => self.event(&row, signs),
            b"session_meta" => {
                self.about.take(row.id, row.dir, row.version, row.model);
                Record::Nothing
            }
            b"turn_context" => {
                self.about.take(Raw::default(), row.dir, Raw::default(), row.model);
                Record::Nothing
            }
            b"compacted" | b"world_state" | b"token_usage_record" => Record::Nothing,
            kind => unknown(kind),
        };
        (row.at, record)
    }

    /// Returns the outcome of the turn; see [`super::Transcript::outcome`].
    pub fn outcome(&self, followed: bool) -> Option<&'static str> {
        match self.turn {
            Turn::Ended(word) => Some(word),
            // Older versions do not record the end of a turn.
            Turn::Message if followed && self.answered => Some("completed"),
            Turn::None | Turn::Task | Turn::Message => None,
        }
    }

    fn event(&mut self, row: &Row<'_>, signs: &mut Vec<Sign>) -> Record {
        match row.payload.0 {
            b"task_started" | b"turn_started" => self.begin(Turn::Task),
            // The user may add to the prompt during a turn.
            b"user_message" if self.turn == Turn::Task => Record::Nothing,
            b"user_message" => self.begin(Turn::Message),
            b"task_complete" | b"turn_complete" if !row.failed => self.end("completed"),
            b"turn_aborted" => self.end("interrupted"),
            b"error" | b"task_complete" | b"turn_complete" => {
                let text = row.message.decode_head(MAX_ERROR);
                signs.push(Sign::error(&text));
                let outcome = failed(&text, status_in(&text), signs);
                self.end(outcome)
            }
            b"stream_error" => {
                let status = status_in(&row.message.decode_head(MAX_ERROR));
                signs.push(Sign::Retrying { status, delay: None });
                Record::Agent
            }
            b"exec_approval_request"
            | b"apply_patch_approval_request"
            | b"request_permissions"
            | b"request_user_input"
            | b"elicitation_request" => {
                signs.push(Sign::NeedsHuman { text: "the agent asks for permission".to_owned() });
                Record::Agent
            }
            kind if is_bookkeeping(kind) => Record::Nothing,
            kind => unknown(&[b"event_msg/", kind].concat()),
        }
    }

    fn begin(&mut self, turn: Turn) -> Record {
        *self = Codex { turn, ..Codex::default() };
        Record::Prompt
    }

    fn end(&mut self, outcome: &'static str) -> Record {
        self.turn = Turn::Ended(outcome);
        Record::Agent
    }

    fn item(&mut self, row: &Row<'_>, signs: &mut Vec<Sign>) -> Record {
        self.answered = row.payload.0 == b"message" && row.role.0 == b"assistant";
        match row.payload.0 {
            b"message" if self.answered => signs.push(match row.said {
                true => Sign::Message,
                false => Sign::Keepalive,
            }),
            b"message" | b"ghost_snapshot" | b"compaction" | b"compaction_summary" | b"other" => {
                return Record::Nothing;
            }
            b"reasoning" if row.said => signs.push(Sign::Text),
            b"reasoning" => signs.push(Sign::Keepalive),
            b"function_call" | b"custom_tool_call" | b"tool_search_call" | b"local_shell_call" => {
                self.started(row, signs);
            }
            b"function_call_output" | b"custom_tool_call_output" | b"tool_search_output" => {
                self.ended(row, signs);
            }
            // These calls are recorded when they have ended.
            b"web_search_call" | b"image_generation_call" => self.at_once(row, signs),
            kind => return unknown(&[b"response_item/", kind].concat()),
        }
        Record::Agent
    }

    fn started(&mut self, row: &Row<'_>, signs: &mut Vec<Sign>) {
        let polls = match row.name.0 {
            b"update_plan" => None,
            b"write_stdin" => {
                let session = polled(row).unwrap_or_default();
                let call = self.running.iter().find(|(running, _)| *running == session);
                match call {
                    Some((_, call)) => Some(call.clone()),
                    None => return signs.push(call_started(row.call, row)),
                }
            }
            _ => return signs.push(call_started(row.call, row)),
        };
        push_bounded(&mut self.silent, Silent { id: row.call.decode_head(MAX_NAME), polls });
        signs.push(Sign::Keepalive);
    }

    fn ended(&mut self, row: &Row<'_>, signs: &mut Vec<Sign>) {
        let id = row.call.decode_head(MAX_NAME);
        let Output { text, code, success, running } = output(row.output);
        let silent = self.silent.iter().position(|silent| silent.id == id);
        let call = match silent.map(|at| self.silent.remove(at)) {
            None => id,
            Some(Silent { polls: Some(call), .. }) => call,
            Some(Silent { polls: None, .. }) => return signs.push(Sign::Keepalive),
        };
        self.running.retain(|(_, started_by)| *started_by != call);
        if let Some(session) = running {
            push_bounded(&mut self.running, (session, call));
            return signs.push(Sign::Keepalive);
        }
        let failed = code.is_some_and(|code| code != 0) || FAILURES.iter().any(|f| text.starts_with(f));
        signs.push(ended_with_text(ReaderName::Codex, Raw(call.as_bytes()), success && !failed, &text, code));
    }

    fn at_once(&mut self, row: &Row<'_>, signs: &mut Vec<Sign>) {
        self.unnamed += 1;
        let own = format!("unnamed-{}", self.unnamed);
        let id = if row.id.0.is_empty() { Raw(own.as_bytes()) } else { row.id };
        signs.push(call_started(id, row));
        signs.push(ended_with_text(ReaderName::Codex, id, true, "", None));
    }
}

/// Appends an item and drops the oldest one when the list is full.
fn push_bounded<T>(list: &mut Vec<T>, item: T) {
    if list.len() == MAX_SILENT {
        list.remove(0);
    }
    list.push(item);
}

/// Returns the session of the process that a call polls.
fn polled(row: &Row<'_>) -> Option<String> {
    let (text, mut session) = (row.arguments?.decode(), None);
    Json::object(text.as_bytes(), |key, json| {
        if key == b"session_id" {
            session = json.whole();
        }
    });
    session.map(|session| session.to_string())
}

/// Returns the name that the stream's reader gives to the call, or the model's name for it.
fn name(row: &Row<'_>) -> String {
    let name = row.name.decode_head(MAX_NAME);
    match (row.payload.0, name.as_str()) {
        (b"local_shell_call", _) => "command_execution".to_owned(),
        (b"web_search_call", _) => "web_search".to_owned(),
        (b"image_generation_call", _) => "image_generation".to_owned(),
        (b"tool_search_call", _) => "tool_search".to_owned(),
        (
            _,
            "spawn_agent" | "send_input" | "send_message" | "wait" | "wait_agent" | "resume_agent"
            | "close_agent",
        ) => format!("{COLLAB}{name}"),
        _ => format!("{}{name}", row.namespace.decode_head(MAX_NAME)),
    }
}

/// Returns the start of a call. Its arguments are an object, one text, or JSON inside a text.
fn call_started(id: Raw<'_>, row: &Row<'_>) -> Sign {
    let text = row.arguments.map(Raw::decode).filter(|text| text.starts_with('{'));
    let args = match (&text, row.arguments) {
        (Some(text), _) => Args::of(&mut Json::value(text.as_bytes())),
        (None, Some(raw)) => Args::of_text(raw),
        (None, None) => Args::of(&mut Json::value(row.input)),
    };
    started(ReaderName::Codex, id, name(row), args)
}

struct Output {
    text: String,
    code: Option<i64>,
    success: bool,
    /// The session of the process, if it keeps running.
    running: Option<String>,
}

/// Parses an output: a text, a text with a header, JSON in a text, an object with a text, or a list of texts.
fn output(written: &[u8]) -> Output {
    let mut value = Json::value(written);
    let (mut text, mut success) = (Cow::from(""), true);
    match value.kind() {
        Some(b'"') => text = value.text().unwrap_or_default().decode().into(),
        Some(b'{') => value.fields(|key, json| match key {
            b"content" => text = json.text().unwrap_or_default().decode().into(),
            b"success" => success = !matches!(json.span(), b"false"),
            _ => {}
        }),
        Some(b'[') => value.items(|json| {
            json.fields(|key, json| {
                if key == b"text" {
                    text.to_mut().push_str(&json.text().unwrap_or_default().decode());
                }
            });
        }),
        _ => {}
    }
    let running = text.lines().take(HEADER_LINES).find_map(|line| {
        let session = line.strip_prefix("Process running with session ID ")?;
        Some(session.trim().to_owned())
    });
    let (text, code) = in_json(&text).or_else(|| with_header(&text)).unwrap_or((text.into_owned(), None));
    Output { text, code, success, running }
}

/// Parses `{"output":"…","metadata":{"exit_code":0,"duration_seconds":0.1}}`.
fn in_json(text: &str) -> Option<(String, Option<i64>)> {
    let (mut inner, mut code) = (None, None);
    let whole = text.starts_with('{')
        && Json::object(text.as_bytes(), |key, json| match key {
            b"output" => inner = json.text().map(Raw::decode),
            b"metadata" => json.fields(|key, json| {
                if key == b"exit_code" {
                    code = json.number().map(|code| code as i64);
                }
            }),
            _ => {}
        });
    inner.filter(|_| whole).map(|inner| (inner, code))
}

/// Parses lines such as `Exit code: 1`, `Process exited with code 1` and `Wall time: 0.1 seconds`, then `Output:` and
/// the output. The times differ from call to call, so only the output is compared.
fn with_header(text: &str) -> Option<(String, Option<i64>)> {
    let (header, body) = text.split_once("\nOutput:\n").or_else(|| {
        let header = text.strip_suffix("\nOutput:")?;
        Some((header, ""))
    })?;
    if header.lines().count() > HEADER_LINES {
        return None;
    }
    let code = header.lines().find_map(|line| {
        let code = ["Exit code: ", "Process exited with code "].iter().find_map(|w| line.strip_prefix(w))?;
        code.trim().parse().ok()
    });
    (code.is_some() || header.contains("Wall time: ")).then(|| (body.to_owned(), code))
}

fn field<'a>(row: &mut Row<'a>, key: &[u8], json: &mut Json<'a>) {
    match key {
        b"type" => row.kind = json.text().unwrap_or_default(),
        b"timestamp" => row.at = json.text().and_then(|text| Wall::from_rfc3339(&text.decode())),
        b"payload" => json.fields(|key, json| payload(row, key, json)),
        _ => {}
    }
}

fn payload<'a>(row: &mut Row<'a>, key: &[u8], json: &mut Json<'a>) {
    let field = match key {
        b"type" => &mut row.payload,
        b"role" => &mut row.role,
        b"id" => &mut row.id,
        b"cwd" => &mut row.dir,
        b"cli_version" => &mut row.version,
        b"model" => &mut row.model,
        b"call_id" => &mut row.call,
        b"name" => &mut row.name,
        b"namespace" => &mut row.namespace,
        b"message" => &mut row.message,
        b"error" => {
            row.failed = json.kind() == Some(b'{');
            return json.fields(|key, json| {
                if key == b"message" {
                    row.message = json.text().unwrap_or_default();
                }
            });
        }
        b"arguments" if json.kind() == Some(b'"') => return row.arguments = json.text(),
        b"arguments" | b"input" | b"action" => return row.input = json.span(),
        b"output" | b"tools" => return row.output = json.span(),
        b"content" | b"summary" => {
            return json.items(|json| {
                json.fields(|key, json| {
                    row.said |= key == b"text" && json.text().is_some_and(|text| !text.is_blank());
                });
            });
        }
        _ => return,
    };
    *field = json.text().unwrap_or_default();
}

fn is_bookkeeping(kind: &[u8]) -> bool {
    let pairs: [&[u8]; 9] = [
        b"exec_command_",
        b"mcp_tool_call_",
        b"mcp_startup_",
        b"patch_apply_",
        b"web_search_",
        b"image_generation_",
        b"collab_",
        b"hook_",
        b"agent_",
    ];
    pairs.iter().any(|prefix| kind.starts_with(prefix))
        || matches!(
            kind,
            b"token_count"
                | b"context_compacted"
                | b"entered_review_mode"
                | b"exited_review_mode"
                | b"warning"
                | b"thread_rolled_back"
                | b"thread_name_updated"
                | b"undo_completed"
                | b"item_started"
                | b"item_completed"
                | b"plan_update"
                | b"plan_delta"
                | b"turn_diff"
                | b"view_image_tool_call"
                | b"background_event"
                | b"session_configured"
        )
}
