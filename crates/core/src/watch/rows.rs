//! The rows of the watchdog's table, in order.

use super::{NOTICE_AT, StopReason, Verdict, Watch};
use crate::text::figures::count;
use crate::text::one_line;
use crate::time::dur::{Dur, Limit};
use crate::time::moment::Awake;
use crate::watch::Channel;

/// The longest error text in a message, in bytes.
const MAX_SHOWN: usize = 160;

/// The start of the message for the node's ceiling (row 3).
pub(crate) const NODE_TIMEOUT: &str = "Node timeout";
/// The start of the message for the run's ceiling (row 3).
pub(crate) const RUN_TIMEOUT: &str = "Run timeout";

impl Watch {
    /// Returns the first row that fires, else a notice, else continue with the channel that deferred a stop.
    pub(super) fn verdict(&self, now: Awake) -> Verdict {
        let stop = self
            .ceilings(now)
            .or_else(|| self.error_loop())
            .or_else(|| self.repetition(now))
            .or_else(|| self.tool_ceiling(now))
            .or_else(|| self.silence(now))
            .or_else(|| self.unanswered(now));
        match stop {
            Some((reason, message)) => Verdict::HardStop { reason, message },
            None => {
                self.notice(now).unwrap_or_else(|| Verdict::Continue { deferred_by: self.deferred_by(now) })
            }
        }
    }

    /// Checks rows 1 to 3. They are absolute: no evidence defers them.
    fn ceilings(&self, now: Awake) -> Option<(StopReason, String)> {
        let ran = now.since(self.session.started);
        let total = |limit: Limit, lasted: Dur, what: &str| {
            let limit = limit.duration().filter(|l| lasted >= *l)?;
            Some(exceeded(what, limit, lasted, Some(self.messages)))
        };
        let p = &self.policy;
        if let Some(message) = total(p.session, ran, "Total timeout") {
            return Some((StopReason::SessionCeilingExceeded, message));
        }
        if let Some(limit) = p.children.duration().filter(|l| self.waited.sum() >= *l) {
            let waited = self.waited.sum().as_secs_f64();
            let message = format!(
                "Children persist: waited {waited:.1}s on children without progress (limit {}, {})",
                seconds(limit),
                count(self.messages, "message")
            );
            return Some((StopReason::ChildrenPersistTooLong, message));
        }
        if let Some(message) = total(p.node, self.session.node_before.saturating_add(ran), NODE_TIMEOUT) {
            return Some((StopReason::NodeCeilingExceeded, message));
        }
        let message = total(p.run, self.session.run_before.saturating_add(ran), RUN_TIMEOUT)?;
        Some((StopReason::RunCeilingExceeded, message))
    }

    fn error_loop(&self) -> Option<(StopReason, String)> {
        let (text, errors) = self.loops.errors.reached(self.policy.errors)?;
        let errors = count(u64::from(errors), "error");
        let message = format!("Loop detected: {errors}, last: {}", one_line(text, MAX_SHOWN));
        Some((StopReason::ErrorLoop, message))
    }

    fn repetition(&self, now: Awake) -> Option<(StopReason, String)> {
        let cycle = self.loops.cycle(now, self.policy.cycles, self.policy.poll)?;
        let what = match cycle.period {
            1 => "the same call with the same result".to_owned(),
            n => format!("the same {n} calls with the same results"),
        };
        let times = count(u64::from(cycle.times), "time");
        Some((StopReason::Repetition, format!("Loop detected: {what}, {times}")))
    }

    fn tool_ceiling(&self, now: Awake) -> Option<(StopReason, String)> {
        let (due, name, since, cap) = self.tool_deadline()?;
        (now >= due).then(|| {
            let lasted = now.since(since).as_secs_f64();
            let message = format!(
                "Tool timeout: `{name}` in flight for {lasted:.1}s (limit {}, {})",
                seconds(cap),
                count(self.messages, "message")
            );
            (StopReason::ToolCeilingExceeded, message)
        })
    }

    /// Returns the deadline of the ordinary call that times out first. Progress on stdout restarts the time of a call.
    fn tool_deadline(&self) -> Option<(Awake, &str, Awake, Dur)> {
        if self.is_asking() {
            // The call waits for the person.
            return None;
        }
        let spoke = self.channels.last(Channel::Stdout);
        let deadlines = self.tools.ordinary().filter_map(|tool| {
            let cap = tool.cap(&self.policy)?;
            let from = spoke.map_or(tool.since, |s| s.max(tool.since));
            Some((from.plus(cap), tool.name.as_str(), tool.since, cap))
        });
        deadlines.min_by_key(|(due, ..)| *due)
    }

    /// Checks rows 7 and 8. A tool call in flight has its own row. `idle: off` turns both rows off.
    fn silence(&self, now: Awake) -> Option<(StopReason, String)> {
        let due = self.silence_deadline()?;
        if now < due {
            return None;
        }
        let silent = now.since(self.last_progress()).as_secs_f64();
        if self.says_nothing() {
            let limit = seconds(self.start_limit()?);
            let message = format!("No output at start: nothing printed for {silent:.1}s (limit {limit})");
            return Some((StopReason::NoOutputAtStart, message));
        }
        let limit = seconds(self.policy.idle.duration()?);
        let messages = count(self.messages, "message");
        let message = format!("Idle timeout: no progress for {silent:.1}s (limit {limit}, {messages})");
        Some((StopReason::NoOutputDeadline, message))
    }

    pub(super) fn says_nothing(&self) -> bool {
        self.session.structured && !self.spoke
    }

