//! The path from an agent's bytes to facts: splits the output into lines, reads them, and passes the signs to a feed.
//! Runs, `exec` and replays use it, so the same bytes at the same moments lead to the same facts.

use crate::limits::{from_exit, hint};
use crate::lines::{Line, Splitter};
use crate::marker::last_marker;
use crate::reader::{Reader, is_blank};
use dogwatch_core::record::event::Usage;
use dogwatch_core::record::prices::PriceTable;
use dogwatch_core::run::input::{Input as RunInput, NodeInput};
use dogwatch_core::run::job::{Exit, Job, JobReport, Marker};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::text::{clip, printable_bytes};
use dogwatch_core::time::moment::{Awake, Wall};
use dogwatch_core::watch::feed::{Feed, FeedItem, Input, Stream};
use dogwatch_core::watch::sign::{ResetsAt, Sign, Totals};
use std::borrow::{Borrow, BorrowMut};
use std::mem::take;

/// The most bytes kept of the last line of stderr.
pub const MAX_LAST_LINE: usize = 500;

/// Listens to one session of one agent.
#[derive(Debug)]
pub struct Listener {
    name: ReaderName,
    reader: Reader,
    lines: [Splitter; 2],
    signs: Vec<Sign>,
    feed: Feed,
    /// The moment of the last line.
    read_at: Option<Awake>,
    /// The last line of stderr that is not a log line, at most `MAX_LAST_LINE` bytes of it.
    last_error_line: Vec<u8>,
    /// The number of bytes on stdout and stderr.
    pub bytes: [u64; 2],
}

impl Listener {
    /// Creates the listener of a session with the named reader.
    pub fn new(name: ReaderName) -> Listener {
        Listener {
            name,
            reader: Reader::for_name(name),
            lines: Default::default(),
            signs: Vec::new(),
            feed: Feed::new(name.is_structured()),
            read_at: None,
            last_error_line: Vec::new(),
            bytes: [0; 2],
        }
    }

    /// Declares that the agent resumes an earlier session that was already charged with this usage.
    pub fn resume_from(&mut self, charged: Usage) {
        self.reader.resume_from(charged);
    }

    /// Sets the prices for an agent that reports only tokens, and the model that its command line names.
    pub fn price_by(&mut self, prices: PriceTable, model: Option<String>) {
        self.feed.prices = prices;
        self.feed.totals.model = model;
    }

    /// Returns the feed, for inputs that are not output.
    pub fn feed(&mut self) -> &mut Feed {
        &mut self.feed
    }

    /// Returns the id of the agent's own session, once the agent has printed it.
    pub fn session_id(&self) -> Option<&str> {
        self.feed.totals.session_id.as_deref()
    }

    /// Takes bytes that arrived at one moment.
    pub fn chunk(&mut self, at: Awake, stream: Stream, bytes: &[u8]) {
        self.bytes[stream as usize] += bytes.len() as u64;
        if self.name.is_structured() && stream == Stream::Stdout {
            // The first bytes show that the agent has started, even before the first line is complete.
            self.feed.take(at, Input::Stdout { bytes: bytes.len() as u64 });
        }
        let mut lines = take(&mut self.lines[stream as usize]);
        let rest = lines.complete(bytes, |line| self.line(at, stream, line));
        let rest = &rest[self.reader.skip_repeats(rest, stream)..];
        lines.feed(rest, |line| self.line(at, stream, line));
        self.lines[stream as usize] = lines;
        if !self.name.is_structured() && !bytes.contains(&b'\n') && !is_blank(bytes) {
            // Dots and bars that grow may mean work or waiting, like a repeated line. The core decides whether they count.
            self.signs.push(Sign::Repeated);
            self.feed.line(at, stream, &mut self.signs);
        }
    }

