//! Parses the `mcp` key: `true`, `false`, or a mapping with the servers behind the dogwatch proxy.
//!
//! ```yaml
//! mcp:
//!   servers:
//!     files: {command: [npx, some-server, /srv], timeout: 30s, tools: {search: {timeout: 2m}}}
//!     tracker: {url: "https://tracker.example/mcp", headers: {Authorization: "Bearer ${TRACKER_KEY}"}}
//! ```

use crate::document::{Entry, Node, Value};
use crate::limits::{MAX_MCP_HEADERS, MAX_MCP_SERVERS, MAX_MCP_TOOLS, MAX_NAME_BYTES, MAX_TEXTS};
use crate::nearest::nearest;
use crate::parsed::{Ctx, all, flag, listed, span, text};
use crate::words::words;
use dogwatch_core::settings::{McpPlace, McpPolicy, McpServer};
use dogwatch_core::text::address::{Address, AddressError, fill};
use dogwatch_core::text::redact::names_secret;
use dogwatch_core::time::dur::Dur;

const FIELDS: [&str; 7] = ["command", "url", "headers", "timeout", "tools", "restart_after", "insecure"];
/// The name of dogwatch's own server, which is reserved.
const OWN_SERVER: &str = "dogwatch";
/// Headers that the HTTP and MCP clients set themselves.
const RESERVED_HEADERS: [&str; 10] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "last-event-id",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Parses the value of `mcp`.
pub fn parse(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<McpPolicy> {
    let Value::Map(entries) = &node.value else {
        if let Value::Bool(_) | Value::Text(_) = node.value {
            return flag(ctx, node).map(|enabled| McpPolicy { enabled, servers: Vec::new() });
        }
        return ctx.must_be(node, "true, false, or a mapping with `servers`").rejected();
    };
    reject_unknown_keys(ctx, entries, &["servers"], "mcp")?;
    let servers = match field(entries, "servers") {
        Some(node) => servers(ctx, node)?,
        None => Vec::new(),
    };
    Some(McpPolicy { enabled: true, servers })
}

fn servers(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Vec<McpServer>> {
    let Value::Map(entries) = &node.value else {
        ctx.error(&node.span, "`mcp.servers` must be a mapping from names to servers")
            .label(format!("this is {}", node.kind()));
        return None;
    };
    if entries.len() > MAX_MCP_SERVERS {
        let message =
            format!("`mcp.servers` has {} servers; at most {MAX_MCP_SERVERS} are allowed", entries.len());
        return ctx.error(&node.span, message).rejected();
    }
    all(entries, |entry| server(ctx, entry))
}

fn server(ctx: &mut Ctx<'_, '_>, entry: &Entry) -> Option<McpServer> {
    let name = &entry.key;
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(allowed) || name == OWN_SERVER {
        let message = format!("`{name}` is not a valid server name");
        ctx.error(&entry.key_span, message)
            .help(format!("use letters, digits, `-` and `_`; `{OWN_SERVER}` is reserved"));
        return None;
    }
    let Value::Map(fields) = &entry.value.value else {
        return ctx
            .error(
                &entry.value.span,
                format!("`mcp.servers.{name}` must be a mapping with `command` or `url`"),
            )
            .label(format!("this is {}", entry.value.kind()))
            .rejected();
    };
    reject_unknown_keys(ctx, fields, &FIELDS, &format!("mcp.servers.{name}"))?;
    let place = place(ctx, entry, fields);
    let headers = optional(fields, "headers", Vec::new(), |node| headers(ctx, name, fields, node));
    let timeout = optional(fields, "timeout", McpServer::DEFAULT_TIMEOUT, |node| span(ctx, node));
    let tools = optional(fields, "tools", Vec::new(), |node| tools(ctx, name, node));
    let restart_after =
        optional(fields, "restart_after", McpServer::DEFAULT_RESTART_AFTER, |node| count(ctx, node));
    let (place, headers) = (place?, headers?);
    let insecure = field(fields, "insecure").is_some_and(|node| node.value == Value::Bool(true));
    if sends_key_in_the_clear(&place, &headers) && !insecure {
        ctx.error(
            &entry.key_span,
            format!("`mcp.servers.{name}` sends a key over plain http to another host"),
        )
        .help("use `https`, or set `insecure: true` if you trust the network");
        return None;
    }
    Some(McpServer {
        name: name.clone(),
        place,
        headers,
        timeout: timeout?,
        tools: tools?,
        restart_after: restart_after?,
    })
}

/// Headers that hold keys and whose names are not like those of variables.
const KEY_HEADERS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

/// Returns whether a server gets a key in a header without encryption and outside of this machine.
fn sends_key_in_the_clear(place: &McpPlace, headers: &[(String, String)]) -> bool {
    let holds_key =
        |name: &str| names_secret(name) || KEY_HEADERS.iter().any(|known| name.eq_ignore_ascii_case(known));
    let has_key = headers.iter().any(|(name, _)| holds_key(name));
    let McpPlace::Url(url) = place else { return false };
    let address = fill(url, |_| Some("x".to_owned())).ok().and_then(|filled| Address::parse(&filled).ok());
    // A name may begin like an address of this machine: `127.0.0.1.example`.
    let is_local = |host: &str| {
        let octets: Vec<&str> = host.split('.').collect();
        let is_octet = |octet: &&str| octet.parse::<u8>().is_ok();
        let is_loopback = octets.len() == 4 && octets[0] == "127" && octets.iter().all(is_octet);
        is_loopback || host == "::1" || host.eq_ignore_ascii_case("localhost")
    };
    has_key && address.is_some_and(|address| !address.https && !is_local(&address.host))
}

fn place(ctx: &mut Ctx<'_, '_>, entry: &Entry, fields: &[Entry]) -> Option<McpPlace> {
    match (field(fields, "command"), field(fields, "url")) {
        (Some(node), None) => command(ctx, node).map(McpPlace::Command),
        (None, Some(node)) => url(ctx, node).map(McpPlace::Url),
        (Some(_), Some(node)) => {
            ctx.error(&node.span, "a server cannot have both `command` and `url`").rejected()
        }
        (None, None) => ctx
            .error(&entry.key_span, format!("`mcp.servers.{}` needs a `command` or a `url`", entry.key))
            .rejected(),
    }
}

fn url(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<String> {
    let url = text(ctx, node)?;
    // Variables have no values yet, so check the URL with a placeholder.
    let reason = match fill(&url, |_| Some("x".to_owned())) {
        Err(bad) => bad.to_string(),
        Ok(filled) => match Address::parse(&filled) {
            Ok(_) => return Some(url),
            Err(AddressError::HoldsPassword) => format!("{}; use `headers`", AddressError::HoldsPassword),
            Err(bad) => bad.to_string(),
        },
    };
    ctx.error(&node.span, format!("the server's `url` is malformed: {reason}")).rejected()
}

/// Returns the entries of a mapping of at most `max` things.
fn entries<'n>(
    ctx: &mut Ctx<'_, '_>,
    node: &'n Node,
    max: usize,
    path: impl FnOnce() -> String,
    what: &str,
) -> Option<&'n [Entry]> {
    if let Value::Map(entries) = &node.value
        && entries.len() <= max
    {
        return Some(entries);
    }
    ctx.error(&node.span, format!("`mcp.servers.{}` must be a mapping of at most {max} {what}", path()))
        .rejected()
}

fn headers(
    ctx: &mut Ctx<'_, '_>,
    server: &str,
    fields: &[Entry],
    node: &Node,
) -> Option<Vec<(String, String)>> {
    if field(fields, "url").is_none() {
        return ctx.error(&node.span, "only a server with a `url` can have `headers`").rejected();
    }
    let entries = entries(ctx, node, MAX_MCP_HEADERS, || format!("{server}.headers"), "headers")?;
    all(entries, |entry| header(ctx, entry))
}

fn header(ctx: &mut Ctx<'_, '_>, entry: &Entry) -> Option<(String, String)> {
    let name = &entry.key;
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let lower = name.to_ascii_lowercase();
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(allowed) {
        return ctx.error(&entry.key_span, format!("`{name}` is not a valid header name")).rejected();
    }
    if RESERVED_HEADERS.contains(&lower.as_str()) || lower.starts_with("mcp-") {
        return ctx
            .error(&entry.key_span, format!("the header `{name}` is reserved for dogwatch"))
            .rejected();
    }
    let value = text(ctx, &entry.value)?;
    let reason = match fill(&value, |_| Some(String::new())) {
        Err(bad) => bad.to_string(),
        Ok(_) if !value.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) => {
            "it contains characters that are not allowed in a header".to_owned()
        }
        Ok(_) => return Some((name.clone(), value)),
    };
    ctx.error(&entry.value.span, format!("the value of `{name}` is malformed: {reason}")).rejected()
}

