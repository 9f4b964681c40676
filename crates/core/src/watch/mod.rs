//! The watchdog: one verdict function over evidence, pure, separate from runs so that it can also
//! watch a single command, a foreign program, or a recording.
//!
//! Rows are checked in a fixed order and the first that fires wins; every answer carries the evidence
//! of all channels. Row 1, the session ceiling, is absolute: no evidence defers it.

mod evidence;

pub use evidence::{Channel, Evidence};

use crate::dur::Dur;
use crate::event::{Observation, words};
use crate::moment::Awake;
use crate::settings::WatchPolicy;
use evidence::Channels;
use serde::{Deserialize, Serialize};
use std::fmt;

words! {
    /// Why a session was ended by force.
    StopReason { SessionCeilingExceeded = "SESSION_CEILING_EXCEEDED" }
}

/// The watchdog's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Continue,
    HardStop(HardStop),
}

/// A session must end, and this is why.
#[derive(Clone, Debug, PartialEq)]
pub struct HardStop {
    pub reason: StopReason,
    pub message: String,
    pub evidence_summary: Vec<Evidence>,
    pub active_channel: Option<Channel>,
    pub recoverable: bool,
}

/// Watches one session.
#[derive(Clone, Debug)]
pub struct Watch {
    policy: WatchPolicy,
    started: Awake,
    channels: Channels,
    messages: u64,
}

impl Watch {
    pub fn new(policy: WatchPolicy, started: Awake) -> Watch {
        Watch { policy, started, channels: Channels::default(), messages: 0 }
    }

    pub fn observe(&mut self, seen: &Observation) {
        self.channels.observe(seen);
        self.messages = self.messages.saturating_add(seen.messages);
    }

    /// The earliest moment at which a row could fire, if nothing more is observed.
    pub fn due(&self) -> Option<Awake> {
        self.policy.session.duration().map(|limit| self.started.plus(limit))
    }

    /// The answer at this moment. Asking twice changes nothing.
    pub fn evaluate(&self, now: Awake) -> Verdict {
        let ran = now.since(self.started);
        match self.policy.session.duration() {
            Some(limit) if ran >= limit => Verdict::HardStop(self.hard_stop(
                now,
                StopReason::SessionCeilingExceeded,
                format!("Total timeout: exceeded {} limit ({})", seconds(limit), self.effort(ran)),
            )),
            Some(_) | None => Verdict::Continue,
        }
    }

    fn hard_stop(&self, now: Awake, reason: StopReason, message: String) -> HardStop {
        HardStop {
            reason,
            message,
            evidence_summary: self.channels.summary(self.started, now),
            active_channel: self.channels.freshest(),
            recoverable: true,
        }
    }

    fn effort(&self, ran: Dur) -> String {
        format!("ran {:.1}s, {} messages", ran.as_secs_f64(), self.messages)
    }
}

/// `900s`, `0.5s`: whole seconds without a point.
fn seconds(d: Dur) -> String {
    if d.as_millis().is_multiple_of(1000) {
        format!("{}s", d.as_millis() / 1000)
    } else {
        format!("{}s", d.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dur::Limit;
    use crate::settings::Profile;

    fn watch(session: Limit) -> Watch {
        Watch::new(WatchPolicy { session, ..WatchPolicy::of(Profile::Quick) }, Awake(1_000))
    }

    fn stdout(first: u64, last: u64, count: u64) -> Observation {
        Observation {
            channel: Channel::Stdout,
            first_ms: Awake(first),
            last_ms: Awake(last),
            count,
            messages: count,
            max_gap_ms: 0,
        }
    }

    // promise: 12
    #[test]
    fn row_1_fires_at_the_ceiling_and_not_a_millisecond_before() {
        let w = watch(Limit::At(Dur::from_secs(900)));
        assert_eq!(w.due(), Some(Awake(901_000)));
        assert_eq!(w.evaluate(Awake(900_999)), Verdict::Continue);
        let Verdict::HardStop(stop) = w.evaluate(Awake(901_000)) else { panic!("must fire") };
        assert_eq!(stop.reason, StopReason::SessionCeilingExceeded);
    }

    // promise: 11
    #[test]
    fn activity_never_defers_the_ceiling() {
        let mut w = watch(Limit::At(Dur::from_secs(900)));
        w.observe(&stdout(2_000, 900_900, 47));
        let Verdict::HardStop(stop) = w.evaluate(Awake(913_300)) else { panic!("must fire") };
        assert_eq!(stop.message, "Total timeout: exceeded 900s limit (ran 912.3s, 47 messages)");
        assert_eq!(stop.active_channel, Some(Channel::Stdout));
        assert_eq!(stop.evidence_summary.len(), Channel::ALL.len());
        assert_eq!(stop.evidence_summary[0].age_seconds, Some(12.4));
        assert_eq!(stop.evidence_summary[0].last_at, Some(899.9));
        assert_eq!(stop.evidence_summary[3].last_at, None);
        assert_eq!(stop.evidence_summary[3].counter, 0);
    }

    #[test]
    fn asking_twice_gives_the_same_answer() {
        let w = watch(Limit::At(Dur::from_secs(1)));
        assert_eq!(w.evaluate(Awake(5_000)), w.evaluate(Awake(5_000)));
    }

    #[test]
    fn a_ceiling_that_is_off_never_fires() {
        let w = watch(Limit::Off);
        assert_eq!(w.due(), None);
        assert_eq!(w.evaluate(Awake(u64::MAX)), Verdict::Continue);
    }
}
