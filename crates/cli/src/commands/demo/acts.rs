//! What the demo promises to show, and what of it was really seen.

use crate::screen::words;
use dogwatch_core::dur::Dur;
use dogwatch_core::event::{Event, Outcome, Recorded, WaitEndedBy, WaitWhy};
use dogwatch_core::moment::Boot;
use dogwatch_core::watch::StopReason;

/// The idle wait, counted from the first, in which the file appears.
const FILE_IN_WAIT: usize = 3;
/// A wake that takes longer was the timer's, or no wake worth showing.
const AT_ONCE: Dur = Dur::from_secs(2);

/// What was seen so far.
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
    /// What is about to be shown, if an act begins with this event.
    pub fn announce(event: &Event) -> Option<&'static str> {
        let Event::IterationStarted { iteration, .. } = event else { return None };
        match iteration.0 {
            1 => Some("the agent works"),
            2 => Some("nothing to do: it backs off, each time longer"),
            6 => Some("the agent hangs, deaf to INT and TERM: its session may last 3 s"),
            7 => Some("nothing left to do: it ends by itself"),
            _ => None,
        }
    }

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

    /// Whether it is time for the file: it waits, and waits long enough for a wake to be one.
    pub fn wants_file(&self) -> bool {
        self.dropped.is_none() && self.backed_off.len() == FILE_IN_WAIT
    }

    pub fn file_dropped(&mut self, at: Boot) {
        self.dropped = Some(at);
    }

    /// Every act in a sentence, and whether it happened.
    pub fn summary(&self, exit_code: Option<i32>, nothing_left: bool) -> Vec<(bool, String)> {
        vec![
            (self.worked, "the agent worked, and its iteration completed".to_owned()),
            self.backing_off(),
            self.waking(),
            (self.did_the_task, "it did the task that the file asked for".to_owned()),
            self.sticking(),
            self.ending(exit_code),
            (nothing_left, "no process is left".to_owned()),
        ]
    }

    fn backing_off(&self) -> (bool, String) {
        let grew = self.backed_off.windows(2).all(|pair| pair[0] < pair[1]);
        let waits: Vec<String> = self.backed_off.iter().map(Dur::to_string).collect();
        let text = format!("with nothing to do it backed off: {}", waits.join(", "));
        (grew && self.backed_off.len() == FILE_IN_WAIT, text)
    }

    fn waking(&self) -> (bool, String) {
        match (self.woken_by, self.woke_after) {
            (Some(WaitEndedBy::Path), Some(after)) => {
                (after <= AT_ONCE, format!("a file woke it within {} ms", after.as_millis().max(1)))
            }
            (Some(by), _) => (false, format!("a file should have woken it; it was woken by {by}")),
            (None, _) => (false, "a file should have woken it".to_owned()),
        }
    }

    fn sticking(&self) -> (bool, String) {
        match (self.stuck, self.timed_out) {
            (Some(reason @ StopReason::SessionCeilingExceeded), Some(after)) => (
                true,
                format!(
                    "the stuck session was stopped at its limit, gone after {} [{reason}]",
                    words::span(after)
                ),
            ),
            (_, _) => (false, "a stuck session should have been ended".to_owned()),
        }
    }

    fn ending(&self, exit_code: Option<i32>) -> (bool, String) {
        match &self.ended {
            Some((Outcome::Idle, reason, 0)) if exit_code == Some(0) => (true, format!("it ended: {reason}")),
            Some((outcome, reason, code)) => (
                false,
                format!("it should have ended idle, with 0; it ended {outcome} ({reason}), with {code}"),
            ),
            None => (false, "it should have ended by itself".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::ids::NodeName;
    use dogwatch_core::moment::{Awake, Moment, Wall};

    fn at(ms: u64, event: Event) -> Recorded {
        Recorded::new(1, Moment { awake: Awake(ms), boot: Boot(ms), wall: Wall(0) }, event)
    }

    fn missing(acts: &Acts, code: Option<i32>, nothing_left: bool) -> usize {
        acts.summary(code, nothing_left).iter().filter(|(happened, _)| !happened).count()
    }

    #[test]
    fn what_was_not_seen_did_not_happen() {
        assert_eq!(missing(&Acts::default(), Some(0), false), 7);
        assert_eq!(missing(&Acts::default(), Some(0), true), 6);
    }

    #[test]
    fn a_wait_that_ran_out_is_no_wake() {
        let node = NodeName::new("demo");
        let mut acts = Acts::default();
        for delay in [1, 3, 9] {
            let delay_s = Some(Dur::from_secs(delay));
            let event = Event::WaitStarted { node: node.clone(), why: WaitWhy::Idle, delay_s, until: None };
            acts.see(&at(0, event));
        }
        assert!(acts.wants_file() && acts.backing_off().0);
        acts.file_dropped(Boot(100));
        assert!(!acts.wants_file());
        acts.see(&at(9_000, Event::WaitEnded { node, by: WaitEndedBy::Timer }));
        let (happened, text) = acts.waking();
        assert_eq!((happened, text.as_str()), (false, "a file should have woken it; it was woken by timer"));
    }

    #[test]
    fn waits_that_do_not_grow_are_no_backing_off() {
        let acts = Acts { backed_off: vec![Dur::from_secs(3); 3], ..Acts::default() };
        assert!(!acts.backing_off().0);
    }
}
