//! The fold of a journal into what a loop has learned: the looks of its idle streaks, and the arrivals between them.

use super::arrivals::{Arrivals, Gap};
use super::schedule::Schedule;
use crate::record::event::{Event, IterationEnd, Recorded, WaitEndedBy};
use crate::record::ids::NodeName;
use crate::settings::IdlePolicy;
use crate::time::dur::Dur;
use crate::time::moment::{Boot, Moment};
use serde::{Deserialize, Serialize};

/// How long before a wake the work is taken to have arrived.
const BEFORE_WAKE: u64 = 1_000;
/// A gap is ignored if the wait lasted longer than planned by more than this plus a tenth of the plan, because the
/// machine was suspended.
const LATE: Dur = Dur::from_secs(60);

/// The learned pattern of a loop, with the idle streak that is in progress.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// When work arrived.
    pub arrivals: Arrivals,
    /// What the idle streaks cost.
    pub savings: Savings,
    looks: Looks,
}

/// What the idle streaks cost, and what plain waits would have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Savings {
    /// The number of idle streaks that ended because there was work.
    pub streaks: u64,
    /// The empty looks of these streaks.
    pub looks: u64,
    /// The empty looks that plain waits would have made.
    pub plain_looks: u64,
    /// How long work waited in all, in seconds. Work is taken to arrive in the middle of a gap.
    pub waited_s: Dur,
    /// How long work would have waited with plain waits, in seconds.
    pub plain_waited_s: Dur,
}

impl Savings {
    fn add(&mut self, schedule: &Schedule, looks: u64, gap: u64, age: u64) {
        let arrived = age.saturating_sub(gap / 2).max(1);
        let plain_looks = schedule.plain_looks(arrived - 1);
        let (_, found) = schedule.plain_at(arrived - 1);
        let plain_waited = Dur::from_millis(found.saturating_sub(arrived));
        self.streaks = self.streaks.saturating_add(1);
        self.looks = self.looks.saturating_add(looks.saturating_sub(1));
        self.plain_looks = self.plain_looks.saturating_add(plain_looks);
        self.waited_s = self.waited_s.saturating_add(Dur::from_millis(gap - gap / 2));
        self.plain_waited_s = self.plain_waited_s.saturating_add(plain_waited);
    }
}

/// The looks of the idle streak that is in progress.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Looks {
    /// When the last idle look ended.
    last: Option<Boot>,
    /// When the first idle look of the streak ended.
    since: Option<Boot>,
    count: u64,
    /// The length of the current wait, if it has one.
    planned: Option<Dur>,
    ended_by: Option<WaitEndedBy>,
    /// When the current iteration started, which is when it looked for work.
    started: Option<Moment>,
    offset_ms: i64,
    /// Whether the last look did not call the agent.
    skipped: bool,
}

impl Looks {
    /// Forgets the streak. The time until the next look is not learned from.
    fn reset(&mut self) {
        (self.last, self.since, self.count) = (None, None, 0);
    }
}

impl History {
    /// Starts from a state. `offset_ms` is local time minus UTC until the record says otherwise.
    pub fn of(arrivals: Arrivals, offset_ms: i64) -> History {
        History { arrivals, savings: Savings::default(), looks: Looks { offset_ms, ..Looks::default() } }
    }

    /// Returns local time minus UTC, in milliseconds, as last recorded.
    pub fn offset_ms(&self) -> i64 {
        self.looks.offset_ms
    }

    /// Starts a new journal: an idle streak does not reach into the next run.
    pub fn next_run(&mut self) {
        self.looks = Looks { offset_ms: self.looks.offset_ms, ..Looks::default() };
    }

    /// Applies an event of the node's run. A look that found nothing is `iteration_idle`; completed and timed-out
    /// iterations found work. The other endings do not say whether there was work.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    pub fn apply(&mut self, policy: &IdlePolicy, node: &NodeName, recorded: &Recorded) {
        let at = recorded.moment();
        match &recorded.event {
            Event::RunResumed(_) => self.looks.reset(),
            Event::IdleLearned { node: of, state } if of == node => {
                self.arrivals = Arrivals::read(state).unwrap_or_default();
            }
            Event::WaitStarted { node: of, delay_s, utc_offset_s, .. } if of == node => {
                (self.looks.planned, self.looks.ended_by) = (*delay_s, None);
                if let Some(offset) = utc_offset_s {
                    self.looks.offset_ms = i64::from(*offset) * 1_000;
                }
            }
            Event::WaitEnded { node: of, by } if of == node => self.looks.ended_by = Some(*by),
            Event::IterationStarted { node: of, .. } if of == node => self.looks.started = Some(at),
            Event::IterationIdle { end, skipped, .. } if end.node == *node => {
                self.look(policy, false);
                self.looks.idle(at.boot, *skipped);
            }
            Event::IterationCompleted(end) | Event::IterationTimedOut(end) if end.node == *node => {
                self.look(policy, true);
                self.looks.reset();
            }
            Event::IterationFailed(IterationEnd { node: of, .. })
            | Event::IterationAuthFailed(IterationEnd { node: of, .. })
            | Event::IterationRateLimited { end: IterationEnd { node: of, .. }, .. }
            | Event::IterationInterrupted { end: IterationEnd { node: of, .. }, .. }
                if of == node =>
            {
                self.looks.reset();
            }
            _ => {}
        }
    }

    /// Learns from the gap between the last idle look and the current iteration.
    fn look(&mut self, policy: &IdlePolicy, found: bool) {
        let Looks { planned, ended_by, started, offset_ms, skipped, count, .. } = self.looks;
        let (Some(started), Some(last), Some(since)) = (started, self.looks.last, self.looks.since) else {
            return;
        };
        let (gap, age) = (started.boot.since(last).as_millis(), last.since(since).as_millis());
        let late = |planned: Dur| planned.saturating_add(planned.percent(10)).saturating_add(LATE);
        if started.boot < last || planned.is_some_and(|planned| gap > late(planned).as_millis()) {
            return;
        }
        let end = started.wall.0;
        let mut fold = |end, length, age, found| {
            self.arrivals.fold(Gap { end, length, age, offset_ms, found });
        };
        if found && ended_by.is_some_and(is_wake) {
            // The wake came when the work did.
            let quiet = gap.saturating_sub(BEFORE_WAKE);
            fold(end.saturating_sub_unsigned(BEFORE_WAKE), quiet, age, false);
            fold(end, gap.min(BEFORE_WAKE), age.saturating_add(quiet), true);
        } else {
            fold(end, gap, age, found);
        }
        if found {
            let (schedule, age) = (Schedule::of(policy, skipped), age.saturating_add(gap));
            self.arrivals.settle(&schedule, count, gap, age);
            self.savings.add(&schedule, count, gap, age);
        }
    }
}

impl Looks {
    fn idle(&mut self, at: Boot, skipped: bool) {
        if self.started.is_none() {
            return;
        }
        self.since.get_or_insert(at);
        self.last = Some(at);
        self.count = self.count.saturating_add(1);
        self.skipped = skipped;
    }
}

/// Returns whether a wait ended because of something that indicates work.
fn is_wake(by: WaitEndedBy) -> bool {
    !matches!(by, WaitEndedBy::Timer | WaitEndedBy::Budget | WaitEndedBy::Ceiling)
}
