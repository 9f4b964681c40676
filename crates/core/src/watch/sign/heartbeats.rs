//! Recognizes heartbeats in an agent's stream. An agent that calls the `heartbeat` tool prints the call like any other:
//! the start has a name, but the end has only an id.

use super::Sign;
use crate::watch::ToolStarted;
use std::collections::VecDeque;

/// The most heartbeats that are open at once. Beyond it the oldest is dropped, and its end counts as that of a tool.
const MAX_OPEN: usize = 64;

/// The open heartbeats of a session.
#[derive(Clone, Debug, Default)]
pub struct Heartbeats {
    open: VecDeque<String>,
}

impl Heartbeats {
    /// Marks a sign that ends a heartbeat. The signs must be passed in the order of the stream.
    pub fn mark(&mut self, sign: &mut Sign) {
        if let Sign::ToolEnded { id, heartbeat, .. } = sign {
            if let Some(at) = self.open.iter().position(|open| open == id) {
                self.open.remove(at);
                *heartbeat = true;
            }
        } else if let Sign::ToolStarted(tool) = sign
            && tool.heartbeat
            && !self.open.contains(&tool.id)
        {
            if self.open.len() == MAX_OPEN {
                self.open.pop_front();
            }
            self.open.push_back(tool.id.clone());
        }
    }
}

impl Sign {
    /// Returns whether the sign only shows that the agent is alive.
    pub fn is_heartbeat(&self) -> bool {
        matches!(
            self,
            Sign::ToolStarted(ToolStarted { heartbeat: true, .. }) | Sign::ToolEnded { heartbeat: true, .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(id: &str, heartbeat: bool) -> Sign {
        let (id, name) = (id.to_owned(), "x".to_owned());
        Sign::ToolStarted(ToolStarted {
            id,
            name,
            subject: String::new(),
            call: 1,
            timeout: None,
            delegates: false,
            mcp: true,
            heartbeat,
        })
    }

    fn ends(id: &str) -> Sign {
        Sign::ToolEnded {
            id: id.to_owned(),
            ok: true,
            result: 1,
            error: String::new(),
            heartbeat: false,
            canceled: false,
        }
    }

    fn marked(signs: Vec<Sign>) -> Vec<bool> {
        let mut heartbeats = Heartbeats::default();
        let mark = |mut sign: Sign| {
            heartbeats.mark(&mut sign);
            sign.is_heartbeat()
        };
        signs.into_iter().map(mark).collect()
    }

    #[test]
    fn the_end_of_a_heartbeat_is_marked_once() {
        let signs = vec![starts("a", true), starts("b", false), ends("b"), ends("a"), ends("a"), ends("c")];
        assert_eq!(marked(signs), [true, false, false, true, false, false]);
    }

    #[test]
    fn beyond_the_limit_the_oldest_open_heartbeat_is_dropped() {
        for (open, known) in [(MAX_OPEN, true), (MAX_OPEN + 1, false)] {
            let mut signs: Vec<Sign> = (0..open).map(|n| starts(&n.to_string(), true)).collect();
            signs.push(ends("0"));
            assert_eq!(marked(signs).last(), Some(&known), "{open}");
        }
    }
}
