//! The parser: turns tokens into steps. It finds all mistakes in a script before the first step is played.

use crate::error::{ScriptError, nearest};
use crate::lex::{Kind, Token, tokens};
use crate::script::*;
use crate::text::Text;
use crate::words::{Words, text_line};
use std::ops::Range;

/// Parses a script.
pub fn parse(source: &str) -> Result<Block, ScriptError> {
    if source.len() > SCRIPT_MAX {
        return Err(ScriptError::new(0..0, format!("the script is longer than {SCRIPT_MAX} bytes")));
    }
    let mut parser = Parser { tokens: tokens(source)?, at: 0, source, depth: 0 };
    let steps = parser.steps()?;
    match parser.peek() {
        None => Ok(Block { steps, span: 0..source.len() }),
        Some(stray) => Err(ScriptError::new(stray.span.clone(), "`}` without a matching `{`")),
    }
}

struct Parser<'s> {
    tokens: Vec<Token>,
    at: usize,
    source: &'s str,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    /// Parses steps up to a `}` or the end, which is left for the caller.
    fn steps(&mut self) -> Result<Vec<Node>, ScriptError> {
        let mut steps = Vec::new();
        loop {
            match self.peek().map(|t| (t.kind.clone(), t.span.clone())) {
                None | Some((Kind::Close, _)) => return Ok(steps),
                Some((Kind::End, _)) => self.at += 1,
                Some((Kind::Open, span)) => {
                    return Err(ScriptError::new(span, "block without a step").hint("e.g. `repeat 3 { … }`"));
                }
                Some((Kind::Word(name), span)) => {
                    self.at += 1;
                    let at = span.start;
                    steps.push(Node { step: self.step(&name, span)?, at });
                }
            }
        }
    }

    fn step(&mut self, name: &Text, span: Range<usize>) -> Result<Step, ScriptError> {
        let mut words = self.words(span.clone());
        let step = match name.plain().unwrap_or("") {
            "say" => Step::Print { to: Stream::Stdout, text: text_line(words.rest()) },
            "err" => Step::Print { to: Stream::Stderr, text: text_line(words.rest()) },
            "print" => Step::Print { to: Stream::Stdout, text: words.rest() },
            "raw" => Step::Print { to: Stream::Stdout, text: words.concatenated()? },
            "marker" => Step::Print { to: Stream::Stdout, text: words.marker()? },
            "say-prompt" => Step::SayPrompt,
            "read-prompt" => Step::ReadPrompt,
            "env" => Step::Env(words.one("a name")?),
            "cwd" => Step::Cwd,
            "argv" => Step::Argv,
            "flood" => words.flood(Flood::Lines)?,
            "flood-json" => words.flood(Flood::Json)?,
            "line" => words.flood(Flood::OneLine)?,
            "close" => Step::Close(words.stream()?),
            "claude" => Step::Claude(words.claude()?),
            "write" => Step::Write { path: words.one("a path")?, text: text_line(words.rest()) },
            "append" => Step::Append { path: words.one("a path")?, text: text_line(words.rest()) },
            "touch" => Step::Touch(words.one("a path")?),
            "remove" => Step::Remove(words.one("a path")?),
            "mkdir" => Step::Mkdir(words.one("a path")?),
            "sleep" => Step::Sleep(words.dur()?),
            "hang" => Step::Hang,
            "burn" => Step::Burn(words.dur()?),
            "stop" => Step::Stop,
            "exit" => Step::Exit(words.exit_code()?),
            "crash" => Step::Crash(words.signal()?),
            "ignore" => Step::Ignore(words.ignored()?),
            "ready" => Step::Ready(words.one("a path")?),
            "await" => Step::Await(words.one("a path")?),
            "hold" => Step::Hold(words.one("a path")?),
            "wait" => Step::Wait,
            "rabbit" => Step::Rabbit(if words.is_empty() { RABBIT_DEFAULT } else { words.dur()? }),
            "counter" => Step::Counter(words.one("a path")?),
            other => return self.step_with_block(other, words, span),
        };
        words.end()?;
        self.step_ends(span)?;
        Ok(step)
    }

    fn step_with_block(
        &mut self,
        name: &str,
        mut words: Words,
        span: Range<usize>,
    ) -> Result<Step, ScriptError> {
        let step = match name {
            "child" => Step::Start(Spawn::Child, self.block(words, span)?),
            "orphan" => Step::Start(Spawn::Orphan, self.block(words, span)?),
            "bare" => Step::Start(Spawn::Bare, self.block(words, span)?),
            "repeat" => Step::Repeat(words.number("a count")?, self.block(words, span)?),
            "forever" => Step::Forever(self.block(words, span)?),
            "once" => Step::Once(words.one("a path")?, self.branches(words, span)?),
            "on" => Step::On(words.range()?, self.branches(words, span)?),
            "if-prompt" => Step::IfPrompt(words.rest(), self.branches(words, span)?),
            "else" => {
                return Err(ScriptError::new(span, "`else` without a preceding block")
                    .hint("`else` follows the `}` of `once`, `on` or `if-prompt`"));
            }
            other => return Err(unknown_step(other, span)),
        };
        Ok(step)
    }

    /// Returns the words after the name of a step.
    fn words(&mut self, name: Range<usize>) -> Words {
        let mut words = Vec::new();
        while let Some(Token { kind: Kind::Word(text), span }) = self.peek() {
            words.push((text.clone(), span.clone()));
            self.at += 1;
        }
        let end = words.last().map_or(name.end, |(_, span)| span.end);
        Words::new(words, end)
    }

    fn step_ends(&self, name: Range<usize>) -> Result<(), ScriptError> {
        match self.peek() {
            Some(Token { kind: Kind::Open, span }) => {
                let what = format!("`{}` does not take a block", &self.source[name]);
                Err(ScriptError::new(span.clone(), what).hint("quote a `{` in a text"))
            }
            _ => Ok(()),
        }
    }

    fn block(&mut self, words: Words, name: Range<usize>) -> Result<Block, ScriptError> {
        words.end()?;
        let open = match self.peek() {
            Some(Token { kind: Kind::Open, span }) => span.clone(),
            _ => {
                let what = format!("`{}` needs a block", &self.source[name.clone()]);
                return Err(ScriptError::new(name, what).hint("put spaces around braces: `{ say hello }`"));
            }
        };
        self.at += 1;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(ScriptError::new(open, format!("more than {DEPTH_MAX} nested blocks")));
        }
        let steps = self.steps()?;
        let Some(close) = self.peek().map(|t| t.span.clone()) else {
            return Err(ScriptError::new(open, "this block is not closed").hint("put spaces around `}`"));
        };
        self.at += 1;
        self.depth -= 1;
        Ok(Block { steps, span: open.end..close.start })
    }

    fn branches(&mut self, words: Words, name: Range<usize>) -> Result<Branches, ScriptError> {
        let then = self.block(words, name)?;
        let after = self.at;
        while matches!(self.peek(), Some(Token { kind: Kind::End, .. })) {
            self.at += 1;
        }
        let otherwise = match self.peek() {
            Some(Token { kind: Kind::Word(text), span }) if text.plain() == Some("else") => {
                let span = span.clone();
                self.at += 1;
                let words = self.words(span.clone());
                Some(self.block(words, span)?)
            }
            _ => {
                self.at = after;
                None
            }
        };
        Ok(Branches { then, otherwise })
    }
}

