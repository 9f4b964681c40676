//! Mistakes in a script, shown with file, line, column, the line itself and a suggestion.

use dogwatch_core::text::printable;
use std::fmt::Write;
use std::ops::Range;

/// The text of a script and its name.
#[derive(Debug, Default)]
pub struct Source {
    pub name: String,
    pub text: String,
}

/// A mistake in a script. The span is a byte range of the source.
#[derive(Debug, PartialEq, Eq)]
pub struct ScriptError {
    pub span: Range<usize>,
    pub what: String,
    pub hint: Option<String>,
}

impl ScriptError {
    /// Creates a mistake without a hint.
    pub fn new(span: Range<usize>, what: impl Into<String>) -> ScriptError {
        ScriptError { span, what: what.into(), hint: None }
    }

    /// Adds a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> ScriptError {
        self.hint = Some(hint.into());
        self
    }

    /// Formats the mistake for the user. Text from the script is made printable.
    pub fn shown(&self, source: &Source) -> String {
        let (line, column) = position(&source.text, self.span.start);
        let text = source.text.lines().nth(line - 1).unwrap_or("");
        let width =
            source.text.get(self.span.clone()).map_or(1, |s| s.lines().next().unwrap_or("").chars().count());
        let gutter = " ".repeat(line.to_string().len());
        let mut shown = format!("error: {}:{line}:{column}: {}\n", printable(&source.name), self.what);
        // A tab would misalign the markers below it.
        let text = printable(text).replace('\t', " ");
        let _ = writeln!(shown, " {line} | {text}");
        let _ = writeln!(shown, " {gutter} | {}{}", " ".repeat(column - 1), "^".repeat(width.max(1)));
        if let Some(hint) = &self.hint {
            let _ = writeln!(shown, "help: {hint}");
        }
        shown
    }
}

/// Returns line and column, both from 1. The column counts characters.
pub fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Returns the most similar name, if one is similar enough to suggest.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (word.chars().count() / 3).max(1);
    let best = names.into_iter().map(|name| (distance(word, name), name)).min_by_key(|(d, _)| *d)?;
    (best.0 <= allowed).then_some(best.1)
}

/// Returns the edit distance of two words: insertions, deletions, replacements and swaps of neighbors (optimal string
/// alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_shows_file_line_column_the_line_and_the_hint() {
        let source = Source { name: "x.actor".into(), text: "say a\n  sya é\u{1b}[2J\n".into() };
        let shown = ScriptError::new(8..11, "unknown step `sya`").hint("did you mean `say`?").shown(&source);
        assert_eq!(
            shown,
            "error: x.actor:2:3: unknown step `sya`\n 2 |   sya é\n   |   ^^^\nhelp: did you mean `say`?\n"
        );
    }

    #[test]
    fn a_mistake_at_the_end_of_the_script_is_shown() {
        let source = Source { name: "-e".into(), text: "repeat 2 {".into() };
        let shown = ScriptError::new(10..10, "the block is not closed").shown(&source);
        assert_eq!(shown, "error: -e:1:11: the block is not closed\n 1 | repeat 2 {\n   |           ^\n");
    }

    #[test]
    fn only_a_near_name_is_suggested() {
        let names = ["say", "sleep", "flood-json"];
        assert_eq!(nearest("sya", names), Some("say"));
        assert_eq!(nearest("slep", names), Some("sleep"));
        assert_eq!(nearest("flood_json", names), Some("flood-json"));
        assert_eq!(nearest("dance", names), None);
    }
}
