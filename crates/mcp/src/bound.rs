//! Waits with a time limit. Every `.await` in this crate goes through one of these functions.
//!
//! `tests/audit.rs` scans the sources of this crate for any other wait. A wait that is unbounded by design has a
//! comment that begins with `unbounded:` right above it, and an entry in the audit's list.

use std::fmt;
use std::future::Future;
use std::io;
use std::time::Duration;

/// A wait that reached its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutError(pub Duration);

impl fmt::Display for TimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no answer within {}", seconds(self.0))
    }
}

impl std::error::Error for TimeoutError {}

impl From<TimeoutError> for io::Error {
    fn from(late: TimeoutError) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, late)
    }
}

/// Formats a limit in seconds: `60 s`, `0.4 s`.
pub fn seconds(limit: Duration) -> String {
    match limit.subsec_millis() {
        0 => format!("{} s", limit.as_secs()),
        _ => format!("{:.1} s", limit.as_secs_f64()),
    }
}

/// Awaits a future for at most `limit`, and drops it when the limit is reached.
///
/// The future is boxed: bounded waits nest deeply in this crate, and their futures would overflow the stack.
pub fn within<T>(
    limit: Duration,
    future: impl Future<Output = T>,
) -> impl Future<Output = Result<T, TimeoutError>> {
    let future = Box::pin(future);
    async move { tokio::time::timeout(limit, future).await.map_err(|_| TimeoutError(limit)) }
}

/// Why a wait ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitError {
    /// The time limit passed.
    TimedOut(Duration),
    /// The caller canceled the wait.
    Canceled,
}

/// Like [`within`], but also ends when the caller cancels.
pub fn within_unless<T>(
    limit: Duration,
    canceled: impl Future<Output = ()>,
    future: impl Future<Output = T>,
) -> impl Future<Output = Result<T, WaitError>> {
    let (canceled, future) = (Box::pin(canceled), Box::pin(future));
    async move {
        // unbounded: the first branch has a timeout
        tokio::select! {
            biased;
            met = tokio::time::timeout(limit, future) => met.map_err(|_| WaitError::TimedOut(limit)),
            () = canceled => Err(WaitError::Canceled),
        }
    }
}

/// Awaits a future until `ended` completes; then returns `None`.
///
/// An event ends this wait, not a limit. Each caller therefore needs an `unbounded:` comment.
pub fn until<T>(
    ended: impl Future<Output = ()>,
    future: impl Future<Output = T>,
) -> impl Future<Output = Option<T>> {
    let (ended, future) = (Box::pin(ended), Box::pin(future));
    async move {
        // unbounded: each caller has its own reason
        tokio::select! {
            biased;
            met = future => Some(met),
            () = ended => None,
        }
    }
}
