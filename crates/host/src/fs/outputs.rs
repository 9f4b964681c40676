//! The files that our own stdout and stderr are redirected to. Writes to them are not an agent's work.

use rustix::fs::{FileType, fstat};
use std::path::PathBuf;

/// Returns the paths of the regular files behind descriptors 1 and 2. A file that was renamed or removed after it
/// was opened has no reliable path and is omitted.
pub fn own_files() -> Vec<PathBuf> {
    let outputs = [(1, rustix::stdio::stdout()), (2, rustix::stdio::stderr())];
    let paths = outputs.into_iter().filter_map(|(number, fd)| {
        let open = fstat(fd).ok().filter(|stat| FileType::from_raw_mode(stat.st_mode).is_file())?;
        let path = std::fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
        let named = rustix::fs::stat(&path).ok()?;
        ((open.st_dev, open.st_ino) == (named.st_dev, named.st_ino)).then_some(path)
    });
    paths.collect()
}
