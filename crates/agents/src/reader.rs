//! The reader of an agent: converts lines to signs.

use crate::claude::Claude;
use crate::codex::Codex;
use crate::drift::Drift;
use crate::gemini::Gemini;
use crate::json::Raw;
use crate::limits;
use crate::lines::Line;
use crate::novelty::Novelty;
use crate::opencode::{self, Opencode};
use crate::plain::Plain;
use dogwatch_core::record::event::Usage;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::watch::feed::Stream;
use dogwatch_core::watch::sign::{Heartbeats, Sign};

/// The longest id or tool name, in bytes; longer ones are clipped.
pub(crate) const MAX_NAME: usize = 256;
/// The longest error text, in bytes; longer ones are clipped.
pub(crate) const MAX_ERROR: usize = 4 * 1024;

/// Reads one session of one agent. Appends signs to the caller's list; a line may have none.
#[derive(Debug)]
pub struct Reader {
    kind: Kind,
    drift: Drift,
    novelty: Novelty,
    heartbeats: Heartbeats,
    /// The usage already charged for the agent session that this one resumes.
    charged: Usage,
}

#[derive(Debug)]
enum Kind {
    Plain(Plain),
    Claude(Claude),
    Codex(Codex),
    Opencode(Opencode),
    Gemini(Gemini),
}

impl Reader {
    /// Creates a reader for the named agent.
    pub fn for_name(name: ReaderName) -> Reader {
        let kind = match name {
            ReaderName::Plain => Kind::Plain(Plain::default()),
            ReaderName::Claude => Kind::Claude(Claude::default()),
            ReaderName::Codex => Kind::Codex(Codex::default()),
            ReaderName::Opencode => Kind::Opencode(Opencode::default()),
            ReaderName::Gemini => Kind::Gemini(Gemini::default()),
        };
        Reader {
            kind,
            drift: Drift::default(),
            novelty: Novelty::default(),
            heartbeats: Heartbeats::default(),
            charged: Usage::default(),
        }
    }

    /// Declares that the agent resumes one of its earlier sessions. Claude Code and Codex then report totals that
    /// include that session, so the usage already charged is subtracted.
    pub fn resume_from(&mut self, charged: Usage) {
        if matches!(self.kind, Kind::Claude(_) | Kind::Codex(_)) {
            self.charged = charged;
        }
    }

    /// Declares that the following lines, up to the next call, arrived at the same moment. This saves much work in a
    /// flood (see `novelty`). Without it every line is judged separately.
    pub fn begin_chunk(&mut self) {
        self.novelty.begin_chunk();
    }

    /// Reads a whole line of stdout.
    pub fn read(&mut self, line: &[u8], signs: &mut Vec<Sign>) {
        self.read_line(Line { bytes: line, cut: false }, signs);
    }

    /// Reads a line of stdout that may be cut. The signs before the cut count; otherwise a tool with a very long result
    /// would never seem to end.
    pub fn read_line(&mut self, line: Line<'_>, signs: &mut Vec<Sign>) {
        let mark = signs.len();
        match &mut self.kind {
            Kind::Plain(reader) => return reader.read(line.bytes, &mut self.novelty, signs),
            Kind::Claude(reader) => reader.read(line, signs),
            Kind::Codex(reader) => reader.read(line, signs),
            Kind::Opencode(reader) => reader.read(line, signs),
            Kind::Gemini(reader) => reader.read(line, signs),
        }
        signs[mark..].iter_mut().for_each(|sign| self.heartbeats.mark(sign));
        if self.charged != Usage::default() {
            signs[mark..].iter_mut().for_each(|sign| subtract_charged(sign, self.charged));
        }
        let known = signs[mark..].iter().any(|sign| *sign != Sign::Unknown);
        if !known || self.drift.drifted {
            self.unknown(line, known, mark, signs);
        } else {
            self.drift.note(true);
        }
    }

