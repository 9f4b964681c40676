//! Removes HTML comments from a prompt. They are notes for people, and the agent does not see them.
//!
//! Two kinds of comments are kept: those inside a code fence, because they are part of the example, and
//! `<!-- ralph:… -->` markers, because the agent must read the exact text to be able to print it.

const OPEN: &str = "<!--";
const CLOSE: &str = "-->";
const MARKER: &str = "ralph:";

/// Returns `text` without its comments. An unclosed comment is kept as plain text.
pub fn strip(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut fence: Option<Fence> = None;
    let mut at_line_start = true;
    // No comment can end after the last `-->`. Searching again for every `<!--` would be quadratic.
    let last_close = text.rfind(CLOSE).unwrap_or(0);
    while !rest.is_empty() {
        let line_len = rest.find('\n').map_or(rest.len(), |at| at + 1);
        let (line, after) = rest.split_at(line_len);
        if at_line_start && let Some(open) = &fence {
            if open.is_closed_by(line) {
                fence = None;
            }
        } else if at_line_start && let Some(open) = Fence::opened_by(line) {
            fence = Some(open);
        } else if text.len() - rest.len() < last_close
            && let Some((start, end)) = first_comment(rest, line_len)
        {
            out.push_str(&rest[..start]);
            if is_marker(&rest[start..end]) {
                out.push_str(&rest[start..end]);
            }
            rest = &rest[end..];
            at_line_start = false;
            continue;
        }
        out.push_str(line);
        rest = after;
        at_line_start = true;
    }
    out
}

/// Finds the first comment that starts within the first `line_len` bytes. It may end on any later line.
fn first_comment(rest: &str, line_len: usize) -> Option<(usize, usize)> {
    let start = rest[..line_len].find(OPEN)?;
    let inside = start + OPEN.len();
    let end = rest[inside..].find(CLOSE)? + inside + CLOSE.len();
    Some((start, end))
}

fn is_marker(comment: &str) -> bool {
    comment[OPEN.len()..].trim_start().starts_with(MARKER)
}

/// An open code fence: three or more backticks or tildes.
struct Fence {
    mark: char,
    len: usize,
}

impl Fence {
    /// Parses an opening fence. Any indentation is allowed because list items can contain fences.
    fn opened_by(line: &str) -> Option<Fence> {
        let line = line.trim();
        let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let len = line.chars().take_while(|c| *c == mark).count();
        // "```x```" is inline code, not a fence.
        let inline = mark == '`' && line[len..].contains('`');
        (len >= 3 && !inline).then_some(Fence { mark, len })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.len && line.chars().all(|c| c == self.mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_12_html_comments_are_removed_outside_fences() {
        for (text, kept) in [
            ("a <!-- x --> b", "a  b"),
            ("a\n<!-- x\ny\n-->\nb", "a\n\nb"),
            ("<!---->a<!-- --><!-- b -->c", "ac"),
            ("a <!-- never closed", "a <!-- never closed"),
            ("a --> b", "a --> b"),
            ("<!--> a", "<!--> a"),
            ("```\n<!-- x -->\n```\n<!-- y -->", "```\n<!-- x -->\n```\n"),
            (
                "~~~md\n<!-- x -->\n```\n<!-- y -->\n~~~\n<!-- z -->",
                "~~~md\n<!-- x -->\n```\n<!-- y -->\n~~~\n",
            ),
            ("````\n```\n<!-- x -->\n````\n<!-- y -->", "````\n```\n<!-- x -->\n````\n"),
            ("- item\n    ```\n    <!-- x -->\n    ```\n", "- item\n    ```\n    <!-- x -->\n    ```\n"),
            ("```x``` <!-- y -->", "```x``` "),
            ("<!--\n```\n--> a <!-- b -->", " a "),
            ("``` open\n<!-- x -->", "``` open\n<!-- x -->"),
            ("é <!-- ü --> ö", "é  ö"),
        ] {
            assert_eq!(strip(text), kept, "{text:?}");
        }
    }

    #[test]
    fn loop_13_a_marker_in_the_body_is_kept() {
        for text in [
            "say <!-- ralph:state idle --> when done",
            "<!--ralph:state idle reason=no_pending_tasks-->",
            "<!--\n ralph:state\n idle -->",
        ] {
            assert_eq!(strip(text), text);
        }
        assert_eq!(strip("<!-- about ralph:state -->"), "");
    }

    #[test]
    fn many_unclosed_comments_take_linear_time() {
        let text = "<!-- \n".repeat(100_000);
        assert_eq!(strip(&text), text);
    }
}
