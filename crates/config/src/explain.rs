//! Lists every setting with its value and origin, for `dogwatch check --explain`.

use crate::commands;
use crate::effective;
use crate::keys::{KEYS, Key};
use crate::layers::{Idle, Layers};
use crate::mcp;
use dogwatch_core::settings::{GraphPlan, IdlePolicy, Profile, Settings, StopAfter, Strategy, Ttl};
use dogwatch_core::text::figures::count;
use dogwatch_core::text::one_line;
use dogwatch_core::text::shell::{self, quote};
use serde::Serialize;
use std::fmt::Write as _;

/// One setting with its value and origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The dotted path of the key.
    pub key: &'static str,
    /// The effective value, as it would be written in a file.
    pub value: String,
    /// Where the value comes from: `built-in (profile standard)`, `RALPH.md:4:8`, `flag --delay`.
    pub origin: String,
    /// The description of the key.
    pub doc: &'static str,
}

/// The only key that does not apply to loops.
const MAX_PARALLEL: &str = "max_parallel";

/// Returns all settings in the order of the key table.
pub fn explain(settings: &Settings, graph: Option<&GraphPlan>, layers: &Layers<'_>) -> Vec<Setting> {
    KEYS.iter()
        .filter(|key| graph.is_some() || key.path != MAX_PARALLEL)
        .map(|key| Setting {
            key: key.path,
            value: value(key.path, settings, graph, layers).unwrap_or_default(),
            origin: origin(key, settings, graph.is_some(), layers),
            doc: key.doc,
        })
        .collect()
}

fn origin(key: &Key, settings: &Settings, graph: bool, layers: &Layers<'_>) -> String {
    if let Some(assigned) = layers.get(key.path) {
        return assigned.origin.show();
    }
    if let Some(learned) = learned(key.path, settings) {
        return learned;
    }
    match key.path {
        "watchdog.session" | "watchdog.children" | "watchdog.tool" | "watchdog.start" => {
            format!("built-in (profile {})", settings.profile.as_str())
        }
        "watchdog.idle" => {
            let by_agent = match (settings.profile, settings.reader.is_structured()) {
                (Profile::Standard | Profile::Learned, true) => ", structured agent",
                (Profile::Standard | Profile::Learned, false) => ", plain agent",
                (Profile::Quick | Profile::Deep, _) => "",
            };
            format!("built-in (profile {}{by_agent})", settings.profile.as_str())
        }
        "external.session" | "external.idle" => {
            format!("built-in (profile {})", effective::external_profile(layers).as_str())
        }
        "reader" => "from `agent`".to_owned(),
        "attempts" => format!("built-in (of {} files)", if graph { "graph" } else { "loop" }),
        "max_iterations" if settings.checks.any() => {
            format!("built-in (`attempts: {}`)", settings.checks.attempts.as_str())
        }
        path if path.starts_with("idle.") => match &layers.idle {
            Some(Idle::Off(off)) => off.show(),
            _ if path == "idle.stop_after" && layers.get("idle.max").is_some() => {
                "built-in (`idle.max` is set)".to_owned()
            }
            _ if path == "idle.stop_after" && learns(settings) => {
                "built-in (`idle.strategy` is `learned`)".to_owned()
            }
            _ if path == "idle.longest" && layers.get("idle.max_delay").is_some() => {
                "`idle.max_delay`".to_owned()
            }
            _ if path == "idle.look" && settings.idle.is_some() => {
                format!("built-in ({} if the agent is not called)", IdlePolicy::FREE_LOOK)
            }
            Some(Idle::On(_)) => "built-in".to_owned(),
            None if settings.idle.is_some() => "built-in (`work_when` is set)".to_owned(),
            None => "built-in (no `idle` block)".to_owned(),
        },
        _ => "built-in".to_owned(),
    }
}

/// Returns the origin of a limit that follows from recorded sessions.
fn learned(path: &str, settings: &Settings) -> Option<String> {
    let of_path = |key: &str| key == path || key.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    let mut of_path = settings.learned.iter().filter(|estimate| of_path(&estimate.key));
    let first = of_path.next()?;
    let sessions = count(first.sessions, "good session");
    let was = first.now_s.map_or_else(none, |now| now.to_string());
    Some(match of_path.count() {
        0 => format!("learned ({sessions}, {was} without them)"),
        more => format!("learned ({} tools, {sessions}, {was} without them)", more + 1),
    })
}

fn learns(settings: &Settings) -> bool {
    settings.idle.as_ref().is_some_and(|idle| idle.strategy == Strategy::Learned)
}

