//! A blocking HTTP client for the API, without an async runtime. It opens one connection per request.

mod body;

use body::Body;
use dogwatch_host::store::socket;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the client waits for the next piece of a response.
const PATIENCE: Duration = Duration::from_secs(10);
/// The largest response head.
const MAX_HEAD: u64 = 32 * 1024;
/// The largest response that is read into memory; larger ones are streamed.
const MAX_BODY: u64 = 16 * 1024 * 1024;
/// The longest line of a stream: the longest line of the journal plus the field name.
const MAX_FIELD: u64 = dogwatch_host::store::journal::MAX_LINE as u64 + 1024;

/// A client for the API on a Unix socket.
pub struct Client {
    socket: PathBuf,
    patience: Duration,
    /// The connection made by `connect`, used for the first request.
    first: Option<UnixStream>,
}

/// A complete response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The content type.
    pub content_type: String,
    /// The body.
    pub body: Vec<u8>,
}

/// One server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The sequence number of the event.
    pub id: Option<u64>,
    /// The kind of message.
    pub event: String,
    /// The data of the message.
    pub data: String,
}

impl Client {
    /// Connects to `socket`. Fails if no process listens there.
    pub fn connect(socket: &Path) -> io::Result<Client> {
        Client::connect_within(socket, PATIENCE)
    }

    /// Connects like `connect`, but waits at most `patience` for each piece of a response.
    pub fn connect_within(socket: &Path, patience: Duration) -> io::Result<Client> {
        let first = Some(socket::connect(socket, patience)?);
        Ok(Client { socket: socket.to_owned(), patience, first })
    }

    /// Sends a GET request.
    pub fn get(&mut self, path: &str) -> io::Result<Response> {
        self.ask("GET", path, "", b"")?.whole()
    }

    /// Sends a POST request with a JSON body.
    pub fn post(&mut self, path: &str, json: &impl Serialize) -> io::Result<Response> {
        let body = serde_json::to_vec(json)?;
        self.ask("POST", path, "content-type: application/json\r\n", &body)?.whole()
    }

    /// Sends a DELETE request.
    pub fn delete(&mut self, path: &str) -> io::Result<Response> {
        self.ask("DELETE", path, "", b"")?.whole()
    }

    /// Follows the events at `path`. Ends when the run does, or with an error when the connection is lost.
    pub fn stream(&mut self, path: &str) -> io::Result<Events> {
        let answer = self.ask("GET", path, "accept: text/event-stream\r\n", b"")?;
        if answer.status != 200 || !answer.content_type.starts_with("text/event-stream") {
            let said = answer.whole()?.message();
            return Err(io::Error::other(said));
        }
        // Any time may pass between two events.
        answer.body.get_ref().set_read_timeout(None)?;
        Ok(Events { lines: BufReader::new(answer.body), over: false })
    }

    fn ask(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> io::Result<HttpResponse> {
        let sane = path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic());
        if !sane {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("not a request path: `{path}`")));
        }
        let stream = match self.first.take() {
            Some(stream) => stream,
            None => socket::connect(&self.socket, self.patience)?,
        };
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
        let length = body.len();
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nhost: dogwatch\r\nconnection: close\r\n\
             content-length: {length}\r\n{headers}\r\n"
        )
        .into_bytes();
        request.extend_from_slice(body);
        // A server without a free connection answers without reading. The response may be there even if the write
        // failed.
        let written = (&stream).write_all(&request);
        match HttpResponse::read(BufReader::new(stream)) {
            Ok(answer) => Ok(answer),
            Err(error) => Err(written.err().unwrap_or(error)),
        }
    }
}

/// A response whose body has not been read yet.
struct HttpResponse {
    status: u16,
    content_type: String,
    body: Body,
}

impl HttpResponse {
    fn read(mut from: BufReader<UnixStream>) -> io::Result<HttpResponse> {
        let mut head = (&mut from).take(MAX_HEAD);
        let status = status_of(&line(&mut head)?).ok_or_else(|| bad("no status line"))?;
        let (mut length, mut chunked, mut content_type) = (None, false, String::new());
        loop {
            let line = line(&mut head)?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| bad("header without a colon"))?;
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = Some(value.parse().map_err(|_| bad("a bad content-length"))?),
                "transfer-encoding" => chunked = value.eq_ignore_ascii_case("chunked"),
                "content-type" => content_type = value.to_owned(),
                _ => {}
            }
        }
        let body = match (chunked, length) {
            (true, _) => Body::chunked(from),
            (false, Some(length)) => Body::of_length(from, length),
            (false, None) => Body::to_end(from),
        };
        Ok(HttpResponse { status, content_type, body })
    }

    fn whole(self) -> io::Result<Response> {
        let mut body = Vec::new();
        self.body.take(MAX_BODY + 1).read_to_end(&mut body)?;
        if body.len() as u64 > MAX_BODY {
            return Err(bad("response larger than 16 MiB"));
        }
        Ok(Response { status: self.status, content_type: self.content_type, body })
    }
}

impl Response {
    /// Returns whether the request succeeded.
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Parses the body as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> io::Result<T> {
        Ok(serde_json::from_slice(&self.body)?)
    }

    /// Returns the error message of a refused request.
    pub fn message(&self) -> String {
        let said: Option<serde_json::Value> = serde_json::from_slice(&self.body).ok();
        match said.as_ref().and_then(|v| v["error"]["message"].as_str()) {
            Some(message) => message.to_owned(),
            None => format!("request refused with status {}", self.status),
        }
    }
}

/// The events of a stream, in order of arrival.
pub struct Events {
    lines: BufReader<Body>,
    over: bool,
}

impl Iterator for Events {
    type Item = io::Result<SseEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.read_event().transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}

impl Events {
    fn read_event(&mut self) -> io::Result<Option<SseEvent>> {
        let mut event = SseEvent::default();
        loop {
            let Some(line) = field(&mut self.lines)? else { return Ok(None) };
            match line.split_once(':').map(|(name, value)| (name, value.strip_prefix(' ').unwrap_or(value))) {
                Some(("id", value)) => event.id = value.parse().ok(),
                Some(("event", value)) => event.event = value.to_owned(),
                Some(("data", value)) => event.data = value.to_owned(),
                // A block without data is a comment or a retry interval, not an event.
                None if line.is_empty() && !event.data.is_empty() => return Ok(Some(event)),
                Some(_) | None => {}
            }
        }
    }
}

/// Reads a line of a stream without its line ending; `None` at the end of the stream.
fn field(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let read = from.take(MAX_FIELD).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        return Err(bad("line too long or unterminated"));
    }
    String::from_utf8(line).map(Some).map_err(|_| bad("line is not valid UTF-8"))
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None if line.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        None => Err(bad("head too large or incomplete")),
    }
}

fn status_of(line: &str) -> Option<u16> {
    line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected response from dogwatch: {what}"))
}
