//! Replays one session: takes its inputs in order of time and evaluates the watchdog as a live session would.

use super::counts::Counts;
use super::line::{Mark, Replayed, SessionName, Summary, VerdictChange};
use crate::record::event::EndedBy;
use crate::run::ending::{Ending, Facts, judge};
use crate::run::job::{Exit, Marker};
use crate::settings::WatchPolicy;
use crate::time::moment::Awake;
use crate::watch::feed::{Feed, FeedItem, Input};
use crate::watch::{Fact, Needs, Session, Watch};
use std::borrow::BorrowMut;
use std::mem::take;

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

/// The replay of one session. `F` is its feed, or a reader of lines that has one.
#[derive(Debug)]
pub struct Player<F = Feed> {
    watch: Watch,
    feed: F,
    counts: Counts,
    needs: Option<Needs>,
    name: Option<SessionName>,
    started: Awake,
    structured: bool,
    looks: Looks,
    items: Vec<FeedItem>,
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
        Player::with_feed(policy, session, name, looks, Feed::new(session.structured))
    }
}

impl<F: BorrowMut<Feed>> Player<F> {
    /// Creates the replay of a session with this feed.
    pub fn with_feed(
        policy: WatchPolicy,
        session: Session,
        name: Option<SessionName>,
        looks: Looks,
        feed: F,
    ) -> Player<F> {
        Player {
            watch: Watch::new(policy, session),
            feed,
            counts: Counts::default(),
            needs: None,
            name,
            started: session.started,
            structured: session.structured,
            looks,
            items: Vec::new(),
            lines: Vec::new(),
            mark: Mark::PLAIN,
            stopped: None,
            due: None,
            looked: None,
        }
    }

    /// Also measures what the session needs of the limits.
    pub fn measuring(mut self, measure: bool) -> Player<F> {
        self.needs = measure.then(Needs::default);
        self
    }

    /// Returns whether the watchdog has stopped the session. Further inputs are ignored then.
    pub fn has_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Returns the feed.
    pub fn feed(&mut self) -> &mut F {
        &mut self.feed
    }

    /// Lets `act` add to the feed at this moment, and judges what follows from it.
    pub fn take(&mut self, at: Awake, act: impl FnOnce(&mut F)) {
        self.take_from(at, at, act);
    }

    /// Takes an input of the session. The watchdog was not evaluated during a suspension.
    pub fn input(&mut self, at: Awake, input: Input) {
        let from = if let Input::Suspended { for_ms } = input { before(at, for_ms) } else { at };
        self.take_from(from, at, |feed| feed.borrow_mut().take(at, input));
    }

    fn take_from(&mut self, from: Awake, at: Awake, act: impl FnOnce(&mut F)) {
        self.release_before(at);
        self.look_before(from);
        if self.stopped.is_none() {
            act(&mut self.feed);
            self.pass_items(at);
        }
    }

    /// Moves every deadline by a suspension that ends later, at `until`. Lines within the span are then judged as if after
    /// it. The caller calls `look` at `until`.
    pub fn suspend_ahead(&mut self, until: Awake, for_ms: u64) {
        let from = before(until, for_ms);
        self.look_before(from);
        if self.stopped.is_none() {
            self.feed.borrow_mut().flush(from);
            self.pass_items(from);
            self.watch.take(until, &Fact::Suspended { for_ms });
            self.due = None;
        }
    }

    /// Takes a fact from a journal, which already passed through a feed.
    pub fn fact(&mut self, at: Awake, fact: &Fact) {
        let from = if let Fact::Suspended { for_ms } = fact { before(at, *for_ms) } else { at };
        self.look_before(from);
        self.pass(at, fact);
    }

    /// Evaluates the watchdog now, after flushing pending progress.
    pub fn look(&mut self, at: Awake) {
        if self.stopped.is_none() {
            self.feed.borrow_mut().flush(at);
            self.pass_items(at);
            self.judge(at);
        }
    }

    /// Passes on what an earlier moment holds back. It belongs to that moment.
    fn release_before(&mut self, at: Awake) {
        if let Some(then) = self.feed.borrow().holds().filter(|then| *then != at) {
            self.feed.borrow_mut().release();
            self.pass_items(then);
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

    fn pass_items(&mut self, at: Awake) {
        let mut items = take(&mut self.items);
        self.feed.borrow_mut().take_items(&mut items);
        for item in items.drain(..) {
            if let FeedItem::Fact(fact) = item {
                self.pass(at, &fact);
            }
        }
        self.items = items;
    }

    fn pass(&mut self, at: Awake, fact: &Fact) {
        if self.stopped.is_some() {
            return;
        }
        self.counts.note(fact);
        if let Some(needs) = &mut self.needs {
            needs.note(&self.watch, at, fact);
        }
        self.watch.take(at, fact);
        self.due = None;
        // Every single fact is judged.
        if !matches!(fact, Fact::Observed(_)) {
            self.judge(at);
        }
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
        self.release_before(at);
        self.look_before(at);
        // An agent that exits exactly at a due moment is not silent.
        if matches!(finish, Finish::Looked) && self.next_due() == Some(at) {
            self.look(at);
        }
        if self.stopped.is_none() {
            self.feed.borrow_mut().flush(at);
            self.feed.borrow_mut().take_items(&mut self.items);
            for item in &self.items {
                if let FeedItem::Fact(fact) = item {
                    self.counts.note(fact);
                    if let Some(needs) = &mut self.needs {
                        needs.note(&self.watch, at, fact);
                    }
                    self.watch.take(at, fact);
                }
            }
        }
        if let Some(needs) = &mut self.needs {
            needs.end(&self.watch, self.stopped.unwrap_or(at));
        }
        let counts = &self.counts;
        let (thinned, failed) = self.feed.borrow().thinned();
        let summary = Summary {
            session: self.name.clone(),
            ended_at_s: self.seconds(self.stopped.unwrap_or(at)),
            verdict: self.mark.verdict,
            reason: self.mark.reason,
            messages: counts.messages,
            tools: counts.tools + thinned,
            errors: counts.errors + failed,
            outcome: self.outcome(finish),
        };
        Replayed {
            lines: self.lines,
            summary,
            needs: self.needs,
            agent: None,
            label: None,
            agent_session: None,
            differing: Vec::new(),
        }
    }

    fn outcome(&self, finish: &Finish) -> Option<&'static str> {
        let (ended_by, exit, marker) = match (self.stopped, finish) {
            (Some(_), _) => (EndedBy::Watchdog, None, None),
            (None, Finish::Exited { exit, marker }) => (EndedBy::Itself, Some(*exit), marker.as_ref()),
            (None, Finish::Known(word)) => return Some(word),
            (None, Finish::Looked) => return None,
        };
        let totals = &self.feed.borrow().totals;
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

/// Returns the moment this many milliseconds earlier.
fn before(at: Awake, ms: u64) -> Awake {
    Awake(at.0.saturating_sub(ms))
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
