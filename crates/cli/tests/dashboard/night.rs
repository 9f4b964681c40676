//! Writes made-up records of runs. They are the same every time.

use crate::kit::Project;
use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::record::ids::{NodeName, RunId};
use dogwatch_core::settings::{NodePlan, ReaderName};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::{Awake, Boot, Moment, Wall};
use dogwatch_host::clock;
use dogwatch_host::store::journal::hex;
use dogwatch_host::store::registry::{Alive, Pointer, Registry};
use dogwatch_sim::plan;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;

/// 2026-11-14, 22:10.
const EVENING: Moment =
    Moment { awake: Awake(9_000_000), boot: Boot(9_000_000), wall: Wall(1_794_694_200_000) };
const MINUTE: u64 = 60_000;
/// The length of the hashes that chain the lines of a journal.
const HASH_DIGITS: usize = 32;

/// The shape of a made-up run.
pub struct Shape {
    pub nodes: &'static [(&'static str, &'static [&'static str])],
    /// The number of additional observations.
    pub observed: u64,
    pub hard_stop: bool,
    pub end: End,
}

/// How a run ended, or its current state.
#[derive(Clone, Copy, PartialEq)]
pub enum End {
    Flake,
    ErrorLimit,
    Working,
    /// It works in the session after one that lost its supervisor.
    Resumed,
    Idling,
}

impl Shape {
    /// Returns the shape of a run of a loop.
    pub fn loops() -> Shape {
        Shape { nodes: &[], observed: 0, hard_stop: true, end: End::Flake }
    }

    /// Returns the shape of a run of a graph.
    pub fn graph() -> Shape {
        let nodes: &[(&str, &[&str])] = &[
            ("schema", &[]),
            ("api", &["schema"]),
            ("ui", &["schema"]),
            ("docs", &["api"]),
            ("e2e", &["api", "ui"]),
            ("publish", &["docs", "e2e"]),
        ];
        Shape { nodes, observed: 0, hard_stop: true, end: End::Flake }
    }
}

/// Writes runs into the directories of a project.
pub struct Night<'a> {
    project: &'a Project,
    registry: Registry,
    /// The locks of live runs, which their supervisors would hold.
    alive: Vec<Alive>,
}

impl Night<'_> {
    /// Returns a writer for a project.
    pub fn new(project: &Project) -> Night<'_> {
        let registry = Registry::at(project.outside("state/dogwatch/runs"));
        Night { project, registry, alive: Vec::new() }
    }

    /// Writes the record of a run, registers it and returns its id.
    pub fn write(&mut self, name: &str, number: u32, shape: &Shape) -> String {
        let id = format!("20261114-2210{number:02}-k3f9");
        let run: RunId = id.parse().expect("a run's id");
        let run_dir = self.project.path(".dogwatch/runs").join(&id);
        std::fs::create_dir_all(&run_dir).expect("a directory");
        let mut log = EventLog { dice: u64::from(number) * 7919, now: 0, began: EVENING, events: Vec::new() };
        if shape.nodes.is_empty() {
            log.night(name, shape);
        } else {
            log.graph(shape);
        }
        let nodes: Vec<(&str, &[&str])> =
            if shape.nodes.is_empty() { vec![(name, &[])] } else { shape.nodes.to_vec() };
        if matches!(shape.end, End::Working | End::Resumed | End::Idling) {
            log.began = before(clock::now(), log.now);
            self.alive.push(Alive::hold(&run_dir).expect("no other process holds the lock"));
        }
        let began = log.began.wall;
        let text = started(&run, name, &nodes, log.began, self.project) + &log.lines();
        // Hashing a hundred thousand lines without optimization takes long, and no picture shows such a record.
        let text = if shape.observed == 0 { chained(&text) } else { text };
        std::fs::write(run_dir.join("events.jsonl"), text).expect("a record");
        for (node, _) in &nodes {
            for n in 1..=18 {
                printed(&run_dir.join(node).join(format!("{n:06}")));
            }
        }
        let path = self.project.path(name).join("RALPH.md");
        let pointer = Pointer { run, run_dir, path, pid: 1, since: began, head: false, origin: None };
        self.registry.add(&pointer).expect("a pointer");
        id
    }
}

