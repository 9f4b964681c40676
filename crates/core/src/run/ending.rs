//! The ending of an iteration: one table over all known facts, never one field alone.
//!
//! In practice an agent's exit code, its own result and its text contradict each other: exit 0 after an interrupt,
//! "success" with an error in it, exit 0 without any answer. The rows below are checked in order; the first match
//! decides and gives the reason.

use crate::record::event::EndedBy;
use crate::run::job::{Exit, Marker};
use crate::text::one_line;
use crate::time::moment::Wall;
use crate::watch::sign::{AgentResult, LimitKind};

/// The facts about a finished session.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// What ended the session.
    pub ended_by: EndedBy,
    /// How the process exited; `None` if it could not be started.
    pub exit: Option<Exit>,
    /// The reader understands this agent's stream, so a session without a result proves nothing.
    pub structured: bool,
    /// The agent's final result.
    pub result: Option<&'a AgentResult>,
    /// The last state marker of the agent.
    pub marker: Option<&'a Marker>,
    /// The limit with which the service refused, if the agent gave up because of it.
    pub limit: Option<LimitKind>,
    /// When the service accepts requests again, if it says so.
    pub resets_at: Option<Wall>,
    /// The service rejected the credentials.
    pub auth_failed: bool,
    /// The best description of what went wrong.
    pub complaint: &'a str,
}

impl Facts<'_> {
    fn refused_login(&self) -> bool {
        let by_status = self.result.is_some_and(|r| r.is_error && matches!(r.api_status, Some(401 | 403)));
        self.auth_failed || by_status
    }

    /// Returns the ending of a session without failures: completed, or idle.
    fn good(&self, because: &str) -> (Ending, String) {
        match self.marker {
            Some(m) if m.state == "idle" => {
                let given = one_line(m.attr("reason").unwrap_or(""), MAX_REASON);
                let reason = if given.is_empty() { UNSPECIFIED.to_owned() } else { given };
                let because = format!("the agent said idle ({reason})");
                (Ending::Idle { reason, skipped: false }, because)
            }
            Some(_) | None => (Ending::Completed, because.to_owned()),
        }
    }
}

/// The ending of an iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The agent exited by itself with code 0 and without an error.
    Completed,
    /// There was nothing to do. `skipped`: this was decided without starting the agent.
    Idle {
        /// The reason that the agent gave.
        reason: String,
        /// Whether the agent was not called.
        skipped: bool,
    },
    /// The agent failed.
    Failed,
    /// The watchdog stopped the session.
    TimedOut,
    /// The service refused for now.
    RateLimited {
        /// The kind of refusal.
        limit: LimitKind,
        /// When the service accepts requests again, if it says so.
        resets_at: Option<Wall>,
    },
    /// The service rejected the login.
    AuthFailed,
    /// The iteration was interrupted.
    Interrupted {
        /// What interrupted it.
        by: EndedBy,
    },
}

/// The ending and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The kind of ending.
    pub ending: Ending,
    /// Why, as a sentence for people.
    pub because: String,
}

/// The idle reason for a marker without a reason.
pub const UNSPECIFIED: &str = "unspecified";
const MAX_COMPLAINT: usize = 200;
const MAX_REASON: usize = 100;

