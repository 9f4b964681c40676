//! Where an agent's CLI writes down what its subagents do, and what a line of it means.
//!
//! Some CLIs say nothing on stdout about what goes on inside a subagent, but keep a file of it. A `SubagentLog` knows the
//! way to these files, step by step from a directory that is there, and tells of a line whether the subagent did
//! something by it. That a file grows is not enough: much of what is in it is bookkeeping, and its beginning is the
//! parent's own text, which is no sign of the subagent. Only the session's own files count; which those are is known
//! once the stream has told the session's id.
//!
//! Pure: the host walks, watches and reads.

mod claude;
mod codex;
mod gemini;
mod opencode;

pub(crate) use claude::did_something as claude_did_something;

use crate::lines::Line;
use dogwatch_core::settings::ReaderName;
use opencode::Children;

/// A longer line is cut; what matters stands at its beginning.
pub const MAX_SUBAGENT_LOG_LINE: usize = 256 * 1024;

/// The way to the files of one session's subagents.
#[derive(Debug)]
pub struct SubagentLog {
    kind: Kind,
    root: String,
    session: String,
    children: Children,
}

#[derive(Clone, Debug)]
enum Kind {
    Claude { project: String },
    Codex,
    Opencode,
    Gemini,
}

/// What an entry of a directory on the way is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The way goes on in it.
    Dir,
    /// The way goes on in the greatest of its kind, by name: they are dates.
    Newest,
    /// The way may go on in any of its kind; the last changed ones come first.
    Recent,
    /// What subagents do is written here.
    File,
    Nothing,
}

/// How far one file has been understood.
#[derive(Debug, Default)]
pub struct Reading {
    /// Whether it is one of this session's; not known before its first line.
    ours: Option<bool>,
    /// What comes before its own first turn is its parent's.
    begun: bool,
}

impl SubagentLog {
    /// The trail of an agent that works in this directory; none for agents that leave none. `env` is what the agent
    /// will see of its environment.
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
        })
    }

    /// The stream has told by which name the session goes.
    pub fn of_session(&mut self, id: &str) {
        id.clone_into(&mut self.session);
    }

    /// Where the way begins: a path.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The file is not the session's alone and has lines of others, old ones too: only what is appended matters.
    pub fn shares_files(&self) -> bool {
        matches!(self.kind, Kind::Opencode)
    }

    /// What an entry is in a directory that is so many steps below the root. A session whose id is not known, or is no
    /// name, leaves no trail.
    pub fn entry(&self, depth: usize, name: &str) -> Entry {
        if !is_name(&self.session) {
            return Entry::Nothing;
        }
        match &self.kind {
            Kind::Claude { project } => claude::entry(project, &self.session, depth, name),
            Kind::Codex => codex::entry(depth, name),
            Kind::Opencode => opencode::entry(depth, name),
            Kind::Gemini => gemini::entry(&self.session, depth, name),
        }
    }

    /// Whether a subagent of this session did something by this line.
    pub fn read(&mut self, reading: &mut Reading, line: Line<'_>) -> bool {
        match &self.kind {
            Kind::Claude { .. } => claude::did_something(&self.session, line),
            Kind::Codex => codex::did_something(&self.session, reading, line),
            Kind::Opencode => self.children.did_something(&self.session, line),
            Kind::Gemini => gemini::did_something(line),
        }
    }
}

/// An id is used as a name of a directory: it must be no way out of one.
fn is_name(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= 128
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

#[cfg(test)]
mod tests;
