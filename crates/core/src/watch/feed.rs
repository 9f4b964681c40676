//! Turns the inputs of a session into facts for the watchdog. Runs, `exec`, external agents and replays all use it, so
//! the same inputs lead to the same facts everywhere.
//!
//! A feed holds one coalescer per channel, the totals of the session, the last states of the work tree, and the limits
//! of what one moment passes on. All inputs of one millisecond are one moment, however they were cut into chunks.

use crate::record::event::words;
use crate::record::event::{Observation, Usage};
use crate::record::prices::PriceTable;
use crate::record::windows::Window;
use crate::time::moment::{Awake, Wall};
use crate::watch::coalesce::Coalescer;
use crate::watch::health::HealthIssue;
use crate::watch::sign::{Heartbeats, Sign, Totals};
use crate::watch::{Channel, Fact, ToolStarted};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

/// The most paths whose last digest is remembered. Every change of another path counts as progress.
pub const MAX_PATHS: usize = 100_000;
/// The most tool calls that start in one moment and are passed on singly, enough to detect a cycle of the longest
/// period. In a flood, further calls that also end in that moment count only as progress, so that they cost neither
/// memory nor space in the record.
pub const MAX_CALLS: usize = 64;
/// The most further calls of one moment that may wait for their end. Beyond it the oldest is passed on.
const MAX_HELD: usize = 1_024;
/// The most health issues that are passed on in one moment.
pub const MAX_ISSUES: usize = 16;

/// An input of a session that is not a line of output.
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
        /// Whether it is a heartbeat, which is not progress.
        heartbeat: bool,
    },
    /// An error that the agent reported over the agent channel.
    Error {
        /// The fingerprint of the error.
        fingerprint: String,
    },
    /// A subagent did something.
    Subagent {
        /// The subagent's id.
        id: String,
        /// The action of the subagent.
        did: Did,
    },
    /// Subagents did something, as found in the files of the agent's CLI.
    Subagents {
        /// How many times.
        count: u64,
    },
    /// A file changed.
    Workspace {
        /// The hash of the file's path; `None` for the work tree as a whole.
        path: Option<u64>,
        /// The hash of the new content, if it is known.
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

words! {
    /// An output stream of the agent.
    Stream {
        /// The standard output.
        Stdout = "stdout",
        /// The standard error output.
        Stderr = "stderr",
    }
}

/// An item that the feed found in the inputs, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedItem {
    /// A fact for the watchdog.
    Fact(Fact),
    /// A health issue, which the watchdog does not judge.
    Issue(HealthIssue),
}

/// The inputs of one session on their way to the watchdog.
#[derive(Clone, Debug, Default)]
pub struct Feed {
    structured: bool,
    channels: [Coalescer; Channel::ALL.len()],
    /// The last digest of each path.
    paths: BTreeMap<Option<u64>, u64>,
    printed: bool,
    subagents: BTreeSet<String>,
    heartbeats: Heartbeats,
    cpu_ms: u64,
    moment: Moment,
    items: Vec<FeedItem>,
    /// Whether the usage has changed since it was taken.
    used: bool,
    /// Whether the windows were reported since they were taken.
    windows: bool,
    /// Whether there was a result since it was taken.
    result: bool,
    /// The calls that only counted as progress, and how many of them failed.
    thinned: (u64, u64),
    /// The prices for agents that report only tokens.
    pub prices: PriceTable,
    /// The totals of the session's signs.
    pub totals: Totals,
}

/// The calls and issues that were passed on at the current moment, and those held back.
#[derive(Clone, Debug, Default)]
struct Moment {
    at: Option<Awake>,
    calls: usize,
    issues: usize,
    /// Calls beyond the limit that have not ended.
    held: Vec<ToolStarted>,
    /// The last successful call beyond the limit. A new result of it clears the state that the first calls left.
    last_ok: Option<(ToolStarted, Fact)>,
    /// The starts and ends of the other calls beyond the limit.
    progress: u64,
}

impl Feed {
    /// Creates the feed of a session.
    pub fn new(structured: bool) -> Feed {
        let channels = [Channel::Stdout, Channel::McpTool, Channel::Subagent, Channel::Workspace];
        Feed { structured, channels: channels.map(Coalescer::new), ..Feed::default() }
    }

    /// Begins a moment, unless it has begun already.
    fn begin(&mut self, at: Awake) {
        if self.moment.at != Some(at) {
            self.release();
            self.moment = Moment { at: Some(at), ..Moment::default() };
        }
    }

