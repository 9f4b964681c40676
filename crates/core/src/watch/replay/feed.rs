//! Turns the inputs of a session into facts for the watchdog, with one coalescer per channel, as in a live session.

use crate::record::event::Observation;
use crate::run::agent_channel::HEARTBEAT_TOOL;
use crate::time::moment::Awake;
use crate::watch::coalesce::Coalescer;
use crate::watch::sign::{Heartbeats, Sign, Totals};
use crate::watch::{Channel, Fact};
use std::collections::{BTreeMap, BTreeSet};

/// The most paths whose last digest is remembered. Every change of another path counts as progress.
pub const MAX_PATHS: usize = 100_000;

/// An input of a timeline.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Bytes on stdout with unknown content.
    Stdout {
        /// The number of bytes.
        bytes: u64,
    },
    /// Bytes on stderr with unknown content.
    Stderr {
        /// The number of bytes.
        bytes: u64,
    },
    /// A message.
    Message {
        /// The number of messages so far, if it is known.
        count: Option<u64>,
    },
    /// A sign, as if the agent's reader had produced it.
    Sign(Sign),
    /// A call to an MCP tool.
    McpCall {
        /// The name of the tool.
        tool: String,
    },
    /// A subagent did something.
    Subagent {
        /// The subagent's id.
        id: String,
        /// What the subagent did.
        did: Did,
    },
    /// A file changed.
    Workspace {
        /// The hash of the file's path, if it is known.
        path: Option<u64>,
        /// The hash of the file's new content, if it is known.
        digest: Option<u64>,
    },
    /// A sample of the agent's children.
    Children {
        /// The number of live children.
        live: u32,
        /// The CPU time that they have used, in milliseconds.
        cpu_ms: Option<u64>,
    },
    /// A sign of life without progress.
    Heartbeat,
    /// A suspension that ends now.
    Suspended {
        /// How long, in milliseconds.
        for_ms: u64,
    },
}

/// The activity of a subagent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// It made progress.
    Progress,
    /// It used a tool.
    Tool,
    /// It is alive.
    Heartbeat,
    /// It ended.
    Ended,
}

/// The inputs of one session on their way to the watchdog.
#[derive(Debug)]
pub struct Feed {
    structured: bool,
    channels: [Coalescer; Channel::ALL.len()],
    /// The last state of the work tree.
    digest: Option<Option<u64>>,
    /// The last digest of each path.
    paths: BTreeMap<Option<u64>, u64>,
    printed: bool,
    subagents: BTreeSet<String>,
    heartbeats: Heartbeats,
    cpu_ms: u64,
    /// The totals of the session's signs.
    pub totals: Totals,
}

impl Feed {
    /// Creates the feed of a session.
    pub fn new(structured: bool) -> Feed {
        let [stdout, mcp_tool, subagent, workspace] =
            [Channel::Stdout, Channel::McpTool, Channel::Subagent, Channel::Workspace].map(Coalescer::new);
        Feed {
            structured,
            channels: [stdout, mcp_tool, subagent, workspace],
            digest: None,
            paths: BTreeMap::new(),
            printed: false,
            subagents: BTreeSet::new(),
            heartbeats: Heartbeats::default(),
            cpu_ms: 0,
            totals: Totals::default(),
        }
    }

    /// Takes a change of the work tree in a live session. A record holds only the last state of its stretch, because one
    /// record per state would let many writes fill the journal.
    pub fn changed(&mut self, at: Awake, digest: Option<u64>, out: &mut Vec<Fact>) {
        for record in self.channels[Channel::Workspace as usize].changed(at, digest) {
            self.pass(record, out);
        }
    }

    /// Takes a number of starts and ends of calls whose details are not passed on.
    pub fn calls(&mut self, at: Awake, count: u64, out: &mut Vec<Fact>) {
        self.saw(at, Channel::Stdout, count, 0, out);
    }

    /// Takes a nonblank line of stdout, as the signs that the agent's reader found in it.
    pub fn line(&mut self, at: Awake, signs: &mut Vec<Sign>, out: &mut Vec<Fact>) {
        self.printed(at, out);
        for sign in signs.drain(..) {
            self.sign(at, sign, out);
        }
    }

    /// Takes a nonblank line of stderr, as the signs that the agent's reader found in it. For a structured agent it is
    /// not progress and does not show that the agent has started.
    pub fn stderr_line(&mut self, at: Awake, signs: &mut Vec<Sign>, out: &mut Vec<Fact>) {
        if !self.structured {
            return self.line(at, signs, out);
        }
        for sign in signs.drain(..) {
            self.totals.add(&sign);
            if let Some(fact) = sign.into_fact() {
                self.single(at, fact, out);
            }
        }
    }

