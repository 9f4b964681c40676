//! Tests that the same session leads to the same facts and verdicts in a run, in `exec` and in a replay.

use super::copy::CopyState;
use crate::driver::inbox::{Inbox, Mail};
use crate::process::sinks::SessionSink;
use dogwatch_agents::{Listener, Splitter};
use dogwatch_core::record::ids::{Iteration, NodeIx};
use dogwatch_core::run::input::{Input as RunInput, NodeInput};
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::settings::{Profile, ReaderName, WatchPolicy};
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::feed::{FeedItem, Input, Stream};
use dogwatch_core::watch::replay::{Finish, Looks, Player};
use dogwatch_core::watch::{Channel, Fact, Session as Watched, StopReason, Verdict, Watch};

const HOUR_MS: u64 = 3_600_000;

/// Something that happens in a session.
#[derive(Clone, Debug)]
enum Happens {
    Prints(Stream, Vec<u8>),
    Other(Input),
}

/// A session: what happens, and when.
#[derive(Clone, Debug)]
struct Session {
    reader: ReaderName,
    happens: Vec<(u64, Happens)>,
}

/// A verdict that differs from the one before it.
type Change = (u64, &'static str, Option<StopReason>, Option<Channel>);

/// A path from what happens to facts.
trait Path {
    fn take(&mut self, at: Awake, happens: &Happens) -> Vec<Fact>;
    fn flush(&mut self, at: Awake) -> Vec<Fact>;
}

/// The sink and the inbox of a run.
struct Run {
    sink: SessionSink,
    inbox: Inbox,
    _dir: tempfile::TempDir,
}

impl Run {
    fn new(reader: ReaderName) -> Run {
        let dir = tempfile::tempdir().expect("a directory");
        let inbox = Inbox::new().expect("an inbox");
        let job = Job { node: NodeIx(0), iteration: Iteration(1), kind: JobKind::Session };
        let sink = SessionSink::new(job, reader, dir.path(), 1 << 20, inbox.clone());
        Run { sink, inbox, _dir: dir }
    }

    fn posted(&self) -> Vec<Fact> {
        let facts = self.inbox.take().into_iter().filter_map(|mail| {
            if let Mail::FromSession { input, .. } = mail { fact_of(input) } else { None }
        });
        facts.collect()
    }
}

fn fact_of(input: RunInput) -> Option<Fact> {
    if let RunInput::Job(_, NodeInput::Observed(seen)) = input {
        return Some(Fact::Observed(seen));
    }
    if let RunInput::Job(_, NodeInput::Noted(fact)) = input { Some(fact) } else { None }
}

impl Path for Run {
    fn take(&mut self, at: Awake, happens: &Happens) -> Vec<Fact> {
        match happens {
            Happens::Prints(stream, bytes) => {
                self.sink.receive(at, *stream, bytes);
                self.posted()
            }
            Happens::Other(input) => {
                let mut facts = Vec::new();
                let inputs = self.sink.inputs();
                inputs.add(|feed, _| feed.take(at, input.clone()), |input| facts.extend(fact_of(input)));
                facts
            }
        }
    }

    fn flush(&mut self, at: Awake) -> Vec<Fact> {
        let mut facts = Vec::new();
        self.sink.inputs().add(|feed, _| feed.flush(at), |input| facts.extend(fact_of(input)));
        facts
    }
}

fn facts(items: Vec<FeedItem>) -> Vec<Fact> {
    let facts = items.into_iter().filter_map(|item| match item {
        FeedItem::Fact(fact) => Some(fact),
        FeedItem::Issue(_) => None,
    });
    facts.collect()
}

impl Path for CopyState {
    fn take(&mut self, at: Awake, happens: &Happens) -> Vec<Fact> {
        self.with(|listener| match happens {
            Happens::Prints(stream, bytes) => listener.chunk(at, *stream, bytes),
            Happens::Other(input) => listener.feed().take(at, input.clone()),
        });
        facts(self.take_items())
    }

    fn flush(&mut self, at: Awake) -> Vec<Fact> {
        self.with(|listener| listener.feed().flush(at));
        facts(self.take_items())
    }
}

/// Passes the inputs of one path to a watch. Returns all facts, and each change of the verdict up to a stop.
fn judged(path: &mut impl Path, policy: &WatchPolicy, session: &Session) -> (Vec<(u64, Fact)>, Vec<Change>) {
    let mut watch = Watch::new(policy.clone(), Watched::new(Awake(0), session.reader.is_structured()));
    let (mut facts, mut changes) = (Vec::new(), Vec::<Change>::new());
    let mut last = ("continue", None, None);
    let mut judge = |watch: &mut Watch, at: Awake| {
        let now = match watch.judge(at) {
            Verdict::Continue { deferred_by } => ("continue", None, deferred_by),
            Verdict::Notice { .. } => ("notice", None, None),
            Verdict::HardStop { reason, .. } => ("hard_stop", Some(reason), None),
        };
        if now != last {
            last = now;
            changes.push((at.0, now.0, now.1, now.2));
        }
        now.1.is_some()
    };
    let mut pass =
        |watch: &mut Watch, at: Awake, new: Vec<Fact>, judge: &mut dyn FnMut(&mut Watch, Awake) -> bool| {
            for fact in new {
                watch.take(at, &fact);
                let single = !matches!(fact, Fact::Observed(_));
                facts.push((at.0, fact));
                if single && judge(watch, at) {
                    return true;
                }
            }
            false
        };
    let end = session.happens.last().map_or(0, |(at, _)| *at) + HOUR_MS;
    let last = (end, Happens::Other(Input::Heartbeat));
    let mut looked = None;
    'session: for (at, happens) in session.happens.iter().chain([&last]) {
        while let Some(due) =
            watch.due().filter(|due| due.0 < *at && looked.is_none_or(|looked| *due > looked))
        {
            looked = Some(due);
            let pending = path.flush(due);
            if pass(&mut watch, due, pending, &mut judge) || judge(&mut watch, due) {
                break 'session;
            }
        }
        let new = path.take(Awake(*at), happens);
        if new.iter().any(|fact| !matches!(fact, Fact::Observed(_))) {
            looked = Some(Awake(*at));
        }
        if pass(&mut watch, Awake(*at), new, &mut judge) {
            break;
        }
    }
    (facts, changes)
}

