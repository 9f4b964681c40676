//! The agent channel: the requests that an agent sends separately from its output, and how much they count.
//!
//! There is one `AgentChannel` per session. It distinguishes evidence of work from mere presence: a call is evidence on
//! `mcp_tool`; a heartbeat or a repeated note is not. It keeps the last state that the agent reported, which has the
//! same effect at the session's end as a marker in the agent's text. Its memory does not grow with the requests.

use crate::record::event::{Report, ReportKind};
use crate::record::hash;
use crate::record::ids::{Iteration, NodeName};
use crate::record::view::NodeView;
use crate::run::input::{Input, NodeInput};
use crate::run::job::{Job, Marker};
use crate::text::figures::count;
use crate::text::fingerprint::fingerprint;
use crate::text::{clip, one_line};
use crate::time::moment::Awake;
use crate::watch::feed::{Feed, Input as Happened};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt::Write as _;

/// The tool that only signals that the agent is alive.
pub const HEARTBEAT_TOOL: &str = "heartbeat";
/// The number of notes that are remembered to detect repeats.
const MAX_KNOWN: usize = 64;
/// The most of a note that is kept in the record, in bytes.
pub const MAX_NOTE: usize = 500;
/// The number of reports that may be recorded in a burst. After that one report per second is recorded, and the rest
/// is only counted.
const BURST: u64 = 20;
const REPORT_EVERY_MS: u64 = 1_000;
/// The number of artifacts that one session may save.
pub const MAX_ARTIFACTS: usize = 100;
/// The largest artifact, in bytes.
pub const MAX_ARTIFACT_BYTES: u64 = 1024 * 1024;
/// The longest name of an artifact, in bytes.
pub const MAX_ARTIFACT_NAME: usize = 100;
/// The longest answer to `what_failed`, in bytes.
const MAX_DIAGNOSIS: usize = 16 * 1024;
/// The shortest interval between two runs of the checks for an agent, in milliseconds.
const CHECK_EVERY_MS: u64 = 30_000;

/// A request of an agent, with the node and the iteration that it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentRequest {
    /// The node of the session.
    pub node: NodeName,
    /// The iteration of the session.
    pub iteration: Iteration,
    /// The content of the request.
    #[serde(flatten)]
    pub body: RequestBody,
}

/// The content of an agent's request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum RequestBody {
    /// The agent is alive.
    Heartbeat,
    /// The agent reports its state. `idle` ends the iteration as the marker would; `done` and every other state are
    /// only claims.
    State {
        /// The state in one word.
        state: String,
        /// The reason of the state.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The agent reports progress.
    Progress {
        /// The finished work in the agent's words.
        message: String,
        /// The number of finished steps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        done: Option<u64>,
        /// The number of all steps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<u64>,
    },
    /// The agent reports an error.
    Error {
        /// The error.
        text: String,
    },
    /// The agent asks to save an artifact. If this is granted, the requester writes the file.
    Artifact {
        /// The name of the file.
        name: String,
        /// The size in bytes.
        bytes: u64,
        /// The SHA-256 hash of the content.
        sha256: String,
    },
    /// The agent asks to run the checks now.
    CheckDone,
    /// The checks were run for the agent.
    Checked {
        /// The number of failed checks.
        failed: u64,
        /// The number of checks.
        of: u64,
        /// Pinned files that have changed; only some of them if there are many.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tampered: Vec<String>,
    },
    /// The agent asks what went wrong last.
    WhatFailed,
    /// A call to one of the user's MCP servers, proxied by dogwatch.
    Call {
        /// The name of the server.
        server: String,
        /// The name of the tool.
        tool: String,
        /// The phase of the call.
        phase: Phase,
    },
    /// One of the user's MCP servers misbehaves.
    ServerTrouble {
        /// The name of the server.
        server: String,
        /// The problem.
        text: String,
    },
}

/// The phase of a proxied call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The call was sent.
    Start,
    /// The server reported progress.
    Progress,
    /// The server answered.
    End,
    /// The call timed out.
    TimedOut,
}

/// The answer to an agent's request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum AgentResponse {
    /// The request was noted. `evidence`: it counts as evidence of work.
    Noted {
        /// Whether the request counts as evidence of work.
        evidence: bool,
    },
    /// The agent may proceed.
    Granted,
    /// The request is rejected, for good or for now.
    Refused {
        /// The reason, for the agent.
        why: String,
    },
    /// The answer to `WhatFailed`.
    Failed {
        /// What failed, for the agent.
        text: String,
    },
}

/// The result of a request: inputs for the run, and the answer for the agent. The inputs precede what the feed has.
#[derive(Clone, Debug, PartialEq)]
pub struct Handled {
    /// The inputs for the run.
    pub inputs: Vec<Input>,
    /// The answer for the agent.
    pub answer: AgentResponse,
}

/// The agent channel of one session.
#[derive(Clone, Debug)]
pub struct AgentChannel {
    job: Job,
    known: VecDeque<u64>,
    state: Option<Marker>,
    /// The number of reports that may be recorded now.
    allowance: u64,
    /// When the allowance was last increased.
    counted: Awake,
    /// The number of reports that were not recorded since the last recorded one.
    withheld: u64,
    artifacts: VecDeque<String>,
    checked: Option<Awake>,
}

