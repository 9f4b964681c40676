//! Properties of the watchdog that hold for all histories, tested on random ones.

use crate::histories;

use dogwatch_core::settings::{Ttl, WatchPolicy};
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::{Channel, Fact, StopReason, Verdict, Watch};
use dogwatch_sim::oracle::CELL;
use histories::{Drawn, History, policies};

const SEEDS: u64 = 3_000;

/// Calls `check` with a random history for every seed, under one of the policies.
fn each(seeds: u64, mut check: impl FnMut(&mut Drawn, History<'_>)) {
    let policies = policies();
    for seed in 0..seeds {
        let mut drawn = Drawn::new(seed);
        let mut history = History::new(&policies[drawn.below(policies.len())], drawn.below(2) == 0);
        for _ in 0..3 + drawn.below(25) {
            drawn.add_to(&mut history);
        }
        check(&mut drawn, history.named(&format!("seed {seed}")));
    }
}

/// Returns when and why the session is stopped. The watch is evaluated after every fact and at every due moment.
fn end_of(history: &History<'_>, beyond: u64) -> Option<(u64, StopReason)> {
    let mut watch = history.watch();
    let end = history.now + beyond;
    let mut next = 0;
    for _ in 0..10_000 {
        let fact = history.facts.get(next).map(|(at, fact)| (history.known_from(next), *at, fact));
        let due = watch.due().map(|due| due.0).filter(|due| *due <= end);
        match (fact, due) {
            (None, None) => return None,
            // The watch is not evaluated while a record is pending or within an unwatched span.
            (Some((from, at, fact)), due) if due.is_none_or(|due| due >= from) => {
                watch.take(Awake(at), fact);
                next += 1;
                // No evaluation after a record of progress: records of other channels may still be pending.
                let judged = !matches!(fact, Fact::Observed(_));
                if let Some(reason) = judged.then(|| stop(&mut watch, at)).flatten() {
                    return Some((at, reason));
                }
            }
            (_, Some(due)) => {
                if let Some(reason) = stop(&mut watch, due) {
                    return Some((due, reason));
                }
                assert!(
                    watch.due() > Some(Awake(due)) || watch.due().is_none(),
                    "due again at {due}\n{}",
                    history.shown()
                );
            }
            (Some(_), None) => unreachable!("the fact is taken when nothing is due"),
        }
    }
    panic!("it never ends\n{}", history.shown());
}

fn stop(watch: &mut Watch, at: u64) -> Option<StopReason> {
    match watch.evaluate(Awake(at)).verdict {
        Verdict::HardStop { reason, .. } => Some(reason),
        Verdict::Continue { .. } | Verdict::Notice { .. } => None,
    }
}

#[test]
fn between_facts_the_answer_changes_at_due_moments_only() {
    each(SEEDS, |_, history| {
        let (mut eager, mut lazy, mut taken) = (history.watch(), history.watch(), 0);
        let mut last = None;
        for (at, n) in history.moments(150_000) {
            for (when, fact) in &history.facts[taken..n] {
                eager.take(Awake(*when), fact);
                lazy.take(Awake(*when), fact);
                last = None;
            }
            taken = n;
            if last.is_none() || lazy.due().is_some_and(|due| due.0 <= at) {
                let verdict = lazy.evaluate(Awake(at)).verdict;
                // A notice replaces a deferral only at its own moment.
                last = (!matches!(verdict, Verdict::Notice { .. })).then(|| settled(verdict));
            }
            let now = settled(eager.evaluate(Awake(at)).verdict);
            assert_eq!(&now, last.as_ref().unwrap_or(&now), "at {at}\n{}", history.shown());
            if matches!(now, Verdict::HardStop { .. }) {
                return;
            }
        }
    });
}

/// Removes the parts of a verdict that depend on the moment: notices, and messages, which contain ages.
fn settled(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::HardStop { reason, .. } => Verdict::HardStop { reason, message: String::new() },
        Verdict::Notice { .. } => Verdict::Continue { deferred_by: None },
        Verdict::Continue { .. } => verdict,
    }
}

#[test]
fn no_row_fires_a_millisecond_early() {
    let mut ended = 0;
    each(SEEDS, |_, history| {
        let Some((at, reason)) = end_of(&history, 500_000) else { return };
        ended += 1;
        // Only a deadline can fire early; a fact that stops the session has its own moment.
        if history.facts.iter().any(|(known, _)| *known == at) || !history.may_evaluate(at - 1) {
            return;
        }
        let mut watch = history.watch();
        for (when, fact) in history.facts.iter().filter(|(when, _)| *when < at) {
            watch.take(Awake(*when), fact);
        }
        let before = watch.evaluate(Awake(at - 1)).verdict;
        assert!(
            !matches!(before, Verdict::HardStop { .. }),
            "{reason} at {at}: {before:?}\n{}",
            history.shown()
        );
    });
    assert!(ended > SEEDS / 2, "only {ended} of {SEEDS} ended");
}

