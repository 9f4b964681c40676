//! Gemini CLI, `--output-format stream-json`.
//!
//! Text arrives in deltas that may split anything, even a marker; the text after the last tool is the final text. The
//! prompt is echoed as a user message.

use crate::codex::MAX_RAW;
use crate::json::{Json, Raw, unescape};
use crate::limits::{refusal, status_in};
use crate::lines::Line;
use crate::reader::{MAX_ERROR, MAX_NAME, identified};
use crate::tail_buffer::TailBuffer;
use crate::tools::{Args, delegates, ended, started};
use dogwatch_core::record::prices::{ModelCounts, TokenCounts};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::watch::sign::{AgentResult, Sign};

/// Reads the stream of Gemini CLI.
#[derive(Debug, Default)]
pub struct Gemini {
    /// The text since the last tool event, as written.
    said: TailBuffer<MAX_RAW>,
    /// Calls that delegate to a subagent and have not ended.
    delegated: Vec<String>,
}

/// The most delegating calls that are remembered.
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
    session: Raw<'a>,
    model: Raw<'a>,
    args: Args<'a>,
    output: &'a [u8],
    tokens: Option<u64>,
    by_model: Vec<ModelCounts>,
}

impl Gemini {
    /// Reads a line of stdout.
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
            b"error" => signs.push(Sign::error(&event.message.decode_head(MAX_ERROR))),
            b"result" => self.result(&event, signs),
            b"init" if !event.session.0.is_empty() => {
                signs.push(Sign::SessionId { id: event.session.decode_head(MAX_NAME) });
                signs.extend(identified(Raw::default(), event.model));
            }
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

    /// Reads a line of stderr, the only place where retries are reported.
    pub fn read_stderr(&mut self, line: &[u8], signs: &mut Vec<Sign>) {
        let retries = memchr::memmem::find(line, b"Retrying").is_some();
        signs.push(match retries {
            // `Attempt 1 failed with status 529. Retrying with backoff...`
            true => Sign::Retrying { status: status_in(&String::from_utf8_lossy(line)), delay: None },
            false => Sign::Keepalive,
        });
    }

    fn tool_started(&mut self, event: &Event<'_>, signs: &mut Vec<Sign>) {
        self.said.clear();
        let (id, name) = (event.id.decode_head(MAX_NAME), event.tool.decode_head(MAX_NAME));
        let hands_over = delegates(ReaderName::Gemini, &name) && self.delegated.len() < MAX_DELEGATED;
        signs.push(started(ReaderName::Gemini, event.id, name, event.args));
        if hands_over && !self.delegated.contains(&id) {
            self.delegated.push(id.clone());
            signs.push(Sign::SubagentStarted { id });
        }
    }

    fn tool_ended(&mut self, event: &Event<'_>, signs: &mut Vec<Sign>) {
        self.said.clear();
        let id = event.id.decode_head(MAX_NAME);
        if let Some(at) = self.delegated.iter().position(|call| *call == id) {
            self.delegated.swap_remove(at);
            signs.extend([Sign::SubagentProgress { id: id.clone() }, Sign::SubagentEnded { id }]);
        }
        signs.push(ended(ReaderName::Gemini, event.id, event.status.0 != b"error", event.output, None));
    }

    fn result(&mut self, event: &Event<'_>, signs: &mut Vec<Sign>) {
        if event.tokens.is_some() {
            if !event.by_model.is_empty() {
                signs.push(Sign::Counts(event.by_model.clone()));
            }
            signs.push(Sign::Usage { tokens: event.tokens, cost_usd: None });
        }
        let result = match event.status.0 {
            b"success" => AgentResult::new(&unescape(self.said.bytes()), false),
            _ => failure(event.message),
        };
        if result.is_error {
            signs.extend(refusal(result.api_status, &result.text, None));
        }
        signs.push(Sign::Result(result));
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
        b"session_id" => event.session = json.text().unwrap_or_default(),
        b"model" => event.model = json.text().unwrap_or_default(),
        b"parameters" => event.args = Args::of(json),
        b"output" => event.output = json.span(),
        b"error" => {
            let error = json.span();
            event.output = if event.output.is_empty() { error } else { event.output };
            Json::value(error).fields(|key, json| {
                if key == b"message" {
                    event.message = json.text().unwrap_or_default();
                }
            });
        }
        b"stats" => json.fields(|key, json| match key {
            b"total_tokens" => event.tokens = json.whole(),
            b"models" => json.fields(|name, json| {
                let model = Some(Raw(name).decode_head(MAX_NAME));
                event.by_model.push(ModelCounts { model, counts: counts(json) });
            }),
            _ => {}
        }),
        _ => {}
    }
}

/// Reads the tokens of one model. The total also contains thinking, which is billed as output.
fn counts(json: &mut Json<'_>) -> TokenCounts {
    let (mut total, mut answer, mut counts) = (0, 0, TokenCounts::default());
    json.fields(|key, json| {
        let count = match key {
            b"total_tokens" => &mut total,
            b"input_tokens" => &mut counts.input,
            b"cached" => &mut counts.cached_input,
            b"output_tokens" => &mut answer,
            _ => return,
        };
        *count = json.whole().unwrap_or(0);
    });
    counts.output = u64::saturating_sub(total, counts.input).max(answer);
    counts.reasoning = counts.output - answer;
    counts
}

fn failure(message: Raw<'_>) -> AgentResult {
    let text = message.decode_head(MAX_ERROR);
    AgentResult { api_status: code_in(&text), ..AgentResult::new(&text, true) }
}

/// Finds the code in `[API Error: {"error":{"code":401,"message":…`, the API's response embedded in a text.
fn code_in(text: &str) -> Option<u16> {
    let (_, behind) = text.split_once("\"code\":")?;
    let digits = behind.trim_start().split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|code| (100..600).contains(code))
}
