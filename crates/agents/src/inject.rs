//! Registers dogwatch's MCP server with each agent CLI for one session: with arguments, environment variables or a
//! file that dogwatch writes. It never edits the user's files, and it passes the path of a file, never a secret.

use crate::launch::Launch;
use dogwatch_core::settings::ReaderName;

/// The name of dogwatch's MCP server in the agents.
pub const SERVER: &str = "dogwatch";

/// The parameters of the MCP server for one session.
#[derive(Clone, Copy, Debug)]
pub struct McpBridge<'a> {
    /// The program to run as the server: this binary.
    pub program: &'a str,
    /// The path of the session's file, which contains the address and the key.
    pub session: &'a str,
    /// The longest duration of a call, in seconds. The CLI must not time out before dogwatch does.
    pub patience_s: u64,
    /// Environment variables that proxied servers may need, for a CLI that passes none on.
    pub env_names: &'a [String],
}

/// The changes to a command that register the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injection {
    /// Arguments to insert into the command line.
    pub words: Vec<String>,
    /// The position at which `words` are inserted.
    pub at: usize,
    /// A variable with JSON that may already contain user settings; this value is merged into it.
    pub merge_env: Option<(&'static str, String)>,
    /// A variable that names a file with this content, which the CLI reads in addition to its settings file.
    pub file_env: Option<(&'static str, String)>,
}

/// Returns the changes for a session of this command; `None` for agents that do not support MCP servers.
pub fn inject(launch: &Launch, words: &[String], bridge: McpBridge<'_>) -> Option<Injection> {
    // For a wrapper, the position of the agent's arguments is unknown.
    if crate::launch::detect(words) != launch.reader {
        return environment(launch.reader, bridge);
    }
    match launch.reader {
        ReaderName::Plain => None,
        ReaderName::Claude => {
            let words = vec!["--mcp-config".to_owned(), claude(bridge)];
            Some(Injection { words, at: end_of_options(&launch.argv), ..Injection::default() })
        }
        ReaderName::Codex => {
            let words = vec!["-c".to_owned(), codex(bridge)];
            let exec = launch.argv.iter().position(|w| w == "exec" || w == "e")?;
            Some(Injection { words, at: exec + 1, ..Injection::default() })
        }
        ReaderName::Opencode | ReaderName::Gemini => environment(launch.reader, bridge),
    }
}

/// Returns the changes for agents that are configured by environment variables, wrapped or not.
fn environment(reader: ReaderName, bridge: McpBridge<'_>) -> Option<Injection> {
    match reader {
        ReaderName::Opencode => Some(Injection {
            merge_env: Some(("OPENCODE_CONFIG_CONTENT", opencode(bridge))),
            ..Injection::default()
        }),
        ReaderName::Gemini => Some(Injection {
            file_env: Some(("GEMINI_CLI_SYSTEM_SETTINGS_PATH", gemini(bridge))),
            ..Injection::default()
        }),
        ReaderName::Plain | ReaderName::Claude | ReaderName::Codex => None,
    }
}

/// Returns the position of a literal `--`, or the end of the arguments if there is none.
fn end_of_options(argv: &[String]) -> usize {
    argv.iter().position(|word| word == "--").unwrap_or(argv.len())
}

/// Returns the arguments of the server program.
fn arguments(bridge: McpBridge<'_>) -> [&str; 3] {
    ["mcp", "--session", bridge.session]
}

fn claude(bridge: McpBridge<'_>) -> String {
    let args = arguments(bridge).map(json).join(",");
    format!(
        r#"{{"mcpServers":{{"{SERVER}":{{"type":"stdio","command":{},"args":[{args}],"timeout":{}}}}}}}"#,
        json(bridge.program),
        bridge.patience_s * 1000
    )
}

/// Returns the setting as TOML. A basic string is quoted as in JSON except for DEL, which these paths do not contain.
fn codex(bridge: McpBridge<'_>) -> String {
    let args = arguments(bridge).map(json).join(",");
    let names: Vec<String> = bridge.env_names.iter().map(|name| json(name)).collect();
    let env = if names.is_empty() { String::new() } else { format!(",env_vars=[{}]", names.join(",")) };
    format!(
        "mcp_servers.{SERVER}={{command={},args=[{args}],tool_timeout_sec={}{env}}}",
        json(bridge.program),
        bridge.patience_s
    )
}

fn opencode(bridge: McpBridge<'_>) -> String {
    let words: Vec<String> = std::iter::once(bridge.program).chain(arguments(bridge)).map(json).collect();
    format!(
        r#"{{"mcp":{{"{SERVER}":{{"type":"local","command":[{}],"enabled":true,"timeout":{}}}}}}}"#,
        words.join(","),
        bridge.patience_s * 1000
    )
}

fn gemini(bridge: McpBridge<'_>) -> String {
    let args = arguments(bridge).map(json).join(",");
    format!(
        r#"{{"mcpServers":{{"{SERVER}":{{"command":{},"args":[{args}],"trust":true,"timeout":{}}}}}}}"#,
        json(bridge.program),
        bridge.patience_s * 1000
    )
}

/// Quotes a text as a JSON string.
fn json(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::launch;

    const BRIDGE: McpBridge<'_> =
        McpBridge { program: "/bin/dog \"w\"", session: "/run/mcp.json", patience_s: 90, env_names: &[] };

    fn injected(line: &str) -> Option<Injection> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        inject(&launch(&words, None, false), &words, BRIDGE)
    }

    #[test]
    fn claude_gets_the_server_as_an_argument_before_the_prompt() {
        let got = injected("claude -p -- hello").expect("an injection");
        assert_eq!(got.at, 5, "before the literal `--`");
        assert_eq!(
            got.words,
            [
                "--mcp-config",
                r#"{"mcpServers":{"dogwatch":{"type":"stdio","command":"/bin/dog \"w\"","args":["mcp","--session","/run/mcp.json"],"timeout":90000}}}"#
            ]
        );
    }

    #[test]
    fn codex_gets_the_server_as_a_setting_after_exec() {
        let got = injected("codex -m gpt exec -C d").expect("an injection");
        assert_eq!(got.at, 4);
        assert_eq!(
            got.words,
            [
                "-c",
                r#"mcp_servers.dogwatch={command="/bin/dog \"w\"",args=["mcp","--session","/run/mcp.json"],tool_timeout_sec=90}"#
            ]
        );
    }

    #[test]
    fn opencode_and_gemini_get_the_server_by_environment_even_when_wrapped() {
        let got = injected("opencode run").expect("an injection");
        assert_eq!(got.merge_env.map(|(name, _)| name), Some("OPENCODE_CONFIG_CONTENT"));
        let words: Vec<String> = ["nice", "gemini"].map(str::to_owned).into();
        let wrapped =
            inject(&launch(&words, Some(ReaderName::Gemini), false), &words, BRIDGE).expect("an injection");
        assert!(wrapped.words.is_empty());
        let (name, file) = wrapped.file_env.expect("a file");
        assert_eq!(name, "GEMINI_CLI_SYSTEM_SETTINGS_PATH");
        assert!(file.contains(r#""trust":true,"timeout":90000"#), "{file}");
    }

    #[test]
    fn agents_with_unknown_arguments_get_no_server() {
        assert_eq!(injected("./mine.sh"), None);
        let words: Vec<String> = ["nice", "claude", "-p"].map(str::to_owned).into();
        assert_eq!(inject(&launch(&words, Some(ReaderName::Claude), false), &words, BRIDGE), None);
    }
}
