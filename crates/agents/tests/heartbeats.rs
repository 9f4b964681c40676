//! An agent that calls our `heartbeat` tool prints the call like every other. Whatever name its CLI gives the tool,
//! such a call is presence, not progress. The lines come from real CLIs, with our server's name inserted.

use dogwatch_agents::{Reader, tools};
use dogwatch_core::settings::{Profile, ReaderName, WatchPolicy};
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::Session;
use dogwatch_core::watch::feed::Stream;
use dogwatch_core::watch::replay::{Finish, Looks, Player, VerdictChange};
use dogwatch_core::watch::sign::Sign;

const AGENTS: [ReaderName; 4] =
    [ReaderName::Claude, ReaderName::Codex, ReaderName::Opencode, ReaderName::Gemini];

/// Returns the lines of a recording about calls to its server's tool, with the server renamed.
fn calls(agent: ReaderName, server: &str) -> Vec<String> {
    let path = format!("{}/../../fixtures/{}/mcp.jsonl", env!("CARGO_MANIFEST_DIR"), agent.as_str());
    let text = std::fs::read_to_string(path).expect("the fixtures are part of the repository");
    let mut reader = Reader::for_name(agent);
    let lines = text.lines().map(|record| {
        let record: serde_json::Value = serde_json::from_str(record).expect("recordings are JSON lines");
        record["line"].as_str().expect("every record holds a line").replace("probe", server)
    });
    let is_call = |line: &String| {
        let mut signs = Vec::new();
        reader.read(line.as_bytes(), &mut signs);
        let of_mcp = |s: &Sign| match s {
            Sign::ToolStarted(tool) => tool.mcp,
            Sign::ToolEnded { .. } => line.contains("heartbeat accepted"),
            _ => false,
        };
        signs.iter().any(of_mcp)
    };
    lines.filter(is_call).collect()
}

/// Watches one session under `quick`: a message first, then these lines every 20 s with changing ids and texts.
fn watched(agent: ReaderName, lines: &[String]) -> Vec<VerdictChange> {
    let session = Session::new(Awake(0), true);
    let mut player = Player::new(WatchPolicy::of(Profile::Quick), session, None, Looks::EveryDue);
    let (mut reader, mut signs) = (Reader::for_name(agent), vec![Sign::Message]);
    player.take(Awake(1_000), |feed| feed.line(Awake(1_000), Stream::Stdout, &mut signs));
    for n in 1..40_u64 {
        for line in lines {
            let line = line
                .replace("working on it", &format!("step {}", "i".repeat(n as usize)))
                .replace("toolu_", &format!("toolu_{n}_"))
                .replace("\"item_", &format!("\"item_{n}_"))
                .replace("call_", &format!("call_{n}_"))
                .replace("heartbeat__", &format!("heartbeat_{n}__"));
            reader.read(line.as_bytes(), &mut signs);
            let at = Awake(1_000 + n * 20_000);
            player.take(at, |feed| feed.line(at, Stream::Stdout, &mut signs));
        }
    }
    player.finish(Awake(850_000), &Finish::Looked).lines
}

fn stops(lines: &[VerdictChange]) -> Vec<(f64, Option<String>)> {
    let stop = |line: &&VerdictChange| line.verdict == "hard_stop";
    lines.iter().filter(stop).map(|l| (l.at_s, l.reason.map(|r| r.to_string()))).collect()
}

#[test]
fn origin_1_an_agent_that_only_sends_heartbeats_is_ended_with_every_cli() {
    for agent in AGENTS {
        let lines = calls(agent, "dogwatch");
        assert!(!lines.is_empty(), "{agent:?}: the recording has a call");
        let stops = stops(&watched(agent, &lines));
        assert_eq!(stops, [(301.0, Some("NO_OUTPUT_DEADLINE".to_owned()))], "{agent:?}");
    }
}

#[test]
fn the_same_calls_to_another_server_are_work() {
    for agent in AGENTS {
        let stops = stops(&watched(agent, &calls(agent, "probe")));
        assert_eq!(stops, [], "{agent:?}");
    }
}

#[test]
fn our_tool_is_recognized_by_its_name_in_each_cli() {
    for (agent, name) in [
        (ReaderName::Claude, "mcp__dogwatch__heartbeat"),
        (ReaderName::Codex, "mcp__dogwatch__heartbeat"),
        (ReaderName::Opencode, "dogwatch_heartbeat"),
        (ReaderName::Gemini, "mcp_dogwatch_heartbeat"),
    ] {
        assert!(tools::is_heartbeat(agent, name) && tools::is_mcp(agent, name), "{agent:?}");
        for other in ["heartbeat", "mcp__probe__heartbeat", "dogwatch_report_progress", &format!("{name}s")] {
            assert!(!tools::is_heartbeat(agent, other), "{agent:?} {other}");
        }
    }
    assert!(!tools::is_heartbeat(ReaderName::Plain, "mcp__dogwatch__heartbeat"));
}

#[test]
fn a_heartbeat_of_a_subagent_is_not_work() {
    let line = |name: &str, text: &str| {
        format!(
            r#"{{"type":"{}","parent_tool_use_id":"t1","message":{{"content":[{text}]}}}}"#,
            if name.is_empty() { "user" } else { "assistant" }
        )
    };
    let call = |id: &str, name: &str| {
        line(name, &format!(r#"{{"type":"tool_use","id":"{id}","name":"{name}","input":{{}}}}"#))
    };
    let answer =
        |id: &str| line("", &format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"Alive."}}"#));
    let mut reader = Reader::for_name(ReaderName::Claude);
    let mut read = |line: String| {
        let mut signs = Vec::new();
        reader.read(line.as_bytes(), &mut signs);
        signs
    };
    assert_eq!(read(call("a", "mcp__dogwatch__heartbeat")), [Sign::Keepalive]);
    assert_eq!(read(answer("a")), [Sign::Keepalive]);
    let works = Sign::SubagentProgress { id: "t1".into() };
    assert!(read(call("b", "Read")).contains(&works));
    assert!(read(answer("b")).contains(&works));
}
