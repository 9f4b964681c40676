//! Gemini CLI, `--output-format stream-json`.
//!
//! Text comes in deltas that may split anything, a marker too; what was said since the last tool is the
//! final text. The prompt is echoed as a message of the user.

use crate::codex::MAX_RAW;
use crate::json::{Json, Raw, unescape};
use crate::lines::Line;
use crate::reader::{MAX_ERROR, MAX_NAME};
use crate::tail::Tail;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::sign::{AgentResult, Sign};

#[derive(Debug)]
pub struct Gemini {
    /// What was said since the last tool event, as written.
    said: Tail,
    /// Calls that hand over to a subagent and have not ended.
    delegated: Vec<String>,
}

impl Default for Gemini {
    fn default() -> Gemini {
        Gemini { said: Tail::new(MAX_RAW), delegated: Vec::new() }
    }
}

/// So many calls that hand over are remembered.
const MAX_DELEGATED: usize = 64;

#[derive(Default)]
struct Event<'a> {
    kind: Raw<'a>,
    role: Raw<'a>,
    content: Raw<'a>,
    tool: Raw<'a>,
    id: Raw<'a>,
    status: Raw<'a>,
    message: Raw<'a>,
    tokens: Option<u64>,
}

impl Gemini {
    pub fn read(&mut self, line: Line<'_>, signs: &mut Vec<Sign>) {
        let mut event = Event::default();
        let whole = Json::object(line.bytes, |key, json| field(&mut event, key, json));
        if !whole && !line.cut {
            return;
        }
        match event.kind.0 {
            b"message" if event.role.0 == b"assistant" => self.said(event.content, signs),
            b"tool_use" => self.tool_started(&event, signs),
            b"tool_result" => self.tool_ended(&event, signs),
            b"error" => signs.push(Sign::Error { text: event.message.decode_head(MAX_ERROR) }),
            b"result" => self.result(&event, signs),
            b"init" | b"message" => signs.push(Sign::Keepalive),
            _ => signs.push(Sign::Unknown),
        }
    }

    fn said(&mut self, content: Raw<'_>, signs: &mut Vec<Sign>) {
        let is_first = Raw(self.said.bytes()).is_blank();
        self.said.push(content.0);
        signs.push(match content.is_blank() {
            true => Sign::Keepalive,
            false if is_first => Sign::Message,
            false => Sign::Text,
        });
    }

    fn tool_started(&mut self, event: &Event<'_>, signs: &mut Vec<Sign>) {
        self.said.clear();
        let (id, name) = (event.id.decode_head(MAX_NAME), event.tool.decode_head(MAX_NAME));
        if crate::tools::delegates(ReaderName::Gemini, &name) && self.delegated.len() < MAX_DELEGATED {
            self.delegated.push(id.clone());
        }
        signs.push(Sign::ToolStarted { id, name });
    }

    fn tool_ended(&mut self, event: &Event<'_>, signs: &mut Vec<Sign>) {
        self.said.clear();
        let id = event.id.decode_head(MAX_NAME);
        if let Some(at) = self.delegated.iter().position(|call| *call == id) {
            self.delegated.swap_remove(at);
            signs.push(Sign::Subagent);
        }
        signs.push(Sign::ToolEnded { id, ok: event.status.0 != b"error" });
    }

    fn result(&mut self, event: &Event<'_>, signs: &mut Vec<Sign>) {
        if event.tokens.is_some() {
            signs.push(Sign::Usage { tokens: event.tokens, cost_usd: None });
        }
        signs.push(Sign::Result(match event.status.0 {
            b"success" => AgentResult::new(&unescape(self.said.bytes()), false),
            _ => failure(event.message),
        }));
    }
}

fn field<'a>(event: &mut Event<'a>, key: &[u8], json: &mut Json<'a>) {
    match key {
        b"type" => event.kind = json.text().unwrap_or_default(),
        b"role" => event.role = json.text().unwrap_or_default(),
        b"content" => event.content = json.text().unwrap_or_default(),
        b"tool_name" => event.tool = json.text().unwrap_or_default(),
        b"tool_id" => event.id = json.text().unwrap_or_default(),
        b"status" => event.status = json.text().unwrap_or_default(),
        b"message" => event.message = json.text().unwrap_or_default(),
        b"error" => json.fields(|key, json| {
            if key == b"message" {
                event.message = json.text().unwrap_or_default();
            }
        }),
        b"stats" => json.fields(|key, json| {
            if key == b"total_tokens" {
                event.tokens = json.whole();
            }
        }),
        _ => {}
    }
}

fn failure(message: Raw<'_>) -> AgentResult {
    let text = message.decode_head(MAX_ERROR);
    AgentResult { api_status: code_in(&text), ..AgentResult::new(&text, true) }
}

/// `[API Error: {"error":{"code":401,"message":…`: the API's answer, as text within the text.
fn code_in(text: &str) -> Option<u16> {
    let (_, behind) = text.split_once("\"code\":")?;
    let digits = behind.trim_start().split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|code| (100..600).contains(code))
}
