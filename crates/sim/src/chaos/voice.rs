//! The output of agents: lines in the format of each reader, and recorded streams of the real CLIs.

use crate::act::Does;
use dogwatch_core::run::job::Exit;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::watch::feed::Stream;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The largest recording that is used, in bytes. Larger ones repeat what the small ones show.
const MAX_RECORDING: u64 = 20_000;

/// A script that is being written: steps with the time since the start.
#[derive(Default)]
pub(super) struct Tape {
    pub script: Vec<(Dur, Does)>,
    pub at: Dur,
}

impl Tape {
    /// Lets time pass.
    pub fn wait(&mut self, ms: u64) -> &mut Tape {
        self.at = self.at.saturating_add(Dur::from_millis(ms));
        self
    }

    /// Adds a step.
    pub fn step(&mut self, does: Does) -> &mut Tape {
        self.script.push((self.at, does));
        self
    }

    /// Prints a line on stdout.
    pub fn line(&mut self, line: &str) -> &mut Tape {
        self.print(Stream::Stdout, format!("{line}\n"))
    }

    /// Prints text.
    pub fn print(&mut self, stream: Stream, text: String) -> &mut Tape {
        self.step(Does::Prints(stream, text.into_bytes().into()))
    }
}

/// Returns the first line of a session.
pub(super) fn hello(reader: ReaderName) -> String {
    match reader {
        ReaderName::Plain => "starting".to_owned(),
        ReaderName::Claude => {
            r#"{"type":"system","subtype":"init","session_id":"s-1","model":"m"}"#.to_owned()
        }
        ReaderName::Codex => r#"{"type":"thread.started","thread_id":"s-1"}"#.to_owned(),
        ReaderName::Opencode => {
            r#"{"type":"step_start","sessionID":"s-1","part":{"type":"step-start"}}"#.to_owned()
        }
        ReaderName::Gemini => r#"{"type":"init","session_id":"s-1","model":"m"}"#.to_owned(),
    }
}

/// Returns a number in letters. Digits are volatile parts of a plain line, which only differs by its words.
pub(super) fn words(n: u64) -> String {
    n.to_string().bytes().map(|b| char::from(b - b'0' + b'a')).collect()
}

/// Returns a message that differs from all others with another number.
pub(super) fn text(reader: ReaderName, n: u64) -> String {
    let words = words(n);
    match reader {
        ReaderName::Plain => format!("working on {words}"),
        ReaderName::Claude => {
            format!(
                r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"on {words}"}}]}}}}"#
            )
        }
        ReaderName::Codex => format!(
            r#"{{"type":"item.completed","item":{{"id":"m{n}","type":"agent_message","text":"on {words}"}}}}"#
        ),
        ReaderName::Opencode => {
            format!(
                r#"{{"type":"text","sessionID":"s-1","part":{{"id":"p{n}","type":"text","text":"on {words}"}}}}"#
            )
        }
        ReaderName::Gemini => {
            format!(r#"{{"type":"message","role":"assistant","content":"on {words}","delta":true}}"#)
        }
    }
}

/// Returns the start of a tool call.
pub(super) fn call(reader: ReaderName, id: u64, command: &str) -> String {
    match reader {
        ReaderName::Plain => format!("$ {command}"),
        ReaderName::Claude => format!(
            r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","id":"t{id}","name":"Bash","input":{{"command":"{command}"}}}}]}}}}"#
        ),
        ReaderName::Codex => format!(
            r#"{{"type":"item.started","item":{{"id":"t{id}","type":"command_execution","command":"{command}","aggregated_output":"","exit_code":null,"status":"in_progress"}}}}"#
        ),
        ReaderName::Opencode => format!(
            r#"{{"type":"tool_use","sessionID":"s-1","part":{{"type":"tool","tool":"bash","callID":"t{id}","state":{{"status":"running","input":{{"command":"{command}"}}}}}}}}"#
        ),
        ReaderName::Gemini => format!(
            r#"{{"type":"tool_use","tool_name":"run_shell_command","tool_id":"t{id}","parameters":{{"command":"{command}"}}}}"#
        ),
    }
}

/// Returns the end of a tool call.
pub(super) fn answer(reader: ReaderName, id: u64, command: &str, ok: bool, out: &str) -> String {
    match reader {
        ReaderName::Plain => out.to_owned(),
        ReaderName::Claude => format!(
            r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"t{id}","content":"{out}","is_error":{}}}]}}}}"#,
            !ok
        ),
        ReaderName::Codex => format!(
            r#"{{"type":"item.completed","item":{{"id":"t{id}","type":"command_execution","command":"{command}","aggregated_output":"{out}","exit_code":{},"status":"{}"}}}}"#,
            i32::from(!ok),
            if ok { "completed" } else { "failed" }
        ),
        ReaderName::Opencode => format!(
            r#"{{"type":"tool_use","sessionID":"s-1","part":{{"type":"tool","tool":"bash","callID":"t{id}","state":{{"status":"{}","input":{{"command":"{command}"}},"output":"{out}","error":"{out}"}}}}}}"#,
            if ok { "completed" } else { "error" }
        ),
        ReaderName::Gemini => format!(
            r#"{{"type":"tool_result","tool_id":"t{id}","status":"{}","output":"{out}","error":{{"message":"{out}"}}}}"#,
            if ok { "success" } else { "error" }
        ),
    }
}

