//! Checks the ids and dependencies of a graph: ids are valid and unique, dependencies exist, and there is no cycle.
//!
//! The checks take time linear in the number of nodes and dependencies.

use super::node::NodeDraft;
use crate::diagnostic::{Diagnostics, Severity, Source};
use crate::nearest::nearest;
use dogwatch_core::record::ids::NodeName;
use std::collections::BTreeMap;

/// The number of nodes shown from the start and from the end of a long cycle.
const SHOWN_FIRST: usize = 12;
const SHOWN_LAST: usize = 3;

/// Checks all ids and dependencies, and returns the dependencies of every node as indices.
pub fn check(drafts: &[NodeDraft<'_>], source: Source<'_>, diagnostics: &mut Diagnostics) -> Vec<Vec<usize>> {
    let ids = ids(drafts, source, diagnostics);
    let links: Vec<Vec<usize>> =
        (0..drafts.len()).map(|at| resolve(drafts, at, &ids, source, diagnostics)).collect();
    for cycle in cycles(&links) {
        report(drafts, &links, &cycle, source, diagnostics);
    }
    links
}

fn ids<'d>(
    drafts: &'d [NodeDraft<'_>],
    source: Source<'_>,
    diagnostics: &mut Diagnostics,
) -> BTreeMap<&'d str, usize> {
    let mut ids = BTreeMap::new();
    let mut files: BTreeMap<String, usize> = BTreeMap::new();
    for (at, draft) in drafts.iter().enumerate() {
        if let Some(why) = invalid_id_reason(&draft.id) {
            let message = format!("invalid node id `{}`: {why}", draft.id);
            diagnostics
                .error(source, draft.at.clone(), message)
                .help("use letters, digits, `-`, `_` and `.`; the id becomes a file name");
        }
        if let Some(first) = ids.insert(draft.id.as_str(), at) {
            ids.insert(draft.id.as_str(), first);
            if diagnostics.has_room(Severity::Error) {
                let line = crate::diagnostic::Place::of(source.text, drafts[first].at.clone()).line;
                diagnostics
                    .error(source, draft.at.clone(), format!("duplicate node id `{}`", draft.id))
                    .help(format!("first used on line {line}"));
            }
            continue;
        }
        check_file_names(drafts, at, &mut files, source, diagnostics);
    }
    ids
}

/// Checks that no two nodes share a file. Each node has a directory and a log named after its id, and file
/// systems may not distinguish `a` from `A`.
fn check_file_names(
    drafts: &[NodeDraft<'_>],
    at: usize,
    files: &mut BTreeMap<String, usize>,
    source: Source<'_>,
    diagnostics: &mut Diagnostics,
) {
    let name = drafts[at].id.to_lowercase();
    for file in [format!("{name}.log"), name] {
        let Some(other) = files.insert(file, at).filter(|other| *other != at) else { continue };
        diagnostics
            .error(
                source,
                drafts[at].at.clone(),
                format!("`{}` and `{}` would use the same file", drafts[other].id, drafts[at].id),
            )
            .help("change one of the ids");
    }
}

/// Returns why an id is invalid. A valid id is used unchanged as the node's name.
fn invalid_id_reason(id: &str) -> Option<&'static str> {
    if id.len() > NodeName::MAX_BYTES {
        return Some("longer than 100 bytes");
    }
    if id.contains(['/', '\\']) {
        return Some("contains a path separator");
    }
    if id.chars().any(char::is_control) {
        return Some("contains a control character");
    }
    if id.starts_with(['.', '-']) {
        return Some("starts with a dot or a dash");
    }
    if NodeName::is_taken(id) {
        return Some("reserved for a file of the record");
    }
    // `NodeName` would change the id, for example by trimming whitespace.
    (NodeName::new(id).as_str() != id).then_some("must start and end with a letter or digit")
}

