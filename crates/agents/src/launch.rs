//! Builds the command line and environment of an agent, and selects the reader of its output.
//!
//! `agent: claude` alone is a preset for unattended work. To a longer command line only the flags for structured output
//! are added, and only if the user has not chosen an output format; otherwise that format is kept and the matching
//! reader is selected. The prompt is always passed on stdin.

use dogwatch_core::settings::ReaderName;

/// A command to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The changes to the environment.
    pub env: Vec<(&'static str, EnvChange)>,
    /// The reader of the output.
    pub reader: ReaderName,
}

/// A change to a variable of the inherited environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvChange {
    /// Sets the variable unless the user has set it.
    SetIfUnset(&'static str),
    /// The variable is removed.
    Remove,
}

/// Variables that agents set for their children. A nested agent that sees them believes it is part of the outer one.
const NESTED_MARKS: [&str; 8] = [
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_PID",
    "CODEX_THREAD_ID",
    "GEMINI_CLI",
    "OPENCODE",
];

/// Without these, a session does not end with its answer but waits for background tasks and its own timers.
const CLAUDE_ENV: [(&str, &str); 3] = [
    ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
    ("CLAUDE_CODE_DISABLE_CRON", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
];

const OPENCODE_ENV: [(&str, &str); 1] = [("OPENCODE_DISABLE_AUTOUPDATE", "1")];

/// Returns the command for the words of an `agent:` key. `chosen` is the `reader:` key: if it names another agent than
/// the words do, the words belong to a wrapper and are not changed.
pub fn launch(words: &[String], chosen: Option<ReaderName>, as_root: bool) -> Launch {
    let agent = agent_of(words);
    let (argv, found) = match chosen {
        Some(chosen) if chosen != agent => (words.to_vec(), chosen),
        _ => structured(words, agent),
    };
    let reader = chosen.unwrap_or(found);
    Launch {
        argv,
        env: environment(if agent == ReaderName::Plain { reader } else { agent }, as_root),
        reader,
    }
}

/// The longest agent session id that is passed on.
const MAX_SESSION: usize = 128;

/// Returns the command line that resumes the agent's own session. `None` if the CLI cannot resume, if the words already
/// select a session, or if the id could be mistaken for anything else.
pub fn resuming(argv: &[String], session: &str) -> Option<Vec<String>> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if session.is_empty()
        || session.len() > MAX_SESSION
        || session.starts_with('-')
        || !session.chars().all(is_name)
    {
        return None;
    }
    let chosen = |flags: &[&str]| {
        let given = |word: &String| flags.contains(&word.split('=').next().unwrap_or(word));
        options_of(argv).iter().any(given)
    };
    let mut resumed = argv.to_vec();
    match agent_of(argv) {
        ReaderName::Claude if !chosen(&["--resume", "-r", "--continue", "-c", "--session-id"]) => {
            append(&mut resumed, &["--resume", session]);
        }
        ReaderName::Codex if !chosen(&["resume"]) => {
            let exec = 1 + options_of(argv).iter().position(|word| matches!(word.as_str(), "exec" | "e"))?;
            resumed.splice(exec + 1..exec + 1, ["resume".to_owned(), session.to_owned()]);
        }
        ReaderName::Opencode if !chosen(&["--session", "-s", "--continue", "-c"]) => {
            append(&mut resumed, &["--session", session]);
        }
        ReaderName::Gemini if !chosen(&["--resume", "-r", "--session-id"]) => {
            append(&mut resumed, &["--resume", session]);
        }
        ReaderName::Plain
        | ReaderName::Claude
        | ReaderName::Codex
        | ReaderName::Opencode
        | ReaderName::Gemini => return None,
    }
    Some(resumed)
}

/// Returns the model that a command line names: `-m NAME`, `--model NAME` or `--model=NAME`.
pub fn model(argv: &[String]) -> Option<String> {
    let options = options_of(argv);
    let named = |(at, word): (usize, &String)| match word.as_str() {
        "-m" | "--model" => options.get(at + 1).cloned(),
        word => word.strip_prefix("--model=").map(str::to_owned),
    };
    options.iter().enumerate().find_map(named)
}

/// Returns the reader for the output of these words, considering the flags that `launch` adds.
pub fn detect(words: &[String]) -> ReaderName {
    structured(words, agent_of(words)).1
}

/// Returns the agent that the first word names: `claude`, a path to it, or `claude.exe`.
fn agent_of(words: &[String]) -> ReaderName {
    let program = words.first().map_or("", String::as_str);
    let file = program.rsplit(['/', '\\']).next().unwrap_or(program);
    let name = file.strip_suffix(".exe").or(file.strip_suffix(".cmd")).unwrap_or(file);
    match name {
        "claude" => ReaderName::Claude,
        "codex" => ReaderName::Codex,
        "opencode" => ReaderName::Opencode,
        "gemini" => ReaderName::Gemini,
        _ => ReaderName::Plain,
    }
}

