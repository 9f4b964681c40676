//! How things are said: durations, sizes, counts, and the sentence for each event.

use super::lines::{Line, Tone, line};
use dogwatch_core::dur::Dur;
use dogwatch_core::event::{
    CommandFinished, EndStep, EndedBy, NodeAttempt, RecoveryPlanned, Report, ReportKind, SessionEnded,
    WaitWhy,
};
use dogwatch_core::moment::Wall;
use dogwatch_core::recovery::Action;
use dogwatch_core::text::one_line;
use dogwatch_core::view::Used;

/// How much of an agent's words a line shows.
const MAX_SAID: usize = 100;

/// `0.3s`, `46.2s`, `2m 05s`, `1h 02m`.
pub fn span(d: Dur) -> String {
    let s = d.as_millis() / 1000;
    match s {
        0..60 => format!("{:.1}s", d.as_secs_f64()),
        60..3600 => format!("{}m {:02}s", s / 60, s % 60),
        _ => format!("{}h {:02}m", s / 3600, s / 60 % 60),
    }
}

/// Whole seconds, for what is counted on the screen: `7s`, `2m 05s`.
pub fn clock(d: Dur) -> String {
    let s = d.as_millis() / 1000;
    if s < 60 { format!("{s}s") } else { span(d) }
}

/// `120s`, `0.5s`: waits are compared with each other, so all in one unit.
pub fn seconds(d: Dur) -> String {
    if d.as_millis().is_multiple_of(1000) {
        format!("{}s", d.as_millis() / 1000)
    } else {
        format!("{}s", d.as_secs_f64())
    }
}

/// How long a wait is: `30s`, `0.5s`, `59m 59s`.
pub fn length(d: Dur) -> String {
    if d.as_millis() < 60_000 { seconds(d) } else { span(d) }
}

/// `812 B`, `3.2 kB`, `1.4 MB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

pub fn count(n: u64, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

/// `3rd`
pub fn nth(n: u64) -> String {
    let end = match (n % 10, n % 100) {
        (1, r) if r != 11 => "st",
        (2, r) if r != 12 => "nd",
        (3, r) if r != 13 => "rd",
        _ => "th",
    };
    format!("{n}{end}")
}

/// `tests exit 1 (2.1s)`
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

/// How the checks judged an attempt: one line if all pass, else what failed and the end of what it said.
pub fn attempt(a: &NodeAttempt) -> Vec<Line> {
    let all = a.results.len();
    if a.converged {
        let flaky = a.results.iter().filter(|r| r.flaky).count();
        let flaky = if flaky > 0 { format!(", {flaky} flaky") } else { String::new() };
        let pass = if all == 1 { "passes" } else { "pass" };
        return line(Tone::Good, format!("  {} {pass}{flaky}", count(all as u64, "check")));
    }
    let mut lines = Vec::new();
    for r in a.results.iter().filter(|r| r.rc != 0) {
        let how = if r.timed_out { "timed out".to_owned() } else { format!("exit {}", r.rc) };
        let cmd = one_line(&r.cmd, MAX_SAID);
        lines.extend(line(Tone::Bad, format!("  check failed: {cmd} ({how}, {})", span(r.duration_s))));
        let said = r.tail.as_deref().unwrap_or_default().lines().rev().map(str::trim).find(|l| !l.is_empty());
        lines.extend(
            said.map(|said| one_line(said, MAX_SAID))
                .into_iter()
                .flat_map(|said| line(Tone::Quiet, format!("    {said}"))),
        );
    }
    lines
}

/// What is done about an end that was no good one.
pub fn recovery(plan: &RecoveryPlanned) -> String {
    let budget = match plan.budget {
        0 => String::new(),
        budget => format!(", {} of {budget}", plan.used.min(budget)),
    };
    match (plan.action, &plan.next_agent) {
        (Action::Retry, _) => format!("recovery: the next prompt says what went wrong{budget}"),
        (Action::NextAgent, Some(next)) => {
            format!("recovery: {} rests, {next} goes on", plan.agent.as_deref().unwrap_or("the agent"))
        }
        (Action::NextAgent, None) | (Action::Wait, _) => format!("recovery: waiting ({})", plan.class),
        (Action::Stop, _) => format!("recovery: nothing more is tried ({})", plan.class),
    }
}

/// `12 messages, 7 tools, 3 left-over processes ended`
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
    if s.stragglers > 0 {
        parts.push(format!(
            "{} left behind, ended",
            count(s.stragglers, "process").replace("processs", "processes")
        ));
    }
    parts.join(", ")
}

