//! Parses the words after the name of a step into typed arguments.

use crate::error::{ScriptError, nearest};
use crate::script::*;
use crate::text::Text;
use dogwatch_core::time::dur::{Dur, DurError};
use rustix::process::Signal;
use std::ops::{Range, RangeInclusive};

/// The remaining words of a step.
pub struct Words {
    words: std::vec::IntoIter<(Text, Range<usize>)>,
    /// The end of the step, where a missing word is reported.
    end: usize,
}

impl Words {
    /// Creates the list of words of a step that ends at `end`.
    pub fn new(words: Vec<(Text, Range<usize>)>, end: usize) -> Words {
        Words { words: words.into_iter(), end }
    }

    /// Returns whether no words are left.
    pub fn is_empty(&self) -> bool {
        self.words.len() == 0
    }

    /// Fails if words are left.
    pub fn end(&self) -> Result<(), ScriptError> {
        match self.words.as_slice().first() {
            None => Ok(()),
            Some((text, span)) => {
                let what = format!("unexpected word `{}`", shown(text));
                let brace = shown(text).starts_with(['{', '}']);
                let hint = if brace {
                    "put spaces around braces: `{ say hello }`"
                } else {
                    "write one step per line, or `;` between steps"
                };
                Err(ScriptError::new(span.clone(), what).hint(hint))
            }
        }
    }

    /// Returns the remaining words, joined by spaces.
    pub fn rest(&mut self) -> Text {
        Text::join(self.words.by_ref().map(|(text, _)| text).collect::<Vec<_>>().iter(), b" ")
    }

    /// Returns the remaining words, joined without a separator.
    pub fn concatenated(&mut self) -> Result<Text, ScriptError> {
        let first = self.one("bytes")?;
        let words: Vec<Text> =
            std::iter::once(first).chain(self.words.by_ref().map(|(text, _)| text)).collect();
        Ok(Text::join(&words, b""))
    }

    /// Returns the next word; `what` names it if it is missing.
    pub fn one(&mut self, what: &str) -> Result<Text, ScriptError> {
        Ok(self.spanned(what)?.0)
    }

    fn spanned(&mut self, what: &str) -> Result<(Text, Range<usize>), ScriptError> {
        self.words.next().ok_or_else(|| ScriptError::new(self.end..self.end, format!("{what} is missing")))
    }

    /// Returns the next word, which must not contain a placeholder.
    fn plain(&mut self, what: &str) -> Result<(String, Range<usize>), ScriptError> {
        let (text, span) = self.spanned(what)?;
        match text.plain() {
            Some(word) => Ok((word.to_owned(), span)),
            None => Err(ScriptError::new(span, format!("{what} cannot contain a placeholder"))),
        }
    }

    /// Consumes the next word if it is `wanted`.
    fn take(&mut self, wanted: &str) -> bool {
        let found = self.words.as_slice().first().is_some_and(|(text, _)| text.plain() == Some(wanted));
        if found {
            self.words.next();
        }
        found
    }

    /// Parses a whole number.
    pub fn number(&mut self, what: &str) -> Result<u64, ScriptError> {
        let (word, span) = self.plain(what)?;
        word.parse()
            .map_err(|_| ScriptError::new(span, format!("`{}` is not a whole number", word.escape_debug())))
    }

    /// Parses an exit code.
    pub fn exit_code(&mut self) -> Result<u8, ScriptError> {
        let (word, span) = self.plain("an exit code")?;
        word.parse().map_err(|_| ScriptError::new(span, "an exit code is a number from 0 to 255"))
    }

    /// Parses a duration.
    pub fn dur(&mut self) -> Result<Dur, ScriptError> {
        let (word, span) = self.plain("a duration")?;
        word.parse().map_err(|bad: DurError| ScriptError::new(span, bad.to_string()).hint(DurError::FORMS))
    }

