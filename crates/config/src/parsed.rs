//! Parses a value according to the kind of its key.

use crate::commands;
use crate::diagnostic::{Diagnostic, Diagnostics, Source};
use crate::document::{Entry, Node, Span, Value};
use crate::keys::Kind;
use crate::limits::{MAX_STOP_REASONS, MAX_TEXTS};
use crate::lists;
use crate::mcp;
use crate::nearest::nearest;
use dogwatch_core::record::notification::{NotificationKind, Telegram, Topic, Webhook};
use dogwatch_core::settings::{CommandPlan, McpPolicy, StopAfter, Ttl};
use dogwatch_core::time::dur::{Dur, DurError, Limit};
use dogwatch_core::watch::limits::MAX_TOOL_LIMITS;
use std::collections::BTreeMap;

/// A valid value.
#[derive(Clone, Debug, PartialEq)]
pub enum Parsed {
    Words(Vec<String>),
    Commands(Vec<CommandPlan>),
    Texts(Vec<String>),
    Flag(bool),
    Text(String),
    Dur(Dur),
    Limit(Limit),
    /// A count, or none for `off`.
    Count(Option<u64>),
    Number(f64),
    StopAfter(StopAfter),
    Ttl(Ttl),
    ToolLimits(BTreeMap<String, Limit>),
    Mcp(McpPolicy),
    Agents(Vec<lists::Agent>),
    NotifyOn(Vec<NotificationKind>),
    Webhook(Webhook),
    Topic(Topic),
    /// `off`, for an amount without a limit.
    Off,
}

/// The context of a value: its source, its key, and the diagnostics to add to.
pub struct Ctx<'a, 's> {
    pub source: Source<'s>,
    /// The key as the user wrote it, for messages.
    pub path: &'a str,
    pub diagnostics: &'a mut Diagnostics,
}

impl<'s> Ctx<'_, 's> {
    /// Adds an error at a span of the source.
    pub fn error(&mut self, span: &Span, message: impl AsRef<str>) -> &mut Diagnostic {
        self.diagnostics.error(self.source, span.clone(), message)
    }

    /// Returns the context of a field of the value.
    pub fn of<'c>(&'c mut self, field: &'c str) -> Ctx<'c, 's> {
        Ctx { source: self.source, path: field, diagnostics: self.diagnostics }
    }

    /// Adds the error "`key` must be …", labeled with the actual type.
    pub fn must_be(&mut self, node: &Node, what: &str) -> &mut Diagnostic {
        let message = format!("`{}` must be {what}", self.path);
        let label = format!("this is {}", node.kind());
        self.error(&node.span, message).label(label)
    }

    /// Adds the error "`key` must be …" for a value that must be text or a list of texts. A file can quote the value.
    pub fn must_hold_text(&mut self, node: &Node, what: &str) -> &mut Diagnostic {
        let diagnostic = self.must_be(node, what);
        match node.value {
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => diagnostic.help("put it in quotes"),
            Value::Null | Value::Text(_) | Value::List(_) | Value::Map(_) => diagnostic,
        }
    }
}

/// Parses `node` as `kind`, or reports an error.
pub fn parse(ctx: &mut Ctx<'_, '_>, node: &Node, kind: Kind) -> Option<Parsed> {
    match kind {
        Kind::CommandLine => lists::command_line(ctx, node).map(Parsed::Words),
        Kind::OneOf(choices) => one_of(ctx, node, choices, |c| c).map(|c| Parsed::Text(c.to_owned())),
        Kind::Commands => commands::parse(ctx, node).map(Parsed::Commands),
        Kind::Names => commands::names(ctx, node).map(Parsed::Texts),
        Kind::Flag => flag(ctx, node).map(Parsed::Flag),
        Kind::Text => text(ctx, node).map(Parsed::Text),
        Kind::Texts => texts(ctx, node).map(Parsed::Texts),
        Kind::Ports => ports(ctx, node).map(Parsed::Texts),
        Kind::Checks => lists::checks(ctx, node).map(Parsed::Texts),
        Kind::Globs => lists::pins(ctx, node).map(Parsed::Texts),
        Kind::Agents => lists::agents(ctx, node).map(Parsed::Agents),
        Kind::Duration => duration(ctx, node).map(Parsed::Dur),
        Kind::Span => span(ctx, node).map(Parsed::Dur),
        Kind::Limit => limit(ctx, node).map(Parsed::Limit),
        Kind::Ttl if node.text() == Some("auto") => Some(Parsed::Ttl(Ttl::Auto)),
        Kind::Ttl => duration(ctx, node).map(|dur| Parsed::Ttl(Ttl::Fixed(dur))),
        Kind::ToolLimits => tool_limits(ctx, node).map(Parsed::ToolLimits),
        Kind::Count => count(ctx, node).map(|n| Parsed::Count(Some(n))),
        Kind::CountLimit if is_off(node) => Some(Parsed::Count(None)),
        Kind::CountLimit => count_limit(ctx, node).map(|n| Parsed::Count(Some(n))),
        Kind::UpTo(max) => up_to(ctx, node, max).map(|n| Parsed::Count(Some(n))),
        Kind::Factor => number(ctx, node, 1.0).map(Parsed::Number),
        Kind::Amount if is_off(node) => Some(Parsed::Off),
        Kind::Amount => number(ctx, node, 0.0).map(Parsed::Number),
        Kind::Share if is_off(node) => Some(Parsed::Off),
        Kind::Share => share(ctx, node).map(Parsed::Number),
        Kind::StopAfter => stop_after(ctx, node).map(Parsed::StopAfter),
        Kind::NotifyOn => notify_on(ctx, node).map(Parsed::NotifyOn),
        Kind::Webhook => webhook(ctx, node).map(Parsed::Webhook),
        Kind::Topic => checked(ctx, node, "address", Topic::parse).map(Parsed::Topic),
        Kind::BotToken => {
            let read = |token: &str| Telegram::token(token).map_err(|e| e.to_string());
            checked(ctx, node, "bot token", read).map(Parsed::Text)
        }
        Kind::Chat => chat(ctx, node).map(Parsed::Text),
        Kind::Mcp => mcp::parse(ctx, node).map(Parsed::Mcp),
    }
}

