//! Splits a loop file into the settings between the `---` fences and the prompt after them.
//!
//! The settings are read once, when the run starts. The prompt is read again before every iteration, so
//! [`body`] is cheap and does not parse the settings. [`settings`] returns the text of the settings, to detect
//! changes.

use crate::{comments, yaml};

const FENCE: &str = "---";
const BOM: char = '\u{feff}';

/// The two parts of a loop file, as slices of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split<'a> {
    /// The text between the fences; empty if there are none.
    pub yaml: &'a str,
    /// The byte offset of `yaml` in the file.
    pub offset: usize,
    /// The text after the closing fence, unchanged.
    pub rest: &'a str,
    /// Whether the file has fences.
    pub shape: Shape,
}

/// Whether a file has frontmatter, and if not, why. It selects the help text of "`agent` is missing".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The frontmatter is complete.
    Fenced,
    /// The file has no opening fence.
    NoFence,
    /// The closing fence is missing.
    NeverClosed,
    /// Whitespace precedes the opening fence.
    NotAtStart,
}

/// Splits a file at its fences. The opening fence must be the first line. Without a closing fence the whole
/// file is the prompt.
pub fn split(text: &str) -> Split<'_> {
    let start = if text.starts_with(BOM) { BOM.len_utf8() } else { 0 };
    let all = &text[start..];
    let whole = |shape| Split { yaml: "", offset: start, rest: all, shape };
    let mut lines = all.split_inclusive('\n');
    let first = lines.next().unwrap_or("");
    if !is_fence(first) {
        let later = all.trim_start().lines().next().is_some_and(is_fence);
        return whole(if later { Shape::NotAtStart } else { Shape::NoFence });
    }
    let open = first.len();
    let mut at = open;
    for line in lines {
        if is_fence(line) {
            return Split {
                yaml: &all[open..at],
                offset: start + open,
                rest: &all[at + line.len()..],
                shape: Shape::Fenced,
            };
        }
        at += line.len();
    }
    whole(Shape::NeverClosed)
}

/// Returns the prompt: the text after the frontmatter, trimmed, without HTML comments and with `\n` line ends.
pub fn body(text: &str) -> String {
    let rest = split(text).rest;
    let unix = rest.replace("\r\n", "\n");
    comments::strip(&unix).trim().to_owned()
}

/// Returns the text of the settings, normalized for comparison: line endings and trailing whitespace do not
/// count as changes.
pub fn settings(text: &str) -> String {
    let mut out = String::new();
    for line in split(text).yaml.lines() {
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out
}

/// Returns why the settings are not valid YAML. A file that is read again during a run may be only
/// half written.
pub fn fault(text: &str) -> Option<String> {
    yaml::parse(split(text).yaml, 0).err().map(|bad| bad.message)
}

fn is_fence(line: &str) -> bool {
    line.trim_end() == FENCE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (&str, String) {
        (split(text).yaml, body(text))
    }

    #[test]
    fn loop_1_to_9_fences_separate_settings_from_the_prompt() {
        for (item, text, yaml, prompt) in [
            (1, "---\nagent: claude\n---\nHello", "agent: claude\n", "Hello"),
            (2, "Just a prompt\n", "", "Just a prompt"),
            (3, "---\nagent: claude\nHello", "", "---\nagent: claude\nHello"),
            (4, "", "", ""),
            (5, "---\n---", "", ""),
            (6, "---\nagent: a\n---\n\n\n  Hello  \n\n", "agent: a\n", "Hello"),
            (7, " ---\nagent: a\n---\nHi", "", "---\nagent: a\n---\nHi"),
            (8, "\u{feff}---\nagent: a\n---\nHi", "agent: a\n", "Hi"),
            (8, "\u{feff}Hi", "", "Hi"),
            (9, "---\n# nothing yet\n---\nHi", "# nothing yet\n", "Hi"),
            (1, "---  \nagent: a\n--- \t\nHi", "agent: a\n", "Hi"),
            (1, "---\na: 1\n---\nHi\n---\nmore", "a: 1\n", "Hi\n---\nmore"),
            (1, "----\na: 1\n---\nHi", "", "----\na: 1\n---\nHi"),
        ] {
            assert_eq!(parts(text), (yaml, prompt.to_owned()), "item {item}: {text:?}");
        }
    }

    #[test]
    fn loop_14_crlf_line_endings_are_accepted() {
        let text = "---\r\nagent: a\r\n---\r\nOne\r\nTwo\r\n";
        assert_eq!(parts(text), ("agent: a\r\n", "One\nTwo".to_owned()));
        assert_eq!(settings(text), "agent: a");
    }

    #[test]
    fn the_offset_is_relative_to_the_whole_file() {
        for text in ["---\nagent: a\n---\nHi", "\u{feff}---\r\nagent: a\r\n---\r\nHi", "no fence", ""] {
            let parts = split(text);
            assert_eq!(&text[parts.offset..parts.offset + parts.yaml.len()], parts.yaml, "{text:?}");
        }
    }

    #[test]
    fn the_shape_explains_missing_settings() {
        for (text, shape) in [
            ("---\n---", Shape::Fenced),
            ("Hello", Shape::NoFence),
            ("", Shape::NoFence),
            ("---\nagent: a\n", Shape::NeverClosed),
            ("\n---\nagent: a\n---\n", Shape::NotAtStart),
            ("  ---\nagent: a\n---\n", Shape::NotAtStart),
        ] {
            assert_eq!(split(text).shape, shape, "{text:?}");
        }
    }

    #[test]
    fn loop_44_settings_detect_a_changed_frontmatter_but_not_a_changed_body() {
        let first = settings("---\nagent: a\n---\nOne");
        assert_eq!(settings("---\r\nagent: a  \r\n---\r\nTwo"), first);
        assert_ne!(settings("---\nagent: b\n---\nOne"), first);
        assert_ne!(settings("One"), first);
    }
}
