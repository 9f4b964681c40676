//! Finds the state that an agent declares at the end of its final text: `<!-- ralph:state idle reason=… -->`.
//!
//! A marker must be the agent's own statement. Markers in code (fenced, indented or between backticks) and in quotes do
//! not count. The output of a plain agent also contains tool output and the prompt, so there a marker must be
//! alone on its line. A marker that only echoes the prompt does not count either (see `Echo`).

pub use dogwatch_core::run::job::Marker;
use dogwatch_core::text::{clip, printable};
use dogwatch_core::watch::sign::AgentResult;
use std::collections::BTreeSet;
use std::ops::Range;

const COMMENT: &str = "<!--";
const COMMENT_END: &str = "-->";

/// Returns the last marker in the final text of an agent. `prompt` is the prompt that the agent received.
pub fn last_marker(text: &str, structured: bool, prompt: &str) -> Option<Marker> {
    let text = printable(text);
    let text = text.as_ref();
    let lines = text_lines(text);
    let code = inline_code(text, &lines);
    // The text was cleaned, so the prompt is compared in the same form.
    let prompt = printable(prompt);
    let echo = Echo::of(&prompt);
    let mut found = None;
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.spoken) {
        let marker = if structured { within(line, &code) } else { alone(line.text) };
        if marker.is_some() && !echo.covers(&lines, at, structured) {
            found = marker;
        }
    }
    found
}

/// A trimmed line that is not blank; `spoken` unless it is part of a code block or a quote.
struct TextLine<'a> {
    text: &'a str,
    /// The offset of the line in the whole text.
    at: usize,
    spoken: bool,
    /// It continues the paragraph of the line before it.
    continues: bool,
}

fn text_lines(text: &str) -> Vec<TextLine<'_>> {
    let mut lines: Vec<TextLine<'_>> = Vec::new();
    // The open fence, and the line after it.
    let mut open: Option<(Fence<'_>, usize)> = None;
    let mut indents = Indents::default();
    let mut start = 0;
    for whole in text.split_inclusive('\n') {
        let (begin, line) = (start, whole.trim());
        start += whole.len();
        if line.is_empty() {
            indents.blank();
            continue;
        }
        let fence = Fence::of(line);
        let indented = open.is_none() && indents.is_code(whole);
        let plain = open.is_none() && fence.is_none() && !indented && !line.starts_with('>');
        let begins = indents.item || line.starts_with(COMMENT) || line.starts_with('#');
        let continues = plain && indents.after_paragraph && !begins;
        lines.push(TextLine {
            text: line,
            at: begin + (whole.len() - whole.trim_start().len()),
            spoken: plain,
            continues,
        });
        indents.after_paragraph = plain && !line.starts_with(COMMENT) && !line.starts_with('#');
        open = match (open, fence) {
            (None, Some(_)) if indented => None,
            (None, Some(fence)) => Some((fence, lines.len())),
            (Some((opened, _)), Some(fence)) if fence.closes(&opened) => None,
            (open, _) => open,
        };
    }
    // A text that was cut may begin inside a fence. Then the last fence mark closes one instead of opening one.
    if let Some((fence, from)) = open
        && fence.info.is_empty()
        && may_be_cut(text)
    {
        lines[from..].iter_mut().for_each(|line| line.spoken = !line.text.starts_with('>'));
    }
    lines
}

/// A line that is indented this many columns deeper than the text around it is code.
const CODE_INDENT: usize = 4;

/// Distinguishes indented code from text that is indented because it belongs to a list.
#[derive(Default)]
struct Indents {
    /// The text columns of the open list items, outermost first.
    lists: Vec<usize>,
    after_paragraph: bool,
    /// The last line begins a list item.
    item: bool,
}

impl Indents {
    fn blank(&mut self) {
        self.after_paragraph = false;
    }

    fn is_code(&mut self, line: &str) -> bool {
        let indent = columns(line);
        // Inside a paragraph, indentation has no meaning.
        if !self.after_paragraph {
            self.leave_lists(indent);
            if indent >= self.lists.last().copied().unwrap_or(0) + CODE_INDENT {
                self.item = false;
                return true;
            }
        }
        let text = item_text(line.trim());
        self.item = text.is_some();
        if let Some(offset) = text {
            self.leave_lists(indent);
            self.lists.push(indent + offset);
        }
        false
    }