fn started(run: &RunId, name: &str, nodes: &[(&str, &[&str])], at: Moment, project: &Project) -> String {
    let mut plan = plan::plan(|settings| settings.reader = ReaderName::Claude);
    let node = |(name, needs): &(&str, &[&str])| NodePlan {
        depends_on: needs.iter().map(|need| NodeName::new(need)).collect(),
        ..NodePlan::alone(NodeName::new(name), plan.nodes[0].settings.clone())
    };
    plan.nodes = nodes.iter().map(node).collect();
    let mut started = plan::started(plan);
    let text = |path: &Path| path.to_string_lossy().into_owned();
    started.run = run.clone();
    started.path = text(&project.path(name).join("RALPH.md"));
    started.work_dir = "/srv/atlas".to_owned();
    started.agent = "claude -p --output-format stream-json --verbose".to_owned();
    let line = Recorded::new(1, at, Event::RunStarted(Box::new(started)));
    dogwatch_codec::to_string(&line).expect("an event") + "\n"
}

/// Adds to each line the hash of the line before it, as the journal does.
fn chained(text: &str) -> String {
    let mut prev = "0".repeat(HASH_DIGITS);
    let mut chain = |line: &str| {
        let line = format!("{},\"prev\":\"{prev}\"}}", line.strip_suffix('}').expect("an object"));
        prev = hex(&Sha256::digest(&line));
        prev.truncate(HASH_DIGITS);
        line + "\n"
    };
    text.lines().map(&mut chain).collect()
}

/// Returns the moment `ms` milliseconds earlier.
fn before(at: Moment, ms: u64) -> Moment {
    let sooner = |clock: u64| clock.saturating_sub(ms);
    let wall = at.wall.0.saturating_sub_unsigned(ms);
    Moment { awake: Awake(sooner(at.awake.0)), boot: Boot(sooner(at.boot.0)), wall: Wall(wall) }
}

/// Returns an object with the fields of both arguments.
fn joined(mut event: Value, more: &Value) -> Value {
    event.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    event
}

