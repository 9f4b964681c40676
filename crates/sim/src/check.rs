//! Invariants of every run, whatever its script.

use dogwatch_core::record::event::{Event, Recorded, WaitEndedBy};
use dogwatch_core::record::view::View;
use dogwatch_core::settings::{ReaderName, WatchPolicy};
use dogwatch_core::watch::replay::JournalReplay;
use std::collections::{BTreeMap, BTreeSet};

mod ceilings;
mod work;

/// Asserts all invariants.
pub fn all(events: &[Recorded], live: &View) {
    sequence_has_no_gaps(events);
    folding_again_gives_the_same_view(events, live);
    one_session_at_a_time(events);
    every_iteration_that_began_ended_once(events, live);
    only_a_resume_follows_an_end(events);
    waits_last_as_long_as_they_say(events);
    budgets_only_grow(events);
    ceilings::hold(events, live);
    numbers_are_never_used_twice(events);
    a_replay_comes_to_the_same_verdicts(events);
    work::all(events, live);
}

fn sequence_has_no_gaps(events: &[Recorded]) {
    for (i, e) in events.iter().enumerate() {
        assert_eq!(e.seq, i as u64 + 1, "the sequence has a gap at {e:?}");
    }
    for pair in events.windows(2) {
        assert!(pair[0].awake_ms <= pair[1].awake_ms, "time runs backwards at {:?}", pair[1]);
    }
}

