//! The messages between `dogwatch feed`, which sends the runs of a machine, and the dogwatch that shows them.
//!
//! One message per line. A line of a journal is passed on as it is, after `+RUN `; every other message is JSON.

use dogwatch_core::record::ids::RunId;
use dogwatch_core::time::moment::{Awake, Boot, Moment, Wall};
use dogwatch_host::store::journal;
use dogwatch_host::store::mirror::RemoteRun;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The version of these messages.
pub const VERSION: u32 = 1;
/// The longest message of a feed, in bytes: a line of a journal with its prefix.
pub const MAX_FROM_FEED: usize = journal::MAX_LINE + 256;
/// The longest message to a feed, in bytes.
pub const MAX_TO_FEED: usize = 256 * 1024;

/// A message of a feed.
#[derive(Clone, Debug, PartialEq)]
pub enum FromFeed {
    /// The machine is alive. Sent first, and then at least every few seconds.
    Here {
        /// The version of dogwatch on that machine.
        version: String,
        /// The moment on its clocks.
        now: Moment,
    },
    /// The runs of the machine.
    Runs(Vec<RemoteRun>),
    /// A line of the journal of a run, without its newline.
    Line(RunId, Vec<u8>),
    /// The journal of a run was replaced; its lines follow again.
    Restart(RunId),
    /// The answer to a request.
    Answer(Answer),
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The number of the request.
    pub id: u64,
    /// The HTTP status of the run's answer.
    pub status: u16,
    /// Its body.
    pub body: Value,
}

