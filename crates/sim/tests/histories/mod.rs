//! Histories of facts, and the comparison of the watchdog with the oracle.
#![allow(dead_code, reason = "each test file uses its own part")]

use dogwatch_core::record::event::Observation;
use dogwatch_core::run::idle::draw;
use dogwatch_core::settings::{Profile, Ttl, WatchPolicy};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::{Channel, Fact, Session, ToolStarted, Verdict, Watch};
use dogwatch_sim::oracle::{CELL, Oracle, OracleVerdict, TimedFacts};

/// The interval at which both are evaluated, in milliseconds.
pub const TICK: u64 = 5 * CELL;

fn at(seconds: u64) -> Limit {
    Limit::At(Dur::from_secs(seconds))
}

/// Returns policies with small limits in several proportions, so that short histories reach all rows.
pub fn policies() -> Vec<WatchPolicy> {
    let base = WatchPolicy {
        session: at(400),
        children: at(60),
        errors: Some(4),
        cycles: Some(3),
        poll: at(50),
        tool: at(70),
        start: at(40),
        idle: at(60),
        human: at(80),
        ..WatchPolicy::of(Profile::Quick)
    };
    let ttl = |seconds| Ttl::Fixed(Dur::from_secs(seconds));
    vec![
        base.clone(),
        WatchPolicy {
            evidence_ttl: ttl(20),
            children: at(30),
            session: at(150),
            tools: [("Bash".to_owned(), at(45))].into(),
            ..base.clone()
        },
        WatchPolicy { evidence_ttl: ttl(0), start: Limit::Off, tool: Limit::Off, ..base.clone() },
        WatchPolicy { idle: Limit::Off, poll: Limit::Off, human: at(30), ..base.clone() },
        WatchPolicy { idle: at(35), start: at(80), errors: None, cycles: Some(2), poll: at(0), ..base },
    ]
}

pub fn seen(channel: Channel, digest: Option<u64>) -> Fact {
    Fact::Observed(Observation { digest, ..Observation::single(channel, Awake(0)) })
}

pub fn starts(id: &str, call: u64) -> ToolStarted {
    let (id, name) = (id.to_owned(), "Bash".to_owned());
    ToolStarted {
        id,
        name,
        subject: String::new(),
        call,
        timeout: None,
        delegates: false,
        mcp: false,
        heartbeat: false,
    }
}

pub fn ends(id: &str, ok: bool, result: u64) -> Fact {
    let error = if ok { String::new() } else { format!("error {result}") };
    Fact::ToolEnded { id: id.to_owned(), ok, result, error, heartbeat: false, canceled: false }
}

fn error(text: &str) -> Fact {
    Fact::Error { fingerprint: text.to_owned() }
}

pub fn working() -> Vec<Fact> {
    vec![
        Fact::Printed,
        seen(Channel::Stdout, None),
        seen(Channel::McpTool, None),
        seen(Channel::Workspace, None),
        Fact::ToolStarted(starts("a", 1)),
        Fact::ToolStarted(ToolStarted { mcp: true, timeout: Some(Dur::from_secs(5)), ..starts("b", 1) }),
        ends("a", true, 1),
        ends("b", true, 1),
        Fact::Suspended { for_ms: 5_000 },
    ]
}

pub fn waiting() -> Vec<Fact> {
    vec![
        seen(Channel::Stdout, None),
        seen(Channel::Subagent, None),
        Fact::ToolStarted(ToolStarted { delegates: true, ..starts("d", 2) }),
        ends("d", true, 1),
        Fact::ToolStarted(starts("a", 1)),
        Fact::SubagentStarted { id: "s".to_owned() },
        Fact::SubagentEnded { id: "s".to_owned() },
        Fact::Sampled { children: 1, cpu_ms: 0 },
        Fact::Sampled { children: 1, cpu_ms: 3_000 },
        Fact::Sampled { children: 0, cpu_ms: 3_000 },
        Fact::Suspended { for_ms: 5_000 },
    ]
}

/// Returns facts of an agent that asks a person and then continues or not.
pub fn asking() -> Vec<Fact> {
    vec![
        Fact::NeedsHuman { what: "may I?".to_owned() },
        seen(Channel::Stdout, None),
        seen(Channel::Workspace, None),
        Fact::ToolStarted(starts("a", 1)),
        ends("a", false, 1),
        Fact::SubagentStarted { id: "s".to_owned() },
        Fact::Sampled { children: 0, cpu_ms: 3_000 },
        Fact::Suspended { for_ms: 5_000 },
    ]
}

pub fn repeating() -> Vec<Fact> {
    vec![
        error("x"),
        error("y"),
        seen(Channel::Workspace, None),
        seen(Channel::Workspace, Some(1 << 40)),
        seen(Channel::Workspace, Some(1 << 41)),
        seen(Channel::Stdout, None),
        Fact::ToolStarted(starts("a", 1)),
        ends("a", true, 1),
        ends("a", true, 2),
        ends("a", false, 1),
        ends("other", false, 1),
        Fact::ToolStarted(starts("b", 1)),
        ends("b", false, 1),
        canceled("a"),
    ]
}

