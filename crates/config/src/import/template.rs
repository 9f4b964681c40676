//! Converts a Liquid template to a prompt: output tags become arguments, and of a condition the first branch is kept.

use crate::diagnostic::{Diagnostics, Source};
use crate::document::Span;
use crate::limits::MAX_DEPTH;

/// A converted template.
pub struct Converted {
    /// The prompt.
    pub text: String,
    /// The arguments that it uses, each once.
    pub args: Vec<String>,
    /// The tags that were dropped, with their places.
    pub dropped: Vec<(Span, String)>,
}

/// The tags that open a block, and the ones that close it.
const BLOCKS: [(&str, &str); 5] = [
    ("if", "endif"),
    ("unless", "endunless"),
    ("for", "endfor"),
    ("case", "endcase"),
    ("comment", "endcomment"),
];

/// An open block.
struct Open {
    closes: &'static str,
    at: Span,
    /// Whether the text of this branch is kept.
    kept: bool,
}

/// Converts the template that starts at `base` in the file. Returns none if a tag is not closed.
pub fn convert(source: Source<'_>, base: usize, diagnostics: &mut Diagnostics) -> Option<Converted> {
    let mut out = Converted { text: String::new(), args: Vec::new(), dropped: Vec::new() };
    let mut open: Vec<Open> = Vec::new();
    let mut at = base;
    while let Some(found) = source.text[at..].find("{{").into_iter().chain(source.text[at..].find("{%")).min()
    {
        let start = at + found;
        let close = if source.text[start..].starts_with("{{") { "}}" } else { "%}" };
        let keep = open.iter().all(|block| block.kept);
        if keep {
            out.text.push_str(&source.text[at..start]);
        }
        let Some(len) = source.text[start + 2..].find(close) else {
            return diagnostics
                .error(source, start..start + 2, format!("this tag is not closed with `{close}`"))
                .rejected();
        };
        let inner = source.text[start + 2..start + 2 + len].trim_matches(['-', ' ', '\t', '\n', '\r']);
        let span = start..start + len + 4;
        at = span.end;
        if close == "}}" {
            if keep {
                output(inner, &mut out);
            }
            continue;
        }
        out.dropped.push((span.clone(), format!("{{% {inner} %}}")));
        if !tag(inner, span.clone(), &mut open) {
            return diagnostics
                .error(source, span, format!("`{inner}` has no matching tag before it"))
                .rejected();
        }
        if open.len() > MAX_DEPTH {
            return diagnostics.error(source, start..at, "nested too deeply").rejected();
        }
    }
    if let Some(block) = open.last() {
        diagnostics.error(
            source,
            block.at.clone(),
            format!("this tag needs `{{% {} %}}` after it", block.closes),
        );
        return None;
    }
    out.text.push_str(&source.text[at..]);
    Some(out)
}

/// Appends the placeholder of an output tag: `issue.title | upcase` becomes the argument `issue_title`.
fn output(inner: &str, out: &mut Converted) {
    let name = inner.split('|').next().unwrap_or(inner).trim();
    if name == "attempt" {
        out.text.push_str("{{ ralph.iteration }}");
        return;
    }
    let arg: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
    let arg = arg.trim_matches('_').to_owned();
    if arg.is_empty() {
        return;
    }
    out.text.push_str(&format!("{{{{ args.{arg} }}}}"));
    if !out.args.contains(&arg) {
        out.args.push(arg);
    }
}

/// Applies a tag to the open blocks. Returns false if it closes or continues a block that is not open.
fn tag(inner: &str, span: Span, open: &mut Vec<Open>) -> bool {
    let word = inner.split_whitespace().next().unwrap_or_default();
    if let Some((_, closes)) = BLOCKS.iter().find(|(opens, _)| *opens == word) {
        // Nothing between `case` and the first `when` is text, and a comment has none at all.
        let kept = word != "comment";
        open.push(Open { closes, at: span, kept });
        return true;
    }
    match word {
        "else" | "elsif" => match open.last_mut() {
            Some(block) => block.kept = false,
            None => return false,
        },
        // The first branch is kept: the one after the first `when`.
        "when" => match open.last_mut() {
            Some(block) => {
                let first = block.closes == "endcase";
                block.kept &= first;
                block.closes = "endcase ";
            }
            None => return false,
        },
        end if end.starts_with("end") => match open.pop() {
            Some(block) => return block.closes.trim_end() == end,
            None => return false,
        },
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(text: &str) -> Result<(String, Vec<String>, usize), String> {
        let mut diagnostics = Diagnostics::default();
        match convert(Source { name: "W", text }, 0, &mut diagnostics) {
            Some(out) => Ok((out.text, out.args, out.dropped.len())),
            None => Err(diagnostics.into_vec()[0].to_string()),
        }
    }

    #[test]
    fn output_tags_become_arguments_and_conditions_keep_their_first_branch() {
        assert_eq!(
            converted("Do {{ issue.title | upcase }} ({{issue.title}}), try {{ attempt }}."),
            Ok((
                "Do {{ args.issue_title }} ({{ args.issue_title }}), try {{ ralph.iteration }}.".to_owned(),
                vec!["issue_title".to_owned()],
                0
            ))
        );
        assert_eq!(converted("a{% if x %}b{% else %}c{% endif %}d").map(|c| c.0), Ok("abd".to_owned()));
        assert_eq!(
            converted("{%- if x -%}b{% if y %}c{% else %}{{ z }}{% endif %}{% elsif q %}e{% endif %}")
                .map(|c| c.0),
            Ok("bc".to_owned())
        );
        assert_eq!(
            converted("{% case x %}{% when 1 %}a{% when 2 %}b{% endcase %}{% comment %}n{% endcomment %}")
                .map(|c| c.0),
            Ok("a".to_owned())
        );
        assert_eq!(converted("plain { text } %}").map(|c| c.0), Ok("plain { text } %}".to_owned()));
    }

    #[test]
    fn unbalanced_tags_are_errors_with_a_place() {
        for (text, expected) in [
            ("a {{ b", "W:1:3: this tag is not closed with `}}`"),
            ("\n {% if x %}b", "W:2:2: this tag needs `{% endif %}` after it"),
            ("{% endif %}", "W:1:1: `endif` has no matching tag before it"),
            ("{% if x %}{% endfor %}", "W:1:11: `endfor` has no matching tag before it"),
            ("{% else %}", "W:1:1: `else` has no matching tag before it"),
        ] {
            assert_eq!(converted(text), Err(expected.to_owned()));
        }
    }
}
