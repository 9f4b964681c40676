//! Any other program: each new line is a message, and the end of stdout is the result.

use crate::novelty::Novelty;
use crate::reader::is_blank;
use crate::tail_buffer::TailBuffer;
use dogwatch_core::watch::sign::{AgentResult, Sign};

/// Reads the output of a plain program.
#[derive(Debug, Default)]
pub struct Plain {
    said: TailBuffer<{ AgentResult::MAX_TEXT }>,
}

impl Plain {
    /// Reads a line of stdout.
    pub fn read(&mut self, line: &[u8], novelty: &mut Novelty, signs: &mut Vec<Sign>) {
        self.said.push_line(line);
        Plain::judge(line, novelty, signs);
    }

    /// Takes whole lines of stdout that need not be classified.
    pub fn skip(&mut self, lines: &[u8]) {
        self.said.push(lines);
    }

    /// Classifies a line. A repeated line, even with another timestamp, is not new. The core decides whether it counts.
    pub fn judge(line: &[u8], novelty: &mut Novelty, signs: &mut Vec<Sign>) {
        if novelty.is_new(line) {
            signs.push(Sign::Message);
        } else if !is_blank(line) {
            signs.push(Sign::Repeated);
        }
    }

    /// Reports the result. A plain agent's outcome is known only from its exit code.
    pub fn finish(&mut self, signs: &mut Vec<Sign>) {
        let text = String::from_utf8_lossy(self.said.bytes());
        signs.push(Sign::Result(AgentResult::new(&text, false)));
    }
}