/// Returns facts of an agent that sends heartbeats, with or without other facts.
pub fn heartbeats() -> Vec<Fact> {
    vec![
        beats("h"),
        beaten("h", true),
        beaten("h", false),
        seen(Channel::Stdout, None),
        Fact::ToolStarted(starts("a", 1)),
        ends("a", true, 1),
        Fact::NeedsHuman { what: "may I?".to_owned() },
        Fact::Sampled { children: 1, cpu_ms: 0 },
        error("error 1"),
    ]
}

pub fn canceled(id: &str) -> Fact {
    let Fact::ToolEnded { id, result, error, .. } = ends(id, false, 1) else { unreachable!("an end") };
    Fact::ToolEnded { id, ok: false, result, error, heartbeat: false, canceled: true }
}

pub fn beats(id: &str) -> Fact {
    Fact::ToolStarted(ToolStarted { mcp: true, heartbeat: true, ..starts(id, 7) })
}

pub fn beaten(id: &str, ok: bool) -> Fact {
    let Fact::ToolEnded { id, ok, result, error, .. } = ends(id, ok, 1) else { unreachable!("an end") };
    Fact::ToolEnded { id, ok, result, error, heartbeat: true, canceled: false }
}

/// The facts, and the spans in which the watch is not evaluated: within a suspend, and before a late record.
#[derive(Clone)]
pub struct History<'p> {
    policy: &'p WatchPolicy,
    structured: bool,
    pub facts: TimedFacts,
    pub now: u64,
    /// The spans in which the watch is not evaluated, in milliseconds.
    unwatched: Vec<(u64, u64)>,
    name: String,
}

impl<'p> History<'p> {
    pub fn new(policy: &'p WatchPolicy, structured: bool) -> History<'p> {
        History { policy, structured, facts: vec![], now: 0, unwatched: vec![], name: String::new() }
    }

    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Adds a fact, `gap` milliseconds after the last one.
    pub fn then(&mut self, gap: u64, fact: &Fact) {
        self.now += gap;
        let mut fact = fact.clone();
        match &mut fact {
            Fact::Observed(o) => (o.first_ms, o.last_ms) = (Awake(self.now), Awake(self.now)),
            Fact::Suspended { for_ms } => {
                *for_ms = gap.min(*for_ms);
                self.unwatched.push((self.now - *for_ms, self.now));
            }
            _ => {}
        }
        self.facts.push((self.now, fact));
    }

    /// Adds a late record of progress: `pieces` one second apart, then silence, then the record.
    pub fn then_late(&mut self, gap: u64, channel: Channel, pieces: u64, silence: u64) {
        let first = self.now + gap;
        let last = first + (pieces - 1) * CELL;
        self.now = last + silence;
        self.unwatched.push((first, self.now));
        let max_gap_ms = if pieces > 1 { CELL } else { 0 };
        let (first_ms, last_ms) = (Awake(first), Awake(last));
        let seen = Observation {
            first_ms,
            last_ms,
            count: pieces,
            max_gap_ms,
            ..Observation::single(channel, first_ms)
        };
        self.facts.push((self.now, Fact::Observed(seen)));
    }

    /// Adds progress on two channels whose records arrive in reverse order. The watch is not evaluated in between.
    pub fn then_crossed(&mut self, gap: u64, channels: [Channel; 2], apart: u64, silence: u64) {
        let (first, second) = (self.now + gap, self.now + gap + apart);
        self.now = second + silence;
        self.unwatched.push((first, self.now));
        for (channel, seen, recorded) in [(channels[1], second, second), (channels[0], first, self.now)] {
            self.facts.push((recorded, Fact::Observed(Observation::single(channel, Awake(seen)))));
        }
    }

    /// Returns the moments of evaluation, with the number of facts passed by then.
    pub fn moments(&self, beyond: u64) -> Vec<(u64, usize)> {
        let end = self.now + beyond;
        let mut moments = Vec::new();
        for n in 0..=self.facts.len() {
            let from = n.checked_sub(1).map_or(0, |last| self.facts[last].0);
            let to = self.facts.get(n).map_or(end, |(at, _)| *at);
            moments.push((from, n));
            let ticks = (from / TICK + 1..).map(|k| k * TICK).take_while(|tick| *tick <= to);
            moments.extend(
                ticks
                    .flat_map(|tick| [(tick - 1, n), (tick, n)])
                    .filter(|(at, _)| *at > from && (*at < to || n == self.facts.len())),
            );
        }
        moments.retain(|(at, _)| self.may_evaluate(*at));
        moments
    }

    pub fn may_evaluate(&self, at: u64) -> bool {
        !self.unwatched.iter().any(|(from, to)| *from < at && at < *to)
    }

    pub fn policy(&self) -> &WatchPolicy {
        self.policy
    }

    /// Returns when the activity behind the fact with this number started.
    pub fn known_from(&self, n: usize) -> u64 {
        let at = self.facts[n].0;
        let spans = self.unwatched.iter().filter(|(from, to)| *to == at && from <= to);
        spans.map(|(from, _)| *from + 1).min().unwrap_or(at).min(at)
    }

    /// Inserts progress at the moment of the fact with this number, just after it.
    pub fn insert(&mut self, n: usize, mut fact: Fact) {
        let at = self.facts[n].0;
        if let Fact::Observed(o) = &mut fact {
            (o.first_ms, o.last_ms) = (Awake(at), Awake(at));
        }
        self.facts.insert(n + 1, (at, fact));
    }

    pub fn watch(&self) -> Watch {
        Watch::new(self.policy.clone(), Session::new(Awake(0), self.structured))
    }

    pub fn oracle(&self, n: usize) -> Oracle<'_> {
        Oracle { policy: self.policy, structured: self.structured, facts: &self.facts[..n] }
    }