    fn leave_lists(&mut self, indent: usize) {
        while self.lists.last().is_some_and(|from| indent < *from) {
            self.lists.pop();
        }
    }
}

/// Returns the distance from the mark of a list item to its text. Later paragraphs of the item align with the text.
fn item_text(line: &str) -> Option<usize> {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let mark = match line.as_bytes().get(digits)? {
        b'.' | b')' if (1..=9).contains(&digits) => digits + 1,
        b'-' | b'*' | b'+' if digits == 0 => 1,
        _ => return None,
    };
    let behind = &line[mark..];
    let blanks = behind.len() - behind.trim_start().len();
    match blanks {
        0 if !behind.is_empty() => None,
        1..=CODE_INDENT => Some(mark + blanks),
        // If no text follows the mark, or code follows it, the item's text starts one column after the mark.
        _ => Some(mark + 1),
    }
}

/// Returns the column at which the text of a line begins; a tab advances to the next multiple of four.
fn columns(line: &str) -> usize {
    line.chars().take_while(|c| matches!(c, ' ' | '\t')).fold(0, |column, c| match c {
        '\t' => (column / CODE_INDENT + 1) * CODE_INDENT,
        _ => column + 1,
    })
}

/// Returns the ranges of inline code, in order. A range may span the lines of one paragraph.
fn inline_code(text: &str, lines: &[TextLine<'_>]) -> Vec<Range<usize>> {
    let mut code = Vec::new();
    let mut rest = lines.iter().peekable();
    while let Some(line) = rest.next() {
        let mut end = line.at + line.text.len();
        while let Some(next) = rest.next_if(|next| line.spoken && next.continues) {
            end = next.at + next.text.len();
        }
        if line.spoken {
            code_spans(&text[line.at..end], line.at, &mut code);
        }
    }
    code
}

/// Finds the code spans of a paragraph: a run of backticks up to the next run of the same length. A comment that begins
/// before the span is not part of it, and a run without a match is text.
fn code_spans(paragraph: &str, from: usize, code: &mut Vec<Range<usize>>) {
    let bytes = paragraph.as_bytes();
    // Run lengths without a match; searching for them again would make this quadratic.
    let mut alone = BTreeSet::new();
    let mut at = 0;
    while at < bytes.len() {
        let run = ticks(&bytes[at..]);
        if bytes[at] == b'\\' {
            at += 1 + paragraph[at + 1..].chars().next().map_or(0, char::len_utf8);
        } else if let Some(length) = comment(&paragraph[at..]) {
            at += length;
        } else if run == 0 {
            at += paragraph[at..].chars().next().map_or(1, char::len_utf8);
        } else if let Some(length) =
            (!alone.contains(&run)).then(|| partner(&bytes[at + run..], run)).flatten()
        {
            code.push(from + at..from + at + run + length);
            at += run + length;
        } else {
            alone.insert(run);
            at += run;
        }
    }
}

fn ticks(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| **byte == b'`').count()
}

/// Returns the distance to the end of the next run of exactly `run` backticks.
fn partner(bytes: &[u8], run: usize) -> Option<usize> {
    let mut at = 0;
    while at < bytes.len() {
        match ticks(&bytes[at..]) {
            0 => at += 1,
            found if found == run => return Some(at + run),
            found => at += found,
        }
    }
    None
}

/// Returns the length of the comment at the beginning of the text.
fn comment(text: &str) -> Option<usize> {
    let inside = text.strip_prefix(COMMENT)?;
    Some(COMMENT.len() + inside.find(COMMENT_END)? + COMMENT_END.len())
}

/// Returns whether the text may have been cut. Cutting between characters removes up to three more bytes.
fn may_be_cut(text: &str) -> bool {
    text.len() + 4 > AgentResult::MAX_TEXT
}

/// A line of at least three backticks or tildes.
#[derive(Clone, Copy)]
struct Fence<'a> {
    mark: char,
    length: usize,
    info: &'a str,
}

impl Fence<'_> {
    fn of(line: &str) -> Option<Fence<'_>> {
        let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let info = line.trim_start_matches(mark);
        let length = line.len() - info.len();
        // A line like ```x``` is inline code.
        (length >= 3 && !info.contains('`')).then_some(Fence { mark, length, info: info.trim() })
    }

    fn closes(&self, opened: &Fence<'_>) -> bool {
        self.mark == opened.mark && self.length >= opened.length && self.info.is_empty()
    }
}