    /// Handles an unknown line. After a drift, new lines count as text, because the reader knows nothing better.
    #[cold]
    fn unknown(&mut self, line: Line<'_>, known: bool, mark: usize, signs: &mut Vec<Sign>) {
        if known || is_blank(line.bytes) {
            return;
        }
        if self.drift.drifted {
            if self.novelty.is_new(line.bytes) {
                signs.truncate(mark);
                signs.push(Sign::Text);
            }
        } else if !line.cut && self.drift.note(false) {
            signs.push(Sign::Drift);
        }
    }

    /// Skips repetitions of a line that a plain agent prints endlessly. Returns how many bytes need not be read.
    pub(crate) fn skip_repeats(&mut self, bytes: &[u8], stream: Stream) -> usize {
        let Kind::Plain(plain) = &mut self.kind else { return 0 };
        let skipped = self.novelty.repeats(bytes);
        if stream == Stream::Stdout {
            plain.skip(&bytes[..skipped]);
        }
        skipped
    }

    /// Returns whether a line of stderr is a log line, which must not be shown as the agent's last output.
    pub fn is_log(&self, line: &[u8]) -> bool {
        matches!(self.kind, Kind::Opencode(_)) && opencode::is_log(line)
    }

    /// Reads a line of stderr. Structured agents print warnings and retries there, which are signs of life but not
    /// progress.
    pub fn read_stderr(&mut self, line: &[u8], signs: &mut Vec<Sign>) {
        if is_blank(line) {
            return;
        }
        match &mut self.kind {
            Kind::Plain(_) => Plain::judge(line, &mut self.novelty, signs),
            // Once an agent has printed something, it reports login problems on stdout.
            _ if self.drift.is_silent() && limits::is_login(line) => signs.push(limits::login(line)),
            Kind::Codex(reader) => reader.read_stderr(line, signs),
            Kind::Gemini(reader) => reader.read_stderr(line, signs),
            Kind::Opencode(reader) => reader.read_stderr(line, signs),
            Kind::Claude(_) => signs.push(Sign::Keepalive),
        }
    }

    /// Handles the end of the process, after all output has been read.
    pub fn finish(&mut self, signs: &mut Vec<Sign>) {
        match &mut self.kind {
            Kind::Plain(reader) => reader.finish(signs),
            Kind::Opencode(reader) => reader.finish(signs),
            // These agents print their result as an event; without it the session has no result.
            Kind::Claude(_) | Kind::Codex(_) | Kind::Gemini(_) => {}
        }
    }
}

/// Subtracts the usage charged before. A total below that amount means that the agent started counting again.
fn subtract_charged(sign: &mut Sign, charged: Usage) {
    if let (Sign::Counts(by_model), Some(before)) = (&mut *sign, charged.counts)
        && let [all] = by_model.as_mut_slice()
        && all.counts.input >= before.input
        && all.counts.output >= before.output
    {
        all.counts = all.counts.minus(before);
    }
    if let Sign::Usage { tokens, cost_usd } = sign {
        let net =
            without_charged(Usage { tokens: *tokens, cost_usd: *cost_usd, ..Usage::default() }, charged);
        (*tokens, *cost_usd) = (net.tokens, net.cost_usd);
    }
}

/// Returns a total without the usage charged before.
pub(crate) fn without_charged(total: Usage, charged: Usage) -> Usage {
    let (before, paid) = (charged.tokens.unwrap_or(0), charged.cost_usd.unwrap_or(0.0));
    Usage {
        tokens: total.tokens.map(|sum| sum.checked_sub(before).unwrap_or(sum)),
        cost_usd: total.cost_usd.map(|sum| if sum < paid { sum } else { sum - paid }),
        ..total
    }
}

