//! The lexer: splits a script into tokens.
//!
//! A word ends at white space or `;`. A quote opens a string only at the start of a word, a brace is a token only when
//! it is a word by itself, and `#` starts a comment only at the start of a word. So `it's`, `{"a":1}` and `a#b` are
//! ordinary words.

use crate::error::{ScriptError, nearest};
use crate::text::{Piece, Text};
use std::ops::Range;

/// The kinds of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Word(Text),
    Open,
    Close,
    /// The end of a line, or `;`.
    End,
}

/// A token with its byte range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    pub span: Range<usize>,
}

/// Splits a script into tokens.
pub fn tokens(source: &str) -> Result<Vec<Token>, ScriptError> {
    let mut lexer = Lexer { source, at: 0 };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next()? {
        tokens.push(token);
    }
    Ok(tokens)
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self) -> Option<char> {
        self.source[self.at..].chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &str {
        let start = self.at;
        while self.peek().is_some_and(&fits) {
            self.bump();
        }
        &self.source[start..self.at]
    }

    fn next(&mut self) -> Result<Option<Token>, ScriptError> {
        self.take_while(|c| c.is_whitespace() && c != '\n');
        if self.peek() == Some('#') {
            self.take_while(|c| c != '\n');
        }
        let start = self.at;
        let kind = match self.peek() {
            None => return Ok(None),
            Some('\n' | ';') => {
                self.bump();
                Kind::End
            }
            Some(quote @ ('"' | '\'')) => Kind::Word(self.quoted(quote)?),
            Some(_) => self.bare()?,
        };
        Ok(Some(Token { kind, span: start..self.at }))
    }

    fn bare(&mut self) -> Result<Kind, ScriptError> {
        let start = self.at;
        let mut text = Text::default();
        while let Some(c) = self.peek().filter(|c| !ends_word(*c)) {
            match c {
                '$' => text.push(self.placeholder()?),
                _ => {
                    self.bump();
                    text.push_bytes(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
        }
        Ok(match &self.source[start..self.at] {
            "{" => Kind::Open,
            "}" => Kind::Close,
            _ => Kind::Word(text),
        })
    }

    fn quoted(&mut self, quote: char) -> Result<Text, ScriptError> {
        let start = self.at;
        self.bump();
        let mut text = Text::default();
        loop {
            match (self.peek(), quote) {
                (None, _) => {
                    return Err(ScriptError::new(start..start + 1, format!("missing closing {quote}")));
                }
                (Some(c), _) if c == quote => break,
                (Some('\\'), '"') => text.push(Piece::Bytes(self.escape()?)),
                (Some('$'), '"') => text.push(self.placeholder()?),
                (Some(c), _) => {
                    self.bump();
                    text.push_bytes(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
        }
        self.bump();
        match self.peek() {
            Some(c) if !ends_word(c) => {
                let what = format!("a closing {quote} ends the word, but `{}` follows", c.escape_default());
                Err(ScriptError::new(self.at..self.at + c.len_utf8(), what)
                    .hint("put a space between the two"))
            }
            _ => Ok(text),
        }
    }

    fn escape(&mut self) -> Result<Vec<u8>, ScriptError> {
        let start = self.at;
        self.bump();
        let byte = match self.bump() {
            Some('n') => b'\n',
            Some('r') => b'\r',
            Some('t') => b'\t',
            Some('e') => 0x1b,
            Some('0') => 0,
            Some(c @ ('\\' | '"' | '\'' | '$')) => c as u8,
            Some('x') => self.hex_byte(start)?,
            Some('u') => return self.unicode(start),
            _ => return Err(bad_escape(start..self.at)),
        };
        Ok(vec![byte])
    }

    fn hex_byte(&mut self, start: usize) -> Result<u8, ScriptError> {
        let digits =
            self.source.get(self.at..self.at + 2).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let byte =
            digits.and_then(|d| u8::from_str_radix(d, 16).ok()).ok_or_else(|| bad_escape(start..self.at))?;
        self.at += 2;
        Ok(byte)
    }

    fn unicode(&mut self, start: usize) -> Result<Vec<u8>, ScriptError> {
        let rest = &self.source[self.at..];
        let digits = rest.strip_prefix('{').and_then(|r| r.split_once('}')).map(|(digits, _)| digits);
        let number = digits.and_then(|d| u32::from_str_radix(d, 16).ok()).and_then(char::from_u32);
        let (Some(digits), Some(c)) = (digits, number) else { return Err(bad_escape(start..self.at)) };
        self.at += digits.len() + 2;
        Ok(c.to_string().into_bytes())
    }

    /// Parses a placeholder. A `$` that is not followed by a letter is a literal dollar. Before a letter it must begin a
    /// known name, so that `$pdi` is an error instead of output.
    fn placeholder(&mut self) -> Result<Piece, ScriptError> {
        const NAMES: [&str; 6] = ["pid", "child", "n", "prompt", "env", "arg"];
        let start = self.at;
        self.bump();
        if self.peek() == Some('$') {
            self.bump();
        }
        let name = if self.at - start == 2 { "" } else { self.take_while(|c| c.is_ascii_alphabetic()) };
        let unknown = |name: &str| nearest(name, NAMES).map(|n| format!("did you mean `${n}`?"));
        let piece = match name {
            "" => Piece::Bytes(b"$".to_vec()),
            "pid" => Piece::Pid,
            "child" => Piece::Child,
            "n" => Piece::Count,
            "prompt" => Piece::Prompt,
            "env" => Piece::Env(self.suffix(start, |c| c.is_ascii_alphanumeric() || c == '_')?.to_owned()),
            "arg" => self.arg(start)?,
            name => {
                let hint = unknown(name).unwrap_or_else(|| "a literal dollar is `$$`".into());
                let what = format!("unknown placeholder `${name}`");
                return Err(ScriptError::new(start..self.at, what).hint(hint));
            }
        };
        Ok(piece)
    }

    fn arg(&mut self, start: usize) -> Result<Piece, ScriptError> {
        let number = self.suffix(start, |c| c.is_ascii_digit())?.parse().unwrap_or(0);
        if number == 0 {
            return Err(ScriptError::new(start..self.at, "arguments are numbered from 1"));
        }
        Ok(Piece::Arg(number))
    }

    fn suffix(&mut self, start: usize, fits: impl Fn(char) -> bool) -> Result<&str, ScriptError> {
        let colon = self.peek() == Some(':');
        if colon {
            self.bump();
        }
        let from = self.at;
        self.take_while(fits);
        if !colon || self.at == from {
            let what = "placeholder without a name";
            return Err(ScriptError::new(start..self.at, what).hint("`$env:NAME`, `$arg:1`"));
        }
        Ok(&self.source[from..self.at])
    }
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || c == ';'
}

fn bad_escape(span: Range<usize>) -> ScriptError {
    ScriptError::new(span, "unknown escape").hint(r#"known: \n \r \t \e \0 \\ \" \' \$ \x1b \u{2026}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<Kind> {
        tokens(source).expect("reads").into_iter().map(|t| t.kind).collect()
    }

    fn word(text: &str) -> Kind {
        Kind::Word(text.into())
    }

    #[test]
    fn quotes_braces_and_hashes_inside_a_word_are_ordinary() {
        assert_eq!(words("it's {\"a\":1} a#b # gone"), [word("it's"), word("{\"a\":1}"), word("a#b")]);
    }

    #[test]
    fn standalone_braces_and_semicolons_are_tokens() {
        assert_eq!(
            words("on { say hi; }"),
            [word("on"), Kind::Open, word("say"), word("hi"), Kind::End, Kind::Close]
        );
    }

    #[test]
    fn only_double_quotes_process_escapes() {
        let bytes = |b: &[u8]| {
            let mut text = Text::default();
            text.push_bytes(b);
            Kind::Word(text)
        };
        assert_eq!(words(r#""a\x1b\0\e\n\xff\u{e9}\$""#), [bytes(b"a\x1b\0\x1b\n\xff\xc3\xa9$")]);
        assert_eq!(words(r"'a\n$pid;'"), [word(r"a\n$pid;")]);
    }

    #[test]
    fn unknown_placeholders_are_mistakes() {
        let Kind::Word(text) = words("a$pid-$n.$env:HOME/$arg:12$5$$n").remove(0) else { panic!("a word") };
        assert_eq!(
            text.pieces(),
            [
                Piece::Bytes(b"a".to_vec()),
                Piece::Pid,
                Piece::Bytes(b"-".to_vec()),
                Piece::Count,
                Piece::Bytes(b".".to_vec()),
                Piece::Env("HOME".into()),
                Piece::Bytes(b"/".to_vec()),
                Piece::Arg(12),
                Piece::Bytes(b"$5$n".to_vec()),
            ]
        );
        assert_eq!(tokens("$pdi").expect_err("unknown").hint.as_deref(), Some("did you mean `$pid`?"));
    }

    #[test]
    fn every_malformed_word_reports_its_position() {
        for (source, at) in [
            ("say \"open", 4),
            ("say 'open", 4),
            ("say \"a\"b", 7),
            (r#"say "\q""#, 5),
            (r#"say "\x1""#, 5),
            (r#"say "\xé""#, 5),
            (r#"say "\u{d800}""#, 5),
            (r#"say "\u2026""#, 5),
            ("$arg:0", 0),
            ("$arg", 0),
            ("$env:", 0),
            ("$env", 0),
            ("say \"\\", 5),
        ] {
            assert_eq!(tokens(source).expect_err(source).span.start, at, "{source}");
        }
    }
}
