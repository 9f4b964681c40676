//! URLs of servers, parsed once: `https://HOST:PORT/PATH`. Also texts with `${NAME}`, which are filled in from the
//! environment where they are used, so that secrets stay out of files.

use std::fmt;

/// The longest URL, in bytes.
pub const MAX_ADDRESS: usize = 2048;

/// The parsed URL of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Whether the scheme is https; otherwise it is http.
    pub https: bool,
    /// The host name or IP address; `[::1]` without its brackets.
    pub host: String,
    /// The port, or the scheme's default port.
    pub port: u16,
    /// The host and the port as written.
    pub authority: String,
    /// The path, including the query.
    pub path: String,
}

/// Why a URL is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// The text is not a URL.
    NoUrl,
    /// The URL contains a user or password.
    HoldsPassword,
    /// The URL is longer than [`MAX_ADDRESS`].
    TooLong,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressError::NoUrl => f.write_str("not a URL; write `https://HOST/PATH`"),
            AddressError::HoldsPassword => f.write_str("a URL must not contain a user or password"),
            AddressError::TooLong => write!(f, "a URL has at most {MAX_ADDRESS} bytes"),
        }
    }
}

impl Address {
    /// Parses and validates a URL.
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        if text.len() > MAX_ADDRESS {
            return Err(AddressError::TooLong);
        }
        let (scheme, rest) = text.split_once("://").ok_or(AddressError::NoUrl)?;
        let https = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(AddressError::NoUrl),
        };
        let rest = rest.split('#').next().unwrap_or("");
        let plain =
            rest.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'\\' | b'"' | b'<' | b'>' | b'`'));
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(AddressError::HoldsPassword);
        }
        let (host, port) = host_and_port(authority).filter(|_| plain).ok_or(AddressError::NoUrl)?;
        Ok(Address {
            https,
            host: host.to_owned(),
            port: port.unwrap_or(if https { 443 } else { 80 }),
            authority: authority.to_owned(),
            path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
        })
    }
}

fn host_and_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            let port = if after.is_empty() { None } else { Some(after.strip_prefix(':')?) };
            (host.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.')).then_some(host)?, port)
        }
        None => {
            let (host, port) = authority.split_once(':').map_or((authority, None), |(h, p)| (h, Some(p)));
            let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
            (host.bytes().all(fine).then_some(host)?, port)
        }
    };
    let port = port.map(str::parse::<u16>).transpose().ok()?;
    (!host.is_empty() && port != Some(0)).then_some((host, port))
}

/// Why a text with variables cannot be filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FillError {
    /// A `${` is not followed by a name and `}`.
    Open,
    /// The variable with this name is not set.
    Missing(String),
}

impl fmt::Display for FillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FillError::Open => f.write_str("a variable is written `${NAME}`"),
            FillError::Missing(name) => write!(f, "the variable {name} is not set"),
        }
    }
}

/// Replaces every `${NAME}` in a text with the value of the variable.
pub fn fill(text: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, FillError> {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').ok_or(FillError::Open)?;
        let fine = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.bytes().all(fine) {
            return Err(FillError::Open);
        }
        filled.push_str(before);
        filled.push_str(&value(name).ok_or_else(|| FillError::Missing(name.to_owned()))?);
        rest = behind;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_parsed() {
        for (text, https, host, port, path) in [
            ("http://127.0.0.1:80/mcp", false, "127.0.0.1", 80, "/mcp"),
            ("https://example.com", true, "example.com", 443, "/"),
            ("HTTP://h?x=1", false, "h", 80, "/?x=1"),
            ("http://[::1]:9/a?b#c", false, "::1", 9, "/a?b"),
            ("https://[::1]", true, "::1", 443, "/"),
        ] {
            let found = Address::parse(text).expect(text);
            assert_eq!(
                (found.https, found.host.as_str(), found.port, found.path.as_str()),
                (https, host, port, path)
            );
        }
    }

    #[test]
    fn an_invalid_url_is_rejected() {
        for (text, bad) in [
            ("", AddressError::NoUrl),
            ("example.com/mcp", AddressError::NoUrl),
            ("ftp://h/", AddressError::NoUrl),
            ("http://", AddressError::NoUrl),
            ("http:///x", AddressError::NoUrl),
            ("http://h:x/", AddressError::NoUrl),
            ("http://h:0/", AddressError::NoUrl),
            ("http://h:70000/", AddressError::NoUrl),
            ("http://h/a b", AddressError::NoUrl),
            ("http://h/\r\nx", AddressError::NoUrl),
            ("http://[::1/", AddressError::NoUrl),
            ("http://[::1]x/", AddressError::NoUrl),
            ("http://me:pass@h/", AddressError::HoldsPassword),
        ] {
            assert_eq!(Address::parse(text), Err(bad), "{text}");
        }
        let long = |n: usize| Address::parse(&format!("http://h/{}", "x".repeat(n - 9)));
        assert!(long(MAX_ADDRESS).is_ok());
        assert_eq!(long(MAX_ADDRESS + 1), Err(AddressError::TooLong));
    }

    #[test]
    fn variables_are_filled_in() {
        let value = |name: &str| (name == "KEY").then(|| "secret".to_owned());
        assert_eq!(fill("Bearer ${KEY}!", value).as_deref(), Ok("Bearer secret!"));
        assert_eq!(fill("$KEY $ {KEY} ${KEY}${KEY}", value).as_deref(), Ok("$KEY $ {KEY} secretsecret"));
        assert_eq!(fill("${OTHER}", value), Err(FillError::Missing("OTHER".to_owned())));
        for open in ["${", "${}", "${KEY", "${a b}", "${1}"] {
            assert_eq!(fill(open, value), Err(FillError::Open), "{open}");
        }
    }
}
