//! snarktank's ralph: `prd.json` with user stories. Each open story becomes a node, in order of priority.

use super::draft::{Values, from, literal, scalar};
use super::{Draft, Import, Outcome, Tool, get, json_map, required};
use crate::diagnostic::Diagnostics;
use crate::document::{Entry, Value};
use crate::limits::MAX_NODES;
use std::collections::BTreeSet;

/// The file to which agents append what later ones should know.
const PROGRESS: &str = "progress.txt";
/// The phrase with which an agent ends that tool's loop.
const PHRASE: &str = "<promise>COMPLETE</promise>";

const TOP: [(&str, &str); 3] = [
    ("project", "it is in the prompt of every node"),
    ("description", "it is in the prompt of every node"),
    ("branchName", "dogwatch works on the branch that is checked out; run `git switch -c` first"),
];

/// A user story.
struct Story {
    id: String,
    prompt: String,
    priority: i128,
    passes: bool,
}

pub fn import(import: &Import<'_>, diagnostics: &mut Diagnostics) -> Outcome {
    let Some(file) = required(import, import.file, diagnostics)? else { return Ok(None) };
    let source = file.source();
    let Some(entries) = json_map(source, diagnostics) else { return Ok(None) };
    let Some(list) = get(&entries, "userStories") else {
        diagnostics
            .error(source, 0..0, "this is not a prd.json of snarktank's ralph: it has no `userStories`")
            .help("pass the file of another tool to `--from`");
        return Ok(None);
    };
    let mut draft = Draft::new(Tool::Snarktank);
    draft.read(&file);
    let mut values = Values { source, diagnostics };
    draft.set("agent", scalar(import.agent), "the tool takes the agent from its command line");
    draft.set("max_parallel", "1", "the tool works on one story at a time");
    checks(&entries, &mut values, &mut draft);
    let about = about(&entries, &mut values);
    let Some(mut stories) = stories(list, &about, &mut values) else { return Ok(None) };
    draft.leave_rest(
        source,
        "",
        &entries,
        &["userStories", "verificationCommands", "project", "description"],
        &TOP,
    );
    let done = stories.iter().filter(|story| story.passes).count();
    if done > 0 {
        let what = format!("{done} of {} stories", stories.len());
        draft.leave(source, &list.key_span, &what, "they have `passes: true`");
    }
    stories.retain(|story| !story.passes);
    if stories.is_empty() {
        diagnostics
            .error(source, list.key_span.clone(), "no story is open: all have `passes: true`")
            .help("set `passes` to false for the stories that still need work");
        return Ok(None);
    }
    draft.leave_file(
        source.name,
        "`passes` and `notes`",
        "dogwatch does not write to this file; checks decide what is done",
    );
    let why = "the tool's prompts handle prd.json themselves; put project rules into AGENTS.md or CLAUDE.md";
    draft.leave_file(source.name, "prompt.md and CLAUDE.md beside it", why);
    draft.leave_file(source.name, &format!("the phrase {PHRASE}"), "it does not end a run; checks do");
    // A stable sort: stories of one priority keep the order of the file.
    stories.sort_by_key(|story| story.priority);
    Ok(Some(draft.graph_file(&nodes(&stories))))
}

/// Maps the commands of newer files. They are the tool's own checks.
fn checks(entries: &[Entry], values: &mut Values<'_, '_>, draft: &mut Draft) {
    let Some(entry) = get(entries, "verificationCommands") else { return };
    let commands = match entry.value.map() {
        Some(fields) => {
            let fields = fields.iter().filter(|field| !field.value.is_null());
            fields.filter_map(|field| values.text(&field.key, field)).collect()
        }
        None => values.texts("verificationCommands", entry).unwrap_or_default(),
    };
    if !commands.is_empty() {
        let list: Vec<String> = commands.iter().map(|command| scalar(command)).collect();
        let at = from(values.source, &entry.key_span, "verificationCommands");
        draft.set("done_when", format!("[{}]", list.join(", ")), at);
    }
}

