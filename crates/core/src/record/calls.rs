//! The tool calls of a session that have started and not ended. Displays show the newest of them.

use crate::record::words;
use crate::text::figures::clock;
use crate::time::dur::Dur;
use crate::time::moment::{Awake, Moment};
use crate::watch::ToolStarted;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The most open calls that are remembered; the oldest is dropped first.
pub const MAX_OPEN_CALLS: usize = 64;

/// The open calls of a session, the newest last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenCalls(Vec<OpenCall>);

/// A tool call that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenCall {
    id: String,
    /// The name of the tool.
    pub name: String,
    /// The most informative argument; empty if there is none.
    pub subject: String,
    /// When the call started.
    pub since: Awake,
}

impl OpenCalls {
    /// Notes the start of a call. A second start with the same id is the same call with better data.
    pub fn start(&mut self, at: Awake, tool: &ToolStarted) {
        let since = self.remove(&tool.id).map_or(at, |known| known.since);
        if self.0.len() == MAX_OPEN_CALLS {
            self.0.remove(0);
        }
        let (id, name, subject) = (tool.id.clone(), tool.name.clone(), tool.subject.clone());
        self.0.push(OpenCall { id, name, subject, since });
    }

    /// Notes the end of a call.
    pub fn end(&mut self, id: &str) {
        self.remove(id);
    }

    /// Forgets all calls, when a session starts or ends.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the newest call.
    pub fn newest(&self) -> Option<&OpenCall> {
        self.0.last()
    }

    /// Returns the number of open calls.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no call is open.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn remove(&mut self, id: &str) -> Option<OpenCall> {
        let at = self.0.iter().position(|call| call.id == id)?;
        Some(self.0.remove(at))
    }
}

/// The newest tool call that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CallStatus {
    /// The name of the tool.
    pub name: String,
    /// The most informative argument: the command, the file or the query. Empty if there is none.
    pub subject: String,
    /// How long the call has lasted, in seconds.
    pub since_s: Option<Dur>,
    /// The number of other open calls.
    pub others: u64,
}

impl CallStatus {
    /// Returns the newest open call at a moment. Paths in `work_dir` are shown relative to it.
    pub fn of(calls: &OpenCalls, work_dir: &str, now: Option<Moment>) -> Option<CallStatus> {
        let newest = calls.newest()?;
        Some(CallStatus {
            name: newest.name.clone(),
            subject: relative(&newest.subject, work_dir).into_owned(),
            since_s: now.map(|now| now.awake.since(newest.since)),
            others: calls.len() as u64 - 1,
        })
    }

    /// Formats the call in at most `max` characters: `→ Bash: make test, 9s`.
    pub fn text(&self, max: usize) -> String {
        let mut end = self.since_s.map_or_else(String::new, |since| format!(", {}", clock(since)));
        if self.others > 0 {
            end.push_str(&format!(" (+{} more)", self.others));
        }
        let call = format!("→ {}", words::call(&self.name, &self.subject));
        let room = max.saturating_sub(end.chars().count());
        if call.chars().count() <= room {
            return call + &end;
        }
        let short: String = call.chars().take(room.saturating_sub(1)).collect();
        format!("{short}…{end}")
    }
}

/// Returns a text in which paths in the work directory are relative to it.
pub fn relative<'t>(text: &'t str, work_dir: &str) -> Cow<'t, str> {
    let dir = work_dir.trim_end_matches('/');
    // Without a work directory, or in the root directory, paths stay as they are.
    if dir.is_empty() || !text.contains(dir) {
        text.into()
    } else {
        text.replace(&format!("{dir}/"), "").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(id: usize) -> ToolStarted {
        ToolStarted {
            id: id.to_string(),
            name: "Bash".into(),
            subject: format!("make /w/test-{id}"),
            call: 1,
            timeout: None,
            delegates: false,
            mcp: false,
            heartbeat: false,
        }
    }

    #[test]
    fn only_the_newest_open_calls_are_remembered() {
        for n in [MAX_OPEN_CALLS - 1, MAX_OPEN_CALLS, MAX_OPEN_CALLS + 1] {
            let mut calls = OpenCalls::default();
            (0..n).for_each(|id| calls.start(Awake(id as u64), &tool(id)));
            assert_eq!(calls.len(), n.min(MAX_OPEN_CALLS));
            assert_eq!(calls.newest().map(|call| call.since), Some(Awake(n as u64 - 1)));
        }
    }

    #[test]
    fn a_call_is_shown_with_its_age_and_the_number_of_others_in_the_given_room() {
        let mut calls = OpenCalls::default();
        assert_eq!(CallStatus::of(&calls, "/w", None), None);
        calls.start(Awake(0), &tool(1));
        calls.start(Awake(1_000), &tool(2));
        calls.start(Awake(5_000), &tool(2));
        let now = Moment { awake: Awake(10_000), ..Moment::default() };
        let status = CallStatus::of(&calls, "/w/", Some(now)).expect("two calls are open");
        assert_eq!(status.text(80), "→ Bash: make test-2, 9s (+1 more)");
        assert_eq!(status.text(26), "→ Bash: mak…, 9s (+1 more)");
        calls.end("1");
        let status = CallStatus::of(&calls, "/w", None).expect("one call is open");
        assert_eq!(status.text(80), "→ Bash: make test-2");
        calls.end("2");
        assert!(calls.is_empty());
    }
}
