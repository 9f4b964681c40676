//! Events as short words, for tests that compare whole sequences.

use dogwatch_core::record::event::Event;

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
        Event::MergeConflicted { from, files, .. } => format!("merge_conflicted {from} {}", files.join(" ")),
        Event::SetupFinished(s) => format!("setup_finished {} {}", s.cmd, s.rc),
        Event::WorkCommitted { branch, .. } => format!("work_committed {branch}"),
        Event::WorktreeReady { branch, .. } => format!("worktree_ready {branch}"),
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
        Event::VerdictLabeled { label, .. } => format!("verdict_labeled {label}"),
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
