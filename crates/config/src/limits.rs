//! Named limits: whatever a file holds, reading it stays small and quick.

/// A loop file. The prompt goes to an agent; a mebibyte is more than any can read.
pub const MAX_FILE_BYTES: usize = 1 << 20;
/// The frontmatter of a loop file, or a `dogwatch.toml`: every finding carries its line.
pub const MAX_SETTINGS_BYTES: usize = 64 << 10;
pub const MAX_COMMANDS: usize = 100;
pub const MAX_ARGS: usize = 100;
/// Of a command or an argument.
pub const MAX_NAME_BYTES: usize = 100;
/// Items of any plain list of texts (`wake_on.paths`, …).
pub const MAX_TEXTS: usize = 1_000;
pub const MAX_STOP_REASONS: usize = 100;
/// Checks of one node: `done_when`.
pub const MAX_CHECKS: usize = 100;
/// Of a check; what a shell is given in one argument ends at 128 KiB.
pub const MAX_CHECK_BYTES: usize = 16 << 10;
/// Runs of a failed check on the same tree, besides the first.
pub const MAX_RECHECKS: u32 = 10;
/// Globs of one `pin`.
pub const MAX_PINS: usize = 100;
/// Of a glob in `pin` or `touches`: as long as a path can be.
pub const MAX_GLOB_BYTES: usize = 4 << 10;
/// Agents that stand in for the first.
pub const MAX_AGENTS: usize = 10;
/// Of an agent's command line.
pub const MAX_AGENT_BYTES: usize = 16 << 10;
/// Hard stops that may follow one another.
pub const MAX_RECOVERIES: u32 = 1_000;
/// `mcp.servers`, tools of one of them with a timeout of their own, and its headers.
pub const MAX_MCP_SERVERS: usize = 32;
pub const MAX_MCP_TOOLS: usize = 200;
pub const MAX_MCP_HEADERS: usize = 32;
/// `--set` flags on one command line.
pub const MAX_SET_FLAGS: usize = 1_000;
/// A graph file. Long prompts lie in files of their own.
pub const MAX_GRAPH_BYTES: usize = 8 << 20;
pub const MAX_NODES: usize = 20_000;
/// Of a node's prompt in the graph file itself.
pub const MAX_PROMPT_BYTES: usize = 64 << 10;
/// Nodes whose settings are explained one by one.
pub const MAX_EXPLAINED: usize = 100;
/// More diagnostics than this help nobody.
pub const MAX_DIAGNOSTICS: usize = 50;

/// Nesting of lists and mappings; our own keys need three.
pub const MAX_DEPTH: usize = 32;
pub const MAX_YAML_EVENTS: usize = 50_000;
/// Of a graph file.
pub const MAX_GRAPH_EVENTS: usize = 1_000_000;
pub const MAX_YAML_ALIASES: usize = 100;
