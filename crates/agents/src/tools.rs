//! Classifies tool calls by their names, arguments and results.

use crate::inject::SERVER;
use crate::json::{Json, Raw, unescape};
use crate::reader::MAX_NAME;
use dogwatch_core::record::hash;
use dogwatch_core::run::agent_channel::HEARTBEAT_TOOL;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::text::fingerprint::{digest, fingerprint_ends};
use dogwatch_core::text::{one_line, redact};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::watch::ToolStarted;
use dogwatch_core::watch::sign::Sign;

/// Returns a single name for a call of an MCP server's tool, for CLIs that print server and tool separately.
pub(crate) fn mcp_name(server: &str, tool: &str) -> String {
    format!("mcp__{server}__{tool}")
}

/// The prefix of Codex's multi-agent tools, whose own names are common words such as `wait`.
pub(crate) const COLLAB: &str = "collab:";

/// Returns whether the call delegates to a subagent. Its duration then depends on the subagent, not on the tool.
pub fn delegates(reader: ReaderName, tool: &str) -> bool {
    match reader {
        ReaderName::Plain => false,
        ReaderName::Claude => matches!(tool, "Task" | "Agent"),
        ReaderName::Codex => tool.starts_with(COLLAB),
        ReaderName::Opencode => tool == "task",
        ReaderName::Gemini => tool == "invoke_agent",
    }
}

/// Returns whether the call goes to an MCP server. opencode does not mark such calls, but prefixes them with the name
/// of the server and an underscore, which few of its own tools contain.
pub fn is_mcp(reader: ReaderName, tool: &str) -> bool {
    match reader {
        ReaderName::Plain => false,
        ReaderName::Opencode => {
            tool.contains('_') && !matches!(tool, "apply_patch" | "plan_enter" | "plan_exit")
        }
        ReaderName::Claude | ReaderName::Codex => tool.starts_with("mcp__"),
        ReaderName::Gemini => tool.starts_with("mcp_"),
    }
}

/// Returns whether the call is dogwatch's heartbeat tool, under the name that the CLI gives it.
pub fn is_heartbeat(reader: ReaderName, tool: &str) -> bool {
    let named = |prefix: &str, between: &str| {
        let rest = tool.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(SERVER));
        rest.and_then(|rest| rest.strip_prefix(between)) == Some(HEARTBEAT_TOOL)
    };
    match reader {
        ReaderName::Plain => false,
        ReaderName::Claude | ReaderName::Codex => named("mcp__", "__"),
        ReaderName::Opencode => named("", "_"),
        ReaderName::Gemini => named("mcp_", "_"),
    }
}

/// Returns whether the call's `timeout` argument is in milliseconds. For other tools the unit is unknown.
fn declares_timeout(reader: ReaderName, tool: &str) -> bool {
    match reader {
        ReaderName::Claude => matches!(tool, "Bash" | "TaskOutput" | "Monitor"),
        ReaderName::Opencode => tool == "bash",
        ReaderName::Plain | ReaderName::Codex | ReaderName::Gemini => false,
    }
}

/// The longest subject of a call, in bytes.
pub const MAX_SUBJECT: usize = 120;
/// The most escaped bytes of an argument that are decoded for the subject.
const MAX_RAW_SUBJECT: usize = 4 * MAX_SUBJECT;

/// The most informative arguments of a call, most informative first.
const SUBJECTS: [&[u8]; 15] = [
    b"command",
    b"cmd",
    b"file_path",
    b"filePath",
    b"absolute_path",
    b"path",
    b"pattern",
    b"query",
    b"url",
    b"description",
    b"prompt",
    b"subject",
    b"note",
    b"changes",
    b"arguments",
];

/// The relevant part of a call's arguments. The default means a call without arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Args<'a> {
    pub hash: u64,
    pub timeout_ms: Option<u64>,
    /// The only argument, if it is a text without a name.
    text: Option<Raw<'a>>,
    /// The most informative argument of the call.
    subject: Option<Subject<'a>>,
    /// All arguments, as written.
    written: &'a [u8],
}

