//! Claude Code: `projects/<project>/<session>.jsonl`. The records of the conversation have the same shape as the
//! stream's `user` and `assistant` lines, so the stream's reader parses them.

use super::{About, Record, failed, unknown};
use crate::json::{Json, Raw};
use crate::limits::status_in;
use crate::lines::Line;
use crate::reader::{MAX_ERROR, Reader};
use crate::subagent_log::claude_did_something;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::time::moment::Wall;
use dogwatch_core::watch::sign::Sign;

/// The most calls in flight that are remembered.
const MAX_OPEN: usize = 256;
/// How much of a prompt is read to decide whether it is one.
const HEAD: usize = 64;

/// Reads Claude Code transcripts.
#[derive(Debug)]
pub struct Claude {
    reader: Reader,
    /// Whether the records belong to a side chain. In a subagent's own file all of them do.
    sidechain: Option<bool>,
    open: Vec<Call>,
    last: Last,
    /// The description of the session in the records.
    pub about: About,
}

/// A call in flight.
#[derive(Debug)]
struct Call {
    id: String,
    delegates: bool,
    /// Whether its subagent has done something.
    at_work: bool,
}

/// The last record of the main conversation in this turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Nothing,
    Prompt,
    Work,
    /// Text, after which another prompt may follow.
    Text,
    Ended(&'static str),
}

impl Default for Claude {
    fn default() -> Claude {
        Claude {
            reader: Reader::for_name(ReaderName::Claude),
            sidechain: None,
            open: Vec::new(),
            last: Last::default(),
            about: About::default(),
        }
    }
}

/// The relevant fields of a record.
#[derive(Default)]
struct Row<'a> {
    kind: Raw<'a>,
    subtype: Raw<'a>,
    at: Option<Wall>,
    session: Raw<'a>,
    dir: Raw<'a>,
    version: Raw<'a>,
    model: Raw<'a>,
    sidechain: bool,
    /// The CLI wrote the record, not the user: a reminder, or the summary after a compaction.
    meta: bool,
    api_error: bool,
    /// The first text of the message, and whether it has a tool result.
    text: Option<Raw<'a>>,
    answers: bool,
    stop: Raw<'a>,
    /// For a `progress` record: its kind and its call.
    progress: Raw<'a>,
    parent: Raw<'a>,
}

impl Claude {
    /// Reads a record; see [`super::Transcript::read`].
    pub fn read(&mut self, line: &[u8], signs: &mut Vec<Sign>) -> (Option<Wall>, Record) {
        let mut row = Row::default();
        if !Json::object(line, |key, json| field(&mut row, key, json)) {
            return (None, Record::Unknown("not JSON".to_owned()));
        }
        self.about.take(row.session, row.dir, row.version, row.model);
        let record = match row.kind.0 {
            b"user" | b"assistant" if row.sidechain != *self.sidechain.get_or_insert(row.sidechain) => {
                self.subagent(&row, line, signs)
            }
            b"user" if row.answers => self.work(line, Last::Work, signs),
            b"user" => self.user(&row),
            b"assistant" => self.assistant(&row, line, signs),
            b"progress" if row.progress.0 == b"agent_progress" => {
                self.subagent_did(Some(row.parent.decode()), signs)
            }
            b"system" if row.subtype.0 == b"api_error" => {
                signs.push(Sign::Retrying { status: None, delay: None });
                Record::Agent
            }
            kind if is_bookkeeping(kind) => Record::Nothing,
            kind => unknown(kind),
        };
        (row.at, record)
    }

