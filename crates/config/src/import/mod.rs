//! Converts the files of other loop tools to a loop file or a graph file.
//!
//! Every setting that is written names its source, and everything that has no counterpart is listed with the reason. The
//! caller supplies the files, validates the result with [`crate::load`] or [`crate::load_graph`], and writes it.

mod claude_code;
mod draft;
mod orchestrator;
mod ralphify;
mod snarktank;
mod symphony;
mod template;

pub use draft::Imported;

use crate::diagnostic::{Diagnostic, Diagnostics, Source};
use crate::document::{Entry, Node, Value};
use crate::{json, yaml};
use draft::Draft;

/// A tool whose files can be converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// ralphify: `RALPH.md`.
    Ralphify,
    /// ralph-orchestrator: `ralph.yml` and a prompt file.
    Orchestrator,
    /// ralph-claude-code: `.ralphrc` and the directory `.ralph`.
    ClaudeCode,
    /// snarktank's ralph: `prd.json`.
    Snarktank,
    /// Symphony: `WORKFLOW.md`.
    Symphony,
}

/// The files that identify a tool, relative to its directory. `@fix_plan.md` is the older name of `fix_plan.md`.
const FILES: [(&str, Tool); 12] = [
    ("ralph.yml", Tool::Orchestrator),
    ("ralph.yaml", Tool::Orchestrator),
    (".ralphrc", Tool::ClaudeCode),
    (".ralph/PROMPT.md", Tool::ClaudeCode),
    (".ralph/fix_plan.md", Tool::ClaudeCode),
    (".ralph/@fix_plan.md", Tool::ClaudeCode),
    ("@fix_plan.md", Tool::ClaudeCode),
    ("WORKFLOW.md", Tool::Symphony),
    ("prd.json", Tool::Snarktank),
    ("scripts/ralph/prd.json", Tool::Snarktank),
    ("RALPH.md", Tool::Ralphify),
    ("PROMPT.md", Tool::Orchestrator),
];

impl Tool {
    /// Returns the name of the tool.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Ralphify => "ralphify",
            Tool::Orchestrator => "ralph-orchestrator",
            Tool::ClaudeCode => "ralph-claude-code",
            Tool::Snarktank => "snarktank/ralph",
            Tool::Symphony => "Symphony",
        }
    }

    /// Returns the tools of a directory with the file that identifies each. A bare `PROMPT.md` counts only if nothing
    /// else is there, because every tool may have one.
    pub fn detect(exists: &dyn Fn(&str) -> bool) -> Vec<(Tool, &'static str)> {
        let mut found: Vec<(Tool, &'static str)> = Vec::new();
        for (file, tool) in FILES {
            let bare = file == "PROMPT.md" && !found.is_empty();
            if !bare && !found.iter().any(|(earlier, _)| *earlier == tool) && exists(file) {
                found.push((tool, file));
            }
        }
        found
    }

    /// Returns the tool that a file with this name belongs to.
    pub fn of_file(file_name: &str) -> Option<Tool> {
        FILES.iter().find(|(file, _)| file.rsplit('/').next() == Some(file_name)).map(|(_, tool)| *tool)
    }
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileText {
    /// The name to show in messages.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl FileText {
    fn source(&self) -> Source<'_> {
        Source { name: &self.name, text: &self.text }
    }
}

/// Why a file cannot be read.
pub type Unreadable = Box<Diagnostic>;

/// The directory with the other tool's files.
pub trait SourceDir {
    /// Reads a file relative to the directory; none if it does not exist.
    fn read(&self, path: &str) -> Result<Option<FileText>, Unreadable>;
}

/// The inputs of [`import`].
pub struct Import<'a> {
    /// The tool.
    pub tool: Tool,
    /// The file that identifies it, relative to the directory.
    pub file: &'a str,
    /// The directory.
    pub dir: &'a dyn SourceDir,
    /// The agent to use where the tool's files name none.
    pub agent: &'a str,
}

