//! What an agent printed, made readable: its words as they are, a tool as one line, a result as one line.
//!
//! `logs` feeds the raw bytes of an iteration, as many at a time as it likes; lines come out. One file per
//! agent knows its events, `page` knows how things look. Everything passes `printable`, whatever it was.
//! This is for eyes only: what the output *means* is decided by the readers in `dogwatch-agents`.

mod claude;
mod codex;
mod gemini;
mod opencode;
mod page;
#[cfg(test)]
mod tests;

use crate::screen::Line;
use dogwatch_agents::{Line as RawLine, Splitter};
use dogwatch_core::settings::ReaderName;
use page::Page;
use serde_json::Value;

/// A line of JSON that is longer is not looked into: as values it would cost many times its length.
const MAX_EVENT: usize = 1024 * 1024;
/// So much of a plain agent's line is looked at; less of it is shown.
const MAX_PLAIN: usize = 64 * 1024;

/// Turns the bytes of one stream of one session into lines to show.
pub struct Renderer {
    splitter: Splitter,
    agent: Agent,
    page: Page,
}

enum Agent {
    Plain,
    Claude,
    Codex,
    Opencode(opencode::Sums),
    Gemini,
}

impl Renderer {
    /// Paths below `work_dir` are shown without it.
    pub fn new(reader: ReaderName, work_dir: &str) -> Renderer {
        let (agent, max) = match reader {
            ReaderName::Plain => (Agent::Plain, MAX_PLAIN),
            ReaderName::Claude => (Agent::Claude, MAX_EVENT),
            ReaderName::Codex => (Agent::Codex, MAX_EVENT),
            ReaderName::Opencode => (Agent::Opencode(opencode::Sums::default()), MAX_EVENT),
            ReaderName::Gemini => (Agent::Gemini, MAX_EVENT),
        };
        Renderer { splitter: Splitter::with_max(max), agent, page: Page::new(work_dir) }
    }

    /// The lines that these bytes complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Line> {
        let (agent, page) = (&mut self.agent, &mut self.page);
        self.splitter.feed(bytes, |line| agent.show(line, page));
        page.take()
    }

    /// The stream is over: what is still held back.
    pub fn finish(&mut self) -> Vec<Line> {
        let (agent, page) = (&mut self.agent, &mut self.page);
        self.splitter.finish(|line| agent.show(line, page));
        page.end_piece();
        page.take()
    }
}

impl Agent {
    fn show(&mut self, line: RawLine<'_>, page: &mut Page) {
        if let Agent::Plain = self {
            return page.plain(line.bytes);
        }
        if line.cut {
            return page.aside("a line of more than 1 MiB is not shown; `--raw` has its beginning");
        }
        // What is no event is a warning of the program's own, or half a line: not for these eyes.
        let Ok(event) = serde_json::from_slice::<Value>(line.bytes) else { return };
        match self {
            Agent::Plain => {}
            Agent::Claude => claude::show(&event, page),
            Agent::Codex => codex::show(&event, page),
            Agent::Opencode(sums) => opencode::show(&event, sums, page),
            Agent::Gemini => gemini::show(&event, page),
        }
    }
}

/// A text that may be missing.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// The text of a content that is a text, or a list of parts that have one.
fn content(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(|part| text(&part["text"])).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

/// What a call is about, in one piece: the first that it has of what people look for.
fn subject(input: &Value) -> String {
    const TELLING: [&str; 13] = [
        "command",
        "cmd",
        "file_path",
        "filePath",
        "absolute_path",
        "path",
        "pattern",
        "query",
        "url",
        "description",
        "prompt",
        "subject",
        "note",
    ];
    let Some(fields) = input.as_object().filter(|fields| !fields.is_empty()) else {
        return text(input).to_owned();
    };
    let known = TELLING.iter().find_map(|key| fields.get(*key)?.as_str());
    let known = known.or_else(|| fields.values().find_map(Value::as_str));
    known.map_or_else(|| input.to_string(), str::to_owned)
}