pub(crate) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// Returns the sign of an agent that reports its version or its model.
pub(crate) fn identified(version: Raw<'_>, model: Raw<'_>) -> Option<Sign> {
    let text = |raw: Raw<'_>| Some(raw.decode_head(MAX_NAME)).filter(|text| !text.is_empty());
    let (version, model) = (text(version), text(model));
    (version.is_some() || model.is_some()).then_some(Sign::Agent { version, model })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the usage that a reader reports for this line.
    fn used(name: ReaderName, charged: Usage, line: &str) -> Option<Usage> {
        let mut reader = Reader::for_name(name);
        reader.resume_from(charged);
        let mut signs = Vec::new();
        reader.read(line.as_bytes(), &mut signs);
        signs.into_iter().find_map(|sign| {
            if let Sign::Usage { tokens, cost_usd } = sign {
                Some(Usage { tokens, cost_usd, ..Usage::default() })
            } else {
                None
            }
        })
    }

    #[test]
    fn the_earlier_usage_of_a_resumed_session_is_charged_once() {
        let before = Usage { tokens: Some(1_050), cost_usd: Some(0.25), ..Usage::default() };
        let line = r#"{"type":"result","subtype":"success","is_error":false,"result":"ok","total_cost_usd":0.75,"usage":{"input_tokens":2000,"output_tokens":100},"modelUsage":{"m":{"inputTokens":3000,"outputTokens":150}}}"#;
        let claude = used(ReaderName::Claude, before, line);
        assert_eq!(claude, Some(Usage { tokens: Some(2_100), cost_usd: Some(0.5), ..Usage::default() }));
        let codex = r#"{"type":"turn.completed","usage":{"input_tokens":3000,"output_tokens":150}}"#;
        let tokens = |name, line| used(name, before, line).and_then(|usage| usage.tokens);
        assert_eq!(tokens(ReaderName::Codex, codex), Some(2_100));
        let restarted = r#"{"type":"turn.completed","usage":{"input_tokens":900,"output_tokens":100}}"#;
        assert_eq!(
            tokens(ReaderName::Codex, restarted),
            Some(1_000),
            "a smaller total starts again from zero"
        );
        let gemini = r#"{"type":"result","status":"success","stats":{"total_tokens":2100}}"#;
        assert_eq!(tokens(ReaderName::Gemini, gemini), Some(2_100), "gemini reports each process separately");
    }

    #[test]
    fn opencode_reports_refusals_only_in_its_log() {
        let mut reader = Reader::for_name(ReaderName::Opencode);
        let mut signs = Vec::new();
        let log =
            "timestamp=2026-11-16T02:53:04.173Z level=ERROR run=c7 message=\"stream error\" session.id=ses_1";
        for why in ["You have hit your usage limit.", "Overloaded", "socket hang up"] {
            let line = format!("{log} error.error=\"AI_APICallError: {why}\"");
            assert!(reader.is_log(line.as_bytes()));
            reader.read_stderr(line.as_bytes(), &mut signs);
        }
        let info =
            b"timestamp=2026-11-16T02:53:03.286Z level=INFO message=\"permission requested\" error.error=no";
        reader.read_stderr(info, &mut signs);
        let retrying = |status| Sign::Retrying { status, delay: None };
        assert_eq!(signs, [retrying(Some(429)), retrying(Some(503)), retrying(None), Sign::Keepalive]);
        assert!(!reader.is_log(b"Error: no such model"));
        assert!(!Reader::for_name(ReaderName::Codex).is_log(info));
    }

    #[test]
    fn gemini_reports_the_status_of_a_refusal_on_stderr() {
        let mut reader = Reader::for_name(ReaderName::Gemini);
        let mut signs = Vec::new();
        reader.read_stderr(
            b"Attempt 1 failed with status 529. Retrying with backoff... _ApiError: {",
            &mut signs,
        );
        reader.read_stderr(b"Suggested retry after 5s.. Retrying after 5886ms...", &mut signs);
        let retrying = |status| Sign::Retrying { status, delay: None };
        assert_eq!(signs, [retrying(Some(529)), retrying(None)]);
    }
}
