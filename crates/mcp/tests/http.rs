//! The server over HTTP, with real sockets: authorization, limits, and shutdown at the end of the session.
use crate::support;

use dogwatch_mcp::http::Limits;
use serde_json::json;
use std::time::{Duration, Instant};
use support::http::{HttpServer, initialize_request, read};
use support::{PATIENCE, runtime, server, tool_result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MINUTE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

#[test]
fn an_http_agent_lists_and_calls_tools() {
    runtime().block_on(async {
        let server = HttpServer::start(vec![server("files", "good", MINUTE)], Limits::default()).await;
        let id = server.initialize().await;
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
        let listed = server.post(&[("mcp-session-id", &id)], &list).await.answer();
        let names: Vec<&str> = listed["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert!(names.contains(&"report_progress") && names.contains(&"echo"), "{names:?}");
        let response = server.call(&id, "report_progress", json!({"message": "half of it"})).await;
        assert_eq!(tool_result(&response), ("Noted.".to_owned(), false));
        server.run.wait_for(|s| s["say"] == "progress" && s["message"] == "half of it").await;
        let echoed = server.call(&id, "echo", json!({"text": "hello"})).await;
        assert_eq!(tool_result(&echoed), ("hello".to_owned(), false));
        assert!(server.run.keys.lock().unwrap().iter().all(|key| key == "Bearer key"));
    });
}

#[test]
fn a_client_of_the_newest_protocol_needs_no_initialize() {
    runtime().block_on(async {
        let server = HttpServer::start(Vec::new(), Limits::default()).await;
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}});
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"name": "heartbeat", "arguments": {}, "_meta": meta}});
        let headers =
            [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "heartbeat")];
        let response = server.post(&headers, &message).await;
        assert_eq!(
            tool_result(&response.answer()).0,
            "Alive. This does not count as progress.",
            "{response:?}"
        );
    });
}

#[test]
fn requests_of_the_newest_protocol_are_refused_with_the_status_that_it_defines() {
    runtime().block_on(async {
        let server = HttpServer::start(Vec::new(), Limits::default()).await;
        let version = "2026-07-28";
        for (asked, method, name, status, code) in [
            (version, "server/discover", "", 200, json!(null)),
            (version, "no/such/method", "", 404, json!(-32601)),
            (version, "ping", "", 404, json!(-32601)),
            (version, "tools/call", "other", 400, json!(-32020)),
            ("2031-01-01", "tools/list", "", 400, json!(-32022)),
        ] {
            let meta = json!({"io.modelcontextprotocol/protocolVersion": asked,
                "io.modelcontextprotocol/clientCapabilities": {}});
            let message = json!({"jsonrpc": "2.0", "id": 7, "method": method,
                "params": {"name": "heartbeat", "_meta": meta}});
            let headers = [("mcp-protocol-version", asked), ("mcp-method", method), ("mcp-name", name)];
            let response = server.post(&headers, &message).await;
            assert_eq!(
                (response.status, &response.answer()["error"]["code"]),
                (status, &code),
                "{response:?}"
            );
        }
        let headers = [("mcp-protocol-version", version), ("mcp-method", "notifications/initialized")];
        let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(server.post(&headers, &note).await.status, 202);
        assert_eq!(server.send("GET", &headers[..1], "").await.status, 405);
    });
}

#[test]
fn a_client_of_the_newest_protocol_that_disconnects_cancels_its_call() {
    runtime().block_on(async {
        let server = HttpServer::start(vec![server("files", "good", MINUTE)], Limits::default()).await;
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}});
        let version = ("mcp-protocol-version", "2026-07-28");
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}});
        server.post(&[version, ("mcp-method", "tools/list")], &list).await;
        let message = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": {"name": "hang", "_meta": meta}})
        .to_string();
        let headers = [version, ("mcp-method", "tools/call"), ("mcp-name", "hang")];
        let mut gone = server.connect().await;
        gone.write_all((server.head("POST", &headers, message.len()) + &message).as_bytes()).await.unwrap();
        server.run.wait_for(|s| s["say"] == "call" && s["tool"] == "hang" && s["phase"] == "start").await;
        drop(gone);
        server.run.wait_for(|s| s["say"] == "call" && s["tool"] == "hang" && s["phase"] == "end").await;
    });
}

