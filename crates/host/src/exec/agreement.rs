//! Tests that the same bytes lead to the same verdict in a run, in `exec` and in a replay.

use super::copy::Stream;
use super::hearing::{Heard, Hearing};
use crate::driver::inbox::{Inbox, Mail};
use crate::process::sinks::SessionSink;
use dogwatch_agents::{Reader, Splitter};
use dogwatch_core::record::ids::{Iteration, NodeIx};
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::{Job, JobKind};
use dogwatch_core::settings::{Profile, ReaderName, WatchPolicy};
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::replay::{Finish, Looks, Player};
use dogwatch_core::watch::{Fact, Session, StopReason, Verdict, Watch};

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

    fn calls(mut self, id: usize, ok: bool, result: &str) -> Chunk {
        let start = r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"ID","name":"Bash","input":{"n":ID}}]}}"#;
        let end = r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"ID","is_error":ERR,"content":"RESULT"}]}}"#;
        self.0.push(start.replace("ID", &id.to_string()));
        let end = end.replace("ID", &id.to_string()).replace("ERR", if ok { "false" } else { "true" });
        self.0.push(end.replace("RESULT", result));
        self
    }

    fn bytes(&self) -> Vec<u8> {
        (self.0.join("\n") + "\n").into_bytes()
    }
}

fn policy() -> WatchPolicy {
    WatchPolicy::of(Profile::Quick)
}

/// Returns the watchdog's verdict if all these facts arrive at one moment and nothing follows.
fn judged(facts: impl IntoIterator<Item = Fact>) -> Option<StopReason> {
    let mut watch = Watch::new(policy(), Session::new(Awake(0), true));
    let stop = |watch: &mut Watch, at: Awake| match watch.judge(at) {
        Verdict::HardStop { reason, .. } => Some(reason),
        Verdict::Continue { .. } | Verdict::Notice { .. } => None,
    };
    let now = Awake(1);
    for mut fact in facts {
        if let Fact::Observed(seen) = &mut fact {
            (seen.first_ms, seen.last_ms) = (now, now);
        }
        watch.take(now, &fact);
        if let Some(reason) = stop(&mut watch, now).filter(|_| !matches!(fact, Fact::Observed(_))) {
            return Some(reason);
        }
    }
    while let Some(due) = watch.due() {
        if let Some(reason) = stop(&mut watch, due) {
            return Some(reason);
        }
    }
    None
}

fn in_a_run(bytes: &[u8]) -> Option<StopReason> {
    judged(posted(bytes))
}

/// Returns the facts that a run's driver gets from this chunk.
fn posted(bytes: &[u8]) -> Vec<Fact> {
    let dir = tempfile::tempdir().expect("a directory");
    let inbox = Inbox::new().expect("an inbox");
    let job = Job { node: NodeIx(0), iteration: Iteration(1), kind: JobKind::Session };
    let mut sink = SessionSink::new(job, ReaderName::Claude, dir.path(), 1 << 20, inbox.clone());
    sink.stdout(bytes);
    sink.report_progress();
    let facts = inbox.take().into_iter().filter_map(|mail| match mail {
        Mail::FromSession { input: Input::Observed { seen, .. }, .. } => Some(Fact::Observed(seen)),
        Mail::FromSession { input: Input::Noted { fact, .. }, .. } => Some(fact),
        Mail::FromSession { .. }
        | Mail::WorkTreeChanged { .. }
        | Mail::PipesClosed { .. }
        | Mail::Input(_)
        | Mail::AgentRequested { .. }
        | Mail::ViewAsked(_) => None,
    });
    facts.collect()
}

fn in_exec(bytes: &[u8]) -> Option<StopReason> {
    let mut hearing = Hearing::new(ReaderName::Claude);
    hearing.hear(Stream::Stdout, bytes, Awake(1));
    hearing.flush(Awake(1));
    judged(hearing.take().into_iter().filter_map(|heard| match heard {
        Heard::Fact(fact) => Some(fact),
        Heard::HealthIssue(_) => None,
    }))
}

fn in_a_replay(bytes: &[u8]) -> Option<StopReason> {
    let mut player = Player::new(policy(), Session::new(Awake(0), true), None, Looks::EveryDue);
    let (mut reader, mut signs) = (Reader::for_name(ReaderName::Claude), Vec::new());
    Splitter::new().feed(bytes, |line| {
        reader.read_line(line, &mut signs);
        player.line(Awake(1), &mut signs);
    });
    player.finish(Awake(3_600_000), &Finish::Looked).summary.reason
}

#[track_caller]
fn all_say(chunk: &Chunk, wanted: StopReason) {
    let bytes = chunk.bytes();
    let said = [in_a_run(&bytes), in_exec(&bytes), in_a_replay(&bytes)];
    assert_eq!(said, [Some(wanted); 3], "a run, exec, a replay");
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
    assert!(posted(&flood.bytes()).len() < 200, "{}", posted(&flood.bytes()).len());
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
