//! Lists with limits of their own: checks, globs, and agents that stand in.

use crate::keys::Kind;
use crate::limits::{
    MAX_AGENT_BYTES, MAX_AGENTS, MAX_CHECK_BYTES, MAX_CHECKS, MAX_GLOB_BYTES, MAX_PINS, MAX_TEXTS,
};
use crate::nearest::nearest;
use crate::parsed::{Ctx, Parsed, all, is_off, parse, text};
use crate::tree::{Entry, Node, Value};
use crate::words::words;
use dogwatch_core::settings::ReaderName;

/// An agent that stands in: its words, and its reader if one was named.
pub type Agent = (Vec<String>, Option<ReaderName>);

/// `done_when`. An empty list would prove anything, so it is an error; `off` takes away what a weaker layer said.
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
            .help("name a command that exits 0 when the work is done, or remove it");
        return None;
    }
    Some(checks)
}

pub fn pins(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Vec<String>> {
    globs(ctx, node, MAX_PINS)
}

/// Of a node in a graph.
pub fn touches(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Vec<String>> {
    globs(ctx, node, MAX_TEXTS)
}

fn globs(ctx: &mut Ctx<'_, '_>, node: &Node, max: usize) -> Option<Vec<String>> {
    items(ctx, node, "a list of globs", max, |ctx, item| {
        let glob = text(ctx, item).filter(|glob| check_length(ctx, item, glob, MAX_GLOB_BYTES))?;
        if let Some(why) = glob_error(&glob) {
            let message = format!("`{glob}` is no glob: {why}");
            ctx.error(&item.span, message).help("`[*]` stands for the character itself");
            return None;
        }
        Some(glob)
    })
}

/// Why a text is no glob. Which files it stands for is not known here.
fn glob_error(glob: &str) -> Option<&'static str> {
    let mut braces = 0_u32;
    let mut chars = glob.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.next().is_none() => return Some("nothing follows the last backslash"),
            // A `]` that stands first is one of the characters.
            '[' => {
                let rest = chars.as_str();
                let inside = rest.strip_prefix(['!', '^']).unwrap_or(rest);
                let first = inside.chars().next().map_or(0, char::len_utf8);
                let Some(close) = inside[first..].find(']') else { return Some("`[` is never closed") };
                chars = inside[first + close + 1..].chars();
            }
            '{' => braces += 1,
            '}' if braces == 0 => return Some("`}` closes nothing"),
            '}' => braces -= 1,
            _ => {}
        }
    }
    (braces > 0).then_some("`{` is never closed")
}

/// `recovery.agents`.
pub fn agents(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Vec<Agent>> {
    items(ctx, node, "a list of command lines", MAX_AGENTS, agent)
}

fn agent(ctx: &mut Ctx<'_, '_>, item: &Node) -> Option<Agent> {
    let Value::Map(fields) = &item.value else { return Some((command_line(ctx, item)?, None)) };
    for field in fields.iter().filter(|field| !matches!(field.key.as_str(), "agent" | "reader")) {
        let message = format!("an agent has no field `{}`", field.key);
        let diagnostic = ctx.diagnostics.error(ctx.source, field.key_span.clone(), message);
        if let Some(near) = nearest(&field.key, ["agent", "reader"]) {
            diagnostic.help(format!("did you mean `{near}`?"));
        }
    }
    let get = |name: &str| fields.iter().find(|field| field.key == name).map(|field: &Entry| &field.value);
    let reader = match get("reader").filter(|reader| !reader.is_null()) {
        None => None,
        Some(reader) => match parse(&mut ctx.of("reader"), reader, Kind::Reader)? {
            Parsed::Reader(reader) => Some(reader),
            _ => None,
        },
    };
    match get("agent") {
        Some(line) => Some((command_line(&mut ctx.of("agent"), line)?, reader)),
        None => {
            ctx.error(&item.span, "this has no `agent`").help("write `{agent: COMMAND, reader: NAME}`");
            None
        }
    }
}

/// As words, without a shell.
pub fn command_line(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Vec<String>> {
    let line = text(ctx, node).filter(|line| check_length(ctx, node, line, MAX_AGENT_BYTES))?;
    match words(&line) {
        Ok(words) => Some(words),
        Err(bad) => {
            let message = format!("`{}` is malformed: {bad}", ctx.path);
            ctx.error(&node.span, message);
            None
        }
    }
}

fn check_length(ctx: &mut Ctx<'_, '_>, node: &Node, text: &str, max: usize) -> bool {
    if text.len() > max {
        let message = format!("{} bytes are too many for `{}`", text.len(), ctx.path);
        ctx.error(&node.span, message).help(format!("at most {max} are read; put more into a file"));
        return false;
    }
    true
}

/// The items of a list; anything else stands for a list of itself.
pub fn items<T>(
    ctx: &mut Ctx<'_, '_>,
    node: &Node,
    what: &str,
    max: usize,
    mut read: impl FnMut(&mut Ctx<'_, '_>, &Node) -> Option<T>,
) -> Option<Vec<T>> {
    match &node.value {
        Value::List(items) if items.len() > max => {
            let message = format!("`{}` has {} items; at most {max} are allowed", ctx.path, items.len());
            ctx.error(&node.span, message);
            None
        }
        Value::List(items) => all(items, |item| read(ctx, item)),
        Value::Text(_) | Value::Map(_) => read(ctx, node).map(|one| vec![one]),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            ctx.must_be(node, what);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_glob_says_why() {
        for (glob, fault) in [
            ("src/**/*.rs", None),
            ("a[!x]b[]]{c,d{e,f}}", None),
            (r"a\[b", None),
            ("é[é]", None),
            ("a[b", Some("`[` is never closed")),
            ("a[]", Some("`[` is never closed")),
            ("a{b", Some("`{` is never closed")),
            ("a}b", Some("`}` closes nothing")),
            ("a\\", Some("nothing follows the last backslash")),
        ] {
            assert_eq!(glob_error(glob), fault, "{glob}");
        }
    }
}