impl AgentChannel {
    /// Opens the agent channel of a session.
    pub fn new(job: Job) -> AgentChannel {
        AgentChannel {
            job,
            known: VecDeque::new(),
            state: None,
            allowance: BURST,
            counted: Awake(0),
            withheld: 0,
            artifacts: VecDeque::new(),
            checked: None,
        }
    }

    /// Returns the last state that the agent reported, as a marker.
    pub fn marker(&self) -> Option<&Marker> {
        self.state.as_ref()
    }

    /// Handles a request. `node` is the recorded state of the node; evidence and errors go to the session's feed.
    pub fn handle(&mut self, at: Awake, node: &NodeView, body: &RequestBody, feed: &mut Feed) -> Handled {
        let mut inputs = Vec::new();
        let answer = match body {
            RequestBody::Heartbeat => AgentResponse::Noted { evidence: false },
            RequestBody::State { state, reason } => {
                self.state(at, state, reason.as_deref(), &mut inputs, feed)
            }
            RequestBody::Progress { message, done, total } => {
                let note = [hash::bytes(fingerprint(message).as_bytes()), number(*done), number(*total)];
                let evidence = self.note(at, note.into_iter().fold(1, hash::mix), feed);
                if evidence {
                    let report =
                        Report { done: *done, total: *total, ..report(ReportKind::Progress, message) };
                    self.report(at, report, &mut inputs);
                }
                AgentResponse::Noted { evidence }
            }
            RequestBody::Error { text } => self.error(at, text, &mut inputs, feed),
            RequestBody::Artifact { name, bytes, sha256 } => {
                self.artifact(at, name, *bytes, sha256, &mut inputs, feed)
            }
            RequestBody::CheckDone => self.check(at, feed),
            RequestBody::Checked { failed, of, tampered } => {
                evidence(at, feed);
                let text = checked(*failed, *of, tampered);
                self.report(at, report(ReportKind::Checks, &text), &mut inputs);
                AgentResponse::Noted { evidence: true }
            }
            RequestBody::WhatFailed => {
                let text = clip(&what_failed(node), MAX_DIAGNOSIS).to_owned();
                self.note(at, hash::mix(4, hash::bytes(text.as_bytes())), feed);
                AgentResponse::Failed { text }
            }
            RequestBody::Call { server, tool, phase } => {
                evidence(at, feed);
                if *phase == Phase::TimedOut {
                    let text = format!("{server}: {tool} timed out");
                    self.report(at, report(ReportKind::Server, &text), &mut inputs);
                }
                AgentResponse::Noted { evidence: true }
            }
            RequestBody::ServerTrouble { server, text } => {
                let text = format!("{server}: {text}");
                self.report(at, report(ReportKind::Server, &text), &mut inputs);
                AgentResponse::Noted { evidence: false }
            }
        };
        Handled { inputs, answer }
    }

    fn state(
        &mut self,
        at: Awake,
        state: &str,
        reason: Option<&str>,
        inputs: &mut Vec<Input>,
        feed: &mut Feed,
    ) -> AgentResponse {
        if !is_word(state) {
            let why = format!(
                "a state is one word of letters, digits, `_` and `-`, at most {} bytes",
                Marker::MAX_STATE
            );
            return AgentResponse::Refused { why };
        }
        let reason = reason.map(|r| one_line(r, Marker::MAX_VALUE)).filter(|r| !r.is_empty());
        let text = match &reason {
            Some(reason) => format!("{state} ({reason})"),
            None => state.to_owned(),
        };
        let attrs = reason.map(|r| vec![("reason".to_owned(), r)]).unwrap_or_default();
        let marker = Marker { state: state.to_owned(), attrs };
        if self.state.as_ref() == Some(&marker) {
            return AgentResponse::Noted { evidence: false };
        }
        self.state = Some(marker);
        let evidence = self.note(at, hash::mix(2, hash::bytes(text.as_bytes())), feed);
        self.report(at, report(ReportKind::State, &text), inputs);
        AgentResponse::Noted { evidence }
    }

    /// Handles a reported error. A repeated error is not evidence of work, but it counts as an error.
    fn error(&mut self, at: Awake, text: &str, inputs: &mut Vec<Input>, feed: &mut Feed) -> AgentResponse {
        let fingerprint = fingerprint(text);
        let evidence = self.note(at, hash::mix(3, hash::bytes(fingerprint.as_bytes())), feed);
        if self.report(at, report(ReportKind::Error, text), inputs) {
            feed.take(at, Happened::Error { fingerprint });
        }
        AgentResponse::Noted { evidence }
    }

