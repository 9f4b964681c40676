//! Replays one session: takes its inputs in order of time and evaluates the watchdog as a live session would.

use super::counts::Counts;
use super::feed::{Feed, Input};
use super::line::{Mark, Replayed, SessionName, Summary, VerdictChange};
use crate::record::event::EndedBy;
use crate::run::ending::{Ending, Facts, judge};
use crate::run::job::{Exit, Marker};
use crate::settings::WatchPolicy;
use crate::time::moment::Awake;
use crate::watch::sign::{Sign, Totals};
use crate::watch::{Fact, Session, Watch};

/// When the watchdog is evaluated, in addition to after every single fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    /// At every due moment, for a policy other than the recorded one.
    EveryDue,
    /// Only when the journal records a verdict.
    AsWritten,
}

/// How the replay of a session ends.
#[derive(Clone, Debug)]
pub enum Finish {
    /// The recording ends; the end of the session is unknown.
    Looked,
    /// The agent exited.
    Exited {
        /// The exit status.
        exit: Exit,
        /// The state marker in the agent's result, if there is one.
        marker: Option<Marker>,
    },
    /// The ending is known from elsewhere, as a word.
    Known(&'static str),
}

/// The replay of one session.
#[derive(Debug)]
pub struct Player {
    watch: Watch,
    feed: Feed,
    counts: Counts,
    name: Option<SessionName>,
    started: Awake,
    structured: bool,
    looks: Looks,
    facts: Vec<Fact>,
    lines: Vec<VerdictChange>,
    mark: Mark,
    stopped: Option<Awake>,
    /// The cached next due moment; `None` after every new fact.
    due: Option<Option<Awake>>,
    looked: Option<Awake>,
}

impl Player {
    /// Creates the replay of a session.
    pub fn new(policy: WatchPolicy, session: Session, name: Option<SessionName>, looks: Looks) -> Player {
        Player {
            watch: Watch::new(policy, session),
            feed: Feed::new(session.structured),
            counts: Counts::default(),
            name,
            started: session.started,
            structured: session.structured,
            looks,
            facts: Vec::new(),
            lines: Vec::new(),
            mark: Mark::PLAIN,
            stopped: None,
            due: None,
            looked: None,
        }
    }

    /// Returns whether the watchdog has stopped the session. Further inputs are ignored then.
    pub fn has_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Returns the totals of the agent's signs so far.
    pub fn totals(&self) -> &Totals {
        &self.feed.totals
    }

    /// Takes a nonblank line of stdout, as the signs that the agent's reader found in it.
    pub fn line(&mut self, at: Awake, signs: &mut Vec<Sign>) {
        self.look_before(at);
        if self.stopped.is_none() {
            self.feed.line(at, signs, &mut self.facts);
            self.pass_facts(at);
        }
    }

    /// Takes a nonblank line of stderr, as the signs that the agent's reader found in it.
    pub fn stderr_line(&mut self, at: Awake, signs: &mut Vec<Sign>) {
        self.look_before(at);
        if self.stopped.is_none() {
            self.feed.stderr_line(at, signs, &mut self.facts);
            self.pass_facts(at);
        }
    }

    /// Moves every deadline by a suspension that ends later, at `until`. Lines within the span are then judged as if after
    /// it. The caller calls `look` at `until`.
    pub fn suspend_ahead(&mut self, until: Awake, for_ms: u64) {
        let from = Awake(until.0.saturating_sub(for_ms));
        self.look_before(from);
        if self.stopped.is_none() {
            self.feed.flush(from, &mut self.facts);
            self.pass_facts(from);
            self.watch.take(until, &Fact::Suspended { for_ms });
            self.due = None;
        }
    }

    /// Takes a sign that the agent's reader derives from the complete output, once the process has ended.
    pub fn last_sign(&mut self, sign: &Sign) {
        self.feed.totals.add(sign);
    }

    /// Takes an input of a timeline.
    pub fn input(&mut self, at: Awake, input: Input) {
        // The watchdog was not evaluated during a suspension.
        let from = match input {
            Input::Suspended { for_ms } => Awake(at.0.saturating_sub(for_ms)),
            Input::Stdout { .. }
            | Input::Stderr { .. }
            | Input::Message { .. }
            | Input::Sign(_)
            | Input::McpCall { .. }
            | Input::Subagent { .. }
            | Input::Workspace { .. }
            | Input::Children { .. }
            | Input::Heartbeat => at,
        };
        self.look_before(from);
        if self.stopped.is_none() {
            self.feed.take(at, input, &mut self.facts);
            self.pass_facts(at);
        }
    }

