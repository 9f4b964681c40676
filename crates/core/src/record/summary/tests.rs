#![allow(clippy::wildcard_enum_match_arm, reason = "tests look at a few variants")]

use super::*;
use crate::record::event::{NodeCounts, Outcome, RunEnded};
use crate::time::dur::Dur;

const NODE: &str = "tidy";

/// A record whose events are one second apart.
#[derive(Default)]
struct Book {
    events: Vec<Recorded>,
}

impl Book {
    fn add(&mut self, event: Event) -> &mut Book {
        let at = Moment::default().plus(Dur::from_secs(self.events.len() as u64));
        let seq = self.events.len() as u64 + 1;
        self.events.push(Recorded::new(seq, at, event));
        self
    }

    fn began(&mut self, iteration: u64) -> &mut Book {
        self.add(Event::IterationStarted {
            node: node(),
            iteration: Iteration(iteration),
            cause: Cause::Next,
        })
    }

    fn idled(&mut self, iteration: u64, reason: &str) -> &mut Book {
        self.began(iteration).add(Event::IterationIdle {
            end: end(iteration),
            reason: reason.to_owned(),
            consecutive: 1,
            streak_s: Dur::ZERO,
            skipped: iteration.is_multiple_of(2),
        })
    }

    fn waited(&mut self, why: WaitWhy, by: WaitEndedBy) -> &mut Book {
        self.add(Event::WaitStarted {
            node: node(),
            why,
            delay_s: None,
            until: None,
            utc_offset_s: None,
            because: None,
        });
        self.add(Event::WaitEnded { node: node(), by })
    }

    fn summary(&self) -> RunSummary {
        RunSummary::fold(&self.events)
    }
}

fn node() -> NodeName {
    NodeName::new(NODE)
}

fn end(iteration: u64) -> IterationEnd {
    IterationEnd {
        node: node(),
        iteration: Iteration(iteration),
        duration_s: Dur::from_secs(1),
        because: "it said so".to_owned(),
        fingerprint: None,
    }
}

#[test]
fn consecutive_idle_iterations_are_one_entry_without_their_waits() {
    let mut book = Book::default();
    for n in 1..=4 {
        book.idled(n, "no_pending_tasks").waited(WaitWhy::Idle, WaitEndedBy::Timer);
    }
    book.idled(5, "at_capacity").waited(WaitWhy::Idle, WaitEndedBy::Path);
    let summary = book.summary();
    let rows: Vec<&Row> = summary.timeline.iter().collect();
    assert_eq!(rows.len(), 2, "{rows:?}");
    let What::Idle(idle) = &rows[0].what else { panic!("{rows:?}") };
    assert_eq!((idle.first.0, idle.last.0, idle.count, idle.skipped), (1, 4, 4, 2));
    let waits = summary.waits.iter().find(|w| w.why == WaitWhy::Idle).expect("idle waits");
    assert_eq!((waits.count, waits.lasted, waits.woken), (5, Dur::from_secs(5), 1));
    assert!(summary.open.is_empty());
}

#[test]
fn a_wait_that_the_end_of_the_run_ends_counts() {
    let mut book = Book::default();
    book.waited(WaitWhy::Delay, WaitEndedBy::Timer).waited(WaitWhy::Delay, WaitEndedBy::Timer);
    // Its end is not recorded.
    book.events.pop();
    book.add(Event::Paused {}).add(Event::RunEnded(RunEnded {
        outcome: Outcome::Stopped,
        reason: "stopped on request".to_owned(),
        verified: false,
        iterations: 0,
        completed: 0,
        failed: 0,
        idle: 0,
        nodes: NodeCounts::default(),
        flake_retries: 0,
        total_duration_s: Dur::ZERO,
        exit_code: 0,
    }));
    let summary = book.summary();
    let waits = summary.waits.iter().find(|w| w.why == WaitWhy::Delay).expect("waits");
    assert_eq!((waits.count, waits.lasted, waits.woken), (2, Dur::from_secs(3), 1));
}

#[test]
fn a_wait_for_a_limit_is_listed_and_a_usual_one_is_not() {
    let mut book = Book::default();
    book.waited(WaitWhy::RateLimit, WaitEndedBy::Timer).waited(WaitWhy::Delay, WaitEndedBy::Timer);
    book.waited(WaitWhy::Delay, WaitEndedBy::Operator);
    let summary = book.summary();
    let whys: Vec<WaitWhy> = summary
        .timeline
        .iter()
        .filter_map(|row| match row.what {
            What::Waited { why, .. } => Some(why),
            _ => None,
        })
        .collect();
    assert_eq!(whys, [WaitWhy::RateLimit, WaitWhy::Delay]);
}