/// Replays the lines of a session, each at the moment at which it is complete.
fn replayed(policy: &WatchPolicy, session: &Session) -> Vec<Change> {
    let watched = Watched::new(Awake(0), session.reader.is_structured());
    let listener = Listener::new(session.reader);
    let mut player = Player::with_feed(policy.clone(), watched, None, Looks::EveryDue, listener);
    let mut lines = [Splitter::new(), Splitter::new()];
    for (at, happens) in &session.happens {
        match happens {
            Happens::Prints(stream, bytes) => lines[*stream as usize].feed(bytes, |line| {
                player.take(Awake(*at), |listener| listener.line(Awake(*at), *stream, line));
            }),
            Happens::Other(input) => player.input(Awake(*at), input.clone()),
        }
    }
    let end = session.happens.last().map_or(0, |(at, _)| *at) + HOUR_MS;
    let replayed = player.finish(Awake(end), &Finish::Looked);
    let ms = |seconds: f64| (seconds * 1000.0).round() as u64;
    replayed.lines.iter().map(|line| (ms(line.at_s), line.verdict, line.reason, line.deferred_by)).collect()
}

/// Checks that all three agree, and returns the facts and the changes of the verdict.
#[track_caller]
fn agreed(policy: &WatchPolicy, session: &Session, name: &str) -> (Vec<(u64, Fact)>, Vec<Change>) {
    let in_run = judged(&mut Run::new(session.reader), policy, session);
    let mut copy_state = CopyState::new(Listener::new(session.reader)).expect("a bell");
    assert_eq!(judged(&mut copy_state, policy, session), in_run, "{name}: exec and a run");
    assert_eq!(replayed(policy, session), in_run.1, "{name}: a replay and a run");
    in_run
}

/// Returns the recorded lines of an agent's CLI with their times, for each recording.
fn recordings(reader: ReaderName) -> Vec<(String, Vec<(u64, String)>)> {
    let dir = format!("{}/../../fixtures/{}", env!("CARGO_MANIFEST_DIR"), reader.as_str());
    let files = std::fs::read_dir(dir).expect("the fixtures are part of the repository");
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    let lines = |text: String| {
        let line = |line: &str| {
            let value: serde_json::Value = serde_json::from_str(line).expect("recordings are JSON lines");
            (value["t_ms"].as_u64().expect("a time"), value["line"].as_str().expect("a line").to_owned())
        };
        text.lines().map(line).collect()
    };
    let recordings = paths.iter().filter(|path| path.extension().is_some_and(|ext| ext == "jsonl"));
    recordings
        .map(|path| (path.display().to_string(), lines(std::fs::read_to_string(path).expect("readable"))))
        .collect()
}

