//! One server behind the proxy: started or connected to when it is first needed, spoken to within limits, ended or
//! left when it hangs.

use crate::bound::{TimedOut, WaitError, seconds, within, within_unless};
use crate::child::{self, Child, Tail};
use crate::limits::{MAX_ANSWERED, RETRY_AFTER, START_LIMIT, WRITE_LIMIT};
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

/// Pages of a list of tools that are read, and tools of one server that are taken.
const MAX_PAGES: usize = 20;
const MAX_TOOLS: usize = 500;

pub struct Upstream {
    pub plan: McpServer,
    /// Whoever holds it starts the server or looks at it; nobody waits for an answer with it.
    state: AsyncMutex<State>,
    tools: Mutex<Vec<Tool>>,
    /// What the last start of it prints for people, or what went wrong on the way to it.
    stderr: Mutex<Tail>,
    /// Calls in a row that took too long, and the start that is given up for it.
    timeouts: AtomicU32,
    given_up: AtomicU64,
}

enum State {
    Down {
        /// Not before then, if it has failed: a server that dies at once is not started in a row.
        until: Option<Instant>,
        why: String,
    },
    Up(Up),
}

type Service = RunningService<RoleClient, Relay>;

struct Up {
    service: Service,
    /// Dropped, it is ended.
    _child: Option<Child>,
    /// Tells this start from a later one.
    number: u64,
}

/// Why a call has no answer. The text is for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The server could not be started, or died.
    Down(String),
    TimedOut(String),
    Canceled,
    /// The server itself stderr no.
    Refused(String),
}

impl CallError {
    pub fn text(&self) -> String {
        match self {
            CallError::Down(text) | CallError::TimedOut(text) | CallError::Refused(text) => text.clone(),
            CallError::Canceled => "cancelled".to_owned(),
        }
    }
}

impl Upstream {
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

    /// The tools it had when it was last asked.
    pub fn tools(&self) -> Vec<Tool> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes sure that it runs; the error is for people.
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
                let why = format!("server `{name}` does not start: {late}");
                *state = State::Down { until: Some(Instant::now() + RETRY_AFTER), why: why.clone() };
                Err(why)
            }
        }
    }

    /// Starts it, greets it and asks for its tools, all within one limit.
    async fn start(&self, cwd: &Path, relay: &Relay) -> Result<Up, String> {
        let name = &self.plan.name;
        let stderr = Tail::default();
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
                let initialized = within(START_LIMIT, rmcp::serve_client(relay.clone(), wire)).await;
                (initialized.map_err(|late| self.no_initialize(late))?.map_err(|_| self.gone())?, None)
            }
        };
        let left = START_LIMIT.saturating_sub(began.elapsed());
        let tools = match within(left, list(service.peer())).await {
            Ok(Ok(tools)) => tools,
            Ok(Err(why)) => return Err(format!("server `{name}` does not tell its tools: {why}")),
            Err(late) => return Err(format!("server `{name}` does not tell its tools: {late}")),
        };
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools;
        Ok(Up { service, _child: child, number: relay.next_number() })
    }

    async fn start_process(
        &self,
        argv: &[String],
        cwd: &Path,
        relay: &Relay,
        stderr: Tail,
    ) -> Result<(Service, Child), String> {
        let cannot = |why: String| format!("server `{}` cannot be started: {why}", self.plan.name);
        let started = child::start(argv, cwd, true).map_err(|error| cannot(error.to_string()))?;
        let stdin = started.stdin.ok_or_else(|| cannot("it has no stdin".to_owned()))?;
        tokio::spawn(child::drain(started.stderr, stderr));
        let wire = Wire::new(started.stdout, stdin, Peer::Server, MAX_ANSWERED);
        let initialized = within(START_LIMIT, rmcp::serve_client(relay.clone(), wire)).await;
        let service = initialized.map_err(|late| self.no_initialize(late))?.map_err(|_| self.gone())?;
        Ok((service, started.child))
    }

    fn no_initialize(&self, late: TimedOut) -> String {
        format!("server `{}` does not answer `initialize`: {late}", self.plan.name)
    }

    /// The limit of a call to this tool.
    pub fn limit(&self, tool: &str) -> Duration {
        let own = self.plan.tools.iter().find(|(name, _)| name == tool).map(|(_, limit)| *limit);
        duration(own.unwrap_or(self.plan.timeout))
    }

    /// One call. Whatever the server does, there is an answer within the limit, and the time to start it.
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
                // A server of the old protocol does not say, and a strict agent wants it stderr.
                result.result_type.get_or_insert(ResultType::COMPLETE);
                Ok(result)
            }
            Ok(Ok(Ok(_))) => {
                let text = format!(
                    "server `{name}` asks back in answer to `{}`, which nobody can answer",
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
                let reason = if error == WaitError::Canceled { "cancelled" } else { "took too long" };
                // The server is told; whether it cares is its own affair. A late answer finds nobody.
                let _ = within(WRITE_LIMIT, handle.cancel(Some(reason.to_owned()))).await;
                match error {
                    WaitError::Canceled => Err(CallError::Canceled),
                    WaitError::TimedOut(_) => Err(self.timed_out(number, call.tool, limit)),
                }
            }
        }
    }

    /// It took too long. After so many in a row it is given up, and started afresh when it is next needed.
    fn timed_out(&self, number: u64, tool: &str, limit: Duration) -> CallError {
        let timeouts = self.timeouts.fetch_add(1, Ordering::Relaxed) + 1;
        let name = &self.plan.name;
        let mut text =
            format!("server `{name}`: `{tool}` gave no answer within its limit of {}", seconds(limit));
        if timeouts >= self.plan.restart_after {
            self.given_up.store(number, Ordering::Relaxed);
            text.push_str(&format!("; after {timeouts} such calls the server is started afresh"));
        }
        CallError::TimedOut(text)
    }

    /// There is no way to it any more. One behind a url is initialized anew for the next call: it may have forgotten us.
    fn lost(&self, number: u64) -> CallError {
        if matches!(self.plan.place, McpPlace::Url(_)) {
            self.given_up.store(number, Ordering::Relaxed);
        }
        CallError::Down(self.gone())
    }

    /// Its connection is gone.
    fn gone(&self) -> String {
        let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner).text();
        let last = stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("").trim();
        let what = match &self.plan.place {
            McpPlace::Command(_) => "has ended, or does not speak MCP",
            McpPlace::Url(_) => "does not answer as an MCP server does",
        };
        let name = &self.plan.name;
        match last {
            "" => format!("server `{name}` {what}"),
            last => format!("server `{name}` {what}: {}", clip(last, 300)),
        }
    }
}

/// What is called, and by whom.
pub struct ToolCall<'a> {
    pub tool: &'a str,
    pub arguments: Option<JsonObject>,
    pub canceled: &'a CancellationToken,
    /// Where the server's word of its progress goes.
    pub progress: Option<Caller>,
}

/// All its tools, a bounded number of them.
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
