//! The MCP server for an agent: the calls that it accepts and refuses, and its latency.
use crate::support;

use dogwatch_core::settings::Tampered;
use dogwatch_host::driver::mcp_setup::Pinned;
use dogwatch_host::fs::pins;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::{Agent, runtime, tool_result};

#[test]
fn lists_seven_tools_with_descriptions_and_schemas() {
    runtime().block_on(async {
        let mut agent = Agent::start(Vec::new(), &[]).await;
        let listed = agent.ask("tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        assert_eq!(tools.len(), 7);
        for tool in tools {
            assert!(tool["description"].as_str().unwrap().len() > 80, "{tool}");
            assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        }
    });
}

#[test]
fn reports_reach_the_run_unchanged() {
    runtime().block_on(async {
        let mut agent = Agent::start(Vec::new(), &[]).await;
        agent.call("report_progress", json!({"message": "half", "done": 1, "total": 2})).await;
        agent.call("report_state", json!({"state": "idle", "reason": "no_pending_tasks"})).await;
        agent.call("report_error", json!({"text": "no key"})).await;
        assert_eq!(
            agent.run.requests(),
            [
                json!({"say": "progress", "message": "half", "done": 1, "total": 2}),
                json!({"say": "state", "state": "idle", "reason": "no_pending_tasks"}),
                json!({"say": "error", "text": "no key"}),
            ]
        );
        let request = agent.run.requests.lock().unwrap()[0].clone();
        assert_eq!((request.node.as_str(), request.iteration.0), ("loop", 3));
    });
}

#[test]
fn an_artifact_is_written_atomically_with_mode_0600() {
    use std::os::unix::fs::PermissionsExt;
    runtime().block_on(async {
        let mut agent = Agent::start(Vec::new(), &[]).await;
        for text in ["first", "second"] {
            let (answer, failed) =
                tool_result(&agent.call("save_artifact", json!({"name": "a.md", "content": text})).await);
            assert!(!failed, "{answer}");
        }
        let path = agent.dir.path().join("artifacts/a.md");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    });
}

#[test]
fn check_done_reports_results_with_output_tails() {
    runtime().block_on(async {
        let checks = ["true", "echo wrong number of dots >&2; exit 7", "kill -9 $$"];
        let mut agent = Agent::start(Vec::new(), &checks).await;
        let (text, failed) = tool_result(&agent.call("check_done", json!({})).await);
        assert!(!failed);
        assert!(text.starts_with("2 of 3 checks fail."), "{text}");
        assert!(text.contains("exit code 7; end of its output:\nwrong number of dots"), "{text}");
        assert!(text.contains("$ true\npasses") && text.contains("FAILS: killed by a signal"), "{text}");
        agent.run.wait_for(|s| s["say"] == "checked" && s["failed"] == 2 && s["of"] == 3).await;
    });
}

#[test]
fn canceling_check_done_kills_the_check() {
    runtime().block_on(async {
        let mut agent =
            Agent::start(Vec::new(), &["echo $$ > pid.new; mv pid.new pid; exec sleep 1000"]).await;
        let id = agent.send("tools/call", json!({"name": "check_done", "arguments": {}})).await;
        let pid = agent.dir.path().join("pid");
        let until = Instant::now() + support::PATIENCE;
        while !pid.exists() && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let process = format!("/proc/{}", std::fs::read_to_string(pid).unwrap().trim());
        assert!(std::path::Path::new(&process).exists());
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        agent.put(&cancel.to_string()).await;
        while std::path::Path::new(&process).exists() && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(!std::path::Path::new(&process).exists(), "the process is gone and reaped");
        assert_responsive(&mut agent).await;
    });
}

/// Starts an agent in a work tree with a pinned test.
async fn pinned(policy: Tampered) -> Agent {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("tests")).unwrap();
    std::fs::write(dir.path().join("tests/all.sh"), "exit 1\n").unwrap();
    let globs = vec!["tests/**".to_owned()];
    let request = pins::Request {
        work_dir: dir.path().to_owned(),
        globs: globs.clone(),
        checks: Vec::new(),
        known: Vec::new(),
        state_dirs: Vec::new(),
        tree: false,
    };
    let files = pins::hash(&request, &pins::Limits::default()).unwrap();
    let pinned = Pinned { globs, files, state_dirs: Vec::new(), policy };
    Agent::start_in(dir, Vec::new(), &["sh tests/all.sh"], Some(pinned)).await
}

