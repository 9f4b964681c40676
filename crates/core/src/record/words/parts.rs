//! The sentences that need more than one line of code, and the phrases that other texts share with them.

use super::{MAX_LIST, Sentence, Style, Tone, Weight, spaced};
use crate::record::event::{
    CommandFinished, EndStep, EndedBy, EndingKind, HumanEndedBy, IterationEnd, NodeAttempt, NodeState,
    Observation, Outcome, RecoveryPlanned, Report, ReportKind, RunEnded, RunStarted, SessionEnded, Usage,
    WaitEndedBy, WaitWhy,
};
use crate::record::notification::How;
use crate::record::windows::WindowsUsed;
use crate::run::caller::Source;
use crate::run::recovery::Action;
use crate::settings::{AfterStop, Tampered};
use crate::text::figures::{count, length, nth, size, span};
use crate::text::one_line;
use crate::time::dur::Dur;
use crate::time::moment::Wall;
use crate::watch::Fact;

/// The most of an agent's or a program's text to quote, in bytes.
const MAX_QUOTE: usize = 100;
/// The most of a command line to show, in bytes.
const MAX_COMMAND: usize = 80;

/// The health issue of an agent that waits for an answer.
pub const NEEDS_HUMAN: &str = "needs human input";

/// The health issue of an agent whose output format dogwatch mostly does not recognize.
pub const DRIFTED: &str =
    "most output lines are not recognized; counting bytes instead (is the agent newer than this dogwatch?)";

/// The label of a run that is asleep, with the commands for it.
pub const ASLEEP: &str = "asleep: `dogwatch wake` continues it, Ctrl-C ends it";

pub(super) fn run_started(s: &RunStarted) -> String {
    format!("run {} started: {}", s.run, one_line(&s.agent, MAX_COMMAND))
}

pub(super) fn transition(from: NodeState, to: NodeState, reason: Option<&str>, style: Style) -> String {
    let why = reason.map_or_else(String::new, |r| format!(" ({r})"));
    match style {
        Style::Line => format!("{to}{why}"),
        Style::Full => format!("{from} → {to}{why}"),
    }
}

pub(super) fn state_tone(state: NodeState) -> Tone {
    match state {
        NodeState::Done => Tone::Good,
        NodeState::Failed | NodeState::Blocked => Tone::Bad,
        NodeState::Pending | NodeState::Ready | NodeState::Running => Tone::Quiet,
    }
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

pub(super) fn observed(seen: &Observation) -> String {
    format!("progress on {}, {}", seen.channel, count(seen.count, "time"))
}

pub(super) fn fact(fact: &Fact) -> String {
    match fact {
        Fact::Printed => "first output".to_owned(),
        Fact::Repeated => "an old line or part of a line was printed".to_owned(),
        Fact::Observed(seen) => observed(seen),
        Fact::ToolStarted(tool) => format!("→ {}", call(&tool.name, &tool.subject)),
        Fact::ToolEnded { canceled: true, .. } => "a tool was canceled".to_owned(),
        Fact::ToolEnded { ok: true, .. } => "a tool ended".to_owned(),
        Fact::ToolEnded { error, .. } if error.is_empty() => "a tool failed".to_owned(),
        Fact::ToolEnded { error, .. } => format!("a tool failed: {}", one_line(error, MAX_LIST)),
        Fact::Error { fingerprint } => format!("error: {}", one_line(fingerprint, MAX_LIST)),
        Fact::SubagentStarted { id } => format!("subagent {id} started"),
        Fact::SubagentEnded { id } => format!("subagent {id} ended"),
        Fact::Sampled { children, cpu_ms } => {
            let processes = count(u64::from(*children), "child process");
            format!("{processes}, {} of CPU time", span(Dur::from_millis(*cpu_ms)))
        }
        Fact::NeedsHuman { what } => format!("{NEEDS_HUMAN}: {what}"),
        Fact::Suspended { for_ms } => format!("suspended for {}", length(Dur::from_millis(*for_ms))),
    }
}

/// Formats a tool call: `Bash: make test`.
pub fn call(name: &str, subject: &str) -> String {
    let name = tool(name);
    if subject.is_empty() { name } else { format!("{name}: {subject}") }
}

/// Returns the name of a tool as people know it: `shell` for `command_execution`, `github.search` for
/// `mcp__github__search`.
pub fn tool(name: &str) -> String {
    let known = match name {
        "" => "a tool",
        "command_execution" => "shell",
        "file_change" => "files",
        _ => name.strip_prefix("collab:").unwrap_or(name),
    };
    match known.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")) {
        Some((server, tool)) if !server.is_empty() && !tool.is_empty() => format!("{server}.{tool}"),
        Some(_) | None => known.to_owned(),
    }
}

