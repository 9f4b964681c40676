//! Messages as lines, one JSON object each, from an agent or from a server behind the proxy.
//!
//! A line has a longest length, whoever writes it; what is longer is passed over in bounded memory. A request
//! that cannot be read is answered as such, so that nobody waits for it. Writing ends in time.

use crate::bound::within;
use crate::limits::WRITE_LIMIT;
use crate::lines::{Line, Lines, id_of};
use rmcp::service::{RxJsonRpcMessage, ServiceRole, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

/// Read at a time.
const CHUNK: usize = 64 * 1024;
/// Lines of a server's that are no messages; one more, and it is given up.
pub const MAX_GARBAGE_LINES: u64 = 1_000;
/// Messages that are taken from a server in a second; then the pause of that second nothing is read of it.
pub const MAX_PER_SECOND: u32 = 2_000;

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Its requests are answered, even those that cannot be read.
    Agent,
    /// It may print what is no message, a little, and not too fast.
    Server,
}

pub struct Wire<R, W> {
    read: R,
    write: Arc<Mutex<Option<W>>>,
    lines: Lines,
    chunk: Box<[u8]>,
    peer: Peer,
    garbage: u64,
    pace: Pace,
}

impl<R, W> Wire<R, W> {
    pub fn new(read: R, write: W, peer: Peer, max: usize) -> Wire<R, W> {
        Wire {
            read,
            write: Arc::new(Mutex::new(Some(write))),
            lines: Lines::new(max),
            chunk: vec![0; CHUNK].into(),
            peer,
            garbage: 0,
            pace: Pace::default(),
        }
    }
}

impl<Role, R, W> Transport<Role> for Wire<R, W>
where
    Role: ServiceRole,
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<Role>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let write = Arc::clone(&self.write);
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            within(WRITE_LIMIT, put(write, line)).await?
        }
    }

    /// Cancelled at any moment it loses nothing: what was read stays in `lines`.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<Role>> {
        loop {
            while let Some(line) = self.lines.next() {
                match self.message::<Role>(&line) {
                    Ok(message) => return Some(message),
                    Err(Unread::Skip) => {}
                    Err(Unread::Close) => return None,
                    Err(Unread::Reply(answer)) => {
                        let answered = put(Arc::clone(&self.write), answer);
                        within(WRITE_LIMIT, answered).await.ok()?.ok()?;
                    }
                }
            }
            if let Some(pause) = self.pace.pause() {
                // unbounded: sleeps for what is left of a second
                tokio::time::sleep(pause).await;
                self.pace = Pace::default();
            }
            // unbounded: the other end speaks when it has something to say; every question has its own bound
            let read = self.read.read(&mut self.chunk).await;
            match read {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.lines.push(&self.chunk[..n]),
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        let mut write = within(WRITE_LIMIT, self.write.lock()).await?;
        drop(write.take());
        Ok(())
    }
}

/// Why a line is no message.
enum Unread {
    Skip,
    Reply(Vec<u8>),
    Close,
}

impl<R, W> Wire<R, W> {
    fn message<Role: ServiceRole>(&mut self, line: &Line) -> Result<RxJsonRpcMessage<Role>, Unread> {
        if line.is_blank() {
            return Err(Unread::Skip);
        }
        let why = match line {
            Line::Whole(bytes) => match serde_json::from_slice(bytes) {
                Ok(message) => {
                    self.pace.count += u32::from(self.peer == Peer::Server);
                    return Ok(message);
                }
                Err(error) => format!("this is no message that can be read: {error}"),
            },
            Line::TooLong { .. } => format!("a message has at most {} bytes", self.lines.max()),
        };
        match self.peer {
            Peer::Agent => Err(id_of(line).map_or(Unread::Skip, |id| Unread::Reply(refusal(&id, &why)))),
            Peer::Server => {
                self.garbage += 1;
                Err(if self.garbage > MAX_GARBAGE_LINES { Unread::Close } else { Unread::Skip })
            }
        }
    }
}

/// How many messages came in this second.
#[derive(Default)]
struct Pace {
    count: u32,
    since: Option<std::time::Instant>,
}

impl Pace {
    /// How long to pause, if there were too many.
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

fn refusal(id: &serde_json::Value, why: &str) -> Vec<u8> {
    let answer = serde_json::json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32600, "message": why}});
    let mut line = answer.to_string().into_bytes();
    line.push(b'\n');
    line
}

async fn put<W: AsyncWrite + Unpin>(write: Arc<Mutex<Option<W>>>, line: Vec<u8>) -> io::Result<()> {
    let mut write = within(WRITE_LIMIT, write.lock()).await?;
    let gone = || io::Error::new(io::ErrorKind::NotConnected, "the other end is gone");
    let out = write.as_mut().ok_or_else(gone)?;
    let written = within(WRITE_LIMIT, out.write_all(&line)).await;
    let written = match written {
        Ok(Ok(())) => within(WRITE_LIMIT, out.flush()).await,
        other => other,
    };
    if !matches!(written, Ok(Ok(()))) {
        // Half a line may be out: nothing that follows it could be read.
        drop(write.take());
    }
    written?
}
