//! How each agent CLI is given our MCP server for one session: by its arguments, its environment or a file of
//! ours, never by editing a file of the user's. What is handed over names a file, never a secret.

use crate::launch::Launch;
use dogwatch_core::settings::ReaderName;

/// The name under which the agents know our server.
pub const SERVER: &str = "dogwatch";

/// What is handed to a session.
#[derive(Clone, Copy, Debug)]
pub struct Door<'a> {
    /// The program that serves: this very binary.
    pub program: &'a str,
    /// The session's file, which says where to call and with which key.
    pub session: &'a str,
    /// The longest that a call may take, in seconds: the CLI must not give up before we do.
    pub patience_s: u64,
    /// Variables that servers behind the proxy may need, for a CLI that hands on none.
    pub env_names: &'a [String],
}

/// How an agent is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injection {
    /// Words for the command line, and where they go.
    pub words: Vec<String>,
    pub at: usize,
    /// A variable whose value is JSON that may already hold something of the user's: this is put beside it.
    pub merge_env: Option<(&'static str, String)>,
    /// A variable that names a file with this content, laid over a settings file that the CLI may have.
    pub file_env: Option<(&'static str, String)>,
}

/// What a session of this command needs; none for agents that take no server.
pub fn inject(launch: &Launch, words: &[String], door: Door<'_>) -> Option<Injection> {
    // A wrapper's words are its own: where its agent would take an argument is not known.
    if crate::launch::detect(words) != launch.reader {
        return environment(launch.reader, door);
    }
    match launch.reader {
        ReaderName::Plain => None,
        ReaderName::Claude => {
            let words = vec!["--mcp-config".to_owned(), claude(door)];
            Some(Injection { words, at: end_of_options(&launch.argv), ..Injection::default() })
        }
        ReaderName::Codex => {
            let words = vec!["-c".to_owned(), codex(door)];
            let exec = launch.argv.iter().position(|w| w == "exec" || w == "e")?;
            Some(Injection { words, at: exec + 1, ..Injection::default() })
        }
        ReaderName::Opencode | ReaderName::Gemini => environment(launch.reader, door),
    }
}

/// The agents that are told by their environment, wrapped or not.
fn environment(reader: ReaderName, door: Door<'_>) -> Option<Injection> {
    match reader {
        ReaderName::Opencode => Some(Injection {
            merge_env: Some(("OPENCODE_CONFIG_CONTENT", opencode(door))),
            ..Injection::default()
        }),
        ReaderName::Gemini => Some(Injection {
            file_env: Some(("GEMINI_CLI_SYSTEM_SETTINGS_PATH", gemini(door))),
            ..Injection::default()
        }),
        ReaderName::Plain | ReaderName::Claude | ReaderName::Codex => None,
    }
}

/// Behind the last option and before a literal `--`.
fn end_of_options(argv: &[String]) -> usize {
    argv.iter().position(|word| word == "--").unwrap_or(argv.len())
}

/// The arguments after the program.
fn arguments(door: Door<'_>) -> [&str; 3] {
    ["mcp", "--session", door.session]
}

fn claude(door: Door<'_>) -> String {
    let args = arguments(door).map(json).join(",");
    format!(
        r#"{{"mcpServers":{{"{SERVER}":{{"type":"stdio","command":{},"args":[{args}],"timeout":{}}}}}}}"#,
        json(door.program),
        door.patience_s * 1000
    )
}

/// TOML; a basic string is quoted as in JSON but for DEL, which no path of ours holds.
fn codex(door: Door<'_>) -> String {
    let args = arguments(door).map(json).join(",");
    let names: Vec<String> = door.env_names.iter().map(|name| json(name)).collect();
    let env = if names.is_empty() { String::new() } else { format!(",env_vars=[{}]", names.join(",")) };
    format!(
        "mcp_servers.{SERVER}={{command={},args=[{args}],tool_timeout_sec={}{env}}}",
        json(door.program),
        door.patience_s
    )
}

fn opencode(door: Door<'_>) -> String {
    let words: Vec<String> = std::iter::once(door.program).chain(arguments(door)).map(json).collect();
    format!(
        r#"{{"mcp":{{"{SERVER}":{{"type":"local","command":[{}],"enabled":true,"timeout":{}}}}}}}"#,
        words.join(","),
        door.patience_s * 1000
    )
}

fn gemini(door: Door<'_>) -> String {
    let args = arguments(door).map(json).join(",");
    format!(
        r#"{{"mcpServers":{{"{SERVER}":{{"command":{},"args":[{args}],"trust":true,"timeout":{}}}}}}}"#,
        json(door.program),
        door.patience_s * 1000
    )
}

/// A text as JSON has it.
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

    const DOOR: Door<'_> =
        Door { program: "/bin/dog \"w\"", session: "/run/mcp.json", patience_s: 90, env_names: &[] };

    fn injected(line: &str) -> Option<Injection> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        inject(&launch(&words, None, false), &words, DOOR)
    }

    #[test]
    fn claude_takes_its_server_as_an_argument_before_the_prompt() {
        let got = injected("claude -p -- hello").expect("is told");
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
    fn codex_takes_it_as_a_setting_behind_exec() {
        let got = injected("codex -m gpt exec -C d").expect("is told");
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
    fn opencode_and_gemini_take_it_by_their_environment_even_wrapped() {
        let got = injected("opencode run").expect("is told");
        assert_eq!(got.merge_env.map(|(name, _)| name), Some("OPENCODE_CONFIG_CONTENT"));
        let words: Vec<String> = ["nice", "gemini"].map(str::to_owned).into();
        let wrapped =
            inject(&launch(&words, Some(ReaderName::Gemini), false), &words, DOOR).expect("is told");
        assert!(wrapped.words.is_empty());
        let (name, file) = wrapped.file_env.expect("a file");
        assert_eq!(name, "GEMINI_CLI_SYSTEM_SETTINGS_PATH");
        assert!(file.contains(r#""trust":true,"timeout":90000"#), "{file}");
    }

    #[test]
    fn whose_arguments_are_not_known_is_not_told() {
        assert_eq!(injected("./mine.sh"), None);
        let words: Vec<String> = ["nice", "claude", "-p"].map(str::to_owned).into();
        assert_eq!(inject(&launch(&words, Some(ReaderName::Claude), false), &words, DOOR), None);
    }
}
