//! Turns a command's output into facts for the watchdog. The bytes themselves take another path (`copy`): nothing
//! here changes them or keeps more than a bounded part.

use dogwatch_agents::{Line, Reader, Splitter};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::Fact;
use dogwatch_core::watch::health::HealthIssue;
use dogwatch_core::watch::replay::{Feed, Input};
use dogwatch_core::watch::sign::{Sign, Totals};
use memchr::{memchr_iter, memrchr_iter};
use std::time::Instant;

use super::copy::Stream;

/// How many earlier lines a plain reader compares a line with. Of a flood, only this many lines are read at the
/// end.
const REMEMBERED: usize = 8;
/// A chunk of at least this size that begins with short lines is part of a flood.
const FLOOD: usize = 4 * 1024;

/// The most health issues that may wait for the main thread. Any more are dropped.
const MAX_HEALTH_ISSUES: usize = 16;

/// After a flood was read without finding anything new, floods are skimmed for this many times as long as that
/// took.
const REST: u32 = 8;

/// Something found in the output, in order.
pub enum Heard {
    Fact(Fact),
    HealthIssue(HealthIssue),
}

/// Reads both streams of one command.
pub struct Hearing {
    reader: Reader,
    structured: bool,
    lines: [Splitter; 2],
    signs: Vec<Sign>,
    feed: Feed,
    /// Until then, floods that begin with nothing new are skimmed.
    rested: Instant,
    /// Facts that the watchdog has not seen yet.
    facts: Vec<Fact>,
    /// Health issues of the agent, each with the number of facts that precede it.
    issues: Vec<(usize, HealthIssue)>,
    pub bytes: [u64; 2],
}

impl Hearing {
    /// Creates a `Hearing` with the named reader.
    pub fn new(reader: ReaderName) -> Hearing {
        let structured = reader.is_structured();
        Hearing {
            reader: Reader::for_name(reader),
            structured,
            lines: [Splitter::new(), Splitter::new()],
            signs: Vec::new(),
            feed: Feed::new(structured),
            rested: Instant::now(),
            facts: Vec::new(),
            issues: Vec::new(),
            bytes: [0; 2],
        }
    }

    /// Returns how many facts and issues are waiting.
    pub fn waiting(&self) -> usize {
        self.facts.len() + self.issues.len()
    }

    /// Takes what was found since the last call.
    pub fn take(&mut self) -> Vec<Heard> {
        let mut issues = std::mem::take(&mut self.issues).into_iter().peekable();
        let mut heard = Vec::new();
        for (n, fact) in std::mem::take(&mut self.facts).into_iter().enumerate() {
            while let Some((_, issue)) = issues.next_if(|(before, _)| *before <= n) {
                heard.push(Heard::HealthIssue(issue));
            }
            heard.push(Heard::Fact(fact));
        }
        heard.extend(issues.map(|(_, issue)| Heard::HealthIssue(issue)));
        heard
    }

    /// Processes a chunk of output that arrived at one moment.
    pub fn hear(&mut self, stream: Stream, bytes: &[u8], at: Awake) {
        self.bytes[stream as usize] += bytes.len() as u64;
        self.reader.begin_chunk();
        match flood(bytes).filter(|_| !self.structured) {
            Some((head, rest)) => self.skim(stream, head, rest, at),
            None => {
                self.read(stream, bytes, at);
            }
        }
    }

    /// Reads a flood in part.
    ///
    /// All progress in one chunk has the same time. So once its first lines have shown something new, only the last
    /// ones matter, because the next chunk is compared with them. The lines in between are counted but not read.
    ///
    /// A flood without new lines is also read in part, or a command that prints the same line without end would be
    /// slowed down. Anything new in it is found in one of the next chunks.
    fn skim(&mut self, stream: Stream, head: &[u8], rest: &[u8], at: Awake) {
        let fresh = self.read(stream, head, at);
        let now = Instant::now();
        if !fresh && now >= self.rested {
            self.read(stream, rest, at);
            self.rested = Instant::now() + now.elapsed() * REST;
            return;
        }
        let end = memrchr_iter(b'\n', rest).nth(REMEMBERED).map_or(0, |newline| newline + 1);
        let (between, last) = rest.split_at(end);
        if fresh {
            let skipped = memchr_iter(b'\n', between).count() as u64;
            let count = Some(self.feed.totals.messages + skipped);
            self.feed.take(at, Input::Message { count }, &mut self.facts);
        }
        self.read(stream, last, at);
    }

