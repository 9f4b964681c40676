//! Codex's subagents. What happens inside of them is not printed; how they are is told only when the agent
//! asks, and they are gone when its turn is over.

use crate::json::{Json, Raw};
use crate::reader::MAX_NAME;
use dogwatch_core::record::hash;
use dogwatch_core::watch::sign::Sign;

/// So many running subagents are remembered.
const MAX_AGENTS: usize = 64;

#[derive(Debug, Default)]
pub struct Collab {
    agents: Vec<Agent>,
}

#[derive(Debug)]
struct Agent {
    id: String,
    /// What was last told about it.
    state: u64,
}

impl Collab {
    /// A call about subagents has ended: whom it was about, and how they are.
    pub fn told(&mut self, spawned: bool, receivers: &[u8], states: &[u8], signs: &mut Vec<Sign>) {
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

    /// The turn is over.
    pub fn abandoned(&mut self, signs: &mut Vec<Sign>) {
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
