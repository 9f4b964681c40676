//! ralph-claude-code: `.ralphrc` with lines `KEY=VALUE`, and `.ralph/` with `PROMPT.md` and `fix_plan.md`. Older projects have
//! these files beside `.ralphrc`, the task list as `@fix_plan.md`.

use super::draft::scalar;
use super::{Draft, Import, Outcome, Tool, required};
use crate::diagnostic::{Diagnostics, Source};
use crate::document::Span;
use crate::import::draft::from;
use crate::import::{FileText, Unreadable};
use dogwatch_core::text::shell::quote;
use dogwatch_core::time::dur::Dur;

const SETTINGS: &str = ".ralphrc";
const PROMPTS: [&str; 2] = [".ralph/PROMPT.md", "PROMPT.md"];
const PLANS: [&str; 4] = [".ralph/fix_plan.md", ".ralph/@fix_plan.md", "@fix_plan.md", "fix_plan.md"];
/// The timeout of a session unless the settings name another.
const TIMEOUT: Dur = Dur::from_secs(15 * 60);
/// The longest timeout, in minutes. The tool itself allows 120.
const MAX_MINUTES: u64 = 7 * 24 * 60;
/// The phrases with which an agent ends that tool's loop.
const PHRASES: [&str; 2] = ["EXIT_SIGNAL", "RALPH_STATUS"];

const CIRCUIT: &str =
    "attempts without progress end a loop with `done_when`; see `attempts` and `max_iterations`";
const SESSION: &str = "every iteration is a fresh session; progress is in the files";
const TASKS: &str = "list tasks of other sources with `commands`, and insert their output into the prompt";
const DONE: &str = "statements of the agent do not end a run; checks do";
const VERSION: &str = "dogwatch starts the CLI that is installed";
const SANDBOX: &str = "set `sandbox: worktree`, or start dogwatch in the container";

/// Why settings have no counterpart. A name that ends in `*` covers every key with that prefix.
const REASONS: [(&str, &str); 17] = [
    ("PROJECT_NAME", "a loop has the name of its directory"),
    ("PROJECT_TYPE", "dogwatch does not need it"),
    ("MAX_CALLS_PER_HOUR", "dogwatch waits when the service refuses; `budget` limits a run or a day"),
    ("MAX_TOKENS_PER_HOUR", "`budget.tokens` limits a run, `budget.day.tokens` a day"),
    ("CLAUDE_OUTPUT_FORMAT", "dogwatch reads the structured output"),
    ("SESSION_*", SESSION),
    ("CLAUDE_SESSION_*", SESSION),
    ("TASK_SOURCES", TASKS),
    ("GITHUB_*", TASKS),
    ("BEADS_*", TASKS),
    ("CB_*", CIRCUIT),
    ("MAX_CONSECUTIVE_*", DONE),
    ("TEST_PERCENTAGE_THRESHOLD", DONE),
    ("CLAUDE_AUTO_UPDATE", VERSION),
    ("CLAUDE_MIN_VERSION", VERSION),
    ("RALPH_VERBOSE", "use `dogwatch run -v`"),
    ("SANDBOX_*", SANDBOX),
];

/// A line of `.ralphrc`.
struct Setting {
    key: String,
    value: String,
    at: Span,
}

pub fn import(import: &Import<'_>, diagnostics: &mut Diagnostics) -> Outcome {
    let mut draft = Draft::new(Tool::ClaudeCode);
    let file = import.dir.read(SETTINGS)?;
    let mut settings = Vec::new();
    if let Some(file) = &file {
        draft.read(file);
        settings = parse(file, &mut draft);
        if settings.is_empty() {
            diagnostics
                .error(file.source(), 0..0, "the file has no line `KEY=VALUE`")
                .help("remove it to use the defaults of ralph-claude-code");
            return Ok(None);
        }
    }
    let source = file.as_ref().map_or(Source { name: SETTINGS, text: "" }, FileText::source);
    agent(&settings, source, &mut draft);
    limits(&settings, source, &mut draft, diagnostics);
    let Some(plan) = plan(import, &mut draft, &settings)? else {
        return prompt(import, draft, &settings, diagnostics);
    };
    let open = format!("grep -qE '^[[:space:]]*[-*] \\[ \\]' {}", quote(&plan));
    draft.set("work_when", scalar(&open), format!("{plan}: an open task is an empty box `- [ ]`"));
    draft.set("idle.stop_after", "1", "the tool ends when no task is open");
    draft.set("wake_on.paths", format!("[{}]", scalar(&plan)), plan);
    prompt(import, draft, &settings, diagnostics)
}

