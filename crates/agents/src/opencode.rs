//! opencode, `opencode run --format json`.
//!
//! OpenCode prints no final event: when the process exits, the session succeeded if its last step ended with `stop`. Tools are
//! printed only when they have ended. Tokens and cost are reported per step.

use crate::codex::MAX_RAW;
use crate::json::{Json, Raw, unescape};
use crate::limits::{refusal, status_by_words};
use crate::lines::Line;
use crate::reader::{MAX_ERROR, MAX_NAME};
use crate::tail_buffer::TailBuffer;
use crate::tools::{Args, delegates, ended, started};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::text::clip;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::watch::sign::{AgentResult, ResetsAt, Sign};

/// Reads the stream of opencode.
#[derive(Debug, Default)]
pub struct Opencode {
    /// The text of the current step.
    said: TailBuffer<MAX_RAW>,
    tokens: Option<u64>,
    cost_usd: Option<f64>,
    session: String,
    end: End,
}

/// The outcome if nothing more is printed.
#[derive(Debug, Default)]
enum End {
    #[default]
    Open,
    Stopped,
    Failed(AgentResult),
}

#[derive(Default)]
struct Event<'a> {
    kind: Raw<'a>,
    part: Part<'a>,
    session: Raw<'a>,
    message: Raw<'a>,
    status: Option<u16>,
    /// The retry interval from the service's response.
    retry_after: Option<Dur>,
}

#[derive(Default)]
struct Part<'a> {
    text: Raw<'a>,
    synthetic: bool,
    tool: Raw<'a>,
    call: Raw<'a>,
    state: Raw<'a>,
    args: Args<'a>,
    output: &'a [u8],
    /// The exit code of the command.
    exit_code: Option<i64>,
    reason: Raw<'a>,
    total: Option<u64>,
    summed: Option<u64>,
    cost_usd: Option<f64>,
}

impl Opencode {
    /// Reads a line of stdout.
    pub fn read(&mut self, line: Line<'_>, signs: &mut Vec<Sign>) {
        let mut event = Event::default();
        let whole = Json::object(line.bytes, |key, json| field(&mut event, key, json));
        if !whole && !line.cut {
            return;
        }
        self.known_as(event.session, signs);
        match event.kind.0 {
            b"step_start" => self.step_started(signs),
            b"text" => self.text(&event.part, signs),
            b"reasoning" if !event.part.text.is_blank() => signs.push(Sign::Text),
            b"reasoning" => signs.push(Sign::Keepalive),
            b"tool_use" => self.tool(&event.part, signs),
            b"step_finish" => self.step_finished(&event.part, signs),
            b"error" => self.failed(&event, signs),
            _ => signs.push(Sign::Unknown),
        }
    }

    /// Reads a line of stderr. Without `--auto`, opencode rejects its own permission requests. Refusals by the service
    /// and retries appear only in its log, which it prints with `--print-logs`.
    pub fn read_stderr(&mut self, line: &[u8], signs: &mut Vec<Sign>) {
        if is_log(line) {
            return signs.push(logged(clip(&String::from_utf8_lossy(line), MAX_ERROR)));
        }
        let refused = memchr::memmem::find(line, b"permission requested").is_some();
        signs.push(match refused {
            true => Sign::NeedsHuman { text: clip(&String::from_utf8_lossy(line), MAX_ERROR).to_owned() },
            false => Sign::Keepalive,
        });
    }

    /// Reports the session id once; every line contains it.
    fn known_as(&mut self, session: Raw<'_>, signs: &mut Vec<Sign>) {
        if self.session.is_empty() && !session.0.is_empty() {
            self.session = session.decode_head(MAX_NAME);
            signs.push(Sign::SessionId { id: self.session.clone() });
        }
    }

    /// Reports the result at the end of the process.
    pub fn finish(&mut self, signs: &mut Vec<Sign>) {
        match std::mem::take(&mut self.end) {
            End::Open => {}
            End::Stopped => {
                let text = unescape(self.said.bytes());
                signs.push(Sign::Result(AgentResult::new(&text, false)));
            }
            End::Failed(result) => signs.push(Sign::Result(result)),
        }
    }

    fn step_started(&mut self, signs: &mut Vec<Sign>) {
        self.said.clear();
        self.end = End::Open;
        signs.push(Sign::Keepalive);
    }

    fn text(&mut self, part: &Part<'_>, signs: &mut Vec<Sign>) {
        // opencode itself writes synthetic texts to make the model continue.
        if part.synthetic || part.text.is_blank() {
            return signs.push(Sign::Keepalive);
        }
        if !self.said.is_empty() {
            self.said.push(br"\n");
        }
        self.said.push(part.text.0);
        self.end = End::Open;
        signs.push(Sign::Message);
    }

