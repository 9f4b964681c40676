//! The join line: everything that a worker or an operator needs to connect, in one line.
//!
//! `dogwatch+tls://USER:SECRET@HOST:PORT[,HOST:PORT…]/ACCOUNT[,ACCOUNT…]?ca=CERTIFICATE`, where the certificate is
//! DER in base64url. `dogwatch+tcp://` is the same without TLS, for this machine only.

use crate::names::Name;
use std::fmt;
use std::str::FromStr;

/// The longest join line, in bytes.
pub const MAX_LINE: usize = 16 * 1024;
/// The variable that may hold a join line or the name of a file with one.
pub const VARIABLE: &str = "DOGWATCH_FLEET";

/// A join line.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinLine {
    /// The servers, as `host:port`.
    pub servers: Vec<String>,
    /// The user, which is also the name of the worker.
    pub user: Name,
    /// The secret. Empty if the server asks for none.
    pub secret: String,
    /// The accounts that the worker serves. An operator's line names none.
    pub accounts: Vec<Name>,
    /// The certificate of the fleet's authority in DER. Without one the connection is not encrypted.
    pub ca: Option<Vec<u8>>,
}

/// Why a text is not a join line. The message never contains the text, which holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// It starts differently.
    #[error("not a join line: it must start with `dogwatch+tls://`")]
    Scheme,
    /// It is too long.
    #[error("the join line is longer than {MAX_LINE} bytes")]
    TooLong,
    /// The part before the `@` is missing.
    #[error("the join line names no user; it may be cut short")]
    NoUser,
    /// A name in it is not valid.
    #[error("the join line names `{0}`, which is not a valid name")]
    BadName(String),
    /// A server is not valid.
    #[error("the join line names the server `{0}`; expected `host:port`")]
    BadServer(String),
    /// The certificate is missing or not valid.
    #[error("the join line has no valid certificate (`?ca=`); it may be cut short")]
    BadCertificate,
    /// The connection would not be encrypted.
    #[error("`dogwatch+tcp://` is for this machine only, and `{0}` is another one")]
    NotLocal(String),
}

impl fmt::Debug for JoinLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinLine({}@{})", self.user, self.servers.join(","))
    }
}

impl fmt::Display for JoinLine {
    /// Prints the line with its secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.ca.is_some() { "tls" } else { "tcp" };
        let accounts: Vec<&str> = self.accounts.iter().map(Name::as_str).collect();
        write!(
            f,
            "dogwatch+{scheme}://{}:{}@{}/{}",
            self.user,
            self.secret,
            self.servers.join(","),
            accounts.join(",")
        )?;
        match &self.ca {
            Some(der) => write!(f, "?ca={}", encode(der)),
            None => Ok(()),
        }
    }
}

impl FromStr for JoinLine {
    type Err = JoinError;

