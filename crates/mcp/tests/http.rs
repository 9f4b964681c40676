//! The server over HTTP, with real sockets: who may speak to it, what is contained, and that it ends with its
//! session.
#![allow(clippy::unwrap_used)]

mod support;

use dogwatch_mcp::http::Limits;
use serde_json::json;
use std::time::{Duration, Instant};
use support::http::{Door, hello, read};
use support::{PATIENCE, runtime, said, server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MINUTE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

#[test]
fn an_agent_that_takes_a_url_says_what_it_does() {
    runtime().block_on(async {
        let door = Door::open(vec![server("files", "good", MINUTE)], Limits::default()).await;
        let id = door.greet().await;
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
        let listed = door.post(&[("mcp-session-id", &id)], &list).await.answer();
        let names: Vec<&str> = listed["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert!(names.contains(&"report_progress") && names.contains(&"echo"), "{names:?}");
        let told = door.call(&id, "report_progress", json!({"message": "half of it"})).await;
        assert_eq!(said(&told), ("Noted.".to_owned(), false));
        door.run.wait_for(|s| s["say"] == "progress" && s["message"] == "half of it").await;
        let echoed = door.call(&id, "echo", json!({"text": "hello"})).await;
        assert_eq!(said(&echoed), ("hello".to_owned(), false));
        assert!(door.run.keys.lock().unwrap().iter().all(|key| key == "Bearer key"));
    });
}

#[test]
fn a_client_of_the_newest_protocol_needs_no_greeting() {
    runtime().block_on(async {
        let door = Door::open(Vec::new(), Limits::default()).await;
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}});
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"name": "heartbeat", "arguments": {}, "_meta": meta}});
        let headers =
            [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "heartbeat")];
        let told = door.post(&headers, &message).await;
        assert_eq!(said(&told.answer()).0, "Alive. This does not count as progress.", "{told:?}");
    });
}

// promise: 14
#[test]
fn who_has_not_the_key_of_this_session_is_refused_before_anything_is_read() {
    runtime().block_on(async {
        let door = Door::open(Vec::new(), Limits::default()).await;
        for wrong in ["-", "Bearer", "Bearer wrong", "Basic key", "key", "Bearer key2"] {
            let told = door.post(&[("authorization", wrong)], &hello()).await;
            assert_eq!(told.status, 401, "{wrong}");
            assert_eq!(told.headers["www-authenticate"], "Bearer");
            assert!(told.body.contains("DOGWATCH_TOKEN") && !told.body.contains("Bearer key\""), "{told:?}");
        }
        // Nothing of a body is waited for.
        let mut stream = door.connect().await;
        stream.write_all(door.head("POST", &[("authorization", "-")], 1_000_000).as_bytes()).await.unwrap();
        assert_eq!(read(stream).await.unwrap().status, 401);
        assert_eq!(door.run.said().len(), 0);
    });
}

// promise: 14
#[test]
fn requests_for_other_hosts_and_from_pages_are_refused_with_the_key_too() {
    runtime().block_on(async {
        let door = Door::open(Vec::new(), Limits::default()).await;
        for host in ["evil.example", "127.0.0.1:1", "localhost"] {
            assert_eq!(door.post(&[("host", host)], &hello()).await.status, 403, "{host}");
        }
        for origin in ["http://evil.example", "null", "https://localhost"] {
            assert_eq!(door.post(&[("origin", origin)], &hello()).await.status, 403, "{origin}");
        }
        let named = format!("localhost:{}", door.address.port());
        assert_eq!(door.post(&[("host", &named)], &hello()).await.status, 200);
    });
}

#[test]
fn an_unknown_session_is_refused_and_one_that_has_left_is_unknown() {
    runtime().block_on(async {
        let door = Door::open(Vec::new(), Limits::default()).await;
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
        assert_eq!(door.post(&[("mcp-session-id", "none")], &list).await.status, 404);
        let without = door.post(&[], &list).await.status;
        assert!((400..500).contains(&without), "{without}");
        let id = door.greet().await;
        assert_eq!(door.send("DELETE", &[("mcp-session-id", &id)], "").await.status, 200);
        assert_eq!(door.post(&[("mcp-session-id", &id)], &list).await.status, 404);
    });
}

