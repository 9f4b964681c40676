//! Reads a response that is an event stream, with limits on memory, rate and time.

use super::RemoteError;
use crate::limits::MAX_ANSWERED;
use crate::lines::{InputLine, Lines};
use crate::rpc::message::Message;
use crate::wire::{MAX_GARBAGE_LINES, MAX_PER_SECOND};
use bytes::Bytes;
use hyper::body::Body;
use serde::de::IgnoredAny;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::{Sleep, sleep};

/// The limit on lines per second: an event has a few lines.
const LINES_PER_SECOND: u32 = 4 * MAX_PER_SECOND;

/// A server-sent event. Its id is ignored, because an interrupted response is not resumed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    name: Option<String>,
    data: Option<String>,
}

/// A parser for server-sent events. An oversized event ends the stream.
struct Parser {
    lines: Lines,
    open: Event,
    garbage: u64,
}

/// Why the stream is abandoned.
#[derive(Debug, PartialEq, Eq)]
struct StreamError(&'static str);

impl Parser {
    fn new(max: usize) -> Parser {
        Parser { lines: Lines::new(max), open: Event::default(), garbage: 0 }
    }

    /// Returns the next complete event, and adds the number of parsed lines to `lines_seen`.
    fn next(&mut self, lines_seen: &mut u32) -> Result<Option<Event>, StreamError> {
        while let Some(line) = self.lines.next() {
            *lines_seen += 1;
            let InputLine::Whole(bytes) = line else { return Err(StreamError("an event is too long")) };
            let text = String::from_utf8(bytes).map_err(|_| StreamError("an event is not valid UTF-8"))?;
            let text = text.strip_suffix('\r').unwrap_or(&text);
            if text.is_empty() {
                let event = std::mem::take(&mut self.open);
                if self.is_event(&event)? {
                    return Ok(Some(event));
                }
            } else {
                self.field(text)?;
            }
        }
        // Do not wait for the end of an oversized line: it may never come.
        if self.lines.is_too_long() { Err(StreamError("an event is too long")) } else { Ok(None) }
    }

    fn field(&mut self, line: &str) -> Result<(), StreamError> {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                let data = self.open.data.get_or_insert_default();
                if data.len() + value.len() + 1 > self.lines.max() {
                    return Err(StreamError("an event is too long"));
                }
                if !data.is_empty() {
                    data.push('\n');
                }
                data.push_str(value);
            }
            "event" => self.open.name = Some(value.to_owned()),
            // `id` and `retry` are for clients that reconnect.
            _ => {}
        }
        Ok(())
    }

    /// Returns whether the event has data. Tolerates a limited number of invalid messages.
    fn is_event(&mut self, event: &Event) -> Result<bool, StreamError> {
        let Some(data) = event.data.as_deref() else { return Ok(false) };
        let message = matches!(event.name.as_deref(), None | Some("" | "message"));
        if message && !data.trim().is_empty() && serde_json::from_str::<IgnoredAny>(data).is_err() {
            self.garbage += 1;
        }
        if self.garbage > MAX_GARBAGE_LINES {
            return Err(StreamError("too many invalid messages"));
        }
        Ok(true)
    }
}

/// The events of a response body.
pub struct Events<B> {
    body: B,
    parser: Parser,
    /// The lines of the current second, and the start of that second.
    lines_seen: u32,
    since: Instant,
    pause: Option<Pin<Box<Sleep>>>,
    /// The time limit of the whole response.
    end: Pin<Box<Sleep>>,
    finished: bool,
}

impl<B> Events<B> {
    /// Reads events from a body for at most `longest`.
    pub fn new(body: B, longest: Duration) -> Events<B> {
        Events {
            body,
            parser: Parser::new(MAX_ANSWERED),
            lines_seen: 0,
            since: Instant::now(),
            pause: None,
            end: Box::pin(sleep(longest)),
            finished: false,
        }
    }

    /// Pauses reading for the rest of the second if it had too many lines.
    fn pace(&mut self) {
        let left = Duration::from_secs(1).checked_sub(self.since.elapsed());
        match left {
            Some(left) if self.lines_seen >= LINES_PER_SECOND => self.pause = Some(Box::pin(sleep(left))),
            Some(_) => {}
            None => (self.lines_seen, self.since) = (0, Instant::now()),
        }
    }