fn folding_again_gives_the_same_view(events: &[Recorded], live: &View) {
    assert_eq!(&View::fold(events), live, "the replayed view differs from the live one");
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
fn one_session_at_a_time(events: &[Recorded]) {
    let mut open = BTreeSet::new();
    for e in events {
        match &e.event {
            Event::SessionStarted { node, .. } => {
                assert!(open.insert(node.clone()), "two sessions of a node at once: {e:?}")
            }
            Event::SessionEnded(s) => {
                open.remove(&s.node);
            }
            Event::RunResumed(_) => open.clear(),
            _ => {}
        }
    }
}

fn every_iteration_that_began_ended_once(events: &[Recorded], live: &View) {
    let mut open = BTreeMap::new();
    for e in events {
        if let Event::IterationStarted { node, iteration, .. } = &e.event {
            let before = open.insert(node.clone(), *iteration);
            assert_eq!(before, None, "an iteration began inside another: {e:?}");
        }
        if let Some((_, end)) = e.event.ending() {
            let was = open.remove(&end.node);
            assert_eq!(was, Some(end.iteration), "an iteration ended that was not open: {e:?}");
        }
    }
    assert!(open.is_empty() || !live.is_over(), "the run ended with iterations {open:?} open");
}

fn only_a_resume_follows_an_end(events: &[Recorded]) {
    for pair in events.windows(2) {
        let ended = matches!(pair[0].event, Event::RunEnded(_));
        assert!(!ended || matches!(pair[1].event, Event::RunResumed(_)), "{:?} follows the end", pair[1]);
    }
}

/// Asserts that a wait ended by its timer lasted exactly as long as announced.
#[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
fn waits_last_as_long_as_they_say(events: &[Recorded]) {
    let mut open = BTreeMap::new();
    for e in events {
        match &e.event {
            Event::WaitStarted { node, delay_s, .. } => {
                open.insert(node.clone(), delay_s.map(|d| e.boot_ms.plus(d)));
            }
            Event::WaitEnded { node, by: WaitEndedBy::Timer } => {
                let until = open.remove(node).flatten();
                assert_eq!(until, Some(e.boot_ms), "a wait was too long or too short: {e:?}");
            }
            Event::WaitEnded { node, .. } => {
                open.remove(node);
            }
            Event::RunResumed(_) => open.clear(),
            _ => {}
        }
    }
}

/// Asserts that counters and used time never decrease, not even across a resume.
fn budgets_only_grow(events: &[Recorded]) {
    let mut view = View::default();
    let mut last = (0, 0);
    for e in events {
        view.apply(e);
        let now = (view.totals().iterations, view.supervised(e.boot_ms).as_millis());
        assert!(now.0 >= last.0 && now.1 >= last.1, "a budget ran backwards at {e:?}: {last:?} -> {now:?}");
        last = now;
    }
}

/// Asserts that iteration numbers are never reused.
fn numbers_are_never_used_twice(events: &[Recorded]) {
    let mut last = BTreeMap::new();
    for e in events {
        if let Event::IterationStarted { node, iteration, .. } = &e.event {
            let before = last.insert(node.clone(), iteration.0).unwrap_or(0);
            assert_eq!(iteration.0, before + 1, "iteration numbers jump: {e:?}");
        }
    }
}

/// Asserts that a replay under the recorded policy gives the same verdicts.
#[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
fn a_replay_comes_to_the_same_verdicts(events: &[Recorded]) {
    let mut replay = JournalReplay::new(None::<fn(&WatchPolicy, ReaderName) -> WatchPolicy>);
    events.iter().for_each(|e| replay.take(e));
    let replayed = replay.finish();
    let differing: Vec<&String> = replayed.iter().flat_map(|session| &session.differing).collect();
    assert!(differing.is_empty(), "{differing:?}");
    // A ceiling of the node or the run also ends jobs without a watch; those are not replayed.
    let mut sessions = BTreeSet::new();
    let in_session = |e: &&Recorded| match &e.event {
        Event::SessionStarted { node, .. } => !sessions.insert(node.clone()),
        Event::SessionEnded(s) => !sessions.remove(&s.node),
        Event::RunResumed(_) => {
            sessions.clear();
            false
        }
        Event::HardStop { node, .. } => sessions.contains(node),
        _ => false,
    };
    let stops = events.iter().filter(in_session).count();
    let again = replayed.iter().filter(|session| session.summary.reason.is_some()).count();
    assert_eq!(again, stops, "hard stops");
}

/// Returns an event as a short word, for tests that compare whole sequences.
pub fn word(event: &Event) -> Option<String> {
    Some(match event {
        Event::RunStarted(_) => "run_started".to_owned(),
        Event::RunResumed(_) => "run_resumed".to_owned(),
        Event::NodeTransition { .. }
        | Event::Observed { .. }
        | Event::Fact { .. }
        | Event::Used { .. }
        | Event::DayUsed(_)
        | Event::WindowsUsed(_)
        | Event::IdleLearned { .. }
        | Event::Unknown => return None,
        Event::LimitSet { .. } => "limit_set".to_owned(),
        Event::WorktreeReady { branch, .. } => format!("worktree_ready {branch}"),
        Event::MergeConflicted { from, files, .. } => format!("merge_conflicted {from} {}", files.join(" ")),
        Event::SetupFinished(s) => format!("setup_finished {} {}", s.cmd, s.rc),
        Event::WorkCommitted { branch, .. } => format!("work_committed {branch}"),
        Event::ChecksPinned { files, .. } => format!("checks_pinned {}", files.len()),
        Event::ChecksStarted { .. } => "checks_started".to_owned(),
        Event::CheckTampered { files, .. } => format!("check_tampered {}", files.join(" ")),
        Event::NodeAttempt(a) => {
            format!("node_attempt {}", if a.converged { "converged" } else { "not_converged" })
        }
        Event::RecoveryPlanned(r) => format!("recovery_planned {} {}", r.class, r.action),
        Event::PartialKept { file, .. } => format!("partial_kept {file}"),
        Event::SnapshotTaken { iteration, .. } => format!("snapshot_taken {iteration}"),
        Event::WatchdogContinue { deferred_by, .. } => format!("watchdog_continue {deferred_by}"),
        Event::Suspended { for_s, .. } => format!("suspended {for_s}"),
        Event::IterationStarted { iteration, cause, .. } => format!("iteration_started {iteration} {cause}"),
        Event::CommandFinished(c) => {
            format!("command_finished {}{}", c.name, if c.timed_out { " timed_out" } else { "" })
        }
        Event::PromptAssembled { .. } => "prompt_assembled".to_owned(),
        Event::SessionStarted { .. } => "session_started".to_owned(),
        Event::MarkerSeen { state, .. } => format!("marker_seen {state}"),
        Event::NeedsHuman { what, .. } => format!("needs_human {what}"),
        Event::NeedsHumanEnded { by, .. } => format!("needs_human_ended {by}"),
        Event::AgentRetrying { .. } => "agent_retrying".to_owned(),
        Event::AgentDrifted { .. } => "agent_drifted".to_owned(),
        Event::HardStop { reason, .. } => format!("hard_stop {reason}"),
        Event::SessionSignalled { step, .. } => format!("session_signalled {step}"),
        Event::AgentReported { report, .. } => format!("agent_reported {} {}", report.kind, report.text),
        Event::SessionEnded(s) => format!("session_ended by {}", s.ended_by),
        Event::IterationCompleted(_) => "iteration_completed".to_owned(),
        Event::IterationIdle { reason, consecutive, .. } => format!("iteration_idle {reason} {consecutive}"),
        Event::IterationFailed(_) => "iteration_failed".to_owned(),
        Event::IterationTimedOut(_) => "iteration_timed_out".to_owned(),
        Event::IterationRateLimited { .. } => "iteration_rate_limited".to_owned(),
        Event::IterationAuthFailed(_) => "iteration_auth_failed".to_owned(),
        Event::IterationInterrupted { by, .. } => format!("iteration_interrupted {by}"),
        Event::WaitStarted { why, delay_s: Some(delay), .. } => format!("wait_started {why} {delay}"),
        Event::WaitStarted { why, delay_s: None, .. } => format!("wait_started {why}"),
        Event::RunSlept { reason, consecutive, .. } => format!("run_slept {reason} {consecutive}"),
        Event::WakeRemembered { by, .. } => format!("wake_remembered {by}"),
        Event::Paused {} => "paused".to_owned(),
        Event::Unpaused {} => "unpaused".to_owned(),
        Event::MessageReceived { text, .. } => format!("told {text}"),
        Event::WaitEnded { by, .. } => format!("wait_ended {by}"),
        Event::Notice { kind, .. } => format!("notice {kind}"),
        Event::Notified { key, how, ok, .. } => {
            let how_it_went = if *ok { "" } else { " failed" };
            format!("notified {key} {how}{how_it_went}")
        }
        Event::Trouble { kind, .. } => format!("trouble {kind}"),
        Event::RunEnded(e) => format!("run_ended {} {}", e.outcome, e.exit_code),
    })
}