    /// Parses `N`, `N..` or `N..M`. The range includes M.
    pub fn range(&mut self) -> Result<RangeInclusive<u64>, ScriptError> {
        let (word, span) = self.plain("a number or a range")?;
        let range = match word.split_once("..") {
            None => word.parse().ok().map(|n| n..=n),
            Some((from, "")) => from.parse().ok().map(|n| n..=u64::MAX),
            Some((from, to)) => from.parse().ok().zip(to.parse().ok()).map(|(n, m)| n..=m),
        };
        range.filter(|r: &RangeInclusive<u64>| !r.is_empty()).ok_or_else(|| {
            ScriptError::new(span, format!("`{}` is not a range", word.escape_debug()))
                .hint("`3`, `3..` or `3..5`")
        })
    }

    /// Parses the name of a stream.
    pub fn stream(&mut self) -> Result<Stream, ScriptError> {
        let (word, span) = self.plain("stdin, stdout or stderr")?;
        match word.as_str() {
            "stdin" => Ok(Stream::Stdin),
            "stdout" => Ok(Stream::Stdout),
            "stderr" => Ok(Stream::Stderr),
            _ => Err(ScriptError::new(span, "expected stdin, stdout or stderr")),
        }
    }

    /// Parses the arguments of a flood.
    pub fn flood(&mut self, kind: Flood) -> Result<Step, ScriptError> {
        let (word, span) = self.plain("a number of bytes")?;
        let bytes = bytes(&word).ok_or_else(|| {
            ScriptError::new(span, format!("`{}` is not a number of bytes", word.escape_debug()))
                .hint("`4096`, `64k`, `10M`, `2G` (powers of 1024)")
        })?;
        let to = if self.take("stderr") { Stream::Stderr } else { Stream::Stdout };
        if to == Stream::Stdout {
            self.take("stdout");
        }
        Ok(Step::Flood { kind, bytes, to })
    }

    /// Parses a signal name, with or without `SIG`.
    pub fn signal(&mut self) -> Result<Signal, ScriptError> {
        let (word, span) = self.plain("a signal")?;
        let upper = word.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        if let Some((_, signal)) = SIGNALS.iter().find(|(known, _)| *known == name) {
            return Ok(*signal);
        }
        let script_error = ScriptError::new(span, format!("unknown signal `{}`", word.escape_debug()));
        let near = nearest(name, SIGNALS.iter().map(|(name, _)| *name));
        Err(script_error.hint(near.map_or("e.g. `TERM`".into(), |near| format!("did you mean `{near}`?"))))
    }

    /// Parses one or more signals that can be ignored.
    pub fn ignored(&mut self) -> Result<Vec<Signal>, ScriptError> {
        let mut signals = Vec::new();
        loop {
            let span = self.words.as_slice().first().map(|(_, span)| span.clone());
            let signal = self.signal()?;
            if signal == Signal::KILL || signal == Signal::STOP {
                return Err(ScriptError::new(span.unwrap_or(0..0), "this signal cannot be ignored"));
            }
            signals.push(signal);
            if self.is_empty() {
                return Ok(signals);
            }
        }
    }

    /// Parses a marker: `idle REASON`, `NAME`, `NAME key=value …`.
    pub fn marker(&mut self) -> Result<Text, ScriptError> {
        let mut words = vec!["<!-- ralph:state".into(), self.one("a state")?];
        for (i, (text, _)) in self.words.by_ref().enumerate() {
            let has_key =
                text.pieces().iter().any(|p| matches!(p, crate::text::Piece::Bytes(b) if b.contains(&b'=')));
            words.push(if i == 0 && !has_key { Text::join([&"reason=".into(), &text], b"") } else { text });
        }
        words.push("-->\n".into());
        Ok(Text::join(&words, b" "))
    }

