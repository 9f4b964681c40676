//! Learned idling on recorded arrivals. The synthetic traces and `traces/expected.tsv` come from an independent
//! implementation.

use dogwatch_core::learn::{Schedule, Trace};
use dogwatch_core::settings::IdlePolicy;
use dogwatch_core::time::dur::Dur;
use std::path::Path;

const EXPECTED: &str = include_str!("traces/expected.tsv");

fn schedule_for(look_s: u64) -> Schedule {
    let policy = IdlePolicy { look: Some(Dur::from_secs(look_s)), ..IdlePolicy::default() };
    Schedule::of(&policy, false)
}

fn read_trace(path: &Path) -> Trace {
    let text = std::fs::read_to_string(path).expect("a trace");
    Trace::parse(&text).expect("a valid trace")
}

#[test]
fn synthetic_traces_cost_the_same_as_in_the_reference() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let mut judged = 0;
    for line in EXPECTED.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let (look_s, trace): (u64, &str) = (words[0].parse().expect("seconds"), words[1]);
        let got = read_trace(&dir.join(trace)).judge(&schedule_for(look_s));
        let expected: Vec<f64> = words[2..].iter().map(|w| w.parse().expect("a number")).collect();
        let found = [got.cost_ratio, got.learned.looks_per_day, got.learned.mean_s, got.learned.p95_s];
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() <= 1e-3 * expected.max(1.0), "{line}: {got:?}");
        }
        judged += 1;
    }
    assert_eq!(judged, 30);
}

/// Judges the traces in `DOGWATCH_TRACES`, which need not be in the repository.
#[test]
fn development_traces_cost_no_more_than_the_accepted_means() {
    let Some(dir) = std::env::var_os("DOGWATCH_TRACES") else {
        eprintln!("skipped: set DOGWATCH_TRACES to a directory with traces");
        return;
    };
    let mut traces: Vec<_> =
        std::fs::read_dir(dir).expect("a directory").map(|e| e.expect("an entry").path()).collect();
    traces.sort();
    for (look_s, most) in [(5, 0.56), (20, 0.38), (60, 0.25)] {
        let logs = traces.iter().map(|path| {
            let judged = read_trace(path).judge(&schedule_for(look_s));
            println!("{look_s} {} {:.4}", path.display(), judged.cost_ratio);
            judged.cost_ratio.ln()
        });
        let mean = (logs.sum::<f64>() / traces.len() as f64).exp();
        println!("look {look_s}s: {mean:.4}");
        assert!(mean <= most, "look {look_s}s: {mean}");
    }
}