/// Returns the path of the task list, if there is one.
fn plan(import: &Import<'_>, draft: &mut Draft, settings: &[Setting]) -> Result<Option<String>, Unreadable> {
    let named = find(settings, "FIX_PLAN_FILE").map(|s| format!(".ralph/{}", s.value));
    let paths = named.into_iter().chain(PLANS.map(str::to_owned));
    for path in paths {
        if let Some(file) = import.dir.read(&path)? {
            draft.read(&file);
            // Its name leads to the file from the directory in which sessions run.
            return Ok(Some(file.name));
        }
    }
    Ok(None)
}

fn prompt(
    import: &Import<'_>,
    mut draft: Draft,
    settings: &[Setting],
    diagnostics: &mut Diagnostics,
) -> Outcome {
    let named = find(settings, "PROMPT_FILE").map(|s| format!(".ralph/{}", s.value));
    let mut path = named.clone().unwrap_or_else(|| PROMPTS[0].to_owned());
    for candidate in PROMPTS.iter().filter(|_| named.is_none()) {
        if import.dir.read(candidate)?.is_some() {
            path = (*candidate).to_owned();
            break;
        }
    }
    let Some(file) = required(import, &path, diagnostics)? else { return Ok(None) };
    draft.read(&file);
    let text = draft.prompt(&file, &file.text, &PHRASES);
    let text = draft.plain(&file, &text);
    Ok(Some(draft.loop_file(&text)))
}

fn agent(settings: &[Setting], source: Source<'_>, draft: &mut Draft) {
    let command = find(settings, "CLAUDE_CODE_CMD");
    let program = command.map_or("claude", |s| s.value.as_str()).trim();
    let program = if program.is_empty() { "claude" } else { program };
    let Some(tools) = find(settings, "ALLOWED_TOOLS").filter(|s| !s.value.is_empty()) else {
        let at =
            command.map_or_else(|| "the tool runs Claude Code".to_owned(), |s| from(source, &s.at, &s.key));
        draft.set("agent", scalar(program), at);
        return;
    };
    let words = format!("{program} -p --allowedTools {}", quote(&tools.value));
    let what = "ALLOWED_TOOLS (write `claude` alone to allow everything)";
    draft.set("agent", scalar(&words), from(source, &tools.at, what));
}

fn limits(settings: &[Setting], source: Source<'_>, draft: &mut Draft, diagnostics: &mut Diagnostics) {
    match find(settings, "CLAUDE_TIMEOUT_MINUTES") {
        Some(setting) => {
            if let Some(n) = number(setting, source, diagnostics, MAX_MINUTES) {
                let dur = Dur::from_secs(n * 60).to_string();
                draft.set("watchdog.session", dur, from(source, &setting.at, &setting.key));
            }
        }
        None => draft.set(
            "watchdog.session",
            TIMEOUT.to_string(),
            "CLAUDE_TIMEOUT_MINUTES: not set, so its default",
        ),
    }
    if let Some(setting) = find(settings, "CB_SAME_ERROR_THRESHOLD")
        && let Some(n) = number(setting, source, diagnostics, u64::from(u32::MAX))
    {
        let what = "CB_SAME_ERROR_THRESHOLD (here: sessions that fail alike)";
        draft.set("errors.max", n.to_string(), from(source, &setting.at, what));
    }
    const MAPPED: [&str; 7] = [
        "CLAUDE_TIMEOUT_MINUTES",
        "CB_SAME_ERROR_THRESHOLD",
        "ALLOWED_TOOLS",
        "CLAUDE_CODE_CMD",
        "PROMPT_FILE",
        "FIX_PLAN_FILE",
        "AGENT_FILE",
    ];
    for setting in settings.iter().filter(|s| !MAPPED.contains(&s.key.as_str())) {
        let fits = |name: &str| match name.strip_suffix('*') {
            Some(start) => setting.key.starts_with(start),
            None => setting.key == name,
        };
        let reason = REASONS.iter().find(|(name, _)| fits(name));
        let why = reason.map_or("dogwatch has no such setting", |(_, why)| why);
        draft.leave(source, &setting.at, &setting.key, why);
    }
}

