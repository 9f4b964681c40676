//! Ids and names that are validated once, when they enter the program.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Identifies a run: `YYYYMMDD-HHMMSS-xxxx` in UTC, sortable as text, safe as a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

/// The characters of the random tail: no vowels, so that it forms no words, and no look-alikes.
const TAIL: &[u8; 27] = b"23456789bcdfghjkmnpqrstvwxz";
const TAIL_LEN: usize = 4;

impl RunId {
    /// Returns the last part of the id, which is enough to select the run in its project.
    pub fn tail(&self) -> &str {
        self.0.rsplit('-').next().unwrap_or(&self.0)
    }

    /// Creates an id from the wall clock and four random bytes, which the host supplies.
    pub fn new(at: crate::time::moment::Wall, random: [u8; TAIL_LEN]) -> RunId {
        let stamp: String =
            at.to_string().chars().take(19).filter(|c| c.is_ascii_digit() || *c == 'T').collect();
        let tail: String = random.iter().map(|b| TAIL[usize::from(*b) % TAIL.len()] as char).collect();
        RunId(format!("{}-{tail}", stamp.replace('T', "-")))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is not a valid run id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunIdError(pub String);

impl fmt::Display for RunIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a run id (expected something like 20261115-201533-k3f9)",
            self.0.escape_default()
        )
    }
}

impl std::error::Error for RunIdError {}

impl FromStr for RunId {
    type Err = RunIdError;

    fn from_str(text: &str) -> Result<RunId, RunIdError> {
        let shape = |b: &[u8]| {
            b.len() == 20
                && b.iter().enumerate().all(|(i, c)| match i {
                    8 | 15 => *c == b'-',
                    16.. => TAIL.contains(c),
                    _ => c.is_ascii_digit(),
                })
        };
        if shape(text.as_bytes()) { Ok(RunId(text.to_owned())) } else { Err(RunIdError(text.to_owned())) }
    }
}

impl TryFrom<String> for RunId {
    type Error = RunIdError;

    fn try_from(text: String) -> Result<RunId, RunIdError> {
        text.parse()
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> String {
        id.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A node's name, as users see it. The only node of a loop file is named after its directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(String);

impl NodeName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 100;
    /// The names in a run's directory that do not belong to a node.
    const OF_THE_RECORD: [&str; 5] = ["events.jsonl", "plan.json", "alive", "socket", "undo"];

    /// Returns whether a file of the record has this name.
    pub fn is_taken(text: &str) -> bool {
        NodeName::OF_THE_RECORD.contains(&text.to_lowercase().as_str())
    }

    /// Creates a name from any text. Characters that are unsafe in a path or on a screen become `_`. A name that the
    /// record uses itself gets the suffix `-loop`.
    pub fn new(text: &str) -> NodeName {
        let clean: String =
            text.chars().map(|c| if c.is_control() || c == '/' || c == '\\' { '_' } else { c }).collect();
        let clean = crate::text::clip(clean.trim(), NodeName::MAX_BYTES);
        match clean {
            "" | "." | ".." => NodeName("loop".to_owned()),
            name if NodeName::is_taken(name) => NodeName(format!("{name}-loop")),
            name => NodeName(name.to_owned()),
        }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The index of a node within its run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIx(pub usize);

/// The number of an iteration of a node, from 1. A number is never reused within a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Iteration(pub u64);

impl Iteration {
    /// Returns the number after this one.
    pub fn next(self) -> Iteration {
        Iteration(self.0.saturating_add(1))
    }
}

impl fmt::Display for Iteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::moment::Wall;

    #[test]
    fn a_run_id_is_sortable_and_reads_back() {
        let early = RunId::new(Wall(1_794_773_733_007), [0, 1, 2, 255]);
        let late = RunId::new(Wall(1_794_773_734_007), [0, 0, 0, 0]);
        assert_eq!(early.as_str(), "20261115-201533-234g");
        assert!(early < late);
        assert_eq!(early.as_str().parse(), Ok(early));
    }

    #[test]
    fn a_name_that_the_record_uses_gets_a_suffix() {
        for (text, name) in [
            ("events.jsonl", "events.jsonl-loop"),
            ("Alive", "Alive-loop"),
            ("undo", "undo-loop"),
            ("logs", "logs"),
        ] {
            assert_eq!(NodeName::new(text).as_str(), name);
        }
    }

    #[test]
    fn an_invalid_run_id_is_rejected() {
        for text in
            ["", "../../etc/passwd", "20261115-201533-k3f", "20261115-201533-k3f9x", "2026111a-201533-k3f9"]
        {
            assert!(text.parse::<RunId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_node_name_is_safe_in_paths_and_on_screens() {
        assert_eq!(NodeName::new("fix-bugs").as_str(), "fix-bugs");
        assert_eq!(NodeName::new("a/b\u{1b}[2Jc").as_str(), "a_b_[2Jc");
        assert_eq!(NodeName::new("..").as_str(), "loop");
        assert_eq!(NodeName::new(&"é".repeat(200)).as_str().len(), NodeName::MAX_BYTES);
    }
}
