//! The one table of all keys: what they hold, what they are for, and whether this version obeys them.
//!
//! A later version that obeys a key changes one word here.

use crate::limits::{MAX_RECHECKS, MAX_RECOVERIES};
use Kind::*;
use Standing::*;

/// A key and what is known about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// With dots between block and key.
    pub path: &'static str,
    pub kind: Kind,
    pub standing: Standing,
    pub doc: &'static str,
}

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A command line, as words.
    CommandLine,
    Reader,
    Profile,
    Strategy,
    Commands,
    /// A list of argument names.
    Names,
    Flag,
    Text,
    /// A list of texts, or one.
    Texts,
    /// A list of shell commands, or one; not an empty one.
    Checks,
    /// A list of globs, or one.
    Globs,
    /// A list of command lines, or of mappings with `agent` and `reader`.
    Agents,
    /// May be zero.
    Duration,
    /// More than zero.
    Span,
    /// More than zero, or `off`.
    Limit,
    /// `auto`, or a duration that may be zero.
    Ttl,
    /// At least 1.
    Count,
    /// At least 1, or `off`.
    CountLimit,
    /// From 0 to this.
    UpTo(u32),
    /// At least 1, and not only whole ones.
    Factor,
    /// More than zero, or `off`.
    Amount,
    StopAfter,
    /// A list of what is news, or one.
    NotifyOn,
    /// An address that news may be posted to.
    Webhook,
    OneOf(&'static [&'static str]),
    /// True or false, or a mapping with servers.
    Mcp,
}

/// What this version does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    InForce,
    /// Checked, and said to have no effect: its absence is not dangerous.
    NoEffect,
    /// An error: to ignore a check or a budget in silence would be a lie.
    Refused,
}

const fn key(path: &'static str, kind: Kind, standing: Standing, doc: &'static str) -> Key {
    Key { path, kind, standing, doc }
}

#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("agent",                  CommandLine, InForce, "the agent's command line; the prompt goes to its stdin"),
    key("reader",                 Reader,      InForce, "how the agent's output is read, if its name does not tell"),
    key("commands",               Commands,    InForce, "run before every prompt, which may quote their output"),
    key("args",                   Names,       InForce, "names of the arguments that the loop takes"),
    key("credit",                 Flag,        InForce, "ask the agent to credit dogwatch in its commits"),
    key("delay",                  Duration,    InForce, "between iterations"),
    key("profile",                Profile,     InForce, "a named set of watchdog limits"),
    key("max_iterations",         CountLimit,  InForce, "end after so many iterations"),
    key("work_when",              Text,        InForce, "a gate before the agent is called: exit 0 is work, 1 is none"),
    key("mcp",                    Mcp,         InForce, "the MCP server that agents are given, and the servers behind it"),
    key("recheck",                UpTo(MAX_RECHECKS), InForce, "run a failed check so often again before it counts"),
    key("pin",                    Globs,       InForce, "files that must not change while checks depend on them"),
    key("worktree",               Flag,        InForce, "give the node a git worktree of its own"),
    key("max_parallel",           Count,       InForce, "how many nodes of a graph may run at once"),
    key("done_when",              Checks,      InForce, "shell commands that prove the work is done, all of them"),

    key("idle.delay",             Span,        InForce, "the first wait of an idle spell"),
    key("idle.backoff",           Factor,      InForce, "by how much each further wait grows"),
    key("idle.max_delay",         Span,        InForce, "the longest wait of an idle spell"),
    key("idle.max",               Limit,       InForce, "end once a spell has lasted that long"),
    key("idle.stop_after",        StopAfter,   InForce, "end after so many idle iterations in a row"),
    key("idle.strategy",          Strategy,    InForce, "how idle waits grow"),
    key("idle.skip_unchanged",    Flag,        InForce, "while idle, call the agent only if prompt or tree changed"),
    key("idle.instruct",          Flag,        InForce, "tell the agent about the idle marker"),

    key("wake_on.paths",          Texts,       InForce, "a change in these ends a wait"),
    key("wake_on.probe",          Text,        InForce, "a command that ends a wait by exit 0"),
    key("wake_on.every",          Span,        InForce, "how often the probe runs"),

    key("watchdog.session",       Limit,       InForce, "the longest session"),
    key("watchdog.grace",         Duration,    InForce, "between interrupt, TERM and KILL"),
    key("watchdog.leak",          Duration,    InForce, "how long pipes may stay open after the agent's exit"),
    key("watchdog.result_grace",  Duration,    InForce, "how long the agent may live on after its final result"),
    key("watchdog.children",      Limit,       InForce, "the longest wait on children without progress"),
    key("watchdog.node",          Limit,       InForce, "the longest time for a node"),
    key("watchdog.run",           Limit,       InForce, "the longest run"),
    key("watchdog.errors",        CountLimit,  InForce, "equal errors in a row"),
    key("watchdog.cycles",        CountLimit,  InForce, "repetitions of a cycle of calls"),
    key("watchdog.poll",          Limit,       InForce, "how long a poll may see no change"),
    key("watchdog.tool",          Limit,       InForce, "the longest tool call"),
    key("watchdog.start",         Limit,       InForce, "until the first output"),
    key("watchdog.idle",          Limit,       InForce, "the longest silence"),
    key("watchdog.evidence_ttl",  Ttl,         InForce, "how long evidence on other channels stays fresh"),
    key("watchdog.human",         Limit,       InForce, "how long an agent may wait for a person's answer"),

    key("errors.max",             Count,       InForce, "failed sessions, alike or instant, that end the run"),
    key("errors.window",          Span,        InForce, "the time within which they count"),

    key("budget.iterations",      CountLimit,  InForce, "iterations the run may use"),
    key("budget.time",            Limit,       InForce, "time the run may use"),
    key("budget.tokens",          CountLimit,  InForce, "tokens the run may use"),
    key("budget.cost_usd",        Amount,      InForce, "money the run may use"),
    key("budget.day.tokens",      CountLimit,  InForce, "tokens all runs of the project may use in a day"),
    key("budget.day.cost_usd",    Amount,      InForce, "money all runs of the project may use in a day"),

    key("limits.max_wait",        Span,        InForce, "the longest wait for a rate limit to end"),
    key("limits.overload_retries", Count,      InForce, "tries while the service is overloaded"),

    key("checks.timeout",         Span,        InForce, "the longest check"),
    key("checks.tampered",        OneOf(&["fail", "warn"]), InForce, "what to do when a pinned file changed"),

    key("recovery.budget",        UpTo(MAX_RECOVERIES), InForce, "hard stops in a row that are recovered from"),
    key("recovery.template",      Text,        InForce, "a file with the prompt after a hard stop"),
    key("recovery.resume",        Flag,        InForce, "go on in the agent's own session"),
    key("recovery.agents",        Agents,      InForce, "agents that stand in, in their order"),

    key("notify.on",              NotifyOn,        InForce, "what is news"),
    key("notify.command",         Text,        InForce, "run with the news on its stdin"),
    key("notify.webhook",         Webhook,     InForce, "where the news is posted to"),
];

