//! The watchdog: one verdict function over evidence, pure, separate from runs so that it can also
//! watch a single command, a foreign program, or a recording.
//!
//! Rows are checked in a fixed order and the first that fires wins; every answer carries the evidence of all
//! channels. Progress moves a deadline, effort buys bounded time, presence buys nothing. The table, with the
//! reasons for its order, is in docs/guide/watchdog.md.

pub mod coalesce;
mod evidence;
pub mod external;
mod fact;
pub mod health;
mod loops;
mod monitor;
pub mod replay;
mod rows;
pub mod sign;
mod tools;
pub mod tune;
mod waited;

pub use evidence::{Channel, Evidence};
pub use fact::{Fact, ToolStarted};
pub use loops::{MAX_PERIOD, MAX_REMEMBERED, NOTICE_AT};
pub use monitor::Monitor;
pub(crate) use rows::{NODE_TIMEOUT, RUN_TIMEOUT, exceeded};

use crate::record::event::{Observation, words};
use crate::settings::{Ttl, WatchPolicy};
use crate::time::dur::Dur;
use crate::time::moment::Awake;
use evidence::{Channels, Piece};
use loops::{Loops, Span};
use serde::{Deserialize, Serialize};
use std::fmt;
use tools::Tools;
use waited::Waited;

words! {
    /// Why a session was ended by force, in the order of the rows.
    StopReason {
        SessionCeilingExceeded = "SESSION_CEILING_EXCEEDED",
        ChildrenPersistTooLong = "CHILDREN_PERSIST_TOO_LONG",
        NodeCeilingExceeded = "NODE_CEILING_EXCEEDED",
        RunCeilingExceeded = "RUN_CEILING_EXCEEDED",
        ErrorLoop = "ERROR_LOOP",
        Repetition = "REPETITION",
        ToolCeilingExceeded = "TOOL_CEILING_EXCEEDED",
        NoOutputAtStart = "NO_OUTPUT_AT_START",
        NoOutputDeadline = "NO_OUTPUT_DEADLINE",
        HumanDeadlineExceeded = "HUMAN_DEADLINE_EXCEEDED",
    }
}

/// The watchdog's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Work is seen, or not yet missed. `deferred_by`: silence would have ended it, but for this channel.
    Continue {
        deferred_by: Option<Channel>,
    },
    /// Worth telling; nothing is done.
    Notice {
        message: String,
    },
    HardStop {
        reason: StopReason,
        message: String,
    },
}

/// An answer with the evidence it rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub verdict: Verdict,
    pub evidence_summary: Vec<Evidence>,
    pub active_channel: Option<Channel>,
}

/// What a session is measured from, and how its agent speaks.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    pub started: Awake,
    /// How long node and run had lasted when it started.
    pub node_before: Dur,
    pub run_before: Dur,
    /// Its reader knows its stream, so that saying nothing at all means something.
    pub structured: bool,
}

impl Session {
    pub fn new(started: Awake, structured: bool) -> Session {
        Session { started, node_before: Dur::ZERO, run_before: Dur::ZERO, structured }
    }
}

/// Watches one session. All times inside are those of the watch: they stand still while nobody watched.
#[derive(Clone, Debug)]
pub struct Watch {
    policy: WatchPolicy,
    session: Session,
    /// Time that does not count, and the last span of it, on the awake clock.
    frozen: u64,
    froze: (Awake, Awake),
    channels: Channels,
    messages: u64,
    /// The agent has printed something that counts.
    spoke: bool,
    tools: Tools,
    loops: Loops,
    waited: Waited,
    effort: Effort,
    /// It asks for a person since then, and for what.
    asking: Option<(Awake, String)>,
}

/// CPU time used by what the agent started, from the last two samples.
#[derive(Clone, Copy, Debug, Default)]
struct Effort {
    last: Option<(Awake, u64)>,
    working: bool,
}

/// Used in the time between two samples, this part of it is work.
const EFFORT_PER_CENT: u64 = 5;

impl Watch {
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

