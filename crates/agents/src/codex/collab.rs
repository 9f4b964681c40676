//! The subagents of Codex. Codex does not print what happens inside them. It reports their state only when the agent
//! asks for it, and they end with the agent's turn.

use crate::json::{Json, Raw};
use crate::reader::MAX_NAME;
use dogwatch_core::record::hash;
use dogwatch_core::watch::sign::Sign;

/// The most running subagents that are remembered.
const MAX_AGENTS: usize = 64;

/// The running subagents of a session.
#[derive(Debug, Default)]
pub struct Collab {
    agents: Vec<Agent>,
}

#[derive(Debug)]
struct Agent {
    id: String,
    /// The hash of its last reported state.
    state: u64,
}

impl Collab {
    /// Handles the end of a call about subagents: `receivers` lists the subagents, `states` their states.
    pub fn call_ended(&mut self, spawned: bool, receivers: &[u8], states: &[u8], signs: &mut Vec<Sign>) {
        if spawned {
            Json::value(receivers).items(|json| {
                self.begin(json.text().unwrap_or_default().decode_head(MAX_NAME), signs);
            });
        }
        Json::value(states).fields(|key, json| {
            let id = Raw(key).decode_head(MAX_NAME);
            let written = json.span();
            let mut status = Raw(b"");
            Json::value(written).fields(|key, json| {
                if key == b"status" {
                    status = json.text().unwrap_or_default();
                }
            });
            self.state(&id, hash::bytes(written), status, spawned, signs);
        });
    }

    /// Ends all subagents, because the turn is over.
    pub fn end_all(&mut self, signs: &mut Vec<Sign>) {
        signs.extend(self.agents.drain(..).map(|agent| Sign::SubagentEnded { id: agent.id }));
    }

    fn begin(&mut self, id: String, signs: &mut Vec<Sign>) {
        if self.agents.len() < MAX_AGENTS && !self.agents.iter().any(|agent| agent.id == id) {
            self.agents.push(Agent { id: id.clone(), state: 0 });
            signs.push(Sign::SubagentStarted { id });
        }
    }

    fn state(&mut self, id: &str, state: u64, status: Raw<'_>, spawned: bool, signs: &mut Vec<Sign>) {
        let Some(at) = self.agents.iter().position(|agent| agent.id == id) else { return };
        let before = std::mem::replace(&mut self.agents[at].state, state);
        if before != state && !spawned {
            signs.push(Sign::SubagentProgress { id: id.to_owned() });
        }
        if !matches!(status.0, b"pending_init" | b"running" | b"") {
            signs.push(Sign::SubagentEnded { id: self.agents.swap_remove(at).id });
        }
    }
}
