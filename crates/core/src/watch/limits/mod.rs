//! Limits that follow recorded sessions: what good sessions needed, how far their tail reaches, and which limits follow.
//!
//! Each session counts with the longest silence, the longest call of each tool and so on, as `Needs` measures them. A
//! session that the watchdog stopped shows only that it needed more than its limit, so it is left out, unless a person
//! labeled the stop as wrong. The module is pure: the caller reads and replays the records.

mod tail;
mod trial;

pub use trial::{Label, Trial};

use crate::settings::{ReaderName, WatchPolicy};
use crate::text::figures::count;
use crate::time::dur::{Dur, Limit};
use crate::watch::needs::{Calls, Needs};
use crate::watch::replay::Replayed;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tail::TailIndex;

/// The fewest good sessions from which a limit is loosened.
pub const MIN_TO_LOOSEN: usize = 30;
/// The fewest good sessions of an agent from which a limit is tightened.
pub const MIN_TO_TIGHTEN: usize = 300;
/// The fewest calls of a tool that gets a separate limit.
pub const MIN_CALLS: u64 = 20;
/// A learned limit is at least this percentage of the longest value in a good session.
const HEADROOM_PERCENT: u64 = 120;
/// The limit of a tool is this many times its longest call.
const TOOL_FACTOR: u64 = 3;
/// The tightest limit of a tool.
const TOOL_FLOOR: Dur = Dur::from_mins(5);
/// The loosest learned limit.
const CEILING: Dur = Dur::from_hours(1);
/// Learned limits are multiples of this.
const STEP: Dur = Dur::from_secs(10);
/// The most tools that get a separate limit. The ones with the most calls come first.
pub const MAX_TOOL_LIMITS: usize = 64;

/// The kind of a session, as far as it matters for limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It ended by itself, and its iteration was completed or idle.
    Good,
    /// The watchdog stopped it, and a person labeled the stop as wrong. It needed at least what was measured.
    WronglyStopped,
    /// The watchdog stopped it.
    Stopped,
    /// It failed, was interrupted, or its service refused.
    Unclear,
}

impl Kind {
    /// Returns the kind of a session from its replay under its own limits.
    pub fn of(session: &Replayed) -> Kind {
        match (session.summary.verdict, session.summary.outcome, session.label) {
            ("hard_stop", _, Some(Label::Wrong)) => Kind::WronglyStopped,
            ("hard_stop", _, Some(Label::Right) | None) => Kind::Stopped,
            (_, Some("completed" | "idle"), _) => Kind::Good,
            _ => Kind::Unclear,
        }
    }

    /// Returns whether the watchdog should have let such a session continue.
    fn is_evidence(self) -> bool {
        match self {
            Kind::Good | Kind::WronglyStopped => true,
            Kind::Stopped | Kind::Unclear => false,
        }
    }
}

/// A recorded session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The reader of its agent.
    pub agent: ReaderName,
    /// The directory in which it worked.
    pub place: String,
    /// Its kind, which decides whether it counts.
    pub kind: Kind,
    /// What it needed.
    pub needs: Needs,
}

impl Sample {
    /// Returns whether the session worked in this directory or below it.
    pub fn is_in(&self, place: &str) -> bool {
        let rest = self.place.strip_prefix(place);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || place.ends_with('/'))
    }
}

/// A limit that can be learned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// `watchdog.idle`.
    Idle,
    /// `watchdog.start`.
    Start,
    /// `watchdog.children`.
    Children,
    /// `watchdog.session`.
    Session,
    /// The entry of a tool in `watchdog.tools`.
    Tool(String),
}

impl Key {
    /// The limits of all tools together, in the order in which they are shown.
    pub const WHOLE: [Key; 4] = [Key::Idle, Key::Start, Key::Children, Key::Session];

    /// Returns the name of the key in a settings file.
    pub fn path(&self) -> String {
        match self {
            Key::Idle => "watchdog.idle".to_owned(),
            Key::Start => "watchdog.start".to_owned(),
            Key::Children => "watchdog.children".to_owned(),
            Key::Session => "watchdog.session".to_owned(),
            Key::Tool(name) => format!("watchdog.tools.{name}"),
        }
    }

    /// Returns the limit in a policy.
    pub fn of(&self, policy: &WatchPolicy) -> Limit {
        match self {
            Key::Idle => policy.idle,
            Key::Start => policy.start,
            Key::Children => policy.children,
            Key::Session => policy.session,
            Key::Tool(name) => policy.tools.get(name).copied().unwrap_or(policy.tool),
        }
    }

