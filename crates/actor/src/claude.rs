//! Lines in the format of Claude Code's `--output-format stream-json` (2.1.325, from recordings). They contain only
//! the fields that a reader may use. The key order follows the recordings, whose results do not start with `type`.

use serde_json::{Value, json};
use std::time::Instant;

const MODEL: &str = "claude-sonnet-4-5";
const TOOLS: [&str; 8] = ["Task", "Bash", "Edit", "Monitor", "Read", "Skill", "WebFetch", "Write"];
/// The usage of one answer, about the same as in the recordings.
const INPUT_TOKENS: u64 = 21_353;
const OUTPUT_TOKENS: u64 = 17;
const COST_USD: f64 = 0.064_314;

/// One conversation: assigns ids and tracks open tool calls.
pub struct Session {
    /// Distinguishes the ids of two sessions.
    stem: String,
    /// The number of ids assigned.
    ids: u64,
    answers: u64,
    results: u64,
    /// The open calls as (id, name), the latest last.
    open: Vec<(String, String)>,
    heartbeats: u64,
    started: Instant,
}

impl Session {
    /// Creates a session whose ids contain the pid.
    pub fn of_this_process() -> Session {
        Session::named(&format!("{:08}", std::process::id()))
    }

    /// Creates a session whose ids begin with `stem`, which has eight characters.
    pub fn named(stem: &str) -> Session {
        Session {
            stem: stem.to_owned(),
            ids: 0,
            answers: 0,
            results: 0,
            open: Vec::new(),
            heartbeats: 0,
            started: Instant::now(),
        }
    }

    fn session_id(&self) -> String {
        format!("{}-0000-4000-8000-000000000000", self.stem)
    }

    fn uuid(&mut self) -> String {
        self.ids += 1;
        format!("{}-0000-4000-8000-{:012}", self.stem, self.ids)
    }

    /// Returns the first line of a session.
    pub fn init(&mut self) -> Value {
        let cwd = std::env::current_dir().map(|d| d.to_string_lossy().into_owned()).unwrap_or_default();
        json!({
            "type": "system", "subtype": "init", "cwd": cwd, "session_id": self.session_id(), "tools": TOOLS,
            "mcp_servers": [], "model": MODEL, "permissionMode": "bypassPermissions", "slash_commands": [],
            "apiKeySource": "ANTHROPIC_API_KEY", "claude_code_version": "2.1.325", "output_style": "default",
            "agents": ["claude", "general-purpose"], "uuid": self.uuid(),
        })
    }

    /// Returns a text message.
    pub fn message(&mut self, text: &str) -> Value {
        self.answers += 1;
        self.assistant(json!({"type": "text", "text": text}))
    }

    /// Returns a thinking block.
    pub fn thinking(&mut self, text: &str) -> Value {
        self.assistant(json!({"type": "thinking", "thinking": text, "signature": ""}))
    }

    /// Opens a tool call.
    pub fn call(&mut self, name: &str, input: &str) -> Value {
        self.answers += 1;
        let id = format!("toolu_{}{:06}", self.stem, self.ids);
        self.open.push((id.clone(), name.to_owned()));
        self.heartbeats = 0;
        self.assistant(json!({"type": "tool_use", "id": id, "name": name, "input": tool_input(name, input)}))
    }

    /// Closes the latest open call with a result.
    pub fn reply(&mut self, ok: bool, text: &str) -> Value {
        let (id, _) = self.open.pop().unwrap_or_else(|| self.no_call());
        let structured = match ok {
            true => json!({"stdout": text, "stderr": "", "interrupted": false, "isImage": false}),
            false => json!(format!("Error: {text}")),
        };
        json!({
            "type": "user",
            "message": {"role": "user", "content": [
                {"tool_use_id": id, "type": "tool_result", "content": text, "is_error": !ok},
            ]},
            "parent_tool_use_id": null, "session_id": self.session_id(), "uuid": self.uuid(),
            "timestamp": now(),
            "tool_use_result": structured,
        })
    }

    /// Returns a message of a subagent under the latest open call.
    pub fn subagent(&mut self, text: &str) -> Value {
        let (parent, _) = self.open.last().cloned().unwrap_or_else(|| self.no_call());
        let mut line = self.assistant(json!({"type": "text", "text": text}));
        line["parent_tool_use_id"] = parent.into();
        line["agent_id"] = format!("a{}", self.stem).into();
        line["subagent_type"] = "general-purpose".into();
        line["task_description"] = "look at files".into();
        line
    }

    /// Returns a heartbeat of the latest open call.
    pub fn heartbeat(&mut self) -> Value {
        let (id, name) = self.open.last().cloned().unwrap_or_else(|| self.no_call());
        let count = self.heartbeats;
        self.heartbeats += 1;
        json!({
            "type": "tool_progress", "tool_use_id": format!("{id}-heartbeat-{count}"), "tool_name": name,
            "parent_tool_use_id": id, "elapsed_time_seconds": 30 * (count + 1), "heartbeat": true,
            "session_id": self.session_id(), "uuid": self.uuid(),
        })
    }

