//! OpenCode: sessions are stored in a database, but its log (`log/opencode.log` or one file per process) records which
//! session started which other one, and every step of a session. All running processes share the log.

use super::Entry;
use crate::lines::Line;
use std::collections::BTreeMap;

/// The most subagents of one session that are tracked; the rest are ignored.
const MAX_CHILDREN: usize = 1_000;

/// Classifies a directory entry.
pub fn entry(depth: usize, name: &str) -> Entry {
    match depth {
        0 if name == "log" => Entry::Dir,
        1 if name.ends_with(".log") => Entry::File,
        _ => Entry::Nothing,
    }
}

/// The subagents of the session, nested ones included, each with its current step.
#[derive(Debug, Default)]
pub struct Children(BTreeMap<String, Option<u64>>);

impl Children {
    /// Returns whether the line shows work. A new step is work: the model has answered and its tools have run. A
    /// retried request is not.
    pub fn did_something(&mut self, session: &str, line: Line<'_>) -> bool {
        let Ok(text) = std::str::from_utf8(line.bytes) else { return false };
        let word = |key: &str| {
            let at = text.find(&format!(" {key}="))?;
            text[at + key.len() + 2..].split(' ').next()
        };
        if word("message") == Some("created") {
            self.created(session, word("id"), word("parentID"));
            return false;
        }
        let Some(last) = word("session.id").and_then(|id| self.0.get_mut(id)) else { return false };
        if text.contains(" message=\"exiting loop\"") {
            return true;
        }
        let step =
            word("step").and_then(|step| step.parse().ok()).filter(|_| word("message") == Some("loop"));
        // The first step is only the request.
        let new = step.is_some_and(|step: u64| step > 0 && last.is_none_or(|last| step > last));
        if new {
            *last = step;
        }
        new
    }

    fn created(&mut self, session: &str, id: Option<&str>, parent: Option<&str>) {
        let (Some(id), Some(parent)) = (id, parent) else { return };
        if (parent == session || self.0.contains_key(parent)) && self.0.len() < MAX_CHILDREN {
            self.0.insert(id.to_owned(), None);
        }
    }
}
