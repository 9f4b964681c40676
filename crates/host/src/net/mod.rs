//! Notifications and loopback addresses.

/// Names of a server on a local port.
pub mod loopback;
/// Notifications by command and webhook.
pub mod notify;
