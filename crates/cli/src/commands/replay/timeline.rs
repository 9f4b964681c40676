//! Replays a timeline, which holds one session.

use super::read::Lines;
use crate::error::CliError;
use dogwatch_agents::tools::{call, declared_timeout, delegates, is_canceled, is_heartbeat, is_mcp, result};
use dogwatch_agents::{Line, Listener, MAX_LINE};
use dogwatch_config::nearest;
use dogwatch_core::record::hash;
use dogwatch_core::run::agent_channel::HEARTBEAT_TOOL;
use dogwatch_core::run::job::Exit;
use dogwatch_core::settings::{ReaderName, WatchPolicy};
use dogwatch_core::text::fingerprint::fingerprint_ends;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::feed::{Did, Input, Stream};
use dogwatch_core::watch::replay::{Finish, Looks, Player, Replayed, Spans};
use dogwatch_core::watch::sign::Sign;
use dogwatch_core::watch::{Session, ToolStarted};
use serde::de::{Deserialize, Deserializer, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The kinds of input of a timeline.
const KINDS: [&str; 16] = [
    "stdout",
    "stderr",
    "message",
    "tool_started",
    "tool_ended",
    "error",
    "mcp_call",
    "subagent",
    "workspace",
    "children",
    "needs_human",
    "keepalive",
    "heartbeat",
    "suspended",
    "exited",
    "end",
];

/// The fields of a line of any kind. Most are borrowed from the line, because there may be millions of lines.
#[derive(serde::Deserialize)]
struct Raw<'a> {
    t_ms: u64,
    #[serde(borrow)]
    line: Option<Text<'a>>,
    #[serde(borrow)]
    input: Option<Text<'a>>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    timeout_s: Option<f64>,
    delegates: Option<bool>,
    ok: Option<bool>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    tool: Option<Text<'a>>,
    #[serde(borrow)]
    phase: Option<Text<'a>>,
    #[serde(borrow)]
    what: Option<Text<'a>>,
    #[serde(borrow)]
    path: Option<Text<'a>>,
    #[serde(borrow)]
    digest: Option<&'a RawValue>,
    live: Option<u32>,
    cpu_ms: Option<u64>,
    for_ms: Option<u64>,
    code: Option<i32>,
    bytes: Option<u64>,
    count: Option<u64>,
}

/// A string, borrowed unless it contains escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<'a>, D::Error> {
        struct Reading;
        impl<'de> Visitor<'de> for Reading {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Reading)
    }
}

impl Text<'_> {
    fn as_str(&self) -> &str {
        &self.0
    }

    fn into_string(self) -> String {
        self.0.into_owned()
    }
}

/// The content of a line.
enum Entry<'a> {
    Line(Stream, Text<'a>),
    Input(Input),
    Exited(i32),
    End,
}

/// An error in a line, and an optional help text.
struct LineError(String, Option<String>);

/// Collects the suspensions of a timeline. The replay reports invalid lines.
pub fn spans(mut lines: Lines) -> Result<Spans, CliError> {
    let mut spans = Spans::default();
    while let Some(line) = lines.next()? {
        if memchr::memmem::find(line, b"suspended").is_some()
            && let Ok((t_ms, Entry::Input(Input::Suspended { for_ms }))) = read(line, ReaderName::Plain)
        {
            spans.add(Awake(t_ms), for_ms);
        }
    }
    Ok(spans)
}

