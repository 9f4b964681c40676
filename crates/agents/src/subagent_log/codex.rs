//! Codex: `sessions/<year>/<month>/<day>/rollout-<time>-<thread>.jsonl`, one file per thread. The first line of a
//! subagent's file names the session that it belongs to.

use super::{Entry, Reading};
use crate::json::Json;
use crate::lines::Line;

/// Classifies a directory entry.
pub fn entry(depth: usize, name: &str) -> Entry {
    let digits = |count: usize| name.len() == count && name.bytes().all(|b| b.is_ascii_digit());
    match depth {
        0 if name == "sessions" => Entry::Dir,
        1 if digits(4) => Entry::Newest,
        2 | 3 if digits(2) => Entry::Newest,
        4 if name.starts_with("rollout-") && name.ends_with(".jsonl") => Entry::File,
        _ => Entry::Nothing,
    }
}

/// The relevant fields of a line.
#[derive(Default)]
struct Row {
    kind: Vec<u8>,
    payload: Vec<u8>,
    role: Vec<u8>,
    item: Vec<u8>,
    /// The id of the thread, of its session, and of its parent thread.
    id: Vec<u8>,
    session: Vec<u8>,
    parent: Vec<u8>,
}

/// Returns whether the line shows work of a subagent.
pub fn did_something(session: &str, reading: &mut Reading, line: Line<'_>) -> bool {
    if reading.ours == Some(false) {
        return false;
    }
    let Some(row) = row(line) else { return false };
    if reading.ours.is_none() {
        // The first line decides; a file that begins with any other record is not a subagent's.
        reading.ours = Some(row.kind == b"session_meta" && belongs(&row, session.as_bytes()));
        return false;
    }
    // A thread may begin with a copy of its parent's history.
    reading.begun |= row.kind == b"event_msg" && row.payload == b"task_started";
    reading.begun && is_work(&row)
}

fn belongs(row: &Row, session: &[u8]) -> bool {
    row.id != session && (row.parent == session || row.session == session)
}

fn is_work(row: &Row) -> bool {
    match (row.kind.as_slice(), row.payload.as_slice()) {
        (b"response_item", b"message") => row.role == b"assistant",
        (b"response_item", _) => true,
        (b"event_msg", b"item_completed") => row.item != b"UserMessage",
        (b"event_msg", b"task_complete" | b"turn_aborted") => true,
        _ => false,
    }
}

fn row(line: Line<'_>) -> Option<Row> {
    let mut row = Row::default();
    let text = |json: &mut Json<'_>| json.text().unwrap_or_default().0.to_vec();
    let whole = Json::object(line.bytes, |key, json| match key {
        b"type" => row.kind = text(json),
        b"payload" => json.fields(|key, json| match key {
            b"type" => row.payload = text(json),
            b"role" => row.role = text(json),
            b"id" => row.id = text(json),
            b"session_id" => row.session = text(json),
            b"parent_thread_id" => row.parent = text(json),
            b"item" => json.fields(|key, json| {
                if key == b"type" {
                    row.item = text(json);
                }
            }),
            b"source" => json.fields(|_, source| {
                source.fields(|_, spawn| {
                    spawn.fields(|key, json| {
                        if key == b"parent_thread_id" {
                            row.parent = text(json);
                        }
                    });
                });
            }),
            _ => {}
        }),
        _ => {}
    });
    (whole || line.cut).then_some(row)
}
