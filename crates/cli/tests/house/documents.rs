//! Checks that the reference documents agree with the code.

use crate::{assert_none, read, root};
use std::collections::BTreeSet;

/// Returns the cells of every table row of a document.
fn rows(document: &str) -> Vec<Vec<String>> {
    let text = read(&root().join("docs").join(document));
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    text.lines().filter(|line| line.starts_with("| ")).map(cells).collect()
}

fn quoted(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`')
}

/// Compares a generated page with the file, or writes it if `DOGWATCH_BLESS` is set.
pub fn assert_generated(page: &str, text: &str) {
    let path = root().join("docs").join(page);
    if std::env::var_os("DOGWATCH_BLESS").is_some() {
        std::fs::write(&path, text).expect("the page can be written");
    }
    let hint = "generate it again with DOGWATCH_BLESS=1 cargo nextest run -p dogwatch --test house";
    assert!(std::fs::read_to_string(&path).is_ok_and(|found| found == text), "docs/{page} is stale: {hint}");
}

#[test]
fn the_key_reference_is_generated_from_the_code() {
    let table = dogwatch_config::keys::markdown_table();
    let text = read(&root().join("docs/reference/keys.md"));
    let (before, rest) = text.split_once("| key | type |").expect("the page has a table of keys");
    let (_, after) = rest.split_once("\n\n").expect("the table ends");
    assert_generated("reference/keys.md", &format!("{before}{}\n\n{after}", table.trim_end()));
}

#[test]
fn the_command_line_reference_is_generated_from_the_program() {
    let printed = std::process::Command::new(env!("CARGO_BIN_EXE_dogwatch"))
        .args(["man", "--markdown"])
        .output()
        .expect("the program starts");
    assert!(printed.status.success());
    assert_generated("reference/cli.md", &String::from_utf8(printed.stdout).expect("the page is UTF-8"));
}

/// A constant with its value and the first sentence of its doc comment.
struct Limit {
    name: String,
    value: String,
    doc: String,
}

/// The documented constants of a source file that hold a number or a length of time.
fn limits(source: &str) -> Vec<Limit> {
    const TYPES: [&str; 9] = ["Dur", "Duration", "usize", "u64", "u32", "u16", "i64", "u8", "Limit"];
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut doc = String::new();
    let mut lines = source.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("///") {
            doc = format!("{doc} {}", text.trim());
            continue;
        }
        let declared = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub(super) "));
        let declared = declared.or(line.strip_prefix("pub ")).unwrap_or(line).strip_prefix("const ");
        if let Some((name, rest)) = declared.and_then(|rest| rest.split_once(": ")) {
            let mut rest = rest.to_owned();
            while !rest.ends_with(';') {
                let Some(more) = lines.next() else { break };
                rest = format!("{rest} {more}");
            }
            let (kind, value) = rest.split_once(" = ").unwrap_or((&rest, ""));
            if TYPES.contains(&kind) && !doc.is_empty() {
                let (name, value) = (name.to_owned(), value.trim_end_matches(';').to_owned());
                found.push(Limit { name, value, doc: doc.trim().to_owned() });
            }
        }
        if !line.starts_with("#[") {
            doc.clear();
        }
    }
    found
}

#[test]
fn the_limits_reference_is_generated_from_the_constants() {
    let mut page = String::from(
        "# Limits\n\nThis page is generated from the constants in the code. Limits that you can set are in the [key reference](keys.md).\n",
    );
    let mut count = 0;
    for krate in ["core", "config", "agents", "host", "server", "web", "mcp", "cli"] {
        page.push_str(&format!("\n## {krate}\n\n| constant | value | meaning | file |\n|---|---|---|---|\n"));
        let below = format!("crates/{krate}/src/");
        let files: Vec<String> =
            crate::sources(&below).into_iter().filter(|name| !name.contains("/tests")).collect();
        for file in files {
            for limit in limits(&read(&root().join(&file))) {
                let (value, doc) = (limit.value.replace('|', "\\|"), limit.doc.replace('|', "\\|"));
                let file = file.trim_start_matches(&below);
                page.push_str(&format!("| `{}` | `{value}` | {doc} | `{file}` |\n", limit.name));
                count += 1;
            }
        }
    }
    assert!(count > 200, "{count} constants are too few: the scan is broken");
    assert_generated("reference/limits.md", &page);
}

/// Returns the fields that docs/reference/events.md documents for an event.
fn fields(event: &str) -> BTreeSet<String> {
    let text = read(&root().join("docs/reference/events.md"));
    let section = text
        .split("\n## ")
        .find(|part| part.starts_with(&format!("`{event}`")))
        .unwrap_or_default()
        .to_owned();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| "));
    let names =
        cells.filter_map(|line| line.split(" | ").next()).flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

/// Checks the events that the examples printed against docs/reference/events.md.
pub fn assert_documented(events: &[serde_json::Value]) {
    const ALL: [&str; 7] = ["v", "seq", "at", "awake_ms", "boot_ms", "event", "prev"];
    let mut found = BTreeSet::new();
    for event in events {
        let name = event["event"].as_str().expect("every line has a name");
        let known = fields(name);
        let given = event.as_object().expect("an object").keys().filter(|key| !ALL.contains(&key.as_str()));
        found.extend(given.filter(|key| !known.contains(*key)).map(|key| format!("{name}.{key}")));
    }
    assert_none("fields that docs/reference/events.md misses", &found.into_iter().collect::<Vec<_>>());
}

#[test]
fn the_glossary_is_sorted_and_names_each_word_once() {
    let words: Vec<String> = rows("internals/glossary.md")
        .iter()
        .filter_map(|row| row[0].strip_prefix("**")?.split("**").next().map(str::to_owned))
        .collect();
    assert!((50..=75).contains(&words.len()), "{} entries", words.len());
    let sorted: BTreeSet<&String> = words.iter().collect();
    assert!(words.iter().eq(sorted), "the glossary is not sorted: {words:?}");
}

#[test]
fn every_pain_names_existing_tests() {
    let pains: Vec<Vec<String>> =
        rows("internals/pains.md").into_iter().filter(|row| row[0].trim().parse::<u32>().is_ok()).collect();
    assert_eq!(pains.len(), 25);
    assert_tests_exist("docs/internals/pains.md", &pains, 3);
}

#[test]
fn every_requirement_of_security_names_existing_tests() {
    let rows = rows("internals/requirements/security.md");
    let numbered: Vec<_> = rows.into_iter().filter(|row| row[0].trim().parse::<u32>().is_ok()).collect();
    assert!(numbered.len() >= 34, "{} rows", numbered.len());
    assert_tests_exist("docs/internals/requirements/security.md", &numbered, 2);
}

#[test]
fn every_fault_names_existing_tests() {
    let faults: Vec<_> = rows("internals/faults.md").into_iter().filter(|row| row[0] != "fault").collect();
    assert!(faults.len() >= 20, "{} faults", faults.len());
    assert_tests_exist("docs/internals/faults.md", &faults, 2);
}

/// Fails if a row of a page names no test in this column, or one that does not exist.
fn assert_tests_exist(page: &str, rows: &[Vec<String>], column: usize) {
    // Macros generate some of the tests, so search for the name instead of `fn name`.
    let sources: String = crate::sources("crates/").iter().map(|name| read(&root().join(name))).collect();
    let missing = rows.iter().flat_map(|row| {
        let named: Vec<&str> = row[column].split(", ").filter_map(quoted).collect();
        let gone = named.iter().filter(|name| !sources.contains(*name)).map(ToString::to_string);
        let none = named.is_empty().then(|| format!("{}: no test", row[0]));
        gone.chain(none).collect::<Vec<_>>()
    });
    assert_none(&format!("tests of {page} that are not there"), &missing.collect::<Vec<_>>());
}
