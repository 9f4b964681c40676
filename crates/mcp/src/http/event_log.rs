//! The events of one stream. A log keeps them for its reader, so that a client that lost its connection can continue
//! after the last event that it has seen.

use crate::limits::MAX_ANSWERED;
use crate::rpc::message::Message;
use bytes::Bytes;
use hyper::body::{Body, Frame};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::CancellationToken;

/// How often an idle event stream sends a keep-alive: clients give up after a few minutes.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// How long a client is asked to wait before it reconnects, in milliseconds.
const RETRY_MS: u64 = 3_000;
/// How many events a log keeps. The oldest are dropped.
const MAX_EVENTS: usize = 256;
/// How many bytes a log keeps, except for its last event.
const MAX_BYTES: usize = 2 * MAX_ANSWERED;

/// The events of one stream.
pub struct EventLog {
    /// The number of the stream in its session; `None` outside of a session, where streams cannot be resumed.
    number: Option<u64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    events: VecDeque<Bytes>,
    bytes: usize,
    /// The index of the first event that is kept.
    first: u64,
    is_closed: bool,
    /// Whether a reader receives the events of the session's own stream.
    has_reader: bool,
    wakers: Vec<Waker>,
}

impl State {
    fn push(&mut self, event: String) {
        if self.is_closed {
            return;
        }
        self.bytes += event.len();
        self.events.push_back(Bytes::from(event));
        while self.events.len() > MAX_EVENTS || (self.bytes > MAX_BYTES && self.events.len() > 1) {
            self.bytes -= self.events.pop_front().map_or(0, |event| event.len());
            self.first += 1;
        }
        self.wake();
    }

    fn next_index(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    fn wake(&mut self) {
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }
}

impl EventLog {
    /// Creates the log of a stream in a session. Its first event contains the id and the interval for a reconnect.
    pub fn in_session(number: u64) -> EventLog {
        let log = EventLog { number: Some(number), state: Mutex::default() };
        log.state().push(format!("id: {number}-0\nretry: {RETRY_MS}\ndata:\n\n"));
        log
    }

