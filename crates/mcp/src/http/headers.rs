//! Reads the lifecycle of a request from its headers, and checks that the headers agree with the body.

use crate::rpc::message::{
    HEADER_MISMATCH, INVALID_REQUEST, Id, Message, Notification, Object, Request, RpcError,
};
use crate::rpc::version::{STATELESS, VERSIONS, incomplete_meta, missing_keys, requested};
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use serde_json::Value;

/// The header that identifies a session.
pub const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";
const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";

/// How a message is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// In a session that begins with `initialize`.
    Session,
    /// As an independent request.
    Stateless,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum HeaderError {
    /// The version in the header is unknown.
    UnknownVersion,
    /// The headers and the body contradict each other.
    Rpc(Option<Id>, RpcError),
}

/// Returns the text of a header that occurs once.
pub fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Returns whether the client accepts both kinds of responses to a message.
pub fn accepts_both(headers: &HeaderMap) -> bool {
    text(headers, ACCEPT.as_str()).is_some_and(|kinds| kinds.contains(JSON) && kinds.contains(EVENT_STREAM))
}

/// Returns whether the client accepts an event stream.
pub fn accepts_events(headers: &HeaderMap) -> bool {
    text(headers, ACCEPT.as_str()).is_some_and(|kinds| kinds.contains(EVENT_STREAM))
}

/// Returns whether the body is JSON.
pub fn is_json(headers: &HeaderMap) -> bool {
    text(headers, CONTENT_TYPE.as_str()).is_some_and(|kind| kind.starts_with(JSON))
}

/// Returns the lifecycle of a request without a message.
pub fn lifecycle_without_message(headers: &HeaderMap) -> Result<Lifecycle, HeaderError> {
    match known_version(headers)? {
        Some(version) if version >= STATELESS => Ok(Lifecycle::Stateless),
        Some(_) | None => Ok(Lifecycle::Session),
    }
}

/// Returns the lifecycle of a message, unless its headers contradict it.
pub fn lifecycle(headers: &HeaderMap, message: &Message) -> Result<Lifecycle, HeaderError> {
    let request = match message {
        Message::Request(request) => request,
        Message::Notification(Notification { method, params }) => {
            let lifecycle = lifecycle_without_message(headers)?;
            if lifecycle == Lifecycle::Stateless {
                check_names(headers, None, method, params)?;
            }
            return Ok(lifecycle);
        }
        Message::Response(_) => return lifecycle_without_message(headers),
    };
    let Request { id, method, params } = request;
    let mismatch = |why: String| HeaderError::Rpc(Some(id.clone()), RpcError::new(HEADER_MISMATCH, why));
    let header = text(headers, VERSION);
    if method == "initialize" {
        let body = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        if header.is_some_and(|header| header != body) {
            let why = format!("the MCP-Protocol-Version header does not match `protocolVersion` ({body})");
            return Err(HeaderError::Rpc(Some(id.clone()), RpcError::new(INVALID_REQUEST, why)));
        }
        if headers.contains_key(METHOD) && text(headers, METHOD) != Some("initialize") {
            return Err(mismatch("the Mcp-Method header does not match the method `initialize`".to_owned()));
        }
        return Ok(Lifecycle::Session);
    }
    let Some(version) = requested(params) else {
        let known = known_version(headers)?;
        if method == "server/discover" || known.is_some_and(|version| version >= STATELESS) {
            return Err(HeaderError::Rpc(Some(id.clone()), incomplete_meta(&missing_keys(params))));
        }
        return Ok(Lifecycle::Session);
    };
    if header != Some(version) {
        return Err(mismatch(format!(
            "the MCP-Protocol-Version header is missing or does not match the version in _meta ({version})"
        )));
    }
    if version >= STATELESS {
        check_names(headers, Some(id), method, params)?;
        return Ok(Lifecycle::Stateless);
    }
    Ok(if missing_keys(params).is_empty() { Lifecycle::Stateless } else { Lifecycle::Session })
}

fn known_version(headers: &HeaderMap) -> Result<Option<&'static str>, HeaderError> {
    if !headers.contains_key(VERSION) {
        return Ok(None);
    }
    let header = text(headers, VERSION);
    let known = VERSIONS.into_iter().find(|version| Some(*version) == header);
    known.map(Some).ok_or(HeaderError::UnknownVersion)
}

