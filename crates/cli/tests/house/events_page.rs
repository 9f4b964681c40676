//! Generates docs/reference/events.md from the doc comments of the event types.
//!
//! The introduction of the page and the examples are written by hand. The generator keeps them and replaces the
//! description and the table of each event.

use crate::documents::assert_generated;
use crate::{read, root};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The files that declare the types of the record.
const SOURCES: [&str; 16] = [
    "record/event.rs",
    "record/event/payload.rs",
    "record/event/kinds.rs",
    "record/day.rs",
    "record/notification.rs",
    "record/prices.rs",
    "record/windows.rs",
    "run/caller.rs",
    "run/recovery.rs",
    "settings.rs",
    "settings/idle.rs",
    "watch/fact.rs",
    "watch/evidence.rs",
    "watch/mod.rs",
    "watch/limits/trial.rs",
    "watch/sign/limit.rs",
];

/// A field of an event, as declared.
#[derive(Clone, Debug)]
struct Field {
    name: String,
    kind: String,
    doc: String,
    optional: bool,
    flatten: bool,
}

/// A variant of an enum.
#[derive(Clone, Debug)]
struct Variant {
    word: String,
    doc: String,
    fields: Vec<Field>,
    /// The type of a variant with one unnamed field.
    payload: Option<String>,
}

/// A declared type.
#[derive(Clone, Debug)]
enum Item {
    Struct(Vec<Field>),
    Enum(Vec<Variant>),
}

type Items = BTreeMap<String, Item>;

/// Converts `IterationStarted` to `iteration_started`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// The doc comment and the attributes above a declaration.
#[derive(Default)]
struct Above {
    doc: String,
    attributes: String,
}

impl Above {
    fn renamed(&self) -> Option<String> {
        let (_, rest) = self.attributes.split_once("rename = \"")?;
        rest.split_once('"').map(|(name, _)| name.to_owned())
    }

    fn field(self, name: &str, kind: &str) -> Field {
        Field {
            name: self.renamed().unwrap_or_else(|| name.to_owned()),
            // These hashes are hexadecimal text.
            kind: if self.attributes.contains("hex64") { "String".to_owned() } else { kind.to_owned() },
            optional: self.attributes.contains("skip_serializing_if"),
            flatten: self.attributes.contains("flatten"),
            doc: self.doc,
        }
    }
}

/// Reads the declarations of a source file, which rustfmt has formatted.
struct Parser<'a> {
    lines: std::iter::Peekable<std::str::Lines<'a>>,
    above: Above,
}

impl Parser<'_> {
    /// Takes comments and attributes, and returns the next line of a declaration.
    fn next(&mut self) -> Option<String> {
        loop {
            let line = self.lines.next()?.trim().to_owned();
            if let Some(doc) = line.strip_prefix("///") {
                let gap = if self.above.doc.is_empty() { "" } else { " " };
                let _ = write!(self.above.doc, "{gap}{}", doc.trim());
            } else if line.starts_with("#[") {
                self.above.attributes.push_str(&line);
                let mut depth = brackets(&line);
                while depth > 0 {
                    let more = self.lines.next()?;
                    depth += brackets(more);
                    self.above.attributes.push_str(more.trim());
                }
            } else if !line.is_empty() && !line.starts_with("//") {
                return Some(line);
            }
        }
    }

    fn items(mut self, items: &mut Items) {
        while let Some(line) = self.next() {
            let above = std::mem::take(&mut self.above);
            let name = |rest: &str| rest.trim_end_matches(" {").to_owned();
            if let Some(rest) = line.strip_prefix("pub struct ").filter(|rest| rest.ends_with(" {")) {
                let fields = self.fields();
                items.insert(name(rest), Item::Struct(fields));
            } else if let Some(rest) = line.strip_prefix("pub enum ").filter(|rest| rest.ends_with(" {")) {
                let lower = above.attributes.contains("rename_all = \"lowercase\"");
                let variants = self.variants(lower);
                items.insert(name(rest), Item::Enum(variants));
            } else if line == "words! {" {
                self.words(items);
            }
            self.above = Above::default();
        }
    }

    fn fields(&mut self) -> Vec<Field> {
        let mut fields = Vec::new();
        while let Some(line) = self.next().filter(|line| !line.starts_with('}')) {
            let above = std::mem::take(&mut self.above);
            let line = line.strip_prefix("pub ").unwrap_or(&line);
            if let Some((name, kind)) = line.trim_end_matches(',').split_once(": ") {
                fields.push(above.field(name, kind));
            }
        }
        fields
    }

    fn variants(&mut self, lower: bool) -> Vec<Variant> {
        let mut variants = Vec::new();
        while let Some(line) = self.next().filter(|line| !line.starts_with('}')) {
            let above = std::mem::take(&mut self.above);
            let name: String = line.chars().take_while(char::is_ascii_alphanumeric).collect();
            let fields = if line.ends_with('{') { self.fields() } else { Vec::new() };
            let payload = line.split_once('(').map(|(_, rest)| rest.trim_end_matches("),"));
            let payload = payload.map(|kind| inner(kind, "Box").unwrap_or(kind).to_owned());
            let word = if lower { name.to_ascii_lowercase() } else { snake(&name) };
            let word = above.renamed().unwrap_or(word);
            // `#[serde(other)]` represents events of later versions.
            if !above.attributes.contains("serde(other)") {
                variants.push(Variant { word, doc: above.doc, fields, payload });
            }
        }
        variants
    }

    /// Reads the enum of a `words!` macro, whose variants may share lines.
    fn words(&mut self, items: &mut Items) {
        let Some(line) = self.next() else { return };
        self.above = Above::default();
        let (name, rest) = line.split_once(" {").unwrap_or((&line, ""));
        let mut variants = Vec::new();
        let mut text = rest.to_owned();
        loop {
            let doc = std::mem::take(&mut self.above).doc;
            let words = text.split('"').skip(1).step_by(2);
            variants.extend(words.map(|word| Variant {
                word: word.to_owned(),
                doc: doc.clone(),
                fields: Vec::new(),
                payload: None,
            }));
            if text.ends_with('}') {
                break;
            }
            let Some(line) = self.next() else { break };
            text = line;
        }
        items.insert(name.to_owned(), Item::Enum(variants));
    }
}

