//! The reader of an agent: lines in, signs out.

use crate::claude::Claude;
use crate::codex::Codex;
use crate::drift::Drift;
use crate::gemini::Gemini;
use crate::limits;
use crate::lines::Line;
use crate::novelty::Novelty;
use crate::opencode::Opencode;
use crate::plain::Plain;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::sign::{Heartbeats, Sign};

/// An id or a name of a tool is clipped to so many bytes.
pub(crate) const MAX_NAME: usize = 256;
/// An error's text is clipped to so many bytes.
pub(crate) const MAX_ERROR: usize = 4 * 1024;

/// Reads one session of one agent. Signs are appended to the list that the caller gives, and may be empty.
#[derive(Debug)]
pub struct Reader {
    kind: Kind,
    drift: Drift,
    novelty: Novelty,
    heartbeats: Heartbeats,
}

#[derive(Debug)]
enum Kind {
    Plain(Plain),
    Claude(Claude),
    Codex(Codex),
    Opencode(Opencode),
    Gemini(Gemini),
}

impl Reader {
    pub fn for_name(name: ReaderName) -> Reader {
        let kind = match name {
            ReaderName::Plain => Kind::Plain(Plain::default()),
            ReaderName::Claude => Kind::Claude(Claude::default()),
            ReaderName::Codex => Kind::Codex(Codex::default()),
            ReaderName::Opencode => Kind::Opencode(Opencode::default()),
            ReaderName::Gemini => Kind::Gemini(Gemini::default()),
        };
        Reader {
            kind,
            drift: Drift::default(),
            novelty: Novelty::default(),
            heartbeats: Heartbeats::default(),
        }
    }

    /// The lines that follow, up to the next call, have come at one moment. Who never says so has every line
    /// judged by itself; who does spares much work in a flood (see `novelty`).
    pub fn begin_chunk(&mut self) {
        self.novelty.begin_chunk();
    }

    /// A whole line of stdout.
    pub fn read(&mut self, line: &[u8], signs: &mut Vec<Sign>) {
        self.read_line(Line { bytes: line, cut: false }, signs);
    }

    /// A line of stdout, maybe only its beginning. Of a cut line the signs that were seen before the cut
    /// count: else a tool that printed too much would seem to run for ever.
    pub fn read_line(&mut self, line: Line<'_>, signs: &mut Vec<Sign>) {
        let mark = signs.len();
        match &mut self.kind {
            Kind::Plain(reader) => return reader.read(line.bytes, &mut self.novelty, signs),
            Kind::Claude(reader) => reader.read(line, signs),
            Kind::Codex(reader) => reader.read(line, signs),
            Kind::Opencode(reader) => reader.read(line, signs),
            Kind::Gemini(reader) => reader.read(line, signs),
        }
        signs[mark..].iter_mut().for_each(|sign| self.heartbeats.mark(sign));
        let known = signs[mark..].iter().any(|sign| *sign != Sign::Unknown);
        if !known || self.drift.drifted {
            self.unknown(line, known, mark, signs);
        } else {
            self.drift.note(true);
        }
    }

    /// What nobody knows counts once the whole format is one that nobody knows: as bytes do.
    #[cold]
    fn unknown(&mut self, line: Line<'_>, known: bool, mark: usize, signs: &mut Vec<Sign>) {
        if known || is_blank(line.bytes) {
            return;
        }
        if self.drift.drifted {
            if self.novelty.is_new(line.bytes) {
                signs.truncate(mark);
                signs.push(Sign::Text);
            }
        } else if !line.cut && self.drift.note(false) {
            signs.push(Sign::Drift);
        }
    }

    /// A line of stderr. Structured agents print warnings and retries there: a sign of life, no progress.
    pub fn read_stderr(&mut self, line: &[u8], signs: &mut Vec<Sign>) {
        if is_blank(line) {
            return;
        }
        match &mut self.kind {
            Kind::Plain(_) => Plain::judge(line, &mut self.novelty, signs),
            // Who has begun to speak says on stdout what stops it.
            _ if self.drift.is_silent() && limits::is_login(line) => signs.push(limits::login(line)),
            Kind::Codex(reader) => reader.read_stderr(line, signs),
            Kind::Gemini(reader) => reader.read_stderr(line, signs),
            Kind::Opencode(reader) => reader.read_stderr(line, signs),
            Kind::Claude(_) => signs.push(Sign::Keepalive),
        }
    }

    /// The process has ended and all it printed has been read.
    pub fn finish(&mut self, signs: &mut Vec<Sign>) {
        match &mut self.kind {
            Kind::Plain(reader) => reader.finish(signs),
            Kind::Opencode(reader) => reader.finish(signs),
            // Their result is an event. Without it there is none, whatever else was said.
            Kind::Claude(_) | Kind::Codex(_) | Kind::Gemini(_) => {}
        }
    }
}

pub(crate) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}
