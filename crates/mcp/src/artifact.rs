//! Artifacts: texts that an agent saves next to its session's record.

use crate::bound::within;
use crate::limits::DISK_LIMIT;
use dogwatch_host::store::safe_file;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Writes it whole or not at all. The name has been looked at: it is one, and no path.
pub async fn keep(dir: &Path, name: &str, content: String) -> io::Result<PathBuf> {
    let (dir, path) = (dir.to_owned(), dir.join(name));
    let kept = path.clone();
    let written = tokio::task::spawn_blocking(move || write(&dir, &path, content.as_bytes()));
    within(DISK_LIMIT, written).await?.map_err(io::Error::other)??;
    Ok(kept)
}

fn write(dir: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let new = dir.join(format!(".{}.new", std::process::id()));
    let mut file = safe_file::create(&new, safe_file::PRIVATE)?;
    // unbounded: on a separate thread, which is waited for within a limit
    file.write_all(content)?;
    std::fs::rename(&new, path)
}
