//! The table of all keys, from which settings are parsed, explained and documented.

use crate::limits::{MAX_RECHECKS, MAX_RECOVERIES};
use crate::parsed::listed;
use Kind::*;
use dogwatch_core::record::notification::NotificationKind;
use dogwatch_core::settings::{self, ReaderName, SandboxMode};
use std::fmt;

/// A key of the settings.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// The name of the key, with dots between blocks.
    pub path: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// Its default as Markdown.
    pub default: &'static str,
    /// A line of YAML that sets it.
    pub example: &'static str,
    /// Its description as Markdown.
    pub doc: &'static str,
}

/// The type of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A command line, split into words.
    CommandLine,
    /// A list of commands with `name` and `run`.
    Commands,
    /// A list of argument names.
    Names,
    /// True or false.
    Flag,
    /// A text that is not empty.
    Text,
    /// A list of texts, or a single one.
    Texts,
    /// A list of TCP ports, or a single one.
    Ports,
    /// A list of shell commands, or a single one; an empty list is an error.
    Checks,
    /// A list of globs, or a single one.
    Globs,
    /// A list of command lines, or of mappings with `agent` and `reader`.
    Agents,
    /// A duration, which may be zero.
    Duration,
    /// A duration of more than zero.
    Span,
    /// A duration of more than zero, or `off`.
    Limit,
    /// A duration, which may be zero, or `auto`.
    Ttl,
    /// A mapping from the names of tools to limits.
    ToolLimits,
    /// A whole number of at least 1.
    Count,
    /// A whole number of at least 1, or `off`.
    CountLimit,
    /// A whole number from 0 to this one.
    UpTo(u32),
    /// A number of at least 1.
    Factor,
    /// A number of at least 0, or `off`.
    Amount,
    /// A percentage of more than 0 and at most 100, or `off`.
    Share,
    /// A count, a mapping from reasons to counts, or `off`.
    StopAfter,
    /// A list of notification events, or a single one.
    NotifyOn,
    /// A URL that notifications are posted to.
    Webhook,
    /// The address of a topic of ntfy.
    Topic,
    /// The token of a bot of Telegram.
    BotToken,
    /// A chat of Telegram.
    Chat,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// True, false, or a mapping with servers.
    Mcp,
}

impl Kind {
    /// Returns whether the value is a text, or a list of texts that can be given as one.
    pub fn holds_texts(self) -> bool {
        match self {
            CommandLine | Text | Texts | Checks | Globs | Agents | Webhook | Topic | BotToken | Chat => true,
            Names | Commands | Flag | Ports | Duration | Span | Limit | Ttl | ToolLimits | Count
            | CountLimit | UpTo(_) | Factor | Amount | Share | StopAfter | NotifyOn | OneOf(_) | Mcp => false,
        }
    }
}

/// Formats the kind in plain words, as Markdown.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CommandLine => "command line",
            Commands => "list of commands",
            Names => "list of names",
            Flag => "flag",
            Text => "text",
            Texts => "list of texts",
            Ports => "list of TCP ports",
            Checks => "list of checks",
            Globs => "list of globs",
            Agents => "list of agents",
            Duration => "duration",
            Span => "positive duration",
            Limit => "limit",
            Ttl => "duration or `auto`",
            ToolLimits => "mapping from tools to limits",
            Count => "count",
            CountLimit => "count or `off`",
            UpTo(max) => return write!(f, "whole number from 0 to {max}"),
            Factor => "number of at least 1",
            Amount => "amount or `off`",
            Share => "percentage or `off`",
            StopAfter => "count, mapping from reasons to counts, or `off`",
            NotifyOn => {
                let events = NotificationKind::SELECTABLE.map(NotificationKind::as_str);
                return write!(f, "list of {}", listed(&events));
            }
            Webhook => "URL",
            Topic => "URL of a topic",
            BotToken => "bot token",
            Chat => "number or `@name`",
            OneOf(choices) => return f.write_str(&listed(choices)),
            Mcp => "`true`, `false`, or a mapping with `servers`",
        })
    }
}

const fn key(
    path: &'static str,
    kind: Kind,
    default: &'static str,
    example: &'static str,
    doc: &'static str,
) -> Key {
    Key { path, kind, default, example, doc }
}

