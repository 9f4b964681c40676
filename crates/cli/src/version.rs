//! The version of this program.

use std::sync::OnceLock;

/// The version number.
pub const NUMBER: &str = env!("CARGO_PKG_VERSION");

/// Returns the commit that this program was built from. `scripts/package` sets it; other builds have none.
pub fn commit() -> Option<&'static str> {
    option_env!("DOGWATCH_COMMIT").filter(|commit| !commit.is_empty())
}

/// Returns the version for `--version`: the number, and the commit if it is known.
pub fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| match commit() {
        Some(commit) => format!("{NUMBER} ({commit})"),
        None => NUMBER.to_owned(),
    })
}
