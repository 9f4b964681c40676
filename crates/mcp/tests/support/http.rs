//! A hand-written HTTP client for the server, so that tests control every byte of a request.

use super::{FakeRun, PATIENCE, session};
use dogwatch_core::settings::McpServer;
use dogwatch_mcp::http::{Limits, serve_at};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A server under test with its fake run.
pub struct HttpServer {
    pub address: SocketAddr,
    pub run: FakeRun,
    pub dir: tempfile::TempDir,
    pub file: PathBuf,
    pub serving: JoinHandle<std::io::Result<()>>,
}

/// A complete response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Response {
    /// Returns the MCP messages of the response, from JSON or from an event stream.
    pub fn messages(&self) -> Vec<Value> {
        let lines = self.body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
        let events: Vec<Value> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
        if events.is_empty() { serde_json::from_str(&self.body).into_iter().collect() } else { events }
    }

    pub fn answer(&self) -> Value {
        self.messages().into_iter().find(|m| m.get("id").is_some()).unwrap_or_default()
    }
}

impl HttpServer {
    pub async fn start(servers: Vec<McpServer>, limits: Limits) -> HttpServer {
        let dir = tempfile::tempdir().unwrap();
        let (session, run) = session(dir.path(), servers, &[]);
        let file = dir.path().join("mcp.json");
        std::fs::write(&file, "{}").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let path = file.clone();
        let serving = tokio::spawn(async move { serve_at(session, &path, listener, limits, None).await });
        HttpServer { address, run, dir, file, serving }
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Returns a valid request head, with `more` headers added or replaced. The value `-` removes a header.
    pub fn head(&self, method: &str, more: &[(&str, &str)], length: usize) -> String {
        let address = self.address.to_string();
        let mut headers = vec![
            ("host", address.as_str()),
            ("authorization", "Bearer key"),
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("connection", "close"),
        ];
        headers.retain(|(name, _)| !more.iter().any(|(other, _)| other == name));
        headers.extend(more.iter().filter(|(_, value)| *value != "-"));
        let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!("{method} /mcp HTTP/1.1\r\n{lines}content-length: {length}\r\n\r\n")
    }

    pub async fn send(&self, method: &str, more: &[(&str, &str)], body: &str) -> Response {
        let mut stream = self.connect().await;
        let head = self.head(method, more, body.len());
        // The server may close the connection before it has read a refused body.
        let _ = stream.write_all((head + body).as_bytes()).await;
        read(stream).await.expect("an answer")
    }

    pub async fn post(&self, more: &[(&str, &str)], message: &Value) -> Response {
        self.send("POST", more, &message.to_string()).await
    }

    /// Initializes a session and returns its id.
    pub async fn initialize(&self) -> String {
        let response = self.post(&[], &initialize_request()).await;
        assert_eq!(response.status, 200, "{response:?}");
        let id = response.headers["mcp-session-id"].clone();
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(&[("mcp-session-id", &id)], &ready).await.status, 202);
        id
    }

    pub async fn call(&self, id: &str, tool: &str, arguments: Value) -> Value {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments}});
        self.post(&[("mcp-session-id", id)], &message).await.answer()
    }
}

pub fn initialize_request() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
        "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}})
}

/// Reads a response until the server closes the connection.
pub async fn read(mut stream: TcpStream) -> Option<Response> {
    let mut bytes = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("an end in time");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if text.is_empty() {
        drop(end);
        return None;
    }
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| line.split_once(": ").map(|(n, v)| (n.to_lowercase(), v.to_owned()));
    Some(Response { status, headers: lines.filter_map(header).collect(), body: body.to_owned() })
}
