//! Reads the transcripts that agent CLIs keep of their sessions: Claude Code's
//! `~/.claude/projects/<project>/<session>.jsonl` and Codex's `~/.codex/sessions/<date>/rollout-*.jsonl`.
//!
//! A record is converted to the signs that the same event produces on the agent's stdout. A transcript holds one or
//! more user turns, and each turn begins with a prompt. This module does no I/O: the caller reads the file.

mod claude;
mod codex;
mod turns;

pub use turns::{Transcribed, Turns};

use crate::json::{Json, Raw};
use claude::Claude;
use codex::Codex;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::time::moment::Wall;
use dogwatch_core::watch::sign::Sign;

/// The format of a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A transcript of Claude Code.
    Claude,
    /// A rollout file of Codex.
    Codex,
}

impl Format {
    /// Detects the format from a record. Many records, such as titles, are ambiguous and return `None`.
    pub fn of(line: &[u8]) -> Option<Format> {
        let (mut kind, mut payload, mut dated, mut session) = (&b""[..], false, false, false);
        let whole = Json::object(line, |key, json| match key {
            b"type" => kind = json.text().unwrap_or_default().0,
            b"payload" => payload = json.kind() == Some(b'{'),
            b"timestamp" => dated = json.kind() == Some(b'"'),
            b"sessionId" => session = true,
            _ => {}
        });
        match kind {
            b"user" | b"assistant" if whole && dated && session => Some(Format::Claude),
            b"session_meta" | b"response_item" | b"event_msg" | b"turn_context" if whole && payload => {
                Some(Format::Codex)
            }
            _ => None,
        }
    }

    /// Returns the reader of the agent that writes this format.
    pub fn agent(self) -> ReaderName {
        match self {
            Format::Claude => ReaderName::Claude,
            Format::Codex => ReaderName::Codex,
        }
    }

    /// Returns a description for messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Claude => "a Claude Code transcript",
            Format::Codex => "a Codex rollout",
        }
    }
}

/// The meaning of a record for the turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A turn begins.
    Prompt,
    /// The last prompt was a command for the CLI itself and began no turn.
    Withdrawn,
    /// The agent did something, as the signs show, or its turn ended.
    Agent,
    /// A bookkeeping record without meaning for the turn.
    Nothing,
    /// A record of an unknown type, or a line that is not JSON.
    Unknown(String),
}

/// The session of a transcript, as its records describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The id of the session.
    pub session: Option<String>,
    /// The directory in which the agent worked last.
    pub dir: Option<String>,
    /// The version of the agent's CLI.
    pub version: Option<String>,
    /// The model that the agent used last.
    pub model: Option<String>,
}

impl About {
    /// Takes the fields that a record has.
    fn take(&mut self, session: Raw<'_>, dir: Raw<'_>, version: Raw<'_>, model: Raw<'_>) {
        for (field, raw) in [
            (&mut self.session, session),
            (&mut self.dir, dir),
            (&mut self.version, version),
            (&mut self.model, model),
        ] {
            if !raw.0.is_empty() && field.as_ref().is_none_or(|known| known.as_bytes() != raw.0) {
                *field = Some(raw.decode_head(MAX_ABOUT));
            }
        }
    }
}

/// The longest text in the description of a session, in bytes.
const MAX_ABOUT: usize = 4096;

/// Reads one transcript.
#[derive(Debug)]
pub struct Transcript(Kind);

#[derive(Debug)]
enum Kind {
    Claude(Box<Claude>),
    Codex(Codex),
}

impl Transcript {
    /// Creates a reader for a transcript of this format.
    pub fn new(format: Format) -> Transcript {
        Transcript(match format {
            Format::Claude => Kind::Claude(Box::default()),
            Format::Codex => Kind::Codex(Codex::default()),
        })
    }

    /// Reads a record. Returns its time, if it has one, and its meaning, and appends the agent's signs.
    pub fn read(&mut self, line: &[u8], signs: &mut Vec<Sign>) -> (Option<Wall>, Record) {
        match &mut self.0 {
            Kind::Claude(reader) => reader.read(line, signs),
            Kind::Codex(reader) => reader.read(line, signs),
        }
    }

    /// Returns the session, as the records describe it up to here.
    pub fn about(&self) -> &About {
        match &self.0 {
            Kind::Claude(reader) => &reader.about,
            Kind::Codex(reader) => &reader.about,
        }
    }

    /// Returns the outcome of the turn in the terms of an iteration's outcome; `None` if the turn has not ended.
    /// `followed` means that another prompt follows.
    pub fn outcome(&self, followed: bool) -> Option<&'static str> {
        match &self.0 {
            Kind::Claude(reader) => reader.outcome(followed),
            Kind::Codex(reader) => reader.outcome(followed),
        }
    }
}

/// Returns the outcome of a turn that ended with this error, and adds the sign of a refusal if it is one.
fn failed(text: &str, status: Option<u16>, signs: &mut Vec<Sign>) -> &'static str {
    let refusal = crate::limits::refusal(status, text, None);
    let outcome = match refusal {
        Some(Sign::Limit(_)) => "rate_limited",
        Some(Sign::AuthFailed { .. }) => "auth_failed",
        _ => "failed",
    };
    signs.extend(refusal);
    outcome
}

fn unknown(kind: &[u8]) -> Record {
    Record::Unknown(crate::json::Raw(kind).decode_head(crate::reader::MAX_NAME))
}

#[cfg(test)]
mod tests;
