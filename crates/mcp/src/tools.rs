//! The tools: descriptions and schemas for the model, and parsing of calls.

use crate::limits::MAX_TEXT;
use dogwatch_core::run::agent_channel::{HEARTBEAT_TOOL, MAX_ARTIFACT_BYTES, RequestBody};
use dogwatch_core::text::clip;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The server instructions, which the model reads before the tools.
pub const INSTRUCTIONS: &str = "You run unattended under dogwatch, which monitors your progress, stops sessions \
that are stuck, and starts the next one. Use these tools to report what your output does not show. During long work \
without output, call report_progress whenever you have achieved something new. When there is nothing to do, call \
report_state with state `idle` as your last action. Before you claim that the task is finished, call check_done.";

/// The tools that dogwatch offers to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `report_state`.
    ReportState,
    /// `report_progress`.
    ReportProgress,
    /// `heartbeat`.
    Heartbeat,
    /// `report_error`.
    ReportError,
    /// `save_artifact`.
    SaveArtifact,
    /// `check_done`.
    CheckDone,
    /// `what_failed`.
    WhatFailed,
}

impl Tool {
    /// All tools, in the order in which they are listed.
    pub const ALL: [Tool; 7] = [
        Tool::ReportState,
        Tool::ReportProgress,
        Tool::Heartbeat,
        Tool::ReportError,
        Tool::SaveArtifact,
        Tool::CheckDone,
        Tool::WhatFailed,
    ];

    /// Returns the tool with this name.
    pub fn from_name(name: &str) -> Option<Tool> {
        Tool::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Returns the name by which agents call the tool.
    pub fn name(self) -> &'static str {
        match self {
            Tool::ReportState => "report_state",
            Tool::ReportProgress => "report_progress",
            Tool::Heartbeat => HEARTBEAT_TOOL,
            Tool::ReportError => "report_error",
            Tool::SaveArtifact => "save_artifact",
            Tool::CheckDone => "check_done",
            Tool::WhatFailed => "what_failed",
        }
    }

    /// Returns the description for the model.
    pub fn description(self) -> &'static str {
        match self {
            Tool::ReportState => {
                "Report the state of your work. Call this as your last action; the last call counts. `idle`: there \
                 is nothing to do now, and the next session starts later. Give a one-word reason, \
                 `no_pending_tasks` if all work is done. `done`: you believe that the whole task is finished. This \
                 is a claim; the user's checks decide. Other states are recorded. Do not report `idle` because a \
                 step is hard, has failed, or waits for a tool."
            }
            Tool::ReportProgress => {
                "Report in one line what you have just achieved or found out and your output does not show. Use \
                 this during long work without output, so that the session is not stopped as stuck. Report \
                 something new each time: a repeated message does not count as progress. `done` and `total` are \
                 counts of any unit you choose."
            }
            Tool::Heartbeat => {
                "Signal that you are alive. This is not progress and does not prevent a silent session from being \
                 stopped; call report_progress when you have something new to report."
            }
            Tool::ReportError => {
                "Report an error that blocks you: a missing permission or credential, a broken tool, a \
                 contradiction in the task. It is recorded for the user, who cannot answer now. Do not report \
                 errors that you can fix yourself. Reporting the same error repeatedly stops the session."
            }
            Tool::SaveArtifact => {
                "Save a text for the user with the record of this session: a report, a plan, a log. `name` is a \
                 plain file name such as `report.md`, not a path; saving the same name again replaces the text. \
                 At most 1 MiB. Write files that belong to the work itself to the work tree instead."
            }
            Tool::CheckDone => {
                "Run the user's checks now and get their results, with the end of the output of failing checks. \
                 Call this before you claim that the task is done, and again after a fix, at most every 30 \
                 seconds. It does not end the session."
            }
            Tool::WhatFailed => {
                "Get what went wrong in the previous session, as dogwatch recorded it: why it was stopped or how \
                 it failed. Call this once at the start if you continue existing work."
            }
        }
    }

    /// Returns the JSON Schema of the arguments.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the enum belongs to another crate and may gain variants"
    )]
    pub fn schema(self) -> Map<String, Value> {
        let text = |doc: &str| json!({"type": "string", "description": doc});
        let number = |doc: &str| json!({"type": "integer", "minimum": 0, "description": doc});
        let (properties, required) = match self {
            Tool::ReportState => (
                json!({
                    "state": text("`idle`, `done`, or another word made of letters, digits, `_` and `-`"),
                    "reason": text("a one-word reason, such as `no_pending_tasks` or `waiting_for_review`"),
                }),
                json!(["state"]),
            ),
            Tool::ReportProgress => (
                json!({
                    "message": text("one line of text"),
                    "done": number("how many units are done"),
                    "total": number("how many units there are"),
                }),
                json!(["message"]),
            ),
            Tool::ReportError => {
                (json!({"text": text("what happened, and what you tried")}), json!(["text"]))
            }
            Tool::SaveArtifact => (
                json!({"name": text("a file name, not a path"), "content": text("the text to save")}),
                json!(["name", "content"]),
            ),
            Tool::Heartbeat | Tool::CheckDone | Tool::WhatFailed => (json!({}), json!([])),
        };
        let schema = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        match schema {
            Value::Object(schema) => schema,
            _ => Map::new(),
        }
    }
}