/// The property needs a fixed ttl and changes with unknown digests. With `auto`, more frequent progress shortens the ttl,
/// and a known state of the work tree clears nothing.
#[test]
fn more_progress_never_ends_a_session_sooner() {
    each(SEEDS, |drawn, history| {
        let ttl = match history.policy().evidence_ttl {
            Ttl::Auto => return,
            Ttl::Fixed(ttl) => ttl,
        };
        let before = end_of(&history, 500_000);
        let mut more = history.clone();
        for _ in 0..1 + drawn.below(3) {
            let (n, channel) = (drawn.below(history.facts.len()), Channel::ALL[drawn.below(4)]);
            more.insert(n, histories::seen(channel, None));
        }
        let (Some((then, _)), Some((now, _))) = (before, end_of(&more, 500_000)) else { return };
        assert!(now >= then, "{now} instead of {then} (ttl {ttl})\n{}\n{}", history.shown(), more.shown());
    });
}

#[test]
fn ceilings_are_never_deferred() {
    for policy in policies() {
        let policy = WatchPolicy { children: dogwatch_core::time::dur::Limit::Off, errors: None, ..policy };
        let mut history = History::new(&policy, true);
        for n in 0..500 {
            history.then(CELL, &histories::seen(Channel::ALL[n % 4], None));
        }
        let ceiling = policy.session.duration().map(|d| d.as_millis());
        let ended = end_of(&history, 0);
        assert_eq!(ended.map(|(at, _)| at), ceiling);
        assert_eq!(ended.map(|(_, reason)| reason), Some(StopReason::SessionCeilingExceeded));
    }
    let policy = &policies()[0];
    let mut waiting = History::new(policy, true);
    waiting.then(0, &Fact::SubagentStarted { id: "a".to_owned() });
    // Effort and live children do not defer it; only progress interrupts the waiting.
    for n in 0..100 {
        waiting.then(CELL, &Fact::Sampled { children: 9, cpu_ms: n * 1_000 });
    }
    assert_eq!(end_of(&waiting, 0), Some((40_000, StopReason::NoOutputAtStart)));
}

#[test]
fn repeated_evaluation_changes_no_later_verdict() {
    each(SEEDS / 3, |_, history| {
        let (mut once, mut often, mut taken) = (history.watch(), history.watch(), 0);
        for (at, n) in history.moments(100_000) {
            for (when, fact) in &history.facts[taken..n] {
                once.take(Awake(*when), fact);
                often.take(Awake(*when), fact);
            }
            taken = n;
            let answers: Vec<_> = (0..3).map(|_| often.evaluate(Awake(at))).collect();
            assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "at {at}\n{}", history.shown());
            assert_eq!(once.evaluate(Awake(at)), answers[0], "at {at}\n{}", history.shown());
        }
    });
}

/// Clocks may jump, counts may be wrong, and a record may be older than the session: there is always a verdict.
#[test]
fn moments_in_any_order_and_of_any_size_have_a_verdict() {
    let strange = [0, 1, 999, 1_000, 60_000, 3_600_000, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    each(SEEDS, |drawn, history| {
        let (mut watch, mut at) = (history.watch(), 0);
        for (when, fact) in &history.facts {
            at = if drawn.below(3) == 0 { strange[drawn.below(strange.len())] } else { *when };
            let mut fact = fact.clone();
            match &mut fact {
                Fact::Observed(o) => {
                    (o.first_ms, o.last_ms) =
                        (Awake(strange[drawn.below(9)]), Awake(strange[drawn.below(9)]));
                    (o.count, o.max_gap_ms) = (strange[drawn.below(9)], strange[drawn.below(9)]);
                }
                Fact::Suspended { for_ms } => *for_ms = strange[drawn.below(9)],
                Fact::Sampled { cpu_ms, .. } => *cpu_ms = strange[drawn.below(9)],
                _ => {}
            }
            watch.take(Awake(at), &fact);
            assert_eq!(watch.evaluate(Awake(at)).evidence_summary.len(), Channel::ALL.len());
            watch.due();
            watch.sample_moments();
        }
        watch.evaluate(Awake(at.saturating_sub(1)));
    });
}
