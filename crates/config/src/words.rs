//! Splits a command line into words like a shell, without running one.
//!
//! Unlike in a shell, `#` does not start a comment: `gh issue view #5` passes `#5`.

use std::fmt;

/// An error in a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordsError {
    /// A quote at byte offset `at` is not closed.
    Unclosed {
        /// The quote that is not closed.
        quote: char,
        /// The position of the quote, in bytes.
        at: usize,
    },
    /// The line ends with a backslash.
    NothingEscaped,
    /// The line names no program.
    Empty,
}

impl fmt::Display for WordsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WordsError::Unclosed { quote, .. } => write!(f, "unclosed quote {quote}"),
            WordsError::NothingEscaped => f.write_str("trailing backslash"),
            WordsError::Empty => f.write_str("no program is named"),
        }
    }
}

impl std::error::Error for WordsError {}

type Chars<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

/// Splits `line` into words. A line without a program is an error.
pub fn words(line: &str) -> Result<Vec<String>, WordsError> {
    let mut words = Vec::new();
    let mut chars = line.char_indices().peekable();
    while chars.peek().is_some() {
        if chars.next_if(|(_, c)| c.is_ascii_whitespace()).is_none()
            && let Some(word) = word(&mut chars)?
        {
            words.push(word);
        }
    }
    if words.first().is_none_or(|program| program.is_empty()) { Err(WordsError::Empty) } else { Ok(words) }
}

/// Reads one word, up to whitespace outside quotes. Returns none for a bare line continuation.
fn word(chars: &mut Chars<'_>) -> Result<Option<String>, WordsError> {
    let mut word = None::<String>;
    while let Some((at, c)) = chars.next_if(|(_, c)| !c.is_ascii_whitespace()) {
        match c {
            '\'' => single_quoted(at, chars, word.get_or_insert_default())?,
            '"' => double_quoted(at, chars, word.get_or_insert_default())?,
            '\\' => match chars.next() {
                None => return Err(WordsError::NothingEscaped),
                Some((_, '\n')) => {}
                Some((_, escaped)) => word.get_or_insert_default().push(escaped),
            },
            c => word.get_or_insert_default().push(c),
        }
    }
    Ok(word)
}

fn single_quoted(at: usize, chars: &mut Chars<'_>, word: &mut String) -> Result<(), WordsError> {
    for (_, c) in chars {
        match c {
            '\'' => return Ok(()),
            c => word.push(c),
        }
    }
    Err(WordsError::Unclosed { quote: '\'', at })
}

fn double_quoted(at: usize, chars: &mut Chars<'_>, word: &mut String) -> Result<(), WordsError> {
    while let Some((_, c)) = chars.next() {
        match c {
            '"' => return Ok(()),
            // Inside double quotes a backslash only escapes characters that are special there.
            '\\' => match chars.next_if(|(_, c)| matches!(c, '"' | '\\' | '$' | '`' | '\n')) {
                Some((_, '\n')) => {}
                Some((_, escaped)) => word.push(escaped),
                None => word.push('\\'),
            },
            c => word.push(c),
        }
    }
    Err(WordsError::Unclosed { quote: '"', at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::text::shell::quote;

    #[test]
    fn loop_32_a_command_is_split_like_in_a_shell() {
        for (line, expected) in [
            ("claude -p", vec!["claude", "-p"]),
            ("  a\t b\nc  ", vec!["a", "b", "c"]),
            ("a 'b c' \"d e\"", vec!["a", "b c", "d e"]),
            ("a '' \"\"", vec!["a", "", ""]),
            ("a b'c'\"d\"e", vec!["a", "bcde"]),
            (r"a b\ c", vec!["a", "b c"]),
            (r#"a "b \" \\ \n \$x""#, vec!["a", r#"b " \ \n $x"#]),
            (r"a 'b \ c'", vec!["a", r"b \ c"]),
            ("a #5 # x", vec!["a", "#5", "#", "x"]),
            ("a \\\n b", vec!["a", "b"]),
            ("é 'ü'", vec!["é", "ü"]),
            ("a | b && $c", vec!["a", "|", "b", "&&", "$c"]),
        ] {
            assert_eq!(words(line).expect("splits"), expected, "{line:?}");
        }
    }

    #[test]
    fn loop_37_a_malformed_command_line_has_a_reason() {
        assert_eq!(words("a 'b"), Err(WordsError::Unclosed { quote: '\'', at: 2 }));
        assert_eq!(words("é \"b"), Err(WordsError::Unclosed { quote: '"', at: 3 }));
        assert_eq!(words("a \\"), Err(WordsError::NothingEscaped));
        for line in ["", "  \n", "''", "\\\n"] {
            assert_eq!(words(line), Err(WordsError::Empty), "{line:?}");
        }
        assert_eq!(words("x 'y").expect_err("open").to_string(), "unclosed quote '");
    }

    #[test]
    fn a_quoted_text_is_split_into_the_same_single_word() {
        for text in ["", "plain", "a b", "it's", "\"$x\" `y` \\", "a\nb", "#", "*", "'", "''", "é", "-n", "~"]
        {
            assert_eq!(
                words(&format!("x {}", quote(text))),
                Ok(vec!["x".to_owned(), text.to_owned()]),
                "{text:?}"
            );
        }
    }
}
