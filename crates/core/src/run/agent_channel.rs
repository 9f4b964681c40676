//! The side door: what an agent may say beside its output, and what it is worth.
//!
//! One `SideDoor` per session. It tells evidence from presence: a call is evidence on `mcp_tool`; a heartbeat,
//! or the same note again, is not. It keeps the last state that the agent named, which counts at the session's
//! end as a marker in its text would. Nothing here grows with what an agent says.

use crate::record::event::{Observation, Report, ReportKind};
use crate::record::hash;
use crate::record::ids::{Iteration, NodeName};
use crate::record::view::NodeView;
use crate::run::input::Input;
use crate::run::job::{Job, Marker};
use crate::text::fingerprint::fingerprint;
use crate::text::{clip, one_line};
use crate::time::moment::Awake;
use crate::watch::coalesce::Coalescer;
use crate::watch::{Channel, Fact};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt::Write as _;

/// The tool by which an agent says that it is alive, and no more.
pub const HEARTBEAT_TOOL: &str = "heartbeat";
/// So many notes are remembered, to tell a new one from the same again.
const MAX_KNOWN: usize = 64;
/// The most of a note that is kept in the record, in bytes.
pub const MAX_NOTE: usize = 500;
/// So many reports go into the record at once; after that one each second. The rest is counted.
const BURST: u64 = 20;
const REPORT_EVERY_MS: u64 = 1_000;
/// Artifacts that one session may save.
pub const MAX_ARTIFACTS: usize = 100;
/// The largest artifact, in bytes.
pub const MAX_ARTIFACT_BYTES: u64 = 1024 * 1024;
/// The longest name of an artifact, in bytes.
pub const MAX_ARTIFACT_NAME: usize = 100;
/// The most of what went wrong that an agent is told, in bytes.
const MAX_DIAGNOSIS: usize = 16 * 1024;
/// The checks are run for an agent at most this often.
const CHECK_EVERY_MS: u64 = 30_000;

/// Whose words these are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentRequest {
    pub node: NodeName,
    pub iteration: Iteration,
    #[serde(flatten)]
    pub said: Said,
}

/// What comes through the door.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum Said {
    /// Alive, and no more than that.
    Heartbeat,
    /// `idle` ends the iteration as the marker would; `done` is a claim, and so is every other word.
    State {
        state: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    Progress {
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        done: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<u64>,
    },
    Error {
        text: String,
    },
    /// May it be kept? Whoever asks then writes it.
    Artifact {
        name: String,
        bytes: u64,
        sha256: String,
    },
    /// May the checks be run now?
    CheckDone,
    /// They were.
    Checked {
        failed: u64,
        of: u64,
        /// Pinned files that are not what they were, some of them if there are many.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tampered: Vec<String>,
    },
    WhatFailed,
    /// A call to another server of the agent's, which goes through us.
    Call {
        server: String,
        tool: String,
        phase: Phase,
    },
    /// A server of the agent's does not do what it should.
    ServerTrouble {
        server: String,
        text: String,
    },
}

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Start,
    /// The server told of its progress.
    Progress,
    End,
    /// It took too long and was given up.
    TimedOut,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// Heard. `evidence`: it shows that work goes on.
    Noted {
        evidence: bool,
    },
    /// Do it.
    Granted,
    /// Not that, or not now.
    Refused {
        why: String,
    },
    Failed {
        text: String,
    },
}

/// What became of something said.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    pub inputs: Vec<Input>,
    pub answer: Answer,
}

#[derive(Clone, Debug)]
pub struct SideDoor {
    job: Job,
    seen: Coalescer,
    known: VecDeque<u64>,
    state: Option<Marker>,
    /// What may go into the record now, as of then; and what could not since.
    allowance: u64,
    counted: Awake,
    withheld: u64,
    artifacts: VecDeque<String>,
    checked: Option<Awake>,
}

impl SideDoor {
    pub fn new(job: Job) -> SideDoor {
        SideDoor {
            job,
            seen: Coalescer::new(Channel::McpTool),
            known: VecDeque::new(),
            state: None,
            allowance: BURST,
            counted: Awake(0),
            withheld: 0,
            artifacts: VecDeque::new(),
            checked: None,
        }
    }

    /// The last state that the agent named, as a marker.
    pub fn marker(&self) -> Option<&Marker> {
        self.state.as_ref()
    }

    /// Evidence that still waits, before somebody judges.
    pub fn flush(&mut self, at: Awake) -> Option<Observation> {
        self.seen.flush(at)
    }

