//! The MCP server for a session's agent: dogwatch's own tools, and those of the servers behind the proxy.

use crate::artifact;
use crate::bound::{TimeoutError, WaitError, within, within_unless};
use crate::checks;
use crate::limits::{LIST_LIMIT, TOOL_LIMIT};
use crate::proxy::Proxy;
use crate::rpc::Boxed;
use crate::rpc::message::{RpcError, tool_result};
use crate::rpc::server::{Call as ToolCall, Handler, Outbox};
use crate::run_client::{RunClient, RunError};
use crate::tools::{Call, INSTRUCTIONS, Tool, parse_call};
use dogwatch_core::run::agent_channel::{AgentResponse, RequestBody};
use dogwatch_core::time::dur::Dur;
use dogwatch_host::driver::mcp_setup::SessionFile;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// The MCP server for one agent.
#[derive(Clone)]
pub struct AgentServer {
    pub run: Arc<RunClient>,
    pub proxy: Arc<Proxy>,
}

impl Handler for AgentServer {
    fn instructions(&self) -> String {
        INSTRUCTIONS.to_owned()
    }

    fn list_changes(&self) -> bool {
        true
    }

    fn tools(&self, session: Option<Outbox>) -> Boxed<'_, Vec<Value>> {
        Box::pin(async move {
            let mut tools = own_tools();
            // Tools that are not available by then are left out.
            tools.extend(within(2 * LIST_LIMIT, self.proxy.tools(session)).await.unwrap_or_default());
            tools
        })
    }

    fn call(&self, call: ToolCall) -> Boxed<'_, Result<Value, RpcError>> {
        Box::pin(async move {
            if let Some(target) = self.proxy.find(&call.name) {
                let limit = self.proxy.limit(&target) + TOOL_LIMIT;
                let passed = within(limit, self.proxy.call(&target, call)).await;
                return Ok(passed.unwrap_or_else(|late| tool_result(&late.to_string(), true)));
            }
            let Some(tool) = Tool::from_name(&call.name) else {
                let why = format!("unknown tool `{}`", dogwatch_core::text::clip(&call.name, 200));
                return Err(RpcError::params(why));
            };
            let parsed = parse_call(tool, call.arguments.unwrap_or_default())
                .map_err(|why| RpcError::params(format!("{}: {why}", tool.name())))?;
            let limit = match parsed {
                Call::Send(_) | Call::Save { .. } => TOOL_LIMIT,
                Call::Check => TOOL_LIMIT + check_limit(self.run.session()),
            };
            // If the agent cancels or disconnects, dropping the future stops what the call started.
            let done = within_unless(limit, call.canceled.cancelled(), self.run_call(parsed)).await;
            Ok(match done {
                Ok(Ok(text)) => tool_result(&text, false),
                Ok(Err(why)) => tool_result(&why, true),
                Err(WaitError::TimedOut(limit)) => {
                    tool_result(&format!("{}: {}", tool.name(), TimeoutError(limit)), true)
                }
                Err(WaitError::Canceled) => tool_result("canceled", true),
            })
        })
    }
}

impl AgentServer {
    /// Carries out a call and returns a text for the model.
    async fn run_call(&self, call: Call) -> Result<String, String> {
        match call {
            Call::Send(body) => within(TOOL_LIMIT, self.send(body)).await.map_err(|late| late.to_string())?,
            Call::Save { name, content } => {
                within(TOOL_LIMIT, self.save(&name, content)).await.map_err(|late| late.to_string())?
            }
            Call::Check => {
                let limit = TOOL_LIMIT + check_limit(self.run.session());
                within(limit, self.check()).await.map_err(|late| late.to_string())?
            }
        }
    }

