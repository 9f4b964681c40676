//! Heartbeats in an agent's stream. An agent that calls our `heartbeat` tool prints the call as any other, its
//! start with a name and its end with an id alone; whoever sees the end must know whose it is.

use super::Sign;
use std::collections::VecDeque;

/// Heartbeats that may be open at once; of more the oldest is forgotten, and its end counts as a tool's.
const MAX_OPEN: usize = 64;

/// The heartbeats of one session that have begun and not ended.
#[derive(Clone, Debug, Default)]
pub struct Heartbeats {
    open: VecDeque<String>,
}

impl Heartbeats {
    /// Tells a sign that ends a heartbeat that it does. Signs come in the order of the stream.
    pub fn mark(&mut self, sign: &mut Sign) {
        match sign {
            Sign::ToolStarted(tool) if tool.heartbeat && !self.open.contains(&tool.id) => {
                if self.open.len() == MAX_OPEN {
                    self.open.pop_front();
                }
                self.open.push_back(tool.id.clone());
            }
            Sign::ToolEnded { id, heartbeat, .. } => {
                if let Some(at) = self.open.iter().position(|open| open == id) {
                    self.open.remove(at);
                    *heartbeat = true;
                }
            }
            _ => {}
        }
    }
}

impl Sign {
    /// It says that the agent is alive, and no more.
    pub fn is_heartbeat(&self) -> bool {
        match self {
            Sign::ToolStarted(tool) => tool.heartbeat,
            Sign::ToolEnded { heartbeat, .. } => *heartbeat,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::ToolStarted;

    fn starts(id: &str, heartbeat: bool) -> Sign {
        let (id, name) = (id.to_owned(), "x".to_owned());
        Sign::ToolStarted(ToolStarted {
            id,
            name,
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
    fn the_end_of_a_heartbeat_is_known_by_its_start_and_once() {
        let signs = vec![starts("a", true), starts("b", false), ends("b"), ends("a"), ends("a"), ends("c")];
        assert_eq!(marked(signs), [true, false, false, true, false, false]);
    }

    #[test]
    fn of_too_many_that_are_open_the_oldest_is_forgotten() {
        for (open, known) in [(MAX_OPEN, true), (MAX_OPEN + 1, false)] {
            let mut signs: Vec<Sign> = (0..open).map(|n| starts(&n.to_string(), true)).collect();
            signs.push(ends("0"));
            assert_eq!(marked(signs).last(), Some(&known), "{open}");
        }
    }
}