    /// Sets the limit in a policy.
    pub fn set(&self, policy: &mut WatchPolicy, limit: Limit) {
        match self {
            Key::Idle => policy.idle = limit,
            Key::Start => policy.start = limit,
            Key::Children => policy.children = limit,
            Key::Session => policy.session = limit,
            Key::Tool(name) => drop(policy.tools.insert(name.clone(), limit)),
        }
    }

    /// Returns the tightest and the loosest learned limit. Context compaction alone can take more than three minutes.
    fn bounds(&self) -> (Dur, Dur) {
        match self {
            Key::Idle | Key::Start => (Dur::from_mins(4), CEILING),
            Key::Tool(_) => (TOOL_FLOOR, CEILING),
            Key::Children => (Dur::from_mins(10), Dur::from_hours(4)),
            Key::Session => (Dur::from_mins(15), Dur::from_hours(8)),
        }
    }

    fn need(&self, needs: &Needs) -> Dur {
        match self {
            Key::Idle => needs.silence_s,
            Key::Start => needs.start_s,
            Key::Children => needs.children_s,
            Key::Session => needs.session_s,
            Key::Tool(name) => needs.tools.get(name).map_or(Dur::ZERO, |calls| calls.longest_s),
        }
    }
}

/// The evidence of the recorded sessions about one limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The key, for example `watchdog.idle` or `watchdog.tools.Bash`.
    pub key: String,
    /// The limit without the sessions, in seconds. Null means none.
    pub now_s: Option<Dur>,
    /// The learned limit in seconds, or null to keep the limit.
    pub limit_s: Option<Dur>,
    /// The longest value in a good session, in seconds.
    pub longest_s: Dur,
    /// The good sessions that the estimate is based on.
    pub sessions: u64,
    /// The good sessions of the agent on this machine.
    pub agent_sessions: u64,
    /// The reason for people.
    pub why: String,
}

/// The recorded sessions of one agent, and those of one place among them.
pub struct History<'a> {
    good: Vec<&'a Needs>,
    here: Vec<&'a Needs>,
}

