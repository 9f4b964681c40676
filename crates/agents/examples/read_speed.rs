//! Measures the speed of the readers: `cargo run --release -p dogwatch-agents --example read_speed [KIND]`.
//!
//! Feeds 200 MB of generated output per kind in chunks of 64 KiB, as the host does, and prints the best time of
//! five.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)] // measures and prints

use dogwatch_agents::{Reader, Splitter};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::watch::sign::Totals;
use std::time::Instant;

const TOTAL: usize = 200_000_000;
const CHUNK: usize = 64 * 1024;

fn main() {
    let kinds: [(&str, ReaderName, Vec<String>); 10] = [
        ("claude, as recorded", ReaderName::Claude, claude(200)),
        ("claude, short lines", ReaderName::Claude, vec![bare("step done")]),
        ("claude, 10 kB of code", ReaderName::Claude, claude(10_000)),
        ("codex", ReaderName::Codex, codex()),
        ("gemini, deltas", ReaderName::Gemini, vec![gemini()]),
        ("plain, 60 byte lines", ReaderName::Plain, vec!["a".repeat(60)]),
        ("plain, 10 kB lines", ReaderName::Plain, vec!["a".repeat(10_000)]),
        ("plain, all different", ReaderName::Plain, numbered("step {} of the build is done, next comes one")),
        ("plain, only the time", ReaderName::Plain, clocked()),
        ("opencode", ReaderName::Opencode, vec![opencode()]),
    ];
    let wanted = std::env::args().nth(1).unwrap_or_default();
    for (what, name, lines) in kinds.into_iter().filter(|(what, ..)| what.contains(&wanted)) {
        let bytes = fill(&lines);
        let runs = (0..5).map(|_| measure(name, &bytes));
        let (took, totals) = runs.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there were five");
        let speed = bytes.len() as f64 / took / 1e6;
        println!(
            "{what:22} {took:6.3} s  {speed:6.0} MB/s  messages {} tools {}",
            totals.messages, totals.tools
        );
    }
}

fn measure(name: ReaderName, bytes: &[u8]) -> (f64, Totals) {
    let mut reader = Reader::for_name(name);
    let (mut splitter, mut signs, mut totals) = (Splitter::new(), Vec::new(), Totals::default());
    let start = Instant::now();
    for chunk in bytes.chunks(CHUNK) {
        reader.begin_chunk();
        splitter.feed(chunk, |line| reader.read_line(line, &mut signs));
        signs.drain(..).for_each(|sign| totals.add(&sign));
    }
    reader.finish(&mut signs);
    (start.elapsed().as_secs_f64(), totals)
}

fn fill(lines: &[String]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(TOTAL + 20_000);
    for line in lines.iter().cycle() {
        if bytes.len() >= TOTAL {
            break;
        }
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
    }
    bytes
}

/// Returns the lines that `claude` prints per step: a text, a call and its result.
fn claude(size: usize) -> Vec<String> {
    let code = r#"if x {\n\tprintln!(\"hello {x}\");\n} else { done() }\n"#.repeat(size.div_ceil(56));
    let blocks = [
        r#"{"type":"text","text":"I will write two files and then run the tests again."}"#.to_owned(),
        format!(
            r#"{{"type":"tool_use","id":"toolu_c68eeae4502445fb9736ef","name":"Bash","input":{{"command":"{code}"}}}}"#
        ),
    ];
    let result = format!(
        r#"{{"type":"user","message":{{"role":"user","content":[{{"tool_use_id":"toolu_c68eeae4502445fb9736ef","type":"tool_result","content":"{code}","is_error":false}}]}},"parent_tool_use_id":null,"session_id":"d0715707-6641-45f1-8d44-cbfa095581b9","uuid":"316f1c9f-5d1b-47e9-9db4-15871c45b614","tool_use_result":{{"stdout":"{code}","stderr":"","interrupted":false}}}}"#
    );
    blocks.iter().map(|block| assistant(block)).chain([result]).collect()
}

fn assistant(block: &str) -> String {
    format!(
        r#"{{"type":"assistant","message":{{"id":"msg_41c3f28f1f4240de94d284c0","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{block}],"stop_reason":null,"stop_sequence":null,"usage":{{"input_tokens":21357,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1,"service_tier":"standard"}},"context_management":null}},"parent_tool_use_id":null,"session_id":"d0715707-6641-45f1-8d44-cbfa095581b9","uuid":"4fb59d2e-a59c-4855-9b27-3f348b4948e4","timestamp":"2026-11-15T18:30:09.768Z","request_id":"req_706cf770cced444c"}}"#
    )
}

fn bare(text: &str) -> String {
    format!(r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#)
}

fn codex() -> Vec<String> {
    let item = r#""item":{"id":"item_1","type":"command_execution","command":"/bin/bash -lc 'ls'","aggregated_output":"a\nb\n","exit_code":0,"status":"completed"}"#;
    vec![
        r#"{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"I start a server."}}"#
            .to_owned(),
        format!(r#"{{"type":"item.started",{item}}}"#),
        format!(r#"{{"type":"item.completed",{item}}}"#),
    ]
}

fn opencode() -> String {
    let output = r"cat: no such file\n".repeat(10);
    format!(
        r#"{{"type":"tool_use","timestamp":1794768907698,"sessionID":"ses_1","part":{{"type":"tool","tool":"bash","callID":"call_fca0b324","state":{{"status":"completed","input":{{"command":"cat x"}},"output":"{output}","metadata":{{"output":"{output}","exit":3}}}}}}}}"#
    )
}

fn numbered(form: &str) -> Vec<String> {
    (0..1_000_000).map(|n| form.replace("{}", &n.to_string())).collect()
}

/// Returns the worst case for the plain reader: all lines differ, but none is new.
fn clocked() -> Vec<String> {
    let time = |n: u32| {
        format!("{:02}:{:02}:{:02}.{:03}", n / 3_600_000 % 24, n / 60_000 % 60, n / 1000 % 60, n % 1000)
    };
    (0..1_000_000).map(|n| format!("[{}] still waiting for the server to answer me", time(n))).collect()
}

fn gemini() -> String {
    r#"{"type":"message","timestamp":"2026-11-15T18:25:59.148Z","role":"assistant","content":"I start. ","delta":true}"#
        .to_owned()
}
