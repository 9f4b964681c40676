//! Named limits on time and memory, so that no agent or server can make a call hang or memory grow.

use std::time::Duration;

/// The longest message that an agent may send, in bytes: an artifact plus the message around it.
pub const MAX_ASKED: usize = 4 * 1024 * 1024;
/// The longest message of a server behind the proxy, in bytes.
pub const MAX_ANSWERED: usize = 16 * 1024 * 1024;
/// How much of a text is forwarded to the run, in bytes.
pub const MAX_TEXT: usize = 4 * 1024;

/// How long the receiver may take to accept a message.
pub const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// How long the run may take to answer.
pub const RUN_LIMIT: Duration = Duration::from_secs(5);
/// How long one of dogwatch's tools may take, except for the checks.
pub const TOOL_LIMIT: Duration = Duration::from_secs(15);
/// How long a tool of an interactive session may take. Starting a run takes longest.
pub const OPERATOR_LIMIT: Duration = Duration::from_secs(40);
/// How long writing an artifact may take.
pub const DISK_LIMIT: Duration = Duration::from_secs(10);
/// How long the agent may take to send `initialize` after it started this server.
pub const INITIALIZE_LIMIT: Duration = Duration::from_secs(60);
/// How long open calls may still take after their client has disconnected.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// How long a server behind the proxy may take to start, answer `initialize` and list its tools.
pub const START_LIMIT: Duration = Duration::from_secs(20);
/// How long a tool list waits for servers that are still starting. Agents give up on a list after 10 s.
pub const LIST_LIMIT: Duration = Duration::from_secs(7);
/// How long to wait before restarting a server that failed to start.
pub const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Concurrent HTTP connections to our server; further ones are answered with 503.
pub const MAX_CONNECTIONS: usize = 64;
/// Open MCP sessions over HTTP; for a further one, the session that has been idle longest is closed.
pub const MAX_SESSIONS: usize = 32;
/// How long an HTTP client may take to send a request head, also between two requests. Longer than clients keep a
/// connection open.
pub const HEAD_LIMIT: Duration = Duration::from_secs(120);
/// How long an HTTP client may take to send a request body.
pub const BODY_LIMIT: Duration = Duration::from_secs(10);
/// How long an MCP session over HTTP may be idle, in addition to the longest call, before it is closed.
pub const SESSION_IDLE_LIMIT: Duration = Duration::from_secs(60 * 60);
/// The largest response of the run, in bytes.
pub const MAX_RUN_ANSWER: usize = 64 * 1024;
/// Notes that are queued for the run; further ones are dropped.
pub const MAX_NOTES: usize = 64;
