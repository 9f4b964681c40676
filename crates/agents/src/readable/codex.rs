//! Codex, `codex exec --json`.

use super::page::Page;
use super::{content, subject, text};
use crate::tools::mcp_name;
use serde_json::Value;

/// Renders an event of Codex.
pub fn show(event: &Value, page: &mut Page) {
    let item = &event["item"];
    match text(&event["type"]) {
        "item.started" => started(item, page),
        "item.completed" => completed(item, page),
        "error" if text(&event["message"]).starts_with("Reconnecting") => {
            page.aside(text(&event["message"]));
        }
        "error" => page.fail(text(&event["message"])),
        "turn.failed" => page.fail(text(&event["error"]["message"])),
        "turn.completed" => {
            let usage = &event["usage"];
            let parts = ["input_tokens", "output_tokens"].iter().filter_map(|key| usage[*key].as_u64());
            let tokens = parts.reduce(u64::saturating_add);
            page.done(&page.usage(tokens, None));
        }
        _ => {}
    }
}

fn started(item: &Value, page: &mut Page) {
    if let Some((name, subject)) = tool(item) {
        page.call(text(&item["id"]), &name, &subject);
    }
}

fn completed(item: &Value, page: &mut Page) {
    match text(&item["type"]) {
        "agent_message" => return page.say(text(&item["text"])),
        "reasoning" => return page.aside(text(&item["text"])),
        "error" => return page.aside(text(&item["message"])),
        _ => {}
    }
    let id = text(&item["id"]);
    // Some tools have no start event.
    if !page.is_open(id) {
        started(item, page);
    }
    if tool(item).is_some() {
        let ok = matches!(text(&item["status"]), "" | "completed" | "in_progress");
        page.reply(id, ok, &outcome(item));
    }
}

/// Returns the name of a tool and its most informative argument, or `None` if the item is not a tool.
fn tool(item: &Value) -> Option<(String, String)> {
    let kind = text(&item["type"]);
    let name = match kind {
        "command_execution" | "file_change" | "web_search" | "image_view" | "image_generation" => {
            kind.to_owned()
        }
        "mcp_tool_call" => mcp_name(text(&item["server"]), text(&item["tool"])),
        "collab_tool_call" => text(&item["tool"]).to_owned(),
        _ => return None,
    };
    let mut args = serde_json::Map::new();
    for key in ["command", "arguments", "changes", "query", "prompt", "path"] {
        args.extend(item.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    Some((name, subject(&Value::Object(args))))
}

fn outcome(item: &Value) -> String {
    match text(&item["type"]) {
        "command_execution" => match item["exit_code"].as_i64() {
            Some(0) | None => text(&item["aggregated_output"]).to_owned(),
            Some(code) => format!("exit {code}: {}", text(&item["aggregated_output"])),
        },
        "mcp_tool_call" if item["error"].is_null() => content(&item["result"]["content"]),
        "mcp_tool_call" => text(&item["error"]["message"]).to_owned(),
        _ => String::new(),
    }
}
