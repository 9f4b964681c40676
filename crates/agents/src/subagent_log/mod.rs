//! Locates and reads the files in which agent CLIs log the work of their subagents.
//!
//! Some CLIs print nothing about the work inside a subagent, but log it to a file. A `SubagentLog` knows the path to
//! these files, level by level from an existing directory, and decides for each line whether it shows work of the
//! subagent. File growth alone is not enough: many lines are bookkeeping, and the beginning of a file is the parent's
//! own text. Only files of the current session count, and they are known once the stream has printed the session id.
//!
//! This module does no I/O: the host walks the directories, watches and reads.

mod claude;
mod codex;
mod gemini;
mod opencode;

pub(crate) use claude::did_something as claude_did_something;

use crate::lines::Line;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::watch::sign::Sign;
use opencode::Children;

/// The longest line; longer ones are cut. The relevant fields are at the beginning.
pub const MAX_SUBAGENT_LOG_LINE: usize = 256 * 1024;

/// The location of the subagent logs of one session.
#[derive(Debug)]
pub struct SubagentLog {
    kind: Kind,
    root: String,
    session: String,
    children: Children,
    /// The signs from the session's own file that its output does not contain.
    signs: Vec<Sign>,
}

#[derive(Clone, Debug)]
enum Kind {
    Claude { project: String },
    Codex,
    Opencode,
    Gemini,
}

/// The role of a directory entry on the path to the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A directory on the path.
    Dir,
    /// A directory named after a date; only the latest one matters.
    Newest,
    /// One of several directories to search, most recently changed first.
    Recent,
    /// A log file of a subagent.
    File,
    /// The file of the session itself, which may have begun before the search.
    Own,
    /// The entry is not of interest.
    Nothing,
}

/// How far one file has been interpreted.
#[derive(Debug, Default)]
pub struct Reading {
    /// Whether the file belongs to this session; unknown before its first line.
    ours: Option<bool>,
    /// Whether the subagent's own first turn has begun; the lines before it are the parent's.
    begun: bool,
    /// Whether the file is that of the session itself.
    own: bool,
}

impl Reading {
    /// Creates the reading of the session's own file.
    pub fn own() -> Reading {
        Reading { own: true, ..Reading::default() }
    }
}

impl SubagentLog {
    /// Creates the log location of an agent that works in this directory; `None` for agents without subagent logs.
    /// `env` is the environment that the agent will see.
    pub fn new(
        name: ReaderName,
        work_dir: &str,
        env: impl Fn(&str) -> Option<String>,
    ) -> Option<SubagentLog> {
        let dir = |var: &str| env(var).filter(|value| !value.is_empty());
        let home = |rest: &str| dir("HOME").map(|home| format!("{home}/{rest}"));
        let (kind, root) = match name {
            ReaderName::Plain => return None,
            ReaderName::Claude => {
                let project = claude::project(work_dir);
                (Kind::Claude { project }, dir("CLAUDE_CONFIG_DIR").or_else(|| home(".claude"))?)
            }
            ReaderName::Codex => (Kind::Codex, dir("CODEX_HOME").or_else(|| home(".codex"))?),
            ReaderName::Opencode => {
                let data = dir("XDG_DATA_HOME").or_else(|| home(".local/share"))?;
                (Kind::Opencode, format!("{data}/opencode"))
            }
            ReaderName::Gemini => {
                let home = dir("GEMINI_CLI_HOME")
                    .map(|home| format!("{home}/.gemini"))
                    .or_else(|| home(".gemini"))?;
                (Kind::Gemini, home)
            }
        };
        root.starts_with('/').then(|| SubagentLog {
            kind,
            root,
            session: String::new(),
            children: Children::default(),
            signs: Vec::new(),
        })
    }

    /// Sets the session id, as printed by the stream.
    pub fn of_session(&mut self, id: &str) {
        id.clone_into(&mut self.session);
    }

    /// Returns the path at which the search starts.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Returns whether sessions share a log file. Such a file has old lines of other sessions, so only new lines count.
    pub fn shares_files(&self) -> bool {
        matches!(self.kind, Kind::Opencode)
    }

    /// Classifies an entry of a directory that is `depth` levels below the root. While the session id is unknown or
    /// is not a plain name, no entry is a log.
    pub fn entry(&self, depth: usize, name: &str) -> Entry {
        if !is_name(&self.session) {
            return Entry::Nothing;
        }
        match &self.kind {
            Kind::Claude { project } => claude::entry(project, &self.session, depth, name),
            Kind::Codex => codex::entry(&self.session, depth, name),
            Kind::Opencode => opencode::entry(depth, name),
            Kind::Gemini => gemini::entry(&self.session, depth, name),
        }
    }

    /// Returns whether this line shows work of a subagent of this session.
    pub fn read(&mut self, reading: &mut Reading, line: Line<'_>) -> bool {
        match &self.kind {
            Kind::Claude { .. } => claude::did_something(&self.session, line),
            Kind::Codex if reading.own => {
                codex::said(line, &mut self.signs);
                false
            }
            Kind::Codex => codex::did_something(&self.session, reading, line),
            Kind::Opencode => self.children.did_something(&self.session, line),
            Kind::Gemini => gemini::did_something(line),
        }
    }
}

impl SubagentLog {
    /// Takes what the session's own file said since the last call. Only the last report of a kind counts.
    pub fn take_signs(&mut self) -> Vec<Sign> {
        std::mem::take(&mut self.signs)
    }
}

/// Returns whether an id is a plain name. It is used as a directory name and must not lead anywhere else.
fn is_name(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= 128
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

#[cfg(test)]
mod tests;