#[test]
fn what_cannot_be_read_is_refused_and_the_next_is_answered() {
    runtime().block_on(async {
        let door = Door::open(Vec::new(), Limits { body: 5 * SHORT, ..Limits::default() }).await;
        let id = door.greet().await;
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"heartbeat","arguments":{{"x":{deep}}}}}}}"#
        );
        let huge = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "report_error", "arguments": {"text": "x".repeat(5 << 20)}}})
        .to_string();
        for (body, wrong) in [("nonsense", 415), (r#"{"jsonrpc":"#, 415), ("", 415), (&deep, 415), (&huge, 413)] {
            // One that is too large may be cut off before its answer was read.
            let mut stream = door.connect().await;
            let head = door.head("POST", &[("mcp-session-id", &id)], body.len());
            let written = stream.write_all((head + body).as_bytes()).await.is_ok();
            match read(stream).await {
                Some(told) => assert_eq!(told.status, wrong, "{told:?}"),
                None => assert!(!written || wrong == 413, "no answer to {:.40}", body),
            }
        }
        // Half a body, and then nothing.
        let mut stream = door.connect().await;
        stream.write_all((door.head("POST", &[], 100) + "{\"jsonrpc\"").as_bytes()).await.unwrap();
        assert_eq!(read(stream).await.unwrap().status, 408);
        // Half a head, and gone.
        let mut stream = door.connect().await;
        stream.write_all(b"POST /mcp HTT").await.unwrap();
        drop(stream);
        for (path, wrong) in [("/", 404), ("/v1/mcp", 404)] {
            let mut stream = door.connect().await;
            let head = door.head("POST", &[], 2).replacen("/mcp", path, 1);
            stream.write_all((head + "{}").as_bytes()).await.unwrap();
            assert_eq!(read(stream).await.unwrap().status, wrong, "{path}");
        }
        for (tool, arguments, wrong) in
            [("no_such_tool", json!({}), "there is no tool"), ("save_artifact", json!({"name": "../x", "content": ""}), "not a path")]
        {
            let refused = door.call(&id, tool, arguments).await;
            assert!(refused["error"]["message"].as_str().unwrap_or_default().contains(wrong), "{refused}");
        }
        assert_eq!(said(&door.call(&id, "heartbeat", json!({})).await).0, "Alive. This does not count as progress.");
    });
}

#[test]
fn a_full_door_says_so_and_lets_in_again() {
    runtime().block_on(async {
        let door = Door::open(Vec::new(), Limits { connections: 2, ..Limits::default() }).await;
        let held = [door.connect().await, door.connect().await];
        let turned_away = read(door.connect().await).await.unwrap();
        assert_eq!(turned_away.status, 503);
        drop(held);
        let again = async {
            while door.post(&[], &hello()).await.status == 503 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, again).await.expect("lets in again");
    });
}

#[test]
fn a_connection_that_says_nothing_is_closed() {
    runtime().block_on(async {
        let door = Door::open(Vec::new(), Limits { head: SHORT, ..Limits::default() }).await;
        let began = Instant::now();
        let mut stream = door.connect().await;
        stream.write_all(b"POST /mcp HTTP/1.1\r\nhost: ").await.unwrap();
        let _ = read(stream).await;
        assert!(began.elapsed() >= SHORT, "{:?}", began.elapsed());
    });
}

