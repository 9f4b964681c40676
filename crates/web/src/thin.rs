//! Reduces the events of a run to a size limit. Important events are kept; progress records are merged in coarser and
//! coarser steps until the rest fits.

use dogwatch_core::record::event::{Event, Observation, Recorded};
use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_core::record::words;
use dogwatch_core::text::figures::count;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::{Awake, Wall};
use dogwatch_core::watch::{Channel, Fact};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;

/// One level of reduction. Levels are tried in order until the record fits.
struct Level {
    /// Progress within one step of this length becomes one record.
    step: Option<Dur>,
    /// Whether starts and ends of tools are kept as separate records.
    tools: bool,
    /// Whether records of prompts, commands, snapshots, usage and samples are kept.
    details: bool,
}

const LEVELS: [Level; 6] = [
    Level { step: None, tools: true, details: true },
    Level { step: Some(Dur::from_secs(10)), tools: true, details: true },
    Level { step: Some(Dur::from_secs(30)), tools: true, details: false },
    Level { step: Some(Dur::from_mins(1)), tools: false, details: false },
    Level { step: Some(Dur::from_mins(5)), tools: false, details: false },
    Level { step: Some(Dur::from_mins(30)), tools: false, details: false },
];

/// How many lines of the beginning are kept if the record fits at no level. The remaining space is for the end.
pub const KEPT_OF_BEGINNING: usize = 200;

/// The events as JSON, and notes for the user about the reduction.
#[derive(Default)]
pub(crate) struct Thinned {
    pub lines: Vec<Box<RawValue>>,
    pub notes: Vec<String>,
}

/// Reduces events to at most `room` bytes, including separators.
pub(crate) fn thin(events: &[Recorded], room: usize) -> Thinned {
    let mut last = Thinned::default();
    for level in &LEVELS {
        last = at_level(events, level);
        if last.lines.iter().map(|line| bytes(line)).sum::<usize>() <= room {
            return last;
        }
    }
    cut_middle(last, room)
}

/// The escape for `<` in the file. Agent output may contain many of them.
pub(crate) const ESCAPED: &str = "\\u003c";

/// Returns the size of a line in the file, including its separator.
fn bytes(line: &RawValue) -> usize {
    let text = line.get();
    text.len() + 1 + text.bytes().filter(|b| *b == b'<').count() * (ESCAPED.len() - 1)
}

/// A line of the record with the fields that the page shows.
#[derive(Serialize)]
struct ReportLine<'a> {
    seq: u64,
    at: Wall,
    awake_ms: Awake,
    #[serde(flatten)]
    event: &'a Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    sentence: Option<String>,
}

type Numbered = (u64, Box<RawValue>);

fn line(seq: u64, at: Wall, awake_ms: Awake, event: &Event) -> Numbered {
    // Serialization cannot fail: the event was read from JSON.
    let sentence = words::in_list(event);
    (seq, to_raw_value(&ReportLine { seq, at, awake_ms, event, sentence }).unwrap_or_default())
}

/// Progress that is being merged. The merged record takes the position of its last part.
struct Open {
    seq: u64,
    at: Wall,
    awake: Awake,
    seen: Observation,
}

