//! An MCP server for interactive sessions of the operator: a few tools that the caller implements. The caller decides what
//! they may do; this module speaks the protocol and bounds every call.

use crate::bound::{TimeoutError, WaitError, within, within_unless};
use crate::limits::{INITIALIZE_LIMIT, MAX_ASKED, OPERATOR_LIMIT};
use crate::runtime;
use crate::wire::{Peer, Wire};
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool as ToolModel,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value};
use std::io;
use std::sync::Arc;

/// A tool for an interactive session.
#[derive(Clone, Debug)]
pub struct OperatorTool {
    /// The name of the tool.
    pub name: &'static str,
    /// The description for the model.
    pub description: &'static str,
    /// The schema of its arguments.
    pub schema: Map<String, Value>,
}

/// The tools of a server, implemented by the caller.
pub trait OperatorTools: Send + Sync + 'static {
    /// Returns the instructions for the model.
    fn instructions(&self) -> String;
    /// Returns the tools.
    fn tools(&self) -> Vec<OperatorTool>;
    /// Carries out a call on a thread of its own. Returns a text for the model, or what went wrong.
    fn call(&self, name: &str, arguments: Map<String, Value>) -> Result<String, String>;
}

#[derive(Clone)]
struct OperatorServer {
    tools: Arc<dyn OperatorTools>,
}

impl ServerHandler for OperatorServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("dogwatch", env!("CARGO_PKG_VERSION")))
            .with_instructions(self.tools.instructions())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let model = |tool: OperatorTool| ToolModel::new(tool.name, tool.description, Arc::new(tool.schema));
        Ok(ListToolsResult::with_all_items(self.tools.tools().into_iter().map(model).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !self.tools.tools().iter().any(|tool| tool.name == request.name) {
            let why = format!("unknown tool `{}`", dogwatch_core::text::clip(&request.name, 200));
            return Err(ErrorData::invalid_params(why, None));
        }
        let tools = Arc::clone(&self.tools);
        let called = tokio::task::spawn_blocking(move || {
            tools.call(&request.name, request.arguments.unwrap_or_default())
        });
        let failed = |why: String| CallToolResult::error(vec![ContentBlock::text(why)]);
        let result = match within_unless(OPERATOR_LIMIT, context.ct.cancelled(), called).await {
            Ok(Ok(Ok(text))) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Ok(Ok(Err(why))) => failed(why),
            Ok(Err(_)) => failed("the call failed inside dogwatch".to_owned()),
            Err(WaitError::TimedOut(limit)) => failed(TimeoutError(limit).to_string()),
            Err(WaitError::Canceled) => failed("canceled".to_owned()),
        };
        Ok(result.into())
    }
}

/// Serves these tools on stdin and stdout until the client closes its end.
pub fn serve_operator(tools: Arc<dyn OperatorTools>) -> io::Result<()> {
    let runtime = runtime()?;
    // unbounded: serves until the client disconnects
    let served = runtime.block_on(async {
        let wire = Wire::new(tokio::io::stdin(), tokio::io::stdout(), Peer::Agent, MAX_ASKED);
        let served = match within(INITIALIZE_LIMIT, rmcp::serve_server(OperatorServer { tools }, wire)).await
        {
            Ok(Ok(served)) => served,
            // The client disconnected before it sent `initialize`.
            Ok(Err(rmcp::service::ServerInitializeError::ConnectionClosed(_))) => return Ok(()),
            Ok(Err(error)) => return Err(io::Error::other(error)),
            Err(late) => return Err(io::Error::other(format!("the client sent no `initialize`: {late}"))),
        };
        // unbounded: the client decides when to send a request
        let _ = served.waiting().await;
        Ok(())
    });
    // Do not wait for the thread that still reads stdin.
    runtime.shutdown_background();
    served
}
