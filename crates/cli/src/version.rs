//! The version of this build, as text and as JSON. `build.rs` determines the commit, the profile and the features.

use serde::Serialize;
use std::sync::OnceLock;

/// The version number.
pub const NUMBER: &str = env!("CARGO_PKG_VERSION");
/// The commit, or [`UNKNOWN`].
const COMMIT: &str = env!("DOGWATCH_BUILD_COMMIT");
/// The commit of a debug build, and of a build without a git repository.
const UNKNOWN: &str = "unknown";

/// Returns the version for `--version`: the number and the commit.
pub fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| match COMMIT {
        UNKNOWN => format!("{NUMBER} (commit unknown)"),
        commit => format!("{NUMBER} ({commit})"),
    })
}

/// The document that `dogwatch --version --json` prints. Fields are only added.
#[derive(Serialize)]
pub struct Version {
    version: &'static str,
    /// The commit, or `unknown`.
    commit: &'static str,
    /// The profile of the build.
    profile: &'static str,
    /// The optional features of the build.
    features: Vec<&'static str>,
}

impl Version {
    /// Returns the version of this program.
    pub fn this() -> Version {
        let features = env!("DOGWATCH_BUILD_FEATURES").split(',').filter(|name| !name.is_empty());
        Version {
            version: NUMBER,
            commit: COMMIT,
            profile: env!("DOGWATCH_BUILD_PROFILE"),
            features: features.collect(),
        }
    }
}
