//! The page: its sections in their order, and text made fit for Markdown.

use super::Told;
use super::{paragraphs, tables};
use dogwatch_core::story::Ends;
use dogwatch_core::text::{one_line, printable};

/// How much of somebody's words a line shows.
pub const MAX_WORDS: usize = 300;
/// How much of a text in a fence is shown.
const MAX_FENCED: usize = 8 * 1024;

pub fn page(told: &Told) -> String {
    let mut page = String::new();
    page.push_str(&format!("# {}\n\n", paragraphs::title(told)));
    page.push_str(&paragraphs::in_three_lines(told));
    let sections = [
        ("Run", tables::facts(told)),
        ("Timeline", tables::timeline(told)),
        ("Verdicts", paragraphs::verdicts(told)),
        ("Checks", paragraphs::checks(told)),
        ("Waits", tables::waits(told)),
        ("Cost", tables::cost(told)),
        ("Trouble", paragraphs::troubles(told)),
        ("What is left", paragraphs::left(told)),
        ("Artifacts", tables::artifacts(told)),
        ("Snapshots", tables::snapshots(told)),
    ];
    for (name, text) in sections.into_iter().filter(|(_, text)| !text.is_empty()) {
        page.push_str(&format!("\n## {name}\n\n{}\n", text.trim_end()));
    }
    page
}

/// One line of somebody's text: no control characters, and no markup of its own.
pub fn plain(text: &str) -> String {
    escaped(&one_line(text, MAX_WORDS))
}

/// Markup taken out of a text that is one line already.
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

/// As [`code`], within a table: there a bar must be marked even in code.
pub fn cell(text: &str) -> String {
    code(text).replace('|', "\\|")
}

/// Text as code on one line, whatever it holds.
pub fn code(text: &str) -> String {
    let clean = printable(text).replace(['\n', '\t'], " ");
    let ticks = "`".repeat(longest_row(&clean, '`') + 1);
    let pad = if clean.starts_with('`') || clean.ends_with('`') { " " } else { "" };
    format!("{ticks}{pad}{clean}{pad}{ticks}")
}

/// A block of somebody's text, its end if it is long, in a fence that it cannot close.
pub fn fenced(text: &str) -> String {
    let clean = printable(text);
    let from = clean.ceil_char_boundary(clean.len().saturating_sub(MAX_FENCED));
    let cut = if from > 0 { "…" } else { "" };
    let fence = "`".repeat(longest_row(&clean, '`').max(2) + 1);
    format!("{fence}text\n{cut}{}\n{fence}\n", clean[from..].trim_end())
}

fn longest_row(text: &str, of: char) -> usize {
    text.split(|c| c != of).map(str::len).max().unwrap_or(0)
}

/// Each entry as a line, with a word about those that were left out.
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
    fn of_a_long_text_the_end_is_shown() {
        let at = fenced(&"é".repeat(MAX_FENCED / 2));
        assert!(!at.contains('…'));
        let beyond = fenced(&"é".repeat(MAX_FENCED / 2 + 1));
        assert!(beyond.contains('…') && beyond.len() < MAX_FENCED + 50);
    }
}