    fn start_limit(&self) -> Option<Dur> {
        let idle = self.policy.idle.duration()?;
        Some(self.policy.start.duration().map_or(idle, |s| s.min(idle)))
    }

    /// Returns the last progress on stdout, or the session's start.
    pub(super) fn last_progress(&self) -> Awake {
        self.channels.last(Channel::Stdout).unwrap_or(self.session.started)
    }

    /// Returns when stdout alone has been silent for too long.
    fn stdout_deadline(&self) -> Option<Awake> {
        let limit = if self.says_nothing() { self.start_limit()? } else { self.policy.idle.duration()? };
        let explained = self.tools.any_ordinary() || self.is_asking();
        (!explained).then(|| self.last_progress().plus(limit))
    }

    /// Checks row 9: the agent asked for a person and got no answer.
    fn unanswered(&self, now: Awake) -> Option<(StopReason, String)> {
        let (since, what) = self.asking.as_ref()?;
        let limit = self.policy.human.duration().filter(|limit| now >= since.plus(*limit))?;
        let message = format!(
            "Needs human: no answer for {:.1}s (limit {}): {}",
            now.since(*since).as_secs_f64(),
            seconds(limit),
            one_line(what, MAX_SHOWN)
        );
        Some((StopReason::HumanDeadlineExceeded, message))
    }

    fn human_deadline(&self) -> Option<Awake> {
        let (since, _) = self.asking.as_ref()?;
        Some(since.plus(self.policy.human.duration()?))
    }

    /// Returns the later of stdout's deadline and the end of the other channels' freshness. Effort extends it by a bounded
    /// time, but not for an agent that has printed nothing at all.
    fn silence_deadline(&self) -> Option<Awake> {
        let stdout = self.stdout_deadline()?;
        let evidence = self.other_evidence().map_or(stdout, |(until, _)| until.max(stdout));
        let works = self.effort.working && !self.says_nothing();
        let held = match (works, self.policy.tool.duration()) {
            (true, Some(tool)) => stdout.plus(tool),
            (true, None) | (false, _) => stdout,
        };
        Some(evidence.max(held))
    }

    /// Returns the middle and the end of the time that stdout may be silent.
    pub(super) fn silence_moments(&self) -> [Option<Awake>; 2] {
        let Some(over) = self.stdout_deadline() else { return [None, None] };
        let half = Dur::from_millis(over.since(self.last_progress()).as_millis() / 2);
        [Some(self.last_progress().plus(half)), Some(over)]
    }

    /// Returns the channel without which silence would have stopped the session by now.
    fn deferred_by(&self, now: Awake) -> Option<Channel> {
        let stdout = self.stdout_deadline().filter(|due| now >= *due)?;
        let (until, channel) = self.other_evidence()?;
        (until > stdout && now < until).then_some(channel)
    }

    /// Returns when evidence stops deferring, if effort keeps the session alive even longer.
    fn deferral_end(&self) -> Option<Awake> {
        let (until, _) = self.other_evidence()?;
        let (stdout, end) = (self.stdout_deadline()?, self.silence_deadline()?);
        (stdout < until && until < end && until > self.waited.upto).then_some(until)
    }

    /// Returns a notice at the moment of the error that reached the count. It is reported only once.
    fn notice(&self, now: Awake) -> Option<Verdict> {
        let (at, text) = self.loops.errors.noticed.as_ref()?;
        (*at == now).then(|| Verdict::Notice { message: format!("{NOTICE_AT} similar errors, last: {text}") })
    }

    /// Returns when the verdict may change next: a row may fire, or evidence starts to defer a stop.
    pub(super) fn next_deadline(&self) -> Option<Awake> {
        let p = &self.policy;
        let from_start = |limit: Limit, before: Dur| {
            Some(self.session.started.plus(limit.duration()?.saturating_sub(before)))
        };
        let children = || {
            let left = p.children.duration()?.saturating_sub(self.waited.sum());
            if left.is_zero() {
                // The limit is used up but not evaluated yet. Later progress does not restore it.
                return Some(self.waited.upto);
            }
            let from = self.fresh_until().map_or(self.waited.upto, |f| f.max(self.waited.upto));
            self.tools.waiting_on_children().then(|| from.plus(left))
        };
        // The verdict also changes when other evidence starts to defer a stop for silence.
        let deferral = self.stdout_deadline().filter(|due| *due > self.waited.upto);
        [
            from_start(p.session, Dur::ZERO),
            from_start(p.node, self.session.node_before),
            from_start(p.run, self.session.run_before),
            children(),
            self.loops.polling_until(p.cycles, p.poll),
            self.tool_deadline().map(|(due, ..)| due),
            self.silence_deadline(),
            deferral,
            self.deferral_end(),
            self.human_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

/// Returns the text of a verdict about a ceiling. Outside of a session the message count is absent.
pub(crate) fn exceeded(what: &str, limit: Dur, lasted: Dur, messages: Option<u64>) -> String {
    let messages = messages.map(|n| format!(", {}", count(n, "message"))).unwrap_or_default();
    format!("{what}: exceeded {} limit (ran {:.1}s{messages})", seconds(limit), lasted.as_secs_f64())
}

/// Formats a duration in seconds, without a decimal point if possible: `900s`, `0.5s`.
fn seconds(d: Dur) -> String {
    if d.as_millis().is_multiple_of(1000) {
        format!("{}s", d.as_millis() / 1000)
    } else {
        format!("{}s", d.as_secs_f64())
    }
}
