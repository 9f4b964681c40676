//! External agents: programs that dogwatch did not start, watched by what they report.
//!
//! A report with a higher message count is progress; any other report only shows presence and moves no deadline. The
//! same watchdog judges them. An agent that has ended stays ended: later reports are refused, and its reason stays
//! available until newer ends replace it.

use crate::settings::WatchPolicy;
use crate::text::figures::count;
use crate::text::redact;
use crate::text::{clip, printable};
use crate::time::dur::{Dur, Limit};
use crate::time::moment::Awake;
use crate::watch::feed::{Feed, FeedItem, Input};
use crate::watch::sign::Sign;
use crate::watch::{Assessment, NOTICE_AT, Session, StopReason, Verdict, Watch};
use std::collections::BTreeMap;

/// The most agents that are registered at once; the next one is refused.
pub const MAX_AGENTS: usize = 10_000;
/// The most ended agents that are kept; the one that ended first is removed first.
pub const MAX_ENDED: usize = 1_000;
/// The longest name, in bytes.
pub const MAX_NAME: usize = 200;
/// The most of an agent's last error that is kept, in bytes.
pub const MAX_LAST_ERROR: usize = 1_000;

/// All agents that have registered.
#[derive(Clone, Debug)]
pub struct ExternalAgents {
    policy: WatchPolicy,
    agents: BTreeMap<String, Agent>,
}

#[derive(Clone, Debug)]
struct Agent {
    limits: Limits,
    feed: Feed,
    last_messages: u64,
    last_error: Option<String>,
    since: Awake,
    life: Life,
}

/// A live agent with its watch, or an ended agent with its last answer.
#[derive(Clone, Debug)]
enum Life {
    Watched(Box<Watch>),
    Ended { at: Awake, answer: Box<Assessment> },
}

/// The limits of one agent; `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest time without progress.
    pub idle: Option<Dur>,
    /// The longest time in all.
    pub total: Option<Dur>,
    /// The number of equal errors that end the agent.
    pub errors: Option<u32>,
}

/// The limits that a caller sets when it registers an agent; the others come from the profile or the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedLimits {
    /// The longest time without progress.
    pub idle: Option<Dur>,
    /// The longest time in all.
    pub total: Option<Dur>,
    /// The number of equal errors that end the agent.
    pub errors: Option<u32>,
}

impl RequestedLimits {
    fn over(self, mut policy: WatchPolicy) -> WatchPolicy {
        if let Some(idle) = self.idle {
            policy.idle = Limit::At(idle);
        }
        if let Some(total) = self.total {
            policy.session = Limit::At(total);
        }
        policy.errors = self.errors.or(policy.errors);
        policy
    }
}

/// The state of one agent.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalStatus {
    /// The agent's name.
    pub id: String,
    /// The agent's limits.
    pub limits: Limits,
    /// The highest message count that it reported.
    pub messages: u64,
    /// The message count before the last increase.
    pub last_messages: u64,
    /// The number of errors that it reported, equal or not.
    pub errors: u64,
    /// The text of the last error, without control characters and secrets.
    pub last_error: Option<String>,
    /// The time since its registration, up to its end if it has ended.
    pub lasted: Dur,
    /// Whether it has ended.
    pub ended: bool,
    /// The watchdog's answer, now or at its end.
    pub answer: Assessment,
}

impl ExternalStatus {
    /// Returns the limit that the agent exceeds, or exceeded when it ended.
    pub fn stop(&self) -> Option<(StopReason, &str)> {
        stop(&self.answer)
    }

    /// Returns a warning from the third error on.
    pub fn warning(&self) -> Option<String> {
        let last = self.last_error.as_deref().filter(|_| self.errors >= u64::from(NOTICE_AT))?;
        Some(format!("{}, last: {last}", count(self.errors, "error")))
    }
}

/// Why a report is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalError {
    /// There are already [`MAX_AGENTS`] live agents.
    TooMany,
    /// No agent with this name is registered.
    Unknown,
    /// The agent has ended.
    Ended,
    /// An agent with this name is registered and has not ended.
    Taken,
    /// The name is empty, too long, or contains control characters.
    BadName,
}