fn unknown_step(name: &str, span: Range<usize>) -> ScriptError {
    let what = format!("unknown step `{}`", name.escape_debug());
    let hint = match nearest(name, STEPS.iter().map(|(name, ..)| *name)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`actor --help` lists the steps".to_owned(),
    };
    ScriptError::new(span, what).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::time::dur::Dur;

    fn steps(source: &str) -> Vec<Step> {
        parse(source)
            .unwrap_or_else(|m| panic!("{source}: {m:?}"))
            .steps
            .into_iter()
            .map(|n| n.step)
            .collect()
    }

    fn script_error(source: &str) -> ScriptError {
        parse(source).expect_err(source)
    }

    #[test]
    fn lines_semicolons_comments_and_blocks_make_steps() {
        let parsed = steps("# a comment\n\nhang; cwd # more\nrepeat 2 {\n  argv\n}\nrepeat 1 { cwd }\nwait");
        assert_eq!(parsed.len(), 5);
        assert!(matches!(&parsed[2], Step::Repeat(2, b) if b.steps.len() == 1));
    }

    #[test]
    fn a_block_keeps_the_span_of_its_text() {
        let source = "child { say hi; hang }";
        let [Step::Start(Spawn::Child, block)] = &steps(source)[..] else { panic!("one child") };
        assert_eq!(&source[block.span.clone()], " say hi; hang ");
        assert_eq!(parse(&source[block.span.clone()]).expect("reads").steps.len(), 2);
    }

    #[test]
    fn else_follows_on_the_same_line_or_the_next() {
        for source in [
            "once x { cwd } else { argv }",
            "on 2..4 { cwd }\nelse { argv }",
            "if-prompt a b {\n}\n\nelse {\n}",
        ] {
            let parsed = steps(source);
            assert!(
                matches!(&parsed[..], [Step::Once(_, f) | Step::On(_, f) | Step::IfPrompt(_, f)] if f.otherwise.is_some()),
                "{source}"
            );
        }
    }

    #[test]
    fn every_listed_step_parses_and_rejects_surplus_words() {
        let filled = |syntax: &str| match syntax {
            "TEXT" => "a b",
            "NAME" | "PATH" => "x",
            "\"BYTES\"…" => "\"\\0\"",
            "NAME [REASON] [key=value]…" => "idle why a=b",
            "BYTES [stdout|stderr]" => "10k stderr",
            "stdin|stdout|stderr" => "stdin",
            "WHAT …" => "init",
            "PATH TEXT" => "x a b",
            "DUR" | "[DUR]" => "1.5s",
            "N" => "3",
            "SIGNAL" | "SIGNAL…" => "TERM",
            "" => "",
            "{ … }" => "{ cwd }",
            "N { … }" => "3 { cwd }",
            "PATH { … } else { … }" => "x { cwd } else { argv }",
            "N|N..|N..M { … } else { … }" => "1..2 { cwd } else { argv }",
            "TEXT { … } else { … }" => "a b { cwd } else { argv }",
            other => panic!("no example for {other}"),
        };
        for (name, syntax, _) in STEPS {
            assert_eq!(steps(&format!("{name} {}", filled(syntax))).len(), 1, "{name}");
            if syntax.is_empty() {
                assert!(script_error(&format!("{name} surplus")).what.contains("surplus"), "{name}");
            }
        }
    }

    #[test]
    fn mistakes_point_at_the_word_and_name_the_nearest_step() {
        for (source, at, part) in [
            ("say a\nsya b", 6, "unknown step `sya`"),
            ("child say hi", 6, "`say`"),
            ("child", 0, "needs a block"),
            ("repeat 3 {say x}", 9, "`{say`"),
            ("repeat 2 {\n say x", 9, "not closed"),
            ("say x\n}", 6, "without a matching `{`"),
            ("{ say x }", 0, "block without a step"),
            ("say hello { x }", 10, "does not take a block"),
            ("else { cwd }", 0, "`else`"),
        ] {
            let script_error = script_error(source);
            assert_eq!(script_error.span.start, at, "{source}: {script_error:?}");
            assert!(script_error.what.contains(part), "{source}: {script_error:?}");
        }
        assert_eq!(script_error("sya b").hint.as_deref(), Some("did you mean `say`?"));
        assert_eq!(script_error("forevr { }").hint.as_deref(), Some("did you mean `forever`?"));
    }

    #[test]
    fn blocks_nest_up_to_the_limit() {
        let nested = |n: usize| format!("{} cwd {}", "repeat 1 { ".repeat(n), "} ".repeat(n));
        assert!(parse(&nested(DEPTH_MAX)).is_ok());
        assert!(script_error(&nested(DEPTH_MAX + 1)).what.contains("nested blocks"));
        // Closing a block reduces the depth.
        assert!(parse(&"repeat 1 { cwd }\n".repeat(DEPTH_MAX + 1)).is_ok());
    }

    #[test]
    fn oversized_scripts_are_rejected() {
        let filler = |n: usize| format!("#{}", "x".repeat(n - 1));
        assert!(parse(&filler(SCRIPT_MAX)).is_ok());
        assert!(script_error(&filler(SCRIPT_MAX + 1)).what.contains("longer than"));
    }

    #[test]
    fn a_rabbit_always_has_a_limit() {
        assert_eq!(steps("rabbit"), [Step::Rabbit(RABBIT_DEFAULT)]);
        assert_eq!(steps("rabbit 300ms"), [Step::Rabbit(Dur::from_millis(300))]);
    }
}
