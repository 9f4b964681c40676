//! Formats the lines. All text passes through `put`.

use super::words;
use crate::reader::without_charged;
use dogwatch_core::record::calls::relative;
use dogwatch_core::record::event::Usage;
use dogwatch_core::record::words::{ShownLine, Tone};
use dogwatch_core::text::{clip, one_line, printable, printable_bytes};

/// The longest line of a message, or of a plain agent's output, in bytes.
const MAX_WORDS: usize = 4_000;
/// The most of a call, and of the first line of its result, to show, in bytes.
const MAX_ARGUMENT: usize = 120;
/// The longest name of a call in front of a result that comes out of order, in bytes.
const MAX_LABEL: usize = 40;
/// The most of an error to show, in bytes.
const MAX_ERROR: usize = 400;
/// The most open calls to remember, for results that come out of order.
const MAX_OPEN: usize = 64;
/// The longest line to collect from pieces, in bytes. A longer line is shown in parts.
const MAX_PIECES: usize = 64 * 1024;
/// The most of the last message to remember, in bytes, so that it is not shown twice.
const MAX_LAST: usize = 4_000;

/// The lines rendered so far, and the state between them.
#[derive(Default)]
pub struct Page {
    lines: Vec<ShownLine>,
    work_dir: String,
    /// The next lines belong to a subagent.
    nested: bool,
    /// An incomplete line.
    piece: String,
    open: Vec<Call>,
    /// The call that the last line was about.
    latest: Option<String>,
    last_said: String,
    last_error: String,
    /// The session that the agent may resume, and the usage that it was already charged with.
    resumed: Option<(String, Usage)>,
    /// The agent resumes it.
    resumes: bool,
}

struct Call {
    id: String,
    subject: String,
}

impl Page {
    /// Returns an empty page. Paths below `work_dir` are shown relative to it.
    pub fn new(work_dir: &str, resumed: Option<(String, Usage)>) -> Page {
        Page { work_dir: work_dir.to_owned(), resumed, ..Page::default() }
    }

    /// Removes and returns the rendered lines.
    pub fn take(&mut self) -> Vec<ShownLine> {
        std::mem::take(&mut self.lines)
    }

    /// Notes the ids of the agent's session that a line contains.
    pub fn note_session<'a>(&mut self, mut ids: impl Iterator<Item = &'a str>) {
        if let Some((resumed, _)) = &self.resumed {
            self.resumes |= ids.any(|id| id == resumed);
        }
    }

    /// Formats the tokens and the cost that the agent reports. A resumed session reports totals, which include what was
    /// charged before.
    pub fn usage(&self, tokens: Option<u64>, cost_usd: Option<f64>) -> Vec<String> {
        let charged =
            self.resumed.as_ref().filter(|_| self.resumes).map_or(Usage::default(), |(_, used)| *used);
        let Usage { tokens, cost_usd, .. } =
            without_charged(Usage { tokens, cost_usd, ..Usage::default() }, charged);
        let tokens = tokens.map(|n| words::count(n, "token"));
        tokens.into_iter().chain(cost_usd.map(|cost| format!("${cost:.2}"))).collect()
    }

    /// Sets whether the next lines belong to a subagent.
    pub fn set_nested(&mut self, nested: bool) {
        self.nested = nested;
    }

    /// Adds a message of the agent.
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

    /// Adds a message unless it repeats the last one, as a final result does.
    pub fn say_once(&mut self, words: &str) {
        let new = match words.trim().strip_prefix(self.last_said.as_str()) {
            // A repeat. Of a long message only the start is remembered, cut at a character boundary.
            Some(rest) if rest.is_empty() || self.last_said.len() > MAX_LAST - 4 => return,
            Some(rest) => rest,
            None => words,
        };
        self.say(new);
    }

    /// Adds a piece of a message. A piece may end anywhere.
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

    /// Completes the line that was collected from pieces.
    pub fn end_piece(&mut self) {
        if !self.piece.is_empty() {
            let piece = std::mem::take(&mut self.piece);
            self.words(&piece);
        }
    }

    /// Adds secondary information: thinking, retries, the model.
    pub fn aside(&mut self, words: &str) {
        let words = one_line(words, MAX_ARGUMENT);
        if !words.is_empty() {
            self.event(Tone::Quiet, &format!("· {words}"));
        }
    }

    /// Adds a tool call.
    pub fn call(&mut self, id: &str, name: &str, subject: &str) {
        let subject = one_line(&relative(subject, &self.work_dir), MAX_ARGUMENT);
        let name = words::tool(&one_line(name, MAX_ARGUMENT));
        self.event(Tone::Head, &format!("→ {}", words::call(&name, &subject)));
        self.open.truncate(MAX_OPEN - 1);
        let label = if subject.is_empty() { name } else { subject };
        self.open.insert(0, Call { id: id.to_owned(), subject: label });
        self.latest = Some(id.to_owned());
    }

    /// Returns whether a call has no result yet.
    pub fn is_open(&self, id: &str) -> bool {
        self.open.iter().any(|call| call.id == id)
    }

    /// Adds the result of a call. A result that does not directly follow its call names the call.
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

    /// Adds an error. An error that arrives both as a message and as a result is shown once.
    pub fn fail(&mut self, error: &str) {
        let error = one_line(error, MAX_ERROR);
        if error != self.last_error {
            self.event(Tone::Bad, &format!("✗ {error}"));
            self.last_error = error;
        }
    }

    /// Adds the end of a turn with its duration, tokens and cost.
    pub fn done(&mut self, parts: &[String]) {
        let took = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
        self.event(Tone::Good, &format!("= done{took}"));
    }

    /// Adds a line of a plain agent. Text that a carriage return would overwrite on a terminal is omitted.
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

    /// Adds a line after cleaning and clipping its text. Every line passes through here.
    fn put(&mut self, tone: Tone, text: &str) {
        let clean = printable(text);
        let clipped = clip(&clean, MAX_WORDS);
        let cut = if clipped.len() < clean.len() { "…" } else { "" };
        let margin = if self.nested { "    " } else { "" };
        // A newline inside the text would start a line that was not checked.
        let line = format!("{margin}{clipped}{cut}").replace('\n', " ");
        self.lines.push(ShownLine { tone, text: line });
    }
}
