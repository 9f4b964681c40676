//! Parses lists of checks, globs and fallback agents, and command lines.

use crate::document::{Entry, Node, Value};
use crate::limits::{
    MAX_AGENT_BYTES, MAX_AGENTS, MAX_CHECK_BYTES, MAX_CHECKS, MAX_GLOB_BYTES, MAX_PINS, MAX_TEXTS,
};
use crate::nearest::nearest;
use crate::parsed::{Ctx, all, is_off, one_of, text};
use crate::words::words;
use dogwatch_core::settings::ReaderName;

/// A fallback agent: the words of its command line, and its reader if one is named.
pub type Agent = (Vec<String>, Option<ReaderName>);

/// Parses `done_when`. An empty list is an error, because it would prove nothing. `off` removes the checks of
/// weaker layers.
pub fn checks(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Vec<String>> {
    if is_off(node) {
        return Some(Vec::new());
    }
    let checks = items(ctx, node, "a list of shell commands", MAX_CHECKS, |ctx, item| {
        text(ctx, item).filter(|check| check_length(ctx, item, check, MAX_CHECK_BYTES))
    })?;
    if checks.is_empty() {
        let message = format!("`{}` is empty: nothing would be checked", ctx.path);
        ctx.error(&node.span, message)
            .help("add a command that exits 0 when the work is done, or remove the key");
        return None;
    }
    Some(checks)
}

/// Parses `pin`.
pub fn pins(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Vec<String>> {
    globs(ctx, node, MAX_PINS)
}

/// Parses `touches` of a graph node.
pub fn touches(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Vec<String>> {
    globs(ctx, node, MAX_TEXTS)
}

fn globs(ctx: &mut Ctx<'_, '_>, node: &Node, max: usize) -> Option<Vec<String>> {
    items(ctx, node, "a list of globs", max, |ctx, item| {
        let glob = text(ctx, item).filter(|glob| check_length(ctx, item, glob, MAX_GLOB_BYTES))?;
        if let Some(why) = glob_error(&glob) {
            return ctx
                .error(&item.span, format!("`{glob}` is not a valid glob: {why}"))
                .help("write `[*]` to match the character `*` itself")
                .rejected();
        }
        Some(glob)
    })
}

/// Returns why a glob is invalid. It checks only the syntax, not whether files match.
fn glob_error(glob: &str) -> Option<&'static str> {
    let mut braces = 0_u32;
    let mut chars = glob.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.next().is_none() => return Some("trailing backslash"),
            // A `]` in first position is part of the set.
            '[' => {
                let rest = chars.as_str();
                let inside = rest.strip_prefix(['!', '^']).unwrap_or(rest);
                let first = inside.chars().next().map_or(0, char::len_utf8);
                let Some(close) = inside[first..].find(']') else { return Some("unclosed `[`") };
                chars = inside[first + close + 1..].chars();
            }
            '{' => braces += 1,
            '}' if braces == 0 => return Some("unmatched `}`"),
            '}' => braces -= 1,
            _ => {}
        }
    }
    (braces > 0).then_some("unclosed `{`")
}

/// Parses `recovery.agents`.
pub fn agents(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Vec<Agent>> {
    items(ctx, node, "a list of command lines", MAX_AGENTS, agent)
}

fn agent(ctx: &mut Ctx<'_, '_>, item: &Node) -> Option<Agent> {
    let Value::Map(fields) = &item.value else { return Some((command_line(ctx, item)?, None)) };
    for field in fields.iter().filter(|field| !matches!(field.key.as_str(), "agent" | "reader")) {
        let message = format!("unknown field `{}` in an agent", field.key);
        let diagnostic = ctx.diagnostics.error(ctx.source, field.key_span.clone(), message);
        if let Some(near) = nearest(&field.key, ["agent", "reader"]) {
            diagnostic.help(format!("did you mean `{near}`?"));
        }
    }
    let get = |name: &str| fields.iter().find(|field| field.key == name).map(|field: &Entry| &field.value);
    let reader = match get("reader").filter(|reader| !reader.is_null()) {
        None => None,
        Some(reader) => Some(one_of(&mut ctx.of("reader"), reader, ReaderName::ALL, ReaderName::as_str)?),
    };
    match get("agent") {
        Some(line) => Some((command_line(&mut ctx.of("agent"), line)?, reader)),
        None => ctx
            .error(&item.span, "this entry has no `agent`")
            .help("write `{agent: COMMAND, reader: NAME}`")
            .rejected(),
    }
}

/// Parses a command line into words, without a shell.
pub fn command_line(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Vec<String>> {
    let line = text(ctx, node).filter(|line| check_length(ctx, node, line, MAX_AGENT_BYTES))?;
    match words(&line) {
        Ok(words) => Some(words),
        Err(bad) => ctx.error(&node.span, format!("`{}` is malformed: {bad}", ctx.path)).rejected(),
    }
}

fn check_length(ctx: &mut Ctx<'_, '_>, node: &Node, text: &str, max: usize) -> bool {
    if text.len() > max {
        let message = format!("`{}` is too long: {} bytes", ctx.path, text.len());
        ctx.error(&node.span, message)
            .help(format!("at most {max} bytes are allowed; move the rest to a file"));
        return false;
    }
    true
}

/// Parses a list. A single value counts as a list of one item.
pub fn items<T>(
    ctx: &mut Ctx<'_, '_>,
    node: &Node,
    what: &str,
    max: usize,
    mut read: impl FnMut(&mut Ctx<'_, '_>, &Node) -> Option<T>,
) -> Option<Vec<T>> {
    match &node.value {
        Value::List(items) if items.len() > max => ctx
            .error(&node.span, format!("`{}` has {} items; at most {max} are allowed", ctx.path, items.len()))
            .rejected(),
        Value::List(items) => all(items, |item| read(ctx, item)),
        Value::Text(_) | Value::Map(_) => read(ctx, node).map(|one| vec![one]),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            ctx.must_hold_text(node, what).rejected()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_globs_have_a_reason() {
        for (glob, fault) in [
            ("src/**/*.rs", None),
            ("a[!x]b[]]{c,d{e,f}}", None),
            (r"a\[b", None),
            ("é[é]", None),
            ("a[b", Some("unclosed `[`")),
            ("a[]", Some("unclosed `[`")),
            ("a{b", Some("unclosed `{`")),
            ("a}b", Some("unmatched `}`")),
            ("a\\", Some("trailing backslash")),
        ] {
            assert_eq!(glob_error(glob), fault, "{glob}");
        }
    }
}