/// `12345 tokens`, `12345 tokens and 2 sessions that did not say`, `tokens unknown`
pub fn tokens(used: &Used) -> String {
    match (used.tokens, used.unknown_tokens) {
        (0, 0) => "no tokens".to_owned(),
        (0, _) => "tokens unknown".to_owned(),
        (n, silent) => format!("{n} tokens{}", silent_sessions(silent)),
    }
}

/// `$0.42`, `$0.42 and 2 sessions that did not say`, `cost unknown`
pub fn cost(used: &Used) -> String {
    match (used.cost_usd, used.unknown_cost) {
        (usd, 0) if usd <= 0.0 => "no cost".to_owned(),
        (usd, _) if usd <= 0.0 => "cost unknown".to_owned(),
        (usd, silent) => format!("${usd:.2}{}", silent_sessions(silent)),
    }
}

fn silent_sessions(n: u64) -> String {
    if n == 0 { String::new() } else { format!(" and {} that did not say", count(n, "session")) }
}

/// A step of ending a session, and what a person at the keys may do about it.
pub fn end_step(step: EndStep, by: EndedBy) -> &'static str {
    match (step, by) {
        (EndStep::Interrupt, EndedBy::Operator) => "interrupting the agent; Ctrl-C again kills it",
        (EndStep::Interrupt, _) => "interrupting the agent",
        (EndStep::Terminate, _) => "it did not end; terminating it",
        (EndStep::Kill, _) => "killing it",
    }
}

pub fn said(s: &SessionEnded) -> String {
    one_line(&s.said, MAX_SAID)
}

/// What an agent told beside its output.
pub fn report(r: &Report) -> String {
    let what = match r.kind {
        ReportKind::State => "the agent says",
        ReportKind::Progress => "progress",
        ReportKind::Error => "the agent reports an error",
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

/// What to do about a run that sleeps.
pub const ASLEEP: &str = "asleep: `dogwatch wake` continues it, Ctrl-C ends it";

/// `no pending tasks; entering sleep mode after 8 idle iterations`
pub fn slept(reason: &str, consecutive: u64) -> String {
    let count = count(consecutive, "idle iteration");
    format!("{}; entering sleep mode after {count}", reason.replace('_', " "))
}

/// A reader that does not know most of what it reads.
pub const DRIFTED: &str = "most lines of this agent are unknown; falling back to bytes (is it a newer version than this dogwatch knows?)";

/// `retrying a request (HTTP 529), the next try in 30s`
pub fn retrying(status: Option<u16>, delay: Option<Dur>) -> String {
    let status = status.map_or_else(String::new, |status| format!(" (HTTP {status})"));
    let delay = delay.map_or_else(String::new, |delay| format!(", the next try in {}", length(delay)));
    format!("retrying a request{status}{delay}")
}

/// Until when a person may answer, if there is an end to it.
pub fn until(until: Option<Wall>) -> String {
    until.map_or_else(String::new, |until| format!(" (ended without an answer at {until})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_said_to_be_unknown_and_never_zero() {
        let used = |tokens, unknown_tokens| Used { tokens, unknown_tokens, ..Used::default() };
        let told = [used(0, 0), used(0, 2), used(7, 0), used(7, 1)].map(|u| tokens(&u));
        assert_eq!(
            told.join(" | "),
            "no tokens | tokens unknown | 7 tokens | 7 tokens and 1 session that did not say"
        );
        let used = |cost_usd, unknown_cost| Used { cost_usd, unknown_cost, ..Used::default() };
        let told = [used(0.0, 0), used(0.0, 2), used(0.425, 0), used(1.5, 2)].map(|u| cost(&u));
        assert_eq!(
            told.join(" | "),
            "no cost | cost unknown | $0.42 | $1.50 and 2 sessions that did not say"
        );
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
    }
}