/// Returns the value of a setting as it would be written in a file; none if the path is unknown.
pub(crate) fn value(
    path: &str,
    settings: &Settings,
    graph: Option<&GraphPlan>,
    layers: &Layers<'_>,
) -> Option<String> {
    if let Some(key) = path.strip_prefix("external.") {
        return external_value(key, layers);
    }
    if let Some(key) = path.strip_prefix("idle.") {
        return settings.idle.as_ref().map_or(Some("off".to_owned()), |idle| idle_value(key, idle));
    }
    let watchdog = &settings.watchdog;
    Some(match path {
        "agent" => command_line(&settings.agent),
        "reader" => settings.reader.to_string(),
        "commands" => list(settings.commands.iter().map(commands::show), "; "),
        "args" => list(settings.args.iter().map(|(name, value)| format!("{name}={}", quote(value))), " "),
        "credit" => settings.credit.to_string(),
        "delay" => settings.delay.to_string(),
        "profile" => settings.profile.as_str().to_owned(),
        "attempts" => settings.checks.attempts.as_str().to_owned(),
        "max_iterations" => match settings.checks.max_stalled {
            Some(max) => format!("{max} without progress"),
            None => or_off(settings.max_iterations),
        },
        MAX_PARALLEL => graph?.max_parallel.to_string(),
        "work_when" => settings.work_when.clone().unwrap_or_else(none),
        "mcp" => mcp::show(&settings.mcp),
        "wake_on.paths" => list(settings.wake_on.paths.iter().cloned(), ", "),
        "wake_on.probe" => settings.wake_on.probe.clone().unwrap_or_else(none),
        "wake_on.every" => settings.wake_on.every.to_string(),
        "watchdog.session" => watchdog.session.to_string(),
        "watchdog.children" => watchdog.children.to_string(),
        "watchdog.node" => watchdog.node.to_string(),
        "watchdog.run" => watchdog.run.to_string(),
        "watchdog.errors" => or_off(watchdog.errors),
        "watchdog.cycles" => or_off(watchdog.cycles),
        "watchdog.poll" => watchdog.poll.to_string(),
        "watchdog.tool" => watchdog.tool.to_string(),
        "watchdog.tools" => list(watchdog.tools.iter().map(|(tool, limit)| format!("{tool}: {limit}")), ", "),
        "watchdog.start" => watchdog.start.to_string(),
        "watchdog.idle" => watchdog.idle.to_string(),
        "watchdog.evidence_ttl" => match watchdog.evidence_ttl {
            Ttl::Auto => "auto".to_owned(),
            Ttl::Fixed(dur) => dur.to_string(),
        },
        "watchdog.human" => watchdog.human.to_string(),
        "watchdog.grace" => watchdog.grace.to_string(),
        "watchdog.leak" => watchdog.leak.to_string(),
        "watchdog.result_grace" => watchdog.result_grace.to_string(),
        "errors.max" => settings.errors.max.to_string(),
        "errors.window" => settings.errors.window.to_string(),
        "budget.iterations" => or_off(settings.budget.iterations),
        "budget.time" => or_off(settings.budget.time),
        "budget.tokens" => or_off(settings.budget.tokens),
        "budget.day.tokens" => or_off(settings.budget.day.tokens),
        "budget.day.cost_usd" => or_off(settings.budget.day.cost_usd),
        "budget.window.five_hour" => or_off(settings.budget.window.five_hour),
        "budget.window.seven_day" => or_off(settings.budget.window.seven_day),
        "budget.cost_usd" => or_off(settings.budget.cost_usd),
        "done_when" => list(settings.checks.commands.iter().cloned(), "; "),
        "recheck" => settings.checks.recheck.to_string(),
        "pin" => list(settings.checks.pin.iter().cloned(), ", "),
        "sandbox" => settings.sandbox.mode.as_str().to_owned(),
        "sandbox.write" => list(settings.sandbox.write.iter().cloned(), ", "),
        "sandbox.read" => list(settings.sandbox.read.iter().cloned(), ", "),
        "sandbox.ports" => list(settings.sandbox.ports.iter().map(ToString::to_string), ", "),
        "sandbox.required" => settings.sandbox.required.to_string(),
        "redact" => list(settings.redact.iter().cloned(), ", "),
        "worktree" => settings.worktree.to_string(),
        "setup" => list(settings.setup.iter().cloned(), "; "),
        "merge" => settings.merge.as_str().to_owned(),
        "checks.timeout" => settings.checks.timeout.to_string(),
        "checks.tampered" => settings.checks.tampered.to_string(),
        "recovery.budget" => settings.recovery.budget.to_string(),
        "recovery.template" => settings.recovery.template.clone().unwrap_or_else(|| "built in".to_owned()),
        "recovery.resume" => settings.recovery.resume.to_string(),
        "recovery.agents" => {
            list(settings.recovery.agents.iter().map(|other| command_line(&other.agent)), "; ")
        }
        // The default needs a target to have an effect.
        "notify.on" if settings.notify.on.is_empty() && settings.notify.targets().is_empty() => {
            "all".to_owned()
        }
        "notify.on" => list(settings.notify.on.iter().map(ToString::to_string), ", "),
        "notify.command" => settings.notify.command.clone().unwrap_or_else(none),
        // Redacted: anyone who knows the address can post to it.
        "notify.webhook" => {
            settings.notify.webhook.as_ref().map_or_else(none, |hook| hook.redacted().as_str().to_owned())
        }
        "notify.ntfy" => {
            settings.notify.ntfy.as_ref().map_or_else(none, |topic| topic.redacted().as_str().to_owned())
        }
        "notify.slack" => {
            settings.notify.slack.as_ref().map_or_else(none, |hook| hook.redacted().as_str().to_owned())
        }
        "notify.discord" => {
            settings.notify.discord.as_ref().map_or_else(none, |hook| hook.redacted().as_str().to_owned())
        }
        "notify.telegram.token" => {
            settings.notify.telegram.as_ref().map_or_else(none, |bot| bot.redacted().token)
        }
        "notify.telegram.chat" => settings.notify.telegram.as_ref().map_or_else(none, |bot| bot.chat.clone()),
        "notify.telegram.api" => {
            let api = settings.notify.telegram.as_ref().and_then(|bot| bot.api.as_ref());
            api.map_or_else(none, |api| api.redacted().as_str().to_owned())
        }
        "notify.desktop" => settings.notify.desktop.to_string(),
        "limits.max_wait" => settings.limits.max_wait.to_string(),
        "limits.overload_retries" => settings.limits.overload_retries.to_string(),
        _ => return None,
    })
}

