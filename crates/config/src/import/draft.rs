//! The file that an import writes: settings with their sources, the list of what was left out, and the prompt.

use super::{FileText, Tool};
use crate::diagnostic::{Diagnostics, Place, Source};
use crate::document::{Entry, Span};
use crate::keys::Kind;
use crate::parsed::{Ctx, Parsed, parse};
use dogwatch_core::text::{figures::count, one_line};
use dogwatch_core::time::dur::Dur;

/// The most entries in the list of what was not mapped.
pub const MAX_LEFT_OUT: usize = 100;
/// The longest entry in that list, in bytes.
pub const MAX_LEFT_OUT_BYTES: usize = 300;
/// The first names of placeholders. Another tool's prompt means the plain text.
const NAMESPACES: [&str; 5] = ["commands.", "args.", "checks.", "ralph.", "dogwatch."];

/// A converted file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The name of the file: `RALPH.md` or `graph.yaml`.
    pub file_name: &'static str,
    /// Its text.
    pub text: String,
    /// The settings that were mapped.
    pub mapped: usize,
    /// The entries that were not mapped, with reasons.
    pub left_out: Vec<String>,
}

/// A setting with its source.
struct Row {
    path: &'static str,
    /// The value as YAML.
    value: String,
    from: String,
}

/// A loop or graph file in the making.
pub struct Draft {
    tool: Tool,
    files: Vec<String>,
    rows: Vec<Row>,
    left_out: Vec<String>,
    dropped: usize,
}

impl Draft {
    /// Starts a draft for the files of a tool.
    pub fn new(tool: Tool) -> Draft {
        Draft { tool, files: Vec::new(), rows: Vec::new(), left_out: Vec::new(), dropped: 0 }
    }

    /// Names a file that the draft is made from.
    pub fn read(&mut self, file: &FileText) {
        self.files.push(file.name.clone());
    }

    /// Returns whether a setting was mapped.
    pub fn has(&self, path: &str) -> bool {
        self.rows.iter().any(|row| row.path == path)
    }

    /// Adds a setting. `value` is YAML.
    pub fn set(&mut self, path: &'static str, value: impl Into<String>, from: impl Into<String>) {
        self.rows.push(Row { path, value: value.into(), from: from.into() });
    }

    /// Adds something that has no counterpart.
    pub fn leave(&mut self, source: Source<'_>, at: &Span, what: &str, why: &str) {
        let line = Place::of(source.text, at.clone()).line;
        self.leave_file(&format!("{}:{line}", source.name), what, why);
    }

    /// Adds something about a file that has no counterpart.
    pub fn leave_file(&mut self, file: &str, what: &str, why: &str) {
        if self.left_out.len() == MAX_LEFT_OUT {
            self.dropped += 1;
            return;
        }
        self.left_out.push(one_line(&format!("{file}: {what}: {why}"), MAX_LEFT_OUT_BYTES));
    }

    /// Adds the keys of a block that have no counterpart. Known keys have a specific reason.
    pub fn leave_rest(
        &mut self,
        source: Source<'_>,
        block: &str,
        entries: &[Entry],
        mapped: &[&str],
        reasons: &[(&str, &str)],
    ) {
        for entry in entries.iter().filter(|entry| !mapped.contains(&entry.key.as_str())) {
            let reason = reasons.iter().find(|(key, _)| *key == entry.key);
            let why = reason.map_or("dogwatch has no such setting", |(_, why)| why);
            let dot = if block.is_empty() { "" } else { "." };
            self.leave(source, &entry.key_span, &format!("{block}{dot}{}", entry.key), why);
        }
    }

    /// Notes what works differently in a prompt, and returns it with `\n` line ends. A phrase that ends a loop of the
    /// other tool does not end a run of dogwatch.
    pub fn prompt(&mut self, file: &FileText, text: &str, phrases: &[&str]) -> String {
        for phrase in phrases.iter().filter(|phrase| !phrase.is_empty()) {
            if let Some(at) = file.text.find(phrase) {
                let what = format!("the prompt asks for `{phrase}`");
                self.leave(file.source(), &(at..at), &what, "the phrase does not end a run; checks do");
            }
        }
        if let Some(at) = file.text.find("<!--") {
            let why = "comments are notes for people here; the agent does not see them";
            self.leave(file.source(), &(at..at), "HTML comments in the prompt", why);
        }
        super::without_bom(text).replace("\r\n", "\n").trim().to_owned()
    }