impl<'a> History<'a> {
    /// Selects the sessions of an agent. `place` is the directory whose sessions count as those of this project; without
    /// it all of them do.
    pub fn of(samples: &'a [Sample], agent: ReaderName, place: Option<&str>) -> History<'a> {
        let evidence = || samples.iter().filter(|s| s.agent == agent && s.kind.is_evidence());
        let is_here = |sample: &&Sample| place.is_none_or(|place| sample.is_in(place));
        History {
            good: evidence().map(|sample| &sample.needs).collect(),
            here: evidence().filter(is_here).map(|sample| &sample.needs).collect(),
        }
    }

    /// Returns the estimates for the silence limit and for every tool with enough calls: those that `profile: learned`
    /// applies.
    pub fn applied(&self, base: &WatchPolicy) -> Vec<(Key, Estimate)> {
        self.estimates([Key::Idle], base)
    }

    /// Returns the estimates for all limits.
    pub fn all(&self, base: &WatchPolicy) -> Vec<(Key, Estimate)> {
        self.estimates(Key::WHOLE, base)
    }

    fn estimates<const N: usize>(&self, keys: [Key; N], base: &WatchPolicy) -> Vec<(Key, Estimate)> {
        let keys = keys.into_iter().chain(self.tools().into_iter().map(|(name, _)| Key::Tool(name)));
        keys.map(|key| (key.clone(), self.estimate(&key, base))).collect()
    }

    /// Returns the number of good sessions of the agent, and of those in this project.
    pub fn good(&self) -> (usize, usize) {
        (self.good.len(), self.here.len())
    }

    /// Returns the tools with enough calls in good sessions, those with the most calls first.
    fn tools(&self) -> Vec<(String, Calls)> {
        let mut tools: BTreeMap<&str, Calls> = BTreeMap::new();
        for (name, calls) in self.good.iter().flat_map(|needs| &needs.tools) {
            let sum = tools.entry(name).or_default();
            sum.calls = sum.calls.saturating_add(calls.calls);
            sum.longest_s = sum.longest_s.max(calls.longest_s);
        }
        let mut tools: Vec<(String, Calls)> = tools
            .into_iter()
            .filter(|(_, calls)| calls.calls >= MIN_CALLS)
            .map(|(name, calls)| (name.to_owned(), calls))
            .collect();
        tools.sort_by(|(a, many), (b, few)| few.calls.cmp(&many.calls).then_with(|| a.cmp(b)));
        tools.truncate(MAX_TOOL_LIMITS);
        tools
    }

    /// Returns the estimate for one limit. `base` holds the limits without the sessions.
    pub fn estimate(&self, key: &Key, base: &WatchPolicy) -> Estimate {
        let (sessions, longest, safe) = match key {
            Key::Tool(_) => self.safe_for_tool(key),
            Key::Idle | Key::Start | Key::Children | Key::Session => self.safe(key),
        };
        let now = key.of(base).duration();
        let good = self.good.len();
        let (limit_s, why) = match (now, safe) {
            (None, _) => (None, "the limit is off".to_owned()),
            (Some(_), None) => (None, format!("{sessions} of {MIN_TO_LOOSEN} good sessions needed")),
            (Some(now), Some(safe)) => decide(now, safe, longest, key, good),
        };
        Estimate {
            key: key.path(),
            now_s: now,
            limit_s,
            longest_s: longest,
            sessions: sessions as u64,
            agent_sessions: good as u64,
            why,
        }
    }

    /// Returns the number of sessions, the longest value, and the limit that the tail estimate gives. The
    /// sessions of this project determine where the tail begins; all sessions of the agent determine how heavy it is.
    fn safe(&self, key: &Key) -> (usize, Dur, Option<Dur>) {
        let sorted = |sessions: &[&Needs]| {
            let mut values: Vec<Dur> = sessions.iter().map(|needs| key.need(needs)).collect();
            values.sort_unstable_by(|a, b| b.cmp(a));
            values
        };
        let here = sorted(&self.here);
        let longest = here.first().copied().unwrap_or(Dur::ZERO);
        let safe = (here.len() >= MIN_TO_LOOSEN).then(|| {
            let bound = TailIndex::of(&sorted(&self.good)).and_then(|index| tail::bound(&here, index));
            bound.unwrap_or(Dur::ZERO).max(longest.percent(HEADROOM_PERCENT))
        });
        (here.len(), longest, safe)
    }

    /// Returns the same for a tool, whose calls are alike in all projects.
    fn safe_for_tool(&self, key: &Key) -> (usize, Dur, Option<Dur>) {
        let longest = self.good.iter().map(|needs| key.need(needs)).max().unwrap_or(Dur::ZERO);
        let safe = (self.good.len() >= MIN_TO_LOOSEN).then(|| longest.saturating_mul(TOOL_FACTOR));
        (self.good.len(), longest, safe)
    }
}

/// Returns the learned limit, if it differs, and the reason. A limit is loosened only as far as a good session showed.
fn decide(now: Dur, safe: Dur, longest: Dur, key: &Key, good: usize) -> (Option<Dur>, String) {
    let (floor, ceiling) = key.bounds();
    let shown = length(longest);
    let tight = rounded(safe.clamp(floor, ceiling));
    if tight < now {
        if good < MIN_TO_TIGHTEN {
            let why =
                format!("{} would do, but {good} of {MIN_TO_TIGHTEN} good sessions needed", length(tight));
            return (None, why);
        }
        return (Some(tight), format!("good sessions needed at most {shown}"));
    }
    let loose = rounded(longest.percent(HEADROOM_PERCENT).clamp(floor, ceiling));
    if loose > now {
        return (Some(loose), format!("a good session needed {shown}"));
    }
    (None, format!("good sessions needed up to {shown}; no tighter limit is safe"))
}

/// Rounds up to a multiple of `STEP`.
fn rounded(dur: Dur) -> Dur {
    let step = STEP.as_millis();
    Dur::from_millis(dur.as_millis().div_ceil(step).saturating_mul(step))
}

/// Formats a duration to the second.
fn length(dur: Dur) -> String {
    Dur::from_secs(dur.as_millis().div_ceil(1_000)).to_string()
}

/// Returns how sure a rate is: with no false stop among n sessions, the true rate is at most 3 in n with 95 % confidence.
pub fn confidence(stopped: u64, sessions: u64) -> String {
    if sessions == 0 {
        return "no good session was replayed".to_owned();
    }
    // The upper end of Wilson's interval; with no event it is close to 3 in n.
    let (k, n, z) = (stopped as f64, sessions as f64, 1.645f64);
    let p = k / n;
    let middle = p + z * z / (2.0 * n);
    let width = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let upper = (middle + width) / (1.0 + z * z / n);
    format!(
        "{stopped} of {} stopped; at most {:.2}% with 95% confidence",
        count(sessions, "good session"),
        (upper * 100.0).min(100.0)
    )
}

#[cfg(test)]
mod tests;