    /// Takes a line that was complete at one moment.
    pub fn line(&mut self, at: Awake, stream: Stream, line: Line<'_>) {
        if self.read_at.replace(at) != Some(at) {
            self.reader.begin_chunk();
        }
        match stream {
            Stream::Stdout => self.reader.read_line(line, &mut self.signs),
            Stream::Stderr => {
                self.reader.read_stderr(line.bytes, &mut self.signs);
                self.keep_error_line(line.bytes);
            }
        }
        if !is_blank(line.bytes) {
            self.feed.line(at, stream, &mut self.signs);
        }
    }

    fn keep_error_line(&mut self, line: &[u8]) {
        if !is_blank(line) && !self.reader.is_log(line) {
            self.last_error_line.clear();
            self.last_error_line.extend_from_slice(&line[..line.len().min(MAX_LAST_LINE)]);
        }
    }

    /// Takes what was found since the last call, in order. Nothing is held back for the rest of the moment.
    pub fn take(&mut self) -> Vec<FeedItem> {
        self.feed.release();
        let mut items = Vec::new();
        self.feed.take_items(&mut items);
        items
    }

    /// Takes the items found since the last call as inputs of the core, in order. Items without a time get `now`.
    pub fn take_inputs(&mut self, job: Job, now: Wall) -> Vec<RunInput> {
        let items = self.take().into_iter().map(|item| RunInput::from_feed(job, item));
        let mut inputs: Vec<_> = items.collect();
        inputs.extend(self.feed.take_usage().map(|usage| RunInput::Job(job, NodeInput::Used(usage))));
        if let Some((seen_at, windows)) = self.feed.take_windows() {
            let seen_at = seen_at.unwrap_or(now);
            inputs.push(RunInput::WindowsSeen { job, seen_at, windows });
        }
        if self.feed.take_result() {
            inputs.push(RunInput::Job(job, NodeInput::ResultSeen));
        }
        inputs
    }

    /// Closes the output and returns the report of the session. Call it once the process tree is empty and the pipes
    /// are drained. `resolve` returns when a rate limit ends.
    pub fn report(
        &mut self,
        at: Awake,
        prompt: &str,
        exit: Option<Exit>,
        resolve: impl FnOnce(&ResetsAt) -> Option<Wall>,
    ) -> JobReport {
        self.close(at);
        let totals = self.totals(exit.and_then(Exit::code)).clone();
        let error_line = printable_bytes(&self.last_error_line);
        let said = totals.result.as_ref().and_then(|r| r.text.lines().rfind(|l| !l.trim().is_empty()));
        let last_line = if error_line.is_empty() { said.unwrap_or("") } else { &error_line };
        let last_line = clip(last_line, MAX_LAST_LINE).to_owned();
        let last_line = match hint(&last_line) {
            Some(hint) => format!("{last_line}; {hint}"),
            None => last_line,
        };
        let resets_at = totals.limit.as_ref().and_then(|limit| resolve(limit.resets_at.as_ref()?));
        let marker = self.marker(prompt);
        let computed_cost = totals.computed_cost(&self.feed.prices);
        let [stdout_bytes, stderr_bytes] = self.bytes;
        JobReport {
            totals,
            marker,
            resets_at,
            stdout_bytes,
            stderr_bytes,
            last_line,
            computed_cost,
            ..JobReport::default()
        }
    }

    /// Takes incomplete last lines at the end of the output.
    pub fn close(&mut self, at: Awake) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let mut lines = take(&mut self.lines[stream as usize]);
            lines.finish(|line| self.line(at, stream, line));
        }
        self.feed.flush(at);
    }

    /// Returns the totals of a session whose output is closed. Some are known only at the end, or from the exit code.
    pub fn totals(&mut self, code: Option<i32>) -> &Totals {
        self.reader.finish(&mut self.signs);
        let totals = &mut self.feed.totals;
        self.signs.drain(..).for_each(|sign| totals.add(&sign));
        let from_exit = code.and_then(|code| from_exit(self.name, code, totals));
        from_exit.into_iter().for_each(|sign| totals.add(&sign));
        totals
    }

    /// Returns the state marker in the result. A marker that repeats the prompt does not count.
    pub fn marker(&self, prompt: &str) -> Option<Marker> {
        let result = self.feed.totals.result.as_ref()?;
        last_marker(&result.text, self.name.is_structured(), prompt)
    }
}

