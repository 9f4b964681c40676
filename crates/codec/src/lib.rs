//! The JSON of the record: writes events and reads them.
//!
//! The derived code for an event is large, and each crate that passes an event to `serde_json` compiles it again. All crates
//! go through this one instead, so that the code is compiled once and is in the binary once. It has a level of optimization
//! of its own (`Cargo.toml`).

use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::settings::Plan;
use dogwatch_core::time::moment::{Awake, Boot, Wall};
use serde::{Deserialize, Serialize};
use serde_json::Result;
use std::borrow::Cow;

/// A line of the journal.
#[derive(Serialize)]
struct Line<'a> {
    v: u32,
    seq: u64,
    at: Wall,
    awake_ms: Awake,
    boot_ms: Boot,
    #[serde(flatten)]
    event: &'a Event,
}

/// The fields that every line of a journal has. They are read without the rest of the line.
#[derive(Debug, Deserialize)]
pub struct Head<'a> {
    /// The version of the journal's format.
    pub v: u32,
    /// The number of the event.
    pub seq: u64,
    at: Wall,
    awake_ms: Awake,
    boot_ms: Boot,
    /// The hash of the line before it. Empty if there is none.
    #[serde(borrow, default)]
    pub prev: Cow<'a, str>,
}

impl Head<'_> {
    /// Reads the head of a line.
    pub fn of(line: &[u8]) -> Result<Head<'_>> {
        serde_json::from_slice(line)
    }

    /// Reads the rest of the line: the event.
    pub fn read(&self, line: &[u8]) -> Result<Recorded> {
        // An event ignores the fields of the head. Reading the line once, with the event flattened, would copy all fields twice.
        let event = serde_json::from_slice(line)?;
        let Head { v, seq, at, awake_ms, boot_ms, .. } = *self;
        Ok(Recorded { v, seq, at, awake_ms, boot_ms, event })
    }
}

/// Reads the version of a line's format. A later format may change every other field.
pub fn version(line: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    serde_json::from_slice(line).ok().map(|Version { v }| v)
}

/// Appends an event as JSON, without a newline.
pub fn write(out: &mut Vec<u8>, recorded: &Recorded) -> Result<()> {
    let Recorded { v, seq, at, awake_ms, boot_ms, ref event } = *recorded;
    serde_json::to_writer(out, &Line { v, seq, at, awake_ms, boot_ms, event })
}

/// Returns an event as JSON, without a newline.
pub fn to_string(recorded: &Recorded) -> Result<String> {
    let mut out = Vec::new();
    write(&mut out, recorded)?;
    Ok(String::from_utf8(out).expect("JSON is UTF-8"))
}

/// Reads an event from JSON.
pub fn read(json: &[u8]) -> Result<Recorded> {
    Head::of(json)?.read(json)
}

/// Formats a plan as JSON for people to read.
pub fn pretty_plan(plan: &Plan) -> Result<String> {
    serde_json::to_string_pretty(plan)
}
