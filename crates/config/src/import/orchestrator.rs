//! ralph-orchestrator: `ralph.yml` (version 2, or the flat keys of version 1) and a prompt file.

use super::draft::{Values, from, literal, scalar};
use super::{Draft, Import, Outcome, Tool, block, get, required, yaml_map};
use crate::diagnostic::Diagnostics;
use crate::document::{Entry, Node, Value};
use crate::import::{FileText, Unreadable};
use dogwatch_core::text::shell::quote;
use dogwatch_core::time::dur::Dur;

/// The prompt file unless the settings name another.
const PROMPT: &str = "PROMPT.md";
/// The phrase that ends a loop unless the settings name another.
const PROMISE: &str = "LOOP_COMPLETE";
/// The limits that apply unless the settings name others.
const MAX_ITERATIONS: u64 = 100;
const MAX_RUNTIME: Dur = Dur::from_secs(4 * 3600);
const MAX_FAILURES: u64 = 5;
/// The agents that dogwatch starts by name.
const KNOWN: [&str; 4] = ["claude", "codex", "opencode", "gemini"];

const PHRASE: &str = "a phrase or event of the agent does not end a run; checks do";
const HATS: &str = "a loop has one prompt; for fixed steps write a graph. The instructions are in a comment below the prompt";
const EVENTS: &str = "agents exchange no events here";

/// Why top-level blocks have no counterpart.
const TOP: [(&str, &str); 16] = [
    ("events", EVENTS),
    ("hats", HATS),
    ("hooks", "use `commands` (before the prompt), `done_when` (after the session) or `notify`"),
    ("memories", "keep notes in a file that the prompt names"),
    ("tasks", "keep tasks in a file, and set `work_when` to a command that finds open ones"),
    ("skills", "the agent CLI loads its own skills"),
    ("features", "worktrees and parallel work are settings of a graph"),
    ("tui", "`dogwatch top` has no prefix key"),
    ("RObot", "use `notify` for messages and `dogwatch tell` for answers"),
    ("robot", "use `notify` for messages and `dogwatch tell` for answers"),
    ("adapters", "`dogwatch` has one limit per session, `watchdog.session`"),
    ("agent_priority", "`recovery.agents` names fallback agents"),
    ("verbose", "use `dogwatch run -v`"),
    ("archive_prompts", "every prompt is kept in the record"),
    ("enable_metrics", "`dogwatch serve` has metrics"),
    ("retry_delay", "dogwatch chooses the waits after failures"),
];

const LOOP: [(&str, &str); 8] = [
    ("completion_promise", PHRASE),
    ("cancellation_promise", PHRASE),
    ("required_events", EVENTS),
    ("starting_event", EVENTS),
    ("starting_hat", HATS),
    ("enforce_hat_scope", HATS),
    ("mutation_score_warn_threshold", "run the mutation test in `done_when`"),
    ("context_window_tokens", "the agent CLI knows its own limit"),
];

const CLI: [(&str, &str); 2] = [
    ("default_mode", "dogwatch always runs unattended"),
    ("idle_timeout_secs", "it applies to interactive sessions; see `watchdog.idle`"),
];

/// The settings of the two versions under one name.
struct Config<'e> {
    top: &'e [Entry],
    cli: &'e [Entry],
    event_loop: &'e [Entry],
    core: &'e [Entry],
}

pub fn import(import: &Import<'_>, diagnostics: &mut Diagnostics) -> Outcome {
    if import.file.ends_with(".md") {
        return bare_prompt(import, diagnostics);
    }
    let Some(file) = required(import, import.file, diagnostics)? else { return Ok(None) };
    let source = file.source();
    let Some(top) = yaml_map(source, &file.text, 0, diagnostics) else { return Ok(None) };
    let known = ["cli", "event_loop", "core", "hats", "agent", "prompt_file", "max_iterations"];
    if !top.iter().any(|entry| known.contains(&entry.key.as_str())) {
        diagnostics
            .error(source, 0..0, "this is not a configuration of ralph-orchestrator")
            .help("it has none of the keys `cli`, `event_loop`, `core` and `hats`");
        return Ok(None);
    }
    let config = Config {
        top: &top,
        cli: block(&top, "cli", source, diagnostics),
        event_loop: block(&top, "event_loop", source, diagnostics),
        core: block(&top, "core", source, diagnostics),
    };
    let mut draft = Draft::new(Tool::Orchestrator);
    draft.read(&file);
    let mut values = Values { source, diagnostics };
    agent(&config, &mut values, &mut draft, import.agent);
    limits(&config, &mut values, &mut draft);
    let prompt = prompt(&config, &mut values, &mut draft, import, &file)?;
    let hats = hats(&config, &mut values);
    leave(&config, &mut draft, &file);
    Ok(prompt.map(|prompt| draft.loop_file(&(prompt + &hats))))
}

