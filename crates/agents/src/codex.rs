//! Codex, `codex exec --json`.
//!
//! A tool's end may never come (the turn ended first) and some tools only end (they were never announced);
//! `error` is used for retries too. The final text is the last message of a turn that completed.

use crate::json::{Json, Raw, unescape};
use crate::lines::Line;
use crate::reader::{MAX_ERROR, MAX_NAME};
use crate::tail::Tail;
use crate::tools::{COLLAB, mcp_name};
use dogwatch_core::sign::{AgentResult, Sign};
use dogwatch_core::text::clip;

/// So many running tools are remembered; one more forgets the oldest.
const MAX_OPEN: usize = 256;

/// A text as it is written may be six times as long as what it says (`\u001b`).
pub(crate) const MAX_RAW: usize = 6 * AgentResult::MAX_TEXT;

#[derive(Debug)]
pub struct Codex {
    last_message: Tail,
    tokens: u64,
    /// Announced and not ended.
    open: Vec<String>,
}

impl Default for Codex {
    fn default() -> Codex {
        Codex { last_message: Tail::new(MAX_RAW), tokens: 0, open: Vec::new() }
    }
}

#[derive(Default)]
struct Event<'a> {
    kind: Raw<'a>,
    item: Item<'a>,
    message: Raw<'a>,
    tokens: Option<u64>,
}

#[derive(Default)]
struct Item<'a> {
    id: Raw<'a>,
    kind: Raw<'a>,
    text: Raw<'a>,
    status: Raw<'a>,
    server: Raw<'a>,
    tool: Raw<'a>,
}

impl Codex {
    pub fn read(&mut self, line: Line<'_>, signs: &mut Vec<Sign>) {
        let mut event = Event::default();
        let whole = Json::object(line.bytes, |key, json| field(&mut event, key, json));
        if !whole && !line.cut {
            return;
        }
        match event.kind.0 {
            b"item.started" => self.started(&event.item, signs),
            b"item.completed" => self.completed(&event.item, signs),
            b"error" if is_retry(event.message) => signs.push(Sign::Keepalive),
            b"error" => signs.push(Sign::Error { text: event.message.decode_head(MAX_ERROR) }),
            b"turn.completed" => self.turn_completed(event.tokens, signs),
            b"turn.failed" => signs.push(Sign::Result(failure(event.message))),
            b"thread.started" | b"turn.started" | b"item.updated" => signs.push(Sign::Keepalive),
            _ => signs.push(Sign::Unknown),
        }
    }

    /// A refused patch or a call that could not be routed is told on stderr only.
    pub fn read_stderr(&mut self, line: &[u8], signs: &mut Vec<Sign>) {
        let of_tools = memchr::memmem::find(line, b" ERROR codex_core::tools::").is_some();
        signs.push(match of_tools {
            true => Sign::Error { text: clip(&String::from_utf8_lossy(line), MAX_ERROR).to_owned() },
            false => Sign::Keepalive,
        });
    }

    fn started(&mut self, item: &Item<'_>, signs: &mut Vec<Sign>) {
        let Some(name) = tool_name(item) else { return signs.push(no_tool(item)) };
        let id = item.id.decode_head(MAX_NAME);
        if self.open.len() == MAX_OPEN {
            self.open.remove(0);
        }
        self.open.push(id.clone());
        signs.push(Sign::ToolStarted { id, name });
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
            None => signs.push(Sign::ToolStarted { id: id.clone(), name }),
        }
        // Searches have no status; a cut line has not come to it.
        signs.push(Sign::ToolEnded { id, ok: matches!(item.status.0, b"" | b"completed" | b"in_progress") });
        if item.kind.0 == b"collab_tool_call" {
            signs.push(Sign::Subagent);
        }
    }

    fn turn_completed(&mut self, tokens: Option<u64>, signs: &mut Vec<Sign>) {
        if let Some(tokens) = tokens {
            self.tokens += tokens;
            signs.push(Sign::Usage { tokens: Some(self.tokens), cost_usd: None });
        }
        let text = unescape(self.last_message.bytes());
        signs.push(Sign::Result(AgentResult::new(&text, false)));
    }
}

fn field<'a>(event: &mut Event<'a>, key: &[u8], json: &mut Json<'a>) {
    match key {
        b"type" => event.kind = json.text().unwrap_or_default(),
        b"message" => event.message = json.text().unwrap_or_default(),
        b"error" => json.fields(|key, json| {
            if key == b"message" {
                event.message = json.text().unwrap_or_default();
            }
        }),
        b"item" => json.fields(|key, json| item_field(&mut event.item, key, json)),
        // Cached input is part of the input, reasoning part of the output.
        b"usage" => json.fields(|key, json| {
            if let b"input_tokens" | b"output_tokens" = key {
                event.tokens = Some(event.tokens.unwrap_or(0).saturating_add(json.whole().unwrap_or(0)));
            }
        }),
        _ => {}
    }
}

fn item_field<'a>(item: &mut Item<'a>, key: &[u8], json: &mut Json<'a>) {
    let field = match key {
        b"id" => &mut item.id,
        b"type" => &mut item.kind,
        b"text" => &mut item.text,
        b"status" => &mut item.status,
        b"server" => &mut item.server,
        b"tool" => &mut item.tool,
        _ => return,
    };
    *field = json.text().unwrap_or_default();
}

/// Items that are no tools have no name.
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

/// `error` as an item is a warning: of a model that Codex does not know, of a compaction.
fn no_tool(item: &Item<'_>) -> Sign {
    match item.kind.0 {
        b"agent_message" | b"reasoning" | b"todo_list" | b"error" => Sign::Keepalive,
        _ => Sign::Unknown,
    }
}

/// `Reconnecting... 2/5 (…)`, `Reconnecting... waiting for network (…)`.
fn is_retry(message: Raw<'_>) -> bool {
    message.0.starts_with(b"Reconnecting")
}

fn failure(message: Raw<'_>) -> AgentResult {
    let text = message.decode_head(MAX_ERROR);
    AgentResult { api_status: status_in(&text), ..AgentResult::new(&text, true) }
}

/// `unexpected status 529 <unknown status code>: Overloaded`.
fn status_in(text: &str) -> Option<u16> {
    let (_, behind) = text.split_once("status ")?;
    let digits = behind.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|status| (100..600).contains(status))
}
