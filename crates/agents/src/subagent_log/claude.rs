//! Claude Code: `projects/<project>/<session>/subagents/agent-<id>.jsonl`, one file per subagent.

use super::Entry;
use crate::json::Json;
use crate::lines::Line;

/// The longest project name before shortening. A project is named after its directory, with all characters but letters
/// and digits replaced. A longer name is cut and followed by a hash.
const LONG: usize = 200;

/// Returns the project name of a work directory.
pub fn project(work_dir: &str) -> String {
    work_dir.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// Classifies a directory entry.
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

/// Returns whether the subagent sent a message, called a tool or received a result. The prompt is the parent's text,
/// and all other lines are bookkeeping.
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