    /// Takes a fact from a journal, which already passed through the coalescer.
    pub fn fact(&mut self, at: Awake, fact: &Fact) {
        let from = match fact {
            Fact::Suspended { for_ms } => Awake(at.0.saturating_sub(*for_ms)),
            Fact::Printed
            | Fact::Repeated
            | Fact::Observed(_)
            | Fact::ToolStarted(_)
            | Fact::ToolEnded { .. }
            | Fact::Error { .. }
            | Fact::SubagentStarted { .. }
            | Fact::SubagentEnded { .. }
            | Fact::Sampled { .. }
            | Fact::NeedsHuman { .. } => at,
        };
        self.look_before(from);
        if self.stopped.is_none() {
            self.facts.push(fact.clone());
            self.pass_facts(at);
        }
    }

    /// Evaluates the watchdog now, after flushing pending progress.
    pub fn look(&mut self, at: Awake) {
        if self.stopped.is_none() {
            self.feed.flush(at, &mut self.facts);
            self.pass_facts(at);
            self.judge(at);
        }
    }

    /// Evaluates the watchdog at every due moment before this one. A live session drains its pipes before it judges
    /// silence, so an input at a due moment still counts.
    fn look_before(&mut self, at: Awake) {
        while let Some(due) = self.next_due().filter(|due| *due < at) {
            self.look(due);
        }
    }

    fn next_due(&mut self) -> Option<Awake> {
        if self.looks == Looks::AsWritten || self.stopped.is_some() {
            return None;
        }
        let due = *self.due.get_or_insert_with(|| self.watch.due());
        // A moment is evaluated only once, even if it is still due.
        due.filter(|due| self.looked.is_none_or(|looked| *due > looked))
    }

    fn pass_facts(&mut self, at: Awake) {
        let mut facts = std::mem::take(&mut self.facts);
        for fact in facts.drain(..) {
            if self.stopped.is_some() {
                break;
            }
            self.counts.note(&fact);
            self.watch.take(at, &fact);
            self.due = None;
            // Every single fact is judged.
            if !matches!(fact, Fact::Observed(_)) {
                self.judge(at);
            }
        }
        self.facts = facts;
    }

    fn judge(&mut self, at: Awake) {
        let verdict = self.watch.judge(at);
        (self.due, self.looked) = (None, Some(at));
        let mark = Mark::of(&verdict);
        if mark.reason.is_some() {
            self.stopped = Some(at);
        }
        if mark != self.mark {
            self.mark = mark;
            let answer = self.watch.answer(at, verdict);
            self.lines.push(VerdictChange::new(self.name.clone(), self.seconds(at), answer));
        }
    }

    fn seconds(&self, at: Awake) -> f64 {
        at.since(self.started).as_secs_f64()
    }

    /// Returns the last verdict and its reason or channel, as words.
    pub fn last(&self) -> (&'static str, Option<&'static str>) {
        let detail = self.mark.reason.map(|r| r.as_str()).or(self.mark.deferred_by.map(|c| c.as_str()));
        (self.mark.verdict, detail)
    }

    /// Ends the replay at this moment.
    pub fn finish(mut self, at: Awake, finish: &Finish) -> Replayed {
        self.look_before(at);
        // An agent that exits exactly at a due moment is not silent.
        if matches!(finish, Finish::Looked) && self.next_due() == Some(at) {
            self.look(at);
        }
        if self.stopped.is_none() {
            self.feed.flush(at, &mut self.facts);
            self.facts.iter().for_each(|fact| self.counts.note(fact));
        }
        let counts = &self.counts;
        let summary = Summary {
            session: self.name.clone(),
            ended_at_s: self.seconds(self.stopped.unwrap_or(at)),
            verdict: self.mark.verdict,
            reason: self.mark.reason,
            messages: counts.messages,
            tools: counts.tools,
            errors: counts.errors,
            outcome: self.outcome(finish),
        };
        Replayed { lines: self.lines, summary, exercised: counts.exercised, differing: Vec::new() }
    }

    fn outcome(&self, finish: &Finish) -> Option<&'static str> {
        let (ended_by, exit, marker) = match (self.stopped, finish) {
            (Some(_), _) => (EndedBy::Watchdog, None, None),
            (None, Finish::Exited { exit, marker }) => (EndedBy::Itself, Some(*exit), marker.as_ref()),
            (None, Finish::Known(word)) => return Some(word),
            (None, Finish::Looked) => return None,
        };
        let totals = &self.feed.totals;
        let facts = Facts {
            ended_by,
            exit,
            structured: self.structured,
            result: totals.result.as_ref(),
            marker,
            limit: totals.limit.as_ref().map(|limit| limit.kind),
            resets_at: None,
            auth_failed: totals.auth_failed.is_some(),
            complaint: "",
        };
        Some(word(&judge(&facts).ending))
    }
}

fn word(ending: &Ending) -> &'static str {
    match ending {
        Ending::Completed => "completed",
        Ending::Idle { .. } => "idle",
        Ending::Failed => "failed",
        Ending::TimedOut => "timed_out",
        Ending::RateLimited { .. } => "rate_limited",
        Ending::AuthFailed => "auth_failed",
        Ending::Interrupted { .. } => "interrupted",
    }
}