const AGENTS: [ReaderName; 4] =
    [ReaderName::Claude, ReaderName::Codex, ReaderName::Opencode, ReaderName::Gemini];

#[test]
fn every_recording_leads_to_the_same_facts_and_verdicts_everywhere() {
    for reader in AGENTS {
        for (name, lines) in recordings(reader) {
            let mut happens: Vec<(u64, Happens)> = Vec::new();
            for (at, line) in lines {
                let bytes = format!("{line}\n").into_bytes();
                if let Some((last, Happens::Prints(_, chunk))) = happens.last_mut()
                    && *last == at
                {
                    chunk.extend(bytes);
                } else {
                    happens.push((at, Happens::Prints(Stream::Stdout, bytes)));
                }
            }
            let session = Session { reader, happens };
            for profile in [Profile::Quick, Profile::Standard] {
                agreed(&WatchPolicy::for_reader(profile, reader), &session, &name);
            }
        }
    }
}

/// A small random number generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Returns lines of a plain program: new ones, repeated ones, some with only a new time, and floods.
fn plain_lines(dice: &mut Dice) -> String {
    let count = [1, 1, 2, 9, 400][dice.below(5)];
    let kind = dice.below(4);
    let line = |n: usize, dice: &mut Dice| match kind {
        0 => format!("step {} of {n}\n", dice.below(1_000)),
        1 => format!("[20:15:{:02}] waiting\n", n % 60),
        2 => "again\n".to_owned(),
        _ => ["old\n", "\n", "  \n", "older\n"][dice.below(4)].to_owned(),
    };
    (0..count).map(|n| line(n, dice)).collect()
}

/// Generates a session of this reader with output in chunks, changes of the work tree, calls and samples.
fn generated(reader: ReaderName, pool: &[String], dice: &mut Dice) -> Session {
    let (mut at, mut happens) = (1, Vec::new());
    let mut rest = Vec::new();
    for n in 0..10 + dice.below(60) {
        let printed = if reader.is_structured() {
            let count = [1, 1, 1, 3, 200][dice.below(5)];
            (0..count).map(|_| format!("{}\n", pool[dice.below(pool.len())])).collect()
        } else {
            plain_lines(dice)
        };
        let other = match dice.below(8) {
            0 => Some(Input::Workspace { path: None, digest: Some(dice.below(3) as u64) }),
            1 => Some(Input::Workspace { path: None, digest: None }),
            2 => Some(Input::McpCall { heartbeat: dice.below(2) == 0 }),
            3 => Some(Input::Subagents { count: dice.below(3) as u64 }),
            4 => Some(Input::Children { live: dice.below(2) as u32, cpu_ms: Some(at) }),
            _ => None,
        };
        let stream = if dice.below(6) == 0 && n > 0 { Stream::Stderr } else { Stream::Stdout };
        let bytes = printed.into_bytes();
        // Cut a line in two, but never the first: a replay knows only complete lines.
        let cut = if n > 0 && stream == Stream::Stdout { dice.below(bytes.len() + 1) } else { bytes.len() };
        match stream {
            Stream::Stdout => {
                let chunk = [std::mem::take(&mut rest), bytes[..cut].to_vec()].concat();
                rest = bytes[cut..].to_vec();
                happens.push((at, Happens::Prints(stream, chunk)));
            }
            Stream::Stderr => happens.push((at, Happens::Prints(stream, bytes))),
        }
        at += [1, 700, 4_999, 5_000, 5_001, 40_000, 100_000][dice.below(7)];
        if let Some(input) = other {
            happens.push((at, Happens::Other(input)));
            at += 1 + dice.below(3) as u64 * 2_500;
        }
    }
    Session { reader, happens }
}