    fn give_up(&mut self, why: impl std::fmt::Display) -> Option<Result<Event, RemoteError>> {
        self.finished = true;
        Some(Err(RemoteError(why.to_string())))
    }
}

impl<B> Events<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    /// Returns the next valid message; `None` at the end of the stream.
    pub async fn next_message(&mut self) -> Result<Option<Message>, RemoteError> {
        loop {
            // unbounded: the whole stream has a limit, see `new`
            let Some(event) = poll_fn(|cx| self.poll_next(cx)).await.transpose()? else { return Ok(None) };
            let is_message = matches!(event.name.as_deref(), None | Some("" | "message"));
            if is_message && let Ok(message) = Message::parse(event.data.unwrap_or_default().as_bytes()) {
                return Ok(Some(message));
            }
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Event, RemoteError>>> {
        let this = self;
        loop {
            if this.finished {
                return Poll::Ready(None);
            }
            if this.end.as_mut().poll(cx).is_ready() {
                return Poll::Ready(this.give_up("the response took too long"));
            }
            if let Some(pause) = &mut this.pause {
                ready!(pause.as_mut().poll(cx));
                (this.pause, this.lines_seen, this.since) = (None, 0, Instant::now());
            }
            match this.parser.next(&mut this.lines_seen) {
                Ok(Some(event)) => {
                    this.pace();
                    return Poll::Ready(Some(Ok(event)));
                }
                Ok(None) => this.pace(),
                Err(StreamError(why)) => return Poll::Ready(this.give_up(why)),
            }
            if this.pause.is_some() {
                continue;
            }
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        this.parser.lines.push(&bytes);
                    }
                }
                Some(Err(error)) => return Poll::Ready(this.give_up(error)),
                None => this.finished = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(max: usize, pieces: &[&str]) -> (Vec<Event>, Option<StreamError>) {
        let (mut parser, mut lines_seen, mut found) = (Parser::new(max), 0, Vec::new());
        for piece in pieces {
            parser.lines.push(piece.as_bytes());
            loop {
                match parser.next(&mut lines_seen) {
                    Ok(Some(event)) => found.push(event),
                    Ok(None) => break,
                    Err(give_up) => return (found, Some(give_up)),
                }
            }
        }
        (found, None)
    }

    #[test]
    fn parses_events_across_chunks() {
        let (found, wrong) = parse(
            100,
            &[
                "event: mess",
                "age\nid: 1\nda",
                "ta: {\"a\":\r\ndata:1}\r\n\r\n: hello\n\nretry: 5\n\n",
                "data: 2\n\n",
                "data: half",
            ],
        );
        let first = Event { name: Some("message".to_owned()), data: Some("{\"a\":\n1}".to_owned()) };
        assert_eq!(found, [first, Event { name: None, data: Some("2".to_owned()) }]);
        assert_eq!(wrong, None);
    }

    #[test]
    fn rejects_events_beyond_the_limit() {
        assert_eq!(parse(9, &["data: 123\n\n"]).0.len(), 1);
        for long in ["data: 1234\n\n", "data: 1234"] {
            assert_eq!(parse(9, &[long]).1, Some(StreamError("an event is too long")));
        }
        assert_eq!(parse(9, &["data:1234\ndata:1234\n\n"]).0.len(), 1);
        assert_eq!(
            parse(9, &["data:1234\ndata:1234\ndata:1\n\n"]).1,
            Some(StreamError("an event is too long"))
        );
    }

    #[test]
    fn tolerates_a_limited_number_of_garbage_events() {
        let max = usize::try_from(MAX_GARBAGE_LINES).expect("fits");
        assert_eq!(parse(100, &[&"data: nonsense\n\n".repeat(max)]).1, None);
        assert_eq!(
            parse(100, &[&"data: nonsense\n\n".repeat(max + 1)]).1,
            Some(StreamError("too many invalid messages"))
        );
    }
}