/// Returns the lines of a result.
pub(super) fn result(reader: ReaderName, text: &str, tokens: u64) -> Vec<String> {
    match reader {
        ReaderName::Plain => vec![text.to_owned()],
        ReaderName::Claude => vec![format!(
            r#"{{"type":"result","subtype":"success","is_error":false,"result":"{text}","session_id":"s-1","total_cost_usd":0.25,"usage":{{"input_tokens":{tokens},"output_tokens":5}}}}"#
        )],
        ReaderName::Codex => vec![
            format!(
                r#"{{"type":"item.completed","item":{{"id":"last","type":"agent_message","text":"{text}"}}}}"#
            ),
            format!(
                r#"{{"type":"turn.completed","usage":{{"input_tokens":{tokens},"cached_input_tokens":0,"output_tokens":5}}}}"#
            ),
        ],
        ReaderName::Opencode => vec![
            format!(
                r#"{{"type":"text","sessionID":"s-1","part":{{"id":"last","type":"text","text":"{text}"}}}}"#
            ),
            format!(
                r#"{{"type":"step_finish","sessionID":"s-1","part":{{"type":"step-finish","reason":"stop","cost":0.25,"tokens":{{"input":{tokens},"output":5,"reasoning":0,"cache":{{"read":0,"write":0}}}}}}}}"#
            ),
        ],
        ReaderName::Gemini => vec![
            format!(r#"{{"type":"message","role":"assistant","content":"{text}","delta":true}}"#),
            format!(
                r#"{{"type":"result","status":"success","stats":{{"total_tokens":{tokens},"input_tokens":{tokens},"output_tokens":5}}}}"#
            ),
        ],
    }
}

/// A recorded session of a real CLI.
pub(super) struct Recording {
    pub reader: ReaderName,
    lines: Vec<(u64, Arc<[u8]>)>,
    stderr: Option<Arc<[u8]>>,
    /// How and when it exited. `None` means that it did not exit by itself.
    pub exit: Option<(Exit, u64)>,
}

impl Recording {
    /// Writes the session to a tape, at this many times its speed.
    pub fn onto(&self, tape: &mut Tape, faster: u64) {
        let begun = tape.at;
        for (at, line) in &self.lines {
            tape.at = begun.saturating_add(Dur::from_millis(at / faster));
            tape.step(Does::Prints(Stream::Stdout, Arc::clone(line)));
        }
        if let Some(stderr) = &self.stderr {
            tape.step(Does::Prints(Stream::Stderr, Arc::clone(stderr)));
        }
    }
}

/// Returns the recorded sessions, sorted by name.
pub(super) fn recordings() -> &'static [Recording] {
    static READ: OnceLock<Vec<Recording>> = OnceLock::new();
    READ.get_or_init(read_recordings)
}

fn read_recordings() -> Vec<Recording> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let index = std::fs::read_to_string(dir.join("INDEX.tsv")).expect("the recordings have an index");
    let recorded = |row: &str| {
        let cells: Vec<&str> = row.split('\t').collect();
        let (agent, name) = (cells[0], cells[1]);
        let reader = ReaderName::named(agent)?;
        let path = dir.join(agent).join(format!("{name}.jsonl"));
        let size = std::fs::metadata(&path).ok()?.len();
        if size > MAX_RECORDING {
            return None;
        }
        let text = std::fs::read_to_string(&path).ok()?;
        let code: i32 = cells[3].parse().ok()?;
        let exit = if code < 0 { Exit::Signal(-code) } else { Exit::Code(code) };
        let stderr = std::fs::read(path.with_extension("stderr")).ok().filter(|bytes| !bytes.is_empty());
        Some(Recording {
            reader,
            lines: text.lines().map(read_line).collect(),
            stderr: stderr.map(Arc::from),
            exit: cells[5].is_empty().then_some((exit, cells[4].parse().ok()?)),
        })
    };
    index.lines().skip(1).filter_map(recorded).collect()
}

fn read_line(line: &str) -> (u64, Arc<[u8]>) {
    let line: serde_json::Value = serde_json::from_str(line).expect("a recorded line is JSON");
    let (at, text) = (line["t_ms"].as_u64().unwrap_or(0), line["line"].as_str().unwrap_or(""));
    (at, format!("{text}\n").into_bytes().into())
}
