//! What an agent can say: the tools, in words that a model uses rightly, and from a call to what it says.

use crate::limits::MAX_TEXT;
use dogwatch_core::side::{HEARTBEAT_TOOL, MAX_ARTIFACT_BYTES, Said};
use dogwatch_core::text::clip;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// What a model reads before all tools.
pub const INSTRUCTIONS: &str = "You are run unattended by dogwatch, which watches whether you are at work, ends \
sessions that are stuck, and starts the next one. These tools tell it what your output does not show. During long \
quiet work call report_progress whenever something new is achieved. When there is nothing for you to do, call \
report_state with state `idle` as your last action. Before you claim that the task is finished, call check_done.";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    ReportState,
    ReportProgress,
    Heartbeat,
    ReportError,
    SaveArtifact,
    CheckDone,
    WhatFailed,
}

impl Tool {
    pub const ALL: [Tool; 7] = [
        Tool::ReportState,
        Tool::ReportProgress,
        Tool::Heartbeat,
        Tool::ReportError,
        Tool::SaveArtifact,
        Tool::CheckDone,
        Tool::WhatFailed,
    ];

    pub fn from_name(name: &str) -> Option<Tool> {
        Tool::ALL.into_iter().find(|tool| tool.name() == name)
    }

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

    pub fn description(self) -> &'static str {
        match self {
            Tool::ReportState => {
                "Say in which state your work is. Call it as your last action; the last call counts. `idle`: there \
                 is nothing for you to do now; give a short reason in one word, `no_pending_tasks` if all work is \
                 done. The next session is then started later. `done`: you believe that the whole task is \
                 finished; this is a claim, and the user's own checks decide. Other words are recorded. Do not \
                 call it with `idle` because a step is hard, failed, or waits for a tool."
            }
            Tool::ReportProgress => {
                "Say in one line what you have just achieved, or found out, that your output does not show. Use it \
                 during long quiet work, so that you are not taken for stuck. Say something new each time: the \
                 same message again does not count as work. `done` and `total` count whatever you count."
            }
            Tool::Heartbeat => {
                "Says that you are alive, and no more. It is not progress and does not keep a silent session from \
                 being ended; call report_progress when there is something new to say."
            }
            Tool::ReportError => {
                "Report an error that keeps you from going on: a missing permission or credential, a broken tool, \
                 a contradiction in the task. It is recorded for the user, who is not there to answer. Errors \
                 that you can fix yourself need no report. The same error reported again and again ends the \
                 session."
            }
            Tool::SaveArtifact => {
                "Keep a text beside the record of this session, for the user: a report, a plan, a log. `name` is a \
                 plain file name such as `report.md`, not a path; the same name again replaces the text. At most \
                 1 MiB. Files that belong to the work itself are written to the work tree as always, not here."
            }
            Tool::CheckDone => {
                "Run the user's checks now and see their results, with the end of the output of those that fail. \
                 Call it before you claim that the task is done, and again after a fix; not more often than every \
                 30 seconds. It does not end the session."
            }
            Tool::WhatFailed => {
                "What went wrong in the session before this one, as dogwatch recorded it: why it was ended or how \
                 it failed. Call it once at the beginning if you continue somebody's work."
            }
        }
    }

    /// The arguments, as a JSON Schema.
    pub fn schema(self) -> Map<String, Value> {
        let text = |doc: &str| json!({"type": "string", "description": doc});
        let number = |doc: &str| json!({"type": "integer", "minimum": 0, "description": doc});
        let (properties, required) = match self {
            Tool::ReportState => (
                json!({
                    "state": text("`idle`, `done`, or another word of letters, digits, `_` and `-`"),
                    "reason": text("a short word for why, such as `no_pending_tasks` or `waiting_for_review`"),
                }),
                json!(["state"]),
            ),
            Tool::ReportProgress => (
                json!({
                    "message": text("one line"),
                    "done": number("how many of them are done"),
                    "total": number("how many there are"),
                }),
                json!(["message"]),
            ),
            Tool::ReportError => {
                (json!({"text": text("what happened, and what you tried")}), json!(["text"]))
            }
            Tool::SaveArtifact => (
                json!({"name": text("a file name, not a path"), "content": text("the text")}),
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

/// A call that is understood.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    Say(Said),
    Save { name: String, content: String },
    Check,
}

/// From arguments to what is meant, or what is wrong with them.
pub fn parse_call(tool: Tool, arguments: Map<String, Value>) -> Result<Call, String> {
    let value = Value::Object(arguments);
    Ok(match tool {
        Tool::Heartbeat => none(value).map(|()| Call::Say(Said::Heartbeat))?,
        Tool::WhatFailed => none(value).map(|()| Call::Say(Said::WhatFailed))?,
        Tool::CheckDone => none(value).map(|()| Call::Check)?,
        Tool::ReportState => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct State {
                state: String,
                reason: Option<String>,
            }
            let State { state, reason } = read(value)?;
            Call::Say(Said::State { state: short(&state), reason: reason.as_deref().map(short) })
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
                return Err("`message` says nothing".to_owned());
            }
            Call::Say(Said::Progress { message: short(&message), done, total })
        }
        Tool::ReportError => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Error {
                text: String,
            }
            let Error { text } = read(value)?;
            if text.trim().is_empty() {
                return Err("`text` says nothing".to_owned());
            }
            Call::Say(Said::Error { text: short(&text) })
        }
        Tool::SaveArtifact => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Artifact {
                name: String,
                content: String,
            }
            let Artifact { name, content } = read(value)?;
            dogwatch_core::side::artifact_name(&name)?;
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

fn none(value: Value) -> Result<(), String> {
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
        assert_eq!(call("heartbeat", json!({})), Ok(Call::Say(Said::Heartbeat)));
        assert_eq!(
            call("report_state", json!({"state": "idle", "reason": "no_pending_tasks"})),
            Ok(Call::Say(Said::State { state: "idle".into(), reason: Some("no_pending_tasks".into()) }))
        );
        assert_eq!(
            call("report_progress", json!({"message": "x", "done": 1, "total": 2})),
            Ok(Call::Say(Said::Progress { message: "x".into(), done: Some(1), total: Some(2) }))
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
            ("report_progress", json!({"message": " "}), "`message` says nothing"),
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
        let Ok(Call::Say(Said::Error { text })) = call("report_error", json!({"text": "é".repeat(MAX_TEXT)}))
        else {
            panic!("is understood");
        };
        assert!(text.len() <= MAX_TEXT && text.len() > MAX_TEXT - 4);
    }
}