    fn artifact(
        &mut self,
        at: Awake,
        name: &str,
        bytes: u64,
        sha256: &str,
        inputs: &mut Vec<Input>,
        feed: &mut Feed,
    ) -> AgentResponse {
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
            return AgentResponse::Refused { why };
        }
        if !known {
            self.artifacts.push_back(name.to_owned());
        }
        let content = hash::mix(hash::bytes(name.as_bytes()), hash::bytes(sha256.as_bytes()));
        if self.note(at, hash::mix(5, content), feed) {
            // A new name is always recorded: users find the file through the record, and the number of names is limited.
            self.allowance = self.allowance.max(u64::from(!known));
            let report = Report { bytes: Some(bytes), ..report(ReportKind::Artifact, name) };
            self.report(at, report, inputs);
        }
        AgentResponse::Granted
    }

    fn check(&mut self, at: Awake, feed: &mut Feed) -> AgentResponse {
        let since = self.checked.map(|before| at.since(before).as_millis());
        if let Some(since) = since.filter(|ms| *ms < CHECK_EVERY_MS) {
            let wait = (CHECK_EVERY_MS - since).div_ceil(1_000);
            let why = format!("the checks ran {} s ago; keep working and retry in {wait} s", since / 1_000);
            return AgentResponse::Refused { why };
        }
        self.checked = Some(at);
        evidence(at, feed);
        AgentResponse::Granted
    }

    /// Remembers a note and returns whether it is new. A new note is evidence.
    fn note(&mut self, at: Awake, note: u64, feed: &mut Feed) -> bool {
        if self.known.contains(&note) {
            return false;
        }
        if self.known.len() == MAX_KNOWN {
            self.known.pop_front();
        }
        self.known.push_back(note);
        evidence(at, feed);
        true
    }

    /// Records a report if the rate limit allows it. Returns whether it did.
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
        inputs.push(Input::Job(self.job, NodeInput::Reported(Box::new(report))));
        true
    }
}

fn evidence(at: Awake, feed: &mut Feed) {
    feed.take(at, Happened::McpCall { heartbeat: false });
}

/// Returns the result of the checks in one line.
fn checked(failed: u64, of: u64, tampered: &[String]) -> String {
    let mut text = match (failed, of) {
        (_, 0) => "the checks were not run for the agent".to_owned(),
        (0, of) => format!("{} passed (run by the agent)", count(of, "check")),
        (failed, of) => format!("{failed} of {} failed (run by the agent)", count(of, "check")),
    };
    if !tampered.is_empty() {
        let _ = write!(text, "; pinned files changed: {}", tampered.join(", "));
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

/// Checks the name of an artifact: a portable file name without a path.
pub fn artifact_name(name: &str) -> Result<(), String> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if name.is_empty() || name.len() > MAX_ARTIFACT_NAME {
        return Err(format!("an artifact's name has 1 to {MAX_ARTIFACT_NAME} bytes"));
    }
    if name.starts_with('.') || !name.bytes().all(fine) {
        return Err(
            "an artifact's name consists of letters, digits, `.`, `_` and `-` and does not start with \
                    a dot; it is a file name, not a path"
                .to_owned(),
        );
    }
    Ok(())
}

/// Returns a description of the last failure in a node, for its agent.
pub fn what_failed(node: &NodeView) -> String {
    use crate::run::ending::Ending;
    let Some((end, ending)) = node.last.end.as_ref().zip(node.last.ending.as_ref()) else {
        return "Nothing has failed: no iteration of this node has ended yet.".to_owned();
    };
    let how = match ending {
        Ending::Completed | Ending::Idle { .. } => {
            let failing = failing(node);
            if failing.is_empty() {
                let (iteration, because) = (end.iteration, &end.because);
                return format!("Nothing has failed: iteration {iteration} ended normally ({because}).");
            }
            return format!("Iteration {} completed, but the checks fail.{failing}", end.iteration);
        }
        Ending::Failed => "failed",
        Ending::TimedOut => "was stopped by the watchdog",
        Ending::RateLimited { .. } => "hit a rate limit",
        Ending::AuthFailed => "failed to authenticate",
        Ending::Interrupted { .. } => "was interrupted",
    };
    let mut text = format!("Iteration {} {how}: {}.", end.iteration, end.because);
    if let Some(stop) = node.recovery.last.as_ref().filter(|stop| stop.iteration == end.iteration) {
        let _ = write!(text, "\nWatchdog verdict: {} [{}]", stop.message, stop.reason);
    }
    text.push_str(&failing(node));
    if let Some(session) = node.last.session.as_ref().filter(|s| !s.said.is_empty()) {
        let _ = write!(text, "\nLast message of that session: {}", session.said);
    }
    text
}

/// Returns the checks that failed last, with the ends of their output.
fn failing(node: &NodeView) -> String {
    let mut text = String::new();
    for check in node.attempts.last.iter().filter(|check| check.rc != 0) {
        let _ = write!(text, "\nCheck `{}` fails with exit code {}", check.cmd, check.rc);
        if let Some(tail) = &check.tail {
            let _ = write!(text, "; the end of its output:\n{tail}");
        }
    }
    if !node.attempts.tampered.is_empty() {
        let _ = write!(text, "\nPinned files were changed: {}", node.attempts.tampered.join(", "));
    }
    text
}
