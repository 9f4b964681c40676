//! What a server on a port of this machine may be called. Every process of the machine can knock there, and every
//! page of a browser can send: Host keeps away names that were made to lead here, Origin keeps away other pages.

use std::net::SocketAddr;

/// The names of one address: `127.0.0.1:3649` and `localhost:3649`.
#[derive(Clone, Debug)]
pub struct Names(Vec<String>);

impl Names {
    pub fn of(address: SocketAddr) -> Names {
        let port = address.port();
        let mut names = vec![address.to_string(), format!("localhost:{port}")];
        // Browsers leave the port out where everybody knows it.
        if port == 80 {
            names.extend([bare(address), "localhost".to_owned()]);
        }
        Names(names)
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether a request is meant for this address: by its one Host, and by the host of a whole address that stands
    /// where a path should.
    pub fn are_meant<'a>(&self, mut hosts: impl Iterator<Item = &'a [u8]>, authority: Option<&str>) -> bool {
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        authority.is_none_or(|named| self.hold(named.as_bytes())) && self.hold(host)
    }

    /// Whether it comes from a page of this address. Who is no browser sends no Origin.
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
    fn a_request_names_us_once_and_nobody_else() {
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
    fn the_port_that_everybody_knows_may_be_left_out() {
        assert!(is_meant(&names("127.0.0.1:80"), &["localhost"], None));
        assert!(is_meant(&names("[::1]:80"), &["[::1]"], None));
        assert!(!is_meant(&names("[::1]:81"), &["[::1]"], None));
    }

    #[test]
    fn another_page_is_none_of_ours() {
        let ours = names("127.0.0.1:3649");
        let own = |origins: &[&str]| ours.own_all(origins.iter().map(|o| o.as_bytes()));
        assert!(own(&[]) && own(&["http://localhost:3649"]));
        for origin in ["null", "https://localhost:3649", "http://evil.example", "http://localhost", ""] {
            assert!(!own(&[origin]), "{origin}");
        }
        assert!(!own(&["http://localhost:3649", "http://evil.example"]));
    }
}