/// Replays a timeline whose current line is the first one.
pub fn replay(
    mut lines: Lines,
    mut spans: Spans,
    name: ReaderName,
    policy: WatchPolicy,
) -> Result<Replayed, CliError> {
    let session = Session::new(Awake(0), name.is_structured());
    let mut player = Player::with_feed(policy, session, None, Looks::EveryDue, Listener::new(name));
    let (mut last, mut over) = (0, None);
    while lines.number() > 0 && !lines.current().is_empty() {
        let (t_ms, entry) = read(lines.current(), name).map_err(|w| lines.invalid(&w.0, w.1))?;
        if t_ms < last {
            let what = format!("t_ms {t_ms} comes after {last}: lines must be in order of time");
            return Err(lines.invalid(&what, None));
        }
        last = t_ms;
        let at = Awake(t_ms);
        let suspended = matches!(entry, Entry::Input(Input::Suspended { .. }));
        while !suspended
            && over.is_none()
            && let Some((until, for_ms)) = spans.begun_before(at)
        {
            player.suspend_ahead(until, for_ms);
        }
        match entry {
            // Only check the rest for invalid lines.
            _ if over.is_some() || player.has_stopped() => {}
            Entry::Line(stream, text) => player.take(at, |listener| listener.line(at, stream, cut(&text))),
            Entry::Input(Input::Suspended { .. }) if spans.reported() => player.look(at),
            Entry::Input(input) => player.input(at, input),
            Entry::Exited(code) => over = Some((at, Some(code))),
            Entry::End => over = Some((at, None)),
        }
        if lines.next()?.is_none() {
            break;
        }
    }
    let (at, code) = over.unwrap_or((Awake(last), None));
    let Some(code) = code else { return Ok(player.finish(at, &Finish::Looked)) };
    // The recordings use -n for signal n.
    let exit = if code < 0 { Exit::Signal(code.saturating_neg()) } else { Exit::Code(code) };
    player.feed().totals(exit.code());
    let marker = player.feed().marker("");
    Ok(player.finish(at, &Finish::Exited { exit, marker }))
}

/// Cuts a long line like a live session does.
fn cut<'a>(text: &'a Text<'_>) -> Line<'a> {
    let whole = text.as_str().as_bytes();
    let bytes = &whole[..whole.len().min(MAX_LINE)];
    Line { bytes, cut: bytes.len() < whole.len() }
}

/// Parses a line into its time and its content.
fn read(line: &[u8], agent: ReaderName) -> Result<(u64, Entry<'_>), LineError> {
    let mut raw: Raw<'_> = serde_json::from_slice(line).map_err(|e| LineError(parse_error(&e), None))?;
    let entry = match (raw.line.take(), raw.input.take()) {
        (Some(text), None) => Entry::Line(Stream::Stdout, text),
        (None, Some(kind)) => return input(kind.as_str(), raw, agent),
        (Some(text), Some(kind)) if kind.as_str() == "stderr" => Entry::Line(Stream::Stderr, text),
        (Some(text), Some(kind)) if kind.as_str() == "stdout" => Entry::Line(Stream::Stdout, text),
        (Some(_), Some(_)) => return Err(LineError("has both `line` and `input`".to_owned(), None)),
        (None, None) => return Err(LineError("has neither `line` nor `input`".to_owned(), None)),
    };
    Ok((raw.t_ms, entry))
}

/// Returns a parse error without serde's line number, which is always 1. The caller adds the real one.
fn parse_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.split_once(" at line ") {
        Some((what, _)) if error.is_data() => what.to_owned(),
        Some((what, _)) => format!("not JSON: {what} at column {}", error.column()),
        None => text,
    }
}

/// Parses an input of this kind.
fn input<'a>(kind: &str, raw: Raw<'a>, agent: ReaderName) -> Result<(u64, Entry<'a>), LineError> {
    let t_ms = raw.t_ms;
    let input = match kind {
        "stdout" => Input::Stdout { bytes: need(raw.bytes, kind, "bytes")? },
        "stderr" => Input::Stderr { bytes: need(raw.bytes, kind, "bytes")? },
        "message" => Input::Message { count: raw.count },
        "tool_started" => Input::Sign(tool_started(raw, agent)?),
        "tool_ended" => Input::Sign(tool_ended(raw, agent)?),
        "error" => Input::Sign(Sign::error(need(raw.text, kind, "text")?.as_str())),
        "mcp_call" => {
            one_of("phase", need(raw.phase, kind, "phase")?.as_str(), &["start", "end"])?;
            Input::McpCall { heartbeat: need(raw.tool, kind, "tool")?.as_str() == HEARTBEAT_TOOL }
        }
        "subagent" => subagent(raw)?,
        "workspace" => Input::Workspace {
            path: raw.path.map(|path| hash::bytes(path.as_str().as_bytes())),
            digest: raw.digest.and_then(digest),
        },
        "children" => Input::Children { live: need(raw.live, kind, "live")?, cpu_ms: raw.cpu_ms },
        "needs_human" => {
            let text = raw.what.map_or_else(|| "the agent needs a human".to_owned(), Text::into_string);
            Input::Sign(Sign::NeedsHuman { text })
        }
        "keepalive" => Input::Sign(Sign::Keepalive),
        "heartbeat" => Input::Heartbeat,
        "suspended" => Input::Suspended { for_ms: need(raw.for_ms, kind, "for_ms")? },
        "exited" => return Ok((t_ms, Entry::Exited(need(raw.code, kind, "code")?))),
        "end" => return Ok((t_ms, Entry::End)),
        unknown => return Err(unknown_value("input", unknown, &KINDS)),
    };
    Ok((t_ms, Entry::Input(input)))
}

