//! Claude Code: `projects/<project>/<session>/subagents/agent-<id>.jsonl`, a file for each subagent.

use super::Entry;
use crate::json::Json;
use crate::lines::Line;

/// A project's name is its directory with all but letters and digits replaced; of a long one only the beginning is
/// kept, and a hash follows.
const LONG: usize = 200;

pub fn project(work_dir: &str) -> String {
    work_dir.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

pub fn entry(project: &str, session: &str, depth: usize, name: &str) -> Entry {
    let on_the_way = match depth {
        0 => name == "projects",
        1 if project.len() > LONG => name.starts_with(&project[..LONG]),
        1 => name == project,
        2 => name == session,
        3 => name == "subagents",
        4 if name.starts_with("agent-") && name.ends_with(".jsonl") => return Entry::File,
        _ => false,
    };
    if on_the_way { Entry::Dir } else { Entry::Nothing }
}

/// It spoke or called a tool, or a tool answered it. What it was asked is its parent's text; the rest is bookkeeping.
pub fn did_something(session: &str, line: Line<'_>) -> bool {
    let (mut assistant, mut answered, mut foreign) = (false, false, false);
    let mut user = false;
    let whole = Json::object(line.bytes, |key, json| match key {
        b"type" => match json.text().unwrap_or_default().0 {
            b"assistant" => assistant = true,
            b"user" => user = true,
            _ => {}
        },
        b"sessionId" => foreign = json.text().is_some_and(|id| id.0 != session.as_bytes()),
        b"message" => json.fields(|key, json| {
            if key == b"content" {
                json.items(|block| {
                    block.fields(|key, json| {
                        answered |=
                            key == b"type" && json.text().is_some_and(|kind| kind.0 == b"tool_result");
                    })
                });
            }
        }),
        _ => {}
    });
    (whole || line.cut) && !foreign && (assistant || (user && answered))
}
