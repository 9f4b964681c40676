//! The sandbox of a node's sessions.

use serde::{Deserialize, Serialize};

/// How much a session may touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxMode {
    /// Everything that this user may touch.
    #[default]
    Off,
    /// Reads everything, writes only the work tree and what the agent needs.
    Worktree,
    /// Also limits reading of the home directory, and TCP.
    Strict,
}

impl SandboxMode {
    /// All modes, from the weakest to the strongest.
    pub const ALL: [SandboxMode; 3] = [SandboxMode::Off, SandboxMode::Worktree, SandboxMode::Strict];
    /// Their names in settings.
    pub const NAMES: [&str; 3] = ["off", "worktree", "strict"];

    /// Returns the name in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            SandboxMode::Off => "off",
            SandboxMode::Worktree => "worktree",
            SandboxMode::Strict => "strict",
        }
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
