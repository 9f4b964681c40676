//! The reader of an agent: lines in, signs out.

use crate::claude::Claude;
use crate::codex::Codex;
use crate::gemini::Gemini;
use crate::lines::Line;
use crate::opencode::Opencode;
use crate::plain::Plain;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::sign::Sign;

/// An id or a name of a tool is clipped to so many bytes.
pub(crate) const MAX_NAME: usize = 256;
/// An error's text is clipped to so many bytes.
pub(crate) const MAX_ERROR: usize = 4 * 1024;

/// Reads one session of one agent. Signs are appended to the list that the caller gives, and may be empty.
#[derive(Debug)]
pub enum Reader {
    Plain(Plain),
    Claude(Claude),
    Codex(Codex),
    Opencode(Opencode),
    Gemini(Gemini),
}

impl Reader {
    pub fn for_name(name: ReaderName) -> Reader {
        match name {
            ReaderName::Plain => Reader::Plain(Plain::default()),
            ReaderName::Claude => Reader::Claude(Claude::default()),
            ReaderName::Codex => Reader::Codex(Codex::default()),
            ReaderName::Opencode => Reader::Opencode(Opencode::default()),
            ReaderName::Gemini => Reader::Gemini(Gemini::default()),
        }
    }

    /// A whole line of stdout.
    pub fn read(&mut self, line: &[u8], signs: &mut Vec<Sign>) {
        self.read_line(Line { bytes: line, cut: false }, signs);
    }

    /// A line of stdout, maybe only its beginning. Of a cut line the signs that were seen before the cut
    /// count: else a tool that printed too much would seem to run for ever.
    pub fn read_line(&mut self, line: Line<'_>, signs: &mut Vec<Sign>) {
        match self {
            Reader::Plain(reader) => reader.read(line.bytes, signs),
            Reader::Claude(reader) => reader.read(line, signs),
            Reader::Codex(reader) => reader.read(line, signs),
            Reader::Opencode(reader) => reader.read(line, signs),
            Reader::Gemini(reader) => reader.read(line, signs),
        }
    }

    /// A line of stderr. Structured agents print warnings and retries there: a sign of life, no progress.
    pub fn read_stderr(&mut self, line: &[u8], signs: &mut Vec<Sign>) {
        if is_blank(line) {
            return;
        }
        match self {
            Reader::Plain(_) => signs.push(Sign::Message),
            Reader::Codex(reader) => reader.read_stderr(line, signs),
            Reader::Claude(_) | Reader::Opencode(_) | Reader::Gemini(_) => signs.push(Sign::Keepalive),
        }
    }

    /// The process has ended and all it printed has been read.
    pub fn finish(&mut self, signs: &mut Vec<Sign>) {
        match self {
            Reader::Plain(reader) => reader.finish(signs),
            Reader::Opencode(reader) => reader.finish(signs),
            // Their result is an event. Without it there is none, whatever else was said.
            Reader::Claude(_) | Reader::Codex(_) | Reader::Gemini(_) => {}
        }
    }
}

pub(crate) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}
