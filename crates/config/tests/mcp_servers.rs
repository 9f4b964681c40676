//! Tests the keys of the MCP servers that a session can use.
use crate::common;

use common::{Case, error, with};
use dogwatch_core::settings::McpPlace;
use dogwatch_core::time::dur::Dur;

#[test]
fn the_mcp_server_is_on_by_default_and_can_proxy_other_servers() {
    let mcp = |yaml: &str| Case::file(&with(yaml)).load().unwrap().plan.nodes[0].settings.mcp.clone();
    assert!(mcp("credit: true").enabled);
    assert!(!mcp("mcp: false").enabled);
    assert!(!mcp("mcp: off").enabled);
    assert!(mcp("mcp: true").enabled);
    let mcp = mcp(
        "mcp: {servers: {a: {command: [x, y], timeout: 5s, tools: {t: {timeout: 2m}}, restart_after: 1}, b: {command: \"x 'y z'\"}}}",
    );
    let [a, b] = mcp.servers.as_slice() else { panic!("two servers") };
    assert_eq!(a.place, McpPlace::Command(vec!["x".into(), "y".into()]));
    assert_eq!((a.timeout, a.restart_after), (Dur::from_secs(5), 1));
    assert_eq!(a.tools, [("t".to_owned(), Dur::from_mins(2))]);
    assert_eq!(b.place, McpPlace::Command(vec!["x".into(), "y z".into()]));
    assert_eq!((b.timeout, b.restart_after), (Dur::from_secs(60), 3));
}

#[test]
fn a_key_over_plain_http_to_another_host_is_refused_unless_allowed() {
    let server = |rest: &str| format!("mcp: {{servers: {{far: {{{rest}}}}}}}");
    let header = "headers: {Authorization: \"Bearer x\"}";
    for host in [
        "tracker.example",
        "127.evil.example",
        "127.0.0.1.nip.io",
        "0127.0.0.1",
        "localhost.example",
        "[2001:db8::1]",
    ] {
        let plain = server(&format!("url: \"http://{host}/mcp\", {header}"));
        assert!(common::error(&plain).contains("sends a key over plain http"), "{plain}");
    }
    for name in ["Proxy-Authorization", "Cookie", "X-Api-Key", "X-Auth-Token", "x-access-key"] {
        let plain = server(&format!("url: \"http://tracker.example/mcp\", headers: {{{name}: x}}"));
        assert!(common::error(&plain).contains("sends a key over plain http"), "{plain}");
    }
    for fine in [
        format!("url: \"http://tracker.example/mcp\", {header}, insecure: true"),
        format!("url: \"https://tracker.example/mcp\", {header}"),
        format!("url: \"http://127.0.0.1:1/mcp\", {header}"),
        format!("url: \"http://127.9.9.9/mcp\", {header}"),
        format!("url: \"http://[::1]:1/mcp\", {header}"),
        format!("url: \"http://LocalHost/mcp\", {header}"),
        "url: \"http://tracker.example/mcp\", headers: {X-Project: x}".to_owned(),
        "url: \"http://tracker.example/mcp\"".to_owned(),
    ] {
        common::settings(&server(&fine));
    }
}

#[test]
fn a_server_with_a_url_can_have_headers_and_their_values_are_redacted() {
    let yaml = "mcp: {servers: {a: {url: \"https://h/x?k=${K}\", headers: {Authorization: \"Bearer ${KEY}\", X: plain}}}}";
    let loaded = Case::file(&with(yaml)).load().unwrap();
    let server = &loaded.plan.nodes[0].settings.mcp.servers[0];
    assert_eq!(server.place, McpPlace::Url("https://h/x?k=${K}".into()));
    let headers =
        [("Authorization", "Bearer ${KEY}"), ("X", "plain")].map(|(n, v)| (n.to_owned(), v.to_owned()));
    assert_eq!(server.headers, headers);
    let shown = loaded.plan.redacted();
    let server = &shown.nodes[0].settings.mcp.servers[0];
    assert_eq!(server.place, McpPlace::Url("https://h/x?***".into()));
    assert_eq!(server.headers, headers.map(|(name, _)| (name, "***".to_owned())));
}

#[test]
fn an_invalid_server_is_an_error_with_its_place() {
    for (yaml, message) in [
        ("mcp: 5", "3:6: `mcp` must be true, false, or a mapping with `servers`"),
        ("mcp: {server: {}}", "3:7: unknown key `server` in `mcp`"),
        ("mcp: {servers: [a]}", "3:16: `mcp.servers` must be a mapping from names to servers"),
        ("mcp: {servers: {a b: {command: [x]}}}", "3:17: `a b` is not a valid server name"),
        ("mcp: {servers: {dogwatch: {command: [x]}}}", "3:17: `dogwatch` is not a valid server name"),
        ("mcp: {servers: {a: {}}}", "3:17: `mcp.servers.a` needs a `command` or a `url`"),
        ("mcp: {servers: {a: {command: []}}}", "3:30: a server's `command` must be a list of words"),
        (
            "mcp: {servers: {a: {url: \"ftp://x\"}}}",
            "3:26: the server's `url` is malformed: not a URL; write `https://HOST/PATH`",
        ),
        (
            "mcp: {servers: {a: {url: \"http://me:pass@x\"}}}",
            "3:26: the server's `url` is malformed: a URL must not contain a user or password; use `headers`",
        ),
        (
            "mcp: {servers: {a: {url: \"http://x/${\"}}}",
            "3:26: the server's `url` is malformed: a variable is written `${NAME}`",
        ),
        (
            "mcp: {servers: {a: {command: [x], headers: {A: b}}}}",
            "3:44: only a server with a `url` can have `headers`",
        ),
        (
            "mcp: {servers: {a: {url: \"http://x\", headers: [A]}}}",
            "3:47: `mcp.servers.a.headers` must be a mapping of at most 32 headers",
        ),
        (
            "mcp: {servers: {a: {url: \"http://x\", headers: {\"A B\": b}}}}",
            "3:48: `A B` is not a valid header name",
        ),
        (
            "mcp: {servers: {a: {url: \"http://x\", headers: {Mcp-Session-Id: b}}}}",
            "3:48: the header `Mcp-Session-Id` is reserved for dogwatch",
        ),
        (
            "mcp: {servers: {a: {url: \"http://x\", headers: {A: \"b\\nc\"}}}}",
            "3:51: the value of `A` is malformed: it contains characters that are not allowed in a header",
        ),
        (
            "mcp: {servers: {a: {url: \"http://x\", headers: {A: \"${b\"}}}}",
            "3:51: the value of `A` is malformed: a variable is written `${NAME}`",
        ),
        (
            "mcp: {servers: {a: {command: [x], url: \"http://h\"}}}",
            "3:40: a server cannot have both `command` and `url`",
        ),
        ("mcp: {servers: {a: {command: [x], timout: 5s}}}", "3:35: unknown key `timout` in `mcp.servers.a`"),
        (
            "mcp: {servers: {a: {command: [x], tools: {t: {}}}}}",
            "3:43: `mcp.servers.a.tools.t` needs a `timeout`",
        ),
        (
            "mcp: {servers: {a: {command: [x], restart_after: 0}}}",
            "3:50: `restart_after` must be a whole number from 1 to 1000",
        ),
    ] {
        assert_eq!(error(yaml), message, "{yaml}");
    }
}