fn resolve(
    drafts: &[NodeDraft<'_>],
    at: usize,
    ids: &BTreeMap<&str, usize>,
    source: Source<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<usize> {
    let draft = &drafts[at];
    let mut links = Vec::with_capacity(draft.depends_on.len());
    for (id, span) in &draft.depends_on {
        match ids.get(id.as_str()) {
            Some(on) if *on == at || drafts[*on].id == draft.id => {
                diagnostics.error(source, span.clone(), format!("`{id}` depends on itself"));
            }
            Some(on) => links.push(*on),
            None if diagnostics.has_room(Severity::Error) => {
                let near = nearest(id, ids.keys().copied());
                let diagnostic = diagnostics.error(
                    source,
                    span.clone(),
                    format!("`{}` depends on `{id}`, which does not exist", draft.id),
                );
                if let Some(near) = near {
                    diagnostic.help(format!("did you mean `{near}`?"));
                }
            }
            None => {
                diagnostics.error(source, span.clone(), "a dependency does not exist");
            }
        }
    }
    // Ignore duplicate dependencies.
    links.sort_unstable();
    links.dedup();
    links
}

/// Returns one cycle for every part of the graph that contains one. In a cycle each node depends on the next.
pub fn cycles(links: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut state = vec![State::New; links.len()];
    let mut found = Vec::new();
    for start in 0..links.len() {
        walk(links, start, &mut state, &mut found);
    }
    found
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Not visited yet.
    New,
    /// On the current path.
    Open,
    /// Visited, with all its dependencies.
    Done,
}

/// Searches depth-first from `start`. It does not recurse, because a chain can be as long as the graph.
fn walk(links: &[Vec<usize>], start: usize, state: &mut [State], found: &mut Vec<Vec<usize>>) {
    if state[start] != State::New {
        return;
    }
    state[start] = State::Open;
    let mut path = vec![(start, 0)];
    let mut reported = false;
    while let Some((at, next)) = path.last_mut() {
        let Some(on) = links[*at].get(*next).copied() else {
            state[*at] = State::Done;
            path.pop();
            continue;
        };
        *next += 1;
        match state[on] {
            State::Done => {}
            State::New => {
                state[on] = State::Open;
                path.push((on, 0));
            }
            // Report one cycle per search: further cycles usually share most of their nodes with it.
            State::Open if !reported => {
                let from = path.iter().position(|(node, _)| *node == on).unwrap_or(0);
                found.push(path[from..].iter().map(|(node, _)| *node).collect());
                reported = true;
            }
            State::Open => {}
        }
    }
}

/// Reports a cycle at the first dependency that is part of it.
fn report(
    drafts: &[NodeDraft<'_>],
    links: &[Vec<usize>],
    cycle: &[usize],
    source: Source<'_>,
    diagnostics: &mut Diagnostics,
) {
    debug_assert!(cycle.iter().enumerate().all(|(i, at)| links[*at].contains(&cycle[(i + 1) % cycle.len()])));
    // Start the cycle at the node that comes first in the file.
    let first = (0..cycle.len()).min_by_key(|i| cycle[*i]).unwrap_or(0);
    let rotated: Vec<usize> = cycle[first..].iter().chain(&cycle[..first]).copied().collect();
    let start = &drafts[rotated[0]];
    let next = rotated.get(1).map_or(start.id.as_str(), |at| drafts[*at].id.as_str());
    let span = start.depends_on.iter().find(|(id, _)| id == next).map_or(&start.at, |(_, span)| span);
    let names: Vec<&str> = rotated.iter().chain(rotated.first()).map(|at| drafts[*at].id.as_str()).collect();
    diagnostics
        .error(source, span.clone(), format!("dependency cycle: {}", abbreviate(&names)))
        .label(format!("`{}` depends on `{next}`", start.id))
        .help("remove one of these dependencies");
}

fn abbreviate(names: &[&str]) -> String {
    if names.len() <= SHOWN_FIRST + SHOWN_LAST + 1 {
        return names.join(" → ");
    }
    let left_out = names.len() - SHOWN_FIRST - SHOWN_LAST;
    let last = &names[names.len() - SHOWN_LAST..];
    format!("{} → … {left_out} more … → {}", names[..SHOWN_FIRST].join(" → "), last.join(" → "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cycle_is_reported_for_every_part_that_has_one() {
        assert_eq!(cycles(&[vec![], vec![0]]), Vec::<Vec<usize>>::new());
        assert_eq!(cycles(&[vec![1], vec![2], vec![0]]), [vec![0, 1, 2]]);
        // A valid root and two separate cycles.
        assert_eq!(cycles(&[vec![], vec![0, 2], vec![1], vec![4], vec![3]]), [vec![1, 2], vec![3, 4]]);
        // A node that depends on a cycle but is not part of it.
        assert_eq!(cycles(&[vec![1], vec![2], vec![1]]), [vec![1, 2]]);
    }

    #[test]
    fn a_long_chain_needs_no_deep_stack() {
        let mut links: Vec<Vec<usize>> = (0..200_000).map(|at| vec![at + 1]).collect();
        links.push(vec![]);
        assert!(cycles(&links).is_empty());
        *links.last_mut().expect("links is not empty") = vec![0];
        assert_eq!(cycles(&links)[0].len(), 200_001);
    }

    #[test]
    fn a_long_cycle_is_abbreviated() {
        let names: Vec<String> = (0..100).map(|n| format!("n{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(abbreviate(&names[..4]), "n0 → n1 → n2 → n3");
        let long = abbreviate(&names);
        assert!(long.contains("n11 → … 85 more … → n97 → n98 → n99"), "{long}");
    }
}