    /// Takes a nonblank line of output, as the signs that the agent's reader found in it. On stderr of a structured
    /// agent it is not progress and does not show that the agent has started.
    pub fn line(&mut self, at: Awake, stream: Stream, signs: &mut Vec<Sign>) {
        self.begin(at);
        let aside = self.structured && stream == Stream::Stderr;
        if !aside {
            self.printed(at);
        }
        for sign in signs.drain(..) {
            self.sign(at, sign, !aside);
        }
    }

    /// Takes any other input.
    pub fn take(&mut self, at: Awake, input: Input) {
        self.begin(at);
        match input {
            Input::Stdout { bytes } if bytes > 0 && self.structured => self.printed(at),
            Input::Stdout { bytes } | Input::Stderr { bytes } => {
                self.saw(at, Channel::Stdout, u64::from(bytes > 0 && !self.structured), 0);
            }
            Input::Message { count } => self.message(at, count),
            Input::Sign(mut sign) => {
                self.printed(at);
                self.heartbeats.mark(&mut sign);
                self.sign(at, sign, true);
            }
            Input::McpCall { heartbeat } => self.saw(at, Channel::McpTool, u64::from(!heartbeat), 0),
            Input::Error { fingerprint } => self.single(at, Fact::Error { fingerprint }),
            Input::Subagent { id, did } => self.subagent(at, id, did),
            Input::Subagents { count } => self.saw(at, Channel::Subagent, count, 0),
            Input::Workspace { path, digest } => {
                if self.is_change(path, digest) {
                    let records = self.channels[Channel::Workspace as usize].changed(at, digest);
                    self.pass(records);
                }
            }
            Input::Children { live, cpu_ms } => {
                // An unknown CPU time counts as unchanged.
                self.cpu_ms = cpu_ms.unwrap_or(self.cpu_ms);
                self.single(at, Fact::Sampled { children: live, cpu_ms: self.cpu_ms });
            }
            Input::Heartbeat => {}
            Input::Suspended { for_ms } => self.single(at, Fact::Suspended { for_ms }),
        }
    }

    /// Hands over everything that is held back, before an evaluation.
    pub fn flush(&mut self, at: Awake) {
        self.release();
        self.flush_channels(at);
    }

    /// Hands over the calls that the current moment holds back.
    pub fn release(&mut self) {
        let Some(at) = self.holds() else { return };
        for tool in take(&mut self.moment.held) {
            self.pass_single(at, Fact::ToolStarted(tool));
        }
        if let Some((start, end)) = self.moment.last_ok.take() {
            self.pass_single(at, Fact::ToolStarted(start));
            self.pass_single(at, end);
        }
        let progress = take(&mut self.moment.progress);
        self.saw(at, Channel::Stdout, progress, 0);
    }

    /// Returns the moment that holds something back, if one does.
    pub fn holds(&self) -> Option<Awake> {
        let Moment { at, held, last_ok, progress, .. } = &self.moment;
        at.filter(|_| *progress > 0 || last_ok.is_some() || !held.is_empty())
    }

    /// Returns how many findings wait to be taken.
    pub fn waiting(&self) -> usize {
        self.items.len()
    }

    /// Moves the findings to `out`, which must be empty.
    pub fn take_items(&mut self, out: &mut Vec<FeedItem>) {
        std::mem::swap(&mut self.items, out);
    }

    /// Returns the usage so far if the agent has reported it since the last call.
    pub fn take_usage(&mut self) -> Option<Usage> {
        take(&mut self.used).then(|| self.totals.usage(&self.prices))
    }

    /// Returns the windows if the service has reported them since the last call, and when it did if not just now.
    pub fn take_windows(&mut self) -> Option<(Option<Wall>, Vec<Window>)> {
        self.totals.windows.clone().filter(|_| take(&mut self.windows))
    }

    /// Returns whether the agent gave its final result since the last call. With work in the background it is not
    /// final.
    pub fn take_result(&mut self) -> bool {
        take(&mut self.result) && self.totals.background == 0
    }

    /// Returns how many calls only counted as progress, and how many of them failed.
    pub fn thinned(&self) -> (u64, u64) {
        self.thinned
    }

