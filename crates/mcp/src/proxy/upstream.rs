//! One server behind the proxy. It is started, or connected to, when it is first needed. Each call has a time limit,
//! and a server that hangs repeatedly is restarted.

use crate::bound::{WaitError, seconds, within, within_unless};
use crate::child::{self, BoundedTail, Child};
use crate::limits::{MAX_ANSWERED, RETRY_AFTER, START_LIMIT, WRITE_LIMIT};
use crate::proxy::progress::Progress;
use crate::proxy::remote;
use crate::rpc::client::{Client, Lost};
use crate::rpc::message::{Object, object};
use crate::serve::duration;
use crate::wire::{Peer, Wire};
use dogwatch_core::settings::{McpPlace, McpServer};
use dogwatch_core::text::clip;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
    tools: Mutex<Vec<Object>>,
    /// The stderr of the current process, or the connection errors of a remote server.
    stderr: Mutex<BoundedTail>,
    /// Consecutive calls that timed out, and the number of the start that is abandoned for it.
    timeouts: AtomicU32,
    given_up: AtomicU64,
    /// Counts the starts.
    starts: AtomicU64,
}

enum State {
    Down {
        /// After a failure, the earliest time of the next start. Prevents restarting a failing server in a loop.
        until: Option<Instant>,
        why: String,
    },
    Up(Up),
}

