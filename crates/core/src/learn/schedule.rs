//! The plain schedule: the waits of `exponential` as a function of the idle streak's age, and the price of a look.

use super::arrivals::signed;
use crate::run::idle::exponential;
use crate::settings::IdlePolicy;
use crate::time::dur::Dur;

/// The number of waits after which the plain schedule is taken as constant. A factor close to 1 would grow forever.
const MAX_WAITS: u64 = 1_000;

/// The plain waits of an idle policy, with what a look costs and the longest learned wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    delay: u64,
    longest: u64,
    look: u64,
    /// The ages at which the plain waits end, until the waits stay the same.
    edges: Vec<u64>,
    waits: Vec<u64>,
}

impl Schedule {
    /// Returns the schedule of a policy. `skipped` is whether the last look did not call the agent.
    pub fn of(policy: &IdlePolicy, skipped: bool) -> Schedule {
        Schedule::new(
            policy.delay,
            policy.backoff,
            policy.max_delay,
            policy.longest,
            policy.look_cost(skipped),
        )
    }

    /// Returns the schedule of a probe that runs every `every`, or less often if the history allows it.
    pub fn of_probe(every: Dur, longest: Dur) -> Schedule {
        Schedule::new(every, 1.0, every, longest, IdlePolicy::FREE_LOOK)
    }

    /// Returns the schedule of waits that start with `delay` and grow to `max_delay`.
    pub fn new(delay: Dur, backoff: f64, max_delay: Dur, longest: Dur, look: Dur) -> Schedule {
        let mut schedule = Schedule {
            delay: delay.as_millis().max(1),
            longest: longest.max(delay).as_millis().max(1),
            look: look.as_millis().max(1),
            edges: Vec::new(),
            waits: Vec::new(),
        };
        let mut end: u64 = 0;
        for n in 1..=MAX_WAITS {
            let wait = exponential(delay, backoff, max_delay, n).as_millis().max(1);
            if schedule.waits.last() == Some(&wait) {
                break;
            }
            end = end.saturating_add(wait);
            schedule.edges.push(end);
            schedule.waits.push(wait);
        }
        schedule
    }

    /// Returns the cost of an empty look, in milliseconds of waiting.
    pub fn look(&self) -> u64 {
        self.look
    }

    /// Returns the shortest learned wait.
    pub(super) fn delay(&self) -> u64 {
        self.delay
    }

    /// Returns the longest learned wait.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// Returns the plain wait after the n-th idle look of a streak.
    pub fn nth(&self, n: u64) -> u64 {
        let last = self.waits.len().saturating_sub(1);
        let ix = usize::try_from(n.saturating_sub(1)).unwrap_or(last).min(last);
        self.waits.get(ix).copied().unwrap_or(self.delay)
    }

    /// Returns the last edge and the wait that repeats after it.
    fn tail(&self) -> (u64, u64) {
        (self.edges.last().copied().unwrap_or(0), self.waits.last().copied().unwrap_or(self.delay))
    }

    /// Returns the plain wait at this age of a streak, and the age at which it ends.
    pub fn plain_at(&self, age: u64) -> (u64, u64) {
        let ix = self.edges.partition_point(|edge| *edge <= age);
        match (self.waits.get(ix), self.edges.get(ix)) {
            (Some(wait), Some(edge)) => (*wait, *edge),
            _ => {
                let (edge, wait) = self.tail();
                (wait, edge.saturating_add(((age - edge) / wait + 1).saturating_mul(wait)))
            }
        }
    }

    /// Returns how many looks after the first one the plain schedule has made by this age, that moment included.
    pub(super) fn plain_looks(&self, age: u64) -> u64 {
        let ix = self.edges.partition_point(|edge| *edge <= age);
        let (edge, wait) = self.tail();
        let more = if ix == self.edges.len() { age.saturating_sub(edge) / wait } else { 0 };
        ix as u64 + more
    }

    /// Returns the cost of the plain schedule for work that arrives at this age: empty looks, then waiting.
    pub(super) fn plain_cost(&self, age: u64) -> u64 {
        let before = age.saturating_sub(1);
        let (_, found) = self.plain_at(before);
        self.look.saturating_mul(self.plain_looks(before)).saturating_add(found.saturating_sub(age))
    }

    /// Returns the size of the ledger: the most credit that can be saved up.
    pub(super) fn bucket(&self) -> i64 {
        signed(self.look.saturating_mul(20).saturating_add(self.longest / 2))
    }
}