/// Returns the value of a setting for external agents. They belong to `dogwatch serve`, so the settings of a run do not
/// contain their limits.
fn external_value(key: &str, layers: &Layers<'_>) -> Option<String> {
    let policy = effective::external(layers);
    Some(match key {
        "profile" => effective::external_profile(layers).as_str().to_owned(),
        "session" => policy.session.to_string(),
        "idle" => policy.idle.to_string(),
        "errors" => or_off(policy.errors),
        _ => return None,
    })
}

fn idle_value(key: &str, idle: &IdlePolicy) -> Option<String> {
    Some(match key {
        "delay" => idle.delay.to_string(),
        "backoff" => idle.backoff.to_string(),
        "max_delay" => idle.max_delay.to_string(),
        "max" => or_off(idle.max),
        "stop_after" => match &idle.stop_after {
            StopAfter::Never => "off".to_owned(),
            StopAfter::Count(count) => count.to_string(),
            StopAfter::PerReason(limits) => {
                list(limits.iter().map(|(reason, n)| format!("{reason}: {n}")), ", ")
            }
        },
        "strategy" => idle.strategy.as_str().to_owned(),
        "look" => idle.look_cost(false).to_string(),
        "longest" => idle.longest.to_string(),
        "skip_unchanged" => idle.skip_unchanged.to_string(),
        "instruct" => idle.instruct.to_string(),
        "after_stop" => idle.after_stop.to_string(),
        _ => return None,
    })
}

/// Formats a command line.
fn command_line(agent: &[String]) -> String {
    if agent.is_empty() {
        return none();
    }
    shell::command_line(agent)
}

fn none() -> String {
    "none".to_owned()
}

fn or_off<T: ToString>(limit: Option<T>) -> String {
    limit.map_or("off".to_owned(), |limit| limit.to_string())
}

fn list(items: impl Iterator<Item = String>, between: &str) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { none() } else { items.join(between) }
}

/// The table truncates longer values. The journal holds them in full.
const MAX_VALUE_BYTES: usize = 60;

/// The widest column of values, in characters. A longer value shifts only its own origin, so that the table fits a
/// terminal.
const MAX_VALUE_COLUMN: usize = 12;

/// Formats the settings as an aligned table of key, value and origin.
pub fn table(settings: &[Setting]) -> String {
    let rows: Vec<[String; 3]> = settings
        .iter()
        .map(|s| [s.key.to_owned(), one_line(&s.value, MAX_VALUE_BYTES), one_line(&s.origin, usize::MAX)])
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (key_width, value_width) = (width(0), width(1).min(MAX_VALUE_COLUMN));
    let mut out = String::new();
    for [key, value, origin] in &rows {
        let _ = writeln!(out, "{key:key_width$}  {value:value_width$}  {origin}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::settings::{Budget, ReaderName};

    #[test]
    fn every_key_has_a_value_to_show() {
        let settings = Settings {
            idle: Some(IdlePolicy::default()),
            ..Settings::of(vec!["a".to_owned()], ReaderName::Plain)
        };
        let graph = GraphPlan { max_parallel: 4, budget: Budget::default() };
        for key in KEYS {
            let value = value(key.path, &settings, Some(&graph), &Layers::default());
            assert!(value.is_some(), "{} has no value to show", key.path);
        }
    }

    #[test]
    fn the_table_is_aligned_and_has_no_control_characters() {
        let row = |key, value: &str| Setting {
            key,
            value: value.to_owned(),
            origin: "built-in".to_owned(),
            doc: "",
        };
        let rows = [row("agent", "clau\u{1b}[31mde"), row("idle.max_delay", "5m")];
        assert_eq!(table(&rows), "agent           claude  built-in\nidle.max_delay  5m      built-in\n");
        let long = "x".repeat(MAX_VALUE_COLUMN + 1);
        let expected = format!("agent     {long}  built-in\nidle.max  {:12}  built-in\n", "5m");
        assert_eq!(table(&[row("agent", &long), row("idle.max", "5m")]), expected);
    }
}