fn number(setting: &Setting, source: Source<'_>, diagnostics: &mut Diagnostics, max: u64) -> Option<u64> {
    let read = setting.value.parse::<u64>().ok().filter(|n| (1..=max).contains(n));
    if read.is_none() {
        diagnostics.error(
            source,
            setting.at.clone(),
            format!("`{}` must be a whole number from 1 to {max}", setting.key),
        );
    }
    read
}

/// Returns the last line that sets a key, as a shell would use it.
fn find<'s>(settings: &'s [Setting], key: &str) -> Option<&'s Setting> {
    settings.iter().rev().find(|setting| setting.key == key)
}

/// Reads the lines `KEY=VALUE`. Shell code is not run; such lines are listed as not mapped.
fn parse(file: &FileText, draft: &mut Draft) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut start = 0;
    for line in file.text.split_inclusive('\n') {
        let at = start..start + line.trim_end().len();
        start += line.len();
        let text = super::without_bom(line).trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let assignment = text.strip_prefix("export ").unwrap_or(text).trim_start();
        let parsed = assignment
            .split_once('=')
            .filter(|(key, _)| is_name(key))
            .and_then(|(key, raw)| Some((key.to_owned(), value(raw)?)));
        match parsed {
            Some((key, value)) => settings.push(Setting { key, value, at }),
            None => draft.leave(file.source(), &at, "this line", "it is shell code, which is not run"),
        }
    }
    settings
}

fn is_name(key: &str) -> bool {
    key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Returns the value of an assignment, or none if a shell would have to compute it. `${NAME:-default}` is its default.
fn value(raw: &str) -> Option<String> {
    let raw = raw.trim();
    let inner = match raw.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let (inner, after) = raw[1..].split_once(quote)?;
            let after = after.trim();
            (after.is_empty() || after.starts_with('#')).then_some(inner)?
        }
        _ => {
            let bare = raw.split(" #").next().unwrap_or(raw).trim_end();
            (!bare.contains([';', '|', '&', '<', '>', '(', ')', ' '])).then_some(bare)?
        }
    };
    let default = inner
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'))
        .and_then(|rest| rest.split_once(":-"));
    let literal = default.map_or(inner, |(_, default)| default);
    (!literal.contains(['$', '`', '\\'])).then(|| literal.to_owned())
}

#[cfg(test)]
mod tests {
    use super::value;

    #[test]
    fn values_are_read_as_a_shell_would_and_code_is_refused() {
        for (raw, expected) in [
            ("15", Some("15")),
            ("15 # minutes", Some("15")),
            ("\"a b\" # c", Some("a b")),
            ("'x'", Some("x")),
            ("\"${PROJECT_NAME:-demo}\"", Some("demo")),
            ("", Some("")),
            ("$(id)", None),
            ("`id`", None),
            ("\"$HOME/x\"", None),
            ("\"open", None),
            ("a; b", None),
            ("(1 2)", None),
        ] {
            assert_eq!(value(raw).as_deref(), expected, "{raw}");
        }
    }
}
