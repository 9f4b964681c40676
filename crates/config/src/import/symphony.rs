//! Symphony: `WORKFLOW.md`, whose frontmatter configures a service and whose body is a template for one issue.
//!
//! dogwatch reads no issue tracker. A run works on one issue; its fields become arguments of the loop.

use super::draft::{Values, from, literal};
use super::template::{self, Converted};
use super::{Draft, Import, Outcome, Tool, block, get, required, yaml_map};
use crate::diagnostic::{Diagnostics, Source};
use crate::document::{Entry, Value};
use crate::frontmatter::{self, Shape};
use dogwatch_core::time::dur::Dur;

/// The limits that apply unless the settings name others.
const TURN: Dur = Dur::from_secs(3600);
const STALL: Dur = Dur::from_secs(300);
const POLL: Dur = Dur::from_secs(30);
const HOOK: Dur = Dur::from_secs(60);
/// The longest time in milliseconds that is read.
const MAX_MS: i128 = 366 * 24 * 3600 * 1000;

const TRACKER: &str = "dogwatch reads no tracker; start a run per issue and pass its fields as arguments";
const PARALLEL: &str = "a loop runs one agent; a graph has `max_parallel`";

pub fn import(import: &Import<'_>, diagnostics: &mut Diagnostics) -> Outcome {
    let Some(file) = required(import, import.file, diagnostics)? else { return Ok(None) };
    let source = file.source();
    let split = frontmatter::split(&file.text);
    if split.shape == Shape::NeverClosed {
        diagnostics.error(source, 0..3, "the frontmatter is not closed").help("end it with a `---` line");
        return Ok(None);
    }
    let Some(entries) = yaml_map(source, split.yaml, split.offset, diagnostics) else { return Ok(None) };
    let known = ["tracker", "polling", "workspace", "hooks", "agent", "codex"];
    if !entries.iter().any(|entry| known.contains(&entry.key.as_str())) {
        diagnostics
            .error(source, 0..0, "this is not a workflow of Symphony")
            .help("its frontmatter has none of the keys `tracker`, `hooks`, `agent` and `codex`");
        return Ok(None);
    }
    let mut draft = Draft::new(Tool::Symphony);
    draft.read(&file);
    let base = file.text.len() - split.rest.len();
    let converted = template::convert(source, base, diagnostics);
    let mut values = Values { source, diagnostics };
    codex(&entries, &mut values, &mut draft);
    hooks(&entries, &mut values, &mut draft);
    polling(&entries, &mut values, &mut draft);
    rest(&entries, source, &mut draft, values.diagnostics);
    let Some(Converted { text, args, dropped }) = converted else { return Ok(None) };
    if !args.is_empty() {
        let names = args.join(", ");
        draft.set(
            "args",
            format!("[{names}]"),
            "the fields of an issue in the prompt: pass `--NAME VALUE` to `dogwatch run`",
        );
    }
    for (at, tag) in dropped {
        draft.leave(
            source,
            &at,
            &format!("`{tag}`"),
            "prompts have no conditions; the first branch was kept",
        );
    }
    let prompt = draft.prompt(&file, &text, &[]);
    if prompt.is_empty() {
        let end = file.text.trim_end().len();
        diagnostics.error(source, end..end, "the prompt is empty").help("write it below the frontmatter");
        return Ok(None);
    }
    Ok(Some(draft.loop_file(&prompt)))
}

fn codex(entries: &[Entry], values: &mut Values<'_, '_>, draft: &mut Draft) {
    let source = values.source;
    let codex = block(entries, "codex", source, values.diagnostics);
    let at = match get(codex, "command") {
        Some(entry) => {
            from(source, &entry.key_span, "codex.command (dogwatch starts `codex exec`, not the app server)")
        }
        None => "Symphony runs Codex".to_owned(),
    };
    draft.set("agent", "codex", at);
    let session = millis(codex, "turn_timeout_ms", values).unwrap_or(Some(TURN));
    let from_key = |key: &str| {
        get(codex, key).map_or_else(
            || format!("codex.{key}: not set, so its default"),
            |entry| from(source, &entry.key_span, &format!("codex.{key}")),
        )
    };
    draft.set("watchdog.session", limit(session), from_key("turn_timeout_ms"));
    let stall = millis(codex, "stall_timeout_ms", values).unwrap_or(Some(STALL));
    draft.set("watchdog.idle", limit(stall), from_key("stall_timeout_ms"));
    let mapped = ["command", "turn_timeout_ms", "stall_timeout_ms"];
    let flag = "add the flag to `agent`, for example `codex exec -m MODEL`";
    let rights = "`agent: codex` allows everything; write out the flags, or set `sandbox`";
    let reasons = [
        ("model", flag),
        ("reasoning_effort", flag),
        ("approval_policy", rights),
        ("thread_sandbox", rights),
        ("turn_sandbox_policy", rights),
        ("read_timeout_ms", "dogwatch does not speak to an app server"),
    ];
    draft.leave_rest(source, "codex", codex, &mapped, &reasons);
}