#[test]
fn a_client_that_is_silent_for_too_long_is_ended() {
    runtime().block_on(async {
        let door = Door::open(Vec::new(), Limits { silence: 10 * SHORT, ..Limits::default() }).await;
        let id = door.greet().await;
        // A stream that is open is closed with its session.
        let mut stream = door.connect().await;
        stream.write_all(door.head("GET", &[("mcp-session-id", &id)], 0).as_bytes()).await.unwrap();
        assert_eq!(read(stream).await.unwrap().status, 200);
        let message = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
        let gone = async {
            while door.post(&[("mcp-session-id", &id)], &message).await.status != 404 {
                tokio::time::sleep(2 * SHORT).await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.expect("it is ended");
        door.greet().await;
    });
}

#[test]
fn where_many_have_greeted_the_one_that_is_silent_longest_goes() {
    runtime().block_on(async {
        let limits = Limits { sessions: 2, ..Limits::default() };
        let door = Door::open(Vec::new(), limits).await;
        let [first, second] = [door.greet().await, door.greet().await];
        assert_eq!(
            said(&door.call(&first, "heartbeat", json!({})).await).0,
            "Alive. This does not count as progress."
        );
        // There is room for two: the second was silent longer than the first.
        let third = door.greet().await;
        for (id, alive) in [(&first, true), (&second, false), (&third, true)] {
            let message = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
            let status = door.post(&[("mcp-session-id", id)], &message).await.status;
            assert_eq!(status == 200, alive, "{status}");
        }
    });
}

#[test]
fn a_caller_who_does_not_read_is_given_up() {
    runtime().block_on(async {
        let door = Door::open(
            vec![server("files", "good", MINUTE)],
            Limits { write: SHORT, connections: 1, ..Limits::default() },
        )
        .await;
        let id = door.greet().await;
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
        door.post(&[("mcp-session-id", &id)], &list).await;
        // An answer that fits no socket's buffer, and nobody takes it. It is alone at the door.
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"name": "large", "arguments": {"bytes": 12 << 20}}})
        .to_string();
        let mut stuck = door.connect().await;
        let head = door.head("POST", &[("mcp-session-id", &id)], message.len());
        stuck.write_all((head + &message).as_bytes()).await.unwrap();
        let free = async {
            while door.post(&[], &hello()).await.status != 200 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, free).await.expect("its place is free again");
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stuck.read_to_end(&mut rest)).await.expect("is closed");
        assert!(rest.len() < 12 << 20, "it was cut off");
    });
}

#[test]
fn a_client_that_vanishes_in_a_call_costs_the_others_nothing() {
    runtime().block_on(async {
        let door = Door::open(vec![server("files", "good", MINUTE)], Limits::default()).await;
        let id = door.greet().await;
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
        door.post(&[("mcp-session-id", &id)], &list).await;
        let message = json!({"jsonrpc": "2.0", "id": 77, "method": "tools/call",
            "params": {"name": "hang", "arguments": {}}})
        .to_string();
        let mut gone = door.connect().await;
        let head = door.head("POST", &[("mcp-session-id", &id)], message.len());
        gone.write_all((head + &message).as_bytes()).await.unwrap();
        door.run.wait_for(|s| s["say"] == "call" && s["tool"] == "hang" && s["phase"] == "start").await;
        drop(gone);
        assert_eq!(said(&door.call(&id, "echo", json!({"text": "x"})).await), ("x".to_owned(), false));
        // It is known by its id, and may still take the call back.
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}});
        assert_eq!(door.post(&[("mcp-session-id", &id)], &cancel).await.status, 202);
        door.run.wait_for(|s| s["say"] == "call" && s["tool"] == "hang" && s["phase"] == "end").await;
    });
}

#[test]
fn it_ends_with_its_session() {
    runtime().block_on(async {
        let door = Door::open(Vec::new(), Limits::default()).await;
        let id = door.greet().await;
        // Somebody listens for news, as clients do.
        let mut stream = door.connect().await;
        stream.write_all(door.head("GET", &[("mcp-session-id", &id)], 0).as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        let Door { file, serving, address, .. } = door;
        std::fs::remove_file(&file).unwrap();
        let ended = tokio::time::timeout(PATIENCE, serving).await.expect("it ends");
        ended.unwrap().unwrap();
        assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens any more");
    });
}

#[test]
fn it_ends_when_the_run_says_that_the_session_is_over() {
    runtime().block_on(async {
        let door = Door::open(Vec::new(), Limits::default()).await;
        let id = door.greet().await;
        *door.run.over.lock().unwrap() = true;
        let (text, failed) = said(&door.call(&id, "report_progress", json!({"message": "x"})).await);
        assert!(failed && text.starts_with("dogwatch refuses: this session is over"), "{text}");
        let ended = tokio::time::timeout(PATIENCE, door.serving).await.expect("it ends");
        ended.unwrap().unwrap();
    });
}
