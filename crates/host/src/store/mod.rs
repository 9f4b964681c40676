//! The files that dogwatch keeps: journal, locks, registry, token, sockets, the address of the server, and copies of records
//! from other machines.

pub mod day;
pub mod fleet_job;
pub mod home;
pub mod journal;
pub mod learned;
pub mod lock;
pub mod mirror;
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
