//! One server behind the proxy. It is started, or connected to, when it is first needed. Each call has a time limit,
//! and a server that hangs repeatedly is restarted.

use crate::bound::{TimeoutError, WaitError, seconds, within, within_unless};
use crate::child::{self, BoundedTail, Child};
use crate::limits::{MAX_ANSWERED, RETRY_AFTER, START_LIMIT, WRITE_LIMIT};
use crate::proxy::connection::Connection;
use crate::proxy::relay::{Caller, Relay};
use crate::proxy::remote;
use crate::serve::duration;
use crate::wire::{Peer, Wire};
use dogwatch_core::settings::{McpPlace, McpServer};
use dogwatch_core::text::clip;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, JsonObject,
    PaginatedRequestParams, ResultType, ServerResult, Tool,
};
use rmcp::service::{Peer as Remote, PeerRequestOptions, RoleClient, RunningService, ServiceError};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;

/// How many pages of a tool list are read, and how many tools of one server are used.
const MAX_PAGES: usize = 20;
const MAX_TOOLS: usize = 500;

/// A server behind the proxy.
pub struct Upstream {
    pub plan: McpServer,
    /// Locked while the server is started or inspected, never while a call waits for its result.
    state: AsyncMutex<State>,
    tools: Mutex<Vec<Tool>>,
    /// The stderr of the current process, or the connection errors of a remote server.
    stderr: Mutex<BoundedTail>,
    /// Consecutive calls that timed out, and the number of the start that is abandoned for it.
    timeouts: AtomicU32,
    given_up: AtomicU64,
}

enum State {
    Down {
        /// After a failure, the earliest time of the next start. Prevents restarting a failing server in a loop.
        until: Option<Instant>,
        why: String,
    },
    Up(Up),
}

type Service = RunningService<RoleClient, Relay>;

struct Up {
    service: Service,
    /// Dropping it kills the process.
    _child: Option<Child>,
    /// Identifies this start of the server.
    number: u64,
}

/// Why a call has no result. The text is for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The server failed to start, or died.
    Down(String),
    TimedOut(String),
    Canceled,
    /// The server returned an error.
    Refused(String),
}

impl CallError {
    /// Returns the message for the model.
    pub fn text(&self) -> String {
        match self {
            CallError::Down(text) | CallError::TimedOut(text) | CallError::Refused(text) => text.clone(),
            CallError::Canceled => "canceled".to_owned(),
        }
    }
}

impl Upstream {
    /// Creates a server that is not started yet.
    pub fn new(plan: McpServer) -> Upstream {
        let state = AsyncMutex::new(State::Down { until: None, why: String::new() });
        Upstream {
            plan,
            state,
            tools: Mutex::default(),
            stderr: Mutex::default(),
            timeouts: AtomicU32::new(0),
            given_up: AtomicU64::new(0),
        }
    }

    /// Returns the tools that the server listed at its last start.
    pub fn tools(&self) -> Vec<Tool> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts the server if it is not running. The error is for the user.
    pub async fn ready(&self, cwd: &Path, relay: &Relay) -> Result<(), String> {
        let peer = within(2 * START_LIMIT, self.peer(cwd, relay)).await;
        peer.map_err(|late| format!("{}: {late}", self.plan.name))?.map(drop)
    }

    async fn peer(&self, cwd: &Path, relay: &Relay) -> Result<(Remote<RoleClient>, u64), String> {
        let name = &self.plan.name;
        let mut state = within(START_LIMIT, self.state.lock())
            .await
            .map_err(|_| format!("server `{name}` is still starting"))?;
        if let State::Up(up) = &*state {
            let given_up = self.given_up.load(Ordering::Relaxed) == up.number;
            if !given_up && !up.service.is_closed() && !up.service.peer().is_transport_closed() {
                return Ok((up.service.peer().clone(), up.number));
            }
            self.timeouts.store(0, Ordering::Relaxed);
            *state = State::Down { until: None, why: String::new() };
        }
        if let State::Down { until: Some(until), why } = &*state
            && Instant::now() < *until
        {
            return Err(why.clone());
        }
        match within(START_LIMIT + WRITE_LIMIT, self.start(cwd, relay)).await {
            Ok(Ok(up)) => {
                let found = (up.service.peer().clone(), up.number);
                *state = State::Up(up);
                Ok(found)
            }
            Ok(Err(why)) => {
                *state = State::Down { until: Some(Instant::now() + RETRY_AFTER), why: why.clone() };
                Err(why)
            }
            Err(late) => {
                let why = format!("server `{name}` did not start: {late}");
                *state = State::Down { until: Some(Instant::now() + RETRY_AFTER), why: why.clone() };
                Err(why)
            }
        }
    }