    /// Returns the outcome of the turn; see [`super::Transcript::outcome`].
    pub fn outcome(&self, followed: bool) -> Option<&'static str> {
        match self.last {
            Last::Ended(word) => Some(word),
            // Older versions do not record why the model stopped.
            Last::Text if followed && self.open.is_empty() => Some("completed"),
            Last::Nothing | Last::Prompt | Last::Work | Last::Text => None,
        }
    }

    fn user(&mut self, row: &Row<'_>) -> Record {
        let text = row.text.unwrap_or_default().decode_head(HEAD);
        let starts = |words: &[&str]| words.iter().any(|word| text.starts_with(word));
        if text.starts_with("[Request interrupted by user") {
            self.last = Last::Ended("interrupted");
            return Record::Agent;
        }
        if starts(&["<local-command-stdout>", "<local-command-stderr>"]) && self.last == Last::Prompt {
            self.last = Last::Nothing;
            return Record::Withdrawn;
        }
        let local = starts(&["<local-command-", "<bash-", "Caveat: The messages below"]);
        // The CLI wakes the agent with these, or adds them to a turn.
        let added = starts(&["<task-notification>", "<system-reminder>", "<teammate-message"]);
        let in_turn = matches!(self.last, Last::Prompt | Last::Work);
        if row.meta || row.text.is_none() || local || (added && in_turn) {
            return Record::Nothing;
        }
        let sidechain = self.sidechain;
        let about = std::mem::take(&mut self.about);
        *self = Claude { sidechain, last: Last::Prompt, about, ..Claude::default() };
        Record::Prompt
    }

    fn assistant(&mut self, row: &Row<'_>, line: &[u8], signs: &mut Vec<Sign>) -> Record {
        if row.api_error {
            let text = row.text.unwrap_or_default().decode_head(MAX_ERROR);
            signs.push(Sign::error(&text));
            self.last = Last::Ended(failed(&text, status_in(&text), signs));
            return Record::Agent;
        }
        let last = match row.stop.0 {
            b"end_turn" | b"stop_sequence" | b"refusal" => Last::Ended("completed"),
            _ if row.text.is_some() => Last::Text,
            _ => Last::Work,
        };
        self.work(line, last, signs)
    }

    /// Reads a record of the main conversation.
    fn work(&mut self, line: &[u8], last: Last, signs: &mut Vec<Sign>) -> Record {
        let mark = signs.len();
        self.reader.read_line(Line { bytes: line, cut: false }, signs);
        let mut ended = Vec::new();
        for sign in &signs[mark..] {
            if let Sign::ToolStarted(tool) = sign
                && self.open.len() < MAX_OPEN
            {
                self.open.push(Call { id: tool.id.clone(), delegates: tool.delegates, at_work: false });
            } else if let Sign::ToolEnded { id, .. } = sign
                && let Some(at) = self.open.iter().position(|call| call.id == *id)
            {
                ended.extend(Some(self.open.remove(at)).filter(|call| call.at_work));
            }
        }
        signs.extend(ended.into_iter().map(|call| Sign::SubagentEnded { id: call.id }));
        self.last = if self.open.is_empty() { last } else { Last::Work };
        Record::Agent
    }

    fn subagent(&mut self, row: &Row<'_>, line: &[u8], signs: &mut Vec<Sign>) -> Record {
        let session = row.session.decode();
        if !claude_did_something(&session, Line { bytes: line, cut: false }) {
            return Record::Nothing;
        }
        self.subagent_did(None, signs)
    }

    /// Reports work of a subagent. The record does not name the subagent's call. Any delegating call in flight will do,
    /// because the agent waits for all of them.
    fn subagent_did(&mut self, id: Option<String>, signs: &mut Vec<Sign>) -> Record {
        let is_it = |call: &&mut Call| id.as_ref().map_or(call.delegates, |id| call.id == *id);
        let Some(call) = self.open.iter_mut().find(is_it) else { return Record::Nothing };
        if !std::mem::replace(&mut call.at_work, true) {
            signs.push(Sign::SubagentStarted { id: call.id.clone() });
        }
        signs.push(Sign::SubagentProgress { id: call.id.clone() });
        Record::Agent
    }
}

fn field<'a>(row: &mut Row<'a>, key: &[u8], json: &mut Json<'a>) {
    match key {
        b"type" => row.kind = json.text().unwrap_or_default(),
        b"subtype" => row.subtype = json.text().unwrap_or_default(),
        b"timestamp" => row.at = json.text().and_then(|text| Wall::from_rfc3339(&text.decode())),
        b"sessionId" => row.session = json.text().unwrap_or_default(),
        b"cwd" => row.dir = json.text().unwrap_or_default(),
        b"version" => row.version = json.text().unwrap_or_default(),
        b"isSidechain" => row.sidechain = json.is_true(),
        b"isMeta" | b"isCompactSummary" => row.meta |= json.is_true(),
        b"isApiErrorMessage" => row.api_error = json.is_true(),
        b"parentToolUseID" => row.parent = json.text().unwrap_or_default(),
        b"data" => json.fields(|key, json| {
            if key == b"type" {
                row.progress = json.text().unwrap_or_default();
            }
        }),
        b"message" => json.fields(|key, json| match key {
            b"content" if json.kind() == Some(b'"') => row.text = json.text(),
            b"content" => json.items(|json| block(row, json)),
            b"stop_reason" => row.stop = json.text().unwrap_or_default(),
            // The CLI's own messages have no model.
            b"model" => row.model = json.text().filter(|model| model.0 != b"<synthetic>").unwrap_or_default(),
            _ => {}
        }),
        _ => {}
    }
}

fn block<'a>(row: &mut Row<'a>, json: &mut Json<'a>) {
    let (mut kind, mut text) = (Raw(b""), None);
    json.fields(|key, json| match key {
        b"type" => kind = json.text().unwrap_or_default(),
        b"text" => text = json.text(),
        _ => {}
    });
    match kind.0 {
        b"text" => row.text = row.text.or(text),
        // A prompt may consist of a picture only.
        b"image" | b"document" => row.text = row.text.or(Some(Raw(b""))),
        b"tool_result" => row.answers = true,
        _ => {}
    }
}

fn is_bookkeeping(kind: &[u8]) -> bool {
    matches!(
        kind,
        b"system"
            | b"summary"
            | b"progress"
            | b"attachment"
            | b"file-history-snapshot"
            | b"queue-operation"
            | b"last-prompt"
            | b"custom-title"
            | b"ai-title"
            | b"agent-name"
            | b"agent-color"
            | b"agent-setting"
            | b"permission-mode"
            | b"mode"
            | b"pr-link"
            | b"tag"
            | b"worktree-state"
            | b"content-replacement"
            | b"saved_hook_context"
            | b"api-request"
            | b"api-request-blob"
    )
}