    /// Takes a fact that became known at this moment. Whoever tells one asks for an answer after it.
    pub fn take(&mut self, now: Awake, fact: &Fact) {
        // Time in which nobody watched is taken out before anything is added up.
        if let Fact::Suspended { for_ms } = fact {
            self.frozen = self.frozen.saturating_add(*for_ms);
            self.froze = (Awake(now.0.saturating_sub(*for_ms)), now);
        }
        let at = self.inner(now);
        self.add_up_waiting(match fact {
            // It is told late: work was going on since its first piece.
            Fact::Observed(seen) => at.min(self.inner(seen.first_ms)),
            _ => at,
        });
        match fact {
            Fact::Printed => self.spoke = true,
            Fact::Repeated => self.repeated(at),
            Fact::Observed(seen) => self.observe(seen),
            // Presence is no call: it is neither in flight nor part of a loop, and clears none.
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
                // What it asks first is what it waits for.
                self.asking.get_or_insert_with(|| (at, what.clone()));
            }
            Fact::Suspended { .. } => {}
        }
    }

    /// A moment of the awake clock as the watch counts it. What happened before nobody watched, or meanwhile, and is
    /// told after it happened no earlier for that.
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

    /// A constant line, printed once per step, says nothing by itself. It is progress if the work tree changed or a
    /// sample showed CPU at work since the last progress on stdout, so each of these counts for one line only.
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

    /// A tool's start or end is progress of the agent itself.
    fn progress(&mut self, at: Awake, mcp: bool) {
        self.spoke = true;
        self.asking = None;
        let stdout = Piece { channel: Channel::Stdout, first: at, last: at, count: 1, max_gap_ms: 0 };
        self.channels.observe(&stdout, self.frozen);
        if mcp {
            self.channels.observe(&Piece { channel: Channel::McpTool, ..stdout }, self.frozen);
        }
    }

    /// An end without a start is progress and may be an error, but tells of no call.
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

    /// Waiting counts only while no channel is fresh, so it is added up lazily: from when the last one stopped
    /// being fresh.
    fn add_up_waiting(&mut self, at: Awake) {
        if self.tools.waiting_on_children() {
            let from = self.fresh_until().map_or(self.waited.upto, |f| f.max(self.waited.upto));
            self.waited.add(from, at);
        }
        self.waited.upto = self.waited.upto.max(at);
    }

    /// When the last channel stops being fresh, or has stopped.
    fn fresh_until(&self) -> Option<Awake> {
        Channel::ALL.iter().filter_map(|c| self.fresh_until_on(*c)).max()
    }

    fn fresh_until_on(&self, channel: Channel) -> Option<Awake> {
        Some(self.channels.last(channel)?.plus(self.ttl(channel)))
    }

    /// How long evidence on this channel stays fresh. While work is delegated the parent cannot speak, so an automatic
    /// ttl gives every channel as much time as stdout has.
    fn ttl(&self, channel: Channel) -> Dur {
        match (self.policy.evidence_ttl, self.policy.idle.duration()) {
            (Ttl::Auto, Some(idle)) if self.tools.delegating() => idle,
            (ttl, _) => self.channels.ttl(channel, ttl, self.policy.idle),
        }
    }

    /// The other channel whose evidence lasts longest, and until when. A ttl of zero: stdout only.
    fn other_evidence(&self) -> Option<(Awake, Channel)> {
        if self.policy.evidence_ttl == Ttl::Fixed(Dur::ZERO) {
            return None;
        }
        let others = [Channel::McpTool, Channel::Subagent, Channel::Workspace];
        others.into_iter().filter_map(|c| Some((self.fresh_until_on(c)?, c))).max_by_key(|(until, _)| *until)
    }

    /// The answer at this moment. Asking twice changes nothing and counts nothing twice.
    pub fn evaluate(&mut self, now: Awake) -> Answer {
        let verdict = self.judge(now);
        self.answer(now, verdict)
    }

    /// The verdict alone: mostly it is the same as before, and then nobody wants its evidence.
    pub fn judge(&mut self, now: Awake) -> Verdict {
        let at = self.inner(now);
        self.add_up_waiting(at);
        self.verdict(at)
    }

    /// A verdict of this moment with the evidence it rests on.
    pub fn answer(&self, now: Awake, verdict: Verdict) -> Answer {
        Answer {
            verdict,
            evidence_summary: self.channels.summary(self.session.started, self.inner(now)),
            active_channel: self.channels.freshest(),
        }
    }

    /// The earliest moment, on the awake clock, at which the answer may change if nothing more is told.
    pub fn due(&self) -> Option<Awake> {
        self.next_deadline().map(|at| Awake(at.0.saturating_add(self.frozen)))
    }

    /// When to look whether what the agent started is at work: with silence half over, and over.
    pub fn sample_moments(&self) -> [Option<Awake>; 2] {
        let at = |inner: Option<Awake>| inner.map(|at| Awake(at.0.saturating_add(self.frozen)));
        let [half, over] = self.silence_moments();
        [at(half), at(over)]
    }

    /// It asks for a person, and has not gone on since.
    pub fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

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
