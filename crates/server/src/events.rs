//! The journal as a stream for one client, starting after a given event and optionally live.
//!
//! A client that does not read blocks only its own stream: at most one piece is queued for it.

use crate::error::ApiError;
use crate::listener::Cut;
use crate::machine::Pace;
use bytes::{BufMut, Bytes, BytesMut};
use dogwatch_core::record::words;
use dogwatch_host::store::journal::{self, Head, Tail, head};
use futures_core::Stream;
use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

/// The format of the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The lines of the journal.
    Lines,
    /// Server-sent events.
    Sse,
}

impl Form {
    /// Returns the media type.
    pub fn kind(self) -> &'static str {
        match self {
            Form::Lines => "application/x-ndjson",
            Form::Sse => "text/event-stream",
        }
    }
}

/// The events that a client requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub after: u64,
    pub observed: bool,
    /// Each event has the additional field `sentence`.
    pub sentences: bool,
    pub form: Form,
}

/// The signals that wake or end a stream.
pub(crate) struct Signals {
    pub changed: watch::Receiver<u64>,
    pub closing: watch::Receiver<bool>,
}

/// A response body that is produced while it is read.
pub(crate) struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    /// The stream permit, held while the client is connected.
    _place: Option<OwnedSemaphorePermit>,
}

impl Pieces {
    /// Starts a task that produces the body.
    pub fn from<F: Future<Output = Option<()>> + Send + 'static>(
        place: Option<OwnedSemaphorePermit>,
        limits: Option<(Cut, Pace)>,
        send: impl FnOnce(Out) -> F,
    ) -> Pieces {
        let (to, pieces) = mpsc::channel(1);
        tokio::spawn(send(Out { to, limits }));
        Pieces { pieces, _place: place }
    }
}

impl Stream for Pieces {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.pieces.poll_recv(cx).map(|piece| piece.map(Ok))
    }
}

/// A client: its stream permit and, on the API of the machine, the handle to disconnect it and its limits.
pub(crate) struct Caller {
    pub place: OwnedSemaphorePermit,
    pub limits: Option<(Cut, Pace)>,
}

/// Sends the events that are in the journal now.
pub(crate) fn so_far(tail: Tail, wanted: Wanted, caller: Caller) -> Pieces {
    Feed::start(tail, wanted, caller, async |mut feed| feed.pass_on(None).await)
}

/// Sends the events that are in the journal now and then new ones until the run ends.
pub(crate) fn live(tail: Tail, wanted: Wanted, signals: Signals, caller: Caller) -> Pieces {
    Feed::start(tail, wanted, caller, |feed| follow(feed, signals))
}

/// The start of a stream: shows the client at once that it is connected, and sets its reconnect interval.
pub(crate) const GREETING: &[u8] = b"retry: 1000\n\n";

async fn follow(mut feed: Feed, mut signals: Signals) -> Option<()> {
    feed.out.send(Bytes::from_static(GREETING)).await?;
    let mut last_look = false;
    loop {
        // Mark the change as seen before reading the journal, so that a write in between wakes this task again.
        signals.changed.mark_unchanged();
        let ending = last_look || *signals.closing.borrow();
        feed.pass_on(None).await?;
        if feed.over || ending {
            return None;
        }
        tokio::select! {
            () = feed.out.to.closed() => return None,
            _ = signals.closing.wait_for(|closing| *closing) => {}
            changed = signals.changed.changed() => last_look = changed.is_err(),
        }
    }
}

/// The events of a journal on their way to one client.
pub(crate) struct Feed {
    tail: Tail,
    wanted: Wanted,
    pub out: Out,
    /// The last line recorded the end of the run.
    pub over: bool,
}

