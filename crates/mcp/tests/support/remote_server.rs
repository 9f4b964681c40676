//! A remote MCP server that misbehaves on purpose, depending on its mode.

use dogwatch_core::settings::{McpPlace, McpServer};
use dogwatch_core::time::dur::Dur;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each response is a JSON document.
    Json,
    /// Each response is an event stream.
    Events,
    /// Thousands of events precede the result of a call.
    Flood,
    /// Reads requests and never answers.
    Silent,
    /// Answers with an HTML page.
    Page,
    /// Answers with invalid JSON.
    Nonsense,
    /// Sends an event that never ends.
    Endless,
    /// Sends invalid events without end.
    Garbage,
    /// Answers with 401.
    Locked,
    /// Answers with a redirect.
    Redirects,
}

#[derive(Clone)]
pub struct RemoteServer {
    pub port: u16,
    mode: Mode,
    /// Every received message, with its request head.
    pub received: Arc<Mutex<Vec<(String, Value)>>>,
    /// The only valid session number.
    session: Arc<Mutex<u64>>,
    serving: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl RemoteServer {
    pub async fn start(mode: Mode) -> RemoteServer {
        RemoteServer::start_at(mode, 0).await
    }

    pub async fn start_at(mode: Mode, port: u16) -> RemoteServer {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let remote = RemoteServer {
            port,
            mode,
            received: Arc::default(),
            session: Arc::default(),
            serving: Arc::default(),
        };
        let serving = tokio::spawn(remote.clone().serve(listener));
        *remote.serving.lock().unwrap() = Some(serving);
        remote
    }

    /// Returns the server's entry in the settings.
    pub fn server(&self, name: &str, timeout: Duration) -> McpServer {
        McpServer {
            name: name.to_owned(),
            place: McpPlace::Url(format!("http://127.0.0.1:{}/mcp", self.port)),
            headers: Vec::new(),
            timeout: Dur::from_millis(u64::try_from(timeout.as_millis()).unwrap()),
            tools: Vec::new(),
            restart_after: 2,
        }
    }

    /// Returns how many requests with this method arrived.
    pub fn count(&self, method: &str) -> usize {
        self.received.lock().unwrap().iter().filter(|(_, message)| message["method"] == method).count()
    }

    /// Forgets all sessions.
    pub fn forget(&self) {
        *self.session.lock().unwrap() += 1_000;
    }

    pub fn stop(&self) {
        self.serving.lock().unwrap().take().unwrap().abort();
    }

    async fn serve(self, listener: TcpListener) {
        let mut callers = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            callers.spawn(self.clone().attend(BufReader::new(stream)));
        }
    }

    async fn attend(self, mut stream: BufReader<TcpStream>) -> Option<()> {
        loop {
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if stream.read_line(&mut line).await.ok()? == 0 {
                    return None;
                }
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.trim().parse().ok()?;
                }
                if line == "\r\n" {
                    break;
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.ok()?;
            let message: Value = serde_json::from_slice(&body).unwrap_or_default();
            self.received.lock().unwrap().push((head.clone(), message.clone()));
            self.answer(stream.get_mut(), &head, &message).await?;
        }
    }