    fn tool(&mut self, part: &Part<'_>, signs: &mut Vec<Sign>) {
        self.said.clear();
        self.end = End::Open;
        let (id, name) = (part.call.decode_head(MAX_NAME), part.tool.decode_head(MAX_NAME));
        let hands_over = delegates(ReaderName::Opencode, &name);
        signs.push(started(ReaderName::Opencode, part.call, name, part.args));
        if let b"pending" | b"running" = part.state.0 {
            return;
        }
        if hands_over {
            // The subagent is reported only after it has ended.
            signs.extend([
                Sign::SubagentStarted { id: id.clone() },
                Sign::SubagentProgress { id: id.clone() },
                Sign::SubagentEnded { id },
            ]);
        }
        // For opencode, a call succeeded even if its command failed.
        let ok = part.state.0 != b"error" && part.exit_code.is_none_or(|code| code == 0);
        signs.push(ended(ReaderName::Opencode, part.call, ok, part.output, part.exit_code));
    }

    fn step_finished(&mut self, part: &Part<'_>, signs: &mut Vec<Sign>) {
        if let Some(tokens) = part.total.or(part.summed) {
            self.tokens = Some(self.tokens.unwrap_or(0).saturating_add(tokens));
        }
        if let Some(cost) = part.cost_usd {
            self.cost_usd = Some(self.cost_usd.unwrap_or(0.0) + cost);
        }
        signs.push(Sign::Usage { tokens: self.tokens, cost_usd: self.cost_usd });
        self.end = if part.reason.0 == b"stop" { End::Stopped } else { End::Open };
    }

    fn failed(&mut self, event: &Event<'_>, signs: &mut Vec<Sign>) {
        let text = event.message.decode_head(MAX_ERROR);
        let result = AgentResult { api_status: event.status, ..AgentResult::new(&text, true) };
        self.end = End::Failed(result);
        signs.push(Sign::error(&text));
        signs.extend(refusal(event.status, &text, event.retry_after.map(ResetsAt::In)));
    }
}

/// Returns whether a line of stderr is a log line.
pub(crate) fn is_log(line: &[u8]) -> bool {
    line.starts_with(b"timestamp=")
}

/// Reads the log line `… level=ERROR … message="stream error" … error.error="AI_APICallError: Overloaded"`: a request
/// failed and is retried after the interval that the service asked for. The status is inferred from the message.
fn logged(line: &str) -> Sign {
    let failed = line.contains(" message=\"stream error\"");
    match line.split_once(" error.error=").filter(|_| failed) {
        Some((_, why)) => Sign::Retrying { status: status_by_words(why), delay: None },
        None => Sign::Keepalive,
    }
}

fn field<'a>(event: &mut Event<'a>, key: &[u8], json: &mut Json<'a>) {
    match key {
        b"type" => event.kind = json.text().unwrap_or_default(),
        b"sessionID" => event.session = json.text().unwrap_or_default(),
        b"part" => json.fields(|key, json| part_field(&mut event.part, key, json)),
        b"error" => json.fields(|key, json| match key {
            b"name" if event.message.0.is_empty() => event.message = json.text().unwrap_or_default(),
            b"data" => json.fields(|key, json| match key {
                b"message" => event.message = json.text().unwrap_or(event.message),
                b"statusCode" => event.status = json.status(),
                b"responseHeaders" => json.fields(|key, json| header(event, key, json)),
                _ => {}
            }),
            _ => {}
        }),
        _ => {}
    }
}

/// Reads `"retry-after":"3600"` or `"retry-after-ms":"5000"`.
fn header(event: &mut Event<'_>, key: &[u8], json: &mut Json<'_>) {
    let mut wait = |unit: f64| {
        let written = json.text().unwrap_or_default().decode_head(MAX_NAME);
        let seconds = written.trim().parse::<f64>().ok();
        event.retry_after = seconds.and_then(|s| Dur::from_secs_f64(s * unit).ok()).or(event.retry_after);
    };
    match key {
        b"retry-after" => wait(1.0),
        b"retry-after-ms" => wait(0.001),
        _ => {}
    }
}

fn part_field<'a>(part: &mut Part<'a>, key: &[u8], json: &mut Json<'a>) {
    match key {
        b"text" => part.text = json.text().unwrap_or_default(),
        b"synthetic" => part.synthetic = json.is_true(),
        b"tool" => part.tool = json.text().unwrap_or_default(),
        b"callID" => part.call = json.text().unwrap_or_default(),
        b"state" => json.fields(|key, json| state_field(part, key, json)),
        b"reason" => part.reason = json.text().unwrap_or_default(),
        b"tokens" => json.fields(|key, json| token_field(part, key, json)),
        b"cost" => part.cost_usd = json.number(),
        _ => {}
    }
}

fn state_field<'a>(part: &mut Part<'a>, key: &[u8], json: &mut Json<'a>) {
    match key {
        b"status" => part.state = json.text().unwrap_or_default(),
        b"input" => part.args = Args::of(json),
        b"output" | b"error" => part.output = json.span(),
        b"metadata" => json.fields(|key, json| {
            if key == b"exit" {
                part.exit_code = json.number().map(|code| code as i64);
            }
        }),
        _ => {}
    }
}

fn token_field(part: &mut Part<'_>, key: &[u8], json: &mut Json<'_>) {
    let mut add =
        |n: Option<u64>| part.summed = Some(part.summed.unwrap_or(0).saturating_add(n.unwrap_or(0)));
    match key {
        b"total" => part.total = json.whole(),
        b"input" | b"output" | b"reasoning" => add(json.whole()),
        b"cache" => json.fields(|_, json| add(json.whole())),
        _ => {}
    }
}