    /// Returns a prompt in which text that looks like a placeholder stays plain text.
    pub fn plain(&mut self, file: &FileText, prompt: &str) -> String {
        let mut out = String::with_capacity(prompt.len());
        let mut rest = prompt;
        while let Some(at) = rest.find("{{") {
            let (before, from) = rest.split_at(at);
            out.push_str(before);
            let inner = from[2..].trim_start();
            let looks_alike = NAMESPACES.iter().any(|name| inner.starts_with(name));
            out.push_str(if looks_alike { "{ {" } else { "{{" });
            if looks_alike {
                let what = "the prompt contains braces that dogwatch would replace";
                self.leave_file(&file.name, what, "they were written as `{ {`");
            }
            rest = &from[2..];
        }
        out + rest
    }

    /// Returns the loop file.
    pub fn loop_file(mut self, prompt: &str) -> Imported {
        let mut text = format!("---\n{}", self.head());
        text.push_str(&self.settings());
        text.push_str(&self.tail());
        text.push_str("---\n");
        text.push_str(prompt);
        text.push('\n');
        self.finish("RALPH.md", text)
    }

    /// Returns the graph file with these nodes, each as YAML.
    pub fn graph_file(mut self, nodes: &str) -> Imported {
        let mut text = self.head();
        text.push_str(&self.settings());
        text.push_str(&self.tail());
        text.push_str("\nnodes:\n");
        text.push_str(nodes);
        self.finish("graph.yaml", text)
    }

    fn finish(&mut self, file_name: &'static str, text: String) -> Imported {
        Imported { file_name, text, mapped: self.rows.len(), left_out: std::mem::take(&mut self.left_out) }
    }

    fn head(&self) -> String {
        format!(
            "# Converted by `dogwatch init --from` from the files of {}: {}.\n# The comment above a setting names its source. \
             `dogwatch check DIR --explain` shows all effective settings.\n",
            self.tool.name(),
            comment(&self.files.join(", ")),
        )
    }

    /// Returns the settings as YAML, those of one block together.
    fn settings(&self) -> String {
        let mut out = String::new();
        let mut written: Vec<&str> = Vec::new();
        for row in &self.rows {
            let Some((block, _)) = row.path.split_once('.') else {
                let space = if row.value.starts_with('\n') { "" } else { " " };
                out.push_str(&format!("\n# {}\n{}:{space}{}\n", comment(&row.from), row.path, row.value));
                continue;
            };
            if written.contains(&block) {
                continue;
            }
            written.push(block);
            out.push_str(&format!("\n{block}:\n"));
            for row in &self.rows {
                let key = row.path.strip_prefix(block).and_then(|rest| rest.strip_prefix('.'));
                if let Some(key) = key {
                    out.push_str(&format!("  # {}\n  {key}: {}\n", comment(&row.from), row.value));
                }
            }
        }
        out
    }

    fn tail(&mut self) -> String {
        let mut out = String::new();
        if !self.has("done_when") {
            out.push_str(
                "\n# Nothing that the agent prints ends a run as successful; shell commands that must all pass do:\n\
                 # done_when: [make test]\n",
            );
        }
        if self.dropped > 0 {
            let more = format!("and {}", count(self.dropped as u64, "more setting"));
            self.left_out.push(more);
        }
        if !self.left_out.is_empty() {
            out.push_str("\n# Not mapped:\n");
            for entry in &self.left_out {
                out.push_str(&format!("# - {}\n", comment(entry)));
            }
        }
        out
    }
}

/// Reads values of the other tool's file as the values of our keys.
pub struct Values<'a, 's> {
    pub source: Source<'s>,
    pub diagnostics: &'a mut Diagnostics,
}

impl Values<'_, '_> {
    fn parsed(&mut self, path: &str, entry: &Entry, kind: Kind) -> Option<Parsed> {
        parse(&mut Ctx { source: self.source, path, diagnostics: self.diagnostics }, &entry.value, kind)
    }