pub(super) fn fact_tone(fact: &Fact) -> Tone {
    let failed = matches!(fact, Fact::Error { .. } | Fact::ToolEnded { ok: false, canceled: false, .. });
    if failed { Tone::Bad } else { Tone::Quiet }
}

/// Formats the deadline for an answer, if there is one.
pub(super) fn until(until: Option<Wall>) -> String {
    until.map_or_else(String::new, |until| format!(" (will be stopped at {until} if unanswered)"))
}

/// Describes the windows of an account: `windows of claude: five_hour 24% used, seven_day 13% used`.
pub(super) fn windows_used(used: &WindowsUsed) -> String {
    let windows: Vec<String> =
        used.windows.iter().map(|w| format!("{} {} used", w.window, w.used_percent)).collect();
    format!("windows of {}: {}", used.account, windows.join(", "))
}

pub(super) fn limit_set(until: Wall, account: Option<&str>) -> String {
    match account {
        Some(account) => format!("limit set for {account} until {until}"),
        None => format!("limit set until {until}; no agent is called before then"),
    }
}

pub(super) fn human_ended(by: HumanEndedBy) -> &'static str {
    match by {
        HumanEndedBy::Progress => "the agent continues; input is no longer needed",
        HumanEndedBy::Deadline => "no human input arrived in time",
        HumanEndedBy::Session => "the session ended before human input arrived",
    }
}

/// Returns the weight of the end of a wait for a person. After a deadline or the end of a session, the next line already
/// says what happened.
pub(super) fn human_weight(by: HumanEndedBy) -> Weight {
    match by {
        HumanEndedBy::Progress => Weight::Main,
        HumanEndedBy::Deadline | HumanEndedBy::Session => Weight::Detail,
    }
}

pub(super) fn used(usage: &Usage) -> String {
    let tokens = usage.tokens.map_or_else(|| "tokens unknown".to_owned(), |n| count(n, "token"));
    let cost = usage.cost_usd.map_or_else(|| "cost unknown".to_owned(), |usd| format!("${usd:.2}"));
    format!("used so far: {tokens}, {cost}")
}

pub(super) fn marker(state: &str, attrs: &[(String, String)]) -> String {
    let attrs: String = attrs.iter().map(|(key, value)| format!(" {key}={value}")).collect();
    format!("agent state: {state}{attrs}")
}

/// Describes a step of stopping a session. On the screen of `run` it says what the operator can do next.
pub(super) fn end_step(step: EndStep, by: EndedBy, style: Style) -> String {
    let text = match step {
        EndStep::Interrupt => "interrupting the agent",
        EndStep::Terminate => "the agent did not exit; terminating it",
        EndStep::Kill => "killing the agent",
    };
    match (style, step, by) {
        (Style::Line, EndStep::Interrupt, EndedBy::Operator) => format!("{text}; Ctrl-C again kills it"),
        (Style::Line, _, _) => text.to_owned(),
        (Style::Full, _, _) => format!("{text} ({})", spaced(by.as_str())),
    }
}

