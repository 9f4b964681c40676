//! The jobs that this worker does not run, and why. The reasons are part of its presence, so that operators see them.

use crate::names::JobId;
use crate::record::Refusal;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Boot;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most refusals that a worker remembers and reports.
pub const MAX_REFUSALS: usize = 64;
/// How long the queue holds a job back after the second refusal by this worker. The time doubles with every second refusal.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The longest time that the queue holds a refused job back.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// The age at which a refusal is forgotten. The job is gone by then, or another worker runs it.
const MAX_AGE: Dur = Dur::from_secs(150);

/// The refusals of a worker.
#[derive(Debug, Default)]
pub struct Refusals {
    all: BTreeMap<String, Refused>,
}

#[derive(Debug)]
struct Refused {
    why: String,
    count: u32,
    last: Boot,
    /// Whether the checked-out job was refused. Its message alone does not show that.
    after_checkout: bool,
}

impl Refusals {
    /// Records a refusal, and returns for how long the queue holds the job back. After every other refusal it offers the job
    /// to another worker at once.
    pub fn add(&mut self, id: &JobId, why: &str, now: Boot) -> Duration {
        self.forget_old(now);
        let crowded = self.all.len() >= MAX_REFUSALS && !self.all.contains_key(&id.to_string());
        if crowded {
            let oldest = self.all.iter().min_by_key(|(_, refused)| refused.last);
            if let Some(oldest) = oldest.map(|(job, _)| job.clone()) {
                self.all.remove(&oldest);
            }
        }
        let fresh = || Refused { why: String::new(), count: 0, last: now, after_checkout: false };
        let refused = self.all.entry(id.to_string()).or_insert_with(fresh);
        why.clone_into(&mut refused.why);
        (refused.count, refused.last) = (refused.count.saturating_add(1), now);
        // A job that was forgotten has a count of one each time.
        if crowded {
            return FIRST_DELAY;
        }
        if refused.count % 2 == 1 {
            return Duration::ZERO;
        }
        let doubled = 2_u32.saturating_pow(refused.count.min(16) / 2 - 1);
        FIRST_DELAY.saturating_mul(doubled).min(MAX_DELAY)
    }

    /// Records that the checked-out job was refused, so that the next delivery is refused without a checkout.
    pub fn add_checked_out(&mut self, id: &JobId, why: &str, now: Boot) {
        self.add(id, why, now);
        if let Some(refused) = self.all.get_mut(&id.to_string()) {
            (refused.after_checkout, refused.count) = (true, 0);
        }
    }

    /// Returns why the checked-out job was refused, if it was.
    pub fn after_checkout(&self, id: &JobId) -> Option<String> {
        let refused = self.all.get(&id.to_string()).filter(|refused| refused.after_checkout);
        refused.map(|refused| refused.why.clone())
    }

    /// Returns whether the job was refused in the last minutes.
    pub fn has(&self, id: &JobId) -> bool {
        self.all.contains_key(&id.to_string())
    }

    /// Returns the refusals of the last minutes.
    pub fn recent(&mut self, now: Boot) -> Vec<Refusal> {
        self.forget_old(now);
        let all = self.all.iter();
        all.map(|(job, refused)| Refusal { job: job.clone(), why: refused.why.clone() }).collect()
    }

    fn forget_old(&mut self, now: Boot) {
        self.all.retain(|_, refused| now.since(refused.last) <= MAX_AGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> JobId {
        format!("acme.j{number}").parse().expect("a job")
    }

    fn at(s: u64) -> Boot {
        Boot(1_000 + s * 1_000)
    }

    #[test]
    fn a_refused_job_is_offered_to_others_and_then_stays_away_longer_each_time_up_to_a_minute() {
        let mut refusals = Refusals::default();
        let delays: Vec<u64> =
            (0..18).map(|n| refusals.add(&id(1), "needs gpu", at(n * 30)).as_secs()).collect();
        assert_eq!(delays, [0, 1, 0, 2, 0, 4, 0, 8, 0, 16, 0, 32, 0, 60, 0, 60, 0, 60]);
        assert_eq!(refusals.add(&id(2), "needs gpu", at(540)), Duration::ZERO);
        assert_eq!(refusals.recent(at(600)).len(), 2);
        assert_eq!(refusals.recent(at(900)), []);
    }

    #[test]
    fn the_refusals_of_a_worker_are_bounded() {
        let mut refusals = Refusals::default();
        for number in 0..MAX_REFUSALS + 10 {
            let delay = refusals.add(&id(number), "needs gpu", at(1));
            assert_eq!(delay.is_zero(), number < MAX_REFUSALS, "{number}");
        }
        assert_eq!(refusals.recent(at(1)).len(), MAX_REFUSALS);
    }

    #[test]
    fn a_job_refused_after_its_checkout_is_refused_by_its_name() {
        let mut refusals = Refusals::default();
        assert!(!refusals.has(&id(1)));
        refusals.add(&id(1), "needs gpu", at(0));
        assert!(refusals.has(&id(1)));
        assert_eq!(refusals.after_checkout(&id(1)), None);
        refusals.add_checked_out(&id(2), "agent not allowed", at(0));
        assert_eq!(refusals.after_checkout(&id(2)).as_deref(), Some("agent not allowed"));
        assert_eq!(refusals.add(&id(2), "agent not allowed", at(0)), Duration::ZERO);
    }
}
