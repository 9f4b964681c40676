//! Protocol versions and the two lifecycles. Until 2025-11-25 a client begins with `initialize`, and the version holds
//! for the connection. Since 2026-07-28 every request carries its version and the client's capabilities in `_meta`.

use super::message::{METHOD_NOT_FOUND, Object, Request, RpcError, UNSUPPORTED_VERSION};
use serde_json::{Value, json};

/// All versions, oldest first. They compare like their texts.
pub const VERSIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", STATELESS];
/// The newest version with `initialize`.
pub const NEWEST_WITH_INITIALIZE: &str = "2025-11-25";
/// The first version without `initialize`.
pub const STATELESS: &str = "2026-07-28";

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// The key under which `server/discover` names the server.
pub const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// Returns the version that answers `initialize`.
pub fn negotiate(requested: &str) -> &'static str {
    let known = VERSIONS.into_iter().find(|version| *version == requested && *version < STATELESS);
    known.unwrap_or(NEWEST_WITH_INITIALIZE)
}

/// Returns the version that a request names in `_meta`.
pub fn requested(params: &Object) -> Option<&str> {
    params.get("_meta")?.get(VERSION_KEY)?.as_str()
}

/// Returns the required keys that are missing in `_meta` of a request without a session.
pub fn missing_keys(params: &Object) -> Vec<&'static str> {
    let meta = params.get("_meta");
    let has_capabilities = meta.and_then(|meta| meta.get(CAPABILITIES_KEY)).is_some_and(Value::is_object);
    let mut missing = Vec::new();
    missing.extend(requested(params).is_none().then_some(VERSION_KEY));
    missing.extend((!has_capabilities).then_some(CAPABILITIES_KEY));
    missing
}

/// Returns the error about missing keys in `_meta`.
pub fn incomplete_meta(missing: &[&str]) -> RpcError {
    RpcError::params(format!(
        "request _meta is missing or has malformed required fields: {}",
        missing.join(", ")
    ))
}

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// The request carries its own version and needs no session.
    pub is_stateless: bool,
    /// The result has the shape of 2026-07-28: a result type, and cache hints in lists.
    pub has_result_type: bool,
}

impl Mode {
    /// The mode of a session that began with `initialize`.
    pub const SESSION: Mode = Mode { is_stateless: false, has_result_type: false };
}

/// Decides how a request is answered. `initialized` tells whether the connection has a session.
pub fn admit(request: &Request, initialized: bool) -> Result<Mode, RpcError> {
    let Request { method, params, .. } = request;
    let version = requested(params);
    if method == "initialize" || (method == "ping" && version.is_none()) {
        return Ok(Mode::SESSION);
    }
    if let Some(version) = version
        && !VERSIONS.contains(&version)
    {
        let data = json!({"requested": version, "supported": VERSIONS});
        let error = RpcError::new(UNSUPPORTED_VERSION, "Unsupported protocol version");
        return Err(RpcError { data: Some(Box::new(data)), ..error });
    }
    let has_result_type = version.is_some_and(|version| version >= STATELESS);
    let is_stateless = method == "server/discover" || !initialized || has_result_type;
    let missing = if is_stateless { missing_keys(params) } else { Vec::new() };
    if !missing.is_empty() {
        return Err(incomplete_meta(&missing));
    }
    if is_stateless && method == "ping" {
        return Err(RpcError::new(METHOD_NOT_FOUND, "ping"));
    }
    Ok(Mode { is_stateless, has_result_type })
}

/// Gives a result the shape that the client's version requires.
pub fn shape(mut result: Value, mode: Mode, is_list: bool) -> Value {
    if let Value::Object(fields) = &mut result {
        if mode.has_result_type {
            fields.entry("resultType").or_insert_with(|| json!("complete"));
            if is_list {
                fields.entry("ttlMs").or_insert_with(|| json!(0));
                fields.entry("cacheScope").or_insert_with(|| json!("private"));
            }
        } else if fields.get("resultType").is_some_and(|kind| kind == "complete") {
            fields.shift_remove("resultType");
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::super::message::{Id, object};
    use super::*;

    fn request(method: &str, params: Value) -> Request {
        Request { id: Id::Number(1), method: method.to_owned(), params: object(params) }
    }

    fn meta(version: &str) -> Value {
        json!({"_meta": {VERSION_KEY: version, CAPABILITIES_KEY: {}}})
    }

    #[test]
    fn initialize_gets_the_requested_version_or_the_newest_that_has_initialize() {
        for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
            assert_eq!(negotiate(version), version);
        }
        for other in ["2026-07-28", "2031-01-01", "", "1"] {
            assert_eq!(negotiate(other), "2025-11-25", "{other}");
        }
    }

    #[test]
    fn requests_before_initialize_need_their_version_and_capabilities() {
        let stateless = Mode { is_stateless: true, has_result_type: true };
        assert_eq!(admit(&request("tools/list", meta("2026-07-28")), false), Ok(stateless));
        assert_eq!(admit(&request("tools/list", meta("2026-07-28")), true), Ok(stateless));
        assert_eq!(admit(&request("tools/list", json!({})), true), Ok(Mode::SESSION));
        assert_eq!(admit(&request("ping", json!({})), false), Ok(Mode::SESSION));
        for (method, params) in [
            ("tools/list", json!({})),
            ("tools/list", json!({"_meta": {VERSION_KEY: "2026-07-28"}})),
            ("server/discover", json!({"_meta": {CAPABILITIES_KEY: {}}})),
        ] {
            let refused = admit(&request(method, params), false).expect_err(method);
            assert!(refused.code == -32602 && refused.message.contains("_meta"), "{refused:?}");
        }
        assert_eq!(admit(&request("ping", meta("2026-07-28")), true).map_err(|e| e.code), Err(-32601));
    }

    #[test]
    fn an_unknown_version_is_refused_with_the_known_ones() {
        let refused = admit(&request("tools/list", meta("2031-01-01")), true).expect_err("unknown");
        assert_eq!(refused.code, -32022);
        let data = json!({"requested": "2031-01-01", "supported": VERSIONS});
        assert_eq!(refused.data.as_deref(), Some(&data));
    }

    #[test]
    fn results_have_the_shape_of_the_version() {
        let newest = Mode { is_stateless: true, has_result_type: true };
        let tools = json!({"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"});
        assert_eq!(shape(json!({"tools": []}), newest, true), tools);
        assert_eq!(shape(json!({"x": 1, "resultType": "complete"}), Mode::SESSION, false), json!({"x": 1}));
        assert_eq!(shape(json!({"x": 1}), newest, false), json!({"x": 1, "resultType": "complete"}));
    }
}
