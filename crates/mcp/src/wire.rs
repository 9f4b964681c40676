//! MCP messages as lines, one JSON object each, exchanged with an agent or with a server behind the proxy.
//!
//! Lines have a maximum length; longer ones are skipped in bounded memory. An unreadable request gets an error
//! response, so that the agent does not wait for it. Writes have a time limit.

use crate::bound::within;
use crate::limits::WRITE_LIMIT;
use crate::lines::{InputLine, Lines, id_of};
use crate::rpc::message::{INVALID_REQUEST, Id, Message, RpcError};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

/// How much is read at once, in bytes.
const CHUNK: usize = 64 * 1024;
/// How many invalid lines a server may print before it is disconnected.
pub const MAX_GARBAGE_LINES: u64 = 1_000;
/// Messages accepted from a server per second. Beyond that, reading pauses for the rest of the second.
pub const MAX_PER_SECOND: u32 = 2_000;
/// Messages that wait to be written. Responses wait for room; notifications beyond it are dropped.
pub const MAX_QUEUED: usize = 256;

/// The kind of peer at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Every request gets a response, even an unreadable one.
    Agent,
    /// A limited number of invalid lines is tolerated, and the message rate is limited.
    Server,
}

/// A transport for JSON lines over a reader and a writer.
pub struct Wire {
    read: Box<dyn AsyncRead + Unpin + Send>,
    write: SharedWriter,
    lines: Lines,
    chunk: Box<[u8]>,
    peer: Peer,
    garbage: u64,
    pace: Pace,
}

/// The writing half, until it is closed.
type SharedWriter = Arc<Mutex<Option<Box<dyn AsyncWrite + Unpin + Send>>>>;

impl Wire {
    /// Creates a transport for messages of at most `max` bytes.
    pub fn new(
        read: impl AsyncRead + Unpin + Send + 'static,
        write: impl AsyncWrite + Unpin + Send + 'static,
        peer: Peer,
        max: usize,
    ) -> Wire {
        Wire {
            read: Box::new(read),
            write: Arc::new(Mutex::new(Some(Box::new(write)))),
            lines: Lines::new(max),
            chunk: vec![0; CHUNK].into(),
            peer,
            garbage: 0,
            pace: Pace::default(),
        }
    }
}

impl Wire {
    /// Starts a task that writes queued messages in their order. It ends when all senders are dropped, or when the
    /// peer does not read.
    pub fn spawn_writer(&self) -> (mpsc::Sender<Message>, JoinHandle<()>) {
        let (queue, mut queued) = mpsc::channel::<Message>(MAX_QUEUED);
        let write = Arc::clone(&self.write);
        let writing = tokio::spawn(async move {
            // unbounded: waits for the next message
            while let Some(message) = queued.recv().await {
                if !matches!(within(2 * WRITE_LIMIT, put(&write, message.to_json())).await, Ok(Ok(()))) {
                    break;
                }
            }
            // The peer sees the end of its input.
            if let Ok(mut write) = within(WRITE_LIMIT, write.lock()).await {
                drop(write.take());
            }
        });
        (queue, writing)
    }

    /// Returns the next message; `None` when the peer has disconnected. Cancel-safe: bytes that were read stay in
    /// `lines`.
    pub async fn receive(&mut self) -> Option<Message> {
        loop {
            while let Some(line) = self.lines.next() {
                match self.message(&line) {
                    Ok(message) => return Some(message),
                    Err(Unread::Skip) => {}
                    Err(Unread::Close) => return None,
                    Err(Unread::Reply(refusal)) => {
                        let answered = put(&self.write, refusal);
                        within(2 * WRITE_LIMIT, answered).await.ok()?.ok()?;
                    }
                }
            }
            if let Some(pause) = self.pace.pause() {
                // unbounded: sleeps for at most one second
                tokio::time::sleep(pause).await;
                self.pace = Pace::default();
            }
            // unbounded: the peer decides when to send a message; every request has its own limit
            let read = self.read.read(&mut self.chunk).await;
            match read {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.lines.push(&self.chunk[..n]),
            }
        }
    }
}

/// The treatment of a line that is not a valid message.
enum Unread {
    Skip,
    Reply(String),
    Close,
}

impl Wire {
    fn message(&mut self, line: &InputLine) -> Result<Message, Unread> {
        if line.is_blank() {
            return Err(Unread::Skip);
        }
        let why = match line {
            InputLine::Whole(bytes) => match Message::parse(bytes) {
                Ok(message) => {
                    self.pace.count += u32::from(self.peer == Peer::Server);
                    return Ok(message);
                }
                Err(error) => format!("invalid message: {error}"),
            },
            InputLine::TooLong { .. } => format!("a message has at most {} bytes", self.lines.max()),
        };
        match self.peer {
            Peer::Agent => Err(id_of(line)
                .and_then(|id| Id::from_json(&id))
                .map_or(Unread::Skip, |id| Unread::Reply(refusal(id, why)))),
            Peer::Server => {
                self.garbage += 1;
                Err(if self.garbage > MAX_GARBAGE_LINES { Unread::Close } else { Unread::Skip })
            }
        }
    }
}

/// The number of messages in the current second.
#[derive(Default)]
struct Pace {
    count: u32,
    since: Option<std::time::Instant>,
}

impl Pace {
    /// Returns how long to pause, if the limit is reached.
    fn pause(&mut self) -> Option<Duration> {
        let since = *self.since.get_or_insert_with(std::time::Instant::now);
        let left = Duration::from_secs(1).checked_sub(since.elapsed());
        match left {
            None => {
                *self = Pace::default();
                None
            }
            Some(left) => (self.count >= MAX_PER_SECOND).then_some(left),
        }
    }
}

fn refusal(id: Id, why: String) -> String {
    Message::response(id, Err(RpcError::new(INVALID_REQUEST, why))).to_json()
}

async fn put(write: &SharedWriter, mut line: String) -> io::Result<()> {
    line.push('\n');
    let mut write = within(WRITE_LIMIT, write.lock()).await?;
    let gone = || io::Error::new(io::ErrorKind::NotConnected, "the peer has disconnected");
    let out = write.as_mut().ok_or_else(gone)?;
    let written = within(WRITE_LIMIT, out.write_all(line.as_bytes())).await;
    let written = match written {
        Ok(Ok(())) => within(WRITE_LIMIT, out.flush()).await,
        other => other,
    };
    if !matches!(written, Ok(Ok(()))) {
        // The peer may have received half a line, so nothing after it would be readable.
        drop(write.take());
    }
    written?
}