/// Returns a required field, or an error that names it.
fn need<T>(field: Option<T>, kind: &str, name: &str) -> Result<T, LineError> {
    field.ok_or_else(|| LineError(format!("`{kind}` needs `{name}`"), None))
}

/// Checks that a field has one of the known values.
fn one_of(field: &str, word: &str, known: &[&'static str]) -> Result<(), LineError> {
    if known.contains(&word) { Ok(()) } else { Err(unknown_value(field, word, known)) }
}

/// Returns an error about an unknown value, with the nearest known one.
fn unknown_value(field: &str, word: &str, known: &[&'static str]) -> LineError {
    let help = match nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("`{field}` is one of {}", known.join(", ")),
    };
    LineError(format!("unknown {field} `{word}`"), Some(help))
}

fn tool_started(raw: Raw<'_>, agent: ReaderName) -> Result<Sign, LineError> {
    let kind = "tool_started";
    let name = need(raw.name, kind, "name")?.into_string();
    let timeout = match raw.timeout_s {
        Some(s) if s.is_finite() && s >= 0.0 => Some(Dur::from_millis((s * 1000.0).round() as u64)),
        Some(_) => return Err(LineError("`timeout_s` is not a valid duration".to_owned(), None)),
        None => None,
    };
    let args = raw.args.map_or("", RawValue::get);
    Ok(Sign::ToolStarted(ToolStarted {
        id: need(raw.id, kind, "id")?.into_string(),
        call: call(&name, args),
        timeout: timeout.map(|t| t.min(Dur::LONGEST)).or_else(|| declared_timeout(agent, &name, args)),
        delegates: raw.delegates.unwrap_or_else(|| delegates(agent, &name)),
        mcp: is_mcp(agent, &name) || name.starts_with("mcp__"),
        heartbeat: is_heartbeat(agent, &name) || is_heartbeat(ReaderName::Claude, &name),
        name,
    }))
}

fn tool_ended(raw: Raw<'_>, agent: ReaderName) -> Result<Sign, LineError> {
    let kind = "tool_ended";
    let text = raw.result.map_or(Cow::Borrowed(""), text_of);
    let ok = need(raw.ok, kind, "ok")?;
    let error = match ok {
        true => String::new(),
        false if text.trim().is_empty() => "failed".to_owned(),
        false => fingerprint_ends(&text),
    };
    let id = need(raw.id, kind, "id")?.into_string();
    let canceled = !ok && is_canceled(agent, &text);
    Ok(Sign::ToolEnded { id, ok, result: result(&text), error, heartbeat: false, canceled })
}

fn subagent(raw: Raw<'_>) -> Result<Input, LineError> {
    let kind = "subagent";
    let what = need(raw.what, kind, "what")?;
    one_of("what", what.as_str(), &["progress", "tool", "heartbeat", "ended"])?;
    let did = match what.as_str() {
        "progress" => Did::Progress,
        "tool" => Did::Tool,
        "heartbeat" => Did::Heartbeat,
        _ => Did::Ended,
    };
    Ok(Input::Subagent { id: need(raw.id, kind, "id")?.into_string(), did })
}

/// Returns the content of a string, and the JSON text of any other value.
fn text_of(value: &RawValue) -> Cow<'_, str> {
    serde_json::from_str::<Text<'_>>(value.get()).map_or_else(|_| value.get().into(), |text| text.0)
}

/// Hashes the digest. Null means that the state is unknown.
fn digest(value: &RawValue) -> Option<u64> {
    (value.get() != "null").then(|| hash::bytes(value.get().as_bytes()))
}
