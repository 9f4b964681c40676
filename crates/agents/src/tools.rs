//! What a tool's name says about the call.

use dogwatch_core::settings::ReaderName;

/// The name that a reader gives to a call of an MCP server's tool where the CLI has no single name for it.
pub(crate) fn mcp_name(server: &str, tool: &str) -> String {
    format!("mcp__{server}__{tool}")
}

/// What stands before the names of Codex's multi-agent tools, which have common words for names (`wait`).
pub(crate) const COLLAB: &str = "collab:";

/// The call hands work to a subagent: its time is the children's, not the tool's.
pub fn delegates(reader: ReaderName, tool: &str) -> bool {
    match reader {
        ReaderName::Plain => false,
        ReaderName::Claude => matches!(tool, "Task" | "Agent"),
        ReaderName::Codex => tool.starts_with(COLLAB),
        ReaderName::Opencode => tool == "task",
        ReaderName::Gemini => tool == "invoke_agent",
    }
}

/// The call goes to an MCP server. opencode's names do not tell.
pub fn is_mcp(reader: ReaderName, tool: &str) -> bool {
    match reader {
        ReaderName::Plain | ReaderName::Opencode => false,
        ReaderName::Claude | ReaderName::Codex => tool.starts_with("mcp__"),
        ReaderName::Gemini => tool.starts_with("mcp_"),
    }
}