/// An agent that exceeds a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Hung {
    /// The agent's name.
    pub id: String,
    /// The rule that fired.
    pub reason: StopReason,
    /// The reason as a sentence for people.
    pub message: String,
    /// The watchdog's answer with its evidence.
    pub answer: Assessment,
}

impl ExternalAgents {
    /// Creates an empty set. `policy` applies to agents that register without their own policy.
    pub fn new(policy: WatchPolicy) -> ExternalAgents {
        ExternalAgents { policy, agents: BTreeMap::new() }
    }

    /// Registers an agent that is new or has ended.
    pub fn register(&mut self, now: Awake, id: &str) -> Result<(), ExternalError> {
        self.register_under(now, id, None, RequestedLimits::default())
    }

    /// Registers an agent under `policy`, or that of the settings, with the limits in `asked` replaced.
    pub fn register_under(
        &mut self,
        now: Awake,
        id: &str,
        policy: Option<WatchPolicy>,
        asked: RequestedLimits,
    ) -> Result<(), ExternalError> {
        if id.is_empty() || clip(id, MAX_NAME).len() < id.len() || id.chars().any(char::is_control) {
            return Err(ExternalError::BadName);
        }
        match self.agents.get(id) {
            Some(agent) if agent.ended().is_none() => return Err(ExternalError::Taken),
            None if self.agents.len() >= MAX_AGENTS => self.forget_one().ok_or(ExternalError::TooMany)?,
            Some(_) | None => {}
        }
        let policy = asked.over(policy.unwrap_or_else(|| self.policy.clone()));
        let limits =
            Limits { idle: policy.idle.duration(), total: policy.session.duration(), errors: policy.errors };
        let life = Life::Watched(Box::new(Watch::new(policy, Session::new(now, false))));
        let feed = Feed::new(false);
        let agent = Agent { limits, feed, last_messages: 0, last_error: None, since: now, life };
        self.agents.insert(id.to_owned(), agent);
        Ok(())
    }

    /// Removes the agent that ended first. A live agent is never removed.
    fn forget_one(&mut self) -> Option<()> {
        let ended = self.agents.iter().filter_map(|(id, agent)| Some((agent.ended()?, id)));
        let oldest = ended.min().map(|(_, id)| id.clone())?;
        self.agents.remove(&oldest);
        Some(())
    }

    /// Takes a sign of life. It is progress if the message count has grown.
    pub fn activity(&mut self, now: Awake, id: &str, messages: Option<u64>) -> Result<(), ExternalError> {
        let agent = self.living(id)?;
        let known = agent.feed.totals.messages;
        if let Some(total) = messages.filter(|total| *total > known) {
            agent.last_messages = known;
            agent.take(now, Input::Message { count: Some(total) });
        }
        Ok(())
    }

    /// Takes an error and returns the agent's state, which contains a warning from the third error on.
    pub fn error(&mut self, now: Awake, id: &str, text: &str) -> Result<ExternalStatus, ExternalError> {
        let agent = self.living(id)?;
        agent.last_error = Some(shown(text));
        agent.take(now, Input::Sign(Sign::error(text)));
        Ok(agent.seen(id, now))
    }

    /// Ends an agent that reports its end.
    pub fn done(&mut self, now: Awake, id: &str) -> Result<(), ExternalError> {
        self.living(id)?.end(now);
        if self.agents.values().filter(|agent| agent.ended().is_some()).count() > MAX_ENDED {
            self.forget_one();
        }
        Ok(())
    }

    /// Ends the agent on behalf of a caller and returns its state. An ended agent does not change.
    pub fn clean_up(&mut self, now: Awake, id: &str) -> Result<ExternalStatus, ExternalError> {
        match self.done(now, id) {
            Ok(()) | Err(ExternalError::Ended) => self.get(now, id).ok_or(ExternalError::Unknown),
            Err(refused) => Err(refused),
        }
    }

