//! Random runs on the simulated machine: fixed seeds, and fresh ones each time. A failure prints its seed and a scenario
//! that was made as small as possible.
//!
//! `DOGWATCH_SEED=N` plays one seed and prints its story. `DOGWATCH_FULL=1` plays 10,000 seeds.

use dogwatch_sim::chaos::{Played, Scenario, Seen, play, shrink};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The seeds of every run of the tests.
const FIXED: u64 = 1_500;
/// How many fresh seeds are played on top.
const FRESH: u64 = 100;
/// How many fresh seeds the full simulation plays on top.
const FULL_FRESH: u64 = 1_000;
/// The seeds of the full simulation.
const FULL: u64 = 10_000;

/// The things that no scenario can produce, and why. Add a thing here only if that is true; otherwise let an actor, a
/// fault or a plan in `src/chaos` produce it.
const NOT_SIMULATED: [(&str, &str); 3] = [
    ("event verdict_labeled", "`dogwatch verdict` appends it to the record of a run that is over"),
    ("recovery class check_failure", "a failed check is recorded as an attempt and plans no recovery"),
    ("session ended by never_started", "such a session leaves no `session_ended`"),
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Plays seeds on two threads and returns what occurred. The first failure is made small and printed.
fn play_all(seeds: &[u64]) -> (Seen, BTreeMap<&'static str, u64>) {
    let (next, failed) = (AtomicU64::new(0), Mutex::new(None::<u64>));
    let sum = Mutex::new((Seen::default(), BTreeMap::<&'static str, u64>::new()));
    let work = || {
        while failed.lock().expect("not poisoned").is_none() {
            let n = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).expect("an index");
            let Some(seed) = seeds.get(n).copied() else { return };
            match catch_unwind(AssertUnwindSafe(|| play(&Scenario::draw(seed)))) {
                Err(_) => *failed.lock().expect("not poisoned") = Some(seed),
                Ok(played) => {
                    let mut sum = sum.lock().expect("not poisoned");
                    sum.0.add(&played.seen);
                    *sum.1.entry("events").or_default() += played.events as u64;
                    *sum.1.entry("sessions").or_default() += played.sessions as u64;
                    *sum.1.entry("crashes").or_default() += played.crashes;
                    *sum.1.entry("virtual seconds").or_default() += played.lasted_s;
                }
            }
        }
    };
    thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    if let Some(seed) = failed.into_inner().expect("not poisoned") {
        let (small, why) = shrink(Scenario::draw(seed));
        panic!(
            "seed {seed} fails: {why}\n{small}\nTo play it alone:\n  DOGWATCH_SEED={seed} cargo nextest run -p dogwatch-sim \
             --no-capture every_seed\n"
        );
    }
    sum.into_inner().expect("not poisoned")
}

/// Returns the kinds of events that the reference documents.
fn kinds() -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/events.md");
    let page = std::fs::read_to_string(page).expect("the reference of events");
    let kind = |line: &str| Some(line.strip_prefix("## `")?.split('`').next()?.to_owned());
    page.lines().filter_map(kind).collect()
}

// promise: 2, 7
#[test]
fn every_seed_holds_everything_that_must_hold_and_nothing_goes_unseen() {
    if let Some(seed) = number("DOGWATCH_SEED") {
        let scenario = Scenario::draw(seed);
        println!("{scenario}");
        println!("{:#?}", play(&scenario).story);
        return;
    }
    let full = std::env::var_os("DOGWATCH_FULL").is_some();
    let fixed = number("DOGWATCH_SEEDS").unwrap_or(if full { FULL } else { FIXED });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let fresh_count = if full { FULL_FRESH } else { FRESH };
    let fresh = (0..fresh_count).map(|n| (now << 16) + n);
    let seeds: Vec<u64> = (0..fixed).chain(fresh).collect();
    println!("seeds 0 to {}, and {fresh_count} from {}", fixed - 1, now << 16);
    let begun = Instant::now();
    let (seen, sums) = play_all(&seeds);
    println!("{sums:?} in {:.1} s", begun.elapsed().as_secs_f64());
    let kinds = kinds();
    assert!(kinds.len() > 40, "{kinds:?}");
    let mut missing = seen.missing(kinds.iter().map(String::as_str));
    missing.retain(|what| NOT_SIMULATED.iter().all(|(other, _)| other != what));
    assert!(
        missing.is_empty(),
        "the simulation is blind: in {} seeds these never occurred: {missing:#?}\nLet an actor, a fault, a request or a \
         plan in crates/sim/src/chaos produce it. If only a real host can, add it to NOT_SIMULATED in this file, with \
         the reason, and test it with the real binary.",
        seeds.len()
    );
}

#[test]
fn a_seed_plays_the_same_every_time() {
    let shown = |seed| {
        let Played { story, events, sessions, crashes, lasted_s, outcome, seen } =
            play(&Scenario::draw(seed));
        format!("{story:?} {events} {sessions} {crashes} {lasted_s} {outcome:?} {seen:?}")
    };
    for seed in [3, 77, 512] {
        assert_eq!(shown(seed), shown(seed));
    }
}
