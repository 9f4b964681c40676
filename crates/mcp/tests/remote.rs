//! Servers behind a URL: the same rules as for local servers, over real sockets.
use crate::support;

use dogwatch_core::settings::{McpPlace, McpServer};
use serde_json::json;
use std::time::{Duration, Instant};
use support::remote_server::{Mode, RemoteServer};
use support::{Agent, PATIENCE, runtime, tool_result};

const MINUTE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(400);

/// A server entry with a short limit for one tool. The other tools have enough time on a busy machine.
fn hurried(remote: &RemoteServer, name: &str, tool: &str) -> McpServer {
    let mut plan = remote.server(name, MINUTE);
    plan.tools = vec![(tool.to_owned(), remote.server(name, SHORT).timeout)];
    plan
}

#[test]
fn remote_tools_work_with_json_and_event_stream_responses() {
    runtime().block_on(async {
        let (plain, streamed) =
            (RemoteServer::start(Mode::Json).await, RemoteServer::start(Mode::Events).await);
        let mut with_key = plain.server("plain", MINUTE);
        with_key.headers = vec![("X-Key".to_owned(), "the ${PATH}".to_owned())];
        let mut agent = Agent::start(vec![with_key, streamed.server("streamed", MINUTE)], &[]).await;
        let tools = agent.tools().await;
        assert!(tools.iter().any(|t| t == "echo") && tools.iter().any(|t| t == "streamed_echo"), "{tools:?}");
        for tool in ["echo", "streamed_echo"] {
            let answer = agent.call(tool, json!({"text": "hello"})).await;
            assert_eq!(tool_result(&answer), ("hello".to_owned(), false), "{tool}");
        }
        for phase in ["start", "end"] {
            agent
                .run
                .wait_for(|s| s["say"] == "call" && s["server"] == "streamed" && s["phase"] == phase)
                .await;
        }
        let received = plain.received.lock().unwrap().clone();
        let key = format!("x-key: the {}", std::env::var("PATH").unwrap().trim());
        assert!(received.iter().all(|(head, _)| head.contains(&key)), "{received:?}");
        let (head, _) = received.iter().find(|(_, m)| m["method"] == "tools/call").unwrap();
        for line in ["POST /mcp HTTP/1.1", "mcp-session-id: s0", "mcp-protocol-version: ", "host: 127.0.0.1:"]
        {
            assert!(head.contains(line), "{line} in {head}");
        }
    });
}

#[test]
fn a_hanging_call_times_out_and_repeated_timeouts_reinitialize_the_server() {
    runtime().block_on(async {
        for mode in [Mode::Json, Mode::Events] {
            let remote = RemoteServer::start(mode).await;
            let mut agent = Agent::start(vec![hurried(&remote, "slow", "hang")], &[]).await;
            agent.tools().await;
            for more in ["", "; the server will be restarted after 2 timeouts in a row"] {
                let began = Instant::now();
                let (text, failed) = tool_result(&agent.call("hang", json!({})).await);
                assert!(failed);
                assert_eq!(
                    text,
                    format!("server `slow`: `hang` did not answer within its limit of 0.4 s{more}")
                );
                assert!(began.elapsed() >= SHORT && began.elapsed() < MINUTE, "{:?}", began.elapsed());
                assert_eq!(remote.count("initialize"), 1);
            }
            assert_eq!(
                tool_result(&agent.call("echo", json!({"text": "new"})).await),
                ("new".to_owned(), false)
            );
            assert_eq!(remote.count("initialize"), 2);
            assert!(remote.count("notifications/cancelled") >= 1, "the server is notified");
            agent.run.wait_for(|s| s["say"] == "call" && s["phase"] == "timed_out").await;
        }
    });
}

#[test]
fn a_late_response_is_dropped() {
    runtime().block_on(async {
        let remote = RemoteServer::start(Mode::Json).await;
        let mut agent = Agent::start(vec![hurried(&remote, "s", "late")], &[]).await;
        agent.tools().await;
        assert!(tool_result(&agent.call("late", json!({"after_ms": 600})).await).1);
        for n in 0..20 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let text = n.to_string();
            assert_eq!(tool_result(&agent.call("echo", json!({"text": text})).await), (text, false));
        }
    });
}

#[test]
fn cancellation_and_progress_are_forwarded() {
    runtime().block_on(async {
        let remote = RemoteServer::start(Mode::Events).await;
        let mut agent = Agent::start(vec![remote.server("s", MINUTE)], &[]).await;
        agent.tools().await;
        let params = json!({"name": "progress", "arguments": {}, "_meta": {"progressToken": "mine"}});
        assert_eq!(tool_result(&agent.ask("tools/call", params).await), ("done".to_owned(), false));
        let note = agent.notes.iter().find(|n| n["method"] == "notifications/progress").unwrap();
        assert_eq!(
            (&note["params"]["progressToken"], &note["params"]["message"]),
            (&json!("mine"), &json!("half"))
        );
        let id = agent.send("tools/call", json!({"name": "hang", "arguments": {}})).await;
        agent.run.wait_for(|s| s["say"] == "call" && s["tool"] == "hang").await;
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        agent.put(&cancel.to_string()).await;
        let notified = async {
            while remote.count("notifications/cancelled") == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, notified).await.expect("the server is notified");
        assert_eq!(tool_result(&agent.call("echo", json!({"text": "x"})).await), ("x".to_owned(), false));
    });
}

