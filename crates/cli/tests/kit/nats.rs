//! The NATS server of the tests, which `scripts/test` installs.

use std::path::{Path, PathBuf};

/// Returns the program of the server.
pub fn program() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("python-fleet");
    let program = dir.join("bin/nats-server");
    assert!(program.exists(), "`scripts/test` installs nats-server in {}; run it once", dir.display());
    program
}