    /// Takes what was said. `node` is the node as the record has it.
    pub fn hear(&mut self, at: Awake, node: &NodeView, said: &Said) -> Heard {
        let mut inputs = Vec::new();
        let answer = match said {
            Said::Heartbeat => Answer::Noted { evidence: false },
            Said::State { state, reason } => self.state(at, state, reason.as_deref(), &mut inputs),
            Said::Progress { message, done, total } => {
                let note = [hash::bytes(fingerprint(message).as_bytes()), number(*done), number(*total)];
                let evidence = self.note(at, note.into_iter().fold(1, hash::mix), &mut inputs);
                if evidence {
                    let report =
                        Report { done: *done, total: *total, ..report(ReportKind::Progress, message) };
                    self.report(at, report, &mut inputs);
                }
                Answer::Noted { evidence }
            }
            Said::Error { text } => self.error(at, text, &mut inputs),
            Said::Artifact { name, bytes, sha256 } => self.artifact(at, name, *bytes, sha256, &mut inputs),
            Said::CheckDone => self.check(at, &mut inputs),
            Said::Checked { failed, of, tampered } => {
                self.evidence(at, &mut inputs);
                let text = checked(*failed, *of, tampered);
                self.report(at, report(ReportKind::Checks, &text), &mut inputs);
                Answer::Noted { evidence: true }
            }
            Said::WhatFailed => {
                let text = clip(&what_failed(node), MAX_DIAGNOSIS).to_owned();
                self.note(at, hash::mix(4, hash::bytes(text.as_bytes())), &mut inputs);
                Answer::Failed { text }
            }
            Said::Call { server, tool, phase } => {
                self.evidence(at, &mut inputs);
                if *phase == Phase::TimedOut {
                    let text = format!("{server}: {tool} took too long and was given up");
                    self.report(at, report(ReportKind::Server, &text), &mut inputs);
                }
                Answer::Noted { evidence: true }
            }
            Said::ServerTrouble { server, text } => {
                let text = format!("{server}: {text}");
                self.report(at, report(ReportKind::Server, &text), &mut inputs);
                Answer::Noted { evidence: false }
            }
        };
        Heard { inputs, answer }
    }

    fn state(&mut self, at: Awake, state: &str, reason: Option<&str>, inputs: &mut Vec<Input>) -> Answer {
        if !is_word(state) {
            let why = format!(
                "a state is one word of letters, digits, `_` and `-`, at most {} bytes",
                Marker::MAX_STATE
            );
            return Answer::Refused { why };
        }
        let reason = reason.map(|r| one_line(r, Marker::MAX_VALUE)).filter(|r| !r.is_empty());
        let said = match &reason {
            Some(reason) => format!("{state} ({reason})"),
            None => state.to_owned(),
        };
        let attrs = reason.map(|r| vec![("reason".to_owned(), r)]).unwrap_or_default();
        let marker = Marker { state: state.to_owned(), attrs };
        if self.state.as_ref() == Some(&marker) {
            return Answer::Noted { evidence: false };
        }
        self.state = Some(marker);
        let evidence = self.note(at, hash::mix(2, hash::bytes(said.as_bytes())), inputs);
        self.report(at, report(ReportKind::State, &said), inputs);
        Answer::Noted { evidence }
    }

    /// The same error again is no evidence of work, but it counts as an error.
    fn error(&mut self, at: Awake, text: &str, inputs: &mut Vec<Input>) -> Answer {
        let fingerprint = fingerprint(text);
        let evidence = self.note(at, hash::mix(3, hash::bytes(fingerprint.as_bytes())), inputs);
        if self.report(at, report(ReportKind::Error, text), inputs) {
            inputs.extend(self.flush(at).map(|seen| Input::Observed { job: self.job, seen }));
            inputs.push(Input::Noted { job: self.job, fact: Fact::Error { fingerprint } });
        }
        Answer::Noted { evidence }
    }

    fn artifact(
        &mut self,
        at: Awake,
        name: &str,
        bytes: u64,
        sha256: &str,
        inputs: &mut Vec<Input>,
    ) -> Answer {
        let known = self.artifacts.iter().any(|n| n == name);
        let refused = match artifact_name(name) {
            Err(why) => Some(why),
            Ok(()) if bytes > MAX_ARTIFACT_BYTES => {
                Some(format!("an artifact holds at most {MAX_ARTIFACT_BYTES} bytes; this one has {bytes}"))
            }
            Ok(()) if !known && self.artifacts.len() >= MAX_ARTIFACTS => {
                Some(format!("a session saves at most {MAX_ARTIFACTS} artifacts"))
            }
            Ok(()) => None,
        };
        if let Some(why) = refused {
            return Answer::Refused { why };
        }
        if !known {
            self.artifacts.push_back(name.to_owned());
        }
        let content = hash::mix(hash::bytes(name.as_bytes()), hash::bytes(sha256.as_bytes()));
        if self.note(at, hash::mix(5, content), inputs) {
            // A new name is always recorded: the record is where people look for the file, and names are few.
            self.allowance = self.allowance.max(u64::from(!known));
            let report = Report { bytes: Some(bytes), ..report(ReportKind::Artifact, name) };
            self.report(at, report, inputs);
        }
        Answer::Granted
    }

    fn check(&mut self, at: Awake, inputs: &mut Vec<Input>) -> Answer {
        let since = self.checked.map(|before| at.since(before).as_millis());
        if let Some(since) = since.filter(|ms| *ms < CHECK_EVERY_MS) {
            let wait = (CHECK_EVERY_MS - since).div_ceil(1_000);
            let why =
                format!("the checks were run {} s ago; work on, and ask again in {wait} s", since / 1_000);
            return Answer::Refused { why };
        }
        self.checked = Some(at);
        self.evidence(at, inputs);
        Answer::Granted
    }

