//! The agents of a scenario, and what can go wrong around any process.

use super::voice::{self, Tape};
use crate::act::{Act, Does, Keeper};
use crate::dice::Dice;
use dogwatch_core::run::agent_channel::{Phase, RequestBody};
use dogwatch_core::run::job::Exit;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::watch::feed::Stream;

/// Defines an enum with a list of its variants.
macro_rules! every {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$vdoc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// All of them, in the order of their declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
        }
    };
}

every! {
    /// How an agent behaves in a session.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Actor {
        /// Prints messages and calls tools, then gives its result.
        Works,
        /// Prints what a real CLI printed.
        Recorded,
        /// Reports that there is nothing to do.
        Idles,
        /// Claims to be done.
        Lies,
        /// Fails with a message on stderr.
        Crashes,
        /// Meets a limit of its service that ends soon.
        Limited,
        /// Meets an overloaded service.
        Overloaded,
        /// Is not logged in.
        Unauthorized,
        /// Does not exist.
        Missing,
        /// Never prints anything.
        Silent,
        /// Stops printing in the middle.
        GoesSilent,
        /// Calls the same tool with the same result again and again.
        Loops,
        /// Meets the same error again and again.
        Errs,
        /// Prints thousands of lines at once.
        Floods,
        /// Waits for a tool that never returns.
        HangsInTool,
        /// Waits for a subagent that never returns.
        Delegates,
        /// Asks for a permission, which no person gives, or gets one.
        Asks,
        /// Leaves processes behind.
        Forks,
        /// Is silent while its children compute.
        Computes,
        /// Gives its result and does not exit.
        Lingers,
        /// Prints lines of an unknown format.
        Drifts,
        /// Retries requests to its service.
        Retries,
        /// Prints nothing and uses the agent channel.
        Calls,
        /// Prints nothing and changes files.
        Changes,
        /// Exits with success and without a result.
        Quits,
    }
}