    /// Parses the arguments of `claude`.
    pub fn claude(&mut self) -> Result<Claude, ScriptError> {
        let (word, span) = self.plain("the kind of line")?;
        Ok(match word.as_str() {
            "init" => Claude::Init,
            "text" => Claude::Text(self.rest()),
            "thinking" => Claude::Thinking(self.rest()),
            "tool" => self.tool()?,
            "tool-start" => Claude::ToolStart(self.call()?),
            "tool-end" => Claude::ToolEnd(self.reply()),
            "subagent" => Claude::Subagent(self.rest()),
            "heartbeat" => Claude::Heartbeat,
            "retry" => Claude::Retry(self.status().unwrap_or(529)),
            "result" => Claude::Result(self.rest()),
            "error" => Claude::Error(self.rest()),
            "is_error" => Claude::IsError(self.status(), self.rest()),
            other => {
                let near = nearest(other, CLAUDE.iter().map(|(name, ..)| *name));
                let hint =
                    near.map_or("`actor --help` lists them".into(), |near| format!("did you mean `{near}`?"));
                return Err(ScriptError::new(
                    span,
                    format!("unknown argument `{}` of `claude`", other.escape_debug()),
                )
                .hint(hint));
            }
        })
    }

    fn tool(&mut self) -> Result<Claude, ScriptError> {
        let name = self.one("a tool's name")?;
        let ok = self.status_word();
        let input = self.words.next().map(|(text, _)| text);
        Ok(Claude::Tool(Call { name, input }, Reply { ok, text: self.some_rest() }))
    }

    fn call(&mut self) -> Result<Call, ScriptError> {
        Ok(Call { name: self.one("a tool's name")?, input: self.some_rest() })
    }

    fn reply(&mut self) -> Reply {
        Reply { ok: self.status_word(), text: self.some_rest() }
    }

    fn status_word(&mut self) -> bool {
        if self.take("fail") {
            return false;
        }
        self.take("ok");
        true
    }

    fn some_rest(&mut self) -> Option<Text> {
        (!self.is_empty()).then(|| self.rest())
    }

    /// Consumes the next word if it is an HTTP status.
    fn status(&mut self) -> Option<u16> {
        let word = self.words.as_slice().first()?.0.plain()?;
        let status = word.parse().ok().filter(|n| (100..600).contains(n))?;
        self.words.next();
        Some(status)
    }
}

/// Appends a newline to a text.
pub fn text_line(text: Text) -> Text {
    Text::join([&text, &"\n".into()], b"")
}

fn shown(text: &Text) -> String {
    text.plain().unwrap_or("$…").escape_debug().to_string()
}