fn at_level(events: &[Recorded], level: &Level) -> Thinned {
    let mut out: Vec<Numbered> = Vec::with_capacity(events.len());
    let mut open: BTreeMap<(NodeName, Iteration, &'static str), Open> = BTreeMap::new();
    let (mut merged, mut dropped) = (0_u64, 0_u64);
    for recorded in events {
        let Some((node, iteration, seen)) = progress(recorded, level) else {
            if level.details || !is_detail(&recorded.event) {
                out.push(line(recorded.seq, recorded.at, recorded.awake_ms, &recorded.event));
            } else {
                dropped += 1;
            }
            continue;
        };
        let key = (node.clone(), iteration, seen.channel.as_str());
        let next = Open { seq: recorded.seq, at: recorded.at, awake: recorded.awake_ms, seen };
        match open.get_mut(&key) {
            Some(held) if same_step(&held.seen, &next.seen, level) => {
                merged += 1;
                *held = joined(held, next);
            }
            Some(held) => {
                let done = std::mem::replace(held, next);
                out.push(closed(&key, &done));
            }
            None => {
                open.insert(key, next);
            }
        }
    }
    out.extend(open.iter().map(|(key, held)| closed(key, held)));
    out.sort_by_key(|(seq, _)| *seq);
    Thinned { lines: out.into_iter().map(|(_, line)| line).collect(), notes: notes(level, merged, dropped) }
}

/// Returns the observation if the event counts as progress at this level.
#[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
fn progress(recorded: &Recorded, level: &Level) -> Option<(NodeName, Iteration, Observation)> {
    level.step?;
    match &recorded.event {
        Event::Observed { node, iteration, seen } => Some((node.clone(), *iteration, *seen)),
        Event::Fact { node, iteration, fact: Fact::ToolStarted(_) | Fact::ToolEnded { .. } }
            if !level.tools =>
        {
            Some((node.clone(), *iteration, Observation::single(Channel::Stdout, recorded.awake_ms)))
        }
        _ => None,
    }
}

fn is_detail(event: &Event) -> bool {
    matches!(
        event,
        Event::PromptAssembled { .. }
            | Event::CommandFinished(_)
            | Event::SnapshotTaken { .. }
            | Event::Used { .. }
            | Event::DayUsed(_)
            | Event::WindowsUsed(_)
            | Event::IdleLearned { .. }
            | Event::Fact { fact: Fact::Sampled { .. } | Fact::Printed, .. }
    )
}

fn same_step(held: &Observation, next: &Observation, level: &Level) -> bool {
    level.step.is_some_and(|step| held.first_ms.0 / step.as_millis() == next.first_ms.0 / step.as_millis())
}

fn joined(held: &Open, next: Open) -> Open {
    let gap = next.seen.first_ms.since(held.seen.last_ms).as_millis();
    Open {
        seen: Observation {
            first_ms: held.seen.first_ms,
            last_ms: held.seen.last_ms.max(next.seen.last_ms),
            count: held.seen.count.saturating_add(next.seen.count),
            messages: held.seen.messages.saturating_add(next.seen.messages),
            max_gap_ms: held.seen.max_gap_ms.max(next.seen.max_gap_ms).max(gap),
            ..next.seen
        },
        ..next
    }
}

fn closed(key: &(NodeName, Iteration, &'static str), held: &Open) -> Numbered {
    let event = Event::Observed { node: key.0.clone(), iteration: key.1, seen: held.seen };
    line(held.seq, held.at, held.awake, &event)
}

fn notes(level: &Level, merged: u64, dropped: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(step) = level.step.filter(|_| merged > 0) {
        notes.push(format!(
            "To keep this file small, progress is shown in steps of {step}; merged {}.",
            count(merged, "record")
        ));
    }
    if dropped > 0 {
        let records = count(dropped, "record");
        notes.push(format!("Left out {records} of prompts, commands, snapshots and usage."));
    }
    notes
}

/// Keeps the beginning and the end. The first line describes the run.
fn cut_middle(mut thinned: Thinned, room: usize) -> Thinned {
    let all = thinned.lines.len();
    let mut used = 0;
    let mut fits = |line: &RawValue| {
        used += bytes(line);
        used <= room
    };
    let head = thinned.lines.iter().take(KEPT_OF_BEGINNING).take_while(|line| fits(line)).count();
    let tail = thinned.lines[head..].iter().rev().take_while(|line| fits(line)).count();
    thinned.lines.drain(head..all - tail);
    let left = all - head - tail;
    if left > 0 {
        thinned.notes.push(format!(
            "Left out {} from the middle of the run, for lack of space.",
            count(left as u64, "record")
        ));
    }
    thinned
}
