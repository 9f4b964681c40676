//! Decides whether the process that sent a request may steer a run.
//!
//! Only the operator steers. A process of a session belongs to the agent: it may use the agent channel, and nothing
//! else. That also holds for the sessions of other runs, with one exception: an agent that starts another run may
//! steer that run. The shell collects the facts, because only the operating system knows them.

use serde::{Deserialize, Serialize};

/// The facts about the process that sent a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The process exited before it could be examined.
    pub gone: bool,
    /// The process descends from the supervisor of the run, so it belongs to a session, a command or a check.
    pub descends: bool,
    /// The nonces of runs in the environment of the process and of its ancestors.
    pub nonces: Vec<String>,
}

/// The author of a message or request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The operator, or a program of the operator.
    #[default]
    Operator,
    /// An agent of another run, whose session started this run.
    Agent,
}

impl Source {
    /// Returns whether the source is the operator.
    pub fn is_operator(&self) -> bool {
        *self == Source::Operator
    }

    /// Returns the one of two sources that is trusted less.
    pub fn less_trusted(self, other: Source) -> Source {
        if self.is_operator() { other } else { self }
    }

    /// Returns a message as the next prompt shows it.
    pub fn label(self, text: &str) -> String {
        match self {
            Source::Operator => text.to_owned(),
            Source::Agent => format!("(from the agent of another run, not from the operator) {text}"),
        }
    }
}

/// Why a caller may not steer the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The caller belongs to a session of the run.
    OwnSession,
    /// The caller belongs to a session of a run that did not start this one.
    OtherSession,
    /// The caller exited, so it cannot be identified.
    Gone,
}

/// Returns the source of a request to the run with this nonce, or the reason why the request is refused. `inherited`
/// are the nonces that the supervisor of the run carries itself, because a session of another run started it.
pub fn source(caller: &Caller, nonce: Option<&str>, inherited: &[String]) -> Result<Source, Denied> {
    if caller.gone {
        return Err(Denied::Gone);
    }
    let carries = nonce.is_some_and(|own| caller.nonces.iter().any(|found| found == own));
    if caller.descends || carries {
        return Err(Denied::OwnSession);
    }
    match caller.nonces.iter().all(|found| inherited.contains(found)) {
        true if caller.nonces.is_empty() => Ok(Source::Operator),
        true => Ok(Source::Agent),
        false => Err(Denied::OtherSession),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(descends: bool, nonces: &[&str]) -> Caller {
        Caller { gone: false, descends, nonces: nonces.iter().map(|n| (*n).to_owned()).collect() }
    }

    #[test]
    fn a_process_of_the_run_is_refused_by_its_ancestors_or_by_its_nonce() {
        for own in [caller(true, &[]), caller(false, &["mine"]), caller(true, &["other"])] {
            assert_eq!(source(&own, Some("mine"), &[]), Err(Denied::OwnSession), "{own:?}");
        }
        let gone = Caller { gone: true, ..Caller::default() };
        assert_eq!(source(&gone, Some("mine"), &[]), Err(Denied::Gone));
    }

    #[test]
    fn a_session_of_another_run_is_refused_unless_it_started_this_run() {
        let started_by = ["other".to_owned()];
        assert_eq!(source(&caller(false, &[]), Some("mine"), &[]), Ok(Source::Operator));
        assert_eq!(source(&caller(false, &[]), Some("mine"), &started_by), Ok(Source::Operator));
        assert_eq!(source(&caller(false, &["other"]), Some("mine"), &started_by), Ok(Source::Agent));
        for nonces in [&["other"][..], &["other", "third"]] {
            let inherited = if nonces.len() == 1 { &[][..] } else { &started_by };
            assert_eq!(source(&caller(false, nonces), Some("mine"), inherited), Err(Denied::OtherSession));
        }
        assert_eq!(source(&caller(false, &["other"]), None, &[]), Err(Denied::OtherSession));
    }

    #[test]
    fn a_message_of_an_agent_is_labeled_and_one_of_the_operator_is_not() {
        assert_eq!(Source::Operator.label("stop"), "stop");
        assert!(Source::Agent.label("stop").contains("not from the operator"));
    }
}
