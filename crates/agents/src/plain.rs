//! Any program: each line that says something new is a message, the last of stdout is the result.

use crate::novelty::Novelty;
use crate::reader::is_blank;
use crate::tail::Tail;
use dogwatch_core::watch::sign::{AgentResult, Sign};

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
    pub fn read(&mut self, line: &[u8], novelty: &mut Novelty, signs: &mut Vec<Sign>) {
        self.said.push(line);
        self.said.push(b"\n");
        Plain::judge(line, novelty, signs);
    }

    /// The same line again, with another time in it or not, says nothing new. The core decides whether it counts.
    pub fn judge(line: &[u8], novelty: &mut Novelty, signs: &mut Vec<Sign>) {
        if novelty.is_new(line) {
            signs.push(Sign::Message);
        } else if !is_blank(line) {
            signs.push(Sign::Repeated);
        }
    }

    /// A plain agent does not say how it ended: its exit code does.
    pub fn finish(&mut self, signs: &mut Vec<Sign>) {
        let text = String::from_utf8_lossy(self.said.bytes());
        signs.push(Sign::Result(AgentResult::new(&text, false)));
    }
}