#[test]
fn a_server_that_disconnects_refuses_or_forgets_its_session_recovers() {
    runtime().block_on(async {
        let remote = RemoteServer::start(Mode::Json).await;
        let mut agent = Agent::start(vec![remote.server("s", MINUTE)], &[]).await;
        agent.tools().await;
        assert_eq!(
            tool_result(&agent.call("refuse", json!({})).await),
            ("server `s`: not today".to_owned(), true)
        );
        let (text, failed) = tool_result(&agent.call("die", json!({})).await);
        assert!(
            failed && text.starts_with("server `s` does not respond as an MCP server: connection lost"),
            "{text}"
        );
        assert_eq!(
            tool_result(&agent.call("echo", json!({"text": "back"})).await),
            ("back".to_owned(), false)
        );
        remote.forget();
        assert_eq!(
            tool_result(&agent.call("echo", json!({"text": "anew"})).await),
            ("anew".to_owned(), false)
        );
        // The server stops, and a new one starts on the same port.
        remote.stop();
        let (text, failed) = tool_result(&agent.call("echo", json!({"text": "gone"})).await);
        assert!(failed && text.starts_with("server `s` does not respond as an MCP server: "), "{text}");
        let _again = RemoteServer::start_at(Mode::Json, remote.port).await;
        let back = async {
            while tool_result(&agent.call("echo", json!({"text": "here"})).await)
                != ("here".to_owned(), false)
            {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(PATIENCE, back).await.expect("the server is used again");
        agent.run.wait_for(|s| s["say"] == "server_trouble").await;
    });
}

#[test]
fn broken_remote_servers_are_reported_and_do_not_affect_the_others() {
    runtime().block_on(async {
        let modes = [
            ("silent", Mode::Silent, ""),
            ("page", Mode::Page, "answered with `text/html`, which is not MCP"),
            ("nonsense", Mode::Nonsense, "invalid message in the response"),
            ("endless", Mode::Endless, "does not respond as an MCP server"),
            ("garbage", Mode::Garbage, "does not respond as an MCP server"),
            ("locked", Mode::Locked, "answered with status 401: no key"),
            ("redirects", Mode::Redirects, "answered with a redirect (302), which is not followed"),
        ];
        let (mut servers, mut held) = (Vec::new(), Vec::new());
        for (name, mode, _) in modes {
            let remote = RemoteServer::start(mode).await;
            servers.push(remote.server(name, MINUTE));
            held.push(remote);
        }
        let good = RemoteServer::start(Mode::Events).await;
        let gone = RemoteServer::start(Mode::Json).await;
        gone.stop();
        tokio::task::yield_now().await;
        let mut keyless = good.server("keyless", MINUTE);
        keyless.headers = vec![("X-Key".to_owned(), "${NO_SUCH_VARIABLE_HERE}".to_owned())];
        let mut tls = good.server("tls", MINUTE);
        tls.place = McpPlace::Url(format!("https://127.0.0.1:{}/mcp", good.port));
        servers.extend([gone.server("gone", MINUTE), keyless, tls, good.server("good", MINUTE)]);
        let mut agent = Agent::start(servers, &[]).await;
        let began = Instant::now();
        let tools = agent.tools().await;
        assert!(began.elapsed() < MINUTE, "{:?}", began.elapsed());
        assert!(tools.iter().any(|t| t == "echo"), "{tools:?}");
        assert_eq!(tool_result(&agent.call("echo", json!({"text": "x"})).await), ("x".to_owned(), false));
        let response =
            modes.iter().filter(|(name, ..)| *name != "silent").map(|(name, _, text)| (*name, *text));
        for (name, text) in response.chain([
            ("gone", "cannot connect to"),
            ("keyless", "header `X-Key`: the variable NO_SUCH_VARIABLE_HERE is not set"),
            ("tls", "no trusted TLS connection"),
        ]) {
            agent.run.wait_for(|s| s["say"] == "server_trouble" && s["server"] == name).await;
            let trouble =
                agent.run.requests().into_iter().find(|s| s["server"] == name).unwrap()["text"].clone();
            assert!(trouble.as_str().unwrap().contains(text), "{name}: {trouble}");
        }
    });
}

#[test]
fn a_flooding_server_is_throttled_and_still_answers() {
    runtime().block_on(async {
        let remote = RemoteServer::start(Mode::Flood).await;
        let mut agent = Agent::start(vec![remote.server("f", MINUTE)], &[]).await;
        agent.tools().await;
        let began = Instant::now();
        assert_eq!(tool_result(&agent.call("echo", json!({"text": "dry"})).await), ("dry".to_owned(), false));
        assert!(began.elapsed() >= Duration::from_secs(1), "{:?}: not throttled", began.elapsed());
    });
}

#[test]
fn an_oversized_response_is_rejected() {
    runtime().block_on(async {
        for mode in [Mode::Json, Mode::Events] {
            let remote = RemoteServer::start(mode).await;
            let mut agent = Agent::start(vec![remote.server("s", MINUTE)], &[]).await;
            agent.tools().await;
            let (text, failed) = tool_result(&agent.call("large", json!({"bytes": 17 << 20})).await);
            assert!(failed && text.starts_with("server `s` does not respond as an MCP server"), "{text}");
            assert_eq!(tool_result(&agent.call("echo", json!({"text": "x"})).await), ("x".to_owned(), false));
        }
    });
}
