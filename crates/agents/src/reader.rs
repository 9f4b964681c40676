//! The reader of an agent: lines in, signs out.

use crate::claude::Claude;
use crate::codex::Codex;
use crate::drift::Drift;
use crate::gemini::Gemini;
use crate::limits;
use crate::lines::Line;
use crate::novelty::Novelty;
use crate::opencode::{self, Opencode};
use crate::plain::Plain;
use dogwatch_core::record::event::Usage;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::watch::sign::{Heartbeats, Sign};

/// An id or a name of a tool is clipped to so many bytes.
pub(crate) const MAX_NAME: usize = 256;
/// An error's text is clipped to so many bytes.
pub(crate) const MAX_ERROR: usize = 4 * 1024;

/// Reads one session of one agent. Signs are appended to the list that the caller gives, and may be empty.
#[derive(Debug)]
pub struct Reader {
    kind: Kind,
    drift: Drift,
    novelty: Novelty,
    heartbeats: Heartbeats,
    /// What was charged before for the agent's own session that this one goes on with.
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

    /// The agent goes on with a session of its own. Claude Code and Codex then tell sums that begin with that
    /// session: what was charged for it is taken off.
    pub fn going_on(&mut self, charged: Usage) {
        if matches!(self.kind, Kind::Claude(_) | Kind::Codex(_)) {
            self.charged = charged;
        }
    }

    /// The lines that follow, up to the next call, have come at one moment. Who never says so has every line
    /// judged by itself; who does spares much work in a flood (see `novelty`).
    pub fn begin_chunk(&mut self) {
        self.novelty.begin_chunk();
    }

    /// A whole line of stdout.
    pub fn read(&mut self, line: &[u8], signs: &mut Vec<Sign>) {
        self.read_line(Line { bytes: line, cut: false }, signs);
    }

    /// A line of stdout, maybe only its beginning. Of a cut line the signs that were seen before the cut
    /// count: else a tool that printed too much would seem to run for ever.
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
            signs[mark..].iter_mut().for_each(|sign| take_off(sign, self.charged));
        }
        let known = signs[mark..].iter().any(|sign| *sign != Sign::Unknown);
        if !known || self.drift.drifted {
            self.unknown(line, known, mark, signs);
        } else {
            self.drift.note(true);
        }
    }

    /// What nobody knows counts once the whole format is one that nobody knows: as bytes do.
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

    /// Whether a line of stderr is one of a log, which nobody would take for last words.
    pub fn is_log(&self, line: &[u8]) -> bool {
        matches!(self.kind, Kind::Opencode(_)) && opencode::is_log(line)
    }

    /// A line of stderr. Structured agents print warnings and retries there: a sign of life, no progress.
    pub fn read_stderr(&mut self, line: &[u8], signs: &mut Vec<Sign>) {
        if is_blank(line) {
            return;
        }
        match &mut self.kind {
            Kind::Plain(_) => Plain::judge(line, &mut self.novelty, signs),
            // Who has begun to speak says on stdout what stops it.
            _ if self.drift.is_silent() && limits::is_login(line) => signs.push(limits::login(line)),
            Kind::Codex(reader) => reader.read_stderr(line, signs),
            Kind::Gemini(reader) => reader.read_stderr(line, signs),
            Kind::Opencode(reader) => reader.read_stderr(line, signs),
            Kind::Claude(_) => signs.push(Sign::Keepalive),
        }
    }

    /// The process has ended and all it printed has been read.
    pub fn finish(&mut self, signs: &mut Vec<Sign>) {
        match &mut self.kind {
            Kind::Plain(reader) => reader.finish(signs),
            Kind::Opencode(reader) => reader.finish(signs),
            // Their result is an event. Without it there is none, whatever else was said.
            Kind::Claude(_) | Kind::Codex(_) | Kind::Gemini(_) => {}
        }
    }
}

/// A sum that is less than what was charged is one that began anew.
fn take_off(sign: &mut Sign, charged: Usage) {
    let Sign::Usage { tokens, cost_usd } = sign else { return };
    let (before, paid) = (charged.tokens.unwrap_or(0), charged.cost_usd.unwrap_or(0.0));
    *tokens = tokens.map(|sum| sum.checked_sub(before).unwrap_or(sum));
    *cost_usd = cost_usd.map(|sum| if sum < paid { sum } else { sum - paid });
}

pub(crate) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the last sign of these lines says was used.
    fn used(name: ReaderName, charged: Usage, line: &str) -> Option<Usage> {
        let mut reader = Reader::for_name(name);
        reader.going_on(charged);
        let mut signs = Vec::new();
        reader.read(line.as_bytes(), &mut signs);
        signs.into_iter().find_map(|sign| match sign {
            Sign::Usage { tokens, cost_usd } => Some(Usage { tokens, cost_usd }),
            _ => None,
        })
    }

    #[test]
    fn what_a_resumed_session_had_used_before_is_charged_once() {
        let before = Usage { tokens: Some(1_050), cost_usd: Some(0.25) };
        let line = r#"{"type":"result","subtype":"success","is_error":false,"result":"ok","total_cost_usd":0.75,"usage":{"input_tokens":2000,"output_tokens":100},"modelUsage":{"m":{"inputTokens":3000,"outputTokens":150}}}"#;
        let claude = used(ReaderName::Claude, before, line);
        assert_eq!(claude, Some(Usage { tokens: Some(2_100), cost_usd: Some(0.5) }));
        let codex = r#"{"type":"turn.completed","usage":{"input_tokens":3000,"output_tokens":150}}"#;
        let tokens = |name, line| used(name, before, line).and_then(|usage| usage.tokens);
        assert_eq!(tokens(ReaderName::Codex, codex), Some(2_100));
        let anew = r#"{"type":"turn.completed","usage":{"input_tokens":900,"output_tokens":100}}"#;
        assert_eq!(tokens(ReaderName::Codex, anew), Some(1_000), "less than before: it counts anew");
        let gemini = r#"{"type":"result","status":"success","stats":{"total_tokens":2100}}"#;
        assert_eq!(tokens(ReaderName::Gemini, gemini), Some(2_100), "it counts each process by itself");
    }

    #[test]
    fn opencode_says_in_its_log_alone_that_it_was_refused() {
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
        let told = |status| Sign::Retrying { status, delay: None };
        assert_eq!(signs, [told(Some(429)), told(Some(503)), told(None), Sign::Keepalive]);
        assert!(!reader.is_log(b"Error: no such model"));
        assert!(!Reader::for_name(ReaderName::Codex).is_log(info));
    }

    #[test]
    fn gemini_says_on_stderr_by_which_status_it_was_refused() {
        let mut reader = Reader::for_name(ReaderName::Gemini);
        let mut signs = Vec::new();
        reader.read_stderr(
            b"Attempt 1 failed with status 529. Retrying with backoff... _ApiError: {",
            &mut signs,
        );
        reader.read_stderr(b"Suggested retry after 5s.. Retrying after 5886ms...", &mut signs);
        let told = |status| Sign::Retrying { status, delay: None };
        assert_eq!(signs, [told(Some(529)), told(None)]);
    }
}
