//! The state that an agent declares at the end of its final text: `<!-- ralph:state idle reason=… -->`.
//!
//! A marker must be the agent's own word. What stands in a code fence or a quote is shown, not said. A plain
//! agent's output is all there is of it, tool output and the prompt included, so there a marker must have a
//! line to itself and must not be an echo of the prompt (see `Echo`).

pub use dogwatch_core::job::Marker;
use dogwatch_core::sign::AgentResult;
use dogwatch_core::text::{clip, printable};

/// The last marker in the final text of an agent. `prompt` is what the agent was given.
pub fn last_marker(text: &str, structured: bool, prompt: &str) -> Option<Marker> {
    let text = printable(text);
    let text = text.as_ref();
    let spoken = spoken_lines(text);
    let echo = Echo::of(prompt);
    let mut found = None;
    for (at, line) in spoken.iter().enumerate() {
        let Some(marker) = (if structured { within(line.text) } else { alone(line.text) }) else { continue };
        if line.spoken && !echo.covers(&spoken, at, structured) {
            found = Some(marker);
        }
    }
    found
}

/// A line that is not blank, trimmed; `spoken` unless it stands in a fence or a quote.
struct TextLine<'a> {
    text: &'a str,
    spoken: bool,
}

fn spoken_lines(text: &str) -> Vec<TextLine<'_>> {
    let mut lines: Vec<TextLine<'_>> = Vec::new();
    // The fence that is open, and the line behind it.
    let mut open: Option<(Fence<'_>, usize)> = None;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let fence = Fence::of(line);
        let spoken = open.is_none() && fence.is_none() && !line.starts_with('>');
        lines.push(TextLine { text: line, spoken });
        open = match (open, fence) {
            (None, Some(fence)) => Some((fence, lines.len())),
            (Some((opened, _)), Some(fence)) if fence.closes(&opened) => None,
            (open, _) => open,
        };
    }
    // A text that was cut may begin within a fence: then the last mark, that seems to open one, closes it.
    if let Some((fence, from)) = open
        && fence.info.is_empty()
        && may_be_cut(text)
    {
        lines[from..].iter_mut().for_each(|line| line.spoken = !line.text.starts_with('>'));
    }
    lines
}

/// Cutting between characters leaves up to three bytes less.
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
        // A line like ```x``` is code within a line.
        (length >= 3 && !info.contains('`')).then_some(Fence { mark, length, info: info.trim() })
    }

    fn closes(&self, opened: &Fence<'_>) -> bool {
        self.mark == opened.mark && self.length >= opened.length && self.info.is_empty()
    }
}

/// Tells a marker that an agent says from one that it repeats with the prompt around it.
///
/// A prompt may hold marker lines (an instruction, an example), and an agent may print its prompt, as `cat`
/// does. A line that equals a marker line of the prompt proves nothing: the agent may have been told to
/// print exactly that. So its neighbours decide: it is an echo if the lines before and after it (blank ones
/// aside) are those that stand around that marker in the prompt. At the prompt's edge only one neighbour is
/// there to be compared. If the prompt is nothing but the marker there is none: then a plain agent's first
/// such line is the echo.
struct Echo<'a> {
    prompt: Vec<&'a str>,
}

impl<'a> Echo<'a> {
    fn of(prompt: &'a str) -> Echo<'a> {
        // Most prompts hold no marker, and then no line of the text needs to be looked up.
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

/// The marker that is the whole line.
fn alone(line: &str) -> Option<Marker> {
    let inside = line.strip_prefix("<!--")?.strip_suffix("-->")?;
    parse(inside).filter(|_| !inside.contains("-->"))
}

/// The last marker in the line.
fn within(line: &str) -> Option<Marker> {
    line.rmatch_indices("<!--").find_map(|(at, open)| {
        let inside = &line[at + open.len()..];
        parse(&inside[..inside.find("-->")?])
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

/// One `key=value` or `key="some value"`; a word that is neither is passed over.
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
