//! The tools of `dogwatch mcp --project`: runs of this project, for the interactive session of an operator.
//!
//! Reading is always allowed. Starting, waking and messaging a run need `--allow-steering`. A session that dogwatch
//! supervises gets no tools, and the socket of a run refuses requests of its sessions.

mod start;

use crate::commands::{headline, report_page, status_of, status_text};
use crate::error::CliError;
use crate::runs::{FoundRun, Which, runs_in, state_dir};
use dogwatch_core::text::{clip, printable};
use dogwatch_host::process::caller::is_supervised;
use dogwatch_mcp::operator::{OperatorTool, OperatorTools};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// The most runs that are listed.
const MAX_LISTED: usize = 20;
/// The longest text that a tool returns, in bytes. A model's context is not free.
const MAX_TEXT: usize = 24 * 1024;
/// The longest message to an agent, in bytes.
const MAX_MESSAGE: usize = 8 * 1024;

/// The tools of one server.
pub struct Project {
    /// Whether tools may start and steer runs.
    steering: bool,
    /// Whether dogwatch supervises this session.
    supervised: bool,
}

impl Project {
    /// Returns the tools for this process.
    pub fn here(steering: bool) -> Project {
        Project { steering, supervised: is_supervised() }
    }
}

/// The arguments of all tools; each tool names those it takes.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Arguments {
    run: Option<String>,
    path: Option<String>,
    iterations: Option<u32>,
    text: Option<String>,
}

impl OperatorTools for Project {
    fn instructions(&self) -> String {
        let steer = match (self.supervised, self.steering) {
            (true, _) => {
                return "This session is supervised by dogwatch, so it cannot see or steer runs.".to_owned();
            }
            (false, true) => "You may start, wake and message runs if the user asks for it.",
            (false, false) => {
                "These tools only read. The user can allow more with `dogwatch plugin install --allow-steering`."
            }
        };
        format!("dogwatch runs coding agents unattended. These tools show the runs of this project. {steer}")
    }

    fn tools(&self) -> Vec<OperatorTool> {
        let tool = |name, description, properties: Value, required: Value| OperatorTool {
            name,
            description,
            schema: object(json!({
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            })),
        };
        let run = json!({"type": "string", "description": "run id, the end of one, or the name of a loop; the latest run if omitted"});
        let mut tools = Vec::new();
        if self.supervised {
            return tools;
        }
        let (one, none) = (json!({"run": run}), json!([]));
        tools.push(tool(
            "list_runs",
            "List the latest runs of this project with their state.",
            json!({}),
            none.clone(),
        ));
        tools.push(tool(
            "run_status",
            "Show the status of a run: state, iterations, checks, waits, cost.",
            one.clone(),
            none.clone(),
        ));
        tools.push(tool(
            "run_report",
            "Report what a run did, as Markdown: timeline, verdicts, checks, cost, problems.",
            one.clone(),
            none.clone(),
        ));
        if self.steering {
            let path = json!({"type": "string", "description": "directory with RALPH.md or graph.*, or such a file"});
            let iterations =
                json!({"type": "integer", "minimum": 1, "description": "stop after this many iterations"});
            tools.push(tool(
                "start_run",
                "Start a run of a loop or graph in the background. It spends money until a limit or a check ends it.",
                json!({"path": path, "iterations": iterations}),
                json!(["path"]),
            ));
            tools.push(tool(
                "wake_run",
                "End the wait of a run: it starts its next iteration now.",
                one,
                none,
            ));
            let text = json!({"type": "string", "description": "the message"});
            tools.push(tool(
                "tell_run",
                "Send a message to the agent of a run. It gets the message with its next prompt.",
                json!({"run": run, "text": text}),
                json!(["text"]),
            ));
        }
        tools
    }

    fn call(&self, name: &str, arguments: Map<String, Value>) -> Result<String, String> {
        if self.supervised {
            return Err("this session is supervised by dogwatch; it cannot see or steer runs".to_owned());
        }
        let given: Arguments =
            serde_json::from_value(Value::Object(arguments)).map_err(|e| format!("{name}: {e}"))?;
        let result = match name {
            "list_runs" => Ok(list()),
            "run_status" => find(given.run).and_then(|run| Ok(status_text(&status_of(&run)?))),
            "run_report" => find(given.run).and_then(|run| report_page(&run)),
            "start_run" if self.steering => start::run(&given.path.unwrap_or_default(), given.iterations),
            "wake_run" if self.steering => find(given.run).and_then(|run| run.wake()),
            "tell_run" if self.steering => tell(given.run, given.text.unwrap_or_default()),
            _ => return Err(format!("unknown tool `{name}`")),
        };
        let text = result.map_err(|e| e.message())?;
        let shown = printable(&text);
        let cut = clip(&shown, MAX_TEXT);
        let note = if cut.len() < shown.len() { "\n… (cut; `dogwatch report` prints all)" } else { "" };
        Ok(format!("{cut}{note}"))
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// Returns a run of this project. The session must not see runs of other projects.
fn find(run: Option<String>) -> Result<FoundRun, CliError> {
    let found = Which::new(run, None).find()?;
    let here = runs_in(&state_dir(None).runs());
    if here.contains(&found) {
        return Ok(found);
    }
    Err(CliError::usage(format!("run {} belongs to another project", found.id)))
}

fn list() -> String {
    let mut text = String::new();
    for run in runs_in(&state_dir(None).runs()).iter().take(MAX_LISTED) {
        match status_of(run) {
            Ok(status) => text.push_str(&headline(&status)),
            Err(_) => {
                let _ = write!(text, "run {}  cannot read its record", run.id);
            }
        }
        text.push('\n');
    }
    if text.is_empty() { "no runs in this project yet\n".to_owned() } else { text }
}

fn tell(run: Option<String>, text: String) -> Result<String, CliError> {
    if text.trim().is_empty() || text.len() > MAX_MESSAGE {
        return Err(CliError::usage(format!("a message has 1 to {MAX_MESSAGE} bytes")));
    }
    let run = find(run)?;
    run.post("tell", &json!({ "text": text }))?;
    Ok(format!("the next prompt of run {} will include the message", run.id))
}
