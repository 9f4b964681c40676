//! Formats durations, sizes, counts and events as text.

use super::lines::{ScreenLine, Tone, line};
use dogwatch_core::record::event::{
    CommandFinished, EndStep, EndedBy, NodeAttempt, RecoveryPlanned, Report, ReportKind, SessionEnded,
    WaitEndedBy, WaitWhy,
};
use dogwatch_core::record::view::Used;
use dogwatch_core::run::recovery::Action;
use dogwatch_core::text::one_line;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;

/// The most of an agent's text to show on a line, in bytes.
const MAX_SHOWN: usize = 100;

/// Formats a duration: `0.3s`, `46.2s`, `2m 05s`, `1h 02m`.
pub fn span(d: Dur) -> String {
    let s = d.as_millis() / 1000;
    match s {
        0..60 => format!("{:.1}s", d.as_secs_f64()),
        60..3600 => format!("{}m {:02}s", s / 60, s % 60),
        _ => format!("{}h {:02}m", s / 3600, s / 60 % 60),
    }
}

/// Formats a duration in whole seconds, for countdowns: `7s`, `2m 05s`.
pub fn clock(d: Dur) -> String {
    let s = d.as_millis() / 1000;
    if s < 60 { format!("{s}s") } else { span(d) }
}

/// Formats a wait in seconds: `120s`, `0.5s`. One unit makes successive waits easy to compare.
pub fn seconds(d: Dur) -> String {
    if d.as_millis().is_multiple_of(1000) {
        format!("{}s", d.as_millis() / 1000)
    } else {
        format!("{}s", d.as_secs_f64())
    }
}

/// Formats the length of a wait: `30s`, `0.5s`, `59m 59s`.
pub fn length(d: Dur) -> String {
    if d.as_millis() < 60_000 { seconds(d) } else { span(d) }
}

/// Formats a size: `812 B`, `3.2 kB`, `1.4 MB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// Formats a count with a regular plural: `1 tool`, `2 tools`, `3 processes`.
pub fn count(n: u64, one: &str) -> String {
    match n {
        1 => format!("1 {one}"),
        n if one.ends_with('s') => format!("{n} {one}es"),
        n => format!("{n} {one}s"),
    }
}

/// Formats an ordinal: `3rd`.
pub fn nth(n: u64) -> String {
    let end = match (n % 10, n % 100) {
        (1, r) if r != 11 => "st",
        (2, r) if r != 12 => "nd",
        (3, r) if r != 13 => "rd",
        _ => "th",
    };
    format!("{n}{end}")
}

/// Formats the result of a command: `tests exit 1 (2.1s)`.
pub fn command(c: &CommandFinished) -> String {
    let how = match (c.timed_out, c.exit_code, c.signal) {
        (true, _, _) => " timed out".to_owned(),
        (false, Some(0), _) => String::new(),
        (false, Some(code), _) => format!(" exit {code}"),
        (false, None, Some(signal)) => format!(" signal {signal}"),
        (false, None, None) => " not started".to_owned(),
    };
    format!("{}{how} ({})", c.name, span(c.duration_s))
}

/// Formats the results of the checks: one line if all pass, otherwise each failed check with the last line of its
/// output.
pub fn attempt(a: &NodeAttempt) -> Vec<ScreenLine> {
    let all = a.results.len();
    if a.converged {
        let flaky = a.results.iter().filter(|r| r.flaky).count();
        let flaky = if flaky > 0 { format!(", {flaky} flaky") } else { String::new() };
        return line(Tone::Good, format!("  {} passed{flaky}", count(all as u64, "check")));
    }
    let mut lines = Vec::new();
    for r in a.results.iter().filter(|r| r.rc != 0) {
        let how = if r.timed_out { "timed out".to_owned() } else { format!("exit {}", r.rc) };
        let cmd = one_line(&r.cmd, MAX_SHOWN);
        lines.extend(line(Tone::Bad, format!("  check failed: {cmd} ({how}, {})", span(r.duration_s))));
        let said = r.tail.as_deref().unwrap_or_default().lines().rev().map(str::trim).find(|l| !l.is_empty());
        lines.extend(
            said.map(|said| one_line(said, MAX_SHOWN))
                .into_iter()
                .flat_map(|said| line(Tone::Quiet, format!("    {said}"))),
        );
    }
    lines
}

