//! The journal as a stream for one caller: from the number they have on, and live if they want.
//!
//! A caller who does not read stops only their own stream: at most one piece waits for them.

use crate::tail::{Tail, head};
use bytes::{BufMut, Bytes, BytesMut};
use futures_core::Stream;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

/// How events are written to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The journal's own lines.
    Lines,
    /// Server-sent events.
    Sse,
}

/// What a caller wants to see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub after: u64,
    pub observed: bool,
    pub form: Form,
}

/// What tells a stream to go on or to end.
pub(crate) struct Signals {
    pub changed: watch::Receiver<u64>,
    pub closing: watch::Receiver<bool>,
}

/// A body that is filled as it is read.
pub(crate) struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    /// The place among the streams, kept as long as the caller is there.
    _place: Option<OwnedSemaphorePermit>,
}

impl Pieces {
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

/// What stands in the journal now.
pub(crate) fn so_far(tail: Tail, wanted: Wanted, place: OwnedSemaphorePermit) -> Pieces {
    let (to, pieces) = mpsc::channel(1);
    tokio::spawn(async move { Feed { tail, wanted, to, over: false }.pass_on().await });
    Pieces::new(pieces, Some(place))
}

/// The same, and then what comes, until the run is over.
pub(crate) fn live(tail: Tail, wanted: Wanted, signals: Signals, place: OwnedSemaphorePermit) -> Pieces {
    let (to, pieces) = mpsc::channel(1);
    tokio::spawn(follow(Feed { tail, wanted, to, over: false }, signals));
    Pieces::new(pieces, Some(place))
}

/// Tells the caller at once that they are heard, and how soon to come back.
pub(crate) const GREETING: &[u8] = b"retry: 1000\n\n";

async fn follow(mut feed: Feed, mut signals: Signals) {
    if feed.to.send(Bytes::from_static(GREETING)).await.is_err() {
        return;
    }
    let mut last_look = false;
    loop {
        // Noted before the journal is read: what is written meanwhile wakes us again.
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
    /// The last line said that the run ended.
    over: bool,
}

impl Feed {
    /// Passes on all that is there; `None` if the caller is gone or the journal cannot be read.
    async fn pass_on(&mut self) -> Option<()> {
        loop {
            let piece = match self.tail.next() {
                Ok(Some(lines)) => self.wanted.frame(lines, &mut self.over),
                Ok(None) => return Some(()),
                Err(_) => return None,
            };
            if piece.is_empty() {
                // A long way to the first event that is wanted must not keep others waiting.
                tokio::task::yield_now().await;
            } else {
                self.to.send(piece).await.ok()?;
            }
        }
    }
}

impl Wanted {
    /// The wanted ones of some whole lines, in the caller's form.
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
            // White space between JSON's tokens may be a carriage return, which would end a field.
            out.extend(line.iter().map(|b| if *b == b'\r' { b' ' } else { *b }));
            out.put_slice(if self.form == Form::Sse { b"\n\n" } else { b"\n" });
        }
        out.freeze()
    }
}