#[test]
fn checks_fail_when_pinned_files_changed() {
    runtime().block_on(async {
        let mut agent = pinned(Tampered::Fail).await;
        let (text, _) = tool_result(&agent.call("check_done", json!({})).await);
        assert!(text.starts_with("1 of 1 checks fail."), "{text}");
        for change in ["changed", "new", "gone"] {
            let tests = agent.dir.path().join("tests");
            match change {
                "changed" => std::fs::write(tests.join("all.sh"), "exit 0\n").unwrap(),
                "new" => std::fs::write(tests.join("more.sh"), "").unwrap(),
                _ => std::fs::remove_file(tests.join("all.sh")).unwrap(),
            }
            let (text, failed) = tool_result(&agent.call("check_done", json!({})).await);
            assert!(!failed && text.starts_with("The checks FAIL and were not run"), "{change}: {text}");
            assert!(text.contains("tests/all.sh") && !text.contains("pass"), "{change}: {text}");
        }
        let tampered = |s: &Value| s["say"] == "checked" && s["tampered"] == json!(["tests/all.sh"]);
        agent.run.wait_for(|s| tampered(s) && s["failed"] == 1 && s["of"] == 1).await;
    });
}

#[test]
fn the_warn_policy_runs_the_checks_and_reports_changed_files() {
    runtime().block_on(async {
        let mut agent = pinned(Tampered::Warn).await;
        std::fs::write(agent.dir.path().join("tests/all.sh"), "exit 0\n").unwrap();
        let (text, _) = tool_result(&agent.call("check_done", json!({})).await);
        assert!(text.starts_with("All 1 checks pass."), "{text}");
        assert!(
            text.contains("Pinned files were changed; the user will be notified: tests/all.sh."),
            "{text}"
        );
    });
}

#[test]
fn check_done_without_checks_explains_that() {
    runtime().block_on(async {
        let mut agent = Agent::start(Vec::new(), &[]).await;
        let (text, failed) = tool_result(&agent.call("check_done", json!({})).await);
        assert!(!failed && text.starts_with("This loop has no checks"), "{text}");
    });
}

/// Asserts that the server still answers.
async fn assert_responsive(agent: &mut Agent) {
    assert_eq!(
        tool_result(&agent.call("heartbeat", json!({})).await).0,
        "Alive. This does not count as progress."
    );
}

