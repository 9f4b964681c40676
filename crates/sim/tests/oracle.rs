//! Compares the watchdog with an oracle that was written from its description alone: on every short history on a coarse
//! time grid, then on long random ones. At every tick, and a millisecond before it, both must give the same verdict.

#![allow(clippy::wildcard_enum_match_arm, reason = "tests look at a few variants")]

mod histories;

use dogwatch_core::settings::WatchPolicy;
use dogwatch_core::watch::Fact;
use histories::{Drawn, History, policies};

/// The longest history that is tried exhaustively, in facts.
const LENGTH: usize = 3;

/// Compares all histories of up to `LENGTH` facts, with a short or a long gap before each fact.
fn each_history(facts: &[Fact], policy: &WatchPolicy, structured: bool) {
    let (gaps, mut tried) = ([5_000, 40_000], 0_u64);
    let choices = facts.len() * gaps.len();
    for length in 0..=LENGTH {
        for number in 0..choices.pow(u32::try_from(length).expect("short")) {
            let (mut history, mut rest) = (History::new(policy, structured), number);
            for _ in 0..length {
                let (fact, gap) = (&facts[rest % facts.len()], gaps[rest / facts.len() % gaps.len()]);
                history.then(gap, fact);
                rest /= choices;
            }
            history.compare(100_000);
            tried += 1;
        }
    }
    assert!(tried > 100);
}

#[test]
fn watchdog_and_oracle_agree_on_every_short_history_of_progress_and_tools() {
    for policy in policies() {
        each_history(&histories::working(), &policy, true);
    }
}

#[test]
fn watchdog_and_oracle_agree_on_every_short_history_of_children_and_effort() {
    for policy in policies() {
        each_history(&histories::waiting(), &policy, true);
    }
}

#[test]
fn watchdog_and_oracle_agree_on_every_short_history_of_questions_to_a_person() {
    for policy in policies() {
        each_history(&histories::asking(), &policy, true);
    }
}

#[test]
fn watchdog_and_oracle_agree_on_every_short_history_of_heartbeats() {
    let policy = WatchPolicy { errors: Some(2), ..policies().remove(0) };
    for policy in [&policy].into_iter().chain(&policies()[1..]) {
        each_history(&histories::heartbeats(), policy, true);
    }
}

#[test]
fn watchdog_and_oracle_agree_on_every_short_history_of_errors_and_results() {
    let policy = WatchPolicy { errors: Some(2), cycles: Some(2), ..policies().remove(0) };
    each_history(&histories::repeating(), &policy, false);
}

/// Tries every order of seven complete calls of a few kinds, which is enough for two cycles of three calls.
#[test]
fn watchdog_and_oracle_agree_on_every_sequence_of_calls() {
    let policy = WatchPolicy { errors: Some(6), cycles: Some(2), ..policies().remove(0) };
    let kinds = [(1, true, 1), (1, true, 2), (2, true, 1), (2, false, 1)];
    for number in 0..kinds.len().pow(7) {
        let (mut history, mut rest) = (History::new(&policy, false), number);
        for n in 0..7 {
            let (call, ok, result) = kinds[rest % kinds.len()];
            let id = format!("t{n}");
            history.then(1_000, &Fact::ToolStarted(histories::starts(&id, call)));
            history.then(0, &histories::ends(&id, ok, result));
            rest /= kinds.len();
        }
        history.compare(60_000);
    }
}

#[test]
fn watchdog_and_oracle_agree_on_thousands_of_long_histories() {
    for seed in 0..2_000 {
        let mut drawn = Drawn::new(seed);
        let policies = policies();
        let policy = &policies[drawn.below(policies.len())];
        let structured = drawn.below(2) == 0;
        let mut history = History::new(policy, structured);
        for _ in 0..3 + drawn.below(25) {
            drawn.add_to(&mut history);
        }
        history.named(&format!("seed {seed}")).compare(120_000);
    }
}