    /// Takes a sign; `counts` is false for one that cannot be progress.
    fn sign(&mut self, at: Awake, sign: Sign, counts: bool) {
        if matches!(sign, Sign::Message) && counts {
            // A flood consists of messages, so they skip the questions below.
            return self.message(at, None);
        }
        if matches!(sign, Sign::Repeated) && !self.channels[Channel::Stdout as usize].is_after_pause(at) {
            return;
        }
        if let Some(issue) = sign.health_issue() {
            self.issue(at, issue);
        }
        if let Some(channel) = sign.progress().filter(|_| counts) {
            self.saw(at, channel, 1, 0);
        }
        self.used |= matches!(sign, Sign::Usage { .. });
        self.windows |= matches!(sign, Sign::Windows { .. });
        self.result |= matches!(sign, Sign::Result(_));
        self.totals.add(&sign);
        if let Some(fact) = sign.into_fact() {
            self.single(at, fact);
        }
    }

    /// Takes a health issue, after the progress that precedes it. A repeated one is passed on once.
    fn issue(&mut self, at: Awake, issue: HealthIssue) {
        self.flush_channels(at);
        let issue = FeedItem::Issue(issue);
        if self.items.last() != Some(&issue) && self.moment.issues < MAX_ISSUES {
            self.moment.issues += 1;
            self.items.push(issue);
        }
    }

    /// Takes a message. Only a higher count is progress.
    fn message(&mut self, at: Awake, count: Option<u64>) {
        self.printed(at);
        let known = self.totals.messages;
        let new = count.map_or(1, |count| count.saturating_sub(known));
        self.totals.messages = known.saturating_add(new);
        self.saw(at, Channel::Stdout, new, new);
    }

    /// Takes the activity of a subagent. An unknown subagent has started. A heartbeat is not progress.
    fn subagent(&mut self, at: Awake, id: String, did: Did) {
        if did == Did::Ended {
            self.subagents.remove(&id);
            return self.sign(at, Sign::SubagentEnded { id }, true);
        }
        if self.subagents.insert(id.clone()) {
            self.single(at, Fact::SubagentStarted { id: id.clone() });
        }
        if did != Did::Heartbeat {
            self.sign(at, Sign::SubagentProgress { id }, true);
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

    fn printed(&mut self, at: Awake) {
        if self.structured && !self.printed {
            self.printed = true;
            self.single(at, Fact::Printed);
        }
    }

    /// Passes on a fact, or holds back a call beyond the limit of the moment.
    fn single(&mut self, at: Awake, fact: Fact) {
        if let Fact::ToolStarted(tool) = &fact {
            if self.moment.calls >= MAX_CALLS {
                let tool = tool.clone();
                return self.hold(at, tool);
            }
            self.moment.calls += 1;
        }
        if let Fact::ToolEnded { id, ok, .. } = &fact
            && let Some(n) = self.moment.held.iter().position(|tool| tool.id == *id)
        {
            let (start, ok) = (self.moment.held.remove(n), *ok);
            return self.end_held(start, fact, ok);
        }
        self.pass_single(at, fact);
    }

    fn hold(&mut self, at: Awake, tool: ToolStarted) {
        let held = &mut self.moment.held;
        if let Some(known) = held.iter_mut().find(|known| known.id == tool.id) {
            *known = tool;
            return;
        }
        held.push(tool);
        if held.len() > MAX_HELD {
            let oldest = held.remove(0);
            self.pass_single(at, Fact::ToolStarted(oldest));
        }
    }

    fn end_held(&mut self, start: ToolStarted, end: Fact, ok: bool) {
        let call = (start, end);
        let dropped = if ok { self.moment.last_ok.replace(call) } else { Some(call) };
        if let Some((start, end)) = dropped {
            let failed = matches!(end, Fact::ToolEnded { ok: false, canceled: false, .. });
            self.thinned = (self.thinned.0 + 1, self.thinned.1 + u64::from(failed));
            self.moment.progress += u64::from(!start.heartbeat) + u64::from(!end.is_heartbeat());
        }
    }

    fn pass_single(&mut self, at: Awake, fact: Fact) {
        self.flush_channels(at);
        self.items.push(FeedItem::Fact(fact));
    }

    fn flush_channels(&mut self, at: Awake) {
        for n in 0..self.channels.len() {
            let record = self.channels[n].flush(at);
            self.pass(record);
        }
    }

    fn saw(&mut self, at: Awake, channel: Channel, count: u64, messages: u64) {
        let records = self.channels[channel as usize].saw(at, count, messages);
        self.pass(records);
    }

    fn pass(&mut self, records: impl IntoIterator<Item = Observation>) {
        self.items.extend(records.into_iter().map(|seen| FeedItem::Fact(Fact::Observed(seen))));
    }
}