    /// Returns the state of an agent, live or ended, without changing it.
    pub fn get(&self, now: Awake, id: &str) -> Option<ExternalStatus> {
        self.agents.get(id).map(|agent| agent.seen(id, now))
    }

    /// Returns the state of all agents without changing them.
    pub fn list(&self, now: Awake) -> Vec<ExternalStatus> {
        self.agents.iter().map(|(id, agent)| agent.seen(id, now)).collect()
    }

    /// Returns the live agents that exceed a limit now, without changing them.
    pub fn hung(&self, now: Awake) -> Vec<Hung> {
        let living = self.agents.iter().filter_map(|(id, agent)| Some((id, agent.watch()?)));
        living
            .filter_map(|(id, watch)| {
                let answer = watch.clone().evaluate(now);
                let (reason, message) = stop(&answer)?;
                Some(Hung { id: id.clone(), reason, message: message.to_owned(), answer })
            })
            .collect()
    }

    /// Returns when the next agent may exceed a limit.
    pub fn due(&self) -> Option<Awake> {
        self.agents.values().filter_map(|agent| agent.watch()?.due()).min()
    }

    /// Returns when the next agent that does not hang yet may exceed a limit, if nothing more is reported.
    pub fn due_after(&self, now: Awake) -> Option<Awake> {
        self.agents.values().filter_map(|agent| agent.watch()?.due()).filter(|due| *due > now).min()
    }

    fn living(&mut self, id: &str) -> Result<&mut Agent, ExternalError> {
        match self.agents.get_mut(id) {
            Some(agent) if agent.ended().is_some() => Err(ExternalError::Ended),
            Some(agent) => Ok(agent),
            None => Err(ExternalError::Unknown),
        }
    }
}

impl Agent {
    fn watch(&self) -> Option<&Watch> {
        match &self.life {
            Life::Watched(watch) => Some(watch),
            Life::Ended { .. } => None,
        }
    }

    fn ended(&self) -> Option<Awake> {
        match self.life {
            Life::Watched(_) => None,
            Life::Ended { at, .. } => Some(at),
        }
    }

    /// Passes an input on at once: a report may be the last one before the next evaluation.
    fn take(&mut self, now: Awake, input: Input) {
        self.feed.take(now, input);
        self.feed.flush(now);
        let mut items = Vec::new();
        self.feed.take_items(&mut items);
        if let Life::Watched(watch) = &mut self.life {
            for item in items {
                match item {
                    FeedItem::Fact(fact) => watch.take(now, &fact),
                    FeedItem::Issue(_) => {}
                }
            }
        }
    }

    fn end(&mut self, now: Awake) {
        if let Life::Watched(watch) = &mut self.life {
            let answer = Box::new(watch.evaluate(now));
            self.life = Life::Ended { at: now, answer };
        }
    }

    fn seen(&self, id: &str, now: Awake) -> ExternalStatus {
        let (at, answer) = match &self.life {
            Life::Watched(watch) => (now, watch.as_ref().clone().evaluate(now)),
            Life::Ended { at, answer } => (*at, answer.as_ref().clone()),
        };
        ExternalStatus {
            id: id.to_owned(),
            limits: self.limits,
            messages: self.feed.totals.messages,
            last_messages: self.last_messages,
            errors: self.feed.totals.errors,
            last_error: self.last_error.clone(),
            lasted: at.since(self.since),
            ended: self.ended().is_some(),
            answer,
        }
    }
}

fn stop(answer: &Assessment) -> Option<(StopReason, &str)> {
    match &answer.verdict {
        Verdict::HardStop { reason, message } => Some((*reason, message)),
        Verdict::Continue { .. } | Verdict::Notice { .. } => None,
    }
}

/// Returns an error's text without control characters and secrets, at most `MAX_LAST_ERROR` bytes.
fn shown(text: &str) -> String {
    let clean = redact::text(printable(text).trim());
    let cut = clip(&clean, MAX_LAST_ERROR);
    if cut.len() < clean.len() { format!("{cut}…") } else { clean }
}

#[cfg(test)]
mod tests;