/// Returns the paragraph about the project that starts every prompt.
fn about(entries: &[Entry], values: &mut Values<'_, '_>) -> String {
    let mut text = |key: &str| get(entries, key).and_then(|entry| values.text(key, entry));
    match (text("project"), text("description")) {
        (Some(project), Some(description)) => format!("Project {project}: {description}\n\n"),
        (Some(project), None) => format!("Project {project}.\n\n"),
        (None, Some(description)) => format!("{description}\n\n"),
        (None, None) => String::new(),
    }
}

fn stories(list: &Entry, about: &str, values: &mut Values<'_, '_>) -> Option<Vec<Story>> {
    let source = values.source;
    let Value::List(items) = &list.value.value else {
        let label = format!("this is {}", list.value.kind());
        let span = list.value.span.clone();
        values.diagnostics.error(source, span, "`userStories` must be a list").label(label);
        return None;
    };
    if items.is_empty() || items.len() > MAX_NODES {
        return values
            .diagnostics
            .error(
                source,
                list.value.span.clone(),
                format!("`userStories` has {} stories; 1 to {MAX_NODES} are allowed", items.len()),
            )
            .rejected();
    }
    let mut seen = BTreeSet::new();
    let mut stories = Vec::new();
    for item in items {
        let Value::Map(fields) = &item.value else {
            let label = format!("this is {}", item.kind());
            values.diagnostics.error(source, item.span.clone(), "each story must be a mapping").label(label);
            continue;
        };
        let Some(id) = get(fields, "id") else {
            values.diagnostics.error(source, item.span.clone(), "this story has no `id`");
            continue;
        };
        let Some(name) = values.text("id", id) else { continue };
        if !seen.insert(name.clone()) {
            values.diagnostics.error(
                source,
                id.value.span.clone(),
                format!("two stories have the id `{name}`"),
            );
        }
        stories.extend(story(name, fields, about, values));
    }
    (!values.diagnostics.has_errors()).then_some(stories)
}

fn story(id: String, fields: &[Entry], about: &str, values: &mut Values<'_, '_>) -> Option<Story> {
    let title = get(fields, "title").and_then(|entry| values.text("title", entry));
    let description = get(fields, "description").and_then(|entry| values.text("description", entry));
    let criteria =
        get(fields, "acceptanceCriteria").and_then(|entry| values.texts("acceptanceCriteria", entry));
    let passes = get(fields, "passes").map(|entry| values.flag("passes", entry));
    let notes = get(fields, "notes").and_then(|entry| entry.value.text()).unwrap_or_default().trim();
    let priority = get(fields, "priority").and_then(|entry| entry.value.int()).unwrap_or(i128::MAX);
    let mut prompt = format!("{about}Implement one user story and commit it. Story {id}");
    prompt.push_str(&title.map_or_else(|| ".".to_owned(), |title| format!(": {}", title.trim())));
    if let Some(description) = description {
        prompt.push_str(&format!("\n\n{}", description.trim()));
    }
    if let Some(criteria) = criteria.filter(|criteria| !criteria.is_empty()) {
        prompt.push_str("\n\nIt is done when:\n");
        criteria.iter().for_each(|one| prompt.push_str(&format!("- {}\n", one.trim())));
    }
    if !notes.is_empty() {
        prompt.push_str(&format!("\nNotes: {notes}\n"));
    }
    prompt.push_str(&format!(
        "\nRead {PROGRESS} first if it exists, and append what a later session should know.",
    ));
    Some(Story { id, prompt, priority, passes: passes.flatten().unwrap_or(false) })
}

/// Returns the nodes as YAML. Each one follows the one before it, because the tool's order is a plan.
fn nodes(stories: &[Story]) -> String {
    let mut out = String::new();
    let mut before: Option<&Story> = None;
    for story in stories {
        out.push_str(&format!("  - id: {}\n", scalar(&story.id)));
        if let Some(before) = before {
            out.push_str(&format!("    depends_on: [{}]\n", scalar(&before.id)));
        }
        out.push_str(&format!("    prompt: {}\n", literal(&story.prompt, 6)));
        before = Some(story);
    }
    out
}
