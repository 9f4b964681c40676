//! The events of a run for one client, read from the journal without involving the run.
//!
//! The server never waits for a client: at most one piece is queued for each. A client that falls far behind gets a
//! `resync` event and is disconnected; a client that stops reading is disconnected.

use super::hub::Interest;
use crate::events::{Caller, Feed, GREETING, Out, Pieces, Wanted};
use bytes::Bytes;
use dogwatch_host::store::journal::Tail;
use dogwatch_host::store::registry;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;
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

/// Sends the events that are in the journal now and then new ones until the run ends.
pub(crate) fn live(tail: Tail, wanted: Wanted, source: Source, pace: Pace, caller: Caller) -> Pieces {
    Feed::start(tail, wanted, caller, |feed| follow(feed, source, pace))
}

/// Where the events come from, and the signals that there are more.
pub(crate) struct Source {
    pub run_dir: PathBuf,
    pub interest: Interest,
    pub closing: watch::Receiver<bool>,
}

/// Follows the journal. Returns `None` when the stream ends, for whatever reason.
async fn follow(mut feed: Feed, mut source: Source, pace: Pace) -> Option<()> {
    feed.out.send(Bytes::from_static(GREETING)).await?;
    let (mut alive, mut behind, mut last_look) = (None, None, false);
    let mut last_alive = 0;
    loop {
        // Mark the change as seen before reading the journal, so that a write in between wakes this task again.
        let seen = *source.interest.changed.borrow_and_update();
        let began = Instant::now();
        let ending = last_look || *source.closing.borrow();
        feed.pass_on(behind).await?;
        if feed.over || ending {
            return None;
        }
        behind = Some(pace.behind);
        // Check the lock only when it may have changed: its file was closed, or a run that seemed dead has
        // written.
        let closed = std::mem::replace(&mut last_alive, seen.alive) != seen.alive;
        if closed || alive != Some(true) {
            let now_alive = is_alive(&source.run_dir, closed).await;
            if alive.replace(now_alive) != Some(now_alive) {
                feed.out.send(alive_event(now_alive)).await?;
            }
        }
        last_look = wait(&feed.out, &mut source, pace, began).await?;
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
async fn wait(out: &Out, source: &mut Source, pace: Pace, last_pass: Instant) -> Option<bool> {
    loop {
        tokio::select! {
            () = out.to.closed() => return None,
            () = closed(&mut source.closing) => return Some(true),
            () = tokio::time::sleep(pace.keepalive) => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::Cut;
    use tokio::sync::mpsc;

    #[test]
    fn a_stalled_client_is_disconnected_and_a_slow_one_is_not() {
        crate::listener::runtime().expect("a runtime").block_on(async {
            let (to, mut pieces) = mpsc::channel(1);
            let pace = Pace { stalled: Duration::from_millis(20), ..Pace::default() };
            let cut = Cut::default();
            let out = Out { to, limits: Some((cut.clone(), pace)) };
            assert_eq!(out.send(Bytes::from_static(b"one")).await, Some(()));
            assert_eq!(pieces.recv().await.as_deref(), Some(&b"one"[..]));
            assert_eq!(out.send(Bytes::from_static(b"two")).await, Some(()));
            assert_eq!(out.send(Bytes::from_static(b"three")).await, None);
            cut.wanted().await;
        });
    }
}