/// Checks the headers that repeat the method and the name, because intermediaries route by them.
fn check_names(
    headers: &HeaderMap,
    id: Option<&Id>,
    method: &str,
    params: &Object,
) -> Result<(), HeaderError> {
    let mismatch = |header: &str, value: &str| {
        let why = format!("the {header} header is missing or does not match the body ({value})");
        Err(HeaderError::Rpc(id.cloned(), RpcError::new(HEADER_MISMATCH, why)))
    };
    if text(headers, METHOD) != Some(method) {
        return mismatch("Mcp-Method", method);
    }
    let name = match method {
        "tools/call" | "prompts/get" => params.get("name"),
        "resources/read" => params.get("uri"),
        _ => None,
    };
    if let Some(name) = name.and_then(Value::as_str) {
        let given = text(headers, NAME);
        let encoded = given.and_then(|value| value.strip_prefix("=?base64?")?.strip_suffix("?="));
        let matches = match encoded {
            Some(encoded) => encoded == base64(name.as_bytes()),
            None => given == Some(name),
        };
        if !matches {
            return mismatch("Mcp-Name", name);
        }
    }
    Ok(())
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let at = |n: usize| u32::from(chunk.get(n).copied().unwrap_or(0));
        let group = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let value = group >> (18 - 6 * digit) & 63;
            let is_padding = digit as usize > chunk.len();
            text.push(if is_padding { '=' } else { char::from(DIGITS[value as usize]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};
    use serde_json::json;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value"))
        };
        let mut map = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            map.append(name, value);
        }
        map
    }

    fn message(method: &str, params: Value) -> Message {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        Message::parse(message.to_string().as_bytes()).expect("a message")
    }

    fn stateless(version: &str, name: &str) -> Value {
        json!({"name": name, "_meta": {"io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {}}})
    }

    fn code(result: Result<Lifecycle, HeaderError>) -> i64 {
        match result {
            Err(HeaderError::Rpc(_, error)) => error.code,
            Err(HeaderError::UnknownVersion) => 400,
            Ok(_) => 0,
        }
    }

    #[test]
    fn old_versions_have_a_session_and_the_newest_has_none() {
        let session = Ok(Lifecycle::Session);
        let old = headers(&[("mcp-protocol-version", "2025-06-18")]);
        assert_eq!(lifecycle(&HeaderMap::new(), &message("tools/list", json!({}))), session);
        assert_eq!(lifecycle(&old, &message("tools/list", json!({}))), session);
        assert_eq!(
            lifecycle(&HeaderMap::new(), &message("initialize", json!({"protocolVersion": "x"}))),
            session
        );
        let new = headers(&[
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "echo"),
        ]);
        let call = message("tools/call", stateless("2026-07-28", "echo"));
        assert_eq!(lifecycle(&new, &call), Ok(Lifecycle::Stateless));
        assert_eq!(lifecycle_without_message(&new), Ok(Lifecycle::Stateless));
        assert_eq!(lifecycle_without_message(&old), session);
    }

    #[test]
    fn headers_that_contradict_the_body_are_refused() {
        let call = message("tools/call", stateless("2026-07-28", "echo"));
        let version = ("mcp-protocol-version", "2026-07-28");
        let (method, name) = (("mcp-method", "tools/call"), ("mcp-name", "echo"));
        for bad in [
            vec![],
            vec![method, name],
            vec![("mcp-protocol-version", "2025-11-25"), method, name],
            vec![version, name],
            vec![version, method],
            vec![version, method, ("mcp-name", "other")],
            vec![version, method, name, name],
            vec![version, ("mcp-method", "tools/list"), name],
            vec![version, method, ("mcp-name", "=?base64?b3RoZXI=?=")],
        ] {
            assert_eq!(code(lifecycle(&headers(&bad), &call)), -32020, "{bad:?}");
        }
        let encoded = headers(&[version, method, ("mcp-name", "=?base64?ZWNobw==?=")]);
        assert_eq!(lifecycle(&encoded, &call), Ok(Lifecycle::Stateless));
        let begin = message("initialize", json!({"protocolVersion": "2025-11-25"}));
        assert_eq!(code(lifecycle(&headers(&[("mcp-protocol-version", "2025-06-18")]), &begin)), -32600);
        assert_eq!(code(lifecycle(&headers(&[("mcp-method", "tools/list")]), &begin)), -32020);
    }

    #[test]
    fn a_stateless_request_without_metadata_and_an_unknown_version_are_refused() {
        let new = headers(&[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")]);
        assert_eq!(code(lifecycle(&new, &message("tools/list", json!({})))), -32602);
        assert_eq!(code(lifecycle(&HeaderMap::new(), &message("server/discover", json!({})))), -32602);
        let unknown = headers(&[("mcp-protocol-version", "2031-01-01")]);
        assert_eq!(code(lifecycle(&unknown, &message("tools/list", json!({})))), 400);
        assert_eq!(lifecycle_without_message(&unknown), Err(HeaderError::UnknownVersion));
    }

    #[test]
    fn encodes_base64() {
        for (text, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(text.as_bytes()), encoded);
        }
    }
}
