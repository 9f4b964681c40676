//! A command line as words, the way a shell would see them, without a shell.
//!
//! `#` is an ordinary character here: `gh issue view #5` means what it says.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadWords {
    Unclosed { quote: char, at: usize },
    NothingEscaped,
    Empty,
}

impl fmt::Display for BadWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadWords::Unclosed { quote, .. } => write!(f, "the quote {quote} is never closed"),
            BadWords::NothingEscaped => f.write_str("nothing follows the last backslash"),
            BadWords::Empty => f.write_str("there is no program in it"),
        }
    }
}

impl std::error::Error for BadWords {}

type Chars<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

/// Splits `line` into words; at least one, or it is an error.
pub fn words(line: &str) -> Result<Vec<String>, BadWords> {
    let mut words = Vec::new();
    let mut chars = line.char_indices().peekable();
    while chars.peek().is_some() {
        if chars.next_if(|(_, c)| c.is_ascii_whitespace()).is_none()
            && let Some(word) = word(&mut chars)?
        {
            words.push(word);
        }
    }
    if words.first().is_none_or(|program| program.is_empty()) { Err(BadWords::Empty) } else { Ok(words) }
}

/// One word, up to a blank outside quotes. None if all there was is a line continuation.
fn word(chars: &mut Chars<'_>) -> Result<Option<String>, BadWords> {
    let mut word = None::<String>;
    while let Some((at, c)) = chars.next_if(|(_, c)| !c.is_ascii_whitespace()) {
        match c {
            '\'' => single_quoted(at, chars, word.get_or_insert_default())?,
            '"' => double_quoted(at, chars, word.get_or_insert_default())?,
            '\\' => match chars.next() {
                None => return Err(BadWords::NothingEscaped),
                Some((_, '\n')) => {}
                Some((_, escaped)) => word.get_or_insert_default().push(escaped),
            },
            c => word.get_or_insert_default().push(c),
        }
    }
    Ok(word)
}

fn single_quoted(at: usize, chars: &mut Chars<'_>, word: &mut String) -> Result<(), BadWords> {
    for (_, c) in chars {
        match c {
            '\'' => return Ok(()),
            c => word.push(c),
        }
    }
    Err(BadWords::Unclosed { quote: '\'', at })
}

fn double_quoted(at: usize, chars: &mut Chars<'_>, word: &mut String) -> Result<(), BadWords> {
    while let Some((_, c)) = chars.next() {
        match c {
            '"' => return Ok(()),
            // Inside double quotes a backslash escapes only what would otherwise be special there.
            '\\' => match chars.next_if(|(_, c)| matches!(c, '"' | '\\' | '$' | '`' | '\n')) {
                Some((_, '\n')) => {}
                Some((_, escaped)) => word.push(escaped),
                None => word.push('\\'),
            },
            c => word.push(c),
        }
    }
    Err(BadWords::Unclosed { quote: '"', at })
}

/// `text` as exactly one word, whatever is in it.
pub fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_32_a_command_is_split_like_a_shell_would() {
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
    fn loop_37_what_cannot_be_split_says_why() {
        assert_eq!(words("a 'b"), Err(BadWords::Unclosed { quote: '\'', at: 2 }));
        assert_eq!(words("é \"b"), Err(BadWords::Unclosed { quote: '"', at: 3 }));
        assert_eq!(words("a \\"), Err(BadWords::NothingEscaped));
        for line in ["", "  \n", "''", "\\\n"] {
            assert_eq!(words(line), Err(BadWords::Empty), "{line:?}");
        }
        assert_eq!(words("x 'y").expect_err("open").to_string(), "the quote ' is never closed");
    }

    #[test]
    fn a_quoted_text_is_one_word_and_the_same_text() {
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