impl Actor {
    /// Writes the script of a session.
    pub(super) fn play(self, reader: ReaderName, dice: &mut Dice) -> Act {
        let mut tape = Tape::default();
        tape.wait(dice.below(20_000));
        if self == Actor::Missing {
            return Act::absent();
        } else if self == Actor::Silent {
            return Act::hangs();
        } else if self == Actor::Computes {
            return Act { is_busy: true, forks: 1 + dice.below(3), ..Act::hangs() };
        } else if self == Actor::Recorded {
            return recorded(reader, dice, tape);
        } else if self == Actor::Calls {
            calls(&mut tape, dice);
        } else if self == Actor::Changes {
            changes(&mut tape, dice);
        } else {
            tape.line(&voice::hello(reader));
            works(reader, &mut tape, dice);
        }
        let mut ends = Some(Exit::Code(0));
        match self {
            Actor::Works | Actor::Forks => results(reader, &mut tape, "all done", dice),
            Actor::Idles => {
                let reason = *dice.of(&["no_pending_tasks", "blocked"]);
                let marker = format!("<!-- ralph:state idle reason={reason} -->");
                results(reader, &mut tape, &marker, dice);
            }
            Actor::Lies => results(reader, &mut tape, "<!-- ralph:state done -->", dice),
            Actor::Lingers => {
                results(reader, &mut tape, "all done", dice);
                ends = None;
            }
            Actor::Crashes => {
                let what = *dice.of(&["segmentation fault", "out of memory"]);
                tape.print(Stream::Stderr, format!("{what}\n"));
                ends = Some(Exit::Code(1));
            }
            Actor::Limited | Actor::Overloaded | Actor::Unauthorized => {
                refused(self, reader, &mut tape);
                ends = Some(Exit::Code(1));
            }
            Actor::Loops | Actor::Errs => {
                loops(reader, &mut tape, self == Actor::Loops, dice);
                ends = None;
            }
            Actor::Floods => {
                for _ in 0..1 + dice.below(4) {
                    let from = dice.below(1_000_000);
                    let lines: String = (from..from + 300).map(|n| voice::text(reader, n) + "\n").collect();
                    tape.wait(dice.below(9_000)).print(Stream::Stdout, lines);
                }
                results(reader, &mut tape, "all done", dice);
            }
            Actor::HangsInTool => {
                tape.line(&voice::call(reader, 9_000, "sleep infinity"));
                ends = None;
            }
            Actor::Delegates => {
                delegates(&mut tape, dice);
                ends = None;
            }
            Actor::Asks => {
                tape.wait(5_000).line(r#"{"type":"control_request","request_id":"r"}"#);
                match dice.one_in(2) {
                    true => {
                        tape.wait(dice.below(200_000)).line(&voice::text(reader, 77));
                        results(reader, &mut tape, "all done", dice);
                    }
                    false => ends = None,
                }
            }
            Actor::Drifts => {
                for n in 0..40 {
                    tape.wait(500).line(&format!(r#"{{"kind":"new","n":{n}}}"#));
                }
                results(reader, &mut tape, "all done", dice);
            }
            Actor::Retries => {
                for _ in 0..2 + dice.below(20) {
                    tape.wait(10_000).line(
                        r#"{"type":"system","subtype":"api_retry","retry_delay_ms":10000,"error_status":529}"#,
                    );
                }
                ends = dice.one_in(2).then_some(Exit::Code(1));
            }
            Actor::GoesSilent => ends = None,
            Actor::Calls | Actor::Changes => ends = dice.one_in(2).then_some(Exit::Code(0)),
            Actor::Quits | Actor::Missing | Actor::Silent | Actor::Computes | Actor::Recorded => {}
        }
        let forks = if self == Actor::Forks { 1 + dice.below(5) } else { 0 };
        finished(tape, ends, forks, dice)
    }

    /// Returns whether everything that the agent prints is progress.
    pub(super) fn prints_only_progress(self) -> bool {
        matches!(self, Actor::GoesSilent | Actor::Works | Actor::Lingers | Actor::Forks)
    }
}

fn finished(tape: Tape, ends: Option<Exit>, forks: u64, dice: &mut Dice) -> Act {
    let lasts = tape.at.saturating_add(dice.secs(3));
    let act = Act { script: tape.script, forks, ..Act::hangs() };
    match ends {
        Some(exit) => Act { lasts: Some(lasts), exit, ..act },
        None => act,
    }
}

fn works(reader: ReaderName, tape: &mut Tape, dice: &mut Dice) {
    for n in 0..dice.below(6) {
        let id = n + 100 * dice.below(1_000_000);
        tape.wait(dice.below(40_000)).line(&voice::text(reader, id));
        if dice.one_in(2) {
            tape.line(&voice::call(reader, id, "make"));
            let ok = !dice.one_in(4);
            let built = format!("built {}", voice::words(id));
            tape.wait(dice.below(30_000)).line(&voice::answer(reader, id, "make", ok, &built));
        }
        if dice.one_in(4) {
            tape.step(Does::Changes(Some(dice.below(1_000_000))));
        }
    }
}

fn results(reader: ReaderName, tape: &mut Tape, text: &str, dice: &mut Dice) {
    tape.wait(dice.below(5_000));
    if reader == ReaderName::Claude {
        tape.line(
            r#"{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","unifiedWindows":{"five_hour":{"utilization":0.24,"resetsAt":1794790000}}}}"#,
        );
    }
    for line in voice::result(reader, text, 100 + dice.below(2_000)) {
        tape.line(&line);
    }
}

fn loops(reader: ReaderName, tape: &mut Tape, ok: bool, dice: &mut Dice) {
    let between = 1_000 + dice.below(90_000);
    for n in 0..12 {
        tape.wait(between).line(&voice::call(reader, 500 + n, "ls"));
        tape.wait(200).line(&voice::answer(reader, 500 + n, "ls", ok, "no such file"));
    }
}

fn delegates(tape: &mut Tape, dice: &mut Dice) {
    tape.line(
        r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"d1","name":"Task","input":{"description":"look","prompt":"p","subagent_type":"x"}}]}}"#,
    );
    for n in 0..dice.below(5) {
        let line = format!(
            r#"{{"type":"assistant","parent_tool_use_id":"d1","message":{{"content":[{{"type":"text","text":"sub {n}"}}]}}}}"#
        );
        tape.wait(dice.below(60_000)).line(&line);
    }
}