/// Converts a `PROMPT.md` without settings.
fn bare_prompt(import: &Import<'_>, diagnostics: &mut Diagnostics) -> Outcome {
    let Some(file) = required(import, import.file, diagnostics)? else { return Ok(None) };
    let mut draft = Draft::new(Tool::Orchestrator);
    draft.read(&file);
    draft.set("agent", scalar(import.agent), "no file names the agent");
    default_limits(&mut draft, &[]);
    let prompt = draft.prompt(&file, &file.text, &[PROMISE]);
    let prompt = draft.plain(&file, &prompt);
    Ok(Some(draft.loop_file(&prompt)))
}

fn agent(config: &Config<'_>, values: &mut Values<'_, '_>, draft: &mut Draft, fallback: &str) {
    let source = values.source;
    let named = get(config.cli, "backend").or_else(|| get(config.top, "agent"));
    let backend =
        named.and_then(|entry| values.text(&entry.key, entry)).unwrap_or_else(|| "claude".to_owned());
    let at = named.map_or_else(
        || format!("cli.backend, {}: not set, so its default `claude`", source.name),
        |entry| from(source, &entry.key_span, &format!("cli.backend: {backend}")),
    );
    let command = get(config.cli, "command").and_then(|entry| values.text("cli.command", entry));
    let args = get(config.cli, "args").and_then(|entry| values.texts("cli.args", entry)).unwrap_or_default();
    if backend == "auto" {
        draft.set("agent", scalar(fallback), format!("{at}: the first agent on PATH"));
        return;
    }
    let program = command.unwrap_or_else(|| backend.clone());
    let is_known = KNOWN.contains(&backend.as_str());
    let words: Vec<String> = std::iter::once(&program).chain(&args).map(|word| quote(word)).collect();
    let words = words.join(" ");
    if is_known && args.is_empty() {
        draft.set("agent", scalar(&words), at);
        return;
    }
    let stdin = get(config.cli, "prompt_mode").and_then(|entry| values.text("cli.prompt_mode", entry));
    if is_known || stdin.as_deref() == Some("stdin") {
        draft.set("agent", scalar(&words), at);
        return;
    }
    let flag = get(config.cli, "prompt_flag").and_then(|entry| values.text("cli.prompt_flag", entry));
    let flag = quote(flag.as_deref().unwrap_or("-p"));
    let script = quote(&format!("exec {words} {flag} \"$(cat)\""));
    draft.set(
        "agent",
        scalar(&format!("sh -c {script}")),
        format!("{at}; it gets the prompt as an argument"),
    );
}

fn limits(config: &Config<'_>, values: &mut Values<'_, '_>, draft: &mut Draft) {
    let source = values.source;
    let find = |new: &str, old: &str| get(config.event_loop, new).or_else(|| get(config.top, old));
    if let Some(entry) = find("max_iterations", "max_iterations")
        && let Some(n) = values.count("max_iterations", entry)
    {
        draft.set(
            "max_iterations",
            n.to_string(),
            from(source, &entry.key_span, "event_loop.max_iterations"),
        );
    }
    if let Some(entry) = find("max_runtime_seconds", "max_runtime")
        && let Some(dur) = values.seconds(&entry.key, entry)
        && !dur.is_zero()
    {
        draft.set("budget.time", dur.to_string(), from(source, &entry.key_span, &entry.key));
    }
    if let Some(entry) = find("max_cost_usd", "max_cost")
        && let Some(cost) = values.amount(&entry.key, entry)
    {
        draft.set("budget.cost_usd", cost.to_string(), from(source, &entry.key_span, &entry.key));
    }
    if let Some(entry) = get(config.top, "max_tokens")
        && let Some(n) = values.count("max_tokens", entry)
    {
        draft.set("budget.tokens", n.to_string(), from(source, &entry.key_span, "max_tokens"));
    }
    if let Some(entry) = get(config.event_loop, "max_consecutive_failures")
        && let Some(n) = values.count("max_consecutive_failures", entry)
    {
        let what = "max_consecutive_failures (here: sessions that fail alike)";
        draft.set("errors.max", n.to_string(), from(source, &entry.key_span, what));
    }
    if let Some(entry) = get(config.event_loop, "cooldown_delay_seconds")
        && let Some(dur) = values.seconds("cooldown_delay_seconds", entry)
    {
        draft.set(
            "delay",
            dur.to_string(),
            from(source, &entry.key_span, "event_loop.cooldown_delay_seconds"),
        );
    }
    if let Some(entry) = get(config.event_loop, "persistent")
        && values.flag("persistent", entry) == Some(true)
    {
        draft.set("idle.stop_after", "off", from(source, &entry.key_span, "event_loop.persistent"));
    }
    default_limits(draft, config.event_loop);
}

