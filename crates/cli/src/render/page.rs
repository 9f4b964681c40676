//! How things look. Nothing gets onto the page but through `put`.

use crate::screen::{Line, Tone, words};
use dogwatch_core::text::{clip, one_line, printable, printable_bytes};
use std::borrow::Cow;

/// The longest line of an agent's words, and of a plain agent's output, in bytes.
const MAX_WORDS: usize = 4_000;
/// What is shown of a call, and of the first line of its result.
const MAX_ARGUMENT: usize = 120;
/// How a result that comes out of order names its call.
const MAX_LABEL: usize = 40;
/// What is shown of an error.
const MAX_ERROR: usize = 400;
/// So many open calls are remembered, for results that come out of order.
const MAX_OPEN: usize = 64;
/// A line that comes in pieces is shown in parts beyond this length.
const MAX_PIECES: usize = 64 * 1024;
/// How much of what was said last is remembered, to not say it twice.
const MAX_LAST: usize = 4_000;

#[derive(Default)]
pub struct Page {
    lines: Vec<Line>,
    work_dir: String,
    /// What follows is a subagent's.
    nested: bool,
    /// A line of which not all has come.
    piece: String,
    open: Vec<Call>,
    /// The call that the last line was about.
    latest: Option<String>,
    last_said: String,
    last_error: String,
}

struct Call {
    id: String,
    subject: String,
}

impl Page {
    pub fn new(work_dir: &str) -> Page {
        let work_dir = work_dir.trim_end_matches('/');
        // Without one, or in the root, a path is shown as it is.
        let work_dir = if work_dir.is_empty() { String::new() } else { format!("{work_dir}/") };
        Page { work_dir, ..Page::default() }
    }

    pub fn take(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.lines)
    }

    /// Whether what follows comes from inside a subagent.
    pub fn set_nested(&mut self, nested: bool) {
        self.nested = nested;
    }

    /// The agent's words.
    pub fn say(&mut self, words: &str) {
        self.end_piece();
        if words.trim().is_empty() {
            return;
        }
        if !self.nested {
            self.last_said = clip(words.trim(), MAX_LAST).to_owned();
        }
        self.words(words.trim_matches('\n'));
    }

    /// The same, unless it was just said: a final result repeats the last message.
    pub fn say_once(&mut self, words: &str) {
        let new = match words.trim().strip_prefix(self.last_said.as_str()) {
            // It was said; of a long text only the beginning is remembered, up to a character's length.
            Some(rest) if rest.is_empty() || self.last_said.len() > MAX_LAST - 4 => return,
            Some(rest) => rest,
            None => words,
        };
        self.say(new);
    }

    /// Words that come in pieces, which may end anywhere.
    pub fn say_piece(&mut self, words: &str) {
        self.piece.push_str(words);
        if let Some(end) = self.piece.rfind('\n') {
            let rest = self.piece.split_off(end + 1);
            let whole = std::mem::replace(&mut self.piece, rest);
            self.words(whole.trim_end_matches('\n'));
        }
        if self.piece.len() > MAX_PIECES {
            self.end_piece();
        }
    }

    /// Nothing more comes of the line that has begun.
    pub fn end_piece(&mut self) {
        if !self.piece.is_empty() {
            let piece = std::mem::take(&mut self.piece);
            self.words(&piece);
        }
    }

    /// What is good to know and not the point: thinking, retries, the model.
    pub fn aside(&mut self, words: &str) {
        let words = one_line(words, MAX_ARGUMENT);
        if !words.is_empty() {
            self.event(Tone::Quiet, &format!("· {words}"));
        }
    }

    pub fn call(&mut self, id: &str, name: &str, subject: &str) {
        let subject = one_line(&self.shortened(subject), MAX_ARGUMENT);
        let name = one_line(name, MAX_ARGUMENT);
        let separator = if subject.is_empty() { "" } else { ": " };
        self.event(Tone::Head, &format!("→ {name}{separator}{subject}"));
        self.open.truncate(MAX_OPEN - 1);
        let label = if subject.is_empty() { name } else { subject };
        self.open.insert(0, Call { id: id.to_owned(), subject: label });
        self.latest = Some(id.to_owned());
    }

    fn shortened<'a>(&self, subject: &'a str) -> Cow<'a, str> {
        if self.work_dir.is_empty() { subject.into() } else { subject.replace(&self.work_dir, "").into() }
    }

    pub fn is_open(&self, id: &str) -> bool {
        self.open.iter().any(|call| call.id == id)
    }

    /// The end of a call. One that does not follow its call says which it belongs to.
    pub fn reply(&mut self, id: &str, ok: bool, result: &str) {
        let at = self.open.iter().position(|call| call.id == id);
        let call = at.map(|at| self.open.remove(at));
        let of = match call {
            Some(call) if self.latest.as_deref() != Some(id) => {
                format!("({}) ", one_line(&call.subject, MAX_LABEL))
            }
            Some(_) | None => String::new(),
        };
        let first = one_line(result, MAX_ARGUMENT);
        let more = result.trim().lines().count().saturating_sub(1);
        let more =
            if more > 0 { format!(" (+{})", words::count(more as u64, "line")) } else { String::new() };
        let (tone, sign) = if ok { (Tone::Quiet, '✓') } else { (Tone::Bad, '✗') };
        self.event(tone, format!("  {sign} {of}{first}{more}").trim_end());
        self.latest = None;
    }

    /// Something went wrong. Told once, though it may come as a message and as a result.
    pub fn fail(&mut self, error: &str) {
        let error = one_line(error, MAX_ERROR);
        if error != self.last_error {
            self.event(Tone::Bad, &format!("✗ {error}"));
            self.last_error = error;
        }
    }

    /// The end of a turn, and what it took.
    pub fn done(&mut self, parts: &[String]) {
        let took = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
        self.event(Tone::Good, &format!("= done{took}"));
    }

    /// A line of an agent that prints whatever it likes. What a carriage return would have overwritten on a
    /// terminal is not shown.
    pub fn plain(&mut self, line: &[u8]) {
        let shown = line.split(|b| *b == b'\r').rfind(|part| !part.is_empty()).unwrap_or(b"");
        self.put(Tone::Plain, &printable_bytes(shown));
    }

    fn event(&mut self, tone: Tone, text: &str) {
        self.end_piece();
        self.latest = None;
        self.put(tone, text);
    }

    fn words(&mut self, words: &str) {
        self.latest = None;
        for line in printable(words).lines() {
            self.put(Tone::Plain, line);
        }
    }

    /// The one way onto the page.
    fn put(&mut self, tone: Tone, text: &str) {
        let clean = printable(text);
        let clipped = clip(&clean, MAX_WORDS);
        let cut = if clipped.len() < clean.len() { "…" } else { "" };
        let margin = if self.nested { "    " } else { "" };
        // A newline within would be a line that nobody looked at.
        let line = format!("{margin}{clipped}{cut}").replace('\n', " ");
        self.lines.push(Line { tone, text: line });
    }
}