/// Converts the files of a tool, or returns all errors.
pub fn import(import: &Import<'_>) -> Result<Imported, Vec<Diagnostic>> {
    let mut diagnostics = Diagnostics::default();
    let imported = match import.tool {
        Tool::Ralphify => ralphify::import(import, &mut diagnostics),
        Tool::Orchestrator => orchestrator::import(import, &mut diagnostics),
        Tool::ClaudeCode => claude_code::import(import, &mut diagnostics),
        Tool::Snarktank => snarktank::import(import, &mut diagnostics),
        Tool::Symphony => symphony::import(import, &mut diagnostics),
    };
    match imported {
        Ok(Some(imported)) if !diagnostics.has_errors() => Ok(imported),
        Ok(_) => Err(diagnostics.into_vec()),
        Err(unreadable) => Err(vec![*unreadable]),
    }
}

/// The result of a tool's import: none if errors were added, and an error if a file cannot be read.
type Outcome = Result<Option<Imported>, Unreadable>;

/// Reads a file that must exist and have a text.
fn required(
    import: &Import<'_>,
    path: &str,
    diagnostics: &mut Diagnostics,
) -> Result<Option<FileText>, Unreadable> {
    let file = match import.dir.read(path)? {
        Some(file) => file,
        None => {
            let missing = Source { name: path, text: "" };
            diagnostics
                .error_in(missing, format!("{} needs this file, and it is not there", import.tool.name()));
            return Ok(None);
        }
    };
    if file.text.trim().is_empty() {
        diagnostics.error(file.source(), 0..0, "the file is empty");
        return Ok(None);
    }
    Ok(Some(file))
}

/// Parses YAML that must be a mapping.
fn yaml_map(
    source: Source<'_>,
    text: &str,
    base: usize,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<Entry>> {
    match yaml::parse(text, base) {
        Ok(tree) => map(source, tree, diagnostics),
        Err(bad) => {
            diagnostics.syntax_errors(source, "YAML", base, [bad]);
            None
        }
    }
}

/// Parses JSON that must be a mapping.
fn json_map(source: Source<'_>, diagnostics: &mut Diagnostics) -> Option<Vec<Entry>> {
    match json::parse(source.text) {
        Ok(tree) => map(source, tree, diagnostics),
        Err(bad) => {
            diagnostics.syntax_errors(source, "JSON", 0, [bad]);
            None
        }
    }
}

fn map(source: Source<'_>, tree: Node, diagnostics: &mut Diagnostics) -> Option<Vec<Entry>> {
    match tree.value {
        Value::Map(entries) => Some(entries),
        Value::Null => Some(Vec::new()),
        Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) | Value::List(_) => {
            let label = format!("this is {}", tree.kind());
            diagnostics.error(source, tree.span, "the file must hold a mapping").label(label).rejected()
        }
    }
}

/// Returns the entry of a key, unless its value is null.
fn get<'e>(entries: &'e [Entry], key: &str) -> Option<&'e Entry> {
    entries.iter().find(|entry| entry.key == key && !entry.value.is_null())
}

/// Returns the entries of a block; none if the key is missing. A value of another type is an error.
fn block<'e>(
    entries: &'e [Entry],
    key: &str,
    source: Source<'_>,
    diagnostics: &mut Diagnostics,
) -> &'e [Entry] {
    match get(entries, key) {
        Some(Entry { value: Node { value: Value::Map(inner), .. }, .. }) => inner,
        Some(other) => {
            let label = format!("this is {}", other.value.kind());
            diagnostics
                .error(source, other.value.span.clone(), format!("`{key}` must be a mapping"))
                .label(label);
            &[]
        }
        None => &[],
    }
}

/// Returns the text after a byte order mark.
fn without_bom(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_recognized_by_their_files() {
        let found = |files: &[&str]| Tool::detect(&|file| files.contains(&file));
        assert_eq!(found(&["ralph.yml", "PROMPT.md"]), [(Tool::Orchestrator, "ralph.yml")]);
        assert_eq!(found(&[".ralphrc", ".ralph/PROMPT.md", "PROMPT.md"]), [(Tool::ClaudeCode, ".ralphrc")]);
        assert_eq!(found(&["PROMPT.md"]), [(Tool::Orchestrator, "PROMPT.md")]);
        assert_eq!(found(&["prd.json", "WORKFLOW.md"]).len(), 2);
        assert_eq!(found(&["README.md"]), []);
        assert_eq!(Tool::of_file("prd.json"), Some(Tool::Snarktank));
        assert_eq!(Tool::of_file("fix_plan.md"), Some(Tool::ClaudeCode));
        assert_eq!(Tool::of_file("notes.md"), None);
    }
}
