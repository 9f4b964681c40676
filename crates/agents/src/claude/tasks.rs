//! The tasks of Claude Code: subagents, and commands that were moved to the background.
//!
//! A subagent is identified by its task id. Older versions have no tasks; there it is identified by the call that
//! started it, and ends with that call.

use crate::json::{Json, Raw};
use crate::reader::MAX_NAME;
use dogwatch_core::watch::sign::{Heartbeats, Sign};

/// The most running subagents, and the most background tasks, that are remembered.
const MAX_TASKS: usize = 64;

/// The fields of a line about a task.
#[derive(Default)]
pub struct Task<'a> {
    id: Raw<'a>,
    kind: Raw<'a>,
    in_background: Option<bool>,
    /// The usage of the task to date.
    used: Used,
    /// The complete list of background tasks, if the line contains one.
    all: Option<Vec<Raw<'a>>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    tokens: u64,
    calls: u64,
}

impl<'a> Task<'a> {
    /// Reads a field of the line.
    pub fn field(&mut self, key: &[u8], json: &mut Json<'a>) {
        match key {
            b"task_id" => self.id = json.text().unwrap_or_default(),
            b"task_type" => self.kind = json.text().unwrap_or_default(),
            b"is_backgrounded" => self.in_background = Some(json.is_true()),
            b"patch" => json.fields(|key, json| {
                if key == b"is_backgrounded" {
                    self.in_background = Some(json.is_true());
                }
            }),
            b"tasks" if json.kind() == Some(b'[') => {
                let all = self.all.insert(Vec::new());
                json.items(|json| {
                    json.fields(|key, json| {
                        if let (b"task_id", true) = (key, all.len() < MAX_TASKS) {
                            all.push(json.text().unwrap_or_default());
                        }
                    });
                });
            }
            _ => {}
        }
    }

    /// Reads a field of the usage.
    pub fn usage(&mut self, key: &[u8], json: &mut Json<'_>) {
        match key {
            b"total_tokens" => self.used.tokens = json.whole().unwrap_or(0),
            b"tool_uses" => self.used.calls = json.whole().unwrap_or(0),
            _ => {}
        }
    }
}

/// The running tasks of a session.
#[derive(Debug, Default)]
pub struct Tasks {
    agents: Vec<Agent>,
    background: Vec<String>,
    /// The heartbeat calls of subagents.
    heartbeats: Heartbeats,
}

#[derive(Debug)]
struct Agent {
    id: String,
    /// It is identified by its call, and ends with it.
    by_call: bool,
    used: Used,
}

impl Tasks {
    /// Handles a line about a task. Adds signs only for changes.
    pub fn changed(&mut self, what: &[u8], task: &Task<'_>, signs: &mut Vec<Sign>) {
        let id = task.id.decode_head(MAX_NAME);
        let before = self.background.len();
        match what {
            b"task_started" if task.kind.0 == b"local_agent" => self.begin(id.clone(), false, signs),
            b"task_progress" => self.progress(&id, task.used, signs),
            b"task_notification" => self.end(&id, signs),
            _ => {}
        }
        match (&task.all, task.in_background) {
            (Some(all), _) => self.background = all.iter().map(|id| id.decode_head(MAX_NAME)).collect(),
            (None, Some(true)) if !self.background.contains(&id) => self.background.push(id),
            (None, None) if what == b"task_notification" => self.background.retain(|task| *task != id),
            _ => {}
        }
        self.background.truncate(MAX_TASKS);
        if self.background.len() != before {
            signs.push(Sign::BackgroundWork { open: self.background.len() as u32 });
        }
    }

    /// Returns whether a line from a subagent shows more than heartbeats.
    pub fn is_more_than_heartbeats(&mut self, signs: &mut [Sign]) -> bool {
        signs.iter_mut().for_each(|sign| self.heartbeats.mark(sign));
        signs.is_empty() || !signs.iter().all(Sign::is_heartbeat)
    }

    /// Reports that a subagent did something.
    pub fn did_something(&mut self, agent: Raw<'_>, call: Raw<'_>, signs: &mut Vec<Sign>) {
        let by_call = agent.0.is_empty();
        let id = if by_call { call } else { agent }.decode_head(MAX_NAME);
        if !self.agents.iter().any(|known| known.id == id) {
            self.begin(id.clone(), by_call, signs);
        }
        signs.push(Sign::SubagentProgress { id });
    }

    /// Ends the subagents whose calls have just ended.
    pub fn calls_ended(&mut self, mark: usize, signs: &mut Vec<Sign>) {
        if self.agents.is_empty() {
            return;
        }
        let calls: Vec<String> = signs[mark..]
            .iter()
            .filter_map(|sign| if let Sign::ToolEnded { id, .. } = sign { Some(id.clone()) } else { None })
            .filter(|id| self.agents.iter().any(|agent| agent.by_call && agent.id == *id))
            .collect();
        calls.iter().for_each(|id| self.end(id, signs));
    }

    fn begin(&mut self, id: String, by_call: bool, signs: &mut Vec<Sign>) {
        if self.agents.iter().any(|known| known.id == id) || self.agents.len() == MAX_TASKS {
            return;
        }
        self.agents.push(Agent { id: id.clone(), by_call, used: Used::default() });
        signs.push(Sign::SubagentStarted { id });
    }

    /// Handles a progress line. These lines are periodic, so they count as progress only if the usage has grown.
    fn progress(&mut self, id: &str, used: Used, signs: &mut Vec<Sign>) {
        let Some(agent) = self.agents.iter_mut().find(|agent| agent.id == id) else { return };
        if used.tokens > agent.used.tokens || used.calls > agent.used.calls {
            signs.push(Sign::SubagentProgress { id: id.to_owned() });
        }
        agent.used = used;
    }

    fn end(&mut self, id: &str, signs: &mut Vec<Sign>) {
        if let Some(at) = self.agents.iter().position(|agent| agent.id == id) {
            signs.push(Sign::SubagentEnded { id: self.agents.swap_remove(at).id });
        }
    }
}
