//! The MCP server for a session's agent: dogwatch's own tools, and those of the servers behind the proxy.

use crate::artifact;
use crate::bound::{TimeoutError, WaitError, within, within_unless};
use crate::checks;
use crate::limits::{LIST_LIMIT, TOOL_LIMIT};
use crate::proxy::Proxy;
use crate::run_client::RunClient;
use crate::tools::{Call, INSTRUCTIONS, Tool, parse_call};
use dogwatch_core::run::agent_channel::{AgentResponse, RequestBody};
use dogwatch_core::time::dur::Dur;
use dogwatch_host::driver::mcp_setup::SessionFile;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool as ToolModel,
};
use rmcp::service::{RequestContext, RoleServer};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// The MCP server for one agent.
#[derive(Clone)]
pub struct AgentServer {
    pub run: Arc<RunClient>,
    pub proxy: Arc<Proxy>,
}

impl ServerHandler for AgentServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("dogwatch", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut tools = own_tools();
        // Tools that are not available by then are left out.
        tools.extend(within(2 * LIST_LIMIT, self.proxy.tools(&context)).await.unwrap_or_default());
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(target) = self.proxy.find(&request.name) {
            let limit = self.proxy.limit(&target) + TOOL_LIMIT;
            let passed = within(limit, self.proxy.call(&target, request, &context)).await;
            let late = |late: TimeoutError| CallToolResult::error(vec![ContentBlock::text(late.to_string())]);
            return Ok(passed.unwrap_or_else(late).into());
        }
        let Some(tool) = Tool::from_name(&request.name) else {
            let why = format!("unknown tool `{}`", dogwatch_core::text::clip(&request.name, 200));
            return Err(ErrorData::invalid_params(why, None));
        };
        let call = parse_call(tool, request.arguments.unwrap_or_default())
            .map_err(|why| ErrorData::invalid_params(format!("{}: {why}", tool.name()), None))?;
        let limit = match call {
            Call::Send(_) | Call::Save { .. } => TOOL_LIMIT,
            Call::Check => TOOL_LIMIT + check_limit(self.run.session()),
        };
        // If the agent cancels or disconnects, dropping the future stops what the call started.
        let done = within_unless(limit, context.ct.cancelled(), self.run_call(call)).await;
        let failed = |why: String| CallToolResult::error(vec![ContentBlock::text(why)]);
        let result = match done {
            Ok(Ok(text)) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Ok(Err(why)) => failed(why),
            Err(WaitError::TimedOut(limit)) => failed(format!("{}: {}", tool.name(), TimeoutError(limit))),
            Err(WaitError::Canceled) => failed("canceled".to_owned()),
        };
        Ok(result.into())
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
        let answer = within(TOOL_LIMIT, self.run.request(ask)).await.map_err(|late| late.to_string())?;
        match answer.map_err(|why| why.to_string())? {
            AgentResponse::Granted => {}
            AgentResponse::Refused { why } => return Err(why),
            AgentResponse::Noted { .. } | AgentResponse::Failed { .. } => {
                return Err("dogwatch did not say yes".to_owned());
            }
        }
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
        let answer = within(TOOL_LIMIT, self.run.request(RequestBody::CheckDone))
            .await
            .map_err(|late| late.to_string())?;
        match answer.map_err(|why| why.to_string())? {
            AgentResponse::Granted => {}
            AgentResponse::Refused { why } => return Err(why),
            AgentResponse::Noted { .. } | AgentResponse::Failed { .. } => {
                return Err("dogwatch did not say yes".to_owned());
            }
        }
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

fn own_tools() -> Vec<ToolModel> {
    Tool::ALL.map(|tool| ToolModel::new(tool.name(), tool.description(), Arc::new(tool.schema()))).into()
}

/// Converts a setting to a standard duration.
pub fn duration(dur: Dur) -> Duration {
    Duration::from_millis(dur.as_millis())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
