//! The watchdog: a pure function from evidence to a verdict. It is separate from runs, so it can also watch a single
//! command, an external program, or a recording.
//!
//! The rows of its table are checked in a fixed order, and the first that fires wins. Every answer contains the evidence
//! on all channels. Progress moves a deadline, effort extends it for a bounded time, and presence does neither. The
//! table, with the reasons for its order, is in docs/guide/watchdog.md.

pub mod coalesce;
mod evidence;
pub mod external;
mod fact;
pub mod feed;
pub mod health;
pub mod limits;
mod loops;
mod monitor;
mod needs;
pub mod replay;
mod rows;
pub mod sign;
mod tools;
mod waited;

pub use evidence::{Channel, Evidence};
pub use fact::{Fact, ToolStarted};
pub use loops::{MAX_PERIOD, MAX_REMEMBERED, NOTICE_AT};
pub use monitor::Monitor;
pub use needs::{Calls, MAX_TOOLS, Needs};
pub(crate) use rows::{NODE_TIMEOUT, RUN_TIMEOUT, exceeded};

use crate::record::event::{Observation, words};
use crate::settings::{Ttl, WatchPolicy};
use crate::time::dur::Dur;
use crate::time::moment::Awake;
use evidence::{Channels, Piece};
use loops::{Loops, Span};
use tools::Tools;
use waited::Waited;

words! {
    /// Why the watchdog stopped a session, in the order of the rows.
    StopReason {
        /// The session reached `watchdog.session`.
        SessionCeilingExceeded = "SESSION_CEILING_EXCEEDED",
        /// The agent waited on children without progress for `watchdog.children`.
        ChildrenPersistTooLong = "CHILDREN_PERSIST_TOO_LONG",
        /// The node reached `watchdog.node`.
        NodeCeilingExceeded = "NODE_CEILING_EXCEEDED",
        /// The run reached `watchdog.run`.
        RunCeilingExceeded = "RUN_CEILING_EXCEEDED",
        /// The same error occurred `watchdog.errors` times.
        ErrorLoop = "ERROR_LOOP",
        /// The agent repeated the same calls with the same results `watchdog.cycles` times.
        Repetition = "REPETITION",
        /// A tool call was in flight for `watchdog.tool`.
        ToolCeilingExceeded = "TOOL_CEILING_EXCEEDED",
        /// A structured agent printed nothing for `watchdog.start`.
        NoOutputAtStart = "NO_OUTPUT_AT_START",
        /// The session made no progress for `watchdog.idle`.
        NoOutputDeadline = "NO_OUTPUT_DEADLINE",
        /// The agent's question to a person was not answered for `watchdog.human`.
        HumanDeadlineExceeded = "HUMAN_DEADLINE_EXCEEDED",
    }
}

/// The watchdog's verdict.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The session may continue.
    Continue {
        /// The channel whose evidence deferred a stop for silence, if one did.
        deferred_by: Option<Channel>,
    },
    /// The session may continue, and a notice is recorded.
    Notice {
        /// The notice as a sentence for people.
        message: String,
    },
    /// The session must be stopped.
    HardStop {
        /// The rule that fired.
        reason: StopReason,
        /// The reason as a sentence for people.
        message: String,
    },
}

/// A verdict with its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// The verdict.
    pub verdict: Verdict,
    /// The evidence on all channels.
    pub evidence_summary: Vec<Evidence>,
    /// The channel with the most recent evidence.
    pub active_channel: Option<Channel>,
}

/// The start of a session, and the properties of its agent that the watchdog needs.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// When the session started.
    pub started: Awake,
    /// How long the node had been running before.
    pub node_before: Dur,
    /// How long the run had lasted before.
    pub run_before: Dur,
    /// Whether the reader understands the agent's output, so that printing nothing at all is suspicious.
    pub structured: bool,
}

impl Session {
    /// Creates a session whose node and run start with it.
    pub fn new(started: Awake, structured: bool) -> Session {
        Session { started, node_before: Dur::ZERO, run_before: Dur::ZERO, structured }
    }
}

/// Watches one session. All times inside are on the watch's own clock, which stops while the machine is suspended or
/// dogwatch cannot run.
#[derive(Clone, Debug)]
pub struct Watch {
    policy: WatchPolicy,
    session: Session,
    /// The time that does not count, in milliseconds.
    frozen: u64,
    /// The last span of such time, on the awake clock.
    froze: (Awake, Awake),
    channels: Channels,
    messages: u64,
    /// The agent has printed something that counts.
    spoke: bool,
    tools: Tools,
    loops: Loops,
    waited: Waited,
    effort: Effort,
    /// When the agent asked for a person, and its question.
    asking: Option<(Awake, String)>,
}

/// The CPU time that the agent's children use, from the last two samples.
#[derive(Clone, Copy, Debug, Default)]
struct Effort {
    last: Option<(Awake, u64)>,
    working: bool,
}

