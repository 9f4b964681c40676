//! Writes words as a shell reads them.

use super::redact::{self, HIDDEN};

/// Quotes `text` so that a shell reads it as one word.
pub fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Quotes a path so that a command reads it as one word, and not as an option.
pub fn quote_path(path: &str) -> String {
    if path.starts_with('-') { quote(&format!("./{path}")) } else { quote(path) }
}

/// Formats a command line for people: on one line, quoted where necessary, with secrets hidden.
pub fn command_line<S: AsRef<str>>(words: &[S]) -> String {
    let word = |word: &String| if word.contains(HIDDEN) { word.clone() } else { quote(word) };
    redact::argv(words).iter().map(word).collect::<Vec<_>>().join(" ").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_quoted_and_without_secrets() {
        for (words, shown) in [
            (vec!["claude", "-p"], "claude -p"),
            (vec!["sh", "-c", "echo 'a b'; exit 1"], r"sh -c 'echo '\''a b'\''; exit 1'"),
            (vec!["sh", "-c", "a\nb"], "sh -c 'a b'"),
            (vec!["x", "", "*"], "x '' '*'"),
            (vec!["x", "--api-key=abc def", "--token", "abc"], "x --api-key=*** --token ***"),
        ] {
            assert_eq!(command_line(&words), shown);
        }
    }
}