impl Borrow<Feed> for Listener {
    fn borrow(&self) -> &Feed {
        &self.feed
    }
}

impl BorrowMut<Feed> for Listener {
    fn borrow_mut(&mut self) -> &mut Feed {
        &mut self.feed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::watch::Fact;
    use dogwatch_core::watch::feed::MAX_ISSUES;

    fn flushed(listener: &mut Listener, at: u64) -> Vec<FeedItem> {
        listener.feed.flush(Awake(at));
        listener.take()
    }

    fn observed(items: &[FeedItem]) -> Vec<(u64, u64)> {
        let seen = items.iter().filter_map(|item| match item {
            FeedItem::Fact(Fact::Observed(seen)) => Some((seen.last_ms.0, seen.count)),
            FeedItem::Fact(_) | FeedItem::Issue(_) => None,
        });
        seen.collect()
    }

    fn numbered(count: usize) -> Vec<u8> {
        (0..count).flat_map(|n| format!("line {n}\n").into_bytes()).collect()
    }

    #[test]
    fn a_flood_of_new_lines_is_progress_with_every_line_counted() {
        let mut listener = Listener::new(ReaderName::Plain);
        listener.chunk(Awake(1), Stream::Stdout, &numbered(10_000));
        let seen = observed(&flushed(&mut listener, 1));
        assert_eq!(seen.iter().map(|(_, count)| count).sum::<u64>(), 10_000, "{seen:?}");
    }

    #[test]
    fn a_flood_of_one_line_is_progress_once() {
        let same: Vec<u8> = b"again and again\n".repeat(1_000);
        let mut listener = Listener::new(ReaderName::Plain);
        for at in [1, 10_000, 20_000] {
            listener.chunk(Awake(at), Stream::Stdout, &same);
        }
        let items = flushed(&mut listener, 30_000);
        assert_eq!(observed(&items).last().map(|(at, _)| *at), Some(1));
        let repeated = items.iter().filter(|item| **item == FeedItem::Fact(Fact::Repeated)).count();
        assert_eq!(repeated, 2, "once after each pause");
    }

    #[test]
    fn a_line_that_grows_counts_as_a_repeated_line() {
        let repeats = |name, text: &[u8]| {
            let mut listener = Listener::new(name);
            listener.chunk(Awake(1), Stream::Stdout, b"{}\n");
            for at in [1_000, 10_000, 20_000] {
                listener.chunk(Awake(at), Stream::Stdout, text);
            }
            let items = flushed(&mut listener, 30_000);
            assert_eq!(observed(&items).last().map_or(1, |(at, _)| *at), 1, "a part of a line is not new");
            items.iter().filter(|item| **item == FeedItem::Fact(Fact::Repeated)).count()
        };
        assert_eq!(repeats(ReaderName::Plain, b"."), 2, "once after each pause");
        assert_eq!(repeats(ReaderName::Plain, b"\r10%"), 2);
        assert_eq!(repeats(ReaderName::Plain, b" "), 0);
        assert_eq!(repeats(ReaderName::Claude, b"."), 0);
    }

    #[test]
    fn skipped_repeats_count_as_read_ones() {
        let same = b"again\n".repeat(100);
        let mut tail = same.clone();
        tail.extend_from_slice(b"agai");
        let mut end = b"n\n".to_vec();
        end.extend_from_slice(&same);
        end.extend_from_slice(b"news\nagain\n");
        let mut in_chunks = Listener::new(ReaderName::Plain);
        let mut by_line = Listener::new(ReaderName::Plain);
        for (at, bytes) in [(1, &same), (9_000, &tail), (18_000, &end)] {
            in_chunks.chunk(Awake(at), Stream::Stdout, bytes);
        }
        for (at, count) in [(1, 100), (9_000, 100), (18_000, 101)] {
            for _ in 0..count {
                by_line.line(Awake(at), Stream::Stdout, Line { bytes: b"again", cut: false });
            }
        }
        for line in ["news", "again"] {
            by_line.line(Awake(18_000), Stream::Stdout, Line { bytes: line.as_bytes(), cut: false });
        }
        assert_eq!(flushed(&mut in_chunks, 18_000), flushed(&mut by_line, 18_000));
        assert_eq!(in_chunks.totals(None).result, by_line.totals(None).result);
    }

    #[test]
    fn the_end_of_a_flood_is_what_the_next_line_is_compared_with() {
        let mut listener = Listener::new(ReaderName::Plain);
        listener.chunk(Awake(1), Stream::Stdout, &numbered(10_000));
        listener.chunk(Awake(10_000), Stream::Stdout, b"line 9999\n");
        listener.chunk(Awake(10_000), Stream::Stderr, b"line 9998\n");
        assert_eq!(observed(&flushed(&mut listener, 10_000)).last().map(|(at, _)| *at), Some(1));
        listener.chunk(Awake(20_000), Stream::Stdout, b"something else\n");
        assert_eq!(observed(&listener.take()), [(20_000, 1)]);
    }

    #[test]
    fn new_lines_within_repeated_ones_are_found() {
        let mut flood: Vec<u8> = b"old\n".repeat(1_000);
        let mut listener = Listener::new(ReaderName::Plain);
        listener.chunk(Awake(1), Stream::Stdout, &flood);
        flood.extend_from_slice(b"new\n");
        flood.extend_from_slice(&b"old\n".repeat(1_000));
        listener.chunk(Awake(10_000), Stream::Stdout, &flood);
        assert_eq!(observed(&listener.take()).last(), Some(&(10_000, 1)));
    }

    #[test]
    fn health_issues_are_reported_in_order_without_repeats_and_within_a_bound() {
        let retry = |status: u16| {
            format!(
                r#"{{"type":"system","subtype":"api_retry","retry_delay_ms":500,"error_status":{status}}}"#
            )
        };
        let says = |n: usize| {
            format!(r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"{n}"}}]}}}}"#)
        };
        let mut listener = Listener::new(ReaderName::Claude);
        let lines = [says(1), says(2), retry(529), retry(529), says(3), retry(529)].join("\n") + "\n";
        listener.chunk(Awake(1), Stream::Stdout, lines.as_bytes());
        let words = listener.take().into_iter().map(|item| match item {
            FeedItem::Fact(Fact::Printed) => "printed",
            FeedItem::Fact(Fact::Observed(_)) => "progress",
            FeedItem::Fact(_) => "another fact",
            FeedItem::Issue(_) => "retries",
        });
        assert_eq!(
            words.collect::<Vec<_>>(),
            ["printed", "progress", "progress", "retries", "progress", "retries"]
        );
        for n in 0..2 * MAX_ISSUES {
            listener.chunk(Awake(2), Stream::Stdout, format!("{}\n{}\n", retry(529), retry(500)).as_bytes());
            listener.chunk(Awake(2), Stream::Stdout, format!("{}\n", says(n)).as_bytes());
        }
        let issues = listener.take().into_iter().filter(|item| matches!(item, FeedItem::Issue(_))).count();
        assert_eq!(issues, MAX_ISSUES);
    }

    #[test]
    fn stderr_of_a_structured_agent_is_not_progress() {
        let mut listener = Listener::new(ReaderName::Claude);
        listener.chunk(Awake(1), Stream::Stderr, b"a warning\nanother one\n");
        assert_eq!(flushed(&mut listener, 1), []);
        listener.chunk(Awake(2), Stream::Stdout, b"{\"type\":");
        assert_eq!(listener.take(), [FeedItem::Fact(Fact::Printed)]);
    }
}
