//! Replays a transcript of an agent's CLI, each user turn alone.

use super::read::Lines;
use crate::error::CliError;
use crate::screen::words;
use dogwatch_agents::{Format, Turns};
use dogwatch_core::settings::WatchPolicy;
use dogwatch_core::watch::replay::Replayed;
use std::collections::BTreeMap;

/// The most unknown types of records that are printed.
const MAX_NAMED: usize = 8;

/// Replays all turns of a transcript. Notes skipped records on stderr.
pub fn replay(mut lines: Lines, format: Format, policy: &WatchPolicy) -> Result<Vec<Replayed>, CliError> {
    let mut turns = Turns::new(format, policy.clone(), false);
    while let Some(line) = lines.next()? {
        turns.take(line);
    }
    let done = turns.finish();
    if done.turns.is_empty() {
        crate::runs::note("the transcript has no user turn");
    }
    if !done.unknown.is_empty() {
        crate::runs::note(&skipped(&done.unknown));
    }
    Ok(done.turns)
}

/// Returns a note about the skipped records.
fn skipped(unknown: &BTreeMap<String, u64>) -> String {
    let count: u64 = unknown.values().sum();
    let named: Vec<String> =
        unknown.iter().take(MAX_NAMED).map(|(kind, n)| format!("{kind} ({n})")).collect();
    let more = if unknown.len() > MAX_NAMED { ", ..." } else { "" };
    let records = words::count(count, "record");
    format!("skipped {records} of unknown types: {}{more}", named.join(", "))
}
