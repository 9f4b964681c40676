//! The client for the run: sends the agent's reports over the run's socket, with the session's token.

use crate::bound::{TimeoutError, until, within};
use crate::limits::{MAX_NOTES, MAX_RUN_ANSWER, RUN_LIMIT};
use dogwatch_core::run::agent_channel::{AgentRequest, AgentResponse, RequestBody};
use dogwatch_host::driver::mcp_setup::SessionFile;
use dogwatch_host::store::socket;
use std::fmt;
use std::io;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

/// The largest response head, in bytes.
const MAX_HEAD: u64 = 8 * 1024;

/// The statuses with which a run refuses the token of a session that is over.
const KEY_REFUSED: u16 = 401;
const SESSION_OVER: u16 = 409;

/// Why a request to the run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// The run did not answer.
    NoAnswer(String),
    /// The run refused the request.
    Refused(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::NoAnswer(why) => write!(f, "dogwatch does not answer ({why})"),
            RunError::Refused(why) => write!(f, "dogwatch refuses: {why}"),
        }
    }
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> RunError {
        RunError::NoAnswer(error.to_string())
    }
}

impl From<TimeoutError> for RunError {
    fn from(late: TimeoutError) -> RunError {
        RunError::NoAnswer(late.to_string())
    }
}

/// A connection to the run of one session, and a queue of notes for it.
pub struct RunClient {
    session: SessionFile,
    /// The connection, kept open between calls.
    connection: Mutex<Option<BufReader<UnixStream>>>,
    notes: mpsc::Sender<RequestBody>,
    /// Canceled when the run reports that the session is over, or is gone.
    over: CancellationToken,
    /// Canceled when the agent has disconnected.
    finishing: CancellationToken,
}

impl RunClient {
    /// Creates the client of a session, and the queue that `forward_notes` reads.
    pub fn new(session: SessionFile) -> (RunClient, mpsc::Receiver<RequestBody>) {
        let (notes, queued) = mpsc::channel(MAX_NOTES);
        (
            RunClient {
                session,
                connection: Mutex::new(None),
                notes,
                over: CancellationToken::new(),
                finishing: CancellationToken::new(),
            },
            queued,
        )
    }

    /// Returns the session file.
    pub fn session(&self) -> &SessionFile {
        &self.session
    }

    /// Queues a note for the run without waiting. Drops the note if the queue is full.
    pub fn note(&self, body: RequestBody) {
        let _ = self.notes.try_send(body);
    }

    /// Sends a request and returns the run's answer.
    pub async fn request(&self, body: RequestBody) -> Result<AgentResponse, RunError> {
        let SessionFile { node, iteration, .. } = &self.session;
        let request = AgentRequest { node: node.clone(), iteration: *iteration, body };
        let body = serde_json::to_vec(&request).map_err(io::Error::from)?;
        let mut line = within(RUN_LIMIT, self.connection.lock()).await?;
        // The run may have closed the idle connection. If it fails, retry on a new one.
        if let Some(mut reused) = line.take()
            && let Ok(Ok(answer)) = within(RUN_LIMIT, self.exchange(&mut reused, &body)).await
        {
            *line = Some(reused);
            return answer;
        }
        let mut fresh = self.connect()?;
        let answer = within(RUN_LIMIT, self.exchange(&mut fresh, &body)).await??;
        *line = Some(fresh);
        answer
    }

    /// Completes when the run no longer accepts requests of this session.
    pub fn session_over(&self) -> impl Future<Output = ()> {
        self.over.clone().cancelled_owned()
    }

    /// Stops `forward_notes`. Notes that are still queued are sent first.
    pub fn finish(&self) {
        self.finishing.cancel();
    }

    fn connect(&self) -> io::Result<BufReader<UnixStream>> {
        let stream = socket::connect(&self.session.socket, RUN_LIMIT).inspect_err(|error| {
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) {
                self.over.cancel();
            }
        })?;
        stream.set_nonblocking(true)?;
        Ok(BufReader::new(UnixStream::from_std(stream)?))
    }

    /// Sends one request and reads the response. The outer error is the connection's, the inner one the run's.
    async fn exchange(
        &self,
        line: &mut BufReader<UnixStream>,
        body: &[u8],
    ) -> io::Result<Result<AgentResponse, RunError>> {
        let head = format!(
            "POST /v1/mcp HTTP/1.1\r\nhost: dogwatch\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.session.token,
            body.len()
        );
        let request = [head.as_bytes(), body].concat();
        within(RUN_LIMIT, line.write_all(&request)).await??;
        let (status, length) = within(RUN_LIMIT, read_head(line)).await??;
        let mut answer = vec![0; length];
        within(RUN_LIMIT, line.read_exact(&mut answer)).await??;
        if status == 200 {
            return Ok(Ok(serde_json::from_slice(&answer)?));
        }
        if matches!(status, KEY_REFUSED | SESSION_OVER) {
            self.over.cancel();
        }
        let said: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
        let message = said["error"]["message"].as_str().unwrap_or("no reason given");
        Ok(Err(RunError::Refused(message.to_owned())))
    }
}

/// Sends the queued notes to the run, one at a time, until the agent has disconnected.
pub async fn forward_notes(run: std::sync::Arc<RunClient>, mut notes: mpsc::Receiver<RequestBody>) {
    // unbounded: waits for the next note
    // unbounded: until the agent disconnects
    while let Some(Some(body)) = until(run.finishing.cancelled(), notes.recv()).await {
        // If the run does not answer, evidence is lost, but no work.
        let _ = within(2 * RUN_LIMIT, run.request(body)).await;
    }
}

/// Reads the head of a response: its status and the length of its body.
async fn read_head(line: &mut BufReader<UnixStream>) -> io::Result<(u16, usize)> {
    let bad = |what: &str| {
        io::Error::new(io::ErrorKind::InvalidData, format!("invalid response from the run: {what}"))
    };
    let mut head = line.take(MAX_HEAD);
    let (mut status, mut length) = (None, None);
    loop {
        let mut text = String::new();
        let read = within(RUN_LIMIT, head.read_line(&mut text)).await??;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let text = text.trim_end();
        match (status, text.split_once(':')) {
            (None, _) => {
                let code = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse::<u16>().ok());
                status = Some(code.ok_or_else(|| bad("no status"))?);
            }
            (Some(status), _) if text.is_empty() => {
                let length = length.ok_or_else(|| bad("no length"))?;
                return Ok((status, length));
            }
            (Some(_), Some((name, value))) if name.eq_ignore_ascii_case("content-length") => {
                let said = value.trim().parse().ok().filter(|n| *n <= MAX_RUN_ANSWER);
                length = Some(said.ok_or_else(|| bad("invalid length"))?);
            }
            (Some(_), _) => {}
        }
    }
}