    /// Whether this note is a new one; a new one is evidence.
    fn note(&mut self, at: Awake, note: u64, inputs: &mut Vec<Input>) -> bool {
        if self.known.contains(&note) {
            return false;
        }
        if self.known.len() == MAX_KNOWN {
            self.known.pop_front();
        }
        self.known.push_back(note);
        self.evidence(at, inputs);
        true
    }

    fn evidence(&mut self, at: Awake, inputs: &mut Vec<Input>) {
        let seen = self.seen.saw(at, 1, 0);
        inputs.extend(seen.map(|seen| Input::Observed { job: self.job, seen }));
    }

    /// Whether there was room in the record for it.
    fn report(&mut self, at: Awake, report: Report, inputs: &mut Vec<Input>) -> bool {
        let earned = at.since(self.counted).as_millis() / REPORT_EVERY_MS;
        if earned > 0 {
            self.allowance = self.allowance.saturating_add(earned).min(BURST);
            self.counted = at;
        }
        if self.allowance == 0 {
            self.withheld += 1;
            return false;
        }
        self.allowance -= 1;
        let withheld = std::mem::take(&mut self.withheld);
        let report = Report { withheld, ..report };
        inputs.push(Input::Reported { job: self.job, report: Box::new(report) });
        true
    }
}

/// What came of the checks, in one line.
fn checked(failed: u64, of: u64, tampered: &[String]) -> String {
    let mut text = match (failed, of) {
        (_, 0) => "the checks were not run for the agent".to_owned(),
        (0, of) => format!("all {of} checks pass, by the agent's own run"),
        (failed, of) => format!("{failed} of {of} checks fail, by the agent's own run"),
    };
    if !tampered.is_empty() {
        let _ = write!(text, "; what they rest on was changed: {}", tampered.join(", "));
    }
    text
}

fn report(kind: ReportKind, text: &str) -> Report {
    Report { kind, text: one_line(text, MAX_NOTE), done: None, total: None, bytes: None, withheld: 0 }
}

fn number(n: Option<u64>) -> u64 {
    n.map_or(0, |n| n.wrapping_add(1))
}

fn is_word(state: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    !state.is_empty() && state.len() <= Marker::MAX_STATE && state.bytes().all(fine)
}

/// Whether an artifact may have this name: a file name that means the same everywhere and leads nowhere.
pub fn artifact_name(name: &str) -> Result<(), String> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if name.is_empty() || name.len() > MAX_ARTIFACT_NAME {
        return Err(format!("an artifact's name has 1 to {MAX_ARTIFACT_NAME} bytes"));
    }
    if name.starts_with('.') || !name.bytes().all(fine) {
        return Err(
            "an artifact's name is made of letters, digits, `.`, `_` and `-`, and does not begin with \
                    a dot; it is a file name, not a path"
                .to_owned(),
        );
    }
    Ok(())
}

/// What is known of the last thing that went wrong in a node.
pub fn what_failed(node: &NodeView) -> String {
    use crate::run::ending::Ending;
    let Some((end, ending)) = node.last_end.as_ref().zip(node.last_ending.as_ref()) else {
        return "Nothing has failed: no iteration of this node has ended yet.".to_owned();
    };
    let how = match ending {
        Ending::Completed | Ending::Idle { .. } => {
            let failing = failing(node);
            if failing.is_empty() {
                let (iteration, because) = (end.iteration, &end.because);
                return format!("Nothing has failed: iteration {iteration} ended as it should ({because}).");
            }
            return format!("Iteration {} did its work, but the checks fail.{failing}", end.iteration);
        }
        Ending::Failed => "failed",
        Ending::TimedOut => "was ended by the watchdog",
        Ending::RateLimited { .. } => "met a rate limit",
        Ending::AuthFailed => "was refused for want of authentication",
        Ending::Interrupted { .. } => "was interrupted",
    };
    let mut text = format!("Iteration {} {how}: {}.", end.iteration, end.because);
    if let Some(stop) = node.recovery.last.as_ref().filter(|stop| stop.iteration == end.iteration) {
        let _ = write!(text, "\nThe watchdog said: {} [{}]", stop.message, stop.reason);
    }
    text.push_str(&failing(node));
    if let Some(session) = node.last_session.as_ref().filter(|s| !s.said.is_empty()) {
        let _ = write!(text, "\nThe last words of that session: {}", session.said);
    }
    text
}

/// The checks that failed last, with the ends of their output.
fn failing(node: &NodeView) -> String {
    let mut text = String::new();
    for check in node.attempts.last.iter().filter(|check| check.rc != 0) {
        let _ = write!(text, "\nCheck `{}` fails with {}", check.cmd, check.rc);
        if let Some(tail) = &check.tail {
            let _ = write!(text, ", and prints at the end:\n{tail}");
        }
    }
    if !node.attempts.tampered.is_empty() {
        let _ = write!(text, "\nPinned files were changed: {}", node.attempts.tampered.join(", "));
    }
    text
}