fn structured(words: &[String], agent: ReaderName) -> (Vec<String>, ReaderName) {
    if let [program] = words {
        let flags = preset(agent).iter().map(|flag| (*flag).to_owned());
        return (std::iter::once(program.clone()).chain(flags).collect(), agent);
    }
    match agent {
        ReaderName::Plain => (words.to_vec(), ReaderName::Plain),
        ReaderName::Claude => claude(words),
        ReaderName::Codex => codex(words),
        ReaderName::Opencode => opencode(words),
        ReaderName::Gemini => gemini(words),
    }
}

fn preset(agent: ReaderName) -> &'static [&'static str] {
    match agent {
        ReaderName::Plain => &[],
        ReaderName::Claude => {
            &["-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"]
        }
        // The sleep tool sleeps for up to 12 hours without any output.
        ReaderName::Codex => &[
            "exec",
            "--json",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "-c",
            "features.sleep_tool=false",
        ],
        // opencode reports refusals of a service only in its log, and then waits for hours.
        ReaderName::Opencode => &["run", "--format", "json", "--auto", "--print-logs"],
        ReaderName::Gemini => &["--output-format", "stream-json", "--approval-mode", "yolo", "--skip-trust"],
    }
}

fn claude(words: &[String]) -> (Vec<String>, ReaderName) {
    const COMMANDS: [&str; 9] =
        ["agents", "auth", "config", "doctor", "install", "mcp", "plugin", "setup-token", "update"];
    if is_one_of(words.get(1), &COMMANDS) {
        return (words.to_vec(), ReaderName::Plain);
    }
    let mut argv = words.to_vec();
    let format = option(words, &["--output-format"]);
    if format.is_none() {
        append(&mut argv, &["--output-format", "stream-json"]);
    }
    // Claude requires this flag for the stream.
    if matches!(format, None | Some("stream-json")) && !has(words, "--verbose") {
        append(&mut argv, &["--verbose"]);
    }
    // `json` prints one line with the result.
    let structured = matches!(format, None | Some("stream-json" | "json"));
    (argv, if structured { ReaderName::Claude } else { ReaderName::Plain })
}

fn codex(words: &[String]) -> (Vec<String>, ReaderName) {
    let exec = options_of(words).iter().position(|word| word == "exec");
    let exec = exec.or(is_one_of(words.get(1), &["e"]).then_some(0));
    let Some(exec) = exec else { return (words.to_vec(), ReaderName::Plain) };
    let mut argv = words.to_vec();
    if !has(words, "--json") && !has(words, "--experimental-json") {
        argv.insert(exec + 2, "--json".to_owned());
    }
    (argv, ReaderName::Codex)
}

fn opencode(words: &[String]) -> (Vec<String>, ReaderName) {
    let Some(run) = options_of(words).iter().position(|word| word == "run") else {
        return (words.to_vec(), ReaderName::Plain);
    };
    let mut argv = words.to_vec();
    match option(words, &["--format"]) {
        None => drop(argv.splice(run + 2..run + 2, ["--format".to_owned(), "json".to_owned()])),
        Some("json") => {}
        Some(_) => return (argv, ReaderName::Plain),
    }
    (argv, ReaderName::Opencode)
}

fn gemini(words: &[String]) -> (Vec<String>, ReaderName) {
    const COMMANDS: [&str; 6] = ["mcp", "extensions", "extension", "skills", "skill", "hooks"];
    let is_interactive = has(words, "-i") || has(words, "--prompt-interactive");
    if is_interactive || is_one_of(words.get(1), &COMMANDS) {
        return (words.to_vec(), ReaderName::Plain);
    }
    let mut argv = words.to_vec();
    match option(words, &["--output-format", "-o"]) {
        None => append(&mut argv, &["--output-format", "stream-json"]),
        Some("stream-json") => {}
        // `json` prints one object over many lines, at the end.
        Some(_) => return (argv, ReaderName::Plain),
    }
    (argv, ReaderName::Gemini)
}

/// Returns the words between the program and a literal `--`, after which nothing is an option.
fn options_of(words: &[String]) -> &[String] {
    let words = words.get(1..).unwrap_or(&[]);
    &words[..words.iter().position(|word| word == "--").unwrap_or(words.len())]
}

fn has(words: &[String], flag: &str) -> bool {
    options_of(words).iter().any(|word| word == flag)
}