/// All keys, in the order in which they are explained and documented.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    //  path                     kind         default, example, doc
    key("agent",                    CommandLine, "required", "agent: claude", "command line of the agent, which gets the prompt on stdin"),
    key("reader",                   OneOf(ReaderName::NAMES),      "from the program's name", "reader: claude", "how to read the agent's output"),
    key("commands",                 Commands,    "none", "commands: [{name: tests, run: make test}]", "commands to run before every prompt, which can include their output"),
    key("args",                     Names,       "none", "args: [area]", "names of the arguments that the loop accepts"),
    key("credit",                   Flag,        "`false`", "credit: true", "ask the agent to credit dogwatch in its commits"),
    key("delay",                    Duration,    "`0s`", "delay: 30s", "wait between iterations, not after the last"),
    key("profile",                  OneOf(settings::Profile::NAMES),     "`standard`", "profile: deep", "named set of watchdog limits; `learned` follows the recorded sessions of the agent"),
    key("attempts",                 OneOf(settings::AttemptPolicy::NAMES), "`progress` in loop files, `seed` in graph files", "attempts: seed", "which failed attempts are charged: all (`seed`), or those without progress (`progress`)"),
    key("max_iterations",           CountLimit,  "with `done_when` `6` (`attempts: progress`: 6 in a row without progress), else `off`", "max_iterations: 10", "number of iterations after which the run ends; also `max_ralph_iters` and `-n`"),
    key("work_when",                Text,        "none", "work_when: test -s TODO", "command to run before the agent: exit 0 means that there is work, exit 1 that there is none"),
    key("mcp",                      Mcp,         "`true`", "mcp: false", "MCP server for the agent, and the servers behind it"),
    key("recheck",                  UpTo(MAX_RECHECKS), "`0`", "recheck: 1", "how many times to rerun a failing check before it counts as failed"),
    key("pin",                      Globs,       "none", "pin: [tests/**]", "files that must not change because the checks depend on them"),
    key("redact",                   Texts,       "none", "redact: [DEPLOY_CODE]", "further environment variables whose values are kept out of the record"),
    key("sandbox",                  OneOf(SandboxMode::NAMES), "`off`", "sandbox: worktree", "what sessions may touch; also `sandbox.mode`"),
    key("sandbox.write",            Texts,       "none", "sandbox: {write: [~/.cache/pip]}", "further paths that sessions may write"),
    key("sandbox.read",             Texts,       "none", "sandbox: {read: [~/tools]}", "further paths that `strict` sessions may read"),
    key("sandbox.ports",            Ports,       "none", "sandbox: {ports: [5432]}", "more TCP ports for `strict`, in addition to 80, 443 and those of proxies"),
    key("sandbox.required",         Flag,        "`false`", "sandbox: {required: true}", "refuse to start if the kernel cannot enforce all of it"),
    key("worktree",                 Flag,        "`false`", "worktree: true", "run the node in its own git worktree"),
    key("setup",                    Texts,       "none", "setup: [npm ci]", "with `worktree: true`: shell commands that run once in a new worktree, before the agent"),
    key("merge",                    OneOf(settings::MergePolicy::NAMES), "`agent`", "merge: fail", "what to do if the dependencies of a node with a worktree conflict: let its agent resolve it, or fail"),
    key("max_parallel",             Count,       "`4`", "max_parallel: 8", "number of graph nodes that may run at the same time"),
    key("done_when",                Checks,      "none", "done_when: [make test]", "shell commands that must all succeed for the work to be done"),

    key("idle.delay",               Span,        "`30s`", "idle: {delay: 1m}", "first wait of an idle streak"),
    key("idle.backoff",             Factor,      "`2`", "idle: {backoff: 1.5}", "factor by which each further idle wait grows"),
    key("idle.max_delay",           Span,        "`5m`", "idle: {max_delay: 10m}", "longest idle wait"),
    key("idle.max",                 Limit,       "`off`", "idle: {max: 6h}", "length of an idle streak after which the run ends"),
    key("idle.stop_after",          StopAfter,   "`{no_pending_tasks: 8}`; `off` if `idle.max` is set or with `learned`", "idle: {stop_after: {no_pending_tasks: 3}}", "number of idle iterations in a row after which the run ends"),
    key("idle.strategy",            OneOf(settings::Strategy::NAMES),    "`exponential`", "idle: {strategy: fixed}", "how idle waits grow"),
    key("idle.look",                Span,        "`20s`, or `5s` if the last look did not call the agent", "idle: {look: 1m}", "with `learned`: how much waiting an empty look is worth"),
    key("idle.longest",             Span,        "`1h`, or `idle.max_delay` if that is set", "idle: {longest: 2h}", "with `learned`: longest idle wait"),
    key("idle.skip_unchanged",      Flag,        "`false`", "idle: {skip_unchanged: true}", "while idle, skip the agent if neither the prompt nor the work tree changed"),
    key("idle.instruct",            Flag,        "`true`", "idle: {instruct: false}", "describe the idle marker to the agent"),
    key("idle.after_stop",          OneOf(settings::AfterStop::NAMES), "`exit`", "idle: {after_stop: watch}", "what to do after the idle stop: exit, or stay asleep until woken"),

    key("wake_on.paths",            Texts,       "none", "wake_on: {paths: [TODO.md]}", "globs of files whose changes end a wait"),
    key("wake_on.probe",            Text,        "none", "wake_on: {probe: test -s TODO}", "command that ends a wait when it exits 0"),
    key("wake_on.every",            Span,        "`1m`", "wake_on: {every: 5m}", "interval between runs of the probe"),

    key("watchdog.session",         Limit,       "15m, 1h or 4h by profile", "watchdog: {session: 20m}", "longest session; also `--timeout`"),
    key("watchdog.grace",           Duration,    "`10s`", "watchdog: {grace: 5s}", "time between interrupt, SIGTERM and SIGKILL"),
    key("watchdog.leak",            Duration,    "`2s`", "watchdog: {leak: 0s}", "how long pipes may stay open after the agent exits"),
    key("watchdog.result_grace",    Duration,    "`10s`", "watchdog: {result_grace: 30s}", "how long the agent may keep running after its final result"),
    key("watchdog.children",        Limit,       "10m, 30m or 1h by profile", "watchdog: {children: 1h}", "longest wait for child processes without progress"),
    key("watchdog.node",            Limit,       "`off`", "watchdog: {node: 12h}", "longest time for a node"),
    key("watchdog.run",             Limit,       "`off`", "watchdog: {run: 12h}", "longest run"),
    key("watchdog.errors",          CountLimit,  "`5`", "watchdog: {errors: 8}", "number of equal errors in a row that stops the session"),
    key("watchdog.cycles",          CountLimit,  "`5`", "watchdog: {cycles: off}", "number of repeated cycles of tool calls that stops the session"),
    key("watchdog.poll",            Limit,       "`10m`", "watchdog: {poll: 30m}", "longest polling without a change"),
    key("watchdog.tool",            Limit,       "10m, 15m or 1h by profile", "watchdog: {tool: 30m}", "longest tool call"),
    key("watchdog.tools",           ToolLimits,  "none; learned with `profile: learned`", "watchdog: {tools: {Bash: 5m}}", "longest call of single tools, by name; calls that declare a timeout get that and a minute"),
    key("watchdog.start",           Limit,       "3m, 6m or 10m by profile", "watchdog: {start: 2m}", "longest wait for the first output"),
    key("watchdog.idle",            Limit,       "5m, 8m (plain agents 11m) or 15m by profile", "watchdog: {idle: 20m}", "longest silence"),
    key("watchdog.evidence_ttl",    Ttl,         "`auto`", "watchdog: {evidence_ttl: 2m}", "how long evidence on other channels stays fresh; also `agent_idle_activity_evidence_ttl_seconds`"),
    key("watchdog.human",           Limit,       "`10m`", "watchdog: {human: 1h}", "longest wait for a person's answer, which does not count as silence"),

    key("errors.max",               Count,       "`5`", "errors: {max: 3}", "number of sessions failing alike, or within 5s, that ends the run"),
    key("errors.window",            Span,        "`5m`", "errors: {window: 1h}", "time window in which failed sessions count"),

    key("budget.iterations",        CountLimit,  "`off`", "budget: {iterations: 100}", "iterations that the run may use"),
    key("budget.time",              Limit,       "`off`", "budget: {time: 8h}", "time that the run may use"),
    key("budget.tokens",            CountLimit,  "`off`", "budget: {tokens: 2000000}", "tokens that the run may use"),
    key("budget.cost_usd",          Amount,      "`off`", "budget: {cost_usd: 20}", "US dollars that the run may cost"),
    key("budget.day.tokens",        CountLimit,  "`off`", "budget: {day: {tokens: 5000000}}", "tokens that all runs of the project may use per day"),
    key("budget.day.cost_usd",      Amount,      "`off`", "budget: {day: {cost_usd: 20}}", "US dollars that all runs of the project may cost per day"),
    key("budget.window.five_hour",  Share,       "`off`", "budget: {window: {five_hour: 80%}}", "share of the subscription's five-hour window at which its agent is no longer called until the reset"),
    key("budget.window.seven_day",  Share,       "`off`", "budget: {window: {seven_day: 90%}}", "the same for the seven-day window"),

    key("limits.max_wait",          Span,        "`6h`", "limits: {max_wait: 12h}", "longest wait for a rate limit to reset"),
    key("limits.overload_retries",  Count,       "`10`", "limits: {overload_retries: 3}", "number of retries while the service is overloaded"),

    key("checks.timeout",           Span,        "`10m`", "checks: {timeout: 2m}", "longest check"),
    key("checks.tampered",          OneOf(settings::Tampered::NAMES), "`fail`", "checks: {tampered: warn}", "what to do if a pinned file changes"),

    key("recovery.budget",          UpTo(MAX_RECOVERIES), "`3`", "recovery: {budget: 5}", "number of hard stops in a row to recover from"),
    key("recovery.template",        Text,        "built in", "recovery: {template: again.md}", "file with the prompt after a hard stop, relative to the loop file"),
    key("recovery.resume",          Flag,        "`false`", "recovery: {resume: true}", "continue the agent's own session if its CLI can"),
    key("recovery.agents",          Agents,      "none", "recovery: {agents: [codex]}", "fallback agents, in order"),

    key("notify.on",                NotifyOn,    "all", "notify: {on: [ended], command: ./notify.sh}", "events that send a notification"),
    key("notify.command",           Text,        "none", "notify: {command: ./notify.sh}", "command that gets each notification on stdin"),
    key("notify.webhook",           Webhook,     "none", "notify: {webhook: \"https://hooks.example/x\"}", "URL to which each notification is posted"),
    key("notify.ntfy",              Topic,       "none", "notify: {ntfy: \"https://ntfy.sh/my-topic\"}", "topic of ntfy to which each notification is published"),
    key("notify.slack",             Webhook,     "none", "notify: {slack: \"https://hooks.slack.com/services/x\"}", "incoming webhook of Slack"),
    key("notify.discord",           Webhook,     "none", "notify: {discord: \"https://discord.com/api/webhooks/1/x\"}", "webhook of Discord"),
    key("notify.telegram.token",    BotToken,    "none", "notify: {telegram: {token: \"1234567:abcdefghijklmnopqrstuvwxyz\", chat: 42}}", "token of the bot of Telegram that sends each notification"),
    key("notify.telegram.chat",     Chat,        "none", "notify: {telegram: {token: \"1234567:abcdefghijklmnopqrstuvwxyz\", chat: \"@news\"}}", "chat that the bot writes to"),
    key("notify.telegram.api",      Webhook,     "none: Telegram's own", "notify: {telegram: {token: \"1234567:abcdefghijklmnopqrstuvwxyz\", chat: 42, api: \"http://localhost:8081\"}}", "server of the Bot API"),
    key("notify.desktop",           Flag,        "`false`", "notify: {desktop: true}", "show each notification on this desktop with `notify-send`"),

    key("external.profile",         OneOf(settings::Profile::NAMES),     "`quick`", "external: {profile: deep}", "limits for the external agents that `dogwatch serve` watches; only in `dogwatch.toml`"),
    key("external.session",         Limit,       "15m, 1h or 4h by profile", "external: {session: 30m}", "longest time for an external agent; also `total_timeout_seconds`"),
    key("external.idle",            Limit,       "5m, 8m or 15m by profile", "external: {idle: 10m}", "longest time without a new message from an external agent; also `idle_timeout_seconds`"),
    key("external.errors",          CountLimit,  "`5`", "external: {errors: 10}", "number of equal errors in a row of an external agent; also `max_errors`"),
];