#[test]
fn generated_sessions_lead_to_the_same_facts_and_verdicts_everywhere() {
    let seeds = if std::env::var_os("DOGWATCH_FULL").is_some() { 40 } else { 6 };
    let (mut sessions, mut stops) = (0, 0);
    for reader in ReaderName::ALL.iter().copied() {
        let recorded = if reader.is_structured() { recordings(reader) } else { Vec::new() };
        let pool: Vec<String> =
            recorded.into_iter().flat_map(|(_, lines)| lines).map(|(_, line)| line).collect();
        for seed in 0..seeds {
            let session = generated(reader, &pool, &mut Dice(seed));
            let policy = WatchPolicy::for_reader(Profile::Quick, reader);
            let (_, changes) = agreed(&policy, &session, &format!("{reader:?} {seed}"));
            sessions += 1;
            stops += usize::from(changes.iter().any(|(_, verdict, ..)| *verdict == "hard_stop"));
        }
    }
    assert!(stops * 4 > sessions, "only {stops} of {sessions} sessions were stopped");
}

/// One chunk of Claude's output, line by line.
struct Chunk(Vec<String>);

impl Chunk {
    fn new() -> Chunk {
        Chunk(vec![r#"{"type":"system","subtype":"init","session_id":"s"}"#.to_owned()])
    }

    fn says(mut self, text: &str) -> Chunk {
        let line = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"TEXT"}]}}"#;
        self.0.push(line.replace("TEXT", text));
        self
    }

    fn refused(mut self) -> Chunk {
        self.0.push(r#"{"type":"system","subtype":"permission_denied","message":"may I?"}"#.to_owned());
        self
    }

    fn starts(mut self, id: usize) -> Chunk {
        let start = r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"ID","name":"Bash","input":{"n":ID}}]}}"#;
        self.0.push(start.replace("ID", &id.to_string()));
        self
    }

    fn calls(self, id: usize, ok: bool, result: &str) -> Chunk {
        let mut chunk = self.starts(id);
        let end = r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"ID","is_error":ERR,"content":"RESULT"}]}}"#;
        let end = end.replace("ID", &id.to_string()).replace("ERR", if ok { "false" } else { "true" });
        chunk.0.push(end.replace("RESULT", result));
        chunk
    }

    fn session(&self) -> Session {
        let bytes = (self.0.join("\n") + "\n").into_bytes();
        Session { reader: ReaderName::Claude, happens: vec![(1, Happens::Prints(Stream::Stdout, bytes))] }
    }
}

/// Returns the facts of a chunk, and why the session is stopped if nothing follows.
#[track_caller]
fn outcome(chunk: &Chunk) -> (Vec<(u64, Fact)>, Option<StopReason>) {
    let (facts, changes) = agreed(&WatchPolicy::of(Profile::Quick), &chunk.session(), "one chunk");
    (facts, changes.last().and_then(|(_, _, reason, _)| *reason))
}

#[track_caller]
fn all_say(chunk: &Chunk, wanted: StopReason) {
    assert_eq!(outcome(chunk).1, Some(wanted));
}

#[test]
fn a_question_and_later_lines_in_one_chunk_keep_their_order() {
    all_say(&Chunk::new().says("I try").refused().says("then without"), StopReason::NoOutputDeadline);
    all_say(&Chunk::new().says("I try").refused(), StopReason::HumanDeadlineExceeded);
}

#[test]
fn equal_errors_in_one_chunk_are_a_loop_however_many() {
    for count in [5, 24, 300] {
        let errors = (0..count).fold(Chunk::new(), |chunk, n| chunk.calls(n, false, "no rule"));
        all_say(&errors, StopReason::ErrorLoop);
    }
}

#[test]
fn a_flood_of_calls_and_texts_is_passed_on_within_a_bound() {
    let flood =
        (0..1_000).fold(Chunk::new(), |c, n| c.says(&format!("{n}")).calls(n, true, &format!("r {n}")));
    let (facts, _) = outcome(&flood);
    assert!(facts.len() < 250, "{}", facts.len());
}

#[test]
fn a_call_that_is_open_after_a_flood_is_known() {
    let flood = (0..300).fold(Chunk::new(), |c, n| c.calls(n, true, &format!("r {n}")));
    all_say(&flood.starts(1_000), StopReason::ToolCeilingExceeded);
}

#[test]
fn a_new_result_clears_the_errors_before_it_in_the_same_chunk() {
    for count in [1, 30, 300] {
        let results = (0..count).fold(Chunk::new(), |chunk, n| chunk.calls(n, true, &format!("new {n} x")));
        let errors = |chunk: Chunk, from| (from..from + 4).fold(chunk, |c, n| c.calls(n, false, "no rule"));
        let chunk = errors(results, 1_000).calls(2_000, true, "something else");
        all_say(&errors(chunk, 3_000), StopReason::NoOutputDeadline);
    }
}
