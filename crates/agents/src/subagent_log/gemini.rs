//! Gemini CLI: `tmp/<project>/chats/<session>/<subagent>.jsonl`, one file per subagent. The session's own chat is one
//! level above and does not count.

use super::Entry;
use crate::json::Json;
use crate::lines::Line;

/// Classifies a directory entry.
pub fn entry(session: &str, depth: usize, name: &str) -> Entry {
    match depth {
        0 if name == "tmp" => Entry::Dir,
        1 => Entry::Recent,
        2 if name == "chats" => Entry::Dir,
        3 if name == session => Entry::Dir,
        4 if name.ends_with(".jsonl") => Entry::File,
        _ => Entry::Nothing,
    }
}

/// Returns whether the subagent sent a message, called a tool or received a result. `$set` lines are bookkeeping, and
/// the prompt is the parent's text.
pub fn did_something(line: Line<'_>) -> bool {
    let (mut spoke, mut user, mut answered) = (false, false, false);
    let whole = Json::object(line.bytes, |key, json| match key {
        b"type" => match json.text().unwrap_or_default().0 {
            b"gemini" => spoke = true,
            b"user" => user = true,
            _ => {}
        },
        b"content" => json.items(|part| part.fields(|key, _| answered |= key == b"functionResponse")),
        _ => {}
    });
    (whole || line.cut) && (spoke || (user && answered))
}
