//! Writes events as JSON and reads them, for the simulation and the tests of the core.
//!
//! The derived code for an event is large, and each program that calls `serde_json` with an event compiles it again. The
//! simulation and the tests of the core are optimized, which makes that slow. This crate compiles the code once, without
//! optimization: JSON is a small part of the time that the tests take.

use dogwatch_core::record::event::Recorded;
use dogwatch_core::settings::Plan;

/// Appends an event as JSON, without a newline.
pub fn write(out: &mut Vec<u8>, recorded: &Recorded) -> serde_json::Result<()> {
    serde_json::to_writer(out, recorded)
}

/// Reads an event from JSON.
pub fn read(json: &[u8]) -> serde_json::Result<Recorded> {
    serde_json::from_slice(json)
}

/// Formats a plan as JSON for people to read.
pub fn pretty_plan(plan: &Plan) -> serde_json::Result<String> {
    serde_json::to_string_pretty(plan)
}