    /// Starts the server, sends `initialize` and lists its tools, all within one limit.
    async fn start(&self, cwd: &Path, relay: &Relay) -> Result<Up, String> {
        let name = &self.plan.name;
        let stderr = BoundedTail::default();
        *self.stderr.lock().unwrap_or_else(PoisonError::into_inner) = stderr.clone();
        let began = Instant::now();
        let (service, child) = match &self.plan.place {
            McpPlace::Command(argv) => {
                let started = within(START_LIMIT, self.start_process(argv, cwd, relay, stderr)).await;
                let (service, child) = started.map_err(|late| self.no_initialize(late))??;
                (service, Some(child))
            }
            McpPlace::Url(url) => {
                let wire = remote::transport(&self.plan, url, stderr)
                    .map_err(|why| format!("server `{name}` cannot be called: {why}"))?;
                let initialized = within(START_LIMIT, self.initialize(relay, Connection::new(wire))).await;
                (initialized.map_err(|late| self.no_initialize(late))??, None)
            }
        };
        let left = START_LIMIT.saturating_sub(began.elapsed());
        let tools = match within(left, list(service.peer())).await {
            Ok(Ok(tools)) => tools,
            Ok(Err(why)) => return Err(format!("server `{name}` did not list its tools: {why}")),
            Err(late) => return Err(format!("server `{name}` did not list its tools: {late}")),
        };
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools;
        Ok(Up { service, _child: child, number: relay.next_number() })
    }

    async fn start_process(
        &self,
        argv: &[String],
        cwd: &Path,
        relay: &Relay,
        stderr: BoundedTail,
    ) -> Result<(Service, Child), String> {
        let cannot = |why: String| format!("server `{}` cannot be started: {why}", self.plan.name);
        let started = child::start(argv, cwd, true).map_err(|error| cannot(error.to_string()))?;
        let stdin = started.stdin.ok_or_else(|| cannot("it has no stdin".to_owned()))?;
        tokio::spawn(child::drain(started.stderr, stderr));
        let wire = Wire::new(started.stdout, stdin, Peer::Server, MAX_ANSWERED);
        let initialized = within(START_LIMIT, self.initialize(relay, Connection::new(wire))).await;
        Ok((initialized.map_err(|late| self.no_initialize(late))??, started.child))
    }

    async fn initialize(&self, relay: &Relay, connection: Connection) -> Result<Service, String> {
        let initialized = within(START_LIMIT, rmcp::serve_client(relay.clone(), connection)).await;
        initialized.map_err(|late| self.no_initialize(late))?.map_err(|_| self.gone())
    }

    fn no_initialize(&self, late: TimeoutError) -> String {
        format!("server `{}` did not answer `initialize`: {late}", self.plan.name)
    }

    /// Returns the time limit of a call to this tool.
    pub fn limit(&self, tool: &str) -> Duration {
        let own = self.plan.tools.iter().find(|(name, _)| name == tool).map(|(_, limit)| *limit);
        duration(own.unwrap_or(self.plan.timeout))
    }