    /// Creates the log of a stream outside of a session.
    pub fn without_session() -> EventLog {
        EventLog { number: None, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message.
    pub fn push(&self, message: &Message) {
        let mut state = self.state();
        let data = message.to_json();
        let index = state.next_index();
        state.push(match self.number {
            Some(number) => format!("id: {number}-{index}\ndata: {data}\n\n"),
            None => format!("data: {data}\n\n"),
        });
    }

    /// Ends the stream.
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.wake();
    }

    /// Returns the events from an index on.
    pub fn events_from(self: &Arc<Self>, from: u64) -> EventStream {
        let keep_alive = Box::pin(sleep(KEEP_ALIVE));
        EventStream { log: Arc::clone(self), next: from, keep_alive, on_drop: None, is_only_reader: false }
    }

    /// Like [`events_from`](Self::events_from), but only one stream at a time receives events. Another one just stays open: a client
    /// must not receive a message twice.
    pub fn own_events_from(self: &Arc<Self>, from: u64) -> EventStream {
        let is_only_reader = !std::mem::replace(&mut self.state().has_reader, true);
        let mut stream = self.events_from(if is_only_reader { from } else { u64::MAX });
        stream.is_only_reader = is_only_reader;
        stream
    }
}

/// Parses the id of an event: the number of its stream, and its index.
pub fn parse_id(id: &str) -> Option<(u64, u64)> {
    let (number, index) = id.split_once('-')?;
    Some((number.parse().ok()?, index.parse().ok()?))
}

/// A response body with the events of a log. It ends when the log is closed.
pub struct EventStream {
    log: Arc<EventLog>,
    next: u64,
    keep_alive: Pin<Box<Sleep>>,
    on_drop: Option<CancellationToken>,
    is_only_reader: bool,
}

impl EventStream {
    /// Cancels a token if the client disconnects before the end of the stream.
    pub fn cancel_on_disconnect(mut self, canceled: CancellationToken) -> EventStream {
        self.on_drop = Some(canceled);
        self
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        if self.is_only_reader {
            self.log.state().has_reader = false;
        }
        if let Some(canceled) = self.on_drop.take() {
            canceled.cancel();
        }
    }
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let event = {
            let mut state = this.log.state();
            let index = this.next.max(state.first);
            let event =
                usize::try_from(index - state.first).ok().and_then(|at| state.events.get(at).cloned());
            if event.is_none() {
                if state.is_closed {
                    drop(state);
                    this.on_drop = None;
                    return Poll::Ready(None);
                }
                if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                    state.wakers.push(cx.waker().clone());
                }
            } else {
                this.next = index + 1;
            }
            event
        };
        let event = match event {
            Some(event) => event,
            None if this.keep_alive.as_mut().poll(cx).is_ready() => Bytes::from_static(b":\n\n"),
            None => return Poll::Pending,
        };
        this.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
        Poll::Ready(Some(Ok(Frame::data(event))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::message::Object;
    use http_body_util::BodyExt;

    fn note(method: &str) -> Message {
        Message::notification(method, Object::new())
    }

    /// Returns what a stream has received, up to its end or to the point where it waits.
    fn received(stream: &mut EventStream) -> String {
        let mut text = String::new();
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut *stream).poll_frame(&mut cx) {
            text.push_str(std::str::from_utf8(frame.data_ref().expect("data")).expect("text"));
        }
        text
    }

    fn with_clock(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime")
            .block_on(test);
    }

    #[test]
    fn a_stream_can_be_resumed_after_any_event() {
        with_clock(async {
            let log = Arc::new(EventLog::in_session(4));
            log.push(&note("a"));
            log.push(&note("b"));
            let all = received(&mut log.events_from(0));
            assert!(all.starts_with("id: 4-0\nretry: 3000\ndata:\n\nid: 4-1\ndata: {"), "{all}");
            let (number, index) = parse_id("4-1").expect("an id");
            let rest = received(&mut log.events_from(index + 1));
            assert!(number == 4 && rest.starts_with("id: 4-2\ndata: ") && rest.contains(r#""b""#), "{rest}");
            log.close();
            assert!(log.events_from(9).collect().await.expect("infallible").to_bytes().is_empty());
        });
    }

    #[test]
    fn a_log_keeps_a_limited_number_of_events_and_bytes() {
        with_clock(async {
            let log = Arc::new(EventLog::without_session());
            for n in 0..MAX_EVENTS + 10 {
                log.push(&note(&n.to_string()));
            }
            let kept = received(&mut log.events_from(0));
            assert_eq!(kept.matches("data: ").count(), MAX_EVENTS);
            assert!(kept.contains(r#""10""#) && !kept.contains(r#""9""#));
            for _ in 0..3 {
                log.state().push("x".repeat(MAX_ANSWERED + 1));
            }
            assert_eq!(log.state().events.len(), 1, "the last event is always kept");
        });
    }

    #[test]
    fn only_one_stream_of_a_session_receives_its_events() {
        with_clock(async {
            let log = Arc::new(EventLog::in_session(0));
            let (mut first, mut second) = (log.own_events_from(1), log.own_events_from(1));
            log.push(&note("changed"));
            assert!(received(&mut first).contains("changed"));
            assert_eq!(received(&mut second), "");
            drop(first);
            assert!(received(&mut log.own_events_from(1)).contains("changed"), "a new reader takes over");
        });
    }

    #[test]
    fn a_client_that_disconnects_early_cancels_its_call() {
        with_clock(async {
            let (log, canceled) = (Arc::new(EventLog::without_session()), CancellationToken::new());
            let mut whole = log.events_from(0).cancel_on_disconnect(canceled.clone());
            drop(log.events_from(0).cancel_on_disconnect(CancellationToken::new()));
            log.close();
            received(&mut whole);
            drop(whole);
            assert!(!canceled.is_cancelled(), "the stream ended before");
            drop(Arc::new(EventLog::without_session()).events_from(0).cancel_on_disconnect(canceled.clone()));
            assert!(canceled.is_cancelled());
        });
    }
}