/// Writes the refusal of the service. Every reader recognizes part of it; plain agents print it.
fn refused(actor: Actor, reader: ReaderName, tape: &mut Tape) {
    let text = if actor == Actor::Unauthorized {
        "API Error: 401 authentication_error: invalid x-api-key"
    } else if actor == Actor::Limited {
        "usage limit reached; try again in 40 minutes"
    } else {
        "API Error: 529 overloaded_error: Overloaded"
    };
    if reader == ReaderName::Claude {
        tape.line(&format!(
            r#"{{"type":"result","subtype":"success","is_error":true,"result":"{text}","session_id":"s-1","total_cost_usd":0,"usage":{{"input_tokens":0,"output_tokens":0}}}}"#
        ));
    } else if reader == ReaderName::Codex {
        tape.line(&format!(r#"{{"type":"error","message":"{text}"}}"#));
        tape.line(&format!(r#"{{"type":"turn.failed","error":{{"message":"{text}"}}}}"#));
    } else {
        tape.print(Stream::Stderr, format!("{text}\n"));
    }
}

/// Prints the recorded session of a real CLI.
fn recorded(reader: ReaderName, dice: &mut Dice, mut tape: Tape) -> Act {
    let fitting: Vec<_> = voice::recordings().iter().filter(|r| r.reader == reader).collect();
    if fitting.is_empty() {
        tape.line("plain");
        return finished(tape, Some(Exit::Code(0)), 0, dice);
    }
    let recording = dice.of(&fitting);
    let begun = tape.at;
    let faster = 1 + dice.below(4);
    recording.onto(&mut tape, faster);
    let exit = recording.exit.map(|(exit, at)| {
        tape.at = tape.at.max(begun.saturating_add(Dur::from_millis(at / faster)));
        exit
    });
    finished(tape, exit, 0, dice)
}

fn calls(tape: &mut Tape, dice: &mut Dice) {
    for n in 0..3 + dice.below(12) {
        let body = match dice.below(10) {
            0 => RequestBody::Heartbeat,
            1 => RequestBody::State { state: "busy".to_owned(), reason: Some("tests".to_owned()) },
            2 => RequestBody::Error { text: "cannot open it".to_owned() },
            3 => RequestBody::Artifact { name: format!("a{n}"), bytes: 10, sha256: "ab".to_owned() },
            4 => RequestBody::CheckDone,
            5 => RequestBody::Checked { failed: 1, of: 2, tampered: Vec::new() },
            6 => RequestBody::WhatFailed,
            7 => RequestBody::ServerTrouble { server: "files".to_owned(), text: "is gone".to_owned() },
            8 => RequestBody::Call { server: "files".into(), tool: "find".into(), phase: Phase::Start },
            _ => RequestBody::Progress { message: format!("part {n} done"), done: Some(n), total: None },
        };
        let token = dice.one_in(8).then(|| "stolen".to_owned());
        tape.wait(dice.below(120_000)).step(Does::Asks(body, token));
    }
}

fn changes(tape: &mut Tape, dice: &mut Dice) {
    for _ in 0..2 + dice.below(12) {
        let digest = (!dice.one_in(5)).then(|| dice.below(4));
        tape.wait(dice.below(150_000)).step(Does::Changes(digest));
    }
}

every! {
    /// A fault that can occur around any process.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Quirk {
        /// It ignores INT and TERM.
        Stubborn,
        /// A descendant holds the pipes for a while after the exit.
        HoldsPipes,
        /// A descendant holds the pipes until it is killed.
        HoldsPipesForever,
        /// Its keeper dies in the middle.
        KeeperDies,
        /// Its keeper dies after the start and before it reports that.
        KeeperDiesEarly,
        /// Its keeper never reports after the start.
        KeeperSilent,
        /// Another process stops its keeper again and again.
        KeeperStopped,
        /// Its keeper reports the start late.
        LateReport,
        /// It cannot be started.
        Refused,
        /// It cannot be started now.
        Short,
        /// Its keeper cannot start it.
        KeeperRefuses,
        /// It survives KILL for a while.
        Unkillable,
        /// Its output is read late.
        PumpLag,
        /// Its leftover processes take long to end.
        SlowSweep,
        /// It touches a file that wakes the loop.
        Touches,
    }
}

impl Quirk {
    /// Changes an act.
    pub(super) fn spoil(self, act: Act, dice: &mut Dice) -> Act {
        match self {
            Quirk::Stubborn => act.stubborn(),
            Quirk::HoldsPipes => act.holding_pipes(Some(dice.secs(4))),
            Quirk::HoldsPipesForever => act.holding_pipes(None),
            Quirk::KeeperDies => Act { keeper_dies: Some(dice.secs(200)), ..act },
            Quirk::KeeperDiesEarly => Act {
                start_report_after: Dur::from_secs(2),
                keeper_dies: Some(Dur::from_millis(dice.below(2_000))),
                ..act
            },
            Quirk::KeeperSilent => act.under(Keeper::Silent),
            Quirk::KeeperStopped => act.under(Keeper::Stopped),
            Quirk::LateReport => Act { start_report_after: dice.secs(10), ..act },
            Quirk::Refused => Act { refused: Some("permission denied".to_owned()), ..act },
            Quirk::Short => Act::short_of_processes(),
            Quirk::KeeperRefuses => {
                Act { keeper_refuses: Some(("cannot fork".to_owned(), dice.one_in(2))), ..act }
            }
            Quirk::Unkillable => Act { unkillable: Dur::from_secs(6 + dice.below(30)), ..act }.stubborn(),
            Quirk::PumpLag => Act { pump_lag: Dur::from_millis(1 + dice.below(40)), ..act },
            Quirk::SlowSweep => Act { sweep: dice.secs(2), ..act },
            Quirk::Touches => act.touching(),
        }
    }
}