    /// Evaluates both at every moment until the session is stopped, and asserts that they agree.
    pub fn compare(&self, beyond: u64) {
        let (mut watch, mut taken) = (self.watch(), 0);
        for (at, n) in self.moments(beyond) {
            for (when, fact) in &self.facts[taken..n] {
                watch.take(Awake(*when), fact);
            }
            taken = n;
            let (ours, theirs) = (watch.evaluate(Awake(at)).verdict, self.oracle(n).verdict(at));
            assert!(alike(&ours, &theirs), "at {at}: {ours:?}, the oracle: {theirs:?}\n{}", self.shown());
            assert_eq!(watch.evaluate(Awake(at)).verdict, ours, "evaluated twice at {at}\n{}", self.shown());
            if matches!(ours, Verdict::HardStop { .. }) {
                return;
            }
        }
    }

    pub fn shown(&self) -> String {
        let facts = self.facts.iter().map(|(at, fact)| format!("  {at}: {fact:?}"));
        format!(
            "{} {:?}, structured: {}\n{}",
            self.name,
            self.policy,
            self.structured,
            facts.collect::<Vec<_>>().join("\n")
        )
    }
}

pub fn alike(ours: &Verdict, theirs: &OracleVerdict) -> bool {
    match (ours, theirs) {
        (Verdict::HardStop { reason, .. }, OracleVerdict::Stop(wanted)) => reason == wanted,
        (Verdict::Notice { .. }, OracleVerdict::Notice) => true,
        (Verdict::Continue { deferred_by: None }, OracleVerdict::Continue(by)) => by.is_empty(),
        (Verdict::Continue { deferred_by: Some(by) }, OracleVerdict::Continue(all)) => all.contains(by),
        _ => false,
    }
}

/// A source of random histories, the same for the same seed.
pub struct Drawn {
    seed: u64,
    drawn: u64,
    cpu_ms: u64,
}

impl Drawn {
    pub fn new(seed: u64) -> Drawn {
        Drawn { seed, drawn: 0, cpu_ms: 0 }
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.drawn += 1;
        usize::try_from(draw(self.seed, self.drawn) % n as u64).expect("it fits into usize")
    }

    pub fn add_to(&mut self, history: &mut History<'_>) {
        let gap = [0, 1, 2, 5, 5, 10, 10, 20, 30, 45][self.below(10)] * CELL;
        if self.below(12) == 0 {
            let (one, other) = (self.below(4), 1 + self.below(3));
            let channels = [Channel::ALL[one], Channel::ALL[(one + other) % 4]];
            let apart = [0, 1, 5, 25, 40, 70][self.below(6)] * CELL;
            return history.then_crossed(gap, channels, apart, self.below(5) as u64 * CELL);
        }
        if self.below(10) == 0 {
            let (channel, pieces) = (Channel::ALL[self.below(4)], 1 + self.below(4) as u64);
            return history.then_late(gap, channel, pieces, self.below(5) as u64 * CELL);
        }
        let fact = self.fact();
        history.then(gap, &fact);
    }

    fn fact(&mut self) -> Fact {
        let id = ["a", "b", "c"][self.below(3)];
        let small = self.below(3) as u64;
        match self.below(19) {
            0 => Fact::Printed,
            1 | 2 => seen(Channel::ALL[self.below(4)], None),
            3 => seen(Channel::Workspace, Some(1 << (40 + small))),
            4 | 5 => Fact::ToolStarted(ToolStarted {
                delegates: self.below(4) == 0,
                mcp: self.below(4) == 0,
                timeout: (self.below(4) == 0).then(|| Dur::from_secs(10 * small)),
                ..starts(id, small)
            }),
            6..=8 => ends(id, self.below(2) == 0, small),
            9 => canceled(id),
            10 => error(["x", "y"][self.below(2)]),
            11 => Fact::SubagentStarted { id: id.to_owned() },
            12 => Fact::SubagentEnded { id: id.to_owned() },
            13 | 14 => {
                self.cpu_ms += self.below(3) as u64 * 1_000;
                Fact::Sampled { children: u32::try_from(small).expect("small"), cpu_ms: self.cpu_ms }
            }
            15 => beats("h"),
            17 => Fact::Repeated,
            16 => beaten("h", self.below(3) > 0),
            _ => Fact::Suspended { for_ms: 5_000 * small },
        }
    }
}
