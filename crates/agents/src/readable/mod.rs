//! Makes the output of an agent readable: messages as text, one line per tool call, one line per result.
//!
//! `logs`, `top`, `run --verbose` and the dashboard feed the raw bytes of an iteration in chunks of any size and get lines
//! back. There is one file per agent that knows its events; `page` formats the lines. All text passes through
//! `printable`. This module only displays output; the readers decide what it means.

mod claude;
mod codex;
mod gemini;
mod opencode;
mod page;

use crate::lines::{Line, Splitter};
use dogwatch_core::record::event::Usage;
use dogwatch_core::record::words::ShownLine;
use dogwatch_core::settings::ReaderName;
use page::Page;
use serde_json::Value;

/// The longest line of JSON to parse, in bytes. Parsed values need many times the memory of the text.
pub const MAX_EVENT: usize = 1024 * 1024;
/// The most of a plain agent's line to read, in bytes. Less of it is shown.
const MAX_PLAIN: usize = 64 * 1024;

/// Turns the bytes of one stream of a session into lines.
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
    /// Creates a renderer. Paths in `work_dir` are shown relative to it.
    pub fn new(reader: ReaderName, work_dir: &str) -> Renderer {
        Renderer::for_session(reader, work_dir, None)
    }

    /// Creates a renderer for a session that may resume an earlier one of the agent. The usage that the earlier one was
    /// charged with is not shown again.
    pub fn for_session(reader: ReaderName, work_dir: &str, resumed: Option<(String, Usage)>) -> Renderer {
        let (agent, max) = match reader {
            ReaderName::Plain => (Agent::Plain, MAX_PLAIN),
            ReaderName::Claude => (Agent::Claude, MAX_EVENT),
            ReaderName::Codex => (Agent::Codex, MAX_EVENT),
            ReaderName::Opencode => (Agent::Opencode(opencode::Sums::default()), MAX_EVENT),
            ReaderName::Gemini => (Agent::Gemini, MAX_EVENT),
        };
        Renderer { splitter: Splitter::with_max(max), agent, page: Page::new(work_dir, resumed) }
    }

    /// Returns the lines that these bytes complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<ShownLine> {
        let (agent, page) = (&mut self.agent, &mut self.page);
        self.splitter.feed(bytes, |line| agent.show(line, page));
        page.take()
    }

    /// Returns the remaining lines at the end of the stream.
    pub fn finish(&mut self) -> Vec<ShownLine> {
        let (agent, page) = (&mut self.agent, &mut self.page);
        self.splitter.finish(|line| agent.show(line, page));
        page.end_piece();
        page.take()
    }
}

impl Agent {
    fn show(&mut self, line: Line<'_>, page: &mut Page) {
        if let Agent::Plain = self {
            return page.plain(line.bytes);
        }
        if line.cut {
            return page.aside("a line longer than 1 MiB is not shown; --raw shows its start");
        }
        // A line that is not JSON is a warning of the program or an incomplete line. Skip it.
        let Ok(event) = serde_json::from_slice::<Value>(line.bytes) else { return };
        page.note_session([&event["session_id"], &event["thread_id"]].map(text).into_iter());
        match self {
            Agent::Plain => {}
            Agent::Claude => claude::show(&event, page),
            Agent::Codex => codex::show(&event, page),
            Agent::Opencode(sums) => opencode::show(&event, sums, page),
            Agent::Gemini => gemini::show(&event, page),
        }
    }
}

/// Returns the string in a value, or an empty string.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// Returns the text of a content field, which is a string or a list of parts with a `text` field.
#[expect(clippy::wildcard_enum_match_arm, reason = "the enum belongs to another crate and may gain variants")]
fn content(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(|part| text(&part["text"])).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

/// Returns the most informative argument of a tool call.
fn subject(input: &Value) -> String {
    crate::tools::subject(&input.to_string())
}

/// The words and figures that all displays share.
mod words {
    pub use dogwatch_core::record::words::*;
    pub use dogwatch_core::text::figures::*;
}