/// Renders the key reference as a Markdown table.
pub fn markdown_table() -> String {
    let mut table = "| key | type | default | example | |\n|---|---|---|---|---|\n".to_owned();
    for Key { path, kind, default, example, doc } in KEYS {
        table.push_str(&format!("| `{path}` | {kind} | {default} | `{example}` | {doc} |\n"));
    }
    table
}

/// Aliases of keys, for files written for other tools.
pub const ALIASES: &[(&str, &str)] = &[
    ("max_ralph_iters", "max_iterations"),
    ("sandbox.mode", "sandbox"),
    ("agent_idle_activity_evidence_ttl_seconds", "watchdog.evidence_ttl"),
    ("watchdog.agent_idle_activity_evidence_ttl_seconds", "watchdog.evidence_ttl"),
    ("general.agent_idle_activity_evidence_ttl_seconds", "watchdog.evidence_ttl"),
    ("external.total_timeout_seconds", "external.session"),
    ("external.idle_timeout_seconds", "external.idle"),
    ("external.max_errors", "external.errors"),
];

/// Blocks of other tools that contain only aliases of our keys.
const FOREIGN_BLOCKS: &[&str] = &["general"];

/// Returns the key with this path or alias.
pub fn find(path: &str) -> Option<&'static Key> {
    let path = ALIASES.iter().find(|(alias, _)| *alias == path).map_or(path, |(_, path)| path);
    KEYS.iter().find(|key| key.path == path)
}

