//! Gemini CLI, `--output-format stream-json`. Messages arrive in pieces that may end anywhere.

use super::page::Page;
use super::words;
use super::{subject, text};
use serde_json::Value;

/// Renders an event of Gemini CLI.
pub fn show(event: &Value, page: &mut Page) {
    match text(&event["type"]) {
        "init" => page.aside(&format!("model {}", text(&event["model"]))),
        "message" if text(&event["role"]) == "assistant" => page.say_piece(text(&event["content"])),
        "tool_use" => {
            page.call(text(&event["tool_id"]), text(&event["tool_name"]), &subject(&event["parameters"]));
        }
        "tool_result" => {
            let ok = text(&event["status"]) != "error";
            let (output, error) = (text(&event["output"]), text(&event["error"]["message"]));
            page.reply(text(&event["tool_id"]), ok, if output.is_empty() { error } else { output });
        }
        "error" => page.fail(text(&event["message"])),
        "result" if text(&event["status"]) == "success" => {
            let tokens = event["stats"]["total_tokens"].as_u64();
            page.done(&Vec::from_iter(tokens.map(|n| words::count(n, "token"))));
        }
        "result" => page.fail(text(&event["error"]["message"])),
        _ => {}
    }
}
