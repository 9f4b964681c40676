//! `dogwatch-fuzz [TARGET]… [--minutes M] [--seed N]`: runs targets for a given time and keeps the
//! input of a failure.

use dogwatch_fuzz::mutate::mutated;
use dogwatch_fuzz::{TARGETS, Target, corpus, target};
use dogwatch_sim::dice::Dice;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// An input that takes longer is a finding.
const SLOW: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let (mut targets, mut minutes, mut seed) = (Vec::new(), 1.0, 1);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let number = |value: Option<String>| value.and_then(|v| v.parse::<f64>().ok()).filter(|n| *n >= 0.0);
        match (arg.as_str(), target(&arg)) {
            ("--minutes", _) => match number(args.next()) {
                Some(value) => minutes = value,
                None => return usage(),
            },
            ("--seed", _) => match args.next().and_then(|v| v.parse().ok()) {
                Some(value) => seed = value,
                None => return usage(),
            },
            (_, Some(known)) => targets.push(*known),
            (_, None) => return usage(),
        }
    }
    if targets.is_empty() {
        targets = TARGETS.to_vec();
    }
    let span = Duration::from_secs_f64(minutes * 60.0);
    let failed = targets.iter().filter(|target| !passes(**target, span, seed)).count();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage() -> ExitCode {
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    eprintln!("usage: dogwatch-fuzz [TARGET]… [--minutes M] [--seed N]\ntargets: {}", names.join(", "));
    ExitCode::from(2)
}

/// Runs a target for some time. Returns false at its first finding.
fn passes((name, run): Target, span: Duration, seed: u64) -> bool {
    let seeds = corpus::seeds(name);
    let mut dice = Dice::new(seed);
    let (begun, mut count) = (Instant::now(), 0_u64);
    let current = PathBuf::from(format!("target/fuzz-{name}.input"));
    while begun.elapsed() < span {
        let input = mutated(&seeds, &mut dice);
        // A stack overflow ends the process, so the input must be on disk before the target runs.
        if let Err(error) = std::fs::write(&current, &input) {
            eprintln!("cannot write {}: {error}", current.display());
            return false;
        }
        let at = Instant::now();
        let held = std::panic::catch_unwind(|| run(&input)).is_ok();
        count += 1;
        if !held || at.elapsed() > SLOW {
            eprintln!(
                "{name}: input {count} of seed {seed} failed after {:?}: {}",
                at.elapsed(),
                current.display()
            );
            return false;
        }
    }
    println!("{name}: {count} inputs in {:?}, seed {seed}, {} seeds", begun.elapsed(), seeds.len());
    true
}
