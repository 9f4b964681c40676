//! The acts that the demo promises to show, and a record of those that really happened.

use crate::screen::words;
use dogwatch_core::record::event::{Event, Outcome, Recorded, WaitEndedBy, WaitWhy};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Boot;
use dogwatch_core::watch::StopReason;

/// The number of the idle wait in which the file appears.
const FILE_IN_WAIT: usize = 3;
/// The longest time from the file to the next iteration. A slower start was caused by the timer.
const MAX_WAKE_DELAY: Dur = Dur::from_secs(2);

/// The acts seen so far.
#[derive(Default)]
pub struct Acts {
    worked: bool,
    backed_off: Vec<Dur>,
    dropped: Option<Boot>,
    woken_by: Option<WaitEndedBy>,
    woke_after: Option<Dur>,
    did_the_task: bool,
    stuck: Option<StopReason>,
    timed_out: Option<Dur>,
    ended: Option<(Outcome, String, u8)>,
}

impl Acts {
    /// Returns the announcement of the act that starts with this event, if one does.
    pub fn announce(event: &Event) -> Option<&'static str> {
        let Event::IterationStarted { iteration, .. } = event else { return None };
        match iteration.0 {
            1 => Some("the agent works"),
            2 => Some("the agent is idle: the run waits, longer each time"),
            6 => Some("the agent hangs and ignores INT and TERM; its limit is 3 s"),
            7 => Some("the agent is idle again: the run ends by itself"),
            _ => None,
        }
    }

    /// Updates the acts with a recorded event.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    pub fn see(&mut self, recorded: &Recorded) {
        match &recorded.event {
            Event::IterationStarted { .. } => {
                if let (Some(dropped), None) = (self.dropped, self.woke_after) {
                    self.woke_after = Some(recorded.boot_ms.since(dropped));
                }
            }
            Event::IterationCompleted(end) if end.iteration.0 == 1 => self.worked = true,
            Event::IterationCompleted(_) => self.did_the_task |= self.woke_after.is_some(),
            Event::WaitStarted { why: WaitWhy::Idle, delay_s: Some(delay), .. } if self.dropped.is_none() => {
                self.backed_off.push(*delay);
            }
            Event::WaitEnded { by, .. } if self.dropped.is_some() && self.woken_by.is_none() => {
                self.woken_by = Some(*by);
            }
            Event::HardStop { reason, .. } => self.stuck = Some(*reason),
            Event::IterationTimedOut(end) => self.timed_out = Some(end.duration_s),
            Event::RunEnded(end) => self.ended = Some((end.outcome, end.reason.clone(), end.exit_code)),
            _ => {}
        }
    }

    /// Returns whether the file is due: the run is in a wait that is long enough to show a wake.
    pub fn wants_file(&self) -> bool {
        self.dropped.is_none() && self.backed_off.len() == FILE_IN_WAIT
    }

    /// Records when the file was written that wakes the loop.
    pub fn file_dropped(&mut self, at: Boot) {
        self.dropped = Some(at);
    }

    /// Returns a sentence for every act, and whether the act happened.
    pub fn summary(&self, exit_code: Option<i32>, nothing_left: bool) -> Vec<(bool, String)> {
        vec![
            (self.worked, "the agent worked and completed its iteration".to_owned()),
            self.backing_off(),
            self.waking(),
            (self.did_the_task, "the agent did the task in the file".to_owned()),
            self.sticking(),
            self.ending(exit_code),
            (nothing_left, "no process is left running".to_owned()),
        ]
    }

    fn backing_off(&self) -> (bool, String) {
        let grew = self.backed_off.windows(2).all(|pair| pair[0] < pair[1]);
        let waits: Vec<String> = self.backed_off.iter().map(Dur::to_string).collect();
        let text = format!("idle iterations were followed by longer waits: {}", waits.join(", "));
        (grew && self.backed_off.len() == FILE_IN_WAIT, text)
    }

    fn waking(&self) -> (bool, String) {
        match (self.woken_by, self.woke_after) {
            (Some(WaitEndedBy::Path), Some(after)) => (
                after <= MAX_WAKE_DELAY,
                format!("a file woke the run within {} ms", after.as_millis().max(1)),
            ),
            (Some(by), _) => (false, format!("the file did not wake the run; the wait was ended by {by}")),
            (None, _) => (false, "the file did not wake the run".to_owned()),
        }
    }

    fn sticking(&self) -> (bool, String) {
        match (self.stuck, self.timed_out) {
            (Some(reason @ StopReason::SessionCeilingExceeded), Some(after)) => (
                true,
                format!(
                    "the stuck session was stopped at its limit and gone after {} [{reason}]",
                    words::span(after)
                ),
            ),
            (_, _) => (false, "the stuck session was not stopped".to_owned()),
        }
    }

    fn ending(&self, exit_code: Option<i32>) -> (bool, String) {
        match &self.ended {
            Some((Outcome::Idle, _, 0)) if exit_code == Some(0) => {
                (true, "the run ended by itself because the agent stayed idle".to_owned())
            }
            Some((outcome, reason, code)) => {
                (false, format!("the run ended {outcome} ({reason}) with exit code {code}, not idle with 0"))
            }
            None => (false, "the run did not end by itself".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::record::ids::NodeName;
    use dogwatch_core::time::moment::{Awake, Moment, Wall};

    fn at(ms: u64, event: Event) -> Recorded {
        Recorded::new(1, Moment { awake: Awake(ms), boot: Boot(ms), wall: Wall(0) }, event)
    }

    fn missing(acts: &Acts, code: Option<i32>, nothing_left: bool) -> usize {
        acts.summary(code, nothing_left).iter().filter(|(happened, _)| !happened).count()
    }

    #[test]
    fn an_act_that_was_not_seen_counts_as_missing() {
        assert_eq!(missing(&Acts::default(), Some(0), false), 7);
        assert_eq!(missing(&Acts::default(), Some(0), true), 6);
    }

    #[test]
    fn a_wait_that_expired_is_not_a_wake() {
        let node = NodeName::new("demo");
        let mut acts = Acts::default();
        for delay in [1, 3, 9] {
            let delay_s = Some(Dur::from_secs(delay));
            let event = Event::WaitStarted {
                node: node.clone(),
                why: WaitWhy::Idle,
                delay_s,
                until: None,
                utc_offset_s: None,
                because: None,
            };
            acts.see(&at(0, event));
        }
        assert!(acts.wants_file() && acts.backing_off().0);
        acts.file_dropped(Boot(100));
        assert!(!acts.wants_file());
        acts.see(&at(9_000, Event::WaitEnded { node, by: WaitEndedBy::Timer }));
        let (happened, text) = acts.waking();
        let expected = "the file did not wake the run; the wait was ended by timer";
        assert_eq!((happened, text.as_str()), (false, expected));
    }

    #[test]
    fn waits_that_do_not_grow_do_not_count_as_backoff() {
        let acts = Acts { backed_off: vec![Dur::from_secs(3); 3], ..Acts::default() };
        assert!(!acts.backing_off().0);
    }
}
