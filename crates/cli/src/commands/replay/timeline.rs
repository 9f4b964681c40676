//! A timeline: one session, told line by line.

use super::read::Lines;
use crate::error::Failure;
use dogwatch_agents::tools::{call, delegates, is_canceled, is_heartbeat, is_mcp, result};
use dogwatch_agents::{Line, MAX_LINE, Reader, last_marker};
use dogwatch_config::nearest;
use dogwatch_core::dur::Dur;
use dogwatch_core::fingerprint::fingerprint_ends;
use dogwatch_core::hash;
use dogwatch_core::job::Exit;
use dogwatch_core::moment::Awake;
use dogwatch_core::replay::{Did, Finish, Input, Looks, Player, Replayed};
use dogwatch_core::settings::{ReaderName, WatchPolicy};
use dogwatch_core::sign::Sign;
use dogwatch_core::watch::{Session, ToolStarted};
use serde::de::{Deserialize, Deserializer, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// What a line of a timeline can tell.
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
    "keepalive",
    "heartbeat",
    "suspended",
    "exited",
    "end",
    "line",
];

/// A line, whatever its kind. Most is borrowed from the line: there may be millions.
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
    digest: Option<&'a RawValue>,
    live: Option<u32>,
    cpu_ms: Option<u64>,
    for_ms: Option<u64>,
    code: Option<i32>,
    bytes: Option<u64>,
    count: Option<u64>,
}

/// A text, borrowed unless it is written with escapes.
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

/// What was read of a line.
enum Told<'a> {
    Line(Text<'a>),
    Input(Input),
    Exited(i32),
    End,
}

/// What is wrong, and what may have been meant.
struct Wrong(String, Option<String>);

/// The current line is the first.
pub fn replay(mut lines: Lines, name: ReaderName, policy: WatchPolicy) -> Result<Replayed, Failure> {
    let session = Session::new(Awake(0), name.is_structured());
    let mut player = Player::new(policy, session, None, Looks::EveryDue);
    let (mut reader, mut signs) = (Reader::for_name(name), Vec::new());
    let (mut last, mut over) = (0, None);
    while lines.number() > 0 && !lines.current().is_empty() {
        let (t_ms, told) = read(lines.current(), name).map_err(|w| lines.wrong(&w.0, w.1))?;
        if t_ms < last {
            let what = format!("t_ms {t_ms} comes after {last}: lines must be in order of time");
            return Err(lines.wrong(&what, None));
        }
        last = t_ms;
        let at = Awake(t_ms);
        match told {
            // The rest is read for its mistakes only.
            _ if over.is_some() || player.has_stopped() => {}
            Told::Line(text) => {
                let whole = text.as_str().as_bytes();
                let bytes = &whole[..whole.len().min(MAX_LINE)];
                reader.read_line(Line { bytes, cut: bytes.len() < whole.len() }, &mut signs);
                if !bytes.trim_ascii().is_empty() {
                    player.line(at, &mut signs);
                }
                signs.clear();
            }
            Told::Input(input) => player.input(at, input),
            Told::Exited(code) => over = Some((at, Some(code))),
            Told::End => over = Some((at, None)),
        }
        if lines.next()?.is_none() {
            break;
        }
    }
    let (at, code) = over.unwrap_or((Awake(last), None));
    let Some(code) = code else { return Ok(player.finish(at, &Finish::Looked)) };
    reader.finish(&mut signs);
    Ok(exited(player, at, code, &mut signs, name))
}

/// The process has ended; what its reader still had to say belongs to how it ended.
fn exited(mut player: Player, at: Awake, code: i32, signs: &mut Vec<Sign>, name: ReaderName) -> Replayed {
    signs.drain(..).for_each(|sign| player.last_sign(&sign));
    let text = player.tally().result.as_ref().map(|result| result.text.as_str());
    let marker = text.and_then(|text| last_marker(text, name.is_structured(), ""));
    // A shell writes -n for a signal, as the recordings do.
    let exit = if code < 0 { Exit::Signal(code.saturating_neg()) } else { Exit::Code(code) };
    player.finish(at, &Finish::Exited { exit, marker })
}

