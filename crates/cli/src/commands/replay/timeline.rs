//! Replays a timeline, which holds one session.

use super::read::Lines;
use crate::error::CliError;
use dogwatch_agents::tools::{
    call, declared_timeout, delegates, is_canceled, is_heartbeat, is_mcp, result, subject,
};
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
use serde_json::value::RawValue;
use std::borrow::Cow;

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
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

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
    measure: bool,
) -> Result<Replayed, CliError> {
    let session = Session::new(Awake(0), name.is_structured());
    let player = Player::with_feed(policy, session, None, Looks::EveryDue, Listener::new(name));
    let mut player = player.measuring(measure);
    let (mut last, mut over) = (0, None);
    let mut decoded = Vec::new();
    while lines.number() > 0 && !lines.current().is_empty() {
        let output = raw_output(lines.current(), &mut decoded);
        let (t_ms, entry) = match output {
            Some((t_ms, text)) => (t_ms, Entry::Line(Stream::Stdout, Text(Cow::Borrowed(text)))),
            None => read(lines.current(), name).map_err(|w| lines.invalid(&w.0, w.1))?,
        };
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

/// Parses a line of the form `{"t_ms": n, "line": "…"}` into its time and its text, which is decoded into `decoded` if it
/// has escapes. Recordings consist of such lines, so they do not need a parser for all kinds. Anything
/// else, also an error, is left to [`read`].
fn raw_output<'a>(line: &'a [u8], decoded: &'a mut Vec<u8>) -> Option<(u64, &'a str)> {
    let rest = line.trim_ascii().strip_prefix(b"{")?.trim_ascii_start().strip_prefix(b"\"t_ms\"")?;
    let rest = rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    let (number, rest) = rest.split_at(digits);
    // A leading zero is not JSON.
    let number =
        std::str::from_utf8(number).ok().filter(|number| *number == "0" || !number.starts_with('0'))?;
    let rest = rest.trim_ascii_start().strip_prefix(b",")?.trim_ascii_start().strip_prefix(b"\"line\"")?;
    let rest = rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start().strip_prefix(b"\"")?;
    let quoted = rest.strip_suffix(b"}")?.trim_ascii_end().strip_suffix(b"\"")?;
    let text = unescaped(quoted, decoded)?;
    Some((number.parse().ok()?, std::str::from_utf8(text).ok()?))
}

/// Decodes the inside of a JSON string. Returns `None` if it ends early, is invalid or has a `\u` escape.
fn unescaped<'a>(quoted: &'a [u8], decoded: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    if quoted.iter().fold(false, |found, byte| found | (*byte < b' ')) {
        return None;
    }
    decoded.clear();
    let mut rest = quoted;
    while let Some(at) = memchr::memchr2(b'\\', b'"', rest) {
        let [b'\\', escape, ..] = rest[at..] else { return None };
        decoded.extend_from_slice(&rest[..at]);
        decoded.push(match escape {
            b'"' | b'\\' | b'/' => escape,
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            _ => return None,
        });
        rest = &rest[at + 2..];
    }
    if rest.len() == quoted.len() {
        return Some(quoted);
    }
    decoded.extend_from_slice(rest);
    Some(decoded)
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
        subject: subject(args),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_output_is_read_like_any_other_line() {
        let mut quick = 0;
        for line in [
            r#"{"t_ms": 0, "line": "plain"}"#,
            r#"{"t_ms":12,"line":""}"#,
            r#" { "t_ms" : 7 , "line" : "a \"b\" \\ \/ \n\t\r\b\f" } "#,
            "{\"t_ms\":1,\"line\":\"é 日本\"}",
            r#"{"t_ms":1,"line":"\u00e9"}"#,
            r#"{"t_ms":1,"line":"a","input":"stderr"}"#,
            r#"{"line":"a","t_ms":1}"#,
            r#"{"t_ms":01,"line":"a"}"#,
            r#"{"t_ms":-1,"line":"a"}"#,
            r#"{"t_ms":99999999999999999999,"line":"a"}"#,
            r#"{"t_ms":1,"line":"a"#,
            r#"{"t_ms":1,"line":"a\"}"#,
            r#"{"t_ms":1,"line":"a""b"}"#,
            r#"{"t_ms":1,"line":"\x"}"#,
            "{\"t_ms\":1,\"line\":\"a\tb\"}",
            r#"{"t_ms":1,"line":"a"}}"#,
            r#"{"t_ms":1,"line":null}"#,
        ] {
            let mut decoded = Vec::new();
            let Some((t_ms, text)) = raw_output(line.as_bytes(), &mut decoded) else { continue };
            quick += 1;
            match read(line.as_bytes(), ReaderName::Plain) {
                Ok((whole, Entry::Line(Stream::Stdout, expected))) => {
                    assert_eq!((t_ms, text), (whole, expected.as_str()), "{line}");
                }
                Ok(_) | Err(_) => panic!("not a line of output: {line}"),
            }
        }
        assert_eq!(quick, 4, "the first four are the form of recordings");
        let broken = b"{\"t_ms\":1,\"line\":\"\xff\"}";
        assert!(raw_output(broken, &mut Vec::new()).is_none());
    }
}
