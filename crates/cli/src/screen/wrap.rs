//! Wraps text at blanks, so that a terminal does not break it inside words. Files and pipes get whole lines.

use super::terminal::{columns_of, width_of};
use std::borrow::Cow;
use std::io::IsTerminal;
use std::os::fd::AsFd;

/// The narrowest terminal that text is wrapped for. Below it, a hanging indent takes more room than it is worth.
const MIN_COLUMNS: usize = 20;

/// Wraps a text if it is printed to a terminal.
pub fn wrap_for<'a>(stream: &(impl IsTerminal + AsFd), text: &'a str) -> Cow<'a, str> {
    if stream.is_terminal() { wrap(text, width_of(stream)).into() } else { text.into() }
}

/// Wraps the lines of a text at blanks. Escape sequences take no columns. A word that is longer than a line stays whole,
/// so that a path or an address can be copied.
pub fn wrap(text: &str, columns: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            out.push('\n');
        }
        if columns < MIN_COLUMNS || columns_of(line) <= columns {
            out.push_str(line);
        } else {
            wrap_line(&mut out, line, columns);
        }
    }
    out
}

fn wrap_line(out: &mut String, line: &str, columns: usize) {
    let hang = hanging_indent(line, columns);
    let (mut used, mut rest, mut first) = (0, line, true);
    while !rest.is_empty() {
        let gap = rest.len() - rest.trim_start_matches(' ').len();
        let end = rest[gap..].find(' ').map_or(rest.len(), |length| gap + length);
        let word = &rest[gap..end];
        let room = columns_of(word);
        if used + gap + room > columns && hang + room <= columns && !first && !word.is_empty() {
            out.push('\n');
            out.push_str(&" ".repeat(hang));
            out.push_str(word);
            used = hang + room;
        } else {
            out.push_str(&rest[..end]);
            used += gap + room;
            // The terminal breaks a word that is longer than a line.
            if used > columns {
                used %= columns;
            }
        }
        first = false;
        rest = &rest[end..];
    }
}

/// Returns the indent of the rows after the first: that of the text in a table, whose columns are two or more blanks
/// apart, or else the indent of the line and two more. It leaves at least half of the terminal for the text, and enough
/// for the longest word.
fn hanging_indent(line: &str, columns: usize) -> usize {
    let text = line.trim_start_matches(' ');
    let indent = line.len() - text.len();
    let least = (indent + 2).min(columns / 2);
    let words = text.split(' ').map(columns_of);
    let longest = words.clone().filter(|word| least + word <= columns).max().unwrap_or(0);
    let most = (columns / 2).min(columns - longest);
    let (mut at, mut gap, mut hang) = (indent, 0, least);
    // There is one blank between two words; an empty word between two blanks widens the gap.
    for word in words {
        if word > 0 && gap >= 2 && at <= most {
            hang = at;
        }
        gap = if word > 0 { 1 } else { gap + 1 };
        at += word + 1;
    }
    hang
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::{Tone, paint};

    #[test]
    fn a_long_line_is_wrapped_at_blanks_with_a_hanging_indent() {
        assert_eq!(
            wrap("  8 iterations: 7 completed; exit code 0\nshort\n", 32),
            "  8 iterations: 7 completed;\n    exit code 0\nshort\n"
        );
        // A row that fills the line exactly is not wrapped.
        assert_eq!(wrap("one two three four five six", 27), "one two three four five six");
        assert_eq!(wrap("one two three four five six", 26), "one two three four five\n  six");
        assert_eq!(wrap("漢字 漢字 漢字 漢字 漢字", 20), "漢字 漢字 漢字 漢字\n  漢字");
    }

    #[test]
    fn the_last_column_of_a_table_is_wrapped_below_itself() {
        assert_eq!(
            wrap("ok    lock dir  is writable and supports locks", 36),
            "ok    lock dir  is writable and\n                supports locks"
        );
        // A longer word needs the columns of the table.
        assert_eq!(
            wrap("ok    lock dir  /var/lib/other/state/dogwatch is writable", 36),
            "ok    lock dir\n      /var/lib/other/state/dogwatch\n      is writable"
        );
        // Columns in the right half do not count.
        assert_eq!(wrap("a quite long first column  and text", 30), "a quite long first column  and\n  text");
    }

    #[test]
    fn a_word_longer_than_the_line_stays_whole() {
        let path = "/a".repeat(20);
        assert_eq!(wrap(&format!("  record: {path} and more"), 30), format!("  record: {path} and more"));
        assert_eq!(wrap(&format!("  {path}"), 30), format!("  {path}"));
        assert_eq!(wrap(&path, MIN_COLUMNS), path);
    }

    #[test]
    fn blanks_at_the_end_make_no_row_and_a_very_narrow_terminal_no_wrapping() {
        let text = "one two three four   ";
        assert_eq!(wrap(text, 20), text);
        assert_eq!(wrap("one two three four", MIN_COLUMNS - 1), "one two three four");
        assert_eq!(wrap("one two three four five", MIN_COLUMNS - 1), "one two three four five");
    }

    #[test]
    fn escape_sequences_take_no_columns() {
        let text = "one two three four five";
        for columns in [20, 23, 25] {
            let painted = wrap(&paint(true, Tone::Bad, text), columns);
            assert_eq!(painted, paint(true, Tone::Bad, &wrap(text, columns)), "{columns} columns");
        }
    }
}
