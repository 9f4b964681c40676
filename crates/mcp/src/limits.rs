//! Named limits: whatever an agent or a server does, no call hangs and nothing grows.

use std::time::Duration;

/// The longest message that an agent may send, in bytes: an artifact, and the words around it.
pub const MAX_ASKED: usize = 4 * 1024 * 1024;
/// The longest message of a server behind the proxy, in bytes.
pub const MAX_ANSWERED: usize = 16 * 1024 * 1024;
/// The most of a text that is passed on to the run, in bytes.
pub const MAX_TEXT: usize = 4 * 1024;

/// For a message to be taken by who it is for.
pub const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// For the run to answer.
pub const RUN_LIMIT: Duration = Duration::from_secs(5);
/// For one of our own tools, the checks excepted.
pub const TOOL_LIMIT: Duration = Duration::from_secs(15);
/// For an artifact to be written.
pub const DISK_LIMIT: Duration = Duration::from_secs(10);
/// For the agent to say who it is, once it has started us.
pub const INITIALIZE_LIMIT: Duration = Duration::from_secs(60);
/// For a server behind the proxy to start, to answer `initialize` and to tell its tools.
pub const START_LIMIT: Duration = Duration::from_secs(20);
/// A list of tools waits no longer for servers that still start: agents give up on us after 10 s.
pub const LIST_LIMIT: Duration = Duration::from_secs(7);
/// A server that could not be started is not started again before that.
pub const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Connections to our server over HTTP at a time; one more is answered with 503.
pub const MAX_CONNECTIONS: usize = 64;
/// Clients that have greeted it and not left; for one more, the one that is silent longest is ended.
pub const MAX_SESSIONS: usize = 32;
/// Over HTTP, for the head of a request to come and between two of them: longer than clients keep a connection.
pub const HEAD_LIMIT: Duration = Duration::from_secs(120);
/// Over HTTP, for the body of a request to come.
pub const BODY_LIMIT: Duration = Duration::from_secs(10);
/// Over HTTP, a client that says nothing for so long, and for the longest call, is ended.
pub const SESSION_IDLE_LIMIT: Duration = Duration::from_secs(60 * 60);
/// The largest answer of the run, in bytes.
pub const MAX_RUN_ANSWER: usize = 64 * 1024;
/// Notes that wait to be passed on to the run; more are dropped.
pub const MAX_NOTES: usize = 64;