/// Adds the limits that the tool applies without being asked: a run must not become endless by moving.
fn default_limits(draft: &mut Draft, entries: &[Entry]) {
    let set = |draft: &mut Draft, path: &'static str, key: &str, value: String| {
        if !draft.has(path) && get(entries, key).is_none() {
            draft.set(path, value, format!("{key}: not set, so its default"));
        }
    };
    set(draft, "max_iterations", "max_iterations", MAX_ITERATIONS.to_string());
    set(draft, "budget.time", "max_runtime_seconds", MAX_RUNTIME.to_string());
    set(draft, "errors.max", "max_consecutive_failures", MAX_FAILURES.to_string());
}

/// Returns the prompt, with the guardrails that the tool adds to every prompt.
fn prompt(
    config: &Config<'_>,
    values: &mut Values<'_, '_>,
    draft: &mut Draft,
    import: &Import<'_>,
    settings: &FileText,
) -> Result<Option<String>, Unreadable> {
    let promise =
        get(config.event_loop, "completion_promise").or_else(|| get(config.top, "completion_promise"));
    let promise = promise.and_then(|entry| values.text("completion_promise", entry));
    let phrases = [promise.as_deref().unwrap_or(PROMISE)];
    let inline = get(config.event_loop, "prompt").and_then(|entry| values.text("event_loop.prompt", entry));
    let prompt = match inline {
        Some(text) => {
            let text = draft.prompt(settings, &text, &[]);
            draft.plain(settings, &text)
        }
        None => {
            let named = get(config.event_loop, "prompt_file").or_else(|| get(config.top, "prompt_file"));
            let path = named.and_then(|entry| values.text("prompt_file", entry));
            let path = path.as_deref().unwrap_or(PROMPT);
            let Some(file) = required(import, path, values.diagnostics)? else { return Ok(None) };
            draft.read(&file);
            let text = draft.prompt(&file, &file.text, &phrases);
            draft.plain(&file, &text)
        }
    };
    let rules = get(config.core, "guardrails").and_then(|entry| values.texts("core.guardrails", entry));
    let rules: String = rules.unwrap_or_default().iter().map(|rule| format!("- {}\n", rule.trim())).collect();
    let rules = if rules.is_empty() { rules } else { format!("\n\nRules:\n\n{}", rules.trim_end()) };
    Ok(Some(prompt + &draft.plain(settings, &rules)))
}

/// Returns the instructions of all hats as a comment, which the agent does not see.
fn hats(config: &Config<'_>, values: &mut Values<'_, '_>) -> String {
    let source = values.source;
    let mut out = String::new();
    for hat in block(config.top, "hats", source, values.diagnostics) {
        let Value::Map(fields) = &hat.value.value else { continue };
        let Some(Entry { value: Node { value: Value::Text(text), .. }, .. }) = get(fields, "instructions")
        else {
            continue;
        };
        out.push_str(&format!("\n{}: {}\n", hat.key, literal(text, 2)));
    }
    if out.is_empty() {
        return out;
    }
    // A comment ends at the first `-->`, and a line of dashes inside it would be no problem.
    let safe = out.replace("-->", "-- >");
    format!("\n\n<!-- The hats of ralph-orchestrator, which have no counterpart:\n{safe}-->")
}

fn leave(config: &Config<'_>, draft: &mut Draft, file: &FileText) {
    let source = file.source();
    let mapped = [
        "cli",
        "event_loop",
        "core",
        "agent",
        "prompt_file",
        "max_iterations",
        "max_runtime",
        "max_cost",
        "max_tokens",
    ];
    draft.leave_rest(
        source,
        "event_loop",
        config.event_loop,
        &[
            "prompt",
            "prompt_file",
            "max_iterations",
            "max_runtime_seconds",
            "max_cost_usd",
            "max_consecutive_failures",
            "cooldown_delay_seconds",
            "persistent",
        ],
        &LOOP,
    );
    let cli = ["backend", "command", "args", "prompt_mode", "prompt_flag"];
    draft.leave_rest(source, "cli", config.cli, &cli, &CLI);
    let files = "files of the tool; name the files that the agent needs in the prompt";
    let core = [
        ("scratchpad", files),
        ("specs_dir", files),
        ("workspace_root", "sessions run where `dogwatch run` starts"),
    ];
    draft.leave_rest(source, "core", config.core, &["guardrails"], &core);
    let top: Vec<(&str, &str)> = TOP.into_iter().chain([("completion_promise", PHRASE)]).collect();
    draft.leave_rest(source, "", config.top, &mapped, &top);
}
