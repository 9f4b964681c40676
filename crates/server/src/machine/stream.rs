//! A run's events for one caller, read from the journal: the run itself does nothing for it.
//!
//! A caller is never waited for: at most one piece waits for them. Who follows and falls far behind is told to
//! take stock anew and is cut off; who takes nothing at all is cut off.

use super::hub::Interest;
use crate::events::{GREETING, Pieces, Wanted};
use crate::listener::Cut;
use crate::tail::Tail;
use bytes::Bytes;
use dogwatch_host::store::registry;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::Instant;

/// A caller who has been up to date and is so many bytes behind is told to resync.
pub(crate) const MAX_BEHIND: u64 = 1024 * 1024;
/// A caller who takes nothing for so long is cut off.
pub(crate) const STALLED: Duration = Duration::from_secs(30);
/// In a flood events are passed on so often and no oftener; a single one is passed on at once.
const BATCH: Duration = Duration::from_millis(25);
/// So often a comment shows that the connection still stands.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(15);
/// A process that dies lets go of its lock shortly after its files are closed.
const LAST_MOMENT: Duration = Duration::from_millis(50);

/// What may be changed for tests.
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

/// For whom, and how to be rid of them.
pub(crate) struct Caller {
    pub place: OwnedSemaphorePermit,
    pub cut: Cut,
    pub pace: Pace,
}

/// What stands in the journal now.
pub(crate) fn so_far(tail: Tail, wanted: Wanted, caller: Caller) -> Pieces {
    let (to, pieces) = mpsc::channel(1);
    let mut feed = Feed { tail, wanted, out: Out { to, cut: caller.cut, pace: caller.pace }, over: false };
    tokio::spawn(async move { feed.pass_on(false).await });
    Pieces::new(pieces, Some(caller.place))
}

/// The same, and then what comes, until the run ends.
pub(crate) fn live(tail: Tail, wanted: Wanted, source: Source, caller: Caller) -> Pieces {
    let (to, pieces) = mpsc::channel(1);
    let feed = Feed { tail, wanted, out: Out { to, cut: caller.cut, pace: caller.pace }, over: false };
    tokio::spawn(follow(feed, source));
    Pieces::new(pieces, Some(caller.place))
}

/// Where the events come from, and what tells that there are more.
pub(crate) struct Source {
    pub run_dir: PathBuf,
    pub interest: Interest,
    pub closing: watch::Receiver<bool>,
}

/// `None` in the end, whatever the reason.
async fn follow(mut feed: Feed, mut source: Source) -> Option<()> {
    feed.out.send(Bytes::from_static(GREETING)).await?;
    let (mut alive, mut caught_up, mut last_look) = (None, false, false);
    let mut heard_of = 0;
    loop {
        // Noted before the journal is read: what is written meanwhile wakes us again.
        let seen = *source.interest.changed.borrow_and_update();
        let began = Instant::now();
        let ending = last_look || *source.closing.borrow();
        feed.pass_on(caught_up).await?;
        if feed.over || ending {
            return None;
        }
        caught_up = true;
        // The lock is asked for only where it may have changed hands: its file was closed, or who was thought to
        // be gone has written.
        let closed = std::mem::replace(&mut heard_of, seen.alive) != seen.alive;
        if closed || alive != Some(true) {
            let now_alive = is_alive(&source.run_dir, closed).await;
            if alive.replace(now_alive) != Some(now_alive) {
                feed.out.send(told_alive(now_alive)).await?;
            }
        }
        last_look = wait(&mut feed.out, &mut source, began).await?;
    }
}

/// Beside the thread that serves all: a lock that cannot be asked for is told by a call that may take a moment.
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

/// Until there may be more: `Some(true)` if there will be no more after that, `None` if the caller is gone.
async fn wait(out: &mut Out, source: &mut Source, last_pass: Instant) -> Option<bool> {
    loop {
        tokio::select! {
            () = out.to.closed() => return None,
            () = closed(&mut source.closing) => return Some(true),
            () = tokio::time::sleep(out.pace.keepalive) => {
                out.send(Bytes::from_static(b": here\n\n")).await?;
            }
            changed = source.interest.changed.changed() => {
                // What comes close upon the last pass waits for its like.
                tokio::time::sleep_until(last_pass + BATCH).await;
                return Some(changed.is_err());
            }
        }
    }
}

async fn closed(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

fn told_alive(alive: bool) -> Bytes {
    format!("event: alive\ndata: {{\"alive\":{alive}}}\n\n").into()
}

struct Feed {
    tail: Tail,
    wanted: Wanted,
    out: Out,
    /// The last line said that the run ended.
    over: bool,
}

impl Feed {
    /// Passes on all that is there; `None` if it is over with this caller.
    async fn pass_on(&mut self, caught_up: bool) -> Option<()> {
        loop {
            if caught_up && self.tail.behind().ok()? > self.out.pace.behind {
                self.out.send(Bytes::from_static(RESYNC)).await;
                return None;
            }
            let piece = match self.tail.next() {
                Ok(Some(lines)) => self.wanted.frame(lines, &mut self.over),
                Ok(None) => return Some(()),
                Err(_) => return None,
            };
            if piece.is_empty() {
                // A long way to the first event that is wanted must not keep others waiting.
                tokio::task::yield_now().await;
            } else {
                self.out.send(piece).await?;
            }
        }
    }
}

const RESYNC: &[u8] = b"event: resync\ndata: {\"why\":\"too far behind\"}\n\n";

/// The way to the caller.
pub(crate) struct Out {
    pub to: mpsc::Sender<Bytes>,
    pub cut: Cut,
    pub pace: Pace,
}

impl Out {
    /// `None` if the caller is gone, or has taken nothing for too long and is therefore cut off.
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
    fn who_takes_nothing_is_cut_off_and_who_takes_their_time_is_not() {
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