#[test]
fn a_call_can_be_resumed_after_its_connection_is_lost() {
    runtime().block_on(async {
        let server = HttpServer::start(vec![server("files", "good", MINUTE)], Limits::default()).await;
        let id = server.initialize().await;
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
        server.post(&[("mcp-session-id", &id)], &list).await;
        let message = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call",
            "params": {"name": "late", "arguments": {"after": "1.5"}}})
        .to_string();
        let mut lost = server.connect().await;
        let head = server.head("POST", &[("mcp-session-id", &id)], message.len());
        lost.write_all((head + &message).as_bytes()).await.unwrap();
        // The first event names the stream.
        let (mut seen, mut chunk) = (String::new(), [0; 1024]);
        while !seen.contains("\nretry: ") {
            let n = tokio::time::timeout(PATIENCE, lost.read(&mut chunk)).await.expect("in time").unwrap();
            assert!(n > 0, "{seen}");
            seen.push_str(&String::from_utf8_lossy(&chunk[..n]));
        }
        let last = seen.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
        drop(lost);
        let headers = [("mcp-session-id", id.as_str()), ("last-event-id", last.as_str())];
        let resumed = server.send("GET", &headers, "").await;
        assert_eq!(tool_result(&resumed.answer()), ("late".to_owned(), false), "{resumed:?}");
        let unknown = server.send("GET", &[headers[0], ("last-event-id", "99-1")], "").await;
        assert!(unknown.status == 200 && !unknown.body.contains("data:"), "{unknown:?}");
    });
}

// promise: 14
#[test]
fn requests_without_the_session_token_are_refused_before_the_body_is_read() {
    runtime().block_on(async {
        let server = HttpServer::start(Vec::new(), Limits::default()).await;
        for wrong in ["-", "Bearer", "Bearer wrong", "Basic key", "key", "Bearer key2"] {
            let response = server.post(&[("authorization", wrong)], &initialize_request()).await;
            assert_eq!(response.status, 401, "{wrong}");
            assert_eq!(response.headers["www-authenticate"], "Bearer");
            assert!(
                response.body.contains("DOGWATCH_TOKEN") && !response.body.contains("Bearer key\""),
                "{response:?}"
            );
        }
        // The server does not wait for the body.
        let mut stream = server.connect().await;
        stream.write_all(server.head("POST", &[("authorization", "-")], 1_000_000).as_bytes()).await.unwrap();
        assert_eq!(read(stream).await.unwrap().status, 401);
        assert_eq!(server.run.requests().len(), 0);
    });
}

// promise: 14
#[test]
fn requests_with_a_wrong_host_or_origin_are_refused_even_with_the_token() {
    runtime().block_on(async {
        let server = HttpServer::start(Vec::new(), Limits::default()).await;
        for host in ["evil.example", "127.0.0.1:1", "localhost"] {
            assert_eq!(server.post(&[("host", host)], &initialize_request()).await.status, 403, "{host}");
        }
        for origin in ["http://evil.example", "null", "https://localhost"] {
            assert_eq!(
                server.post(&[("origin", origin)], &initialize_request()).await.status,
                403,
                "{origin}"
            );
        }
        let named = format!("localhost:{}", server.address.port());
        assert_eq!(server.post(&[("host", &named)], &initialize_request()).await.status, 200);
    });
}

#[test]
fn unknown_and_deleted_sessions_are_refused() {
    runtime().block_on(async {
        let server = HttpServer::start(Vec::new(), Limits::default()).await;
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
        assert_eq!(server.post(&[("mcp-session-id", "none")], &list).await.status, 404);
        let without = server.post(&[], &list).await.status;
        assert!((400..500).contains(&without), "{without}");
        let id = server.initialize().await;
        assert_eq!(server.send("DELETE", &[("mcp-session-id", &id)], "").await.status, 200);
        assert_eq!(server.post(&[("mcp-session-id", &id)], &list).await.status, 404);
    });
}