/// Returns by how much a line opens more brackets than it closes.
fn brackets(line: &str) -> isize {
    line.chars().map(|c| isize::from(c == '[') - isize::from(c == ']')).sum()
}

/// Returns the content of `Outer<…>`.
fn inner<'a>(kind: &'a str, outer: &str) -> Option<&'a str> {
    kind.strip_prefix(outer)?.strip_prefix('<')?.strip_suffix('>')
}

/// Returns a Rust type in words.
fn in_words(items: &Items, kind: &str, optional: bool) -> String {
    if let Some(kind) = inner(kind, "Option") {
        let or_null = if optional { "" } else { " or null" };
        return format!("{}{or_null}", in_words(items, kind, optional));
    }
    if let Some(kind) = inner(kind, "Vec") {
        return match kind {
            "(String, String)" => "list of pairs".to_owned(),
            _ => format!("list of {}s", in_words(items, kind, optional)),
        };
    }
    match kind {
        "String" | "NodeName" | "RunId" => "text",
        "u8" | "u16" | "u32" | "u64" | "i32" | "f64" | "Iteration" | "Awake" | "Boot" => "number",
        "Dur" => "seconds",
        "Wall" => "time",
        "bool" => "bool",
        other => match items.get(other) {
            Some(Item::Enum(_)) => "word",
            Some(Item::Struct(_)) | None => "object",
        },
    }
    .to_owned()
}

/// Returns the words that an enum may have in the record.
fn values(items: &Items, kind: &str) -> String {
    let kind = inner(kind, "Option").unwrap_or(kind);
    let Some(Item::Enum(variants)) = items.get(kind) else { return String::new() };
    let explained = |v: &Variant| match v.doc.as_str() {
        "" => format!("`{}`", v.word),
        doc => format!("`{}` ({})", v.word, doc.trim_end_matches('.')),
    };
    format!(" One of {}.", variants.iter().map(explained).collect::<Vec<_>>().join(", "))
}

/// Replaces the paths of pages in a doc comment by links.
fn linked(doc: &str) -> String {
    let mut out = String::new();
    for word in doc.split_inclusive(' ') {
        let from = word.find("docs/").filter(|_| word.contains(".md"));
        match from.and_then(|from| Some((from, word.find(".md")?))) {
            Some((from, to)) => {
                let path = &word[from + "docs/".len()..to];
                let name = path.rsplit('/').next().unwrap_or(path);
                let target = path.strip_prefix("reference/").map_or(format!("../{path}"), str::to_owned);
                let _ = write!(out, "{}[{name}]({target}.md){}", &word[..from], &word[to + ".md".len()..]);
            }
            None => out.push_str(word),
        }
    }
    out
}

