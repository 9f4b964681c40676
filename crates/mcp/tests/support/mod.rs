//! Test support: a fake run that answers requests, an agent client, and servers that misbehave.
#![allow(dead_code, clippy::unwrap_used)]

pub mod http;
pub mod remote_server;

use dogwatch_core::record::ids::{Iteration, NodeName, RunId};
use dogwatch_core::run::agent_channel::AgentRequest;
use dogwatch_core::settings::{McpPlace, McpServer};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use dogwatch_host::driver::mcp_setup::{Pinned, SessionFile};
use dogwatch_mcp::limits::MAX_ASKED;
use dogwatch_mcp::wire::{Peer, Wire};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::net::UnixListener;

/// A timeout that is long enough on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The run's end of the socket: records every request and answers it.
#[derive(Clone, Default)]
pub struct FakeRun {
    pub requests: Arc<Mutex<Vec<AgentRequest>>>,
    pub keys: Arc<Mutex<Vec<String>>>,
    /// Whether to answer that the session is over.
    pub over: Arc<Mutex<bool>>,
}

impl FakeRun {
    pub fn requests(&self) -> Vec<Value> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|request| serde_json::to_value(&request.body).unwrap()).collect()
    }

    /// Waits for a matching request.
    pub async fn wait_for(&self, wanted: impl Fn(&Value) -> bool) {
        let arrived = async {
            while !self.requests().iter().any(&wanted) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, arrived).await.expect("the request arrives");
    }

    async fn serve(self, listener: UnixListener) {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(self.clone().handle_connection(BufReader::new(stream)));
        }
    }

    async fn handle_connection(self, mut stream: BufReader<tokio::net::UnixStream>) -> Option<()> {
        loop {
            let mut length = 0;
            loop {
                let mut line = String::new();
                if stream.read_line(&mut line).await.ok()? == 0 {
                    return None;
                }
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.trim().parse().ok()?;
                }
                if let Some(key) = line.strip_prefix("authorization: ") {
                    self.keys.lock().unwrap().push(key.trim().to_owned());
                }
                if line == "\r\n" {
                    break;
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.ok()?;
            let request: AgentRequest = serde_json::from_slice(&body).ok()?;
            let said = serde_json::to_value(&request.body).unwrap();
            self.requests.lock().unwrap().push(request);
            if *self.over.lock().unwrap() {
                let body = r#"{"error":{"code":"session_over","message":"this session is over"}}"#;
                let head = format!("HTTP/1.1 409 Conflict\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all((head + body).as_bytes()).await.ok()?;
                continue;
            }
            let answer = match said["say"].as_str().unwrap() {
                "artifact" | "check_done" => json!({"answer": "granted"}),
                "what_failed" => json!({"answer": "failed", "text": "Nothing has failed."}),
                say => json!({"answer": "noted", "evidence": say != "heartbeat"}),
            };
            let body = answer.to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).await.ok()?;
        }
    }
}

/// The agent's end of the connection.
pub struct Agent {
    write: WriteHalf<DuplexStream>,
    read: BufReader<ReadHalf<DuplexStream>>,
    next: u64,
    pub run: FakeRun,
    pub dir: tempfile::TempDir,
    /// Notifications that arrived between responses.
    pub notes: Vec<Value>,
}

pub fn server(name: &str, mode: &str, timeout: Duration) -> McpServer {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/server.py");
    McpServer {
        name: name.to_owned(),
        place: McpPlace::Command(["python3", script, mode, "LOG"].map(str::to_owned).into()),
        timeout: Dur::from_millis(u64::try_from(timeout.as_millis()).unwrap()),
        headers: Vec::new(),
        tools: Vec::new(),
        restart_after: 2,
    }
}

/// Creates a session with servers and checks in a directory, and starts its fake run.
pub fn session(
    dir: &std::path::Path,
    mut servers: Vec<McpServer>,
    checks: &[&str],
) -> (SessionFile, FakeRun) {
    for server in &mut servers {
        if let McpPlace::Command(argv) = &mut server.place {
            let log = dir.join(format!("{}.log", server.name)).display().to_string();
            argv.iter_mut().filter(|word| *word == "LOG").for_each(|word| word.clone_from(&log));
        }
    }
    let session = SessionFile {
        socket: dir.join("socket"),
        run: RunId::new(Wall(0), [0; 4]),
        node: NodeName::new("loop"),
        iteration: Iteration(3),
        token: "key".to_owned(),
        work_dir: dir.to_owned(),
        artifacts: dir.join("artifacts"),
        servers,
        checks: checks.iter().map(|c| (*c).to_owned()).collect(),
        check_timeout: Dur::from_secs(30),
        pinned: None,
    };
    let run = FakeRun::default();
    tokio::spawn(run.clone().serve(UnixListener::bind(&session.socket).unwrap()));
    (session, run)
}

impl Agent {
    /// Starts an initialized session with servers and checks.
    pub async fn start(servers: Vec<McpServer>, checks: &[&str]) -> Agent {
        Agent::start_in(tempfile::tempdir().unwrap(), servers, checks, None).await
    }

    /// Like `start`, in an existing work tree with pinned files.
    pub async fn start_in(
        dir: tempfile::TempDir,
        servers: Vec<McpServer>,
        checks: &[&str],
        pinned: Option<Pinned>,
    ) -> Agent {
        let mut agent = Agent::start_without_initialize(dir, servers, checks, pinned);
        let initialize_request = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}});
        agent.ask("initialize", initialize_request).await;
        agent.put(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string()).await;
        agent
    }

    /// Like `start_in`, without the first request.
    pub fn start_without_initialize(
        dir: tempfile::TempDir,
        servers: Vec<McpServer>,
        checks: &[&str],
        pinned: Option<Pinned>,
    ) -> Agent {
        let (mut session, run) = session(dir.path(), servers, checks);
        session.pinned = pinned;
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (read, write) = tokio::io::split(theirs);
        tokio::spawn(dogwatch_mcp::serve_on(session, Wire::new(read, write, Peer::Agent, MAX_ASKED)));
        let (read, write) = tokio::io::split(ours);
        Agent { write, read: BufReader::new(read), next: 0, run, dir, notes: Vec::new() }
    }

    pub async fn put(&mut self, line: &str) {
        self.write.write_all(line.as_bytes()).await.unwrap();
        self.write.write_all(b"\n").await.unwrap();
    }

    /// Sends a request and returns its id.
    pub async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.put(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()).await;
        id
    }

    /// Returns the response to a request.
    pub async fn answer(&mut self, id: u64) -> Value {
        loop {
            let mut line = String::new();
            let read = tokio::time::timeout(PATIENCE, self.read.read_line(&mut line)).await;
            assert!(read.expect("an answer in time").unwrap() > 0, "the server has exited");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == json!(id) {
                return message;
            }
            self.notes.push(message);
        }
    }

    pub async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    pub async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    pub async fn tools(&mut self) -> Vec<String> {
        let listed = self.ask("tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    pub fn log(&self, server: &str) -> String {
        std::fs::read_to_string(self.log_file(server)).unwrap_or_default()
    }

    fn log_file(&self, server: &str) -> PathBuf {
        self.dir.path().join(format!("{server}.log"))
    }
}

/// Returns the text of a tool result, and whether it is an error.
pub fn tool_result(answer: &Value) -> (String, bool) {
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or("").to_owned();
    (text, answer["result"]["isError"] == json!(true))
}