impl Feed {
    /// Starts a task that sends the events.
    pub fn start<F: Future<Output = Option<()>> + Send + 'static>(
        tail: Tail,
        wanted: Wanted,
        caller: Caller,
        send: impl FnOnce(Feed) -> F,
    ) -> Pieces {
        Pieces::from(Some(caller.place), caller.limits, |out| send(Feed { tail, wanted, out, over: false }))
    }

    /// Sends all available events; `None` if the stream must end. A client that is more than `behind` bytes behind must
    /// resync.
    pub async fn pass_on(&mut self, behind: Option<u64>) -> Option<()> {
        loop {
            if let Some(behind) = behind
                && self.tail.behind().ok()? > behind
            {
                self.out.send(Bytes::from_static(RESYNC)).await;
                return None;
            }
            let piece = match self.tail.next_lines() {
                Ok(Some(lines)) => self.wanted.frame(lines, &mut self.over),
                Ok(None) => return Some(()),
                Err(_) => return None,
            };
            if piece.is_empty() {
                // Let other tasks run while skipping events that this client does not want.
                tokio::task::yield_now().await;
            } else {
                self.out.send(piece).await?;
            }
        }
    }
}

const RESYNC: &[u8] = b"event: resync\ndata: {\"why\":\"too far behind\"}\n\n";

/// The connection to a client.
pub(crate) struct Out {
    pub to: mpsc::Sender<Bytes>,
    pub limits: Option<(Cut, Pace)>,
}

impl Out {
    /// Sends a piece. Returns `None` if the client is gone, or was disconnected because it stopped reading.
    pub async fn send(&self, piece: Bytes) -> Option<()> {
        let Some((cut, pace)) = &self.limits else { return self.to.send(piece).await.ok() };
        match tokio::time::timeout(pace.stalled, self.to.send(piece)).await {
            Ok(sent) => sent.ok(),
            Err(_) => {
                cut.now();
                None
            }
        }
    }
}

impl Wanted {
    /// Opens the journal of a run, to be followed by a stream.
    pub fn open(&self, run_dir: &Path) -> Result<Tail, ApiError> {
        let path = run_dir.join(journal::FILE);
        let tail = match self.form {
            Form::Sse => Tail::follow(&path),
            Form::Lines => Tail::up_to_now(&path),
        };
        tail.map_err(|e| ApiError::NoRecord(e.to_string()))
    }

    /// Returns the requested events of some whole lines, in the requested format.
    pub fn frame(&self, lines: &[u8], over: &mut bool) -> Bytes {
        let mut out = BytesMut::new();
        for line in lines.split(|b| *b == b'\n') {
            let Some(head) = head(line) else { continue };
            *over = head.event == "run_ended";
            if head.seq <= self.after || (head.event == "observed" && !self.observed) {
                continue;
            }
            if out.is_empty() {
                out.reserve(lines.len() + lines.len() / 4);
            }
            if self.form == Form::Sse {
                out.put_slice(format!("id: {}\nevent: {}\ndata: ", head.seq, head.event).as_bytes());
            }
            // JSON allows a carriage return as white space, but it would end an SSE field.
            let put = |out: &mut BytesMut, part: &[u8]| {
                out.extend(part.iter().map(|b| if *b == b'\r' { b' ' } else { *b }));
            };
            let sentence = if self.sentences { sentence(line, &head) } else { None };
            match sentence {
                Some((fields, sentence)) => {
                    put(&mut out, fields);
                    out.put_slice(format!(",\"sentence\":{sentence}}}").as_bytes());
                }
                None => put(&mut out, line),
            }
            out.put_slice(if self.form == Form::Sse { b"\n\n" } else { b"\n" });
        }
        out.freeze()
    }
}

/// Splits off the closing brace of an event and returns the rest with the event's sentence as JSON.
fn sentence<'a>(line: &'a [u8], head: &Head<'_>) -> Option<(&'a [u8], String)> {
    // Parsing is expensive, and most lines of a long journal are observations, which have no sentence.
    if head.event == "observed" {
        return None;
    }
    let recorded = dogwatch_codec::read(line).ok()?;
    let sentence = serde_json::to_string(&words::in_list(&recorded.event)?).ok()?;
    let end = line.iter().rposition(|b| *b == b'}')?;
    Some((&line[..end], sentence))
}