struct Up {
    client: Arc<Client>,
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
            starts: AtomicU64::new(0),
        }
    }

    /// Returns the tools that the server listed at its last start.
    pub fn tools(&self) -> Vec<Object> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts the server if it is not running. The error is for the user.
    pub async fn ready(&self, cwd: &Path) -> Result<(), String> {
        let client = within(2 * START_LIMIT, self.client(cwd)).await;
        client.map_err(|late| format!("{}: {late}", self.plan.name))?.map(drop)
    }

    async fn client(&self, cwd: &Path) -> Result<(Arc<Client>, u64), String> {
        let name = &self.plan.name;
        let mut state = within(START_LIMIT, self.state.lock())
            .await
            .map_err(|_| format!("server `{name}` is still starting"))?;
        if let State::Up(up) = &*state {
            let given_up = self.given_up.load(Ordering::Relaxed) == up.number;
            if !given_up && !up.client.is_closed() {
                return Ok((Arc::clone(&up.client), up.number));
            }
            self.timeouts.store(0, Ordering::Relaxed);
            *state = State::Down { until: None, why: String::new() };
        }
        if let State::Down { until: Some(until), why } = &*state
            && Instant::now() < *until
        {
            return Err(why.clone());
        }
        match within(START_LIMIT + WRITE_LIMIT, self.start(cwd)).await {
            Ok(Ok(up)) => {
                let found = (Arc::clone(&up.client), up.number);
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
    async fn start(&self, cwd: &Path) -> Result<Up, String> {
        let name = &self.plan.name;
        let stderr = BoundedTail::default();
        *self.stderr.lock().unwrap_or_else(PoisonError::into_inner) = stderr.clone();
        let began = Instant::now();
        let (client, child) = match &self.plan.place {
            McpPlace::Command(argv) => {
                let (client, child) = self.start_process(argv, cwd, stderr)?;
                (client, Some(child))
            }
            McpPlace::Url(url) => {
                let remote = remote::client(&self.plan, url, stderr)
                    .map_err(|why| format!("server `{name}` cannot be called: {why}"))?;
                (Client::over_http(remote), None)
            }
        };
        let initialized = within(START_LIMIT, client.initialize()).await;
        initialized
            .map_err(|late| format!("server `{name}` did not answer `initialize`: {late}"))?
            .map_err(|Lost| self.gone())?;
        let left = START_LIMIT.saturating_sub(began.elapsed());
        let tools = match within(left, list(&client)).await {
            Ok(Ok(tools)) => tools,
            Ok(Err(why)) => return Err(format!("server `{name}` did not list its tools: {why}")),
            Err(late) => return Err(format!("server `{name}` did not list its tools: {late}")),
        };
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools;
        let number = self.starts.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Up { client: Arc::new(client), _child: child, number })
    }

    fn start_process(
        &self,
        argv: &[String],
        cwd: &Path,
        stderr: BoundedTail,
    ) -> Result<(Client, Child), String> {
        let cannot = |why: String| format!("server `{}` cannot be started: {why}", self.plan.name);
        let started = child::start(argv, cwd, true).map_err(|error| cannot(error.to_string()))?;
        let stdin = started.stdin.ok_or_else(|| cannot("it has no stdin".to_owned()))?;
        tokio::spawn(child::drain(started.stderr, stderr));
        let wire = Wire::new(started.stdout, stdin, Peer::Server, MAX_ANSWERED);
        Ok((Client::over_pipes(wire), started.child))
    }

    /// Returns the time limit of a call to this tool.
    pub fn limit(&self, tool: &str) -> Duration {
        let own = self.plan.tools.iter().find(|(name, _)| name == tool).map(|(_, limit)| *limit);
        duration(own.unwrap_or(self.plan.timeout))
    }

    /// Makes one call. Always returns within the tool's limit plus the time to start the server.
    pub async fn call(&self, cwd: &Path, call: ToolCall<'_>) -> Result<Value, CallError> {
        let name = &self.plan.name;
        let (client, number) = within(2 * START_LIMIT, self.client(cwd))
            .await
            .map_err(|late| CallError::Down(format!("server `{name}`: {late}")))?
            .map_err(CallError::Down)?;
        let limit = self.limit(call.tool);
        let mut params = object(json!({"name": call.tool}));
        params.extend(call.arguments.map(|arguments| ("arguments".to_owned(), arguments.into())));
        let sent = client.send("tools/call", params, Some(call.progress));
        let mut waiting = match within(WRITE_LIMIT.min(limit), sent).await {
            Ok(Ok(waiting)) => waiting,
            Ok(Err(Lost)) => return Err(self.lost(number)),
            Err(_) => return Err(self.timed_out(number, call.tool, limit)),
        };
        match within_unless(limit, call.canceled.cancelled(), waiting.response()).await {
            Ok(Ok(Ok(result))) => {
                self.timeouts.store(0, Ordering::Relaxed);
                let kind = result.get("resultType").and_then(Value::as_str);
                if result.is_object() && matches!(kind, None | Some("complete")) {
                    return Ok(result);
                }
                let what = if result.is_object() { "a question" } else { "a value that is not an object" };
                let tool = call.tool;
                let text = format!("server `{name}` answered `{tool}` with {what}, which is not supported");
                Err(CallError::Refused(text))
            }
            Ok(Ok(Err(error))) => {
                self.timeouts.store(0, Ordering::Relaxed);
                Err(CallError::Refused(format!("server `{name}`: {}", clip(&error.message, 4_000))))
            }
            Ok(Err(Lost)) => Err(self.lost(number)),
            Err(error) => {
                let reason = if error == WaitError::Canceled { "canceled" } else { "took too long" };
                // Notify the server. A late result is dropped.
                let _ = within(WRITE_LIMIT, client.cancel(waiting.id(), reason)).await;
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
    pub arguments: Option<Object>,
    pub canceled: &'a CancellationToken,
    /// Receives progress notifications.
    pub progress: Arc<Progress>,
}

/// Lists the tools of a server, up to the limits. Entries that are not tools are left out.
async fn list(client: &Client) -> Result<Vec<Object>, String> {
    let (mut tools, mut cursor) = (Vec::new(), None);
    for _ in 0..MAX_PAGES {
        let params = object(cursor.take().map_or(json!({}), |cursor: Value| json!({"cursor": cursor})));
        let sent = within(START_LIMIT, client.send("tools/list", params, None)).await;
        let lost = |Lost| "the connection is lost".to_owned();
        let mut waiting = sent.map_err(|late| late.to_string())?.map_err(lost)?;
        let response = within(START_LIMIT, waiting.response()).await.map_err(|late| late.to_string())?;
        let page = response.map_err(lost)?.map_err(|error| clip(&error.message, 400).to_owned())?;
        let mut page = object(page);
        let Some(Value::Array(listed)) = page.remove("tools") else {
            return Err("the response has no list".to_owned());
        };
        tools.extend(listed.into_iter().map(object).filter(|tool| {
            tool.get("name").is_some_and(Value::is_string)
                && tool.get("inputSchema").is_some_and(Value::is_object)
        }));
        cursor = page.remove("nextCursor").filter(Value::is_string);
        if cursor.is_none() || tools.len() >= MAX_TOOLS {
            break;
        }
    }
    tools.truncate(MAX_TOOLS);
    Ok(tools)
}
