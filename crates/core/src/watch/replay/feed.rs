//! Turns what happened into facts for the watchdog, through one coalescer per channel, as in a live session.

use crate::record::event::Observation;
use crate::run::agent_channel::HEARTBEAT_TOOL;
use crate::time::moment::Awake;
use crate::watch::coalesce::Coalescer;
use crate::watch::sign::{Heartbeats, Sign, Totals};
use crate::watch::{Channel, Fact};
use std::collections::{BTreeMap, BTreeSet};

/// The most paths whose last digest is remembered. A change of any other path counts as progress.
pub const MAX_PATHS: usize = 100_000;

/// Something that happened, as a timeline tells it.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// So many bytes, of which nothing else is known.
    Stdout {
        bytes: u64,
    },
    Stderr {
        bytes: u64,
    },
    /// A message, or the number of messages so far.
    Message {
        count: Option<u64>,
    },
    /// A sign, as if the agent's reader had seen it.
    Sign(Sign),
    McpCall {
        tool: String,
    },
    Subagent {
        id: String,
        did: Did,
    },
    /// A file changed. `path` is a hash of its name, `digest` one of its new state, where they are known.
    Workspace {
        path: Option<u64>,
        digest: Option<u64>,
    },
    Children {
        live: u32,
        cpu_ms: Option<u64>,
    },
    /// Somebody is alive. That is no news.
    Heartbeat,
    /// The span ends now.
    Suspended {
        for_ms: u64,
    },
}

/// What a subagent did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    Progress,
    Tool,
    Heartbeat,
    Ended,
}

#[derive(Debug)]
pub struct Feed {
    structured: bool,
    channels: [Coalescer; Channel::ALL.len()],
    /// The state of the work tree that was told last.
    digest: Option<Option<u64>>,
    /// The last digest of each path.
    paths: BTreeMap<Option<u64>, u64>,
    printed: bool,
    subagents: BTreeSet<String>,
    heartbeats: Heartbeats,
    cpu_ms: u64,
    pub tally: Totals,
}

impl Feed {
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
            tally: Totals::default(),
        }
    }

    /// The work tree changed in a live session. A record carries the last state of its stretch: one record for each
    /// state would let a storm of writes fill the journal.
    pub fn changed(&mut self, at: Awake, digest: Option<u64>, out: &mut Vec<Fact>) {
        for record in self.channels[Channel::Workspace as usize].changed(at, digest) {
            self.pass(record, out);
        }
    }

    /// So many starts and ends of calls of which nothing else is passed on.
    pub fn calls(&mut self, at: Awake, count: u64, out: &mut Vec<Fact>) {
        self.saw(at, Channel::Stdout, count, 0, out);
    }

    /// A line of stdout that is not blank, as the agent's reader understood it.
    pub fn line(&mut self, at: Awake, signs: &mut Vec<Sign>, out: &mut Vec<Fact>) {
        self.printed(at, out);
        for sign in signs.drain(..) {
            self.sign(at, sign, out);
        }
    }

    /// Takes a line of stderr that is not blank, as the agent's reader understood it. For a structured agent it is not
    /// progress and does not show that the agent has started.
    pub fn stderr_line(&mut self, at: Awake, signs: &mut Vec<Sign>, out: &mut Vec<Fact>) {
        if !self.structured {
            return self.line(at, signs, out);
        }
        for sign in signs.drain(..) {
            self.tally.add(&sign);
            if let Some(fact) = sign.into_fact() {
                self.single(at, fact, out);
            }
        }
    }

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
                // What is not known has not grown.
                self.cpu_ms = cpu_ms.unwrap_or(self.cpu_ms);
                self.single(at, Fact::Sampled { children: live, cpu_ms: self.cpu_ms }, out);
            }
            Input::Heartbeat => {}
            Input::Suspended { for_ms } => self.single(at, Fact::Suspended { for_ms }, out),
        }
    }

    /// What still waits, because somebody is about to judge.
    pub fn flush(&mut self, at: Awake, out: &mut Vec<Fact>) {
        for channel in Channel::ALL {
            self.flush_one(at, *channel, out);
        }
    }

    /// Subagents did something, as the files of the agent's CLI tell.
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
        self.tally.add(&sign);
        if let Some(fact) = sign.into_fact() {
            self.single(at, fact, out);
        }
    }

    /// Only a higher count is progress.
    fn message(&mut self, at: Awake, count: Option<u64>, out: &mut Vec<Fact>) {
        self.printed(at, out);
        let known = self.tally.messages;
        let new = count.map_or(1, |count| count.saturating_sub(known));
        self.tally.messages = known.saturating_add(new);
        self.saw(at, Channel::Stdout, new, new, out);
    }

    /// A subagent that nobody has heard of has started. That it is alive is no progress.
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

    /// Writing the content that a file already has is no change. An unknown content is always one.
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

    /// A record tells one state of the work tree, so another state begins another record.
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

    /// In a timeline all that waits has the same state of the work tree: another state would have flushed it.
    fn pass(&mut self, mut seen: Observation, out: &mut Vec<Fact>) {
        if let Some(digest) = self.digest.filter(|_| seen.channel == Channel::Workspace) {
            seen.digest = digest;
        }
        out.push(Fact::Observed(seen));
    }
}