/// Returns whether a key is inside a block.
pub fn is_in_block(path: &str, block: &str) -> bool {
    path.strip_prefix(block).is_some_and(|rest| rest.starts_with('.'))
}

/// Returns whether a dotted path starts with a known block, even if the rest of it is unknown.
pub fn is_in_known_block(path: &str) -> bool {
    path.split_once('.').is_some_and(|(block, _)| keys_in(block).next().is_some())
}

/// Returns whether other tools also keep keys in this block, next to the aliases that dogwatch knows.
pub fn is_shared(block: &str) -> bool {
    FOREIGN_BLOCKS.contains(&block)
}

/// Returns whether a block with this path may contain keys.
pub fn is_block(path: &str) -> bool {
    is_shared(path) || keys_in(path).next().is_some()
}

/// Returns whether a name is neither a known key nor in a known block. It may belong to another tool.
pub fn is_foreign(name: &str) -> bool {
    find(name).is_none() && !is_block(name) && !is_in_known_block(name)
}

/// Returns the keys inside a block; none if the block does not exist.
pub fn keys_in(block: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| is_in_block(key.path, block))
}

/// Returns the names allowed directly in a block, each once. The block `""` is the top level.
pub fn names_in(block: &str) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = KEYS
        .iter()
        .filter_map(|key| match block {
            "" => Some(key.path),
            block => key.path.strip_prefix(block)?.strip_prefix('.'),
        })
        .map(|rest| rest.split('.').next().unwrap_or(rest))
        .collect();
    if is_shared(block) {
        names.extend(ALIASES.iter().filter_map(|(alias, _)| alias.strip_prefix(block)?.strip_prefix('.')));
    }
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::{Diagnostic, Diagnostics, Source};
    use crate::layers::{Layer, Layers, Strictness};
    use std::collections::BTreeSet;

    #[test]
    fn the_table_contains_every_key_once() {
        let mut expected: BTreeSet<String> =
            "agent reader commands args credit delay profile mcp attempts max_iterations work_when recheck pin redact sandbox worktree setup merge max_parallel done_when"
                .split(' ')
                .map(str::to_owned)
                .collect();
        for (block, keys) in [
            (
                "idle",
                "delay backoff max_delay max stop_after strategy look longest skip_unchanged instruct after_stop",
            ),
            ("wake_on", "paths probe every"),
            (
                "watchdog",
                "session children node run errors cycles poll tool tools start idle evidence_ttl human grace leak result_grace",
            ),
            ("errors", "max window"),
            ("limits", "max_wait overload_retries"),
            (
                "budget",
                "iterations time tokens cost_usd day.tokens day.cost_usd window.five_hour window.seven_day",
            ),
            ("checks", "timeout tampered"),
            ("recovery", "budget template resume agents"),
            (
                "notify",
                "on command webhook ntfy slack discord telegram.token telegram.chat telegram.api desktop",
            ),
            ("sandbox", "write read ports required"),
            ("external", "profile session idle errors"),
        ] {
            expected.extend(keys.split(' ').map(|key| format!("{block}.{key}")));
        }
        let found: BTreeSet<String> = KEYS.iter().map(|key| key.path.to_owned()).collect();
        assert_eq!(found, expected);
        assert_eq!(found.len(), KEYS.len());
    }

    #[test]
    fn every_alias_belongs_to_a_key() {
        for (alias, path) in ALIASES {
            assert_eq!(find(alias).map(|key| key.path), Some(*path));
        }
    }

    #[test]
    fn blocks_contain_their_keys() {
        assert_eq!(names_in("budget"), ["iterations", "time", "tokens", "cost_usd", "day", "window"]);
        assert_eq!(names_in("budget.day"), ["tokens", "cost_usd"]);
        assert!(names_in("").contains(&"watchdog"));
        assert_eq!(keys_in("agent").count(), 0);
        assert!(find("mcpx").is_none() && find("agent.x").is_none());
        assert!(is_in_known_block("idle.x") && !is_in_known_block("idle") && !is_in_known_block("x.idle"));
        assert_eq!(names_in("general"), ["agent_idle_activity_evidence_ttl_seconds"]);
        assert!(!is_in_known_block("general.x") && !is_foreign("general"));
    }

    /// Loads a loop file with this frontmatter.
    fn load(frontmatter: &str) -> Result<crate::Loaded, Vec<Diagnostic>> {
        let text = format!("---\n{frontmatter}\n---\nHi\n");
        let source = Source { name: "RALPH.md", text: &text };
        crate::load(&crate::Sources::of_file(source, &crate::Flags::default(), &|_| ReaderName::Plain), "n")
    }

    #[test]
    fn every_key_has_a_default_an_example_that_sets_it_and_a_doc() {
        for Key { path, kind, default, example, doc } in KEYS {
            assert!(!default.is_empty() && !doc.is_empty() && !kind.to_string().is_empty(), "{path}");
            assert!(![default, example, doc].iter().any(|cell| cell.contains(['|', '\n'])), "{path}");
            let tree = crate::yaml::parse(example, 0).expect(path);
            let (mut layers, mut diagnostics) = (Layers::default(), Diagnostics::default());
            let source = Source { name: "example", text: example };
            Layer::of_file(source, Strictness::Strict, &mut layers, &mut diagnostics).document(&tree);
            assert_eq!(diagnostics.into_vec(), [], "{path}");
            assert!(layers.get(path).is_some(), "{path} is not set by `{example}`");
            let agent = if *path == "agent" { "" } else { "agent: sh\n" };
            load(&format!("{agent}{example}")).expect(path);
        }
    }

    #[test]
    fn documented_defaults_are_the_effective_ones() {
        let loaded = load("agent: sh\nidle:").expect("the settings are valid");
        // `mcp` is shown as `on`.
        for setting in loaded.explain.iter().filter(|setting| setting.key != "mcp") {
            let default = find(setting.key).expect("the key exists").default;
            let word = default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
            if let Some(word) = word.filter(|word| !word.contains('`')) {
                assert_eq!(setting.value, word, "{}", setting.key);
            }
        }
    }

    #[test]
    fn the_reference_has_a_row_for_every_key() {
        let table = markdown_table();
        assert_eq!(table.lines().count(), KEYS.len() + 2);
        assert!(table.contains(
            "\n| `delay` | duration | `0s` | `delay: 30s` | wait between iterations, not after the last |\n"
        ));
        assert!(table.contains("| `checks.tampered` | `fail` or `warn` | `fail` |"));
    }
}