    /// Reads every line. Returns whether one of them was a message.
    fn read(&mut self, stream: Stream, bytes: &[u8], at: Awake) -> bool {
        let before = self.feed.totals.messages;
        let mut lines = std::mem::take(&mut self.lines[stream as usize]);
        lines.feed(bytes, |line| self.line(stream, line, at));
        self.lines[stream as usize] = lines;
        self.feed.totals.messages > before
    }

    fn line(&mut self, stream: Stream, line: Line<'_>, at: Awake) {
        if line.bytes.trim_ascii().is_empty() {
            return;
        }
        match stream {
            Stream::Stdout => self.reader.read_line(line, &mut self.signs),
            Stream::Stderr => self.reader.read_stderr(line.bytes, &mut self.signs),
        }
        self.note_health_issues(at);
        match stream {
            Stream::Stdout => self.feed.line(at, &mut self.signs, &mut self.facts),
            Stream::Stderr => self.feed.stderr_line(at, &mut self.signs, &mut self.facts),
        }
    }

    /// Collects health issues, after the progress that precedes them.
    fn note_health_issues(&mut self, at: Awake) {
        for issue in self.signs.iter().filter_map(Sign::health_issue) {
            self.feed.flush(at, &mut self.facts);
            let again = self
                .issues
                .last()
                .is_some_and(|(before, last)| *before == self.facts.len() && *last == issue);
            if !again && self.issues.len() < MAX_HEALTH_ISSUES {
                self.issues.push((self.facts.len(), issue));
            }
        }
    }

    /// Notes that the workspace changed, and its digest if known.
    pub fn changed(&mut self, at: Awake, digest: Option<u64>) {
        self.feed.changed(at, digest, &mut self.facts);
    }

    /// Notes `count` actions of subagents.
    pub fn subagents_did(&mut self, at: Awake, count: u64) {
        self.feed.subagents_did(at, count, &mut self.facts);
    }

    /// Returns the id of the session, once the agent has printed it.
    pub fn session(&self) -> Option<&str> {
        self.feed.totals.session_id.as_deref()
    }

    /// Hands over what the coalescers hold back, before a judgment.
    pub fn flush(&mut self, at: Awake) {
        self.feed.flush(at, &mut self.facts);
    }

    /// Processes incomplete last lines at the end of the output. Returns the totals.
    pub fn finish(&mut self, at: Awake) -> &Totals {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let mut lines = std::mem::take(&mut self.lines[stream as usize]);
            lines.finish(|line| self.line(stream, line, at));
        }
        self.flush(at);
        &self.feed.totals
    }
}

