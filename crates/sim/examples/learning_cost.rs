//! Measures learned idling: `cargo run --release -p dogwatch-sim --example learning_cost` prints the nanoseconds of one
//! `fold` and one `decide`, as JSON. The best of several rounds counts.

use dogwatch_core::learn::{Arrivals, Gap, Schedule};
use dogwatch_core::settings::IdlePolicy;
use std::hint::black_box;
use std::time::Instant;

/// Monday, 2026-01-05 00:00 UTC.
const MONDAY: i64 = 1_767_571_200_000;
const ROUNDS: usize = 20;
const CALLS: u64 = 20_000;

fn main() {
    let schedule = Schedule::of(&IdlePolicy::default(), false);
    let state = office();
    // A day of gaps of five minutes; every twelfth look found work.
    let fold = best(|state, n| {
        let end = MONDAY + 60 * 86_400_000 + (n % 288) as i64 * 300_000 + 17_000;
        let gap = Gap { end, length: 300_000, age: n % 288 * 300_000, offset_ms: 0, found: n % 12 == 0 };
        state.fold(black_box(gap));
    });
    let decide = best(|_, n| {
        let now = MONDAY + 60 * 86_400_000 + (n % 2_016) as i64 * 300_000;
        let age = n % 200 * 300_000;
        black_box(state.decide(&schedule, black_box(now), 0, age, 3 + n % 50));
    });
    println!("{{\"fold_ns\": {fold:.1}, \"decide_ns\": {decide:.1}}}");
}

/// Returns the nanoseconds of one call.
fn best(mut call: impl FnMut(&mut Arrivals, u64)) -> f64 {
    let mut state = office();
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        (0..CALLS).for_each(|n| call(&mut state, n));
        least = least.min(begun.elapsed().as_nanos() as f64 / CALLS as f64);
    }
    black_box(state);
    least
}

/// Two months of work that arrives on weekdays from 09:00 to 17:00.
fn office() -> Arrivals {
    let (mut state, mut age) = (Arrivals::default(), 0);
    for step in 0..60 * 288 {
        let (day, minute) = (step / 288 % 7, step % 288 * 5);
        let found = day < 5 && (540..1020).contains(&minute) && minute % 30 == 0;
        state.fold(Gap { end: MONDAY + (step + 1) * 300_000, length: 300_000, age, offset_ms: 0, found });
        age = if found { 0 } else { age + 300_000 };
    }
    state
}