    async fn send(&self, body: RequestBody) -> Result<String, String> {
        let idle = matches!(&body, RequestBody::State { state, .. } if state == "idle");
        let claim = matches!(&body, RequestBody::State { state, .. } if state == "done");
        let heartbeat = body == RequestBody::Heartbeat;
        let answer = within(TOOL_LIMIT, self.run.request(body)).await.map_err(|late| late.to_string())?;
        match answer.map_err(|why| format!("{why}. Continue your work."))? {
            AgentResponse::Noted { .. } if idle => {
                Ok("Noted. End your turn now without further work.".to_owned())
            }
            AgentResponse::Noted { .. } if claim => {
                Ok("Noted as a claim. The user's checks decide.".to_owned())
            }
            AgentResponse::Noted { .. } if heartbeat => {
                Ok("Alive. This does not count as progress.".to_owned())
            }
            AgentResponse::Noted { evidence: true } | AgentResponse::Granted => Ok("Noted.".to_owned()),
            AgentResponse::Noted { evidence: false } => {
                Ok("Noted. This is not new, so it does not count as progress.".to_owned())
            }
            AgentResponse::Refused { why } => Err(why),
            AgentResponse::Failed { text } => Ok(text),
        }
    }

    async fn save(&self, name: &str, content: String) -> Result<String, String> {
        let bytes = content.len() as u64;
        let sha256 = hex(&Sha256::digest(content.as_bytes()));
        let ask = RequestBody::Artifact { name: name.to_owned(), bytes, sha256 };
        granted(within(TOOL_LIMIT, self.run.request(ask)).await)?;
        let kept = artifact::keep(&self.run.session().artifacts, name, content);
        let path = within(TOOL_LIMIT, kept).await.map_err(|late| late.to_string())?;
        let path = path.map_err(|error| format!("cannot write the artifact: {error}"))?;
        Ok(format!("Saved as {}.", path.display()))
    }

    async fn check(&self) -> Result<String, String> {
        let session = self.run.session();
        if session.checks.is_empty() {
            return Ok(
                "This loop has no checks. Verify your work by other means, then end your turn.".to_owned()
            );
        }
        granted(within(TOOL_LIMIT, self.run.request(RequestBody::CheckDone)).await)?;
        let compared = checks::find_tampering(session.pinned.clone(), &session.work_dir);
        let tampering =
            within(checks::PINS_LIMIT + TOOL_LIMIT, compared).await.map_err(|late| late.to_string())?;
        let of = session.checks.len() as u64;
        if tampering.fatal {
            self.run.note(RequestBody::Checked { failed: of, of, tampered: tampering.named() });
            return Ok(tampering.message());
        }
        let limit = duration(session.check_timeout);
        let mut results = Vec::new();
        for command in &session.checks {
            let ran = within(2 * limit + TOOL_LIMIT, checks::run(command, &session.work_dir, limit)).await;
            results.push(ran.map_err(|late| format!("`{command}`: {late}"))?);
        }
        let failed = results.iter().filter(|r| !r.passed()).count() as u64;
        self.run.note(RequestBody::Checked { failed, of, tampered: tampering.named() });
        let texts = [checks::summary(&results), tampering.message()];
        Ok(texts.iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>().join("\n\n"))
    }
}

/// Returns the time limit for running all checks.
pub fn check_limit(session: &SessionFile) -> Duration {
    let count = u32::try_from(session.checks.len()).unwrap_or(u32::MAX);
    let checks = (2 * duration(session.check_timeout) + TOOL_LIMIT).saturating_mul(count);
    checks + checks::PINS_LIMIT + TOOL_LIMIT
}

fn own_tools() -> Vec<Value> {
    let shown = |tool: Tool| json!({"name": tool.name(), "description": tool.description(), "inputSchema": tool.schema()});
    Tool::ALL.map(shown).into()
}

/// Converts a setting to a standard duration.
pub fn duration(dur: Dur) -> Duration {
    Duration::from_millis(dur.as_millis())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Returns an error unless the run gave its permission.
fn granted(answer: Result<Result<AgentResponse, RunError>, TimeoutError>) -> Result<(), String> {
    match answer.map_err(|late| late.to_string())?.map_err(|why| why.to_string())? {
        AgentResponse::Granted => Ok(()),
        AgentResponse::Refused { why } => Err(why),
        AgentResponse::Noted { .. } | AgentResponse::Failed { .. } => {
            Err("dogwatch did not say yes".to_owned())
        }
    }
}
