//! The fleet's book: its name, the address of its server, and its users.

use crate::join::JoinLine;
use crate::names::Name;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The version of the book.
const VERSION: u32 = 1;
/// The name of the operator's user.
pub const OPERATOR: &str = "operator";
/// The most users of a fleet. The server accepts a few connections more.
pub const MAX_USERS: usize = 4_000;
/// The most accounts of one worker.
pub const MAX_ACCOUNTS: usize = 64;

/// Where the server listens, as workers reach it: `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Listen {
    /// The host name or address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Listen {
    /// Returns whether only this machine can connect.
    pub fn is_local(&self) -> bool {
        matches!(self.host.as_str(), "localhost" | "127.0.0.1" | "[::1]")
    }

    /// Returns the host as a name in a certificate: `DNS:box1`, `IP:10.0.0.7`.
    pub fn certified_name(&self) -> String {
        let bare = self.host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<std::net::IpAddr>() {
            Ok(address) => format!("IP:{address}"),
            Err(_) => format!("DNS:{bare}"),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let wrong = || "expected a host and a port, for example box1.example.org:4222".to_owned();
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_address = bare.is_some_and(|bare| bare.parse::<std::net::Ipv6Addr>().is_ok());
        let is_name = !host.is_empty()
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
            && !host.starts_with('-');
        if is_address || is_name { Ok(Listen { host: host.to_owned(), port }) } else { Err(wrong()) }
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Listen, String> {
        text.parse()
    }
}

impl From<Listen> for String {
    fn from(listen: Listen) -> String {
        listen.to_string()
    }
}

/// The rights of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything: queue jobs, steer, watch.
    Operator,
    /// Run jobs of its accounts.
    Worker,
}

/// A user of the server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The name.
    pub name: Name,
    /// Its rights.
    pub role: Role,
    /// The secret.
    pub secret: String,
    /// The accounts of a worker.
    #[serde(default)]
    pub accounts: Vec<Name>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "User({}, {:?})", self.name, self.role)
    }
}

/// The fleet's book.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Book {
    v: u32,
    /// The name of the fleet.
    pub name: Name,
    /// Where the server listens.
    pub listen: Listen,
    /// The users, the operator first.
    pub users: Vec<User>,
}

/// Why the book cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BookError {
    /// A user has this name.
    #[error("`{0}` has already joined")]
    Taken(Name),
    /// No worker has this name.
    #[error("worker `{0}` does not exist")]
    Unknown(Name),
    /// A worker without accounts could run nothing.
    #[error("a worker needs at least one account")]
    NoAccount,
    /// The fleet has too many users, or a worker too many accounts.
    #[error("a fleet has at most {MAX_USERS} workers with {MAX_ACCOUNTS} accounts each")]
    TooMany,
}

impl Book {
    /// Returns the workers that have joined.
    pub fn workers(&self) -> impl Iterator<Item = &User> {
        self.users.iter().filter(|user| user.role == Role::Worker)
    }

    /// Returns the book of a new fleet, with its operator.
    pub fn new(name: Name, listen: Listen, operator: Name, secret: String) -> Book {
        let operator = User { name: operator, role: Role::Operator, secret, accounts: Vec::new() };
        Book { v: VERSION, name, listen, users: vec![operator] }
    }

    /// Reads a book.
    pub fn parse(text: &[u8]) -> Result<Book, String> {
        let book: Book = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        if book.v == VERSION {
            Ok(book)
        } else {
            Err(format!("it has version {}, expected {VERSION}", book.v))
        }
    }

    /// Adds a worker.
    pub fn add_worker(
        &mut self,
        name: Name,
        mut accounts: Vec<Name>,
        secret: String,
    ) -> Result<(), BookError> {
        accounts.sort();
        accounts.dedup();
        if self.users.iter().any(|user| user.name == name) {
            return Err(BookError::Taken(name));
        }
        if accounts.is_empty() {
            return Err(BookError::NoAccount);
        }
        if self.users.len() > MAX_USERS || accounts.len() > MAX_ACCOUNTS {
            return Err(BookError::TooMany);
        }
        self.users.push(User { name, role: Role::Worker, secret, accounts });
        Ok(())
    }

    /// Removes a worker and returns it.
    pub fn remove_worker(&mut self, name: &Name) -> Result<User, BookError> {
        let at = self.users.iter().position(|user| user.name == *name && user.role == Role::Worker);
        at.map(|at| self.users.remove(at)).ok_or_else(|| BookError::Unknown(name.clone()))
    }

    /// Returns the accounts of all workers.
    pub fn accounts(&self) -> Vec<Name> {
        let mut all: Vec<Name> = self.users.iter().flat_map(|user| user.accounts.clone()).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Returns the operator.
    pub fn operator(&self) -> Option<&User> {
        self.users.iter().find(|user| user.role == Role::Operator)
    }

    /// Returns the join line of a user.
    pub fn line(&self, user: &User, ca: Vec<u8>) -> JoinLine {
        JoinLine {
            servers: vec![self.listen.to_string()],
            user: user.name.clone(),
            secret: user.secret.clone(),
            accounts: user.accounts.clone(),
            ca: Some(ca),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn book() -> Book {
        let listen = "box1:4222".parse().expect("a place");
        Book::new(name("night"), listen, name(OPERATOR), "first".into())
    }

    #[test]
    fn a_worker_joins_once_and_leaves_once() {
        let mut book = book();
        let accounts = vec![name("beta"), name("acme"), name("beta")];
        assert_eq!(book.add_worker(name("anna"), accounts, "second".into()), Ok(()));
        assert_eq!(book.accounts(), [name("acme"), name("beta")]);
        let again = book.add_worker(name("anna"), vec![name("acme")], "third".into());
        assert_eq!(again, Err(BookError::Taken(name("anna"))));
        assert_eq!(book.add_worker(name("bert"), vec![], "x".into()), Err(BookError::NoAccount));
        let line = book.line(&book.users[1], vec![1, 2, 3]).to_string();
        assert_eq!(line, "dogwatch+tls://anna:second@box1:4222/acme,beta?ca=AQID");
        assert_eq!(Book::parse(&serde_json::to_vec(&book).expect("JSON")), Ok(book.clone()));
        assert_eq!(book.remove_worker(&name("anna")).map(|user| user.secret).as_deref(), Ok("second"));
        assert_eq!(book.remove_worker(&name("anna")), Err(BookError::Unknown(name("anna"))));
        assert_eq!(book.remove_worker(&name(OPERATOR)), Err(BookError::Unknown(name(OPERATOR))));
    }

    #[test]
    fn the_secrets_of_a_book_are_not_in_its_debug_text() {
        assert!(!format!("{:?}", book()).contains("first"));
    }

    #[test]
    fn a_place_is_a_host_and_a_port() {
        let certified = |text: &str| text.parse::<Listen>().map(|listen| listen.certified_name());
        assert_eq!(certified("box1.example.org:4222").as_deref(), Ok("DNS:box1.example.org"));
        assert_eq!(certified("10.0.0.7:4222").as_deref(), Ok("IP:10.0.0.7"));
        assert_eq!(certified("[::1]:4222").as_deref(), Ok("IP:::1"));
        for wrong in
            ["", "box1", "box1:", ":4222", "box1:0", "box1:99999", "a b:1", "-x:1", "::1:4222", "a\"b:1"]
        {
            assert!(wrong.parse::<Listen>().is_err(), "{wrong}");
        }
    }
}
