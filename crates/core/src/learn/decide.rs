//! The wait after an idle look.

use super::arrivals::{Arrivals, signed};
use super::schedule::Schedule;
use super::{OLDEST, ONE, PHASE, PHASES, WEEK, age_class, class_end, hour_of_week, local, phase_of_hour};
use crate::record::event::words;
use crate::time::dur::Dur;

/// A whole look in the sum of shares.
const WHOLE: u128 = 1 << 32;
/// The weights of the priors, in arrivals.
const AGE_WEIGHT: u64 = 2;
const CLASS_WEIGHT: u64 = 4;
const HOUR_WEIGHT: u64 = 4;
const PHASE_WEIGHT: u64 = 8;
/// The bounds of a factor: a sixty-fourth and 64.
const LEAST: u64 = ONE / 64;
const MOST: u64 = ONE * 64;

words! {
    /// The basis of an idle wait.
    Basis {
        /// Nothing is known yet: the wait is the one of `exponential`.
        Plain = "plain",
        /// The wait follows the history.
        Learned = "learned",
        /// Learned waits have been worse than plain ones lately: the wait is the plain one.
        Guard = "guard",
    }
}

/// The wait after an idle look, and its basis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleWait {
    /// The length of the wait.
    pub wait: Dur,
    /// Why it is that long.
    pub basis: Basis,
}

/// Returns how much more often than on average work arrived in a class, in 1/65536. The prior counts as `weight`
/// arrivals.
fn factor(weight: u64, prior: u64, (e, x): (u64, u64), (all_e, all_x): (u64, u64)) -> u64 {
    let expected = (u128::from(x) * u128::from(all_e)).checked_div(u128::from(all_x)).unwrap_or(0);
    let seen = (u128::from(weight) * u128::from(prior) + u128::from(e)) * u128::from(ONE);
    let ratio = seen / (u128::from(weight * ONE) + expected);
    u64::try_from(ratio).unwrap_or(MOST).clamp(LEAST, MOST)
}

/// The factors of the seasons, computed as they are needed.
pub(super) struct Seasons<'a> {
    state: &'a Arrivals,
    all: (u64, u64),
    hour: Option<(usize, u64)>,
    phases: [Option<u64>; PHASES],
}

impl<'a> Seasons<'a> {
    pub(super) fn new(state: &'a Arrivals) -> Seasons<'a> {
        let all = (state.age.e.iter().sum(), state.age.x.iter().sum());
        Seasons { state, all, hour: None, phases: [None; PHASES] }
    }

    /// Returns all arrivals and all idle time.
    pub(super) fn all(&self) -> (u64, u64) {
        self.all
    }

    /// Returns the factors of the hour of the week and of the phase of the hour.
    pub(super) fn at(&mut self, local: u64) -> (u64, u64) {
        let (w, p) = (hour_of_week(local), phase_of_hour(local));
        let hour = match self.hour {
            Some((known, factor)) if known == w => factor,
            Some(_) | None => self.hour_factor(w),
        };
        self.hour = Some((w, hour));
        let table = &self.state.phase;
        let all = self.all;
        let phase =
            *self.phases[p].get_or_insert_with(|| factor(PHASE_WEIGHT, ONE, (table.e[p], table.x[p]), all));
        (hour, phase)
    }

    fn hour_factor(&self, w: usize) -> u64 {
        let week = &self.state.week;
        let days = if w >= 5 * 24 { 5..7 } else { 0..5 };
        let class = days.fold((0u64, 0u64), |(e, x), day| {
            let w = (day * 24 + w % 24) % WEEK;
            (e.saturating_add(week.e[w]), x.saturating_add(week.x[w]))
        });
        let like = factor(CLASS_WEIGHT, ONE, class, self.all);
        factor(HOUR_WEIGHT, like, (week.e[w], week.x[w]), self.all)
    }
}

impl Arrivals {
    /// Returns the right distance between looks at a moment, from the square of the distance at that age.
    fn spacing(schedule: &Schedule, at_age: u128, (hour, phase): (u64, u64)) -> u64 {
        let one = u128::from(ONE);
        let squared = at_age.saturating_mul(one) / u128::from(hour);
        let squared = squared.saturating_mul(one) / u128::from(phase);
        let root = match u64::try_from(squared) {
            Ok(squared) => squared.isqrt(),
            Err(_) => u64::try_from(squared.isqrt()).unwrap_or(u64::MAX),
        };
        root.clamp(schedule.delay(), schedule.longest())
    }

    /// Returns the square of the distance between looks at an age, before the season changes it.
    fn squared(&self, schedule: &Schedule, class: usize, plain: u64) -> u128 {
        let prior = u128::from(AGE_WEIGHT) * u128::from(plain) * u128::from(plain);
        let seen = 2 * u128::from(schedule.look()) * u128::from(self.age.x[class]);
        (prior + seen).saturating_mul(u128::from(ONE)) / u128::from(AGE_WEIGHT * ONE + self.age.e[class])
    }

    /// Returns whether the ledger allows a learned wait after this many looks of a streak of this age.
    fn may_learn(&self, schedule: &Schedule, age: u64, looks: u64) -> bool {
        let plain = schedule.look().saturating_mul(schedule.plain_looks(age));
        let used = schedule.look().saturating_mul(looks.saturating_sub(1));
        let credit = self.credit(schedule).saturating_add(signed(plain.saturating_add(plain / 10)));
        credit.saturating_sub(signed(used)) > 0
    }

    /// Returns the wait after an idle look at wall time `now`, the `looks`-th of its streak, at this age of the streak.
    pub fn decide(&self, schedule: &Schedule, now: i64, offset_ms: i64, age: u64, looks: u64) -> IdleWait {
        let age = age.min(OLDEST);
        let wait = |ms, basis| IdleWait { wait: Dur::from_millis(ms), basis };
        if self.is_empty() {
            return wait(schedule.nth(looks), Basis::Plain);
        }
        if !self.may_learn(schedule, age, looks) {
            return wait(schedule.plain_at(age).0, Basis::Guard);
        }
        let begin = local(now, offset_ms);
        let mut seasons = Seasons::new(self);
        let mut done: u128 = 0;
        let mut u = 0;
        // The square of the distance stays the same until the age class or the plain wait changes.
        let mut known: Option<(usize, u64, u128)> = None;
        while u < schedule.longest() {
            let (local, older) = (begin.saturating_add(u), age.saturating_add(u));
            let (plain, plain_end) = schedule.plain_at(older);
            let class = age_class(older);
            let squared = match known {
                Some((c, p, squared)) if (c, p) == (class, plain) => squared,
                Some(_) | None => self.squared(schedule, class, plain),
            };
            known = Some((class, plain, squared));
            let distance = u128::from(Arrivals::spacing(schedule, squared, seasons.at(local)));
            let mut v = schedule.longest().min(u + PHASE - local % PHASE).min(plain_end - age);
            if let Some(end) = class_end(class) {
                v = v.min(end - age);
            }
            let share = (u128::from(v - u) * WHOLE).div_ceil(distance);
            if done + share >= WHOLE {
                let rest = ((WHOLE - done) * distance).div_ceil(WHOLE);
                u += u64::try_from(rest).unwrap_or(u64::MAX);
                break;
            }
            done += share;
            u = v;
        }
        wait(u.clamp(schedule.delay(), schedule.longest()), Basis::Learned)
    }
}