/// Parses a size like head(1): `k M G` and `KiB MiB GiB` are powers of 1024, `kB MB GB` of 1000.
fn bytes(word: &str) -> Option<u64> {
    let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let (number, unit) = word.split_at(digits);
    let factor = match unit {
        "" | "B" => 1,
        "k" | "K" | "KiB" => 1 << 10,
        "m" | "M" | "MiB" => 1 << 20,
        "g" | "G" | "GiB" => 1 << 30,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn step(source: &str) -> Step {
        parse(source).unwrap_or_else(|m| panic!("{source}: {m:?}")).steps.remove(0).step
    }

    #[test]
    fn sizes_use_the_units_of_head() {
        for (word, n) in [
            ("0", 0),
            ("7B", 7),
            ("64k", 65_536),
            ("10M", 10 << 20),
            ("2G", 2 << 30),
            ("3kB", 3000),
            ("1GB", 1_000_000_000),
        ] {
            assert_eq!(bytes(word), Some(n), "{word}");
        }
        for word in ["", "k", "1.5k", "-1", "1T", "99999999999999G"] {
            assert_eq!(bytes(word), None, "{word}");
        }
    }

    #[test]
    fn ranges_include_their_end() {
        let range = |source: &str| match step(source) {
            Step::On(range, _) => range,
            other @ (Step::Print { .. }
            | Step::SayPrompt
            | Step::ReadPrompt
            | Step::Env(_)
            | Step::Cwd
            | Step::Argv
            | Step::Flood { .. }
            | Step::Close(_)
            | Step::Write { .. }
            | Step::Append { .. }
            | Step::Touch(_)
            | Step::Remove(_)
            | Step::Mkdir(_)
            | Step::Sleep(_)
            | Step::Hang
            | Step::Burn(_)
            | Step::Stop
            | Step::Exit(_)
            | Step::Crash(_)
            | Step::Ignore(_)
            | Step::Ready(_)
            | Step::Await(_)
            | Step::Hold(_)
            | Step::Start(..)
            | Step::Wait
            | Step::Rabbit(_)
            | Step::Repeat(..)
            | Step::Forever(_)
            | Step::Once(..)
            | Step::Counter(_)
            | Step::IfPrompt(..)
            | Step::Claude(_)) => panic!("{other:?}"),
        };
        assert_eq!(range("on 3 { }"), 3..=3);
        assert_eq!(range("on 3.. { }"), 3..=u64::MAX);
        assert_eq!(range("on 3..5 { }"), 3..=5);
        for bad in ["on 5..3 { }", "on x { }", "on ..3 { }", "on 1..2..3 { }"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_marker_takes_a_reason_or_keys() {
        for (source, line) in [
            ("marker idle no_pending_tasks", "<!-- ralph:state idle reason=no_pending_tasks -->\n"),
            ("marker done", "<!-- ralph:state done -->\n"),
            ("marker idle reason=x a=b", "<!-- ralph:state idle reason=x a=b -->\n"),
        ] {
            assert_eq!(step(source), Step::Print { to: Stream::Stdout, text: line.into() }, "{source}");
        }
    }

    #[test]
    fn signals_are_names_with_or_without_sig() {
        assert_eq!(step("crash SIGSEGV"), Step::Crash(Signal::SEGV));
        assert_eq!(step("ignore TERM int"), Step::Ignore(vec![Signal::TERM, Signal::INT]));
        for (source, at) in
            [("ignore KILL", 7), ("ignore TERM STOP", 12), ("crash TERN", 6), ("ignore", 6), ("crash 9", 6)]
        {
            assert_eq!(parse(source).expect_err(source).span.start, at, "{source}");
        }
    }

    #[test]
    fn every_claude_line_parses() {
        for (name, syntax, _) in CLAUDE {
            let filled = if syntax.contains("NAME") {
                "Bash"
            } else if syntax.contains("TEXT") {
                "a b"
            } else {
                ""
            };
            assert!(matches!(step(&format!("claude {name} {filled}")), Step::Claude(_)), "{name}");
        }
        assert_eq!(parse("claude txt a").expect_err("unknown").hint.as_deref(), Some("did you mean `text`?"));
    }

    #[test]
    fn a_tool_takes_a_status_an_input_and_a_result() {
        let call = |input: Option<&str>| Call { name: "Bash".into(), input: input.map(Text::from) };
        let reply = |ok, text: Option<&str>| Reply { ok, text: text.map(Text::from) };
        for (source, tool) in [
            ("claude tool Bash", Claude::Tool(call(None), reply(true, None))),
            ("claude tool Bash fail", Claude::Tool(call(None), reply(false, None))),
            (
                "claude tool Bash ok 'make x' it is",
                Claude::Tool(call(Some("make x")), reply(true, Some("it is"))),
            ),
            ("claude tool-end fail no", Claude::ToolEnd(reply(false, Some("no")))),
            ("claude is_error 429 slow down", Claude::IsError(Some(429), "slow down".into())),
            ("claude is_error slow", Claude::IsError(None, "slow".into())),
            ("claude retry", Claude::Retry(529)),
        ] {
            assert_eq!(step(source), Step::Claude(tool), "{source}");
        }
    }

    #[test]
    fn literal_arguments_reject_placeholders_and_invalid_values() {
        for source in [
            "sleep $n",
            "exit $n",
            "close $env:X",
            "flood $n",
            "exit 256",
            "sleep",
            "sleep soon",
            "close stdfoo",
            "flood 1x",
        ] {
            assert!(parse(source).is_err(), "{source}");
        }
    }
}
