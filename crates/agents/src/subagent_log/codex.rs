//! Codex: `sessions/<year>/<month>/<day>/rollout-<time>-<thread>.jsonl`, one file per thread. The first line of a
//! subagent's file names the session that it belongs to.

use super::{Entry, Reading};
use crate::json::{Json, Raw};
use crate::lines::Line;
use crate::reader::identified;
use dogwatch_core::record::windows::{Percent, Window, WindowName};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use dogwatch_core::watch::sign::{ResetsAt, Sign};

/// Classifies a directory entry.
pub fn entry(session: &str, depth: usize, name: &str) -> Entry {
    let digits = |count: usize| name.len() == count && name.bytes().all(|b| b.is_ascii_digit());
    match depth {
        0 if name == "sessions" => Entry::Dir,
        1 if digits(4) => Entry::Newest,
        2 | 3 if digits(2) => Entry::Newest,
        4 if name.starts_with("rollout-") => match name.strip_suffix(".jsonl") {
            Some(stem) if stem.ends_with(session) => Entry::Own,
            Some(_) => Entry::File,
            None => Entry::Nothing,
        },
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

/// A window as the session's file reports it.
#[derive(Default)]
struct Slot {
    used_percent: Option<f64>,
    minutes: Option<f64>,
    resets_at: Option<f64>,
    resets_in_s: Option<f64>,
}

impl Slot {
    /// Returns the window by its length; its position has no meaning. A relative reset counts from the line's time.
    fn window(&self, at: Option<Wall>) -> Option<Window> {
        let window = WindowName::of_length(Dur::from_secs_f64(self.minutes? * 60.0).ok()?)?;
        let absolute = self.resets_at.filter(|n| *n >= 0.0).and_then(|n| ResetsAt::from_epoch(n as u64));
        let relative = self.resets_in_s.and_then(|n| Dur::from_secs_f64(n).ok());
        let resets_at = match absolute {
            Some(ResetsAt::At(at)) => Some(at),
            Some(ResetsAt::In(_) | ResetsAt::Clock(_)) | None => at.zip(relative).map(|(at, d)| at.plus(d)),
        };
        Some(Window { window, used_percent: Percent::new(self.used_percent?)?, resets_at })
    }
}

/// Reads a line of the session's own file. It reports the model and the windows of the subscription, which the output
/// does not.
pub fn said(line: Line<'_>, signs: &mut Vec<Sign>) {
    // Most lines are long and irrelevant here.
    let mentions = |word: &[u8]| memchr::memmem::find(line.bytes, word).is_some();
    if mentions(b"\"turn_context\"") {
        return uses_model(line, signs);
    }
    if !mentions(b"\"token_count\"") {
        return;
    }
    let (mut kind, mut payload, mut limit) = (Vec::new(), Vec::new(), Vec::new());
    let (mut at, mut slots) = (None, [Slot::default(), Slot::default()]);
    let text = |json: &mut Json<'_>| json.text().unwrap_or_default().0.to_vec();
    let whole = Json::object(line.bytes, |key, json| match key {
        b"timestamp" => at = json.text().and_then(|text| Wall::from_rfc3339(&text.decode())),
        b"type" => kind = text(json),
        b"payload" => json.fields(|key, json| match key {
            b"type" => payload = text(json),
            b"rate_limits" => json.fields(|key, json| match key {
                b"limit_id" => limit = text(json),
                b"primary" => slot(&mut slots[0], json),
                b"secondary" => slot(&mut slots[1], json),
                _ => {}
            }),
            _ => {}
        }),
        _ => {}
    });
    // Other limits, such as those of one model, are in the same file.
    if !whole || kind != b"event_msg" || payload != b"token_count" || !matches!(&*limit, b"" | b"codex") {
        return;
    }
    let windows: Vec<Window> = slots.iter().filter_map(|slot| slot.window(at)).collect();
    if !windows.is_empty() {
        signs.retain(|sign| !matches!(sign, Sign::Windows { .. }));
        signs.push(Sign::Windows { seen_at: at, windows });
    }
}

/// Reads the model of a turn.
fn uses_model(line: Line<'_>, signs: &mut Vec<Sign>) {
    let (mut is_context, mut model) = (false, Raw::default());
    Json::object(line.bytes, |key, json| match key {
        b"type" => is_context = json.text().is_some_and(|kind| kind.0 == b"turn_context"),
        b"payload" => json.fields(|key, json| {
            if key == b"model" {
                model = json.text().unwrap_or_default();
            }
        }),
        _ => {}
    });
    if let Some(agent) = identified(Raw::default(), model).filter(|_| is_context) {
        signs.retain(|sign| !matches!(sign, Sign::Agent { .. }));
        signs.push(agent);
    }
}

fn slot(slot: &mut Slot, json: &mut Json<'_>) {
    json.fields(|key, json| match key {
        b"used_percent" => slot.used_percent = json.number(),
        b"window_minutes" => slot.minutes = json.number(),
        b"resets_at" => slot.resets_at = json.number(),
        b"resets_in_seconds" => slot.resets_in_s = json.number(),
        _ => {}
    });
}