/// Describes the recovery plan after an iteration that did not succeed.
pub fn recovery(plan: &RecoveryPlanned) -> String {
    let budget = match plan.budget {
        0 => String::new(),
        budget => format!(", {} of {budget}", plan.used.min(budget)),
    };
    match (plan.action, &plan.next_agent) {
        (Action::Retry, _) => format!("recovery: retrying with a prompt that explains the failure{budget}"),
        (Action::NextAgent, Some(next)) => {
            format!("recovery: switching from {} to {next}", plan.agent.as_deref().unwrap_or("the agent"))
        }
        (Action::NextAgent, None) | (Action::Wait, _) => format!("recovery: waiting ({})", plan.class),
        (Action::Stop, _) => format!("recovery: giving up ({})", plan.class),
    }
}

/// Summarizes a session: `12 messages, 7 tools; killed 3 leftover processes`.
pub fn session(s: &SessionEnded) -> String {
    let mut parts = vec![count(s.messages, "message")];
    if s.tools > 0 {
        parts.push(count(s.tools, "tool"));
    }
    if let Some(tokens) = s.tokens {
        parts.push(format!("{tokens} tokens"));
    }
    if let Some(cost) = s.cost_usd {
        parts.push(format!("${cost:.2}"));
    }
    let killed = match s.leftovers {
        0 => String::new(),
        n => format!("; killed {}", count(n, "leftover process")),
    };
    parts.join(", ") + &killed
}

/// Formats how an iteration ended: `completed in 46.2s`, `timed out after 5.0s (watchdog)`.
pub fn ended(word: &str, took: Dur, because: Option<&str>) -> String {
    let preposition = if word == "completed" { "in" } else { "after" };
    let why = because.map_or_else(String::new, |because| {
        // The parentheses already say that this is the cause.
        let short = because.strip_prefix("ended by the ").or_else(|| because.strip_prefix("ended by "));
        format!(" ({})", short.unwrap_or(because))
    });
    format!("{word} {preposition} {}{why}", span(took))
}

/// Formats used tokens: `12345 tokens`, `12345 tokens (2 sessions unknown)`, `tokens unknown`.
pub fn tokens(used: &Used) -> String {
    match (used.tokens, used.unknown_tokens) {
        (0, 0) => "no tokens".to_owned(),
        (0, _) => "tokens unknown".to_owned(),
        (n, unknown) => format!("{n} tokens{}", unknown_sessions(unknown)),
    }
}

/// Formats a cost: `$0.42`, `$0.42 (2 sessions unknown)`, `cost unknown`.
pub fn cost(used: &Used) -> String {
    match (used.cost_usd, used.unknown_cost) {
        (usd, 0) if usd <= 0.0 => "no cost".to_owned(),
        (usd, _) if usd <= 0.0 => "cost unknown".to_owned(),
        (usd, unknown) => format!("${usd:.2}{}", unknown_sessions(unknown)),
    }
}

fn unknown_sessions(n: u64) -> String {
    if n == 0 { String::new() } else { format!(" ({} unknown)", count(n, "session")) }
}

/// Describes a step of stopping a session, and what the operator can do next.
pub fn end_step(step: EndStep, by: EndedBy) -> &'static str {
    match (step, by) {
        (EndStep::Interrupt, EndedBy::Operator) => "interrupting the agent; Ctrl-C again kills it",
        (EndStep::Interrupt, _) => "interrupting the agent",
        (EndStep::Terminate, _) => "the agent did not exit; terminating it",
        (EndStep::Kill, _) => "killing the agent",
    }
}

/// Returns the first line of the agent's final message, shortened.
pub fn said(s: &SessionEnded) -> String {
    one_line(&s.said, MAX_SHOWN)
}

/// Describes a report that the agent sent through MCP.
pub fn report(r: &Report) -> String {
    let what = match r.kind {
        ReportKind::State => "agent state",
        ReportKind::Progress => "progress",
        ReportKind::Error => "agent error",
        ReportKind::Artifact => "artifact saved",
        ReportKind::Checks => "checks",
        ReportKind::Server => "MCP server",
    };
    let share = match (r.done, r.total) {
        (Some(done), Some(total)) => format!(" ({done}/{total})"),
        (Some(done), None) => format!(" ({done})"),
        (None, _) => r.bytes.map(|bytes| format!(" ({})", size(bytes))).unwrap_or_default(),
    };
    format!("{what}: {}{share}", r.text)
}