/// Distinguishes a marker that the agent states from one that it repeats as part of the prompt.
///
/// A prompt may contain marker lines (an instruction, an example), and an agent may print its prompt, as `cat` does. A
/// line that equals a marker line of the prompt proves nothing, because the prompt may ask for exactly that line. The
/// neighboring lines decide: the marker is an echo if the lines before and after it, ignoring blank ones, are the same
/// as around that marker in the prompt. At the edge of the prompt there is only one neighbor to compare. If the prompt
/// consists of the marker only, the first such line of a plain agent is the echo.
struct Echo<'a> {
    prompt: Vec<&'a str>,
}

impl<'a> Echo<'a> {
    fn of(prompt: &'a str) -> Echo<'a> {
        // Most prompts contain no marker, and then no line of the text needs a lookup.
        let has_marker = prompt.contains(":state");
        let lines = prompt.lines().map(str::trim).filter(|line| !line.is_empty() && has_marker);
        Echo { prompt: lines.collect() }
    }

    fn covers(&self, lines: &[TextLine<'_>], at: usize, structured: bool) -> bool {
        let line = |at: Option<usize>| at.and_then(|at| lines.get(at)).map(|line| line.text);
        let (before, here, after) = (line(at.checked_sub(1)), lines[at].text, line(at.checked_add(1)));
        let places = self.prompt.iter().enumerate().filter(|(_, line)| **line == here);
        places.into_iter().any(|(place, _)| {
            let wanted_before = place.checked_sub(1).map(|at| self.prompt[at]);
            let wanted_after = self.prompt.get(place + 1).copied();
            match (wanted_before, wanted_after) {
                (None, None) => !structured && before.is_none(),
                (wanted_before, wanted_after) => {
                    wanted_before.is_none_or(|wanted| before == Some(wanted))
                        && wanted_after.is_none_or(|wanted| after == Some(wanted))
                }
            }
        })
    }
}

/// Parses a marker that is the whole line.
fn alone(line: &str) -> Option<Marker> {
    let inside = line.strip_prefix(COMMENT)?.strip_suffix(COMMENT_END)?;
    parse(inside).filter(|_| !inside.contains(COMMENT_END))
}

/// Returns the last marker in the line that is not inline code.
fn within(line: &TextLine<'_>, code: &[Range<usize>]) -> Option<Marker> {
    let is_code = |at: usize| {
        let next = code.partition_point(|span| span.end <= at);
        code.get(next).is_some_and(|span| span.contains(&at))
    };
    line.text.rmatch_indices(COMMENT).filter(|(at, _)| !is_code(line.at + at)).find_map(|(at, open)| {
        let inside = &line.text[at + open.len()..];
        parse(&inside[..inside.find(COMMENT_END)?])
    })
}

fn parse(inside: &str) -> Option<Marker> {
    let words = inside.trim();
    if words.len() > Marker::MAX_LEN {
        return None;
    }
    let words = words.strip_prefix("ralph:state").or(words.strip_prefix("dogwatch:state"))?;
    if !words.starts_with(char::is_whitespace) {
        return None;
    }
    let (state, mut rest) = split_word(words.trim_start());
    if !is_name(state) || state.len() > Marker::MAX_STATE {
        return None;
    }
    let mut attrs = Vec::new();
    while !rest.is_empty() && attrs.len() < Marker::MAX_ATTRS {
        let (attr, behind) = attribute(rest);
        attrs.extend(attr);
        rest = behind;
    }
    Some(Marker { state: state.to_owned(), attrs })
}

/// Parses one `key=value` or `key="some value"`; skips any other word.
fn attribute(text: &str) -> (Option<(String, String)>, &str) {
    let (word, behind) = split_word(text);
    let Some((key, value)) = word.split_once('=').filter(|(key, _)| is_name(key)) else {
        return (None, behind);
    };
    let quoted = &text[key.len() + 1..];
    let key = clip(key, Marker::MAX_KEY).to_owned();
    for quote in ['"', '\''] {
        if let Some((value, behind)) = quoted.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return (Some((key, clip(value, Marker::MAX_VALUE).to_owned())), behind.trim_start());
        }
    }
    (Some((key, clip(value, Marker::MAX_VALUE).to_owned())), behind)
}

fn split_word(text: &str) -> (&str, &str) {
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}