    /// Takes an input of a timeline.
    pub fn take(&mut self, at: Awake, input: Input, out: &mut Vec<Fact>) {
        match input {
            Input::Stdout { bytes } if bytes > 0 && self.structured => self.printed(at, out),
            Input::Stdout { bytes } | Input::Stderr { bytes } => {
                self.saw(at, Channel::Stdout, u64::from(bytes > 0 && !self.structured), 0, out);
            }
            Input::Message { count } => self.message(at, count, out),
            Input::Sign(mut sign) => {
                self.printed(at, out);
                self.heartbeats.mark(&mut sign);
                self.sign(at, sign, out);
            }
            Input::McpCall { tool } => {
                self.saw(at, Channel::McpTool, u64::from(tool != HEARTBEAT_TOOL), 0, out);
            }
            Input::Subagent { id, did } => self.subagent(at, id, did, out),
            Input::Workspace { path, digest } => {
                if self.is_change(path, digest) {
                    self.workspace(at, digest, out);
                }
            }
            Input::Children { live, cpu_ms } => {
                // An unknown CPU time counts as unchanged.
                self.cpu_ms = cpu_ms.unwrap_or(self.cpu_ms);
                self.single(at, Fact::Sampled { children: live, cpu_ms: self.cpu_ms }, out);
            }
            Input::Heartbeat => {}
            Input::Suspended { for_ms } => self.single(at, Fact::Suspended { for_ms }, out),
        }
    }

    /// Flushes the pending progress before an evaluation.
    pub fn flush(&mut self, at: Awake, out: &mut Vec<Fact>) {
        for channel in Channel::ALL {
            self.flush_one(at, *channel, out);
        }
    }

    /// Takes progress of subagents, as found in the files of the agent's CLI.
    pub fn subagents_did(&mut self, at: Awake, count: u64, out: &mut Vec<Fact>) {
        self.saw(at, Channel::Subagent, count, 0, out);
    }

    fn sign(&mut self, at: Awake, sign: Sign, out: &mut Vec<Fact>) {
        if sign == Sign::Repeated && !self.channels[Channel::Stdout as usize].is_after_pause(at) {
            return;
        }
        if let Some(channel) = sign.progress() {
            self.saw(at, channel, 1, u64::from(sign == Sign::Message), out);
        }
        self.totals.add(&sign);
        if let Some(fact) = sign.into_fact() {
            self.single(at, fact, out);
        }
    }

    /// Takes a message. Only a higher count is progress.
    fn message(&mut self, at: Awake, count: Option<u64>, out: &mut Vec<Fact>) {
        self.printed(at, out);
        let known = self.totals.messages;
        let new = count.map_or(1, |count| count.saturating_sub(known));
        self.totals.messages = known.saturating_add(new);
        self.saw(at, Channel::Stdout, new, new, out);
    }

    /// Takes the activity of a subagent. An unknown subagent has started. A heartbeat is not progress.
    fn subagent(&mut self, at: Awake, id: String, did: Did, out: &mut Vec<Fact>) {
        if did == Did::Ended {
            self.subagents.remove(&id);
            return self.sign(at, Sign::SubagentEnded { id }, out);
        }
        if self.subagents.insert(id.clone()) {
            self.single(at, Fact::SubagentStarted { id: id.clone() }, out);
        }
        if did != Did::Heartbeat {
            self.sign(at, Sign::SubagentProgress { id }, out);
        }
    }

    /// Returns whether a file changed. Writing the same content again is not a change; unknown content always is.
    fn is_change(&mut self, path: Option<u64>, digest: Option<u64>) -> bool {
        let Some(digest) = digest else {
            self.paths.remove(&path);
            return true;
        };
        if self.paths.len() >= MAX_PATHS && !self.paths.contains_key(&path) {
            return true;
        }
        self.paths.insert(path, digest) != Some(digest)
    }

    /// Takes a state of the work tree. A record holds one state, so another state starts another record.
    fn workspace(&mut self, at: Awake, digest: Option<u64>, out: &mut Vec<Fact>) {
        if self.digest.is_some_and(|waits| waits != digest) {
            self.flush_one(at, Channel::Workspace, out);
        }
        self.digest = Some(digest);
        self.saw(at, Channel::Workspace, 1, 0, out);
    }

    fn flush_one(&mut self, at: Awake, channel: Channel, out: &mut Vec<Fact>) {
        if let Some(record) = self.channels[channel as usize].flush(at) {
            self.pass(record, out);
        }
    }

    fn printed(&mut self, at: Awake, out: &mut Vec<Fact>) {
        if self.structured && !self.printed {
            self.printed = true;
            self.single(at, Fact::Printed, out);
        }
    }

    fn single(&mut self, at: Awake, fact: Fact, out: &mut Vec<Fact>) {
        self.flush(at, out);
        out.push(fact);
    }

    fn saw(&mut self, at: Awake, channel: Channel, count: u64, messages: u64, out: &mut Vec<Fact>) {
        for record in self.channels[channel as usize].saw(at, count, messages) {
            self.pass(record, out);
        }
    }

    /// Passes a record on. In a timeline all pending changes have the same state of the work tree, because another state
    /// would have flushed them.
    fn pass(&mut self, mut seen: Observation, out: &mut Vec<Fact>) {
        if let Some(digest) = self.digest.filter(|_| seen.channel == Channel::Workspace) {
            seen.digest = digest;
        }
        out.push(Fact::Observed(seen));
    }
}
