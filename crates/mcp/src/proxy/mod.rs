//! The proxy for the user's other MCP servers. It starts them when the agent lists the tools, offers their tools
//! together with ours, and puts a time limit on every call.
//!
//! ```text
//! names.rs       the names under which tools are offered (pure)
//! upstream.rs    one server: start, calls, shutdown
//! connection.rs  one type for every transport to a server
//! remote/        a server behind a URL, over HTTP
//! relay.rs       progress notifications from a server to the agent
//! ```

mod connection;
pub mod names;
mod relay;
mod remote;
mod upstream;

use crate::bound::within;
use crate::limits::{LIST_LIMIT, START_LIMIT};
use crate::run_client::RunClient;
use crate::tools;
use dogwatch_core::run::agent_channel::{Phase, RequestBody};
use dogwatch_core::text::printable;
use names::{Names, Target};
use relay::{Caller, Relay};
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, Tool};
use rmcp::service::{RequestContext, RoleServer};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use upstream::{CallError, ToolCall, Upstream};

/// The servers behind the proxy and the names of their tools.
pub struct Proxy {
    run: Arc<RunClient>,
    servers: Vec<Arc<Upstream>>,
    relay: Relay,
    names: Mutex<Names>,
}

impl Proxy {
    /// Creates the proxy for the servers of a session. No server is started yet.
    pub fn new(run: Arc<RunClient>) -> Proxy {
        let servers =
            run.session().servers.iter().cloned().map(|plan| Arc::new(Upstream::new(plan))).collect();
        let relay = Relay::new(Arc::clone(&run));
        Proxy { run, servers, relay, names: Mutex::default() }
    }

    /// Returns the tools of all servers that are ready within the limit, under their offered names. The other servers
    /// continue to start, and the agent is notified when the list has changed.
    pub async fn tools(&self, context: &RequestContext<RoleServer>) -> Vec<Tool> {
        let mut starting = JoinSet::new();
        for server in &self.servers {
            let (server, relay, run) = (Arc::clone(server), self.relay.clone(), Arc::clone(&self.run));
            starting.spawn(async move {
                let ready = within(2 * START_LIMIT, server.ready(&run.session().work_dir, &relay)).await;
                if let Some(why) = ready.map_err(|late| late.to_string()).and_then(|r| r).err() {
                    run.note(RequestBody::ServerTrouble { server: server.plan.name.clone(), text: why });
                }
            });
        }
        let all = async {
            // unbounded: each start has its own limit
            while starting.join_next().await.is_some() {}
        };
        if within(LIST_LIMIT, all).await.is_err() {
            let agent = context.peer.clone();
            tokio::spawn(async move {
                // unbounded: each start has its own limit
                while starting.join_next().await.is_some() {}
                let _ = within(LIST_LIMIT, agent.notify_tool_list_changed()).await;
            });
        }
        self.offered()
    }

    fn offered(&self) -> Vec<Tool> {
        let ours = tools::Tool::ALL.map(tools::Tool::name);
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let mut offered = Vec::new();
        for (at, server) in self.servers.iter().enumerate() {
            for mut tool in server.tools() {
                if let Some(name) = names.offer(at, &server.plan.name, &tool.name, &ours) {
                    tool.name = name.to_owned().into();
                    // The agent reads it as text. Hidden characters could carry instructions that people do not see.
                    tool.description = tool.description.map(|text| printable(&text).into_owned().into());
                    offered.push(tool);
                }
            }
        }
        offered
    }

    /// Returns the target of a tool name.
    pub fn find(&self, name: &str) -> Option<Target> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).find(name).cloned()
    }

    /// Returns the time limit of a call, including the start of its server.
    pub fn limit(&self, target: &Target) -> Duration {
        self.servers[target.server].limit(&target.tool) + 3 * START_LIMIT
    }

    /// Forwards a call and always returns a result. The start and the end of the call are evidence.
    pub async fn call(
        &self,
        target: &Target,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let server = &self.servers[target.server];
        let (name, tool) = (server.plan.name.clone(), target.tool.clone());
        let note =
            |phase| self.run.note(RequestBody::Call { server: name.clone(), tool: tool.clone(), phase });
        note(Phase::Start);
        let progress = Caller {
            agent: context.peer.clone(),
            token: context.meta.get_progress_token(),
            server: name.clone(),
            tool: tool.clone(),
        };
        let call = ToolCall {
            tool: &target.tool,
            arguments: request.arguments,
            canceled: &context.ct,
            progress: Some(progress),
        };
        let answered = server.call(&self.run.session().work_dir, &self.relay, call);
        let answer = within(self.limit(target), answered).await;
        let answer = answer
            .unwrap_or_else(|late| Err(CallError::TimedOut(format!("server `{name}`: `{tool}`: {late}"))));
        note(match &answer {
            Err(CallError::TimedOut(_)) => Phase::TimedOut,
            Ok(_) | Err(_) => Phase::End,
        });
        match answer {
            Ok(result) => result,
            Err(why) => {
                if let CallError::Down(text) = &why {
                    self.run.note(RequestBody::ServerTrouble { server: name.clone(), text: text.clone() });
                }
                CallToolResult::error(vec![ContentBlock::text(why.text())])
            }
        }
    }
}
