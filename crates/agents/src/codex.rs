//! Codex, `codex exec --json`.
//!
//! The end of a tool may be missing if the turn ended first, and some tools are printed only when they end. `error`
//! is also used for retries. The final text is the last message of a completed turn.

use crate::json::{Json, Raw, unescape};
use crate::limits::{refusal, status_in};
use crate::lines::Line;
use crate::reader::{MAX_ERROR, MAX_NAME};
use crate::tail_buffer::TailBuffer;
use crate::tools::{Args, COLLAB, ended, mcp_name, started};
use collab::Collab;
use dogwatch_core::record::prices::{ModelCounts, TokenCounts};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::text::clip;
use dogwatch_core::watch::sign::{AgentResult, Sign};

mod collab;

/// The most running tools that are remembered; the oldest is dropped first.
const MAX_OPEN: usize = 256;

/// The longest escaped text. An escape such as `\u001b` is six times as long as its character.
pub(crate) const MAX_RAW: usize = 6 * AgentResult::MAX_TEXT;

/// Reads the stream of Codex.
#[derive(Debug, Default)]
pub struct Codex {
    last_message: TailBuffer<MAX_RAW>,
    /// The ids of tools that have started and not ended.
    open: Vec<String>,
    collab: Collab,
}

#[derive(Default)]
struct Event<'a> {
    kind: Raw<'a>,
    thread: Raw<'a>,
    item: Item<'a>,
    message: Raw<'a>,
    tokens: Option<u64>,
    counts: TokenCounts,
}

#[derive(Default)]
struct Item<'a> {
    id: Raw<'a>,
    kind: Raw<'a>,
    text: Raw<'a>,
    status: Raw<'a>,
    server: Raw<'a>,
    tool: Raw<'a>,
    args: Args<'a>,
    result: &'a [u8],
    exit_code: Option<i64>,
    /// The subagents that a call is about, and their states.
    receivers: &'a [u8],
    states: &'a [u8],
}

impl Codex {
    /// Reads a line of stdout.
    pub fn read(&mut self, line: Line<'_>, signs: &mut Vec<Sign>) {
        let mut event = Event::default();
        let whole = Json::object(line.bytes, |key, json| field(&mut event, key, json));
        if !whole && !line.cut {
            return;
        }
        match event.kind.0 {
            b"item.started" => self.started(&event.item, signs),
            b"item.completed" => self.completed(&event.item, signs),
            b"error" if is_retry(event.message) => {
                signs.push(Sign::Retrying {
                    status: status_in(&event.message.decode_head(MAX_ERROR)),
                    delay: None,
                });
            }
            b"error" => signs.push(Sign::error(&event.message.decode_head(MAX_ERROR))),
            b"turn.completed" => self.turn_completed(event.tokens, event.counts, signs),
            b"turn.failed" => self.turn_failed(event.message, signs),
            b"thread.started" if !event.thread.0.is_empty() => {
                signs.push(Sign::SessionId { id: event.thread.decode_head(MAX_NAME) });
            }
            b"thread.started" | b"turn.started" | b"item.updated" => signs.push(Sign::Keepalive),
            _ => signs.push(Sign::Unknown),
        }
    }

    /// Reads a line of stderr, the only place where Codex reports a rejected patch or a call that it could not route.
    pub fn read_stderr(&mut self, line: &[u8], signs: &mut Vec<Sign>) {
        let of_tools = memchr::memmem::find(line, b" ERROR codex_core::tools::").is_some();
        signs.push(match of_tools {
            true => Sign::error(clip(&String::from_utf8_lossy(line), MAX_ERROR)),
            false => Sign::Keepalive,
        });
    }

    fn started(&mut self, item: &Item<'_>, signs: &mut Vec<Sign>) {
        let Some(name) = tool_name(item) else { return signs.push(no_tool(item)) };
        if self.open.len() == MAX_OPEN {
            self.open.remove(0);
        }
        self.open.push(item.id.decode_head(MAX_NAME));
        signs.push(started(ReaderName::Codex, item.id, name, item.args));
    }

    fn completed(&mut self, item: &Item<'_>, signs: &mut Vec<Sign>) {
        match item.kind.0 {
            b"agent_message" if !item.text.is_blank() => {
                self.last_message.clear();
                self.last_message.push(item.text.0);
                signs.push(Sign::Message);
            }
            b"reasoning" if !item.text.is_blank() => signs.push(Sign::Text),
            _ => self.tool_ended(item, signs),
        }
    }