/// An argument of a call, as written. The lowest rank is the most informative; equal ranks are ordered by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Subject<'a> {
    rank: usize,
    key: &'a [u8],
    written: &'a [u8],
}

impl<'a> Args<'a> {
    /// Reads the arguments from a JSON object.
    pub fn of(json: &mut Json<'a>) -> Args<'a> {
        let mut args = Args::default();
        match json.kind() {
            Some(b'{') => {
                args.written = json.span();
                Json::value(args.written).fields(|key, json| args.add(key, json));
            }
            Some(b'"') => {
                let written = json.span();
                args.hash = hash::bytes(written);
                args.consider(b"", written);
            }
            _ => args.hash = canonical(json, MAX_DEPTH),
        }
        args
    }

    /// Returns arguments that consist of one text.
    pub fn of_text(text: Raw<'a>) -> Args<'a> {
        Args { hash: hash::bytes(text.0), text: Some(text), ..Args::default() }
    }

    /// Returns the most informative argument as one line for people, without secrets.
    pub fn subject(self) -> String {
        let text = match (self.text, self.subject) {
            (Some(text), _) => text.decode_head(MAX_RAW_SUBJECT),
            (None, Some(subject)) => words(subject.written, 2),
            (None, None) if self.written == b"{}" => return String::new(),
            (None, None) => {
                let start = &self.written[..self.written.len().min(MAX_RAW_SUBJECT)];
                String::from_utf8_lossy(start).into_owned()
            }
        };
        one_line(&redact::text(unwrapped(text.trim())), MAX_SUBJECT - '…'.len_utf8())
    }

    /// Replaces the subject with this argument if the argument is more informative. An unknown argument must be a text.
    fn consider(&mut self, key: &'a [u8], written: &'a [u8]) {
        let rank = SUBJECTS.iter().position(|known| *known == key).unwrap_or(SUBJECTS.len());
        let fits = match written.first() {
            Some(b'"') => !Raw(written.get(1..written.len() - 1).unwrap_or_default()).is_blank(),
            Some(b'[' | b'{') => rank < SUBJECTS.len(),
            Some(_) | None => false,
        };
        if fits && self.subject.is_none_or(|known| (rank, key) < (known.rank, known.key)) {
            self.subject = Some(Subject { rank, key, written });
        }
    }

    fn timeout(self, reader: ReaderName, name: &str) -> Option<Dur> {
        let declared = self.timeout_ms.filter(|_| declares_timeout(reader, name))?;
        Some(Dur::from_millis(declared).min(Dur::LONGEST))
    }

    /// Adds an argument. The hashes are summed, because the order of arguments does not matter.
    pub fn add(&mut self, key: &'a [u8], json: &mut Json<'a>) {
        let written = json.span();
        let hash = if key == b"timeout" {
            self.timeout_ms = Json::value(written).whole();
            hash::bytes(written)
        } else {
            self.consider(key, written);
            canonical(&mut Json::value(written), MAX_DEPTH)
        };
        self.hash = self.hash.wrapping_add(hash::mix(hash::bytes(key), hash));
    }
}

/// Returns the text of an argument: the text itself, the texts of a list, or the most informative field of an object.
fn words(written: &[u8], depth: usize) -> String {
    let mut json = Json::value(written);
    match json.kind() {
        Some(b'"') => json.text().unwrap_or_default().decode_head(MAX_RAW_SUBJECT),
        Some(b'[') if depth > 0 => {
            let (mut texts, mut length) = (Vec::new(), 0);
            json.items(|json| {
                let item = json.span();
                if length < MAX_SUBJECT {
                    texts.push(words(item, depth - 1));
                    length += texts.last().map_or(0, String::len);
                }
            });
            // A list of words is a command line; other lists name files.
            texts.join(if written.starts_with(b"[\"") { " " } else { ", " })
        }
        Some(b'{') if depth > 0 => {
            let mut args = Args::default();
            json.fields(|key, json| args.consider(key, json.span()));
            args.subject.map_or_else(String::new, |subject| words(subject.written, depth - 1))
        }
        _ => String::new(),
    }
}

/// Removes the shell around a command: `/bin/bash -lc 'make test'` becomes `make test`.
fn unwrapped(command: &str) -> &str {
    let inner = command.split_once(" -lc ").filter(|(shell, _)| !shell.contains(' ')).map(|(_, rest)| rest);
    let Some(inner) = inner else { return command };
    let quoted = |q: char| inner.strip_prefix(q).and_then(|rest| rest.strip_suffix(q));
    quoted('\'').or_else(|| quoted('"')).unwrap_or(inner)
}

/// Returns the subject of a call whose arguments are given as JSON.
pub fn subject(args: &str) -> String {
    Args::of(&mut Json::value(args.as_bytes())).subject()
}

/// Below this depth arguments are hashed as written.
const MAX_DEPTH: usize = 32;

/// Hashes a value, independent of the order of keys and of white space.
fn canonical(json: &mut Json<'_>, depth: usize) -> u64 {
    let mut sum = 0;
    let kind = json.kind();
    match kind {
        Some(b'{') if depth > 0 => json.fields(|key, json| {
            sum = u64::wrapping_add(sum, hash::mix(hash::bytes(key), canonical(json, depth - 1)));
        }),
        Some(b'[') if depth > 0 => json.items(|json| sum = hash::mix(sum, canonical(json, depth - 1))),
        _ => return hash::bytes(json.span()),
    }
    hash::mix(sum, u64::from(kind.unwrap_or(0)))
}

/// Returns the hash of a call whose arguments are given as JSON.
pub fn call(name: &str, args: &str) -> u64 {
    hash::mix(hash::bytes(name.as_bytes()), Args::of(&mut Json::value(args.as_bytes())).hash)
}

/// Returns the timeout that a call declares in its arguments, which are given as JSON.
pub fn declared_timeout(reader: ReaderName, name: &str, args: &str) -> Option<Dur> {
    Args::of(&mut Json::value(args.as_bytes())).timeout(reader, name)
}

/// Returns the hash of a result that is given as text.
pub fn result(text: &str) -> u64 {
    digest(text.as_bytes())
}

pub(crate) fn started(reader: ReaderName, id: Raw<'_>, name: String, args: Args<'_>) -> Sign {
    Sign::ToolStarted(ToolStarted {
        id: id.decode_head(MAX_NAME),
        subject: args.subject(),
        call: hash::mix(hash::bytes(name.as_bytes()), args.hash),
        timeout: args.timeout(reader, &name),
        delegates: delegates(reader, &name),
        mcp: is_mcp(reader, &name),
        heartbeat: is_heartbeat(reader, &name),
        name,
    })
}

/// Returns the end of a call. `result` is a JSON value as written; `code` is an exit code that is not part of it.
pub(crate) fn ended(reader: ReaderName, id: Raw<'_>, ok: bool, result: &[u8], code: Option<i64>) -> Sign {
    end(reader, id, ok, &unescape(&ends(result)), result, code)
}

/// Returns the end of a call whose result is a text.
pub(crate) fn ended_with_text(
    reader: ReaderName,
    id: Raw<'_>,
    ok: bool,
    text: &str,
    code: Option<i64>,
) -> Sign {
    end(reader, id, ok, text, b"", code)
}

fn end(reader: ReaderName, id: Raw<'_>, ok: bool, text: &str, written: &[u8], code: Option<i64>) -> Sign {
    let words = if ok { String::new() } else { words_of(text, written) };
    let canceled = !ok && is_canceled(reader, &words);
    let error = if ok { String::new() } else { complaint(&words, code) };
    let sum = digest(text.as_bytes());
    let result = code.map_or(sum, |code| hash::mix(sum, code.unsigned_abs()));
    Sign::ToolEnded { id: id.decode_head(MAX_NAME), ok, result, error, heartbeat: false, canceled }
}

/// Returns whether an error says that the call never ran because a parallel call failed. Versions of Claude Code word
/// this differently.
pub fn is_canceled(reader: ReaderName, error: &str) -> bool {
    if reader != ReaderName::Claude {
        return false;
    }
    let error = error.trim();
    let inner =
        error.strip_prefix("<tool_use_error>").and_then(|rest| rest.strip_suffix("</tool_use_error>"));
    let inner = inner.unwrap_or(error);
    inner == "Sibling tool call errored"
        || (inner.starts_with("Cancelled: parallel tool call ") && inner.ends_with(" errored"))
}

/// Returns the two ends of a result that may be megabytes long; as much as the digest uses.
fn ends(written: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    const END: usize = 32 * 1024;
    if written.len() <= 2 * END {
        return written.into();
    }
    let (head, tail) = (&written[..END], &written[written.len() - END..]);
    [head, b" ", tail].concat().into()
}

/// Returns the words of a result, without its brackets and quotes.
fn words_of(text: &str, written: &[u8]) -> String {
    let mut words = String::new();
    first_text(&mut Json::value(written), &mut words);
    if words.is_empty() { text.trim_matches('"').to_owned() } else { words }
}

/// Returns the error message of a failed call.
fn complaint(words: &str, code: Option<i64>) -> String {
    let code = code.filter(|code| *code != 0).map(|code| format!("exit {code} "));
    match code.unwrap_or_default() + &fingerprint_ends(words) {
        nothing if nothing.is_empty() => "failed".to_owned(),
        complaint => complaint,
    }
}

/// Finds the first text in `[{"type":"text","text":"…"}]`, `{"message":"…"}` or `{"content":[…]}`.
fn first_text(json: &mut Json<'_>, words: &mut String) {
    match json.kind() {
        Some(b'[') => json.items(|json| {
            json.fields(|key, json| {
                if let (b"text", true) = (key, words.is_empty()) {
                    *words = json.text().unwrap_or_default().decode();
                }
            });
        }),
        Some(b'{') => json.fields(|key, json| match key {
            b"message" | b"text" => *words = json.text().unwrap_or_default().decode(),
            _ => {}
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_of_a_call_is_its_most_informative_argument_without_secrets() {
        for (args, expected) in [
            (r#"{"description":"run it","command":"make test"}"#, "make test"),
            (r#"{"timeout":5,"file_path":"/w/a.rs","content":"x"}"#, "/w/a.rs"),
            (r#"{"command":["bash","-lc","make test"]}"#, "make test"),
            (r#"{"changes":[{"path":"a.rs","kind":"add"},{"path":"b.rs"}]}"#, "a.rs, b.rs"),
            (r#"{"arguments":{"query":"is:open"}}"#, "is:open"),
            (r#"{"b":"second","a":"first"}"#, "first"),
            (r#"{"n":3}"#, r#"{"n":3}"#),
            (r#"{"command":"  "}"#, r#"{"command":"  "}"#),
            ("{}", ""),
            (r#""plain words""#, "plain words"),
            (r#"{"command":"curl --token abc x\nmore\u001b[2J"}"#, "curl --token *** x"),
            (r#"{"command":"echo hi"#, ""),
        ] {
            assert_eq!(subject(args), expected, "{args}");
        }
    }

    #[test]
    fn a_subject_is_bounded() {
        for length in [MAX_SUBJECT - 1, MAX_SUBJECT, MAX_SUBJECT + 1, 100_000] {
            let found = subject(&format!(r#"{{"command":"{}"}}"#, "x".repeat(length)));
            assert!(found.len() <= MAX_SUBJECT, "{length}: {}", found.len());
        }
    }
}