/// Applies the table to the facts.
pub fn judge(facts: &Facts<'_>) -> Judged {
    let says = |text: &str| match one_line(facts.complaint, MAX_COMPLAINT) {
        c if c.is_empty() => text.to_owned(),
        c => format!("{text}: {c}"),
    };
    let (ending, because) = match (facts.ended_by, facts.exit, facts.result) {
        // A stop by dogwatch takes precedence: output after a stop signal proves nothing.
        (by @ (EndedBy::Operator | EndedBy::Signal | EndedBy::Budget | EndedBy::Leash), _, _) => {
            (Ending::Interrupted { by }, format!("ended by {by}"))
        }
        (EndedBy::Watchdog, _, _) => (Ending::TimedOut, "ended by the watchdog".to_owned()),
        (EndedBy::NeverStarted, _, _) | (EndedBy::Itself, None, _) => {
            (Ending::Failed, says("could not be started"))
        }
        // The agent's own failure report takes precedence over any exit code.
        (EndedBy::Itself | EndedBy::ResultGrace, Some(_), _) if facts.refused_login() => {
            (Ending::AuthFailed, says("authentication failed"))
        }
        (EndedBy::Itself | EndedBy::ResultGrace, Some(_), _) if facts.limit.is_some() => {
            let limit = facts.limit.unwrap_or(LimitKind::Overload);
            (Ending::RateLimited { limit, resets_at: facts.resets_at }, says(limit.as_str()))
        }
        // dogwatch stopped the agent after its result, so only the result counts, not the exit.
        (EndedBy::ResultGrace, _, Some(r)) if !r.is_error => {
            facts.good("the result counts; the agent did not exit by itself")
        }
        (EndedBy::ResultGrace, _, _) => (Ending::Failed, says("the agent reported an error")),
        (EndedBy::Itself, Some(_), Some(r)) if r.is_error => {
            (Ending::Failed, says("the agent reported an error"))
        }
        (EndedBy::Itself, Some(Exit::Signal(n)), _) => {
            (Ending::Failed, says(&format!("killed by signal {n}")))
        }
        (EndedBy::Itself, Some(Exit::Code(c)), _) if c != 0 => {
            (Ending::Failed, says(&format!("exit code {c}")))
        }
        (EndedBy::Itself, Some(Exit::Code(_)), None) if facts.structured => {
            (Ending::Failed, "exit code 0 without a result".to_owned())
        }
        (EndedBy::Itself, Some(Exit::Code(_)), _) => facts.good("exit code 0"),
    };
    Judged { ending, because }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts<'a>(ended_by: EndedBy, exit: Option<Exit>, result: Option<&'a AgentResult>) -> Facts<'a> {
        Facts {
            ended_by,
            exit,
            structured: true,
            result,
            marker: None,
            limit: None,
            resets_at: None,
            auth_failed: false,
            complaint: "",
        }
    }

    fn ending(f: Facts<'_>) -> Ending {
        judge(&f).ending
    }

    // promise: 13
    #[test]
    fn exit_0_after_an_interrupt_is_interrupted() {
        let ok = AgentResult::new("done", false);
        for by in [EndedBy::Operator, EndedBy::Signal, EndedBy::Budget] {
            assert_eq!(ending(facts(by, Some(Exit::Code(0)), Some(&ok))), Ending::Interrupted { by });
        }
    }

    // promise: 13
    #[test]
    fn loop_55_success_with_an_error_in_it_is_a_failure() {
        let bad = AgentResult::new("API Error", true);
        assert_eq!(ending(facts(EndedBy::Itself, Some(Exit::Code(0)), Some(&bad))), Ending::Failed);
    }

    // promise: 13
    #[test]
    fn exit_0_without_a_result_from_a_structured_agent_is_a_failure() {
        assert_eq!(ending(facts(EndedBy::Itself, Some(Exit::Code(0)), None)), Ending::Failed);
        let plain = Facts { structured: false, ..facts(EndedBy::Itself, Some(Exit::Code(0)), None) };
        assert_eq!(ending(plain), Ending::Completed);
    }

    // promise: 13
    #[test]
    fn a_kill_by_the_watchdog_is_a_timeout_even_if_the_agent_reports_success() {
        let ok = AgentResult::new("done", false);
        for exit in [Exit::Code(0), Exit::Code(1), Exit::Signal(9)] {
            assert_eq!(ending(facts(EndedBy::Watchdog, Some(exit), Some(&ok))), Ending::TimedOut);
        }
    }

    #[test]
    fn a_refused_login_is_its_own_ending() {
        let bad = AgentResult { api_status: Some(401), ..AgentResult::new("Invalid API key", true) };
        assert_eq!(ending(facts(EndedBy::Itself, Some(Exit::Code(1)), Some(&bad))), Ending::AuthFailed);
    }

    #[test]
    fn loop_59_idle_counts_only_if_the_iteration_did_not_fail() {
        let marker = Marker { state: "idle".into(), attrs: vec![("reason".into(), "at_capacity".into())] };
        let ok = AgentResult::new("nothing to do", false);
        let idle = |exit| Facts { marker: Some(&marker), ..facts(EndedBy::Itself, Some(exit), Some(&ok)) };
        assert_eq!(
            ending(idle(Exit::Code(0))),
            Ending::Idle { reason: "at_capacity".into(), skipped: false }
        );
        assert_eq!(ending(idle(Exit::Code(1))), Ending::Failed);
        let bare = Marker { state: "idle".into(), attrs: vec![] };
        let f = Facts { marker: Some(&bare), ..facts(EndedBy::Itself, Some(Exit::Code(0)), Some(&ok)) };
        assert_eq!(ending(f), Ending::Idle { reason: UNSPECIFIED.into(), skipped: false });
        for nothing in ["", " ", "\u{1b}[0m"] {
            let empty = Marker { state: "idle".into(), attrs: vec![("reason".into(), nothing.into())] };
            let f = Facts { marker: Some(&empty), ..facts(EndedBy::Itself, Some(Exit::Code(0)), Some(&ok)) };
            assert_eq!(ending(f), Ending::Idle { reason: UNSPECIFIED.into(), skipped: false }, "{nothing:?}");
        }
    }

    #[test]
    fn an_unknown_marker_changes_nothing() {
        let marker = Marker { state: "dancing".into(), attrs: vec![] };
        let ok = AgentResult::new("x", false);
        let f = Facts { marker: Some(&marker), ..facts(EndedBy::Itself, Some(Exit::Code(0)), Some(&ok)) };
        assert_eq!(ending(f), Ending::Completed);
    }

    // promise: 13
    #[test]
    fn every_combination_has_an_answer_and_success_needs_exit_0_by_itself() {
        let ok = AgentResult::new("x", false);
        let bad = AgentResult::new("x", true);
        for by in EndedBy::ALL {
            for exit in [None, Some(Exit::Code(0)), Some(Exit::Code(7)), Some(Exit::Signal(9))] {
                for result in [None, Some(&ok), Some(&bad)] {
                    for structured in [false, true] {
                        let judged = judge(&Facts { structured, ..facts(*by, exit, result) });
                        assert!(!judged.because.is_empty());
                        if judged.ending == Ending::Completed && *by != EndedBy::ResultGrace {
                            assert_eq!((*by, exit), (EndedBy::Itself, Some(Exit::Code(0))));
                            assert!(!result.is_some_and(|r| r.is_error));
                            assert!(result.is_some() || !structured);
                        }
                    }
                }
            }
        }
    }
}
