//! The events of a run for one client, read from the journal without involving the run.
//!
//! The server never waits for a client: at most one piece is queued for each. A client that falls far behind gets a
//! `resync` event and is disconnected; a client that stops reading is disconnected.

use super::hub::Interest;
use crate::events::{GREETING, Pieces, Wanted};
use crate::listener::Cut;
use bytes::Bytes;
use dogwatch_host::store::journal::Tail;
use dogwatch_host::store::registry;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::Instant;

/// A client that had caught up and is this many bytes behind again must resync.
pub(crate) const MAX_BEHIND: u64 = 1024 * 1024;
/// A client that reads nothing for this long is disconnected.
pub(crate) const STALLED: Duration = Duration::from_secs(30);
/// The shortest time between two batches of events. A single event is sent at once.
const BATCH: Duration = Duration::from_millis(25);
/// The interval of comments that keep an idle connection open.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(15);
/// How long a dying process may still hold its lock after its files are closed.
const LAST_MOMENT: Duration = Duration::from_millis(50);

/// The limits of a stream, adjustable for tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub behind: u64,
    pub stalled: Duration,
    pub keepalive: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { behind: MAX_BEHIND, stalled: STALLED, keepalive: KEEPALIVE }
    }
}

/// The client's stream permit, the handle to disconnect it, and its limits.
pub(crate) struct Caller {
    pub place: OwnedSemaphorePermit,
    pub cut: Cut,
    pub pace: Pace,
}

/// Sends the events that are in the journal now.
pub(crate) fn so_far(tail: Tail, wanted: Wanted, caller: Caller) -> Pieces {
    let (to, pieces) = mpsc::channel(1);
    let mut feed = Feed { tail, wanted, out: Out { to, cut: caller.cut, pace: caller.pace }, over: false };
    tokio::spawn(async move { feed.pass_on(false).await });
    Pieces::new(pieces, Some(caller.place))
}

/// Sends the events that are in the journal now and then new ones until the run ends.
pub(crate) fn live(tail: Tail, wanted: Wanted, source: Source, caller: Caller) -> Pieces {
    let (to, pieces) = mpsc::channel(1);
    let feed = Feed { tail, wanted, out: Out { to, cut: caller.cut, pace: caller.pace }, over: false };
    tokio::spawn(follow(feed, source));
    Pieces::new(pieces, Some(caller.place))
}

/// Where the events come from, and the signals that there are more.
pub(crate) struct Source {
    pub run_dir: PathBuf,
    pub interest: Interest,
    pub closing: watch::Receiver<bool>,
}

/// Follows the journal. Returns `None` when the stream ends, for whatever reason.
async fn follow(mut feed: Feed, mut source: Source) -> Option<()> {
    feed.out.send(Bytes::from_static(GREETING)).await?;
    let (mut alive, mut caught_up, mut last_look) = (None, false, false);
    let mut last_alive = 0;
    loop {
        // Mark the change as seen before reading the journal, so that a write in between wakes this task again.
        let seen = *source.interest.changed.borrow_and_update();
        let began = Instant::now();
        let ending = last_look || *source.closing.borrow();
        feed.pass_on(caught_up).await?;
        if feed.over || ending {
            return None;
        }
        caught_up = true;
        // Check the lock only when it may have changed: its file was closed, or a run that seemed dead has
        // written.
        let closed = std::mem::replace(&mut last_alive, seen.alive) != seen.alive;
        if closed || alive != Some(true) {
            let now_alive = is_alive(&source.run_dir, closed).await;
            if alive.replace(now_alive) != Some(now_alive) {
                feed.out.send(alive_event(now_alive)).await?;
            }
        }
        last_look = wait(&mut feed.out, &mut source, began).await?;
    }
}

/// Returns whether the run is supervised. Uses a blocking thread, because checking the lock can block briefly.
async fn is_alive(run_dir: &Path, closed: bool) -> bool {
    let ask = || {
        let run_dir = run_dir.to_owned();
        tokio::task::spawn_blocking(move || registry::is_live(&run_dir))
    };
    let alive = ask().await.unwrap_or(false);
    if !(alive && closed) {
        return alive;
    }
    tokio::time::sleep(LAST_MOMENT).await;
    ask().await.unwrap_or(false)
}

/// Waits for more events. Returns `Some(true)` if the next pass is the last one, `None` if the client is gone.
async fn wait(out: &mut Out, source: &mut Source, last_pass: Instant) -> Option<bool> {
    loop {
        tokio::select! {
            () = out.to.closed() => return None,
            () = closed(&mut source.closing) => return Some(true),
            () = tokio::time::sleep(out.pace.keepalive) => {
                out.send(Bytes::from_static(b": here\n\n")).await?;
            }
            changed = source.interest.changed.changed() => {
                // Collect changes that follow closely into one batch.
                tokio::time::sleep_until(last_pass + BATCH).await;
                return Some(changed.is_err());
            }
        }
    }
}

async fn closed(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

fn alive_event(alive: bool) -> Bytes {
    format!("event: alive\ndata: {{\"alive\":{alive}}}\n\n").into()
}

struct Feed {
    tail: Tail,
    wanted: Wanted,
    out: Out,
    /// The last line recorded the end of the run.
    over: bool,
}

impl Feed {
    /// Sends all available events; `None` if the stream must end.
    async fn pass_on(&mut self, caught_up: bool) -> Option<()> {
        loop {
            if caught_up && self.tail.behind().ok()? > self.out.pace.behind {
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

/// The connection to the client.
pub(crate) struct Out {
    pub to: mpsc::Sender<Bytes>,
    pub cut: Cut,
    pub pace: Pace,
}

impl Out {
    /// Sends a piece. Returns `None` if the client is gone, or was disconnected because it stopped reading.
    pub async fn send(&self, piece: Bytes) -> Option<()> {
        match tokio::time::timeout(self.pace.stalled, self.to.send(piece)).await {
            Ok(sent) => sent.ok(),
            Err(_) => {
                self.cut.now();
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stalled_client_is_disconnected_and_a_slow_one_is_not() {
        crate::listener::runtime().expect("a runtime").block_on(async {
            let (to, mut pieces) = mpsc::channel(1);
            let pace = Pace { stalled: Duration::from_millis(20), ..Pace::default() };
            let cut = Cut::default();
            let out = Out { to, cut: cut.clone(), pace };
            assert_eq!(out.send(Bytes::from_static(b"one")).await, Some(()));
            assert_eq!(pieces.recv().await.as_deref(), Some(&b"one"[..]));
            assert_eq!(out.send(Bytes::from_static(b"two")).await, Some(()));
            assert_eq!(out.send(Bytes::from_static(b"three")).await, None);
            cut.wanted().await;
        });
    }
}
