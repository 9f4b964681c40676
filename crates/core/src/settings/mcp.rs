//! The settings of the agent channel and of proxied MCP servers.

use crate::time::dur::Dur;
use serde::{Deserialize, Serialize};

/// The MCP server that agents can call, and the servers behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct McpPolicy {
    /// Whether sessions get dogwatch's MCP server.
    pub enabled: bool,
    /// The user's servers behind the proxy.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub servers: Vec<McpServer>,
}

impl Default for McpPolicy {
    fn default() -> Self {
        McpPolicy { enabled: true, servers: Vec::new() }
    }
}

/// One of the user's MCP servers, called through dogwatch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct McpServer {
    /// The server's name.
    pub name: String,
    /// Where the server is.
    #[serde(flatten)]
    pub place: McpPlace,
    /// Headers of every request to a URL. `${NAME}` is replaced by a variable of the session's environment.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub headers: Vec<(String, String)>,
    /// The timeout of each call.
    pub timeout: Dur,
    /// Timeouts of calls to particular tools.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tools: Vec<(String, Dur)>,
    /// The number of consecutive timeouts after which the server is restarted.
    pub restart_after: u32,
}

impl McpServer {
    /// The timeout of calls to a server that sets none.
    pub const DEFAULT_TIMEOUT: Dur = Dur::from_secs(60);
    /// The default of `restart_after`.
    pub const DEFAULT_RESTART_AFTER: u32 = 3;
}

/// The address of a server: a command to start or a URL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpPlace {
    /// A program that speaks MCP over stdio.
    Command(Vec<String>),
    /// An HTTP endpoint.
    Url(String),
}
