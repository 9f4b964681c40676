//! The files that dogwatch keeps: journal, locks, registry, token, sockets and the address of the server.

pub mod day;
pub mod home;
pub mod journal;
pub mod learned;
pub mod lock;
pub mod prices;
pub mod registry;
pub mod retire;
pub mod safe_file;
pub mod secrets;
pub mod serving;
pub mod sessions;
pub mod socket;
pub mod token;
pub mod windows;