    /// Returns an API retry with this HTTP status.
    pub fn retry(&mut self, status: u16) -> Value {
        json!({
            "type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 10, "retry_delay_ms": 580,
            "error_status": status, "error": retry_word(status), "session_id": self.session_id(),
            "uuid": self.uuid(),
        })
    }

    /// Returns a successful result.
    pub fn result(&mut self, text: &str) -> Value {
        self.ending(
            "end_turn",
            json!({"is_error": false, "subtype": "success", "terminal_reason": "completed",
            "api_error_status": null, "result": text}),
        )
    }

    /// Returns the result of a turn that failed.
    pub fn error(&mut self, text: &str) -> Value {
        self.ending(
            "tool_use",
            json!({"is_error": true, "subtype": "error_during_execution",
            "terminal_reason": "aborted_tools", "errors": [text]}),
        )
    }

    /// Returns an API failure: a synthetic message with the text, then the result.
    pub fn api_error(&mut self, status: Option<u16>, text: &str) -> [Value; 2] {
        let (word, kind) = api_words(status);
        let mut message = self.assistant(json!({"type": "text", "text": text}));
        message["message"]["model"] = "<synthetic>".into();
        message["error"] = word.into();
        message["is_api_error_message"] = true.into();
        message["api_error_status"] = status.into();
        let mut ending = json!({"is_error": true, "subtype": "success", "terminal_reason": "api_error",
            "api_error_status": status, "result": text});
        if let Some(kind) = kind {
            message["api_error_type"] = kind.into();
            ending["api_error_type"] = kind.into();
        }
        [message, self.ending("stop_sequence", ending)]
    }

    fn assistant(&mut self, block: Value) -> Value {
        let id = format!("msg_{}{:06}", self.stem, self.ids);
        json!({
            "type": "assistant",
            "message": {
                "id": id, "type": "message", "role": "assistant", "model": MODEL, "content": [block],
                "stop_reason": null, "stop_sequence": null,
                "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": 1, "service_tier": "standard"},
                "context_management": null,
            },
            "parent_tool_use_id": null, "session_id": self.session_id(), "uuid": self.uuid(),
            "timestamp": now(),
        })
    }

    /// Returns a result line. `usage` covers this turn; cost and `modelUsage` cover the whole process.
    fn ending(&mut self, stop_reason: &str, own: Value) -> Value {
        let cost = COST_USD * self.answers as f64;
        let (input, output) = (INPUT_TOKENS * self.answers, OUTPUT_TOKENS * self.answers);
        let index = self.results;
        self.results += 1;
        let mut line = json!({
            "duration_api_ms": 150, "stop_reason": stop_reason, "session_id": self.session_id(),
            "total_cost_usd": cost,
            "usage": {"input_tokens": input, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
                "output_tokens": output, "service_tier": "standard"},
            "modelUsage": {MODEL: {"inputTokens": input, "outputTokens": output, "cacheReadInputTokens": 0,
                "cacheCreationInputTokens": 0, "costUSD": cost}},
            "permission_denials": [],
        });
        merge(&mut line, own);
        merge(
            &mut line,
            json!({
                "num_turns": self.answers.max(1), "type": "result",
                "duration_ms": u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
                "uuid": self.uuid(), "queued_turn_count": 0, "result_index": index,
            }),
        );
        line
    }

    /// Returns a placeholder id: a script may end a call that it never started, and readers must cope with that.
    fn no_call(&self) -> (String, String) {
        (format!("toolu_{}unknown", self.stem), "Bash".to_owned())
    }
}

fn merge(line: &mut Value, more: Value) {
    if let (Value::Object(line), Value::Object(more)) = (line, more) {
        line.extend(more);
    }
}

fn tool_input(name: &str, input: &str) -> Value {
    match name {
        "Bash" => json!({"command": input, "description": "run a command"}),
        "Task" | "Agent" => json!({"description": "look at files", "prompt": input}),
        name if name.starts_with("mcp__") => json!({"text": input}),
        _ => json!({"file_path": input}),
    }
}

fn retry_word(status: u16) -> &'static str {
    match status {
        401 | 403 => "authentication_failed",
        429 => "rate_limit",
        529 => "overloaded",
        500.. => "server_error",
        _ => "unknown",
    }
}

fn api_words(status: Option<u16>) -> (&'static str, Option<&'static str>) {
    match status {
        Some(400) => ("invalid_request", Some("invalid_request_error")),
        Some(401 | 403) => ("authentication_failed", Some("authentication_error")),
        Some(429) => ("rate_limit", Some("rate_limit_error")),
        Some(529) => ("server_error", Some("overloaded_error")),
        Some(500..) => ("server_error", Some("api_error")),
        Some(_) | None => ("unknown", None),
    }
}

fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}