/// The children work if they used at least this percentage of the time between two samples.
const EFFORT_PER_CENT: u64 = 5;

impl Watch {
    /// Creates a watch for a session that starts now.
    pub fn new(policy: WatchPolicy, session: Session) -> Watch {
        Watch {
            policy,
            session,
            frozen: 0,
            froze: (Awake(0), Awake(0)),
            channels: Channels::default(),
            messages: 0,
            spoke: false,
            tools: Tools::default(),
            loops: Loops::default(),
            waited: Waited::since(session.started),
            effort: Effort::default(),
            asking: None,
        }
    }

    /// Returns when a fact began, on the watch's own clock. A record of progress arrives late: the work started, and the
    /// silence ended, with its first piece.
    fn began(&self, now: Awake, fact: &Fact) -> Awake {
        let at = self.inner(now);
        if let Fact::Observed(seen) = fact { at.min(self.inner(seen.first_ms)) } else { at }
    }

    /// Takes a fact that became known at this moment. The caller asks for a verdict afterwards.
    pub fn take(&mut self, now: Awake, fact: &Fact) {
        // Unwatched time is removed before anything is added up.
        if let Fact::Suspended { for_ms } = fact {
            self.frozen = self.frozen.saturating_add(*for_ms);
            self.froze = (Awake(now.0.saturating_sub(*for_ms)), now);
        }
        let at = self.inner(now);
        self.add_up_waiting(self.began(now, fact));
        match fact {
            Fact::Printed => self.spoke = true,
            Fact::Repeated => self.repeated(at),
            Fact::Observed(seen) => self.observe(seen),
            // A heartbeat is not a call: it is neither in flight nor part of a loop, and it clears no loop.
            Fact::ToolStarted(tool) if tool.heartbeat => self.spoke = true,
            Fact::ToolEnded { ok: true, heartbeat: true, .. } => {}
            Fact::ToolEnded { id, error, heartbeat: true, .. } => {
                let now = self.tools.steps();
                self.loops.errors.add_of_tool(at, id, error, Span { began: now, ended: now });
            }
            Fact::ToolStarted(tool) => {
                self.progress(at, tool.mcp);
                self.tools.started(at, tool);
            }
            Fact::ToolEnded { id, canceled: true, .. } => {
                let tool = self.tools.ended(id);
                self.progress(at, tool.is_some_and(|t| t.mcp));
            }
            Fact::ToolEnded { id, ok, result, error, .. } => self.tool_ended(at, id, *ok, *result, error),
            Fact::Error { fingerprint } => self.loops.errors.add(at, fingerprint),
            Fact::SubagentStarted { id } => self.tools.subagent_started(id),
            Fact::SubagentEnded { id } => self.tools.subagent_ended(id),
            Fact::Sampled { children, cpu_ms } => {
                self.tools.sampled(*children);
                self.effort.sample(at, *cpu_ms);
            }
            Fact::NeedsHuman { what } => {
                // The agent waits for the answer to its first question.
                self.asking.get_or_insert_with(|| (at, what.clone()));
            }
            Fact::Suspended { .. } => {}
        }
    }

    /// Converts a moment of the awake clock to the watch's clock. A moment before or within the last unwatched span that
    /// is reported after it must not be moved back by that span.
    fn inner(&self, at: Awake) -> Awake {
        let (from, to) = self.froze;
        let too_much = to.since(at.max(from)).as_millis();
        Awake(at.0.saturating_add(too_much).saturating_sub(self.frozen)).max(self.session.started)
    }

    fn observe(&mut self, seen: &Observation) {
        let (first, last) = (self.inner(seen.first_ms), self.inner(seen.last_ms));
        let Observation { channel, count, max_gap_ms, .. } = *seen;
        let ahead = seen.last_ms.since(last).as_millis();
        self.channels.observe(&Piece { channel, first, last, count, max_gap_ms }, ahead);
        self.messages = self.messages.saturating_add(seen.messages);
        self.waited.take_out(first, last.plus(self.ttl(channel)));
        self.waited.upto = self.waited.upto.max(last);
        match seen.channel {
            Channel::Stdout => {
                self.spoke = true;
                self.asking = None;
            }
            Channel::Workspace => self.loops.workspace(seen.digest),
            Channel::McpTool | Channel::Subagent => {}
        }
    }

    /// Takes a repeated line. It is progress only if the work tree changed or a sample showed CPU use since the last
    /// progress on stdout, so each of these counts for one line only.
    fn repeated(&mut self, at: Awake) {
        let since = self.channels.last(Channel::Stdout).unwrap_or(self.session.started);
        let moved = self.channels.last(Channel::Workspace).is_some_and(|last| last > since);
        let worked = self.effort.working && self.effort.last.is_some_and(|(last, _)| last > since);
        if moved || worked {
            self.spoke = true;
            let line = Piece { channel: Channel::Stdout, first: at, last: at, count: 1, max_gap_ms: 0 };
            self.channels.observe(&line, self.frozen);
        }
    }