/// Other names for keys, from files written for other tools.
const ALIASES: &[(&str, &str)] = &[
    ("max_ralph_iters", "max_iterations"),
    ("agent_idle_activity_evidence_ttl_seconds", "watchdog.evidence_ttl"),
    ("watchdog.agent_idle_activity_evidence_ttl_seconds", "watchdog.evidence_ttl"),
];

/// The key at a path, by its own name or another.
pub fn find(path: &str) -> Option<&'static Key> {
    let path = ALIASES.iter().find(|(alias, _)| *alias == path).map_or(path, |(_, path)| path);
    KEYS.iter().find(|key| key.path == path)
}

/// Whether a key stands in a block.
pub fn is_in_block(path: &str, block: &str) -> bool {
    path.strip_prefix(block).is_some_and(|rest| rest.starts_with('.'))
}

/// Whether a dotted key is meant for one of our blocks, whatever stands behind the dot.
pub fn is_in_known_block(path: &str) -> bool {
    path.split_once('.').is_some_and(|(block, _)| keys_in(block).next().is_some())
}

/// Nothing that dogwatch knows: other tools may keep notes of their own.
pub fn is_foreign(name: &str) -> bool {
    find(name).is_none() && keys_in(name).next().is_none() && !is_in_known_block(name)
}

/// The keys inside a block; none if there is no such block.
pub fn keys_in(block: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| is_in_block(key.path, block))
}

/// The names that may stand directly in a block (`""` is the top level), each once.
pub fn names_in(block: &str) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = KEYS
        .iter()
        .filter_map(|key| match block {
            "" => Some(key.path),
            block => key.path.strip_prefix(block)?.strip_prefix('.'),
        })
        .map(|rest| rest.split('.').next().unwrap_or(rest))
        .collect();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_key_of_the_interface_is_in_the_table_once() {
        let mut expected: BTreeSet<String> =
            "agent reader commands args credit delay profile mcp max_iterations work_when recheck pin worktree max_parallel done_when"
                .split(' ')
                .map(str::to_owned)
                .collect();
        for (block, keys) in [
            ("idle", "delay backoff max_delay max stop_after strategy skip_unchanged instruct"),
            ("wake_on", "paths probe every"),
            (
                "watchdog",
                "session children node run errors cycles poll tool start idle evidence_ttl human grace leak result_grace",
            ),
            ("errors", "max window"),
            ("limits", "max_wait overload_retries"),
            ("budget", "iterations time tokens cost_usd day.tokens day.cost_usd"),
            ("checks", "timeout tampered"),
            ("recovery", "budget template resume agents"),
            ("notify", "on command webhook"),
        ] {
            expected.extend(keys.split(' ').map(|key| format!("{block}.{key}")));
        }
        let found: BTreeSet<String> = KEYS.iter().map(|key| key.path.to_owned()).collect();
        assert_eq!(found, expected);
        assert_eq!(found.len(), KEYS.len());
    }

    #[test]
    fn other_names_lead_to_keys() {
        for (alias, path) in ALIASES {
            assert_eq!(find(alias).map(|key| key.path), Some(*path));
        }
    }

    #[test]
    fn blocks_know_their_keys() {
        assert_eq!(names_in("budget"), ["iterations", "time", "tokens", "cost_usd", "day"]);
        assert_eq!(names_in("budget.day"), ["tokens", "cost_usd"]);
        assert!(names_in("").contains(&"watchdog"));
        assert_eq!(keys_in("agent").count(), 0);
        assert!(find("mcpx").is_none() && find("agent.x").is_none());
        assert!(is_in_known_block("idle.x") && !is_in_known_block("idle") && !is_in_known_block("x.idle"));
    }
}
