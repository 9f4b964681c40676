//! Parses the `commands` list and the names under `args`.

use crate::document::{Entry, Node, Span, Value};
use crate::limits::{MAX_ARGS, MAX_COMMANDS, MAX_NAME_BYTES};
use crate::nearest::nearest;
use crate::parsed::{Ctx, all, flag, span, text};
use dogwatch_core::settings::CommandPlan;

const FIELDS: [&str; 4] = ["name", "run", "timeout", "shell"];

/// Parses the value of `commands`.
pub fn parse(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Vec<CommandPlan>> {
    let items = list(ctx, node, "a list of commands, each with `name` and `run`", MAX_COMMANDS)?;
    let read: Vec<CommandPlan> = all(items, |item| command(ctx, item))?;
    let names = read.iter().map(|plan| plan.name.as_str()).zip(items.iter().map(name_span));
    check_unique(ctx, &names.collect::<Vec<_>>()).then_some(read)
}

/// Parses the value of `args`, a list of names.
pub fn names(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Vec<String>> {
    let items = list(ctx, node, "a list of texts", MAX_ARGS)?;
    let read: Vec<String> =
        all(items, |item| text(ctx, item).filter(|name| check_name(ctx, name, &item.span)))?;
    let names = read.iter().map(String::as_str).zip(items.iter().map(|item| &item.span));
    check_unique(ctx, &names.collect::<Vec<_>>()).then_some(read)
}

fn list<'n>(ctx: &mut Ctx<'_, '_>, node: &'n Node, what: &str, max: usize) -> Option<&'n [Node]> {
    match node.list() {
        Some(items) if items.len() > max => ctx
            .error(&node.span, format!("`{}` has {} items; at most {max} are allowed", ctx.path, items.len()))
            .rejected(),
        Some(items) => Some(items),
        None => ctx.must_be(node, what).rejected(),
    }
}

fn command(ctx: &mut Ctx<'_, '_>, item: &Node) -> Option<CommandPlan> {
    let Value::Map(fields) = &item.value else {
        ctx.error(&item.span, "each command must be a mapping with `name` and `run`")
            .label(format!("this is {}", item.kind()));
        return None;
    };
    warn_unknown(ctx, fields);
    // Read all four fields before returning early, so that every error is reported.
    let name = required(ctx, item, fields, "name");
    let run = required(ctx, item, fields, "run");
    let timeout = optional(ctx, fields, "timeout", CommandPlan::DEFAULT_TIMEOUT, span);
    let shell = optional(ctx, fields, "shell", false, flag);
    let name = name.filter(|name| check_name(ctx, name, name_span(item)))?;
    Some(CommandPlan { name, run: run?, timeout: timeout?, shell: shell? })
}

/// Warns about unknown fields. They are not errors because other tools may store their own fields here.
fn warn_unknown(ctx: &mut Ctx<'_, '_>, fields: &[Entry]) {
    for field in fields.iter().filter(|field| !FIELDS.contains(&field.key.as_str())) {
        let message = format!("unknown field `{}` in a command; it is ignored", field.key);
        let diagnostic = ctx.diagnostics.warning(ctx.source, field.key_span.clone(), message);
        if let Some(near) = nearest(&field.key, FIELDS) {
            diagnostic.help(format!("did you mean `{near}`?"));
        }
    }
}

fn required(ctx: &mut Ctx<'_, '_>, item: &Node, fields: &[Entry], field: &str) -> Option<String> {
    match get(fields, field) {
        Some(node) => text(&mut ctx.of(field), node),
        None => {
            ctx.error(&item.span, format!("this command has no `{field}`"))
                .help("each command needs `name` and `run`");
            None
        }
    }
}

fn optional<T>(
    ctx: &mut Ctx<'_, '_>,
    fields: &[Entry],
    field: &str,
    default: T,
    read: impl Fn(&mut Ctx<'_, '_>, &Node) -> Option<T>,
) -> Option<T> {
    match get(fields, field) {
        Some(node) if !node.is_null() => read(&mut ctx.of(field), node),
        _ => Some(default),
    }
}

fn get<'e>(fields: &'e [Entry], name: &str) -> Option<&'e Node> {
    fields.iter().find(|field| field.key == name).map(|field| &field.value)
}

fn name_span(item: &Node) -> &Span {
    item.map().and_then(|fields| get(fields, "name")).map_or(&item.span, |name| &name.span)
}

/// Returns whether a name can be used in a placeholder.
pub fn is_valid_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

fn check_name(ctx: &mut Ctx<'_, '_>, name: &str, at: &Span) -> bool {
    if !is_valid_name(name) {
        ctx.error(at, format!("`{name}` is not a valid name"))
            .help(format!("use only letters, digits, `-` and `_`, at most {MAX_NAME_BYTES} characters"));
        return false;
    }
    true
}

fn check_unique(ctx: &mut Ctx<'_, '_>, names: &[(&str, &Span)]) -> bool {
    let mut unique = true;
    for (i, (name, at)) in names.iter().enumerate() {
        if names[..i].iter().any(|(earlier, _)| earlier == name) {
            ctx.error(at, format!("the name `{name}` is used twice"));
            unique = false;
        }
    }
    unique
}

/// Formats a command for `check --explain`.
pub fn show(plan: &CommandPlan) -> String {
    let timeout = Some(plan.timeout).filter(|timeout| *timeout != CommandPlan::DEFAULT_TIMEOUT);
    let timeout = timeout.map_or_else(String::new, |timeout| format!(" (timeout {timeout})"));
    format!("{}: {}{timeout}", plan.name, plan.run)
}