#[test]
fn unreadable_requests_are_refused_and_the_next_is_answered() {
    runtime().block_on(async {
        let server = HttpServer::start(Vec::new(), Limits { body: 5 * SHORT, ..Limits::default() }).await;
        let id = server.initialize().await;
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"heartbeat","arguments":{{"x":{deep}}}}}}}"#
        );
        let huge = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "report_error", "arguments": {"text": "x".repeat(5 << 20)}}})
        .to_string();
        for (body, wrong) in [("nonsense", 415), (r#"{"jsonrpc":"#, 415), ("", 415), (&deep, 415), (&huge, 413)] {
            // The server may close the connection of an oversized request before the client has read the response.
            let mut stream = server.connect().await;
            let head = server.head("POST", &[("mcp-session-id", &id)], body.len());
            let written = stream.write_all((head + body).as_bytes()).await.is_ok();
            match read(stream).await {
                Some(response) => assert_eq!(response.status, wrong, "{response:?}"),
                None => assert!(!written || wrong == 413, "no answer to {:.40}", body),
            }
        }
        // Half a body.
        let mut stream = server.connect().await;
        stream.write_all((server.head("POST", &[], 100) + "{\"jsonrpc\"").as_bytes()).await.unwrap();
        assert_eq!(read(stream).await.unwrap().status, 408);
        // Half a head, then the client disconnects.
        let mut stream = server.connect().await;
        stream.write_all(b"POST /mcp HTT").await.unwrap();
        drop(stream);
        for (path, wrong) in [("/", 404), ("/v1/mcp", 404)] {
            let mut stream = server.connect().await;
            let head = server.head("POST", &[], 2).replacen("/mcp", path, 1);
            stream.write_all((head + "{}").as_bytes()).await.unwrap();
            assert_eq!(read(stream).await.unwrap().status, wrong, "{path}");
        }
        for (tool, arguments, wrong) in
            [("no_such_tool", json!({}), "unknown tool"), ("save_artifact", json!({"name": "../x", "content": ""}), "not a path")]
        {
            let refused = server.call(&id, tool, arguments).await;
            assert!(refused["error"]["message"].as_str().unwrap_or_default().contains(wrong), "{refused}");
        }
        assert_eq!(tool_result(&server.call(&id, "heartbeat", json!({})).await).0, "Alive. This does not count as progress.");
    });
}

#[test]
fn excess_connections_get_503_until_one_closes() {
    runtime().block_on(async {
        let server = HttpServer::start(Vec::new(), Limits { connections: 2, ..Limits::default() }).await;
        let held = [server.connect().await, server.connect().await];
        let turned_away = read(server.connect().await).await.unwrap();
        assert_eq!(turned_away.status, 503);
        drop(held);
        let again = async {
            while server.post(&[], &initialize_request()).await.status == 503 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, again).await.expect("a connection is accepted again");
    });
}

#[test]
fn an_idle_connection_is_closed() {
    runtime().block_on(async {
        let server = HttpServer::start(Vec::new(), Limits { head: SHORT, ..Limits::default() }).await;
        let began = Instant::now();
        let mut stream = server.connect().await;
        stream.write_all(b"POST /mcp HTTP/1.1\r\nhost: ").await.unwrap();
        let _ = read(stream).await;
        assert!(began.elapsed() >= SHORT, "{:?}", began.elapsed());
    });
}