/// Writes a short output of the agent.
fn printed(dir: &Path) {
    let message =
        |text: &str| json!({"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}});
    let used = |name: &str, input: Value| json!({"type": "assistant", "message": {"content": [{"type": "tool_use", "name": name, "input": input}]}});
    let got = |text: &str, failed: bool| json!({"type": "user", "message": {"content": [{"type": "tool_result", "content": text, "is_error": failed}]}});
    let lines = [
        json!({"type": "system", "subtype": "init", "model": "claude-sonnet-4-5"}),
        message("I look at the failing tests first, then at what they have in common."),
        used("Bash", json!({"command": "cargo test --quiet"})),
        got(
            "running 212 tests\ntest sum::adds ... FAILED\ntest parse::empty ... FAILED\n210 passed; 2 failed",
            true,
        ),
        message(
            "Both go through `Reader::fill`, which forgets the last byte when the buffer is exactly full.",
        ),
        used("Edit", json!({"file_path": "src/reader.rs"})),
        got("The file src/reader.rs has been updated.", false),
        used("Bash", json!({"command": "cargo test --quiet"})),
        got("running 212 tests\n211 passed; 1 failed", false),
        json!({"type": "result", "subtype": "success", "result": "Two of the three tests pass now; the parser is next."}),
    ];
    std::fs::create_dir_all(dir).expect("a directory");
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(dir.join("stdout"), text).expect("a small file");
}

/// The events of a run. Their times are milliseconds since its start.
struct EventLog {
    dice: u64,
    now: u64,
    began: Moment,
    events: Vec<(u64, Value)>,
}

impl EventLog {
    fn roll(&mut self, from: u64, to: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from + (self.dice >> 33) % (to - from).max(1)
    }

    fn record(&mut self, at: u64, event: Value) {
        self.events.push((at, event));
    }

    fn lines(mut self) -> String {
        self.events.sort_by_key(|(at, _)| *at);
        let line = |(n, (at, event)): (usize, &(u64, Value))| {
            let at = self.began.plus(Dur::from_millis(*at));
            let line = json!({"v": 1, "seq": n + 2, "at": at.wall, "awake_ms": at.awake, "boot_ms": at.boot});
            let mut event = event.clone();
            // Convert these fields, too: they are given as milliseconds since the start.
            for name in ["first_ms", "last_ms"] {
                if let Some(ms) = event[name].as_u64() {
                    event[name] = json!(self.began.awake.0 + ms);
                }
            }
            if let Some(ms) = event["until"].as_u64() {
                event["until"] = json!(self.began.plus(Dur::from_millis(ms)).wall);
            }
            format!("{}\n", joined(line, &event))
        };
        self.events.iter().enumerate().map(line).collect()
    }

    /// Adds iterations that work, one of them stopped by the watchdog, and then idle ones or the current state.
    fn night(&mut self, node: &str, shape: &Shape) {
        self.record(0, json!({"event": "node_transition", "node": node, "from": "pending", "to": "running"}));
        let works = if matches!(shape.end, End::Flake) { 12 } else { 4 };
        for n in 1..=works {
            let ending = match n {
                5 if shape.hard_stop => Ending::Stopped,
                8 => Ending::Failed,
                _ if shape.end == End::ErrorLimit => Ending::Failed,
                _ => Ending::Completed,
            };
            let (from, long) = (self.now, self.roll(9, 26) * MINUTE);
            let end = self.iteration(node, n, from, long, shape.observed / 12, ending);
            self.attempt(node, n, end, n == 12);
            self.now = end + 8000;
            self.wait(node, if n == 8 { "error" } else { "delay" }, 60_000);
        }
        match shape.end {
            End::Flake => {
                self.idle(node, works, 6);
                let done = json!({"event": "node_transition", "node": node, "from": "running", "to": "done"});
                self.record(self.now, done);
                self.finish(("clean_with_flake", "every check passes", 0), 18);
            }
            End::ErrorLimit => self.finish(("error_limit", "5 identical failures within 5m", 1), works),
            End::Idling => {
                self.idle(node, works, 3);
                let until = self.now + 5 * MINUTE;
                self.now += 70_000;
                self.record(self.now - 70_000, json!({"event": "wait_started", "node": node, "why": "idle", "delay_s": 300.0, "until": until}));
            }
            End::Working => self.open_session(node, works + 1),
            End::Resumed => {
                let n = works + 1;
                let used = |n: u64| json!({"event": "used", "node": node, "iteration": n, "tokens": 70_000});
                self.open_session(node, n);
                self.record(self.now, used(n));
                let run = "20261114-221001-k3f9";
                self.record(
                    self.now + 9000,
                    json!({"event": "run_resumed", "run": run, "boot_id": "", "pid": 1, "dogwatch": "test"}),
                );
                self.record(self.now + 9000, json!({"event": "iteration_interrupted", "node": node, "iteration": n, "duration_s": 465.0,
                    "because": "dogwatch was lost", "by": "supervisor_lost"}));
                self.now += 9000;
                self.open_session(node, n + 1);
                self.record(self.now, used(n + 1));
            }
        }
    }

    /// Adds an iteration whose session has not ended.
    fn open_session(&mut self, node: &str, n: u64) {
        let from = self.now;
        let with =
            |event: &str, more: Value| joined(json!({"event": event, "node": node, "iteration": n}), &more);
        self.record(from, with("iteration_started", json!({"cause": "next"})));
        self.record(from + 400, with("session_started", json!({"pid": 4000, "argv": ["claude", "-p"]})));
        self.progress(&with, from + 400, 7 * MINUTE, 0);
        self.now += 7 * MINUTE + 45_000;
    }

    /// Adds consecutive idle iterations. Each waits twice as long as the one before.
    fn idle(&mut self, node: &str, works: u64, count: u64) {
        for n in 1..=count {
            let from = self.now;
            self.now = self.iteration(node, works + n, from, 20_000, 0, Ending::Idle(n));
            if n < count {
                self.wait(node, "idle", (30_000 << (n - 1)).min(300_000));
            }
        }
    }

    fn finish(&mut self, (outcome, reason, code): (&str, &str, u8), iterations: u64) {
        self.now += 1000;
        let flakes = u8::from(outcome == "clean_with_flake");
        let end = json!({"event": "run_ended", "outcome": outcome, "reason": reason, "verified": code == 0,
            "iterations": iterations, "completed": iterations - 2, "failed": 1, "idle": 6, "nodes": {"done": 1, "failed": 0, "blocked": 0},
            "flake_retries": flakes, "total_duration_s": self.now as f64 / 1000.0, "exit_code": code});
        self.record(self.now, end);
    }

    fn wait(&mut self, node: &str, why: &str, long: u64) {
        let until = self.now + long;
        self.record(self.now, json!({"event": "wait_started", "node": node, "why": why, "delay_s": long as f64 / 1000.0, "until": until}));
        self.now += long;
        self.record(self.now, json!({"event": "wait_ended", "node": node, "by": "timer"}));
    }

    fn attempt(&mut self, node: &str, iteration: u64, at: u64, converged: bool) {
        let rc = i32::from(!converged);
        let results = json!([{"cmd": "cargo test", "rc": rc, "duration_s": 4.2, "tail": if converged { Value::Null } else { json!("test sum::adds ... FAILED") }},
            {"cmd": "cargo clippy", "rc": 0, "duration_s": 1.1}]);
        self.record(at + 6000, json!({"event": "node_attempt", "node": node, "iteration": iteration, "duration_s": 5.3, "converged": converged, "results": results}));
    }

    /// Adds an iteration and returns when it ended.
    fn iteration(&mut self, node: &str, n: u64, from: u64, long: u64, more: u64, ending: Ending) -> u64 {
        let with =
            |event: &str, more: Value| joined(json!({"event": event, "node": node, "iteration": n}), &more);
        self.record(from, with("iteration_started", json!({"cause": if n == 1 { "first" } else { "next" }})));
        self.record(from + 200, with("prompt_assembled", json!({"bytes": 2140, "sha256": "97c5"})));
        self.record(from + 400, with("session_started", json!({"pid": 4000 + n, "argv": ["claude", "-p"]})));
        let silent = if matches!(ending, Ending::Stopped) { 10 * MINUTE } else { 0 };
        self.progress(&with, from + 400, long, more);
        let end = from + 400 + long + silent;
        if matches!(ending, Ending::Stopped) {
            let evidence = json!([{"channel": "stdout", "last_at": long as f64 / 1000.0, "age_seconds": 600.4, "counter": 214}, {"channel": "mcp_tool", "last_at": null, "age_seconds": null, "counter": 0},
                {"channel": "subagent", "last_at": null, "age_seconds": null, "counter": 0}, {"channel": "workspace", "last_at": 312.0, "age_seconds": 655.1, "counter": 17}]);
            self.record(end - silent / 2, with("watchdog_continue", json!({"deferred_by": "workspace", "evidence_summary": evidence, "active_channel": "workspace"})));
            self.record(end, with("hard_stop", json!({"reason": "NO_OUTPUT_DEADLINE", "message": "Idle timeout: no progress for 600.4s (limit 600s, 23 messages)", "evidence_summary": evidence, "active_channel": "stdout", "recoverable": true})));
            self.record(
                end + 10,
                with("session_signalled", json!({"step": "interrupt", "ended_by": "watchdog"})),
            );
        }
        let by = if matches!(ending, Ending::Stopped) { "watchdog" } else { "itself" };
        self.record(end + 900, with("session_ended", json!({"exit_code": 0, "signal": null, "ended_by": by, "duration_s": (long + silent) as f64 / 1000.0, "messages": 23, "tools": 41, "tokens": 48_000 + 900 * n,
            "cost_usd": 0.31 + 0.02 * n as f64, "said": "Two of the three tests pass now; the parser is next.", "stdout_bytes": 91_000, "stderr_bytes": 0})));
        self.record(
            end + 950,
            with(
                "snapshot_taken",
                json!({"ref": format!("refs/dogwatch/20261114-221001-k3f9/{node}/{n}"), "files": 4}),
            ),
        );
        let (name, because, more) = match ending {
            Ending::Completed => ("iteration_completed", "exit code 0", json!({})),
            Ending::Stopped => ("iteration_timed_out", "ended by the watchdog", json!({})),
            Ending::Failed => {
                ("iteration_failed", "exit code 1: API Error: 500", json!({"fingerprint": "api error 500"}))
            }
            Ending::Idle(row) => (
                "iteration_idle",
                "the agent said idle (no_pending_tasks)",
                json!({"reason": "no_pending_tasks", "consecutive": row, "spell_s": 0, "skipped": row > 2}),
            ),
        };
        let over =
            with(name, json!({"duration_s": (long + silent + 1000) as f64 / 1000.0, "because": because}));
        self.record(end + 7000, joined(over, &more));
        end + 7000
    }

    fn progress(&mut self, with: &dyn Fn(&str, Value) -> Value, from: u64, long: u64, more: u64) {
        let seen = |channel: &str, at: u64, long: u64, count: u64| {
            with(
                "observed",
                json!({"channel": channel, "first_ms": at - long, "last_ms": at, "count": count, "messages": 1, "max_gap_ms": 900}),
            )
        };
        let mut at = from + 3000;
        let mut tool = 0;
        while at < from + long {
            let count = self.roll(1, 14);
            self.record(at, seen("stdout", at, 2400, count));
            if self.roll(0, 3) == 0 {
                let count = self.roll(1, 5);
                self.record(at + 700, seen("workspace", at + 700, 300, count));
            }
            if (from / MINUTE) % 3 == 1 && self.roll(0, 4) == 0 {
                let count = self.roll(1, 9);
                self.record(at + 900, seen("subagent", at + 900, 500, count));
            }
            if self.roll(0, 9) == 0 {
                self.record(at + 1100, seen("mcp_tool", at + 1100, 0, 1));
            }
            tool += 1;
            let took = self.roll(800, 42_000);
            let id = format!("toolu_{from}_{tool}");
            let name = ["Bash", "Edit", "Read", "Grep"][tool % 4];
            self.record(
                at + 1200,
                with(
                    "fact",
                    json!({"fact": "tool_started", "id": id, "name": name, "call": "a1b2c3d4e5f60718"}),
                ),
            );
            if at + 1200 + took < from + long {
                self.record(at + 1200 + took, with("fact", json!({"fact": "tool_ended", "id": id, "ok": tool % 11 != 0, "result": "00000000000000ff"})));
            }
            at += took + self.roll(2_000, 11_000);
        }
        for n in 0..more {
            let at = from + 3000 + n * (long - 3000) / more.max(1);
            self.record(at, seen(if n % 5 == 0 { "workspace" } else { "stdout" }, at, 40, 1));
        }
    }

    /// Adds the nodes of a graph. A node starts when its dependencies are done.
    fn graph(&mut self, shape: &Shape) {
        let mut done: Vec<(&str, u64)> = Vec::new();
        let mut iterations = 0;
        for (name, needs) in shape.nodes {
            let ready = needs
                .iter()
                .filter_map(|need| done.iter().find(|(name, _)| name == need))
                .map(|(_, at)| *at)
                .max()
                .unwrap_or(0);
            self.record(0, json!({"event": "node_transition", "node": name, "from": "pending", "to": if needs.is_empty() { "ready" } else { "pending" }}));
            let mut at = ready + 1000;
            self.record(
                at,
                json!({"event": "node_transition", "node": name, "from": "ready", "to": "running"}),
            );
            let endings: &[Ending] = match *name {
                "ui" => &[Ending::Completed, Ending::Completed],
                "e2e" => &[Ending::Stopped, Ending::Completed],
                _ => &[Ending::Completed],
            };
            for (n, ending) in endings.iter().enumerate() {
                let long = self.roll(14, 44) * MINUTE;
                at = self.iteration(name, n as u64 + 1, at, long, 0, *ending);
                iterations += 1;
                self.attempt_of(name, n, at, endings.len(), *ending);
                at += 9000;
            }
            self.record(
                at,
                json!({"event": "node_transition", "node": name, "from": "running", "to": "done"}),
            );
            done.push((name, at));
            self.now = self.now.max(at);
        }
        self.now += 1000;
        self.finish(("clean_with_flake", "every check passes", 0), iterations);
    }

    fn attempt_of(&mut self, name: &str, n: usize, at: u64, all: usize, ending: Ending) {
        if matches!(ending, Ending::Stopped) {
            self.record(at + 6100, json!({"event": "recovery_planned", "node": name, "iteration": n + 1, "class": "stuck", "action": "retry", "because": "NO_OUTPUT_DEADLINE", "used": 1, "budget": 3}));
        } else {
            self.attempt(name, n as u64 + 1, at, n + 1 == all);
        }
    }
}

#[derive(Clone, Copy)]
enum Ending {
    Completed,
    Stopped,
    Failed,
    Idle(u64),
}
