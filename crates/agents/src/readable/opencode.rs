//! opencode, `opencode run --format json`. It prints a tool call when the call ends, and usage per step.

use super::page::Page;
use super::words;
use super::{subject, text};
use serde_json::Value;

/// The usage of all steps so far.
#[derive(Default)]
pub struct Sums {
    tokens: u64,
    cost_usd: Option<f64>,
}

/// Renders an event of OpenCode and adds up its usage.
pub fn show(event: &Value, sums: &mut Sums, page: &mut Page) {
    let part = &event["part"];
    match text(&event["type"]) {
        "text" if part["synthetic"] != true => page.say(text(&part["text"])),
        "reasoning" => page.aside(text(&part["text"])),
        "tool_use" => tool(part, page),
        "step_finish" => finished(part, sums, page),
        "error" => {
            let error = &event["error"];
            let message = text(&error["data"]["message"]);
            page.fail(if message.is_empty() { text(&error["name"]) } else { message });
        }
        _ => {}
    }
}

fn tool(part: &Value, page: &mut Page) {
    let (id, state) = (text(&part["callID"]), &part["state"]);
    page.call(id, text(&part["tool"]), &subject(&state["input"]));
    match (text(&state["status"]), state["metadata"]["exit"].as_i64()) {
        ("pending" | "running", _) => {}
        ("error", _) => page.reply(id, false, text(&state["error"])),
        (_, Some(code)) if code != 0 => {
            page.reply(id, false, &format!("exit {code}: {}", text(&state["output"])));
        }
        _ => page.reply(id, true, text(&state["output"])),
    }
}

fn finished(part: &Value, sums: &mut Sums, page: &mut Page) {
    let tokens = &part["tokens"];
    let summed = || ["input", "output", "reasoning"].iter().filter_map(|key| tokens[*key].as_u64()).sum();
    sums.tokens = sums.tokens.saturating_add(tokens["total"].as_u64().unwrap_or_else(summed));
    if let Some(cost) = part["cost"].as_f64() {
        sums.cost_usd = Some(sums.cost_usd.unwrap_or(0.0) + cost);
    }
    if text(&part["reason"]) == "stop" {
        let mut parts = vec![words::count(sums.tokens, "token")];
        parts.extend(sums.cost_usd.map(|cost| format!("${cost:.2}")));
        page.done(&parts);
    }
}