    async fn answer(&self, out: &mut TcpStream, head: &str, message: &Value) -> Option<()> {
        let known = format!("mcp-session-id: s{}\r\n", self.session.lock().unwrap());
        let greets = message["method"] == "initialize";
        match self.mode {
            Mode::Silent => std::future::pending().await,
            Mode::Page => return whole(out, "200 OK", "text/html", "<html>log in first</html>").await,
            Mode::Nonsense => return whole(out, "200 OK", "application/json", "{\"jsonrpc\":").await,
            Mode::Locked => return whole(out, "401 Unauthorized", "text/plain", "no key").await,
            Mode::Redirects => {
                let there = "302 Found\r\nlocation: http://elsewhere.example/";
                return whole(out, there, "text/plain", "").await;
            }
            Mode::Endless | Mode::Garbage => {
                stream(out, "").await?;
                let bytes =
                    if self.mode == Mode::Endless { "x".repeat(65_536) } else { "data: x\n\n".repeat(5_000) };
                chunk(out, "data: ").await?;
                loop {
                    chunk(out, &bytes).await?;
                }
            }
            Mode::Json | Mode::Events | Mode::Flood => {}
        }
        if !greets && head.contains("mcp-session-id: ") && !head.contains(&known) {
            return whole(out, "404 Not Found", "text/plain", "who?").await;
        }
        if message.get("id").is_none() || message.get("method").is_none() {
            return whole(out, "202 Accepted", "text/plain", "").await;
        }
        if message["method"] == "tools/call" {
            return self.call(out, message).await;
        }
        let result = match message["method"].as_str().unwrap() {
            "initialize" => json!({"protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}}, "serverInfo": {"name": "remote", "version": "1"}}),
            _ => {
                let names = ["echo", "large", "hang", "late", "die", "refuse", "progress"];
                let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
                json!({"tools": names.iter().map(tool).collect::<Vec<_>>()})
            }
        };
        let extra = if greets { known } else { String::new() };
        self.respond(out, &extra, &json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).await
    }

    async fn call(&self, out: &mut TcpStream, message: &Value) -> Option<()> {
        let (id, arguments) = (&message["id"], &message["params"]["arguments"]);
        let text = match message["params"]["name"].as_str().unwrap() {
            "hang" => std::future::pending().await,
            "die" => return None,
            "late" => {
                tokio::time::sleep(Duration::from_millis(arguments["after_ms"].as_u64().unwrap())).await;
                "late".to_owned()
            }
            "refuse" => {
                let error = json!({"code": -32000, "message": "not today"});
                return self.respond(out, "", &json!({"jsonrpc": "2.0", "id": id, "error": error})).await;
            }
            "large" => "x".repeat(usize::try_from(arguments["bytes"].as_u64().unwrap()).unwrap()),
            "progress" => {
                let token = &message["params"]["_meta"]["progressToken"];
                let params = json!({"progressToken": token, "progress": 1, "total": 2, "message": "half"});
                let half = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
                stream(out, "").await?;
                event(out, &half).await?;
                event(out, &answer(id, "done")).await?;
                return chunk(out, "").await;
            }
            _ => arguments["text"].as_str().unwrap_or_default().to_owned(),
        };
        if self.mode == Mode::Flood {
            stream(out, "").await?;
            let note = json!({"jsonrpc": "2.0", "method": "notifications/message",
                "params": {"level": "info", "data": "x".repeat(200)}});
            for _ in 0..4_000 {
                event(out, &note).await?;
            }
            event(out, &answer(id, &text)).await?;
            return chunk(out, "").await;
        }
        self.respond(out, "", &answer(id, &text)).await
    }

    async fn respond(&self, out: &mut TcpStream, extra: &str, message: &Value) -> Option<()> {
        if self.mode == Mode::Json {
            let status = format!("200 OK\r\n{}", extra.trim_end());
            return whole(out, status.trim_end(), "application/json; charset=utf-8", &message.to_string())
                .await;
        }
        stream(out, extra).await?;
        chunk(out, ": a comment\n\n").await?;
        event(out, message).await?;
        chunk(out, "").await
    }
}

fn answer(id: &Value, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}})
}

async fn whole(out: &mut TcpStream, status: &str, kind: &str, body: &str) -> Option<()> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
    out.write_all((head + body).as_bytes()).await.ok()
}

async fn stream(out: &mut TcpStream, extra: &str) -> Option<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{extra}transfer-encoding: chunked\r\n\r\n"
    );
    out.write_all(head.as_bytes()).await.ok()
}

async fn event(out: &mut TcpStream, message: &Value) -> Option<()> {
    chunk(out, &format!("event: message\ndata: {message}\n\n")).await
}

/// Sends a chunk; an empty one ends the stream.
async fn chunk(out: &mut TcpStream, text: &str) -> Option<()> {
    out.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await.ok()
}
