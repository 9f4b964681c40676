//! ralphify: its `RALPH.md` runs unchanged. A converted file spells out the defaults that differ.

use super::draft::scalar;
use super::{Draft, Import, Outcome, Tool, get, required, yaml_map};
use crate::diagnostic::Diagnostics;
use crate::document::Span;
use crate::frontmatter::{self, Shape};
use crate::import::draft::{Values, from};

/// The keys of ralphify's frontmatter.
const KEYS: [&str; 4] = ["agent", "commands", "args", "credit"];

pub fn import(import: &Import<'_>, diagnostics: &mut Diagnostics) -> Outcome {
    let Some(file) = required(import, import.file, diagnostics)? else { return Ok(None) };
    let source = file.source();
    let split = frontmatter::split(&file.text);
    if split.shape != Shape::Fenced {
        diagnostics
            .error(source, 0..0, "the file has no frontmatter")
            .help("ralphify's RALPH.md starts with the lines `---`, `agent: …`, `---`");
        return Ok(None);
    }
    let Some(entries) = yaml_map(source, split.yaml, split.offset, diagnostics) else { return Ok(None) };
    let mut draft = Draft::new(Tool::Ralphify);
    draft.read(&file);
    let mut values = Values { source, diagnostics };
    if let Some(entry) = get(&entries, "agent") {
        let agent = values.text("agent", entry);
        draft.set("agent", scalar(&agent.unwrap_or_default()), from(source, &entry.key_span, "agent"));
    }
    for (key, path) in [("commands", "commands"), ("args", "args")] {
        if let Some(entry) = get(&entries, key) {
            let end = entries.iter().map(|e| e.key_span.start).filter(|at| *at > entry.key_span.start).min();
            let span = entry.key_span.end..end.unwrap_or(split.offset + split.yaml.len());
            draft.set(path, written(&file.text, span), from(source, &entry.key_span, key));
        }
    }
    let credit = match get(&entries, "credit") {
        Some(entry) => {
            values.flag("credit", entry).map(|flag| (flag, from(source, &entry.key_span, "credit")))
        }
        None => Some((true, "credit: not set, so its default".to_owned())),
    };
    if let Some((flag, at)) = credit {
        draft.set("credit", flag.to_string(), at);
    }
    draft.leave_rest(source, "", &entries, &KEYS, &[]);
    let prompt = draft.prompt(&file, split.rest, &[]);
    if prompt.is_empty() {
        let end = file.text.trim_end().len();
        diagnostics.error(source, end..end, "the prompt is empty");
        return Ok(None);
    }
    Ok(Some(draft.loop_file(&prompt)))
}

/// Returns a value as it is written in the file, without the comments after it.
fn written(text: &str, span: Span) -> String {
    let value = text[span].trim_start_matches(':').replace("\r\n", "\n");
    let kept: Vec<&str> = value.lines().map(str::trim_end).collect();
    let end = kept.iter().rposition(|line| !line.is_empty() && !line.trim_start().starts_with('#'));
    let lines = &kept[..end.map_or(0, |end| end + 1)];
    lines.join("\n").trim_start_matches(' ').to_owned()
}
