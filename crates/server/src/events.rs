//! The journal as a stream for one client, starting after a given event and optionally live.
//!
//! A client that does not read blocks only its own stream: at most one piece is queued for it.

use bytes::{BufMut, Bytes, BytesMut};
use dogwatch_core::record::event::Recorded;
use dogwatch_core::record::words;
use dogwatch_host::store::journal::{Head, Tail, head};
use futures_core::Stream;
use std::convert::Infallible;
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
    /// Creates a body from a channel of pieces.
    pub fn new(pieces: mpsc::Receiver<Bytes>, place: Option<OwnedSemaphorePermit>) -> Pieces {
        Pieces { pieces, _place: place }
    }
}

impl Stream for Pieces {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.pieces.poll_recv(cx).map(|piece| piece.map(Ok))
    }
}

/// Sends the events that are in the journal now.
pub(crate) fn so_far(tail: Tail, wanted: Wanted, place: OwnedSemaphorePermit) -> Pieces {
    let (to, pieces) = mpsc::channel(1);
    tokio::spawn(async move { Feed { tail, wanted, to, over: false }.pass_on().await });
    Pieces::new(pieces, Some(place))
}

/// Sends the events that are in the journal now and then new ones until the run ends.
pub(crate) fn live(tail: Tail, wanted: Wanted, signals: Signals, place: OwnedSemaphorePermit) -> Pieces {
    let (to, pieces) = mpsc::channel(1);
    tokio::spawn(follow(Feed { tail, wanted, to, over: false }, signals));
    Pieces::new(pieces, Some(place))
}

/// The start of a stream: shows the client at once that it is connected, and sets its reconnect interval.
pub(crate) const GREETING: &[u8] = b"retry: 1000\n\n";

async fn follow(mut feed: Feed, mut signals: Signals) {
    if feed.to.send(Bytes::from_static(GREETING)).await.is_err() {
        return;
    }
    let mut last_look = false;
    loop {
        // Mark the change as seen before reading the journal, so that a write in between wakes this task again.
        signals.changed.mark_unchanged();
        let ending = last_look || *signals.closing.borrow();
        if feed.pass_on().await.is_none() || feed.over || ending {
            return;
        }
        tokio::select! {
            () = feed.to.closed() => return,
            _ = signals.closing.wait_for(|closing| *closing) => {}
            changed = signals.changed.changed() => last_look = changed.is_err(),
        }
    }
}

struct Feed {
    tail: Tail,
    wanted: Wanted,
    to: mpsc::Sender<Bytes>,
    /// The last line recorded the end of the run.
    over: bool,
}

impl Feed {
    /// Sends all available events; `None` if the client is gone or the journal cannot be read.
    async fn pass_on(&mut self) -> Option<()> {
        loop {
            let piece = match self.tail.next_lines() {
                Ok(Some(lines)) => self.wanted.frame(lines, &mut self.over),
                Ok(None) => return Some(()),
                Err(_) => return None,
            };
            if piece.is_empty() {
                // Let other tasks run while skipping events that this client does not want.
                tokio::task::yield_now().await;
            } else {
                self.to.send(piece).await.ok()?;
            }
        }
    }
}

impl Wanted {
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
    let recorded: Recorded = serde_json::from_slice(line).ok()?;
    let sentence = serde_json::to_string(&words::in_list(&recorded.event)?).ok()?;
    let end = line.iter().rposition(|b| *b == b'}')?;
    Some((&line[..end], sentence))
}
