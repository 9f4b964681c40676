//! The one way to wait: nothing in this crate is awaited but through here, and everything here ends in time.
//!
//! `tests/audit.rs` reads the sources of this crate and finds every other wait. What is without a bound by
//! design says so where it stands, in a comment that begins with `unbounded:`, and is listed there.

use std::fmt;
use std::future::Future;
use std::io;
use std::time::Duration;

/// It did not come in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut(pub Duration);

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no answer within {}", seconds(self.0))
    }
}

impl std::error::Error for TimedOut {}

impl From<TimedOut> for io::Error {
    fn from(late: TimedOut) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, late)
    }
}

/// `60 s`, `0.4 s`.
pub fn seconds(limit: Duration) -> String {
    match limit.subsec_millis() {
        0 => format!("{} s", limit.as_secs()),
        _ => format!("{:.1} s", limit.as_secs_f64()),
    }
}

/// Waits no longer than this. What was waited for is dropped when it is late, and whatever it held with it.
///
/// It is held on the heap: bounds stand within bounds here, and all of them on the stack would be too much for it.
pub fn within<T>(
    limit: Duration,
    future: impl Future<Output = T>,
) -> impl Future<Output = Result<T, TimedOut>> {
    let future = Box::pin(future);
    async move { tokio::time::timeout(limit, future).await.map_err(|_| TimedOut(limit)) }
}

/// Why a wait ended without future was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitError {
    TimedOut(Duration),
    Canceled,
}

/// As `within`, and no longer than until whoever asked has lost interest.
pub fn within_unless<T>(
    limit: Duration,
    cancelled: impl Future<Output = ()>,
    future: impl Future<Output = T>,
) -> impl Future<Output = Result<T, WaitError>> {
    let (cancelled, future) = (Box::pin(cancelled), Box::pin(future));
    async move {
        // unbounded: the first of them has its limit
        tokio::select! {
            biased;
            met = tokio::time::timeout(limit, future) => met.map_err(|_| WaitError::TimedOut(limit)),
            () = cancelled => Err(WaitError::Canceled),
        }
    }
}

/// Waits until future ends the wait comes to pass; then there is nothing. Its end is an event, not a limit, so whoever
/// uses it says why that is right, as for any other wait.
pub fn until<T>(
    ended: impl Future<Output = ()>,
    future: impl Future<Output = T>,
) -> impl Future<Output = Option<T>> {
    let (ended, future) = (Box::pin(ended), Box::pin(future));
    async move {
        // unbounded: whoever uses it says why that is right
        tokio::select! {
            biased;
            met = future => Some(met),
            () = ended => None,
        }
    }
}