#[test]
fn an_idle_session_is_closed() {
    runtime().block_on(async {
        let server = HttpServer::start(Vec::new(), Limits { silence: 10 * SHORT, ..Limits::default() }).await;
        let id = server.initialize().await;
        // Closing the session closes its open stream.
        let mut stream = server.connect().await;
        stream.write_all(server.head("GET", &[("mcp-session-id", &id)], 0).as_bytes()).await.unwrap();
        assert_eq!(read(stream).await.unwrap().status, 200);
        let message = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
        let gone = async {
            while server.post(&[("mcp-session-id", &id)], &message).await.status != 404 {
                tokio::time::sleep(2 * SHORT).await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.expect("the session is closed");
        server.initialize().await;
    });
}

#[test]
fn the_longest_idle_session_is_closed_to_make_room() {
    runtime().block_on(async {
        let limits = Limits { sessions: 2, ..Limits::default() };
        let server = HttpServer::start(Vec::new(), limits).await;
        let [first, second] = [server.initialize().await, server.initialize().await];
        assert_eq!(
            tool_result(&server.call(&first, "heartbeat", json!({})).await).0,
            "Alive. This does not count as progress."
        );
        // There is room for two, and the second has been idle longer than the first.
        let third = server.initialize().await;
        for (id, alive) in [(&first, true), (&second, false), (&third, true)] {
            let message = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
            let status = server.post(&[("mcp-session-id", id)], &message).await.status;
            assert_eq!(status == 200, alive, "{status}");
        }
    });
}

#[test]
fn a_client_that_stops_reading_is_disconnected() {
    runtime().block_on(async {
        let server = HttpServer::start(
            vec![server("files", "good", MINUTE)],
            Limits { write: SHORT, connections: 1, ..Limits::default() },
        )
        .await;
        let id = server.initialize().await;
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
        server.post(&[("mcp-session-id", &id)], &list).await;
        // A response that exceeds the socket buffers and that the client does not read. It uses the only connection.
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"name": "large", "arguments": {"bytes": 12 << 20}}})
        .to_string();
        let mut stuck = server.connect().await;
        let head = server.head("POST", &[("mcp-session-id", &id)], message.len());
        stuck.write_all((head + &message).as_bytes()).await.unwrap();
        let free = async {
            while server.post(&[], &initialize_request()).await.status != 200 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, free).await.expect("the slot is free again");
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stuck.read_to_end(&mut rest)).await.expect("is closed");
        assert!(rest.len() < 12 << 20, "it was cut off");
    });
}

#[test]
fn a_client_that_disconnects_during_a_call_does_not_affect_others() {
    runtime().block_on(async {
        let server = HttpServer::start(vec![server("files", "good", MINUTE)], Limits::default()).await;
        let id = server.initialize().await;
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
        server.post(&[("mcp-session-id", &id)], &list).await;
        let message = json!({"jsonrpc": "2.0", "id": 77, "method": "tools/call",
            "params": {"name": "hang", "arguments": {}}})
        .to_string();
        let mut gone = server.connect().await;
        let head = server.head("POST", &[("mcp-session-id", &id)], message.len());
        gone.write_all((head + &message).as_bytes()).await.unwrap();
        server.run.wait_for(|s| s["say"] == "call" && s["tool"] == "hang" && s["phase"] == "start").await;
        drop(gone);
        assert_eq!(
            tool_result(&server.call(&id, "echo", json!({"text": "x"})).await),
            ("x".to_owned(), false)
        );
        // The session still exists, so its client can cancel the call.
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}});
        assert_eq!(server.post(&[("mcp-session-id", &id)], &cancel).await.status, 202);
        server.run.wait_for(|s| s["say"] == "call" && s["tool"] == "hang" && s["phase"] == "end").await;
    });
}

#[test]
fn server_exits_when_the_session_file_is_removed() {
    runtime().block_on(async {
        let server = HttpServer::start(Vec::new(), Limits::default()).await;
        let id = server.initialize().await;
        // A client keeps an event stream open, as usual.
        let mut stream = server.connect().await;
        stream.write_all(server.head("GET", &[("mcp-session-id", &id)], 0).as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        let HttpServer { file, serving, address, .. } = server;
        std::fs::remove_file(&file).unwrap();
        let ended = tokio::time::timeout(PATIENCE, serving).await.expect("it ends");
        ended.unwrap().unwrap();
        assert!(tokio::net::TcpStream::connect(address).await.is_err(), "the port is closed");
    });
}

#[test]
fn server_exits_when_the_run_reports_the_session_over() {
    runtime().block_on(async {
        let server = HttpServer::start(Vec::new(), Limits::default()).await;
        let id = server.initialize().await;
        *server.run.over.lock().unwrap() = true;
        let (text, failed) = tool_result(&server.call(&id, "report_progress", json!({"message": "x"})).await);
        assert!(failed && text.starts_with("dogwatch refuses: this session is over"), "{text}");
        let ended = tokio::time::timeout(PATIENCE, server.serving).await.expect("it ends");
        ended.unwrap().unwrap();
    });
}