/// A message to a feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToFeed {
    /// The last sequence number that is known of each run. The first message.
    Have(BTreeMap<RunId, u64>),
    /// A request to a run.
    Ask {
        /// The number of the request.
        id: u64,
        /// The run.
        run: RunId,
        /// The name of the request in the API of a run.
        what: String,
        /// Its body.
        body: Value,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Json {
    Here { v: u32, version: String, awake_ms: u64, boot_ms: u64, wall_ms: i64 },
    Runs(Vec<RemoteRun>),
    Restart(RunId),
    Answer(Answer),
}

impl FromFeed {
    /// Writes the message as one line, with its newline.
    pub fn to_line(&self) -> Vec<u8> {
        let json = match self {
            FromFeed::Line(run, line) => return [b"+", run.as_str().as_bytes(), b" ", line, b"\n"].concat(),
            FromFeed::Here { version, now } => Json::Here {
                v: VERSION,
                version: version.clone(),
                awake_ms: now.awake.0,
                boot_ms: now.boot.0,
                wall_ms: now.wall.0,
            },
            FromFeed::Runs(runs) => Json::Runs(runs.clone()),
            FromFeed::Restart(run) => Json::Restart(run.clone()),
            FromFeed::Answer(answer) => Json::Answer(answer.clone()),
        };
        json_line(&json)
    }

    /// Reads a line, without its newline.
    pub fn parse(line: &[u8]) -> Result<FromFeed, String> {
        if let Some(rest) = line.strip_prefix(b"+") {
            let space = rest.iter().position(|b| *b == b' ').ok_or("a journal line without a run")?;
            let run = std::str::from_utf8(&rest[..space]).ok().and_then(|run| run.parse().ok());
            let run = run.ok_or("a journal line with an invalid run id")?;
            return Ok(FromFeed::Line(run, rest[space + 1..].to_vec()));
        }
        let json: Json = serde_json::from_slice(line).map_err(|e| format!("unexpected message: {e}"))?;
        Ok(match json {
            Json::Here { v, .. } if v != VERSION => {
                return Err(format!("its dogwatch speaks version {v} of the protocol, this one {VERSION}"));
            }
            Json::Here { version, awake_ms, boot_ms, wall_ms, .. } => {
                let now = Moment { awake: Awake(awake_ms), boot: Boot(boot_ms), wall: Wall(wall_ms) };
                FromFeed::Here { version, now }
            }
            Json::Runs(runs) => FromFeed::Runs(runs),
            Json::Restart(run) => FromFeed::Restart(run),
            Json::Answer(answer) => FromFeed::Answer(answer),
        })
    }
}

impl ToFeed {
    /// Writes the message as one line, with its newline.
    pub fn to_line(&self) -> Vec<u8> {
        json_line(self)
    }

    /// Reads a line, without its newline.
    pub fn parse(line: &[u8]) -> Result<ToFeed, String> {
        serde_json::from_slice(line).map_err(|e| format!("unexpected message: {e}"))
    }
}

fn json_line(value: &impl Serialize) -> Vec<u8> {
    // Maps with ids as keys and plain values always serialize.
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Cuts a stream of bytes into lines of bounded length.
#[derive(Debug)]
pub struct Lines {
    buffer: Vec<u8>,
    max: usize,
}

impl Lines {
    /// Returns an empty buffer for lines of at most `max` bytes.
    pub fn of(max: usize) -> Lines {
        Lines { buffer: Vec::new(), max }
    }

    /// Adds bytes and returns the lines that are complete, without their newlines.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        self.buffer.extend_from_slice(bytes);
        let mut lines = Vec::new();
        if let Some(last) = memchr::memrchr(b'\n', bytes) {
            let end = self.buffer.len() - bytes.len() + last;
            let rest = self.buffer.split_off(end + 1);
            let whole = std::mem::replace(&mut self.buffer, rest);
            lines = whole[..end].split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
        }
        let longest = lines.iter().map(Vec::len).chain([self.buffer.len()]).max().unwrap_or(0);
        if longest > self.max { Err(format!("a message of more than {} bytes", self.max)) } else { Ok(lines) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(n: u8) -> RunId {
        RunId::new(Wall(1_794_773_733_000), [n; 4])
    }

    #[test]
    fn every_message_reads_back_as_it_was_written() {
        let now = Moment { awake: Awake(1), boot: Boot(2), wall: Wall(1_794_773_733_000) };
        let listed = RemoteRun { run: run(1), path: "/loop/RALPH.md".into(), since: now.wall, live: true };
        let messages = [
            FromFeed::Here { version: "1.2.3".into(), now },
            FromFeed::Runs(vec![listed]),
            FromFeed::Line(run(1), br#"{"seq":1,"text":"a b"}"#.to_vec()),
            FromFeed::Restart(run(2)),
            FromFeed::Answer(Answer { id: 7, status: 202, body: serde_json::json!({"ok": true}) }),
        ];
        for message in messages {
            let line = message.to_line();
            let (newline, line) = line.split_last().expect("is not empty");
            assert_eq!(*newline, b'\n');
            assert!(!line.contains(&b'\n'));
            assert_eq!(FromFeed::parse(line), Ok(message));
        }
        let ask = ToFeed::Ask { id: 7, run: run(1), what: "wake".into(), body: serde_json::json!({}) };
        for message in [ToFeed::Have(BTreeMap::from([(run(1), 12)])), ask] {
            let line = message.to_line();
            assert_eq!(ToFeed::parse(line.trim_ascii_end()), Ok(message));
        }
    }

    #[test]
    fn other_text_and_another_version_are_errors() {
        for line in ["", "Welcome to box1!", "+", "+norun {}", "+20261115-201533-k3f9", "{\"here\":{}}"] {
            assert!(FromFeed::parse(line.as_bytes()).is_err(), "{line}");
        }
        let newer = r#"{"here":{"v":2,"version":"9","awake_ms":0,"boot_ms":0,"wall_ms":0}}"#;
        let error = FromFeed::parse(newer.as_bytes()).expect_err("is newer");
        assert_eq!(error, "its dogwatch speaks version 2 of the protocol, this one 1");
    }

    #[test]
    fn lines_are_cut_at_any_boundary_and_a_long_one_is_refused() {
        let text = b"one\ntwo\n\nfour\nfi";
        for size in 1..text.len() {
            let mut lines = Lines::of(4);
            let pieces = text.chunks(size).map(|piece| lines.take(piece).expect("all are short"));
            let got: Vec<Vec<u8>> = pieces.flatten().collect();
            assert_eq!(got, [&b"one"[..], b"two", b"", b"four"], "in pieces of {size}");
        }
        assert!(Lines::of(4).take(b"abcde").is_err());
        assert!(Lines::of(4).take(b"abcde\n").is_err());
    }
}
