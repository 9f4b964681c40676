//! Claude Code, `--output-format stream-json`.

use super::page::Page;
use super::words;
use super::{content, subject, text};
use crate::claude::is_diagnostic;
use dogwatch_core::time::dur::Dur;
use serde_json::Value;
use std::borrow::Cow;

/// Renders an event of Claude Code.
pub fn show(event: &Value, page: &mut Page) {
    page.set_nested(!event["parent_tool_use_id"].is_null());
    match text(&event["type"]) {
        "assistant" if is_failure(event) => page.fail(&content(&event["message"]["content"])),
        "assistant" => blocks(event).for_each(|block| said(block, page)),
        "user" => blocks(event).for_each(|block| replied(block, page)),
        "result" => result(event, page),
        "system" => system(event, page),
        // Skip partial messages, which follow in full, heartbeats and lifecycle events.
        _ => {}
    }
    page.set_nested(false);
}

fn is_failure(event: &Value) -> bool {
    !event["error"].is_null() || event["is_api_error_message"] == true
}

fn blocks(event: &Value) -> impl Iterator<Item = &Value> {
    event["message"]["content"].as_array().into_iter().flatten()
}

fn said(block: &Value, page: &mut Page) {
    match text(&block["type"]) {
        "text" => page.say(text(&block["text"])),
        "thinking" => page.aside(text(&block["thinking"])),
        "tool_use" | "server_tool_use" | "mcp_tool_use" => {
            page.call(text(&block["id"]), text(&block["name"]), &subject(&block["input"]));
        }
        kind if kind.ends_with("tool_result") => replied(block, page),
        _ => {}
    }
}

/// Shows a tool result. Other blocks of a user message only echo the prompt.
fn replied(block: &Value, page: &mut Page) {
    if text(&block["type"]).ends_with("tool_result") {
        let result = content(&block["content"]);
        page.reply(text(&block["tool_use_id"]), block["is_error"] != true, &in_one(&result));
    }
}

/// Joins a first line like `Exit code 2` with the line after it.
fn in_one(result: &str) -> Cow<'_, str> {
    match result.strip_prefix("Exit code ").and_then(|rest| rest.split_once('\n')) {
        Some((code, rest)) => format!("exit {code}: {}", rest.trim_start()).into(),
        None => result.into(),
    }
}

fn system(event: &Value, page: &mut Page) {
    match text(&event["subtype"]) {
        "init" => page.aside(&format!("model {}", text(&event["model"]))),
        "api_retry" => page.aside(&format!(
            "API error {} ({}), retry {} of {} in {}",
            event["error_status"],
            text(&event["error"]),
            event["attempt"],
            event["max_retries"],
            words::span(Dur::from_millis(event["retry_delay_ms"].as_u64().unwrap_or(0)))
        )),
        _ => {}
    }
}

fn result(event: &Value, page: &mut Page) {
    let subtype = text(&event["subtype"]);
    let said = text(&event["result"]);
    if event["is_error"] == true || subtype.starts_with("error") {
        let mut errors = event["errors"].as_array().into_iter().flatten().map(text);
        let first_error = errors.find(|error| !is_diagnostic(error.as_bytes())).unwrap_or("");
        let subtype = subtype.replace('_', " ");
        let why = [said, first_error, &subtype].into_iter().find(|t| !t.is_empty()).unwrap_or("failed");
        return page.fail(why);
    }
    page.say_once(said);
    let mut parts = Vec::new();
    parts.extend(event["num_turns"].as_u64().map(|n| words::count(n, "turn")));
    parts.extend(event["duration_ms"].as_u64().map(|ms| words::span(Dur::from_millis(ms))));
    parts.extend(page.usage(tokens(event), event["total_cost_usd"].as_f64()));
    page.done(&parts);
}

/// Returns the tokens of the whole process if they are given, otherwise those of this result.
fn tokens(event: &Value) -> Option<u64> {
    let of = |usage: &Value, keys: [&str; 4]| {
        let known = keys.iter().filter_map(|key| usage[*key].as_u64());
        known.fold(None, |sum: Option<u64>, n| Some(sum.unwrap_or(0).saturating_add(n)))
    };
    const MODEL: [&str; 4] =
        ["inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"];
    const RESULT: [&str; 4] =
        ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
    let models = event["modelUsage"].as_object().into_iter().flat_map(|m| m.values());
    let total = models.filter_map(|usage| of(usage, MODEL)).reduce(u64::saturating_add);
    total.or_else(|| of(&event["usage"], RESULT))
}
