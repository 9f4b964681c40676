//! The names of a server on a local port. Any local process can connect to it, and any page in a browser can send
//! requests. The Host check rejects foreign names that resolve to this machine; the Origin check rejects other
//! pages.

use std::net::SocketAddr;

/// The names of one address: `127.0.0.1:3649` and `localhost:3649`.
#[derive(Clone, Debug)]
pub struct Names(Vec<String>);

impl Names {
    /// Returns the names of an address.
    pub fn of(address: SocketAddr) -> Names {
        let port = address.port();
        let mut names = vec![address.to_string(), format!("localhost:{port}")];
        // Browsers omit the default port.
        if port == 80 {
            names.extend([bare(address), "localhost".to_owned()]);
        }
        Names(names)
    }

    /// Iterates over the names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns whether a request is addressed to this server: by its single Host header, and by the authority of an
    /// absolute request target, if there is one.
    pub fn are_meant<'a>(&self, mut hosts: impl Iterator<Item = &'a [u8]>, authority: Option<&str>) -> bool {
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        authority.is_none_or(|named| self.hold(named.as_bytes())) && self.hold(host)
    }

    /// Returns whether all origins are pages of this server. Clients other than browsers send no Origin.
    pub fn own_all<'a>(&self, mut origins: impl Iterator<Item = &'a [u8]>) -> bool {
        origins.all(|origin| origin.strip_prefix(b"http://").is_some_and(|host| self.hold(host)))
    }

    fn hold(&self, given: &[u8]) -> bool {
        self.0.iter().any(|name| given.eq_ignore_ascii_case(name.as_bytes()))
    }
}

fn bare(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(a) => a.ip().to_string(),
        SocketAddr::V6(a) => format!("[{}]", a.ip()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(address: &str) -> Names {
        Names::of(address.parse().expect("an address"))
    }

    fn is_meant(names: &Names, hosts: &[&str], authority: Option<&str>) -> bool {
        names.are_meant(hosts.iter().map(|h| h.as_bytes()), authority)
    }

    #[test]
    fn a_request_has_exactly_one_host_and_it_is_ours() {
        let ours = names("127.0.0.1:3649");
        assert!(is_meant(&ours, &["127.0.0.1:3649"], None));
        assert!(is_meant(&ours, &["LocalHost:3649"], Some("127.0.0.1:3649")));
        for hosts in
            [&[][..], &["evil.example:3649"], &["localhost"], &["localhost:3650"], &["localhost:3649"; 2]]
        {
            assert!(!is_meant(&ours, hosts, None), "{hosts:?}");
        }
        assert!(!is_meant(&ours, &["localhost:3649"], Some("evil.example")));
    }

    #[test]
    fn the_default_port_may_be_omitted() {
        assert!(is_meant(&names("127.0.0.1:80"), &["localhost"], None));
        assert!(is_meant(&names("[::1]:80"), &["[::1]"], None));
        assert!(!is_meant(&names("[::1]:81"), &["[::1]"], None));
    }

    #[test]
    fn other_origins_are_rejected() {
        let ours = names("127.0.0.1:3649");
        let own = |origins: &[&str]| ours.own_all(origins.iter().map(|o| o.as_bytes()));
        assert!(own(&[]) && own(&["http://localhost:3649"]));
        for origin in ["null", "https://localhost:3649", "http://evil.example", "http://localhost", ""] {
            assert!(!own(&[origin]), "{origin}");
        }
        assert!(!own(&["http://localhost:3649", "http://evil.example"]));
    }
}
