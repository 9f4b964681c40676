//! A watched session in virtual time. It starts at 0; times are in seconds.
#![allow(dead_code, reason = "each test file uses its own part")]

use dogwatch_core::record::event::Observation;
use dogwatch_core::settings::{Profile, WatchPolicy};
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::{Channel, Fact, Session, StopReason, ToolStarted, Verdict, Watch};

/// A session and its watch, evaluated at every due moment as the host would.
pub struct Scene {
    pub watch: Watch,
    pub now: Awake,
    pub stop: Option<(u64, StopReason, String)>,
    pub deferred: Vec<(u64, Channel)>,
    pub notices: Vec<String>,
    pub tools: u64,
}

pub fn standard() -> WatchPolicy {
    WatchPolicy::of(Profile::Standard)
}

pub fn quick() -> WatchPolicy {
    WatchPolicy::of(Profile::Quick)
}

impl Scene {
    pub fn new(policy: WatchPolicy, structured: bool) -> Scene {
        let watch = Watch::new(policy, Session::new(Awake(0), structured));
        Scene { watch, now: Awake(0), stop: None, deferred: vec![], notices: vec![], tools: 0 }
    }

    /// Evaluates the watch at every due moment up to this second.
    pub fn until(&mut self, s: f64) -> &mut Scene {
        let end = Awake((s * 1000.0).round() as u64);
        for _ in 0..10_000 {
            match self.watch.due() {
                Some(due) if due <= end && self.stop.is_none() && due >= self.now => {
                    self.now = due;
                    self.look();
                    if self.watch.due() == Some(due) {
                        break;
                    }
                }
                Some(_) | None => break,
            }
        }
        self.now = self.now.max(end);
        self
    }

    pub fn look(&mut self) {
        match self.watch.evaluate(self.now).verdict {
            Verdict::Continue { deferred_by: Some(c) } => self.deferred.push((self.now.0, c)),
            Verdict::Continue { deferred_by: None } => {}
            Verdict::Notice { message } => self.notices.push(message),
            Verdict::HardStop { reason, message } => {
                self.stop.get_or_insert((self.now.0, reason, message));
            }
        }
    }

    pub fn fact(&mut self, s: f64, fact: &Fact) -> &mut Scene {
        self.until(s);
        if self.stop.is_none() {
            self.watch.take(self.now, fact);
            self.look();
        }
        self
    }

    pub fn seen(&mut self, s: f64, channel: Channel) -> &mut Scene {
        let mut seen = Observation::single(channel, Awake((s * 1000.0) as u64));
        seen.messages = u64::from(channel == Channel::Stdout);
        self.fact(s, &Fact::Observed(seen))
    }

    pub fn says(&mut self, s: f64) -> &mut Scene {
        self.seen(s, Channel::Stdout)
    }

    pub fn starts(&mut self, s: f64, id: &str, call: u64) -> &mut Scene {
        let tool = ToolStarted {
            id: id.into(),
            name: "Bash".into(),
            subject: String::new(),
            call,
            timeout: None,
            delegates: false,
            mcp: false,
            heartbeat: false,
        };
        self.fact(s, &Fact::ToolStarted(tool))
    }

    pub fn delegates(&mut self, s: f64, id: &str) -> &mut Scene {
        let tool = ToolStarted {
            id: id.into(),
            name: "Task".into(),
            subject: String::new(),
            call: 1,
            timeout: None,
            delegates: true,
            mcp: false,
            heartbeat: false,
        };
        self.fact(s, &Fact::ToolStarted(tool))
    }

    pub fn ends(&mut self, s: f64, id: &str, ok: bool, result: u64) -> &mut Scene {
        let error = if ok { String::new() } else { format!("error {result}") };
        self.fact(s, &Fact::ToolEnded { id: id.into(), ok, result, error, heartbeat: false, canceled: false })
    }

    /// Adds a complete call that takes a second.
    pub fn calls(&mut self, s: f64, call: u64, ok: bool, result: u64) -> &mut Scene {
        self.tools += 1;
        let id = format!("t{}", self.tools);
        self.starts(s, &id, call).ends(s + 1.0, &id, ok, result)
    }

    /// Adds a heartbeat call that ends a second later.
    pub fn beats(&mut self, s: f64) -> &mut Scene {
        self.tools += 1;
        let id = format!("h{}", self.tools);
        let tool = ToolStarted {
            id: id.clone(),
            name: "mcp__dogwatch__heartbeat".into(),
            subject: String::new(),
            call: 7,
            timeout: None,
            delegates: false,
            mcp: true,
            heartbeat: true,
        };
        let ended = Fact::ToolEnded {
            id,
            ok: true,
            result: 1,
            error: String::new(),
            heartbeat: true,
            canceled: false,
        };
        self.fact(s, &Fact::ToolStarted(tool)).fact(s + 1.0, &ended)
    }

    pub fn fails(&mut self, s: f64, text: &str) -> &mut Scene {
        self.fact(s, &Fact::Error { fingerprint: text.into() })
    }

    pub fn stopped(&self) -> Option<(f64, StopReason)> {
        self.stop.as_ref().map(|(ms, reason, _)| (*ms as f64 / 1000.0, *reason))
    }
}
