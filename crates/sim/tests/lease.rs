//! The lease rule of fleets in a model: at most one agent works on a job, and each job ends once.

use dogwatch_core::lease::JobState;
use dogwatch_sim::lease::{Planted, Story, play};

/// How many seeds the ordinary suite plays.
const SEEDS: u64 = 20_000;
/// How many seeds may pass before a planted fault is noticed.
const MAX_BLIND: u64 = 2_000;

// promise: 20
#[test]
fn every_seed_keeps_one_agent_at_a_time_and_ends_the_job_once() {
    let seeds = match std::env::var("DOGWATCH_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("a number");
            seed..seed + 1
        }
        Err(_) if std::env::var_os("DOGWATCH_FULL").is_some() => 0..SEEDS * 20,
        Err(_) => 0..SEEDS,
    };
    let alone = seeds.end - seeds.start == 1;
    let mut all = Story::default();
    let (mut done, mut poisoned) = (0, 0);
    for seed in seeds {
        let story = play(seed, Planted::Nothing).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        if alone {
            println!("{story:?}");
        }
        all.starts += story.starts;
        all.takeovers += story.takeovers;
        all.losses += story.losses;
        all.releases += story.releases;
        all.found += story.found;
        match story.end {
            Some(JobState::Poisoned) => poisoned += 1,
            Some(_) | None => done += 1,
        }
    }
    // Behavior that never occurs is not tested.
    if !alone {
        let counts = [all.starts, all.takeovers, all.losses, all.releases, all.found, done, poisoned];
        assert!(counts.iter().all(|count| *count > 50), "blind: {all:?}, {done} done, {poisoned} poisoned");
    }
}

// promise: 20
#[test]
fn the_model_notices_planted_faults() {
    for planted in [Planted::NoFence, Planted::Hasty, Planted::NoLeash] {
        let noticed = (0..MAX_BLIND).find(|seed| play(*seed, planted).is_err());
        assert!(noticed.is_some(), "{planted:?} was not noticed");
    }
}
