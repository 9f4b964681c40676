//! Notifications and loopback addresses.

pub mod loopback;
pub mod notify;