/// Describes the reason for a wait.
pub fn wait(why: WaitWhy) -> &'static str {
    match why {
        WaitWhy::Paused => "paused",
        WaitWhy::RateLimit => "rate limited",
        WaitWhy::Idle => "idle",
        WaitWhy::Error => "after an error",
        WaitWhy::Recovery => "before recovery",
        WaitWhy::Backoff => "before the next attempt",
        WaitWhy::Delay => "between iterations",
        WaitWhy::Asleep => "asleep",
    }
}

/// The label of a run that is asleep, with the commands for it.
pub const ASLEEP: &str = "asleep: `dogwatch wake` continues it, Ctrl-C ends it";

/// Describes an idle stop: `no pending tasks; entering sleep mode after 8 idle iterations`.
pub fn slept(reason: &str, consecutive: u64) -> String {
    let count = count(consecutive, "idle iteration");
    format!("{}; entering sleep mode after {count}", reason.replace('_', " "))
}

/// Describes the early end of a wait: `woken (api)`, or `wait ended (budget)` if the run is about to end.
pub fn wait_ended(by: WaitEndedBy) -> String {
    match by {
        WaitEndedBy::Budget | WaitEndedBy::Ceiling => format!("wait ended ({by})"),
        WaitEndedBy::Timer
        | WaitEndedBy::Operator
        | WaitEndedBy::Path
        | WaitEndedBy::Probe
        | WaitEndedBy::Api
        | WaitEndedBy::Signal => format!("woken ({by})"),
    }
}

/// The health issue of an agent that waits for an answer.
pub const NEEDS_HUMAN: &str = "needs human input";

/// The health issue of an agent whose output format dogwatch mostly does not recognize.
pub const DRIFTED: &str =
    "most output lines are not recognized; counting bytes instead (is the agent newer than this dogwatch?)";

/// Describes a request that the agent retries: `retrying a request (HTTP 529), next attempt in 30s`.
pub fn retrying(status: Option<u16>, delay: Option<Dur>) -> String {
    let status = status.map_or_else(String::new, |status| format!(" (HTTP {status})"));
    let delay = delay.map_or_else(String::new, |delay| format!(", next attempt in {}", length(delay)));
    format!("retrying a request{status}{delay}")
}

/// Formats the deadline for an answer, if there is one.
pub fn until(until: Option<Wall>) -> String {
    until.map_or_else(String::new, |until| format!(" (will be stopped at {until} if unanswered)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_tokens_and_costs_are_never_shown_as_zero() {
        let used = |tokens, unknown_tokens| Used { tokens, unknown_tokens, ..Used::default() };
        let shown = [used(0, 0), used(0, 2), used(7, 0), used(7, 1)].map(|u| tokens(&u));
        assert_eq!(shown.join(" | "), "no tokens | tokens unknown | 7 tokens | 7 tokens (1 session unknown)");
        let used = |cost_usd, unknown_cost| Used { cost_usd, unknown_cost, ..Used::default() };
        let shown = [used(0.0, 0), used(0.0, 2), used(0.425, 0), used(1.5, 2)].map(|u| cost(&u));
        assert_eq!(shown.join(" | "), "no cost | cost unknown | $0.42 | $1.50 (2 sessions unknown)");
    }

    #[test]
    fn figures_read_well_at_every_size() {
        let spans = [300, 46_200, 59_999, 125_000, 3_725_000].map(|ms| span(Dur::from_millis(ms)));
        assert_eq!(spans, ["0.3s", "46.2s", "60.0s", "2m 05s", "1h 02m"]);
        assert_eq!([812, 3_210, 1_400_000].map(size), ["812 B", "3.2 kB", "1.4 MB"]);
        assert_eq!(
            [1, 2, 3, 4, 11, 12, 13, 21, 112].map(nth).join(" "),
            "1st 2nd 3rd 4th 11th 12th 13th 21st 112th"
        );
        assert_eq!([0, 1, 2].map(|n| count(n, "tool")).join(", "), "0 tools, 1 tool, 2 tools");
        assert_eq!([1, 2].map(|n| count(n, "process")).join(", "), "1 process, 2 processes");
    }
}