    fn tool_ended(&mut self, item: &Item<'_>, signs: &mut Vec<Sign>) {
        let Some(name) = tool_name(item) else { return signs.push(no_tool(item)) };
        let id = item.id.decode_head(MAX_NAME);
        match self.open.iter().position(|open| *open == id) {
            Some(at) => drop(self.open.remove(at)),
            None => signs.push(started(ReaderName::Codex, item.id, name, item.args)),
        }
        // Searches have no status, and a cut line may lack it.
        let ok = matches!(item.status.0, b"" | b"completed" | b"in_progress");
        let failed = item.exit_code.is_some_and(|code| code != 0);
        signs.push(ended(ReaderName::Codex, item.id, ok && !failed, item.result, item.exit_code));
        if item.kind.0 == b"collab_tool_call" {
            self.collab.call_ended(item.tool.0 == b"spawn_agent", item.receivers, item.states, signs);
        }
    }

    /// Handles the end of a turn. The token count is a total of the thread, including resumed sessions.
    fn turn_completed(&mut self, tokens: Option<u64>, counts: TokenCounts, signs: &mut Vec<Sign>) {
        self.collab.end_all(signs);
        if tokens.is_some() {
            signs.push(Sign::Counts(vec![ModelCounts { model: None, counts }]));
            signs.push(Sign::Usage { tokens, cost_usd: None });
        }
        let text = unescape(self.last_message.bytes());
        signs.push(Sign::Result(AgentResult::new(&text, false)));
    }

    fn turn_failed(&mut self, message: Raw<'_>, signs: &mut Vec<Sign>) {
        self.collab.end_all(signs);
        let text = message.decode_head(MAX_ERROR);
        let status = status_in(&text);
        signs.extend(refusal(status, &text, None));
        signs.push(Sign::Result(AgentResult { api_status: status, ..AgentResult::new(&text, true) }));
    }
}

fn field<'a>(event: &mut Event<'a>, key: &'a [u8], json: &mut Json<'a>) {
    match key {
        b"type" => event.kind = json.text().unwrap_or_default(),
        b"thread_id" => event.thread = json.text().unwrap_or_default(),
        b"message" => event.message = json.text().unwrap_or_default(),
        b"error" => json.fields(|key, json| {
            if key == b"message" {
                event.message = json.text().unwrap_or_default();
            }
        }),
        b"item" => json.fields(|key, json| item_field(&mut event.item, key, json)),
        // Cached input is part of the input, and reasoning is part of the output.
        b"usage" => json.fields(|key, json| {
            let counts = &mut event.counts;
            let (count, adds) = match key {
                b"input_tokens" => (&mut counts.input, true),
                b"output_tokens" => (&mut counts.output, true),
                b"cached_input_tokens" => (&mut counts.cached_input, false),
                b"reasoning_output_tokens" => (&mut counts.reasoning, false),
                _ => return,
            };
            *count = json.whole().unwrap_or(0);
            if adds {
                event.tokens = Some(event.tokens.unwrap_or(0).saturating_add(*count));
            }
        }),
        _ => {}
    }
}

fn item_field<'a>(item: &mut Item<'a>, key: &'a [u8], json: &mut Json<'a>) {
    let field = match key {
        b"id" => &mut item.id,
        b"type" => &mut item.kind,
        b"text" => &mut item.text,
        b"status" => &mut item.status,
        b"server" => &mut item.server,
        b"tool" => &mut item.tool,
        b"exit_code" => return item.exit_code = json.number().map(|code| code as i64),
        b"receiver_thread_ids" => return item.receivers = json.span(),
        b"agents_states" => return item.states = json.span(),
        b"command" | b"arguments" | b"changes" | b"query" | b"prompt" => return item.args.add(key, json),
        b"aggregated_output" | b"result" | b"error" => {
            let written = json.span();
            if !matches!(written, b"null" | b"\"\"") {
                item.result = written;
            }
            return;
        }
        _ => return,
    };
    *field = json.text().unwrap_or_default();
}

/// Returns the name of a tool; `None` for items that are not tools.
fn tool_name(item: &Item<'_>) -> Option<String> {
    let tool = || item.tool.decode_head(MAX_NAME);
    match item.kind.0 {
        b"command_execution" | b"file_change" | b"web_search" | b"image_view" | b"image_generation" => {
            Some(item.kind.decode())
        }
        b"mcp_tool_call" => Some(mcp_name(&item.server.decode_head(MAX_NAME), &tool())),
        b"collab_tool_call" => Some(format!("{COLLAB}{}", tool())),
        _ => None,
    }
}

/// Returns the sign of an item that is not a tool. An `error` item is a warning, for example about an unknown model.
fn no_tool(item: &Item<'_>) -> Sign {
    match item.kind.0 {
        b"agent_message" | b"reasoning" | b"todo_list" | b"error" => Sign::Keepalive,
        _ => Sign::Unknown,
    }
}

/// Returns whether the message is `Reconnecting... 2/5 (…)` or `Reconnecting... waiting for network (…)`.
fn is_retry(message: Raw<'_>) -> bool {
    message.0.starts_with(b"Reconnecting")
}