/// Writes the rows of fields. The fields of a nested object follow with its name in front.
fn rows(items: &Items, fields: &[Field], prefix: &str, page: &mut String) {
    for field in fields {
        if field.flatten {
            match items.get(&field.kind) {
                Some(Item::Struct(fields)) => rows(items, fields, prefix, page),
                Some(Item::Enum(variants)) => tagged(items, &field.name, &field.doc, variants, prefix, page),
                None => panic!("the type {} of a flattened field is not in the sources", field.kind),
            }
            continue;
        }
        let optional = if field.optional { ", optional" } else { "" };
        let kind = in_words(items, &field.kind, field.optional);
        let doc = linked(&format!("{}{}", field.doc, values(items, &field.kind))).replace('|', "\\|");
        let _ = writeln!(page, "| `{prefix}{}` | {kind}{optional} | {doc} |", field.name);
        let (kind, list) = match inner(&field.kind, "Vec") {
            Some(kind) => (kind, "[]"),
            None => (inner(&field.kind, "Option").unwrap_or(&field.kind), ""),
        };
        if let Some(Item::Struct(fields)) = items.get(kind) {
            rows(items, fields, &format!("{prefix}{}{list}.", field.name), page);
        }
    }
}

/// Writes the rows of a flattened enum: its tag, then the fields of each variant.
fn tagged(items: &Items, tag: &str, doc: &str, variants: &[Variant], prefix: &str, page: &mut String) {
    let explained = variants.iter().map(|v| format!("`{}` ({})", v.word, v.doc.trim_end_matches('.')));
    let explained = explained.collect::<Vec<_>>().join(", ");
    let _ = writeln!(page, "| `{prefix}{tag}` | word | {doc} One of {explained}. |");
    for variant in variants {
        let payload = variant.payload.as_ref().map(|kind| match items.get(kind) {
            Some(Item::Struct(fields)) => fields.clone(),
            Some(Item::Enum(_)) | None => panic!("the type {kind} is not in the sources"),
        });
        let mut fields = payload.unwrap_or_else(|| variant.fields.clone());
        for field in &mut fields {
            field.doc = format!("With `{}`: {}", variant.word, field.doc);
        }
        rows(items, &fields, prefix, page);
    }
}

fn declared() -> Items {
    let mut items = Items::new();
    for source in SOURCES {
        let text = read(&root().join("crates/core/src").join(source));
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        Parser { lines: text.lines().peekable(), above: Above::default() }.items(&mut items);
    }
    // The settings have their own page.
    items.remove("Plan");
    items
}

/// Returns the parts of the current page that are written by hand: the introduction, and the text after the table of
/// each event.
fn written() -> (String, BTreeMap<String, String>) {
    let text = read(&root().join("docs/reference/events.md"));
    let mut sections = text.split("\n## `");
    let introduction = sections.next().unwrap_or_default().trim_end().to_owned();
    let after = sections.filter_map(|section| {
        let (name, body) = section.split_once('`')?;
        let table = body.lines().position(|line| line.starts_with("| "));
        let rest = body.lines().skip(table.unwrap_or(0));
        let rest: Vec<&str> = rest.skip_while(|line| line.starts_with('|')).collect();
        let rest = if table.is_some() { rest.join("\n") } else { example(body) };
        Some((name.to_owned(), rest.trim().to_owned()))
    });
    (introduction, after.collect())
}

/// Returns a section without a table from its example on.
fn example(body: &str) -> String {
    body.split_once("```json").map(|(_, rest)| format!("```json{rest}")).unwrap_or_default()
}

#[test]
fn the_event_reference_is_generated_from_the_code() {
    let items = declared();
    let Some(Item::Enum(events)) = items.get("Event") else { panic!("the enum is not in the sources") };
    assert!(events.len() > 40, "{} events are too few: the scan is broken", events.len());
    let (introduction, mut after) = written();
    let mut page = introduction;
    for event in events {
        let payload = event.payload.as_ref().map(|kind| match items.get(kind) {
            Some(Item::Struct(fields)) => fields.clone(),
            Some(Item::Enum(_)) | None => panic!("the type {kind} is not in the sources"),
        });
        let fields = payload.unwrap_or_else(|| event.fields.clone());
        let _ = write!(page, "\n\n## `{}`\n\n{}\n", event.word, linked(&event.doc));
        assert!(!event.doc.is_empty(), "{} has no doc comment", event.word);
        if !fields.is_empty() {
            page.push_str("\n| field | type | |\n|---|---|---|\n");
            rows(&items, &fields, "", &mut page);
        }
        let after = after.remove(&event.word).unwrap_or_default();
        page = page.trim_end().to_owned();
        if !after.is_empty() {
            let _ = write!(page, "\n\n{after}");
        }
    }
    page.push('\n');
    assert_generated("reference/events.md", &page);
}
