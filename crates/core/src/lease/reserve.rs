//! Shares of an account's budget of the day that running jobs hold.
//!
//! Costs are known only after a session, so a job reserves a share before it starts. The reservations of an account are one
//! record, which workers change by compare-and-set. The usage of the day is a counter beside it. A worker first reads the
//! record, then the counter; after a session it first adds to the counter, then changes the record. Usage that moves from
//! the record to the counter meanwhile is then counted twice rather than not at all.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The smallest share: the budget divided by this.
pub const SHARES: u64 = 100;
/// The most jobs of an account that hold reservations.
pub const MAX_RESERVED: usize = 1024;

/// An amount of money and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Millionths of a dollar.
    #[serde(default)]
    pub micro_usd: u64,
    /// Tokens.
    #[serde(default)]
    pub tokens: u64,
}

impl Amount {
    /// Returns the sum.
    #[must_use]
    pub const fn plus(self, other: Amount) -> Amount {
        Amount {
            micro_usd: self.micro_usd.saturating_add(other.micro_usd),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }

    /// Returns the difference, at least zero.
    #[must_use]
    pub const fn minus(self, other: Amount) -> Amount {
        Amount {
            micro_usd: self.micro_usd.saturating_sub(other.micro_usd),
            tokens: self.tokens.saturating_sub(other.tokens),
        }
    }
}

/// The budget of a day. An absent part has no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Millionths of a dollar.
    pub micro_usd: Option<u64>,
    /// Tokens.
    pub tokens: Option<u64>,
}

impl Budget {
    /// Returns whether a part is limited.
    pub const fn is_set(self) -> bool {
        self.micro_usd.is_some() || self.tokens.is_some()
    }

    /// Returns whether the amount uses up a limited part.
    pub fn is_spent(self, amount: Amount) -> bool {
        self.micro_usd.is_some_and(|most| amount.micro_usd >= most)
            || self.tokens.is_some_and(|most| amount.tokens >= most)
    }
}

/// The share of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    /// The claim that holds it.
    pub epoch: u64,
    /// The part that is left.
    pub amount: Amount,
}

/// The reservations of an account on one day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservations {
    /// The day, as `2026-11-18`.
    #[serde(default)]
    pub day: String,
    /// The shares, by job.
    #[serde(default)]
    pub jobs: BTreeMap<String, Reserved>,
    /// The most that one session used on this day.
    #[serde(default)]
    pub largest: Amount,
}

impl Reservations {
    /// Returns the reservations of a day. Those of another day are forgotten.
    #[must_use]
    pub fn on(self, day: &str) -> Reservations {
        match self.day == day {
            true => self,
            false => Reservations { day: day.to_owned(), ..Reservations::default() },
        }
    }

    /// Returns the sum of all shares, without that of one job.
    pub fn without(&self, job: &str) -> Amount {
        let others = self.jobs.iter().filter(|(name, _)| *name != job);
        others.fold(Amount::default(), |sum, (_, share)| sum.plus(share.amount))
    }

    /// Reserves a share for a claim: what the largest session of the day used, and at least a hundredth of the budget. Less
    /// is reserved only if no other job holds a share, so the rest of a budget goes to one job at a time. Returns whether
    /// the job may start a session.
    pub fn reserve(&mut self, budget: Budget, spent: Amount, job: &str, epoch: u64) -> bool {
        if self.jobs.get(job).is_some_and(|share| share.epoch > epoch) {
            return false;
        }
        let is_new = !self.jobs.contains_key(job);
        if is_new && self.jobs.len() >= MAX_RESERVED {
            return false;
        }
        let others = self.without(job);
        let is_alone = self.jobs.keys().all(|name| name == job);
        let part = |budget: Option<u64>, spent: u64, others: u64, largest: u64| {
            let Some(budget) = budget else { return Some(0) };
            let free = budget.saturating_sub(spent).saturating_sub(others);
            let share = largest.max(budget / SHARES).max(1);
            match free {
                0 => None,
                free if free >= share => Some(share),
                free => is_alone.then_some(free),
            }
        };
        let largest = self.largest;
        let micro_usd = part(budget.micro_usd, spent.micro_usd, others.micro_usd, largest.micro_usd);
        let tokens = part(budget.tokens, spent.tokens, others.tokens, largest.tokens);
        let Some((micro_usd, tokens)) = micro_usd.zip(tokens) else { return false };
        self.jobs.insert(job.to_owned(), Reserved { epoch, amount: Amount { micro_usd, tokens } });
        true
    }

