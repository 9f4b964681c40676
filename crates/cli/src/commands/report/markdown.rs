//! Assembles the sections of a Markdown report, and escapes text for Markdown.

use super::Report;
use super::{changes, opening, paragraphs, tables};
use crate::local;
use dogwatch_core::record::summary::Ends;
use dogwatch_core::text::{one_line, printable};

/// The most of a foreign text to show on a line, in bytes.
pub const MAX_WORDS: usize = 300;
/// The most of a foreign text to show in a code block, in bytes.
const MAX_FENCED: usize = 8 * 1024;

/// Returns the report as Markdown.
pub fn page(report: &Report) -> String {
    let mut page = String::new();
    page.push_str(&format!("# {}\n\n", paragraphs::title(report)));
    page.push_str(&opening::summary(report));
    let sections = [
        ("Run", tables::facts(report)),
        ("Changes", changes::section(report)),
        ("Timeline", tables::timeline(report)),
        ("Verdicts", paragraphs::verdicts(report)),
        ("Checks", paragraphs::checks(report)),
        ("Waits", tables::waits(report)),
        ("Cost", tables::cost(report)),
        ("Problems", paragraphs::troubles(report)),
        ("Unfinished work", paragraphs::left(report)),
        ("Artifacts", tables::artifacts(report)),
        ("Snapshots", tables::snapshots(report)),
    ];
    for (name, text) in sections.into_iter().filter(|(_, text)| !text.is_empty()) {
        page.push_str(&format!("\n## {name}\n\n{}\n", text.trim_end()));
    }
    page
}

/// Returns the first line of a foreign text, without control characters and with its markup escaped.
pub fn plain(text: &str) -> String {
    escaped(&one_line(&local::times(text), MAX_WORDS))
}

/// Escapes the markup in a single line of text.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '\n' | '\t' => out.push(' '),
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '~' | '#' | '&' | '$' | '!' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

/// Formats text as code inside a table, where a bar must be escaped even in code.
pub fn cell(text: &str) -> String {
    code(text).replace('|', "\\|")
}

/// Formats any text as inline code.
pub fn code(text: &str) -> String {
    let clean = printable(text).replace(['\n', '\t'], " ");
    let ticks = "`".repeat(longest_row(&clean, '`') + 1);
    let pad = if clean.starts_with('`') || clean.ends_with('`') { " " } else { "" };
    format!("{ticks}{pad}{clean}{pad}{ticks}")
}

/// Formats a foreign text as a code block with a fence that the text cannot close. Of a long text only the end is
/// kept.
pub fn fenced(text: &str) -> String {
    let clean = printable(text);
    let from = clean.ceil_char_boundary(clean.len().saturating_sub(MAX_FENCED));
    let cut = if from > 0 { "…" } else { "" };
    fenced_as("text", &format!("{cut}{}", &clean[from..]))
}

/// Formats a foreign text of any length as a code block in a language.
pub fn fenced_as(language: &str, text: &str) -> String {
    let clean = printable(text);
    let fence = "`".repeat(longest_row(&clean, '`').max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}\n", clean.trim_end())
}

fn longest_row(text: &str, of: char) -> usize {
    text.split(|c| c != of).map(str::len).max().unwrap_or(0)
}

/// Formats each entry as a line, with a note in place of the entries that were dropped.
pub fn lines<T>(ends: &Ends<T>, line: impl Fn(&T) -> String, left_out: impl Fn(u64) -> String) -> String {
    let (first, cut, last) = ends.parts();
    let mut text: String = first.iter().map(&line).collect();
    if cut > 0 {
        text.push_str(&left_out(cut));
    }
    text.extend(last.map(line));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 8
    #[test]
    fn no_markup_and_no_control_of_an_agents_text_gets_through() {
        assert_eq!(
            plain("<b>x</b> [a](http://b) **c** | d\u{1b}[31m"),
            "\\<b\\>x\\</b\\> \\[a\\](http://b) \\*\\*c\\*\\* \\| d"
        );
        assert_eq!(plain("# head\nsecond line"), "\\# head");
        assert_eq!(code("a`b|c\u{7}"), "``a`b|c\u{fffd}``");
        assert_eq!(cell("a`b|c"), "``a`b\\|c``");
        assert_eq!(code("`"), "`` ` ``");
        let block = fenced("````\n# not a heading\u{1b}]0;title\u{7}");
        assert_eq!(block, "`````text\n````\n# not a heading\n`````\n");
    }

    #[test]
    fn a_long_text_keeps_its_end() {
        let at = fenced(&"é".repeat(MAX_FENCED / 2));
        assert!(!at.contains('…'));
        let beyond = fenced(&"é".repeat(MAX_FENCED / 2 + 1));
        assert!(beyond.contains('…') && beyond.len() < MAX_FENCED + 50);
    }
}