    fn from_str(text: &str) -> Result<JoinLine, JoinError> {
        let text = text.trim();
        if text.len() > MAX_LINE {
            return Err(JoinError::TooLong);
        }
        let (tls, rest) = match (text.strip_prefix("dogwatch+tls://"), text.strip_prefix("dogwatch+tcp://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(JoinError::Scheme),
        };
        let (rest, ca) = match rest.split_once("?ca=") {
            Some((rest, ca)) => {
                (rest, Some(decode(ca).filter(|der| is_whole(der)).ok_or(JoinError::BadCertificate)?))
            }
            None => (rest, None),
        };
        let (login, rest) = rest.split_once('@').ok_or(JoinError::NoUser)?;
        let (user, secret) = login.split_once(':').unwrap_or((login, ""));
        let (servers, accounts) = rest.split_once('/').unwrap_or((rest, ""));
        let name = |text: &str| text.parse::<Name>().map_err(|error| JoinError::BadName(error.0));
        let servers: Vec<String> = servers.split(',').map(str::to_owned).collect();
        for server in &servers {
            let (host, port) = server.rsplit_once(':').unwrap_or((server, ""));
            if host.is_empty() || port.parse::<u16>().is_err() || server.contains(char::is_whitespace) {
                return Err(JoinError::BadServer(server.clone()));
            }
            if !tls && !matches!(host, "127.0.0.1" | "localhost" | "[::1]") {
                return Err(JoinError::NotLocal(host.to_owned()));
            }
        }
        if tls != ca.is_some() {
            return Err(JoinError::BadCertificate);
        }
        let accounts = accounts.split(',').filter(|account| !account.is_empty()).map(name);
        Ok(JoinLine {
            user: name(user)?,
            secret: secret.to_owned(),
            accounts: accounts.collect::<Result<_, _>>()?,
            servers,
            ca,
        })
    }
}

/// Returns whether a certificate in DER has the length that its first bytes name.
fn is_whole(der: &[u8]) -> bool {
    const SEQUENCE: u8 = 0x30;
    let Some(([tag, first], rest)) = der.split_first_chunk::<2>() else { return false };
    // Seven bits are a length, or the number of bytes that hold it.
    let long = usize::from(first & 0x7f);
    let (length, content) = match first & 0x80 {
        0 => (long, rest),
        _ if long <= 4 && long <= rest.len() => {
            let (bytes, content) = rest.split_at(long);
            (bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), content)
        }
        _ => return false,
    };
    *tag == SEQUENCE && length == content.len()
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Encodes bytes as base64url without padding.
pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = 0_u32;
        for at in 0..3 {
            group = group << 8 | u32::from(chunk.get(at).copied().unwrap_or(0));
        }
        for at in 0..=chunk.len() {
            let digit = (group >> (18 - 6 * at)) & 63;
            out.push(char::from(DIGITS[digit as usize]));
        }
    }
    out
}

/// Decodes base64url without padding.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut group, mut bits) = (0_u32, 0_u32);
    for byte in text.bytes() {
        let digit = DIGITS.iter().position(|digit| *digit == byte)?;
        group = (group << 6 | u32::try_from(digit).ok()?) & 0xfff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((group >> bits & 0xff) as u8);
        }
    }
    (bits < 6).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_line_survives_printing_and_parsing() {
        for ca in [Some(vec![0x30, 0x82, 0x00, 0x02, 0xff, 0x00]), None] {
            let line = JoinLine {
                servers: vec!["127.0.0.1:4222".into(), "localhost:4223".into()],
                user: "anna".parse().expect("a name"),
                secret: "s3cret".into(),
                accounts: vec!["acme".parse().expect("a name"), "corp".parse().expect("a name")],
                ca,
            };
            assert_eq!(line.to_string().parse(), Ok(line));
        }
    }

    #[test]
    fn a_join_line_without_encryption_is_for_this_machine_only() {
        let line = "dogwatch+tcp://anna@example.org:4222/acme";
        assert_eq!(line.parse::<JoinLine>(), Err(JoinError::NotLocal("example.org".into())));
        assert!("dogwatch+tcp://anna@127.0.0.1:4222/acme".parse::<JoinLine>().is_ok());
    }

    #[test]
    fn a_bad_join_line_is_refused_without_showing_its_secret() {
        for bad in [
            "nats://x:hidden@h:1/a",
            "dogwatch+tls://anna:hidden@h:1/a",
            "dogwatch+tls://anna:hidden@h/a?ca=AA",
            "dogwatch+tls://h:1/a?ca=AA",
            "dogwatch+tls://anna:hidden@h:1/A?ca=AA",
            "dogwatch+tls://anna:hidden@h:1/a?ca=A",
            "",
        ] {
            let error = bad.parse::<JoinLine>().expect_err(bad).to_string();
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn a_join_line_that_is_cut_short_anywhere_says_so() {
        let ca = encode(&[&[0x30, 0x82, 0x01, 0x00][..], &[7; 256]].concat());
        let line = format!("dogwatch+tls://anna:hidden@h:4222/acme?ca={ca}");
        assert!(line.parse::<JoinLine>().is_ok());
        // A shorter port is still a port.
        for end in (16..line.len()).filter(|end| !line[..*end].ends_with(['@', 'h', ':'])) {
            let error = line[..end].parse::<JoinLine>().expect_err(&line[..end]).to_string();
            assert!(error.contains("it may be cut short"), "{end}: {error}");
        }
    }

    #[test]
    fn base64url_is_decoded_to_what_was_encoded() {
        for len in 0..40_usize {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 37 + len) as u8).collect();
            assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }
    }
}