/// Returns whether a value is `off` or `false`.
pub fn is_off(node: &Node) -> bool {
    node.text() == Some("off") || node.value == Value::Bool(false)
}

pub fn one_of<T: Copy>(
    ctx: &mut Ctx<'_, '_>,
    node: &Node,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Option<T> {
    let given = node.text().map_or("", str::trim);
    if let Some(found) = all.iter().find(|choice| name(**choice) == given) {
        return Some(*found);
    }
    let names: Vec<&str> = all.iter().map(|choice| name(*choice)).collect();
    let message = format!("`{}` must be one of {}", ctx.path, listed(&names));
    let near = nearest(given, names);
    let diagnostic = ctx.error(&node.span, message);
    if let Some(near) = near {
        diagnostic.help(format!("did you mean `{near}`?"));
    }
    None
}

/// Formats names as "`a`, `b` or `c`".
pub fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// Parses a flag. A strict YAML parser reads `yes` and `no` as text, so they are accepted here.
pub fn flag(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<bool> {
    if let Value::Bool(flag) = node.value {
        return Some(flag);
    }
    match node.text().map(str::to_ascii_lowercase).as_deref() {
        Some("yes" | "on") => Some(true),
        Some("no" | "off") => Some(false),
        _ => ctx.error(&node.span, format!("`{}` must be true or false", ctx.path)).rejected(),
    }
}

/// Parses a text that is not empty.
pub fn text(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<String> {
    match node.text() {
        Some(text) if text.trim().is_empty() => {
            ctx.error(&node.span, format!("`{}` is empty", ctx.path)).rejected()
        }
        Some(text) if text.contains('\0') => {
            ctx.error(&node.span, format!("`{}` contains a NUL character", ctx.path)).rejected()
        }
        Some(text) => Some(text.to_owned()),
        None => ctx.must_hold_text(node, "text").rejected(),
    }
}

fn texts(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Vec<String>> {
    if let Value::Text(_) | Value::List(_) = node.value {
        return lists::items(ctx, node, "a list of texts", MAX_TEXTS, text);
    }
    ctx.must_hold_text(node, "a list of texts").rejected()
}

/// Parses TCP ports. They are kept as texts, like other lists.
fn ports(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Vec<String>> {
    let port =
        |ctx: &mut Ctx<'_, '_>, node: &Node| up_to(ctx, node, u32::from(u16::MAX)).map(|n| n.to_string());
    if let Some(items) = node.list() {
        return all(items, |item| port(ctx, item));
    }
    port(ctx, node).map(|port| vec![port])
}

/// Parses every item, so that every error is reported. Returns all values, or none if any item is invalid.
pub fn all<I, T, C: FromIterator<T>>(items: &[I], read: impl FnMut(&I) -> Option<T>) -> Option<C> {
    let read: Vec<Option<T>> = items.iter().map(read).collect();
    read.into_iter().collect()
}

/// Parses a duration, which may be zero.
pub fn duration(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Dur> {
    let read = match (node.number(), node.text()) {
        (Some(n), _) => Dur::from_secs_f64(n),
        (None, Some(text)) => text.parse(),
        (None, None) => Err(DurError::NotADuration),
    };
    read.map_err(|bad| {
        ctx.error(&node.span, format!("`{}` must be a duration", ctx.path))
            .label(bad.to_string())
            .help(DurError::FORMS);
    })
    .ok()
}

/// Parses a duration of more than zero.
pub fn span(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Dur> {
    let dur = duration(ctx, node)?;
    if dur.is_zero() {
        return ctx.error(&node.span, format!("`{}` must be more than zero", ctx.path)).rejected();
    }
    Some(dur)
}

fn limit(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Limit> {
    if is_off(node) {
        return Some(Limit::Off);
    }
    let dur = duration(ctx, node)?;
    if dur.is_zero() {
        return ctx
            .error(&node.span, format!("`{}` must be more than zero", ctx.path))
            .help("`off` means no limit")
            .rejected();
    }
    Some(Limit::At(dur))
}

/// Parses a percentage: `80%`, or the number alone.
fn share(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<f64> {
    // A fraction such as 0.8 is more likely a mistake than less than one percent.
    let number = node.number().filter(|n| *n >= 1.0);
    let written = || node.text()?.trim().strip_suffix('%')?.trim_end().parse().ok();
    let percent = number.or_else(written);
    let percent = percent.filter(|n| *n > 0.0 && *n <= 100.0);
    if percent.is_none() {
        ctx.error(&node.span, format!("`{}` must be a percentage of more than 0 and at most 100", ctx.path))
            .help("write it as `80%`; `off` means no limit");
    }
    percent
}

fn count(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<u64> {
    // A count of more than 32 bits is a mistake. Every counter is at least that wide.
    within(ctx, node, 1, u32::MAX)
}

/// Parses a count where `off` means no limit.
fn count_limit(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<u64> {
    if node.int() == Some(0) {
        let message = format!("`{}` must be a whole number from 1 to {}", ctx.path, u32::MAX);
        return ctx.error(&node.span, message).help("`off` means no limit").rejected();
    }
    count(ctx, node)
}

/// Parses a whole number from 0 to `max`.
fn up_to(ctx: &mut Ctx<'_, '_>, node: &Node, max: u32) -> Option<u64> {
    within(ctx, node, 0, max)
}

fn within(ctx: &mut Ctx<'_, '_>, node: &Node, min: u32, max: u32) -> Option<u64> {
    let fits = node.int().filter(|n| (i128::from(min)..=i128::from(max)).contains(n));
    let fits = fits.and_then(|n| u64::try_from(n).ok());
    fits.or_else(|| {
        let message = format!("`{}` must be a whole number from {min} to {max}", ctx.path);
        ctx.error(&node.span, message).rejected()
    })
}

fn number(ctx: &mut Ctx<'_, '_>, node: &Node, least: f64) -> Option<f64> {
    let number = node.number().filter(|n| n.is_finite() && *n >= least);
    if number.is_none() {
        ctx.error(&node.span, format!("`{}` must be a number of at least {least}", ctx.path));
    }
    number
}

fn stop_after(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<StopAfter> {
    match node.map() {
        _ if is_off(node) => Some(StopAfter::Never),
        Some([]) => Some(StopAfter::Never),
        Some(entries) if entries.len() > MAX_STOP_REASONS => {
            let message = format!("`{}` has more than {MAX_STOP_REASONS} reasons", ctx.path);
            ctx.error(&node.span, message).rejected()
        }
        Some(entries) => {
            let read = |entry: &Entry| Some((entry.key.clone(), small_count(ctx, &entry.value)?));
            all(entries, read).map(StopAfter::PerReason)
        }
        None if node.int().is_some() => small_count(ctx, node).map(StopAfter::Count),
        None => ctx.must_be(node, "a number, a mapping from reason to number, or `off`").rejected(),
    }
}

/// Parses limits by the name of a tool.
fn tool_limits(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<BTreeMap<String, Limit>> {
    let Some(entries) = node.map() else {
        return ctx
            .must_be(node, "a mapping from tools to limits")
            .help("for example `{Bash: 5m}`")
            .rejected();
    };
    if entries.len() > MAX_TOOL_LIMITS {
        let message = format!("`{}` has more than {MAX_TOOL_LIMITS} tools", ctx.path);
        return ctx.error(&node.span, message).rejected();
    }
    all(entries, |entry| Some((entry.key.clone(), limit(ctx, &entry.value)?)))
}

fn notify_on(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Vec<NotificationKind>> {
    let mut one = |node: &Node| one_of(ctx, node, &NotificationKind::SELECTABLE, NotificationKind::as_str);
    let mut kinds = match node.list() {
        Some(items) => all(items, one)?,
        None => vec![one(node)?],
    };
    let mut seen = Vec::new();
    kinds.retain(|kind| {
        !seen.contains(kind) && {
            seen.push(*kind);
            true
        }
    });
    Some(kinds)
}

fn webhook(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Webhook> {
    checked(ctx, node, "address", |url| Webhook::parse(url).map_err(|bad| bad.to_string()))
}

/// Parses a text with a custom parser.
fn checked<T>(
    ctx: &mut Ctx<'_, '_>,
    node: &Node,
    what: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    let given = text(ctx, node)?;
    match read(given.trim()) {
        Ok(read) => Some(read),
        Err(why) => {
            ctx.error(&node.span, format!("`{}` is not a valid {what}", ctx.path)).label(why).rejected()
        }
    }
}

/// Parses a chat of Telegram, a number or a name.
fn chat(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<String> {
    let number = node.int().map(|n| Node::new(Value::Text(n.to_string()), node.span.clone()));
    let written = number.unwrap_or_else(|| node.clone());
    checked(ctx, &written, "chat", |chat| Telegram::chat(chat).map_err(|e| e.to_string()))
}

fn small_count(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<u32> {
    count(ctx, node).and_then(|n| u32::try_from(n).ok())
}
