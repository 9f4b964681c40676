//! A thousand random runs. `DOGWATCH_SEED=N` plays one seed, `DOGWATCH_SEEDS=N` plays N seeds.

use dogwatch_sim::chaos::{Played, play};
use std::collections::BTreeMap;
use std::panic::catch_unwind;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

// promise: 2, 7
#[test]
fn a_thousand_seeds_hold_everything_that_must_hold() {
    if let Some(seed) = number("DOGWATCH_SEED") {
        println!("{:#?}", play(seed));
        return;
    }
    let mut sum = Played::default();
    let mut outcomes = BTreeMap::<&str, u64>::new();
    for seed in 0..number("DOGWATCH_SEEDS").unwrap_or(1_000) {
        let Ok(played) = catch_unwind(|| play(seed)) else {
            panic!("seed {seed} failed: DOGWATCH_SEED={seed} plays it alone")
        };
        sum.events += played.events;
        sum.sessions += played.sessions;
        sum.crashes += played.crashes;
        *outcomes.entry(played.outcome.map_or("none", |o| o.as_str())).or_default() += 1;
    }
    println!("{sum:?} {outcomes:?}");
    // A simulation without crashes, work and different outcomes tests nothing. Random ceilings end some runs early.
    assert!(sum.crashes > 500 && sum.sessions > 3_500, "{sum:?}");
    assert!(outcomes.len() >= 8, "{outcomes:?}");
}

#[test]
fn a_seed_plays_the_same_every_time() {
    for seed in [3, 77, 512] {
        assert_eq!(format!("{:?}", play(seed)), format!("{:?}", play(seed)));
    }
}