    /// Reads a text that is not empty.
    pub fn text(&mut self, path: &str, entry: &Entry) -> Option<String> {
        let Parsed::Text(text) = self.parsed(path, entry, Kind::Text)? else { return None };
        Some(text)
    }

    /// Reads a list of texts, or a single one.
    pub fn texts(&mut self, path: &str, entry: &Entry) -> Option<Vec<String>> {
        let Parsed::Texts(texts) = self.parsed(path, entry, Kind::Texts)? else { return None };
        Some(texts)
    }

    /// Reads true or false.
    pub fn flag(&mut self, path: &str, entry: &Entry) -> Option<bool> {
        let Parsed::Flag(flag) = self.parsed(path, entry, Kind::Flag)? else { return None };
        Some(flag)
    }

    /// Reads a whole number of at least 1.
    pub fn count(&mut self, path: &str, entry: &Entry) -> Option<u64> {
        let Parsed::Count(n) = self.parsed(path, entry, Kind::Count)? else { return None };
        n
    }

    /// Reads a number of at least 0.
    pub fn amount(&mut self, path: &str, entry: &Entry) -> Option<f64> {
        let Parsed::Number(n) = self.parsed(path, entry, Kind::Amount)? else { return None };
        Some(n)
    }

    /// Reads a number of seconds.
    pub fn seconds(&mut self, path: &str, entry: &Entry) -> Option<Dur> {
        let Parsed::Dur(dur) = self.parsed(path, entry, Kind::Duration)? else { return None };
        Some(dur)
    }
}

/// Formats where a value comes from.
pub fn from(source: Source<'_>, at: &Span, what: &str) -> String {
    format!("{what}, {}:{}", source.name, Place::of(source.text, at.clone()).line)
}

/// Returns a text for a comment: one line, without control characters.
fn comment(text: &str) -> String {
    one_line(text, MAX_LEFT_OUT_BYTES)
}

/// Returns a text as a YAML value: plain if that is safe, in double quotes otherwise.
pub fn scalar(text: &str) -> String {
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || matches!(c, '/' | '.'));
    let plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '_' | '.' | '/' | '-' | '=' | '+' | '@');
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n" | ".nan" | ".inf"
    );
    let number = text.parse::<f64>().is_ok();
    if first && !word && !number && !text.ends_with(' ') && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                out.push_str(&format!("\\u{:04X}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Returns a text of several lines as a YAML value, indented by `indent` spaces.
pub fn literal(text: &str, indent: usize) -> String {
    let plain = |c: char| {
        c == '\n' || !(c.is_control() || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}'))
    };
    let text = text.trim_end();
    let first = text.lines().next().unwrap_or_default();
    if !text.contains('\n') || !text.chars().all(plain) || first.trim().is_empty() || first.starts_with(' ') {
        return scalar(text);
    }
    let pad = " ".repeat(indent);
    let lines =
        text.split('\n').map(|line| if line.is_empty() { "\n".to_owned() } else { format!("{pad}{line}\n") });
    format!("|-\n{}", lines.collect::<String>().trim_end_matches('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Value;

    #[test]
    fn texts_survive_a_round_trip_through_yaml() {
        for text in [
            "claude",
            "true",
            "No",
            "1.5",
            "a: b",
            "a #b",
            " x",
            "x ",
            "'q' \"d\" \\",
            "tab\there",
            "é → ü",
            "- a",
            "{a}",
            "*x",
            "a\nb",
            "a\n\nb: c\n  d",
            "\n a",
            "  a\nb",
            "---",
            "a\r\nb",
            "\u{1b}[0m",
            "a\u{2028}b\nc",
            "# x\ny",
            "x:\n- y",
            "%a\nb",
        ] {
            for yaml in [format!("k: {}", scalar(text)), format!("k: {}", literal(text, 2))] {
                let tree = crate::yaml::parse(&yaml, 0).unwrap_or_else(|e| panic!("{yaml:?}: {e:?}"));
                let Value::Map(entries) = tree.value else { panic!("{yaml:?}") };
                let expected = if yaml.contains(": |-") { text.trim_end() } else { text };
                assert_eq!(entries[0].value.text().map(str::trim_end), Some(expected.trim_end()), "{yaml:?}");
            }
        }
    }
}