fn is_one_of(word: Option<&String>, names: &[&str]) -> bool {
    word.is_some_and(|word| names.contains(&word.as_str()))
}

/// Returns the value of the last of these options: `--name value` or `--name=value`.
fn option<'a>(words: &'a [String], names: &[&str]) -> Option<&'a str> {
    let words = options_of(words);
    let value = |at: usize, word: &'a String| match word.split_once('=') {
        Some((name, value)) if names.contains(&name) => Some(value),
        _ if names.contains(&word.as_str()) => words.get(at + 1).map(String::as_str),
        _ => None,
    };
    words.iter().enumerate().filter_map(|(at, word)| value(at, word)).next_back()
}

/// Adds flags at the end, or before a literal `--`.
fn append(argv: &mut Vec<String>, flags: &[&str]) {
    let at = 1 + options_of(argv).len();
    argv.splice(at..at, flags.iter().map(|flag| (*flag).to_owned()));
}

fn environment(agent: ReaderName, as_root: bool) -> Vec<(&'static str, EnvChange)> {
    let set: &[(&str, &str)] = match agent {
        ReaderName::Claude => &CLAUDE_ENV,
        ReaderName::Opencode => &OPENCODE_ENV,
        ReaderName::Plain | ReaderName::Codex | ReaderName::Gemini => &[],
    };
    let removed = NESTED_MARKS.iter().map(|name| (*name, EnvChange::Remove));
    let mut env: Vec<_> = removed.chain(set.iter().map(|(k, v)| (*k, EnvChange::SetIfUnset(v)))).collect();
    // As root, Claude otherwise refuses to skip permission prompts, which no user is there to answer.
    if agent == ReaderName::Claude && as_root {
        env.push(("IS_SANDBOX", EnvChange::SetIfUnset("1")));
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    fn argv(line: &str) -> String {
        launch(&words(line), None, false).argv.join(" ")
    }

    #[test]
    fn loop_52_an_agent_is_detected_only_by_its_program() {
        for (line, reader) in [
            ("claude", ReaderName::Claude),
            ("/usr/local/bin/claude -p", ReaderName::Claude),
            (r"C:\bin\claude.exe -p", ReaderName::Claude),
            ("./claude -p", ReaderName::Claude),
            ("claude-foo -p", ReaderName::Plain),
            ("claudex", ReaderName::Plain),
            ("my/claude/agent.sh", ReaderName::Plain),
            ("echo claude", ReaderName::Plain),
            ("codex", ReaderName::Codex),
            ("codex exec", ReaderName::Codex),
            ("codex -m gpt exec -", ReaderName::Codex),
            ("codex e -m gpt", ReaderName::Codex),
            ("codex resume", ReaderName::Plain),
            ("opencode", ReaderName::Opencode),
            ("opencode run -m a/b", ReaderName::Opencode),
            ("opencode serve", ReaderName::Plain),
            ("gemini", ReaderName::Gemini),
            ("gemini -m pro", ReaderName::Gemini),
            ("gemini mcp list", ReaderName::Plain),
            ("gemini -i hello", ReaderName::Plain),
            ("claude mcp list", ReaderName::Plain),
        ] {
            assert_eq!(detect(&words(line)), reader, "{line}");
            assert_eq!(launch(&words(line), None, false).reader, reader, "{line}");
        }
        assert_eq!(detect(&[]), ReaderName::Plain);
    }

    #[test]
    fn loop_52_the_bare_name_is_a_preset_that_works_unattended() {
        assert_eq!(
            argv("claude"),
            "claude -p --output-format stream-json --verbose --dangerously-skip-permissions"
        );
        assert_eq!(
            argv("/opt/codex"),
            "/opt/codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox \
             -c features.sleep_tool=false"
        );
        assert_eq!(argv("opencode"), "opencode run --format json --auto --print-logs");
        assert_eq!(argv("gemini"), "gemini --output-format stream-json --approval-mode yolo --skip-trust");
        assert_eq!(argv("aider"), "aider");
    }

    #[test]
    fn loop_52_stream_flags_are_added_when_no_format_was_chosen() {
        for (line, wanted) in [
            ("claude -p", "claude -p --output-format stream-json --verbose"),
            ("claude -p --verbose", "claude -p --verbose --output-format stream-json"),
            ("claude -p -- hello", "claude -p --output-format stream-json --verbose -- hello"),
            ("claude -p -- --verbose", "claude -p --output-format stream-json --verbose -- --verbose"),
            ("claude -p --output-format=stream-json", "claude -p --output-format=stream-json --verbose"),
            ("codex -m gpt exec -C dir", "codex -m gpt exec --json -C dir"),
            ("codex exec resume --last", "codex exec --json resume --last"),
            ("codex exec --json -", "codex exec --json -"),
            ("codex exec -- --json", "codex exec --json -- --json"),
            (
                "codex",
                "codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox -c features.sleep_tool=false",
            ),
            ("opencode run --auto", "opencode run --format json --auto"),
            ("opencode run --format json", "opencode run --format json"),
            ("gemini --yolo", "gemini --yolo --output-format stream-json"),
            ("gemini -o stream-json -y", "gemini -o stream-json -y"),
        ] {
            assert_eq!(argv(line), wanted);
        }
    }

    #[test]
    fn loop_52_a_chosen_format_is_kept_and_selects_the_reader() {
        for (line, reader) in [
            ("claude -p --output-format text", ReaderName::Plain),
            ("claude -p --output-format=text", ReaderName::Plain),
            ("claude -p --output-format json", ReaderName::Claude),
            ("claude -p --output-format stream-json --verbose", ReaderName::Claude),
            ("opencode run --format default", ReaderName::Plain),
            ("opencode run --format=json", ReaderName::Opencode),
            ("gemini --output-format text", ReaderName::Plain),
            ("gemini -o json", ReaderName::Plain),
        ] {
            assert_eq!(argv(line), line);
            assert_eq!(detect(&words(line)), reader, "{line}");
        }
    }

    #[test]
    fn loop_52_a_wrapper_with_a_reader_is_not_changed() {
        let wrapped = launch(&words("env -u X claude -p"), Some(ReaderName::Claude), false);
        assert_eq!(wrapped.argv.join(" "), "env -u X claude -p");
        assert_eq!(wrapped.reader, ReaderName::Claude);
        assert!(wrapped.env.contains(&("CLAUDE_CODE_DISABLE_CRON", EnvChange::SetIfUnset("1"))));
        let plain = launch(&words("claude"), Some(ReaderName::Plain), false);
        assert_eq!((plain.argv.join(" ").as_str(), plain.reader), ("claude", ReaderName::Plain));
        let named = launch(&words("claude -p"), Some(ReaderName::Claude), false);
        assert_eq!(named.argv.join(" "), "claude -p --output-format stream-json --verbose");
    }

    #[test]
    fn a_session_is_resumed_where_the_cli_supports_it() {
        let resumed = |line: &str| {
            let argv = launch(&words(line), None, false).argv;
            resuming(&argv, "0a1-B_2").map(|argv| argv.join(" "))
        };
        for (line, wanted) in [
            ("claude -p", "claude -p --output-format stream-json --verbose --resume 0a1-B_2"),
            ("claude -p -- hi", "claude -p --output-format stream-json --verbose --resume 0a1-B_2 -- hi"),
            ("codex -m gpt exec -C dir", "codex -m gpt exec resume 0a1-B_2 --json -C dir"),
            ("codex e -", "codex e resume 0a1-B_2 --json -"),
            ("opencode run --auto", "opencode run --format json --auto --session 0a1-B_2"),
            ("gemini -y", "gemini -y --output-format stream-json --resume 0a1-B_2"),
        ] {
            assert_eq!(resumed(line).as_deref(), Some(wanted));
        }
        for line in [
            "./mine.sh",
            "claude -p --continue",
            "claude -p --session-id=x",
            "codex exec resume --last",
            "opencode run -s x",
            "gemini --resume latest",
        ] {
            assert_eq!(resumed(line), None, "{line}");
        }
    }

    #[test]
    fn a_session_id_must_be_a_plain_name() {
        let argv = words("claude -p");
        let long = "x".repeat(MAX_SESSION);
        assert!(resuming(&argv, &long).is_some());
        for bad in ["", "-x", "--dangerous", "a b", "a;b", "../x", "a=b", &format!("{long}x")] {
            assert_eq!(resuming(&argv, bad), None, "{bad}");
        }
    }

    #[test]
    fn marks_of_an_outer_agent_are_removed_from_the_environment() {
        for agent in ["claude", "codex", "opencode", "gemini", "./mine.sh"] {
            let env = launch(&words(agent), None, false).env;
            for name in ["CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CLAUDE_PID"] {
                assert!(env.contains(&(name, EnvChange::Remove)), "{agent} {name}");
            }
        }
    }

    #[test]
    fn is_sandbox_is_set_only_for_root() {
        let says = |line, as_root| {
            let env = launch(&words(line), None, as_root).env;
            env.contains(&("IS_SANDBOX", EnvChange::SetIfUnset("1")))
        };
        assert!(says("claude", true));
        assert!(says("claude -p --output-format text", true));
        assert!(!says("claude", false));
        assert!(!says("codex", true));
    }
}