fn read(line: &[u8], agent: ReaderName) -> Result<(u64, Told<'_>), Wrong> {
    let mut raw: Raw<'_> = serde_json::from_slice(line).map_err(|e| Wrong(plainly(&e), None))?;
    let told = match (raw.line.take(), raw.input.take()) {
        (Some(text), None) => Told::Line(text),
        (None, Some(kind)) => return input(kind.as_str(), raw, agent),
        (Some(_), Some(_)) => return Err(Wrong("has both `line` and `input`".to_owned(), None)),
        (None, None) => return Err(Wrong("has neither `line` nor `input`".to_owned(), None)),
    };
    Ok((raw.t_ms, told))
}

/// The library counts lines of its own; ours is named already.
fn plainly(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.split_once(" at line ") {
        Some((what, _)) if error.is_data() => what.to_owned(),
        Some((what, _)) => format!("not JSON: {what} at column {}", error.column()),
        None => text,
    }
}

fn input<'a>(kind: &str, raw: Raw<'a>, agent: ReaderName) -> Result<(u64, Told<'a>), Wrong> {
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
            Input::McpCall { tool: need(raw.tool, kind, "tool")?.into_string() }
        }
        "subagent" => subagent(raw)?,
        "workspace" => Input::Workspace { digest: raw.digest.and_then(digest) },
        "children" => Input::Children { live: need(raw.live, kind, "live")?, cpu_ms: raw.cpu_ms },
        "keepalive" => Input::Sign(Sign::Keepalive),
        "heartbeat" => Input::Heartbeat,
        "suspended" => Input::Suspended { for_ms: need(raw.for_ms, kind, "for_ms")? },
        "exited" => return Ok((t_ms, Told::Exited(need(raw.code, kind, "code")?))),
        "end" => return Ok((t_ms, Told::End)),
        unknown => return Err(no_such("input", unknown, &KINDS[..KINDS.len() - 1])),
    };
    Ok((t_ms, Told::Input(input)))
}

fn need<T>(field: Option<T>, kind: &str, name: &str) -> Result<T, Wrong> {
    field.ok_or_else(|| Wrong(format!("`{kind}` needs `{name}`"), None))
}

fn one_of(field: &str, word: &str, known: &[&'static str]) -> Result<(), Wrong> {
    if known.contains(&word) { Ok(()) } else { Err(no_such(field, word, known)) }
}

fn no_such(field: &str, word: &str, known: &[&'static str]) -> Wrong {
    let hint = match nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("`{field}` is one of {}", known.join(", ")),
    };
    Wrong(format!("there is no {field} `{word}`"), Some(hint))
}

fn tool_started(raw: Raw<'_>, agent: ReaderName) -> Result<Sign, Wrong> {
    let kind = "tool_started";
    let name = need(raw.name, kind, "name")?.into_string();
    let timeout = match raw.timeout_s {
        Some(s) if s.is_finite() && s >= 0.0 => Some(Dur::from_millis((s * 1000.0).round() as u64)),
        Some(_) => return Err(Wrong("`timeout_s` is not a time".to_owned(), None)),
        None => None,
    };
    Ok(Sign::ToolStarted(ToolStarted {
        id: need(raw.id, kind, "id")?.into_string(),
        call: call(&name, raw.args.map_or("", RawValue::get)),
        timeout: timeout.map(|t| t.min(Dur::LONGEST)),
        delegates: raw.delegates.unwrap_or_else(|| delegates(agent, &name)),
        mcp: is_mcp(agent, &name) || name.starts_with("mcp__"),
        heartbeat: is_heartbeat(agent, &name) || is_heartbeat(ReaderName::Claude, &name),
        name,
    }))
}

fn tool_ended(raw: Raw<'_>, agent: ReaderName) -> Result<Sign, Wrong> {
    let kind = "tool_ended";
    let text = raw.result.map_or(Cow::Borrowed(""), words);
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

fn subagent(raw: Raw<'_>) -> Result<Input, Wrong> {
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

/// A text as it is, anything else as it is written.
fn words(value: &RawValue) -> Cow<'_, str> {
    serde_json::from_str::<Text<'_>>(value.get()).map_or_else(|_| value.get().into(), |text| text.0)
}

/// Null is an unknown state.
fn digest(value: &RawValue) -> Option<u64> {
    (value.get() != "null").then(|| hash::bytes(value.get().as_bytes()))
}
