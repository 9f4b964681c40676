//! The sandbox of a node's sessions.

use crate::record::event::words;
use serde::{Deserialize, Serialize};

words! {
    /// How much a session may touch.
    #[derive(Default)]
    SandboxMode {
        /// Everything that this user may touch.
        #[default]
        Off = "off",
        /// Reads everything, writes only the work tree and what the agent needs.
        Worktree = "worktree",
        /// Also limits reading of the home directory, and TCP.
        Strict = "strict",
    }
}

/// The sandbox settings of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxPolicy {
    /// The mode.
    pub mode: SandboxMode,
    /// Further paths that sessions may write. A path that starts with `~/` is in the home directory, and a relative one in
    /// the work directory.
    pub write: Vec<String>,
    /// Further paths that strict sessions may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// Further TCP ports that sessions may connect to in strict mode.
    pub ports: Vec<u16>,
    /// Refuse to start if the kernel cannot enforce all of it.
    pub required: bool,
}
