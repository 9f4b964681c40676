//! The proxy for the user's other MCP servers. It starts them when the agent lists the tools, offers their tools
//! together with ours, and puts a time limit on every call.
//!
//! ```text
//! names.rs       the names under which tools are offered (pure)
//! upstream.rs    one server: start, calls, shutdown
//! remote/        a server behind a URL, over HTTP
//! progress.rs    progress notifications from a server to the agent
//! ```

pub mod names;
pub(crate) mod progress;
pub(crate) mod remote;
mod upstream;

use crate::bound::within;
use crate::limits::{LIST_LIMIT, START_LIMIT};
use crate::rpc::message::tool_result;
use crate::rpc::server::{Call, Outbox};
use crate::run_client::RunClient;
use crate::tools;
use dogwatch_core::run::agent_channel::{Phase, RequestBody};
use dogwatch_core::text::printable;
use names::{Names, Target};
use progress::Progress;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use upstream::{CallError, ToolCall, Upstream};

/// The servers behind the proxy and the names of their tools.
pub struct Proxy {
    run: Arc<RunClient>,
    servers: Vec<Arc<Upstream>>,
    names: Mutex<Names>,
}

impl Proxy {
    /// Creates the proxy for the servers of a session. No server is started yet.
    pub fn new(run: Arc<RunClient>) -> Proxy {
        let servers =
            run.session().servers.iter().cloned().map(|plan| Arc::new(Upstream::new(plan))).collect();
        Proxy { run, servers, names: Mutex::default() }
    }

    /// Returns the tools of all servers that are ready within the limit, under their offered names. The other servers
    /// continue to start, and the agent is notified when the list has changed.
    pub async fn tools(&self, session: Option<Outbox>) -> Vec<Value> {
        let mut starting = JoinSet::new();
        for server in &self.servers {
            let (server, run) = (Arc::clone(server), Arc::clone(&self.run));
            starting.spawn(async move {
                let ready = within(2 * START_LIMIT, server.ready(&run.session().work_dir)).await;
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
            tokio::spawn(async move {
                // unbounded: each start has its own limit
                while starting.join_next().await.is_some() {}
                if let Some(session) = session {
                    session.notify_list_changed();
                }
            });
        }
        self.offered()
    }

    fn offered(&self) -> Vec<Value> {
        let ours = tools::Tool::ALL.map(tools::Tool::name);
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let mut offered = Vec::new();
        for (at, server) in self.servers.iter().enumerate() {
            for mut tool in server.tools() {
                let own_name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
                if let Some(name) = names.offer(at, &server.plan.name, own_name, &ours) {
                    tool.insert("name".to_owned(), name.into());
                    // The agent reads it as text. Hidden characters could carry instructions that people do not see.
                    if let Some(Value::String(text)) = tool.get_mut("description") {
                        *text = printable(text).into_owned();
                    }
                    offered.push(Value::Object(tool));
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
    pub async fn call(&self, target: &Target, call: Call) -> Value {
        let server = &self.servers[target.server];
        let (name, tool) = (server.plan.name.clone(), target.tool.clone());
        let note =
            |phase| self.run.note(RequestBody::Call { server: name.clone(), tool: tool.clone(), phase });
        note(Phase::Start);
        let progress = Progress {
            run: Arc::clone(&self.run),
            server: name.clone(),
            tool: tool.clone(),
            agent: call.out,
            token: call.progress,
            last_evidence: Mutex::default(),
        };
        let call = ToolCall {
            tool: &target.tool,
            arguments: call.arguments,
            canceled: &call.canceled,
            progress: Arc::new(progress),
        };
        let answered = server.call(&self.run.session().work_dir, call);
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
                tool_result(&why.text(), true)
            }
        }
    }
}