    /// Takes what a session used from the share of its claim. The counter must contain it already.
    pub fn settle(&mut self, job: &str, epoch: u64, used: Amount) {
        self.largest.micro_usd = self.largest.micro_usd.max(used.micro_usd);
        self.largest.tokens = self.largest.tokens.max(used.tokens);
        if let Some(share) = self.jobs.get_mut(job).filter(|share| share.epoch == epoch) {
            share.amount = share.amount.minus(used);
        }
    }

    /// Gives the share of a claim back. Returns whether there was one.
    pub fn give_back(&mut self, job: &str, epoch: u64) -> bool {
        let held = self.jobs.get(job).is_some_and(|share| share.epoch == epoch);
        if held {
            self.jobs.remove(job);
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget { micro_usd: Some(1_000), tokens: None };

    fn usd(micro_usd: u64) -> Amount {
        Amount { micro_usd, tokens: 0 }
    }

    fn after(largest: u64) -> Reservations {
        Reservations { largest: usd(largest), ..Reservations::default() }.on("")
    }

    #[test]
    fn a_share_is_the_largest_session_of_the_day_and_at_least_a_hundredth_of_the_budget() {
        let mut all = after(0);
        assert!(all.reserve(BUDGET, usd(0), "a", 1));
        assert_eq!(all.jobs["a"].amount, usd(10));
        all.settle("a", 1, usd(300));
        assert!(all.reserve(BUDGET, usd(300), "b", 1));
        assert_eq!((all.jobs["a"].amount, all.jobs["b"].amount), (usd(0), usd(300)));
    }

    #[test]
    fn the_rest_of_a_budget_goes_to_one_job_at_a_time() {
        let mut all = after(500);
        assert!(all.reserve(BUDGET, usd(400), "a", 1));
        assert!(!all.reserve(BUDGET, usd(400), "b", 1), "a hundred are free, and a session may need 500");
        assert!(all.give_back("a", 1));
        assert!(all.reserve(BUDGET, usd(900), "b", 1));
        assert_eq!(all.jobs["b"].amount, usd(100));
        assert!(!all.reserve(BUDGET, usd(1_000), "c", 1));
    }

    #[test]
    fn every_limited_part_needs_room() {
        let budget = Budget { micro_usd: Some(1_000), tokens: Some(50) };
        let mut all = after(0);
        assert!(!all.reserve(budget, Amount { micro_usd: 0, tokens: 50 }, "a", 1));
        assert!(all.reserve(budget, Amount { micro_usd: 0, tokens: 49 }, "a", 1));
        assert_eq!(all.jobs["a"].amount, Amount { micro_usd: 10, tokens: 1 });
        assert!(all.reserve(Budget::default(), Amount { micro_usd: 9, tokens: 9 }, "b", 1));
    }

    #[test]
    fn the_next_claim_of_a_job_replaces_the_share_of_a_lost_one() {
        let mut all = after(1_000);
        assert!(all.reserve(BUDGET, usd(0), "a", 1));
        assert!(all.reserve(BUDGET, usd(0), "a", 2), "the share of the lost claim does not count");
        assert!(!all.reserve(BUDGET, usd(0), "a", 1), "the lost claim gets none");
        all.settle("a", 1, usd(10));
        assert!(!all.give_back("a", 1));
        assert_eq!(all.jobs["a"], Reserved { epoch: 2, amount: usd(1_000) });
    }

    #[test]
    fn reservations_end_with_the_day_and_are_bounded() {
        let mut all = after(7).on("2026-11-18");
        assert_eq!((all.largest, all.day.as_str()), (usd(0), "2026-11-18"));
        let large = Budget { micro_usd: Some(u64::MAX), tokens: None };
        for number in 0..MAX_RESERVED {
            all.jobs.insert(number.to_string(), Reserved { epoch: 1, amount: usd(1) });
        }
        assert!(!all.reserve(large, usd(0), "more", 1));
        assert!(all.reserve(large, usd(0), "7", 2));
        assert!(all.on("2026-11-19").jobs.is_empty());
    }

    /// The order in which a worker makes its requests.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Order {
        /// As the module describes.
        Right,
        /// Reads the counter before the record.
        CounterReadFirst,
        /// Changes the record before the counter.
        CounterAddedLast,
    }

    /// What the requests of one schedule led to.
    #[derive(Default)]
    struct Story {
        granted: u32,
        refused: u32,
        conflicts: u32,
        /// Whether usage and shares exceeded the budget at some moment.
        exceeded: bool,
    }

    /// Plays four workers with one job each. Each step is one request to the server.
    fn play(mut seed: u64, order: Order) -> Story {
        const JOBS: usize = 4;
        // A small generator, so that a seed always plays the same schedule.
        let mut next = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut story = Story::default();
        let (mut revision, mut record, mut counter) = (1_u64, after(120), usd(0));
        let mut steps = [0; JOBS];
        let mut read: [(u64, Reservations); JOBS] = Default::default();
        let mut counted = [usd(0); JOBS];
        // The truth: what was used, and what each job may still use.
        let (mut truth, mut left, mut used) = (0, [0; JOBS], [0; JOBS]);
        for _ in 0..300 {
            let at = next(JOBS as u64) as usize;
            let job = at.to_string();
            let swapped = match steps[at] {
                0 | 1 => order == Order::CounterReadFirst,
                4 | 5 => order == Order::CounterAddedLast,
                _ => false,
            };
            match (steps[at], swapped) {
                (0, false) | (1, true) => read[at] = (revision, record.clone()),
                (1, false) | (0, true) => counted[at] = counter,
                (2, _) => {
                    let (seen, mut new) = read[at].clone();
                    if !new.reserve(BUDGET, counted[at], &job, 1) {
                        story.refused += 1;
                        steps[at] = 0;
                        continue;
                    }
                    if seen != revision {
                        story.conflicts += 1;
                        steps[at] = 0;
                        continue;
                    }
                    (revision, record) = (revision + 1, new);
                    left[at] = record.jobs[&job].amount.micro_usd;
                    story.granted += 1;
                }
                // The session uses at most its share.
                (3, _) => {
                    used[at] = left[at] - next(left[at] / 2 + 1);
                    left[at] -= used[at];
                    truth += used[at];
                }
                (4, false) | (5, true) => counter = counter.plus(usd(used[at])),
                (5, false) | (4, true) => {
                    record.settle(&job, 1, usd(used[at]));
                    revision += 1;
                }
                (6, _) => {
                    if next(2) == 0 {
                        record.give_back(&job, 1);
                        left[at] = 0;
                        revision += 1;
                    }
                }
                (step, _) => panic!("no step {step}"),
            }
            steps[at] = (steps[at] + 1) % 7;
            story.exceeded |= truth + left.iter().sum::<u64>() > 1_000;
        }
        story
    }

    #[test]
    fn usage_and_shares_stay_within_the_budget_in_every_order_of_the_workers_requests() {
        let mut all = Story::default();
        for seed in 0..2_000 {
            let story = play(seed, Order::Right);
            assert!(!story.exceeded, "seed {seed}");
            all.granted += story.granted;
            all.refused += story.refused;
            all.conflicts += story.conflicts;
        }
        assert!(all.granted > 1_000 && all.refused > 1_000 && all.conflicts > 1_000, "the test is blind");
    }

    #[test]
    fn a_worker_that_swaps_its_requests_exceeds_the_budget() {
        for order in [Order::CounterReadFirst, Order::CounterAddedLast] {
            assert!((0..2_000).any(|seed| play(seed, order).exceeded));
        }
    }
}
