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

#[test]
fn the_key_table_is_generated_from_the_code() {
    let table = dogwatch_config::keys::markdown_table();
    let text = read(&root().join("docs/loop-file.md"));
    let section = text.split("\n## Keys\n").nth(1).expect("the page has a section for the keys");
    let rows = section.lines().skip_while(|line| !line.starts_with('|'));
    let documented: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
    assert_eq!(documented.join("\n"), table.trim_end(), "copy this table to docs/loop-file.md:\n{table}");
}

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

/// Returns the variants of `enum Event`, read from its source.
fn events() -> BTreeSet<String> {
    let source = read(&root().join("crates/core/src/record/event.rs"));
    let body = source.split("pub enum Event {").nth(1).expect("the enum is there");
    let body = body.split("\n}").next().expect("it ends");
    let variants = body
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(char::is_uppercase));
    let names = variants.map(|line| snake(line.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("")));
    names.filter(|name| name != "unknown").collect()
}

#[test]
fn every_event_is_documented() {
    let events = events();
    assert!(events.contains("run_started") && events.contains("iteration_idle"), "{events:?}");
    let text = read(&root().join("docs/events.md"));
    let documented: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("## `")?.strip_suffix('`'))
        .map(str::to_owned)
        .collect();
    assert_eq!(documented, events);
}

/// Returns the fields that docs/events.md documents for an event.
fn fields(event: &str) -> BTreeSet<String> {
    let text = read(&root().join("docs/events.md"));
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

/// Checks the events that the examples printed against docs/events.md.
pub fn assert_documented(events: &[serde_json::Value]) {
    const ALL: [&str; 7] = ["v", "seq", "at", "awake_ms", "boot_ms", "event", "prev"];
    let mut found = BTreeSet::new();
    for event in events {
        let name = event["event"].as_str().expect("every line has a name");
        let known = fields(name);
        let given = event.as_object().expect("an object").keys().filter(|key| !ALL.contains(&key.as_str()));
        found.extend(given.filter(|key| !known.contains(*key)).map(|key| format!("{name}.{key}")));
    }
    assert_none("fields that docs/events.md misses", &found.into_iter().collect::<Vec<_>>());
}

#[test]
fn every_documented_limit_matches_the_code() {
    let rows = rows("architecture.md");
    let limits: Vec<_> = rows.iter().filter(|row| row.len() == 4 && row[3].starts_with("`crates/")).collect();
    assert!(limits.len() > 30, "{} limits are too few", limits.len());
    let missing = limits.iter().filter(|row| {
        let (name, place) = (quoted(&row[0]).unwrap_or_default(), quoted(&row[3]).unwrap_or_default());
        !std::fs::read_to_string(root().join(place))
            .is_ok_and(|text| text.contains(&format!("const {name}:")))
    });
    assert_none(
        "limits missing from the code",
        &missing.map(|row| format!("{} in {}", row[0], row[3])).collect::<Vec<_>>(),
    );
}

#[test]
fn every_pain_names_existing_tests() {
    // Macros generate some of the tests, so search for the name instead of `fn name`.
    let sources: String = crate::sources("crates/").iter().map(|name| read(&root().join(name))).collect();
    let pains: Vec<Vec<String>> =
        rows("pains.md").into_iter().filter(|row| row[0].trim().parse::<u32>().is_ok()).collect();
    assert_eq!(pains.len(), 25);
    let missing = pains.iter().flat_map(|row| {
        let named: Vec<&str> = row[3].split(", ").filter_map(quoted).collect();
        let gone = named.iter().filter(|name| !sources.contains(*name)).map(ToString::to_string);
        let none = named.is_empty().then(|| format!("{}: no test", row[0]));
        gone.chain(none).collect::<Vec<_>>()
    });
    assert_none("tests of docs/pains.md that are not there", &missing.collect::<Vec<_>>());
}