#[test]
fn unreadable_requests_are_refused_and_the_next_is_answered() {
    runtime().block_on(async {
        let mut agent = Agent::start(Vec::new(), &[]).await;
        // An oversized message.
        let id = agent.send("tools/call", json!({"name": "report_error", "arguments": {"text": "x".repeat(5 << 20)}})).await;
        let refused = agent.answer(id).await;
        assert!(refused["error"]["message"].as_str().unwrap().contains("at most 4194304 bytes"), "{refused}");
        assert_responsive(&mut agent).await;
        // JSON that is nested too deeply.
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        agent
            .put(&format!(r#"{{"jsonrpc":"2.0","id":4711,"method":"tools/call","params":{{"name":"heartbeat","arguments":{{"x":{deep}}}}}}}"#))
            .await;
        assert!(agent.answer(4711).await["error"]["message"].as_str().unwrap().contains("recursion limit"));
        assert_responsive(&mut agent).await;
        // Half a message, and nonsense.
        for line in ["{\"jsonrpc\":\"2.0\",\"id\":", "nonsense", "", "[1,2", "\u{0}"] {
            agent.put(line).await;
        }
        assert_responsive(&mut agent).await;
    });
}

#[test]
fn unknown_tools_and_invalid_arguments_are_refused() {
    runtime().block_on(async {
        let mut agent = Agent::start(Vec::new(), &[]).await;
        for (tool, arguments, wrong) in [
            ("no_such_tool", json!({}), "unknown tool `no_such_tool`"),
            ("save_artifact", json!({"name": "../../x", "content": ""}), "not a path"),
            (
                "save_artifact",
                json!({"name": "a", "content": "x".repeat((1 << 20) + 1)}),
                "at most 1048576 bytes",
            ),
            ("report_progress", json!({"message": ["x"]}), "report_progress: invalid type"),
            ("heartbeat", json!({"more": 1}), "takes no arguments"),
        ] {
            let refused = agent.call(tool, arguments).await;
            let message = refused["error"]["message"].as_str().unwrap_or_default().to_owned();
            assert!(message.contains(wrong), "{tool}: {refused}");
        }
        assert_eq!(agent.run.requests(), Vec::<Value>::new(), "the run receives nothing");
        assert!(!agent.dir.path().join("artifacts").exists());
    });
}

#[test]
fn an_unreachable_run_returns_an_error_and_lets_the_agent_continue() {
    runtime().block_on(async {
        let mut agent = Agent::start(Vec::new(), &[]).await;
        std::fs::remove_file(agent.dir.path().join("socket")).unwrap();
        let (text, failed) = tool_result(&agent.call("report_progress", json!({"message": "x"})).await);
        assert!(failed && text.starts_with("dogwatch does not answer"), "{text}");
        assert!(text.ends_with("Continue your work."), "{text}");
    });
}

/// The benchmark measures how long a call takes.
#[test]
fn each_call_is_one_request_to_the_run() {
    runtime().block_on(async {
        let mut agent = Agent::start(Vec::new(), &[]).await;
        for n in 0..20 {
            agent.call("report_progress", json!({"message": format!("step {n}")})).await;
        }
        assert_eq!(agent.run.requests().len(), 20);
    });
}

#[test]
fn a_client_of_the_newest_protocol_needs_no_initialize() {
    runtime().block_on(async {
        let mut agent = Agent::start_without_initialize(tempfile::tempdir().unwrap(), Vec::new(), &[], None);
        assert_eq!(agent.ask("ping", json!({})).await["result"], json!({}));
        let refused = agent.ask("tools/list", json!({})).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}});
        let found = agent.ask("server/discover", json!({"_meta": meta})).await["result"].clone();
        assert_eq!((&found["resultType"], &found["cacheScope"]), (&json!("complete"), &json!("private")));
        assert!(found["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")), "{found}");
        assert_eq!(found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "dogwatch");
        let listed = agent.ask("tools/list", json!({"_meta": meta})).await["result"].clone();
        assert_eq!((listed["tools"].as_array().unwrap().len(), &listed["ttlMs"]), (7, &json!(0)));
        let call = json!({"name": "heartbeat", "arguments": {}, "_meta": meta});
        let called = agent.ask("tools/call", call).await;
        assert_eq!(tool_result(&called).0, "Alive. This does not count as progress.");
        assert_eq!(called["result"]["resultType"], "complete", "{called}");
        let mut unknown = meta;
        unknown["io.modelcontextprotocol/protocolVersion"] = json!("2031-01-01");
        let refused = agent.ask("tools/list", json!({"_meta": unknown})).await;
        assert_eq!(refused["error"]["code"], -32022, "{refused}");
    });
}

#[test]
fn initialize_answers_every_old_version_and_results_have_no_result_type() {
    runtime().block_on(async {
        for (asked, given) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-03-26", "2025-03-26"),
            ("2025-06-18", "2025-06-18"),
            ("2026-07-28", "2025-11-25"),
        ] {
            let mut agent =
                Agent::start_without_initialize(tempfile::tempdir().unwrap(), Vec::new(), &[], None);
            let params = json!({"protocolVersion": asked, "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"}});
            let answer = agent.ask("initialize", params).await["result"].clone();
            assert_eq!(answer["protocolVersion"], given);
            assert_eq!(answer["capabilities"]["tools"]["listChanged"], true, "{answer}");
            assert!(answer["instructions"].as_str().unwrap().contains("check_done"), "{answer}");
            let called = agent.call("heartbeat", json!({})).await;
            assert_eq!(called["result"].get("resultType"), None, "{called}");
            assert_eq!(agent.ask("no/such/method", json!({})).await["error"]["code"], -32601);
        }
    });
}
