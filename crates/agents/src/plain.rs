//! Any program: each line that is not blank is a message, the last of stdout is the result.

use crate::reader::is_blank;
use crate::tail::Tail;
use dogwatch_core::sign::{AgentResult, Sign};

#[derive(Debug)]
pub struct Plain {
    said: Tail,
}

impl Default for Plain {
    fn default() -> Plain {
        Plain { said: Tail::new(AgentResult::MAX_TEXT) }
    }
}

impl Plain {
    pub fn read(&mut self, line: &[u8], signs: &mut Vec<Sign>) {
        self.said.push(line);
        self.said.push(b"\n");
        if !is_blank(line) {
            signs.push(Sign::Message);
        }
    }

    /// A plain agent does not say how it ended: its exit code does.
    pub fn finish(&mut self, signs: &mut Vec<Sign>) {
        let text = String::from_utf8_lossy(self.said.bytes());
        signs.push(Sign::Result(AgentResult::new(&text, false)));
    }
}