    /// Notes the start or end of a tool call as progress of the agent itself.
    fn progress(&mut self, at: Awake, mcp: bool) {
        self.spoke = true;
        self.asking = None;
        let stdout = Piece { channel: Channel::Stdout, first: at, last: at, count: 1, max_gap_ms: 0 };
        self.channels.observe(&stdout, self.frozen);
        if mcp {
            self.channels.observe(&Piece { channel: Channel::McpTool, ..stdout }, self.frozen);
        }
    }

    /// Notes the end of a tool call. An end without a start is progress and may be an error, but is not a call.
    fn tool_ended(&mut self, at: Awake, id: &str, ok: bool, result: u64, error: &str) {
        let tool = self.tools.ended(id);
        self.progress(at, tool.as_ref().is_some_and(|t| t.mcp));
        let ended = self.tools.steps();
        let span = Span { began: tool.as_ref().map_or(ended, |t| t.began), ended };
        if !ok {
            self.loops.errors.add_of_tool(at, id, error, span);
        }
        if let Some(tool) = tool {
            self.loops.ended(at, tool.call, result, ok, span);
        }
    }

    /// Adds up the time spent waiting on children. It counts only from when the last channel stopped being fresh.
    fn add_up_waiting(&mut self, at: Awake) {
        if self.tools.waiting_on_children() {
            let from = self.fresh_until().map_or(self.waited.upto, |f| f.max(self.waited.upto));
            self.waited.add(from, at);
        }
        self.waited.upto = self.waited.upto.max(at);
    }

    /// Returns when the last channel stops, or stopped, being fresh.
    fn fresh_until(&self) -> Option<Awake> {
        Channel::ALL.iter().filter_map(|c| self.fresh_until_on(*c)).max()
    }

    fn fresh_until_on(&self, channel: Channel) -> Option<Awake> {
        Some(self.channels.last(channel)?.plus(self.ttl(channel)))
    }

    /// Returns how long evidence on a channel stays fresh. While work is delegated the parent agent cannot print, so with
    /// an automatic ttl every channel gets as much time as stdout.
    fn ttl(&self, channel: Channel) -> Dur {
        match (self.policy.evidence_ttl, self.policy.idle.duration()) {
            (Ttl::Auto, Some(idle)) if self.tools.delegating() => idle,
            (ttl, _) => self.channels.ttl(channel, ttl, self.policy.idle),
        }
    }

    /// Returns the channel other than stdout whose evidence lasts longest, and until when. With a ttl of zero only stdout
    /// counts.
    fn other_evidence(&self) -> Option<(Awake, Channel)> {
        if self.policy.evidence_ttl == Ttl::Fixed(Dur::ZERO) {
            return None;
        }
        let others = [Channel::McpTool, Channel::Subagent, Channel::Workspace];
        others.into_iter().filter_map(|c| Some((self.fresh_until_on(c)?, c))).max_by_key(|(until, _)| *until)
    }

    /// Returns the verdict at this moment with its evidence. Evaluating twice changes nothing.
    pub fn evaluate(&mut self, now: Awake) -> Assessment {
        let verdict = self.judge(now);
        self.answer(now, verdict)
    }

    /// Returns the verdict without its evidence, which is not needed while the verdict does not change.
    pub fn judge(&mut self, now: Awake) -> Verdict {
        let at = self.inner(now);
        self.add_up_waiting(at);
        self.verdict(at)
    }

    /// Adds the evidence of this moment to a verdict.
    pub fn answer(&self, now: Awake, verdict: Verdict) -> Assessment {
        Assessment {
            verdict,
            evidence_summary: self.channels.summary(self.session.started, self.inner(now)),
            active_channel: self.channels.freshest(),
        }
    }

    /// Returns the earliest moment, on the awake clock, at which the verdict may change without further facts.
    pub fn due(&self) -> Option<Awake> {
        self.next_deadline().map(|at| Awake(at.0.saturating_add(self.frozen)))
    }

    /// Returns when to sample the agent's children: at half of the silence limit and at the limit.
    pub fn sample_moments(&self) -> [Option<Awake>; 2] {
        let at = |inner: Option<Awake>| inner.map(|at| Awake(at.0.saturating_add(self.frozen)));
        let [half, over] = self.silence_moments();
        [at(half), at(over)]
    }

    /// Returns whether the agent asks for a person and has made no progress since.
    pub fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    /// Returns the number of messages so far.
    pub fn messages(&self) -> u64 {
        self.messages
    }
}

impl Effort {
    fn sample(&mut self, at: Awake, cpu_ms: u64) {
        if let Some((before, used)) = self.last {
            let span = at.since(before).as_millis();
            let worked = cpu_ms.saturating_sub(used);
            self.working = span > 0 && worked.saturating_mul(100) >= span.saturating_mul(EFFORT_PER_CENT);
        }
        self.last = Some((at, cpu_ms));
    }
}