/// Describes a report that the agent sent through MCP.
pub(super) fn report(r: &Report) -> String {
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

/// Summarizes a session: `12 messages, 7 tools, 1200 tokens, $0.12`.
pub fn session(s: &SessionEnded) -> String {
    let mut parts = vec![count(s.messages, "message")];
    if s.tools > 0 {
        parts.push(count(s.tools, "tool"));
    }
    parts.extend(s.tokens.map(|tokens| count(tokens, "token")));
    let computed = s.prices.as_ref().map(|date| format!(" (list prices of {date})")).unwrap_or_default();
    parts.extend(s.cost_usd.map(|cost| format!("${cost:.2}{computed}")));
    parts.join(", ")
}

/// Describes the leftover processes of a session, if it had some: `killed 1 leftover process: git maintenance run`.
pub fn killed(s: &SessionEnded) -> Option<String> {
    let names = one_line(&s.leftover_names.join(", "), MAX_LIST);
    let named = if names.is_empty() { String::new() } else { format!(": {names}") };
    (s.leftovers > 0).then(|| format!("killed {}{named}", count(s.leftovers, "leftover process")))
}

/// Returns the first line of the agent's final message, shortened.
pub fn said(s: &SessionEnded) -> String {
    one_line(&s.said, MAX_QUOTE)
}

pub(super) fn session_ended(s: &SessionEnded) -> String {
    let how = match (s.ended_by, s.exit_code, s.signal) {
        (EndedBy::NeverStarted, _, _) => "not started".to_owned(),
        (_, Some(code), _) => format!("exit code {code}"),
        (_, None, Some(signal)) => format!("signal {signal}"),
        (_, None, None) => "no exit code".to_owned(),
    };
    let by = Some(s.ended_by).filter(|by| !matches!(by, EndedBy::Itself | EndedBy::NeverStarted));
    let by = by.map_or_else(String::new, |by| format!(", ended by {}", spaced(by.as_str())));
    let said = said(s);
    let said = if said.is_empty() { String::new() } else { format!(": \"{said}\"") };
    let killed = killed(s).map_or_else(String::new, |killed| format!("; {killed}"));
    format!("session ended after {} ({how}{by}){said}; {}{killed}", span(s.duration_s), session(s))
}

pub(super) fn tampered(files: &[String], policy: Tampered) -> String {
    let effect = match policy {
        Tampered::Fail => "; if the agent has to change them, set `checks.tampered: warn`",
        Tampered::Warn => " (the checks run anyway)",
    };
    format!("pinned files changed: {}{effect}", one_line(&files.join(", "), MAX_LIST))
}

pub(super) fn tampered_tone(policy: Tampered) -> Tone {
    match policy {
        Tampered::Fail => Tone::Bad,
        Tampered::Warn => Tone::Quiet,
    }
}

/// Summarizes the checks of an iteration: `2 checks passed`, `1 of 2 checks failed: make test`.
pub(super) fn attempt(a: &NodeAttempt) -> String {
    let all = count(a.results.len() as u64, "check");
    if a.converged {
        let flaky = a.results.iter().filter(|r| r.flaky).count();
        let flaky = if flaky > 0 { format!(", {flaky} flaky") } else { String::new() };
        return format!("{all} passed{flaky}");
    }
    let failed: Vec<&str> = a.results.iter().filter(|r| r.rc != 0).map(|r| r.cmd.as_str()).collect();
    format!("{} of {all} failed: {}", failed.len(), one_line(&failed.join("; "), MAX_LIST))
}

/// Returns a sentence for each failed check, with the last line of its output.
pub fn failed_checks(a: &NodeAttempt) -> impl Iterator<Item = (Sentence, Option<String>)> {
    a.results.iter().filter(|r| r.rc != 0).map(|r| {
        let how = if r.timed_out { "timed out".to_owned() } else { format!("exit {}", r.rc) };
        let cmd = one_line(&r.cmd, MAX_QUOTE);
        let text = format!("check failed: {cmd} ({how}, {})", span(r.duration_s));
        let last = r.tail.as_deref().unwrap_or_default().lines().rev().map(str::trim).find(|l| !l.is_empty());
        (Sentence::new(Weight::Main, Tone::Bad, &text), last.map(|l| one_line(l, MAX_QUOTE)))
    })
}

/// Returns the tone and the words for an ending.
pub fn ending(kind: EndingKind) -> (Tone, &'static str) {
    match kind {
        EndingKind::Completed => (Tone::Good, "completed"),
        EndingKind::Idle => (Tone::Quiet, "idle"),
        EndingKind::Failed => (Tone::Bad, "failed"),
        EndingKind::TimedOut => (Tone::Bad, "timed out"),
        EndingKind::RateLimited => (Tone::Quiet, "rate limited"),
        EndingKind::AuthFailed => (Tone::Bad, "not logged in"),
        EndingKind::Interrupted => (Tone::Bad, "interrupted"),
    }
}

/// Formats how an iteration ended: `completed in 46.2s`, `timed out after 5.0s (watchdog)`.
pub fn ended_after(word: &str, took: Dur, because: Option<&str>) -> String {
    let preposition = if word == "completed" { "in" } else { "after" };
    let why = because.map_or_else(String::new, |because| {
        // The parentheses already say that this is the cause.
        let short = because.strip_prefix("ended by the ").or_else(|| because.strip_prefix("ended by "));
        format!(" ({})", short.unwrap_or(because))
    });
    format!("{word} {preposition} {}{why}", span(took))
}

pub(super) fn iteration_ended(kind: EndingKind, end: &IterationEnd, style: Style) -> (Weight, Tone, String) {
    let (tone, word) = ending(kind);
    let because = match (style, kind) {
        (Style::Line, EndingKind::Completed) => None,
        (_, _) => Some(end.because.as_str()),
    };
    let text = ended_after(word, end.duration_s, because);
    match style {
        Style::Line => (Weight::Main, tone, text),
        Style::Full => (Weight::Main, tone, format!("iteration {} {text}", end.iteration)),
    }
}

pub(super) fn idle(end: &IterationEnd, reason: &str, consecutive: u64, skipped: bool) -> String {
    let called = if skipped { ", agent not called" } else { "" };
    format!("iteration {} idle ({} in a row, {reason}){called}", end.iteration, nth(consecutive))
}

/// Describes the recovery plan after an iteration that did not succeed.
pub(super) fn recovery(plan: &RecoveryPlanned, style: Style) -> String {
    let budget = match plan.budget {
        0 => String::new(),
        budget => format!(", {} of {budget}", plan.used.min(budget)),
    };
    let text = match (plan.action, &plan.next_agent) {
        (Action::Retry, _) => format!("recovery: retrying with a prompt that explains the failure{budget}"),
        (Action::NextAgent, Some(next)) => {
            format!("recovery: switching from {} to {next}", plan.agent.as_deref().unwrap_or("the agent"))
        }
        (Action::NextAgent, None) | (Action::Wait, _) => {
            format!("recovery: waiting ({})", spaced(plan.class.as_str()))
        }
        (Action::Stop, _) => format!("recovery: giving up ({})", spaced(plan.class.as_str())),
    };
    match style {
        Style::Line => text,
        Style::Full => format!("{text}; cause: {}", plan.because),
    }
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

pub(super) fn wait_started(why: WaitWhy, delay: Option<Dur>, style: Style) -> String {
    match (why, delay, style) {
        (WaitWhy::Asleep, _, Style::Line) => ASLEEP.to_owned(),
        (WaitWhy::Asleep, _, Style::Full) => "asleep until `dogwatch wake`".to_owned(),
        (WaitWhy::Paused, _, _) | (_, None, _) => "paused; continue with `dogwatch resume`".to_owned(),
        (WaitWhy::RateLimit | WaitWhy::Idle, Some(delay), _) => {
            format!("waiting {} ({})", length(delay), wait(why))
        }
        (WaitWhy::Error | WaitWhy::Recovery | WaitWhy::Backoff | WaitWhy::Delay, Some(delay), _) => {
            format!("waiting {} {}", length(delay), wait(why))
        }
    }
}

/// Describes the early end of a wait: `woken (api)`, or `wait ended (budget)` if the run is about to end.
pub(super) fn wait_ended(by: WaitEndedBy) -> String {
    let ends = matches!(by, WaitEndedBy::Budget | WaitEndedBy::Ceiling);
    if ends { format!("wait ended ({by})") } else { format!("woken ({by})") }
}

/// Returns the weight of an idle stop. If the run ends, the line about its end says the same.
pub(super) fn slept_weight(after: AfterStop) -> Weight {
    match after {
        AfterStop::Watch => Weight::Main,
        AfterStop::Exit => Weight::Detail,
    }
}

/// Describes a wait that is over: `waited 5m 00s (rate limited, ended by api)`.
pub fn waited(why: WaitWhy, lasted: Dur, by: WaitEndedBy) -> String {
    let by = if by == WaitEndedBy::Timer { String::new() } else { format!(", ended by {by}") };
    format!("waited {} ({}{by})", span(lasted), wait(why))
}

pub(super) fn message(text: &str, from: Source) -> String {
    match from {
        Source::Operator => format!("operator message: {text}"),
        Source::Agent => format!("message from an agent of another run: {text}"),
    }
}

pub(super) fn notified(key: &str, how: How, ok: bool, detail: Option<&str>) -> String {
    let sent = if ok { "sent" } else { "failed" };
    let detail = detail.map_or_else(String::new, |detail| format!(" ({detail})"));
    format!("notification {sent} by {how}: {key}{detail}")
}

/// Returns the result of a run as people say it: `not done` for `catastrophic`.
pub fn result(end: &RunEnded) -> &'static str {
    let is = |outcome| end.outcome == outcome;
    if is(Outcome::Clean) && end.verified {
        "done"
    } else if is(Outcome::CleanWithFlake) && end.verified {
        "done, with a flaky check"
    } else if is(Outcome::Catastrophic) {
        "not done"
    } else {
        end.outcome.as_str()
    }
}

/// Returns an outcome for a list: a success that no check confirmed is `clean, unverified`.
pub fn outcome(outcome: Outcome, verified: bool) -> String {
    let success = matches!(outcome, Outcome::Clean | Outcome::CleanWithFlake);
    if success && !verified { format!("{outcome}, unverified") } else { outcome.to_string() }
}

pub(super) fn run_ended(end: &RunEnded, style: Style) -> String {
    let unverified = matches!(end.outcome, Outcome::Clean | Outcome::CleanWithFlake) && !end.verified;
    let verified = if unverified { " (no checks, so not verified)" } else { "" };
    match style {
        Style::Line => {
            format!("{}: {}{verified}", result(end), end.reason)
        }
        Style::Full => {
            format!("run ended: {}: {}{verified}; exit code {}", end.outcome, end.reason, end.exit_code)
        }
    }
}
