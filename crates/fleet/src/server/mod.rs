//! The operator's side of a fleet: its users, the files of the server, and checks of the server.
//!
//! Everything here is pure. `dogwatch fleet` reads and writes the files and runs the server.

pub mod audit;
pub mod book;
pub mod config;

pub use audit::{Fault, Version};
pub use book::{Book, BookError, Listen, Role, User};

/// The file with the fleet's book, in the fleet's directory.
pub const BOOK: &str = "fleet.json";
/// The configuration of the server.
pub const CONFIG: &str = "nats.conf";
/// The users of the server, which the configuration includes.
pub const USERS: &str = "users.conf";
/// The join line of the operator.
pub const OPERATOR_LINE: &str = "operator.join";
/// The certificate of the fleet's own authority.
pub const CA: &str = "ca.pem";
/// The same certificate in DER, as join lines contain it.
pub const CA_DER: &str = "ca.der";
/// The key of the authority.
pub const CA_KEY: &str = "ca.key";
/// The certificate of the server.
pub const CERTIFICATE: &str = "server.pem";
/// The key of the server.
pub const KEY: &str = "server.key";
/// The file in which the running server writes its process id.
pub const PID: &str = "nats.pid";
/// The directory of streams and buckets.
pub const DATA: &str = "data";