fn hooks(entries: &[Entry], values: &mut Values<'_, '_>, draft: &mut Draft) {
    let source = values.source;
    let hooks = block(entries, "hooks", source, values.diagnostics);
    let timeout = millis(hooks, "timeout_ms", values).flatten().unwrap_or(HOOK);
    if let Some(entry) = get(hooks, "before_run")
        && let Some(script) = values.text("hooks.before_run", entry)
    {
        let command = format!(
            "\n  - name: before_run\n    shell: true\n    timeout: {timeout}\n    run: {}",
            literal(&script, 6)
        );
        let what = "hooks.before_run (a failure does not stop the iteration)";
        draft.set("commands", command, from(source, &entry.key_span, what));
    }
    let mut mapped = vec!["before_run", "timeout_ms"];
    if let Some(entry) = get(hooks, "after_create")
        && let Some(script) = values.text("hooks.after_create", entry)
        // A worktree contains the repository already, so a clone into it would fail.
        && !script.contains("git clone")
    {
        let at = from(source, &entry.key_span, "hooks.after_create");
        draft.set("worktree", "true", at.clone());
        draft.set("setup", format!("\n  - {}", literal(&script, 4)), at);
        mapped.push("after_create");
    }
    let reasons = [
        ("after_create", "a worktree has the repository already; put the rest into `setup`"),
        ("after_run", "use `done_when` to check the work, or `notify`"),
        ("before_remove", "dogwatch removes no work directory"),
    ];
    draft.leave_rest(source, "hooks", hooks, &mapped, &reasons);
}

fn polling(entries: &[Entry], values: &mut Values<'_, '_>, draft: &mut Draft) {
    let source = values.source;
    let polling = block(entries, "polling", source, values.diagnostics);
    let interval = millis(polling, "interval_ms", values);
    let at = get(polling, "interval_ms").map_or_else(
        || "polling.interval_ms: not set, so its default".to_owned(),
        |entry| from(source, &entry.key_span, "polling.interval_ms"),
    );
    draft.set("idle.strategy", "fixed", at.clone());
    draft.set("idle.delay", interval.flatten().unwrap_or(POLL).to_string(), at);
    draft.leave_rest(source, "polling", polling, &["interval_ms"], &[]);
}

fn rest(entries: &[Entry], source: Source<'_>, draft: &mut Draft, diagnostics: &mut Diagnostics) {
    let tracker = block(entries, "tracker", source, diagnostics);
    let keys = ["kind", "endpoint", "api_key", "project_slug", "active_states", "terminal_states"];
    draft.leave_rest(source, "tracker", tracker, &[], &keys.map(|key| (key, TRACKER)));
    let workspace = block(entries, "workspace", source, diagnostics);
    draft.leave_rest(
        source,
        "workspace",
        workspace,
        &[],
        &[("root", "set `worktree: true` for a separate git worktree")],
    );
    let agent = block(entries, "agent", source, diagnostics);
    let reasons = [
        ("max_concurrent_agents", PARALLEL),
        ("max_concurrent_agents_by_state", PARALLEL),
        ("max_retry_backoff_ms", "dogwatch chooses the waits after failures"),
        ("max_turns", "set `max_iterations` or `budget.iterations`"),
    ];
    draft.leave_rest(source, "agent", agent, &[], &reasons);
    let blocks = ["tracker", "polling", "workspace", "hooks", "agent", "codex"];
    draft.leave_rest(source, "", entries, &blocks, &[("server", "`dogwatch serve` has the dashboard")]);
}

/// Reads a time in milliseconds, as a number or its text. `Some(None)` means that it is off: zero or less.
fn millis(entries: &[Entry], key: &str, values: &mut Values<'_, '_>) -> Option<Option<Dur>> {
    let entry = get(entries, key)?;
    let read = match &entry.value.value {
        Value::Int(n) => Some(*n),
        Value::Text(text) => text.trim().parse::<i128>().ok(),
        Value::Null | Value::Bool(_) | Value::Float(_) | Value::List(_) | Value::Map(_) => None,
    };
    let Some(ms) = read.filter(|ms| *ms <= MAX_MS) else {
        return values
            .diagnostics
            .error(
                values.source,
                entry.value.span.clone(),
                format!("`{key}` must be a whole number of at most {MAX_MS} milliseconds"),
            )
            .rejected();
    };
    Some(u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Dur::from_millis))
}

fn limit(dur: Option<Dur>) -> String {
    dur.map_or_else(|| "off".to_owned(), |dur| dur.to_string())
}