/// Splits a flood after its first lines. Looks no further than necessary: most of a flood is never read.
fn flood(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let beginning = bytes.get(..FLOOD)?;
    let end = memchr_iter(b'\n', beginning).nth(REMEMBERED)? + 1;
    Some(bytes.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(facts: &[Fact]) -> Vec<(u64, u64)> {
        let seen = facts.iter().filter_map(|fact| match fact {
            Fact::Observed(seen) => Some((seen.last_ms.0, seen.count)),
            Fact::Printed
            | Fact::Repeated
            | Fact::ToolStarted(_)
            | Fact::ToolEnded { .. }
            | Fact::Error { .. }
            | Fact::SubagentStarted { .. }
            | Fact::SubagentEnded { .. }
            | Fact::Sampled { .. }
            | Fact::NeedsHuman { .. }
            | Fact::Suspended { .. } => None,
        });
        seen.collect()
    }

    fn numbered(count: usize) -> Vec<u8> {
        (0..count).flat_map(|n| format!("line {n}\n").into_bytes()).collect()
    }

    #[test]
    fn a_flood_of_new_lines_is_progress_with_every_line_counted() {
        let mut hearing = Hearing::new(ReaderName::Plain);
        hearing.hear(Stream::Stdout, &numbered(10_000), Awake(1));
        hearing.flush(Awake(1));
        let seen = observed(&hearing.facts);
        assert_eq!(seen.iter().map(|(_, count)| count).sum::<u64>(), 10_000, "{seen:?}");
    }

    #[test]
    fn a_flood_of_one_line_is_progress_once() {
        let same: Vec<u8> = b"again and again\n".repeat(1_000);
        let mut hearing = Hearing::new(ReaderName::Plain);
        for at in [1, 10_000, 20_000] {
            hearing.hear(Stream::Stdout, &same, Awake(at));
        }
        hearing.flush(Awake(30_000));
        assert_eq!(observed(&hearing.facts).last().map(|(at, _)| *at), Some(1));
    }

    #[test]
    fn the_end_of_a_flood_is_what_the_next_line_is_compared_with() {
        let mut hearing = Hearing::new(ReaderName::Plain);
        hearing.hear(Stream::Stdout, &numbered(10_000), Awake(1));
        hearing.hear(Stream::Stdout, b"line 9999\n", Awake(10_000));
        hearing.hear(Stream::Stderr, b"line 9998\n", Awake(10_000));
        hearing.flush(Awake(10_000));
        assert_eq!(observed(&hearing.facts).last().map(|(at, _)| *at), Some(1));
        hearing.hear(Stream::Stdout, b"something else\n", Awake(20_000));
        assert_eq!(observed(&hearing.facts).last(), Some(&(20_000, 1)));
    }

    #[test]
    fn new_lines_after_repeated_ones_are_found() {
        let mut flood: Vec<u8> = b"old\n".repeat(1_000);
        let mut hearing = Hearing::new(ReaderName::Plain);
        hearing.hear(Stream::Stdout, &flood, Awake(1));
        flood.extend_from_slice(b"new\n");
        flood.extend_from_slice(&b"old\n".repeat(1_000));
        hearing.hear(Stream::Stdout, &flood, Awake(10_000));
        assert_eq!(observed(&hearing.facts).last(), Some(&(10_000, 1)));
    }

    #[test]
    fn health_issues_are_reported_in_order_without_repeats_and_within_a_bound() {
        let retry = r#"{"type":"system","subtype":"api_retry","retry_delay_ms":500,"error_status":529}"#;
        let says = |n: usize| {
            format!(r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"{n}"}}]}}}}"#)
        };
        let mut hearing = Hearing::new(ReaderName::Claude);
        let lines = [says(1), says(2), retry.into(), retry.into(), says(3), retry.into()].join("\n") + "\n";
        hearing.hear(Stream::Stdout, lines.as_bytes(), Awake(1));
        let words = hearing.take().into_iter().map(|heard| match heard {
            Heard::Fact(Fact::Printed) => "printed",
            Heard::Fact(Fact::Observed(_)) => "progress",
            Heard::Fact(_) => "another fact",
            Heard::HealthIssue(_) => "retries",
        });
        assert_eq!(
            words.collect::<Vec<_>>(),
            ["printed", "progress", "progress", "retries", "progress", "retries"]
        );
        for n in 0..2 * MAX_HEALTH_ISSUES {
            hearing.hear(Stream::Stdout, format!("{}\n{retry}\n", says(n + 10)).as_bytes(), Awake(2));
        }
        assert_eq!(hearing.issues.len(), MAX_HEALTH_ISSUES);
    }

    #[test]
    fn stderr_of_a_structured_agent_is_not_progress() {
        let mut hearing = Hearing::new(ReaderName::Claude);
        hearing.hear(Stream::Stderr, b"a warning\nanother one\n", Awake(1));
        hearing.flush(Awake(1));
        assert_eq!(hearing.facts, []);
        hearing.hear(Stream::Stdout, b"{\"type\":\"system\",\"subtype\":\"init\"}\n", Awake(2));
        assert_eq!(hearing.facts, [Fact::Printed]);
    }
}