    /// Makes one call. Always returns within the tool's limit plus the time to start the server.
    pub async fn call(
        &self,
        cwd: &Path,
        relay: &Relay,
        call: ToolCall<'_>,
    ) -> Result<CallToolResult, CallError> {
        let name = &self.plan.name;
        let (peer, number) = within(2 * START_LIMIT, self.peer(cwd, relay))
            .await
            .map_err(|late| CallError::Down(format!("server `{name}`: {late}")))?
            .map_err(CallError::Down)?;
        let limit = self.limit(call.tool);
        let mut params = CallToolRequestParams::new(call.tool.to_owned());
        params.arguments = call.arguments;
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let options = PeerRequestOptions::no_options();
        let sent = within(WRITE_LIMIT.min(limit), peer.send_cancellable_request(request, options)).await;
        let mut handle = match sent {
            Ok(Ok(handle)) => handle,
            Ok(Err(_)) => return Err(self.lost(number)),
            Err(_) => return Err(self.timed_out(number, call.tool, limit)),
        };
        let relayed = call.progress.map(|progress| relay.forward(handle.progress_token.clone(), progress));
        let answered = within_unless(limit, call.canceled.cancelled(), &mut handle.rx).await;
        if let Some(relayed) = relayed {
            let _ = within(WRITE_LIMIT, relayed.settled()).await;
        }
        match answered {
            Ok(Ok(Ok(ServerResult::CallToolResult(mut result)))) => {
                self.timeouts.store(0, Ordering::Relaxed);
                // Servers of the old protocol omit the result type, and strict agents require it.
                result.result_type.get_or_insert(ResultType::COMPLETE);
                Ok(result)
            }
            Ok(Ok(Ok(_))) => {
                let text = format!(
                    "server `{name}` answered `{}` with a question, which is not supported",
                    call.tool
                );
                Err(CallError::Refused(text))
            }
            Ok(Ok(Err(ServiceError::McpError(error)))) => {
                self.timeouts.store(0, Ordering::Relaxed);
                Err(CallError::Refused(format!("server `{name}`: {}", clip(&error.message, 4_000))))
            }
            Ok(Ok(Err(_)) | Err(_)) => Err(self.lost(number)),
            Err(error) => {
                let reason = if error == WaitError::Canceled { "canceled" } else { "took too long" };
                // Notify the server. A late result is dropped.
                let _ = within(WRITE_LIMIT, handle.cancel(Some(reason.to_owned()))).await;
                match error {
                    WaitError::Canceled => Err(CallError::Canceled),
                    WaitError::TimedOut(_) => Err(self.timed_out(number, call.tool, limit)),
                }
            }
        }
    }

    /// Counts a timeout. After `restart_after` consecutive ones the server is restarted at its next use.
    fn timed_out(&self, number: u64, tool: &str, limit: Duration) -> CallError {
        let timeouts = self.timeouts.fetch_add(1, Ordering::Relaxed) + 1;
        let name = &self.plan.name;
        let mut text =
            format!("server `{name}`: `{tool}` did not answer within its limit of {}", seconds(limit));
        if timeouts >= self.plan.restart_after {
            self.given_up.store(number, Ordering::Relaxed);
            text.push_str(&format!("; the server will be restarted after {timeouts} timeouts in a row"));
        }
        CallError::TimedOut(text)
    }

    /// Handles a lost connection. A server behind a URL is initialized again for the next call, because it may have
    /// forgotten the session.
    fn lost(&self, number: u64) -> CallError {
        if matches!(self.plan.place, McpPlace::Url(_)) {
            self.given_up.store(number, Ordering::Relaxed);
        }
        CallError::Down(self.gone())
    }

    /// Returns the message for a server whose connection is gone, with its last line of output.
    fn gone(&self) -> String {
        let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner).text();
        let last = stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("").trim();
        let what = match &self.plan.place {
            McpPlace::Command(_) => "has exited or does not speak MCP",
            McpPlace::Url(_) => "does not respond as an MCP server",
        };
        let name = &self.plan.name;
        match last {
            "" => format!("server `{name}` {what}"),
            last => format!("server `{name}` {what}: {}", clip(last, 300)),
        }
    }
}

/// A call of one tool.
pub struct ToolCall<'a> {
    pub tool: &'a str,
    pub arguments: Option<JsonObject>,
    pub canceled: &'a CancellationToken,
    /// The caller that receives progress notifications.
    pub progress: Option<Caller>,
}

/// Lists the tools of a server, up to the limits.
async fn list(peer: &Remote<RoleClient>) -> Result<Vec<Tool>, String> {
    let (mut tools, mut cursor) = (Vec::new(), None);
    for _ in 0..MAX_PAGES {
        let page = PaginatedRequestParams::default().with_cursor(cursor.take());
        let asked =
            within(START_LIMIT, peer.list_tools(Some(page))).await.map_err(|late| late.to_string())?;
        let page = asked.map_err(|error| error.to_string())?;
        tools.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() || tools.len() >= MAX_TOOLS {
            break;
        }
    }
    tools.truncate(MAX_TOOLS);
    Ok(tools)
}
