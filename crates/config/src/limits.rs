//! Limits that bound the time and memory needed to parse any file.

/// Bytes in a loop file. No agent can read a longer prompt.
pub const MAX_FILE_BYTES: usize = 1 << 20;
/// Bytes in the frontmatter of a loop file, or in a `dogwatch.toml`. Every diagnostic copies its line.
pub const MAX_SETTINGS_BYTES: usize = 64 << 10;
/// Entries in `commands`.
pub const MAX_COMMANDS: usize = 100;
/// Entries in `args`.
pub const MAX_ARGS: usize = 100;
/// Bytes in the name of a command, an argument, an MCP server or a header.
pub const MAX_NAME_BYTES: usize = 100;
/// Items in a plain list, such as `wake_on.paths`.
pub const MAX_TEXTS: usize = 1_000;
/// Reasons in `idle.stop_after`.
pub const MAX_STOP_REASONS: usize = 100;
/// Checks in `done_when`.
pub const MAX_CHECKS: usize = 100;
/// Bytes in a check. Linux limits one argument, and so the script passed to `sh -c`, to 128 KiB.
pub const MAX_CHECK_BYTES: usize = 16 << 10;
/// Additional runs of a failed check on the same work tree.
pub const MAX_RECHECKS: u32 = 10;
/// Globs in `pin`.
pub const MAX_PINS: usize = 100;
/// Bytes in a glob of `pin` or `touches`: the maximum length of a path.
pub const MAX_GLOB_BYTES: usize = 4 << 10;
/// Fallback agents in `recovery.agents`.
pub const MAX_AGENTS: usize = 10;
/// Bytes in an agent's command line.
pub const MAX_AGENT_BYTES: usize = 16 << 10;
/// The maximum value of `recovery.budget`.
pub const MAX_RECOVERIES: u32 = 1_000;
/// Entries in `mcp.servers`.
pub const MAX_MCP_SERVERS: usize = 32;
/// Tools of one MCP server with their own timeout.
pub const MAX_MCP_TOOLS: usize = 200;
/// Headers of one MCP server.
pub const MAX_MCP_HEADERS: usize = 32;
/// `--set` flags on one command line.
pub const MAX_SET_FLAGS: usize = 1_000;
/// Bytes in a graph file. Long prompts belong in separate files.
pub const MAX_GRAPH_BYTES: usize = 8 << 20;
/// Nodes in a graph.
pub const MAX_NODES: usize = 20_000;
/// Bytes in a prompt that is written in the graph file itself.
pub const MAX_PROMPT_BYTES: usize = 64 << 10;
/// Nodes whose settings `check --explain` lists separately.
pub const MAX_EXPLAINED: usize = 100;
/// Errors, and separately warnings, that one load reports.
pub const MAX_DIAGNOSTICS: usize = 50;

/// Nesting depth of lists and mappings. The deepest key, `mcp.servers.NAME.tools.TOOL.timeout`, needs six levels, and
/// eight in a graph.
pub const MAX_DEPTH: usize = 32;
/// YAML parser events in the settings of a loop file.
pub const MAX_YAML_EVENTS: usize = 50_000;
/// YAML parser events in a graph file.
pub const MAX_GRAPH_EVENTS: usize = 1_000_000;
/// Anchors, aliases and merge keys in a YAML document, each.
pub const MAX_YAML_ALIASES: usize = 100;