#[test]
fn an_unfinished_iteration_stays_open_and_a_finished_one_has_its_ending() {
    let mut book = Book::default();
    book.began(1).add(Event::IterationFailed(end(1))).began(2);
    let summary = book.summary();
    assert_eq!(summary.open.get(&node()).map(|t| t.iteration), Some(Iteration(2)));
    let rows: Vec<&Row> = summary.timeline.iter().collect();
    let What::Turn(turn) = &rows[0].what else { panic!("{rows:?}") };
    assert_eq!(turn.end.as_ref().map(|e| e.how), Some(EndingKind::Failed));
    assert_eq!(turn.began, Wall(0));
    assert_eq!(rows[0].at, Wall(1_000));
}

#[test]
fn the_summary_of_a_long_run_is_bounded() {
    let mut book = Book::default();
    let all = (MAX_FIRST + MAX_LAST) as u64 + 10;
    for n in 1..=all {
        book.began(n).add(Event::IterationCompleted(end(n)));
    }
    let summary = book.summary();
    assert_eq!(summary.timeline.iter().count(), MAX_FIRST + MAX_LAST);
    assert_eq!(summary.timeline.count(), all);
}

#[test]
fn every_verdict_keeps_its_evidence() {
    let evidence =
        vec![Evidence { channel: Channel::Stdout, last_at: Some(1.0), age_seconds: Some(300.0), counter: 4 }];
    let mut book = Book::default();
    book.began(1).add(Event::WatchdogContinue {
        node: node(),
        iteration: Iteration(1),
        deferred_by: Channel::Workspace,
        evidence_summary: evidence.clone(),
        active_channel: Some(Channel::Workspace),
    });
    book.add(Event::HardStop {
        node: node(),
        iteration: Iteration(1),
        reason: StopReason::NoOutputDeadline,
        message: "no progress".to_owned(),
        evidence_summary: evidence.clone(),
        active_channel: None,
        recoverable: true,
    });
    let summary = book.summary();
    assert_eq!(summary.verdicts.count(), 2);
    assert!(summary.verdicts.iter().all(|v| v.evidence == evidence));
    assert_eq!(summary.hard_stops().count(), 1);
}

fn attempt(iteration: u64, codes: &[i32]) -> Event {
    let result = |rc: &i32| crate::record::event::CheckResult {
        cmd: "make test".to_owned(),
        rc: *rc,
        duration_s: Dur::from_secs(1),
        tail: (*rc != 0).then(|| "1 test failed".to_owned()),
        truncated: false,
        timed_out: false,
        flaky: false,
        first_rc: None,
    };
    Event::NodeAttempt(NodeAttempt {
        node: node(),
        iteration: Iteration(iteration),
        duration_s: Dur::from_secs(1),
        converged: codes.iter().all(|rc| *rc == 0),
        backoff_s: None,
        uncounted: false,
        progress: false,
        tree: None,
        results: codes.iter().map(result).collect(),
    })
}

#[test]
fn failing_checks_are_remembered_with_their_output_until_they_pass() {
    let mut book = Book::default();
    book.began(1).add(attempt(1, &[0, 1])).add(Event::IterationCompleted(end(1)));
    let summary = book.summary();
    let failing = summary.failing.get(&node()).expect("it fails");
    assert_eq!(failing.results[1].tail.as_deref(), Some("1 test failed"));
    assert!(summary.attempts.iter().all(|a| a.attempt.results.iter().all(|r| r.rc != 0 || r.tail.is_none())));
    book.began(2).add(attempt(2, &[0, 0]));
    let summary = book.summary();
    assert!(summary.failing.is_empty());
    let checked: Vec<&str> = summary
        .timeline
        .iter()
        .filter_map(|row| match &row.what {
            What::Event { sentence, .. } => Some(sentence.text.as_str()),
            What::Turn(_) | What::Idle(_) | What::Waited { .. } => None,
        })
        .collect();
    assert_eq!(checked, ["1 of 2 checks failed: make test", "2 checks passed"]);
    assert_eq!(summary.attempts.count(), 2);
}