/// Parses a command: a list of words, or a line that is split into words.
fn command(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<Vec<String>> {
    let read = match &node.value {
        Value::List(items) if items.len() <= MAX_TEXTS => all(items, |item| text(ctx, item))?,
        Value::Text(line) => match words(line) {
            Ok(words) => words,
            Err(bad) => {
                return ctx
                    .error(&node.span, format!("the server's `command` is malformed: {bad}"))
                    .rejected();
            }
        },
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::List(_) | Value::Map(_) => {
            Vec::new()
        }
    };
    if read.is_empty() {
        return ctx.error(&node.span, "a server's `command` must be a list of words").rejected();
    }
    Some(read)
}

fn tools(ctx: &mut Ctx<'_, '_>, server: &str, node: &Node) -> Option<Vec<(String, Dur)>> {
    let entries = entries(ctx, node, MAX_MCP_TOOLS, || format!("{server}.tools"), "tools")?;
    all(entries, |entry| tool(ctx, server, entry))
}

fn tool(ctx: &mut Ctx<'_, '_>, server: &str, entry: &Entry) -> Option<(String, Dur)> {
    let path = format!("mcp.servers.{server}.tools.{}", entry.key);
    let Value::Map(fields) = &entry.value.value else {
        return ctx.error(&entry.value.span, format!("`{path}` must be a mapping with `timeout`")).rejected();
    };
    reject_unknown_keys(ctx, fields, &["timeout"], &path)?;
    let Some(node) = field(fields, "timeout") else {
        return ctx.error(&entry.key_span, format!("`{path}` needs a `timeout`")).rejected();
    };
    Some((entry.key.clone(), span(ctx, node)?))
}

fn count(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<u32> {
    let fits = node.int().filter(|n| (1..=1_000).contains(n)).and_then(|n| u32::try_from(n).ok());
    fits.or_else(|| ctx.error(&node.span, "`restart_after` must be a whole number from 1 to 1000").rejected())
}

fn field<'n>(fields: &'n [Entry], name: &str) -> Option<&'n Node> {
    fields.iter().find(|field| field.key == name).map(|field| &field.value).filter(|node| !node.is_null())
}

fn optional<T>(
    fields: &[Entry],
    name: &str,
    built_in: T,
    read: impl FnOnce(&Node) -> Option<T>,
) -> Option<T> {
    match field(fields, name) {
        Some(node) => read(node),
        None => Some(built_in),
    }
}

/// Reports unknown keys as errors. A misspelled `timeout` would otherwise be ignored silently.
fn reject_unknown_keys(ctx: &mut Ctx<'_, '_>, entries: &[Entry], known: &[&str], block: &str) -> Option<()> {
    let mut result = Some(());
    for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
        let near = nearest(&entry.key, known.iter().copied());
        let diagnostic = ctx.error(&entry.key_span, format!("unknown key `{}` in `{block}`", entry.key));
        match near {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None => diagnostic.help(format!("its keys are {}", listed(known))),
        };
        result = None;
    }
    result
}

/// Formats the policy for `check --explain`.
pub fn show(policy: &McpPolicy) -> String {
    if !policy.enabled {
        return "off".to_owned();
    }
    let servers: Vec<String> =
        policy.servers.iter().map(|server| format!("{} (timeout {})", server.name, server.timeout)).collect();
    if servers.is_empty() { "on".to_owned() } else { format!("on, with {}", servers.join(", ")) }
}
