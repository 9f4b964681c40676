//! An MCP server for interactive sessions of the operator: a few tools that the caller implements. The caller decides what
//! they may do; this module speaks the protocol and bounds every call.

use crate::bound::{TimeoutError, WaitError, within_unless};
use crate::limits::{MAX_ASKED, OPERATOR_LIMIT};
use crate::rpc::Boxed;
use crate::rpc::message::{RpcError, tool_result};
use crate::rpc::server::{Call, Handler, Outbox};
use crate::rpc::stdio;
use crate::runtime;
use crate::wire::{Peer, Wire};
use serde_json::{Map, Value, json};
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
    /// Carries out a call. The caller uses a separate thread. Returns a text for the model, or the error.
    fn call(&self, name: &str, arguments: Map<String, Value>) -> Result<String, String>;
}

struct OperatorServer {
    tools: Arc<dyn OperatorTools>,
}

impl Handler for OperatorServer {
    fn instructions(&self) -> String {
        self.tools.instructions()
    }

    fn list_changes(&self) -> bool {
        false
    }

    fn tools(&self, _session: Option<Outbox>) -> Boxed<'_, Vec<Value>> {
        let shown = |tool: OperatorTool| json!({"name": tool.name, "description": tool.description, "inputSchema": tool.schema});
        Box::pin(std::future::ready(self.tools.tools().into_iter().map(shown).collect()))
    }

    fn call(&self, call: Call) -> Boxed<'_, Result<Value, RpcError>> {
        Box::pin(async move {
            let Call { name, arguments, canceled, .. } = call;
            if !self.tools.tools().iter().any(|tool| tool.name == name) {
                let why = format!("unknown tool `{}`", dogwatch_core::text::clip(&name, 200));
                return Err(RpcError::params(why));
            }
            let tools = Arc::clone(&self.tools);
            let called =
                tokio::task::spawn_blocking(move || tools.call(&name, arguments.unwrap_or_default()));
            Ok(match within_unless(OPERATOR_LIMIT, canceled.cancelled(), called).await {
                Ok(Ok(Ok(text))) => tool_result(&text, false),
                Ok(Ok(Err(why))) => tool_result(&why, true),
                Ok(Err(_)) => tool_result("the call failed inside dogwatch", true),
                Err(WaitError::TimedOut(limit)) => tool_result(&TimeoutError(limit).to_string(), true),
                Err(WaitError::Canceled) => tool_result("canceled", true),
            })
        })
    }
}

/// Serves these tools on stdin and stdout until the client closes its end.
pub fn serve_operator(tools: Arc<dyn OperatorTools>) -> io::Result<()> {
    let runtime = runtime()?;
    // unbounded: serves until the client disconnects
    let served = runtime.block_on(async {
        let wire = Wire::new(tokio::io::stdin(), tokio::io::stdout(), Peer::Agent, MAX_ASKED);
        // unbounded: the client decides when to send a request
        stdio::serve(Arc::new(OperatorServer { tools }), wire).await
    });
    // Do not wait for the thread that still reads stdin.
    runtime.shutdown_background();
    served
}