/// A valid tool call.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// Send this request to the run.
    Send(RequestBody),
    /// Save an artifact.
    Save {
        /// The name of the file.
        name: String,
        /// The content of the file.
        content: String,
    },
    /// Run the checks.
    Check,
}

/// Parses the arguments of a call, or returns what is wrong with them.
pub fn parse_call(tool: Tool, arguments: Map<String, Value>) -> Result<Call, String> {
    let value = Value::Object(arguments);
    Ok(match tool {
        Tool::Heartbeat => no_arguments(value).map(|()| Call::Send(RequestBody::Heartbeat))?,
        Tool::WhatFailed => no_arguments(value).map(|()| Call::Send(RequestBody::WhatFailed))?,
        Tool::CheckDone => no_arguments(value).map(|()| Call::Check)?,
        Tool::ReportState => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct State {
                state: String,
                reason: Option<String>,
            }
            let State { state, reason } = read(value)?;
            Call::Send(RequestBody::State { state: short(&state), reason: reason.as_deref().map(short) })
        }
        Tool::ReportProgress => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Progress {
                message: String,
                done: Option<u64>,
                total: Option<u64>,
            }
            let Progress { message, done, total } = read(value)?;
            if message.trim().is_empty() {
                return Err("`message` is empty".to_owned());
            }
            Call::Send(RequestBody::Progress { message: short(&message), done, total })
        }
        Tool::ReportError => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Error {
                text: String,
            }
            let Error { text } = read(value)?;
            if text.trim().is_empty() {
                return Err("`text` is empty".to_owned());
            }
            Call::Send(RequestBody::Error { text: short(&text) })
        }
        Tool::SaveArtifact => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Artifact {
                name: String,
                content: String,
            }
            let Artifact { name, content } = read(value)?;
            dogwatch_core::run::agent_channel::artifact_name(&name)?;
            if content.len() as u64 > MAX_ARTIFACT_BYTES {
                let bytes = content.len();
                return Err(format!(
                    "an artifact holds at most {MAX_ARTIFACT_BYTES} bytes; this one has {bytes}"
                ));
            }
            Call::Save { name, content }
        }
    })
}

fn read<T: for<'de> Deserialize<'de>>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the enum belongs to another crate and may gain variants")]
fn no_arguments(value: Value) -> Result<(), String> {
    match value {
        Value::Object(fields) if fields.is_empty() => Ok(()),
        _ => Err("this tool takes no arguments".to_owned()),
    }
}

fn short(text: &str) -> String {
    clip(text, MAX_TEXT).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: Value) -> Result<Call, String> {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        parse_call(Tool::from_name(name).expect("is a tool"), arguments)
    }

    #[test]
    fn parses_valid_calls() {
        assert_eq!(call("heartbeat", json!({})), Ok(Call::Send(RequestBody::Heartbeat)));
        assert_eq!(
            call("report_state", json!({"state": "idle", "reason": "no_pending_tasks"})),
            Ok(Call::Send(RequestBody::State {
                state: "idle".into(),
                reason: Some("no_pending_tasks".into())
            }))
        );
        assert_eq!(
            call("report_progress", json!({"message": "x", "done": 1, "total": 2})),
            Ok(Call::Send(RequestBody::Progress { message: "x".into(), done: Some(1), total: Some(2) }))
        );
        assert_eq!(
            call("save_artifact", json!({"name": "a.md", "content": ""})),
            Ok(Call::Save { name: "a.md".into(), content: String::new() })
        );
    }

    #[test]
    fn reports_missing_invalid_and_oversized_arguments() {
        for (name, arguments, wrong) in [
            ("report_state", json!({}), "missing field `state`"),
            ("report_state", json!({"state": 5}), "invalid type"),
            ("report_progress", json!({"message": " "}), "`message` is empty"),
            ("report_progress", json!({"message": "x", "done": -1}), "invalid value"),
            ("heartbeat", json!({"x": 1}), "takes no arguments"),
            ("report_error", json!({"text": "x", "more": 1}), "unknown field `more`"),
            ("save_artifact", json!({"name": "../x", "content": ""}), "not a path"),
            (
                "save_artifact",
                json!({"name": "a", "content": "x".repeat(1024 * 1024 + 1)}),
                "at most 1048576 bytes",
            ),
        ] {
            let refused = call(name, arguments).expect_err(name);
            assert!(refused.contains(wrong), "{name}: {refused}");
        }
        assert!(call("save_artifact", json!({"name": "a", "content": "x".repeat(1024 * 1024)})).is_ok());
    }

    #[test]
    fn truncates_long_text() {
        let Ok(Call::Send(RequestBody::Error { text })) =
            call("report_error", json!({"text": "é".repeat(MAX_TEXT)}))
        else {
            panic!("is understood");
        };
        assert!(text.len() <= MAX_TEXT && text.len() > MAX_TEXT - 4);
    }
}
