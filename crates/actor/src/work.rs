//! Operations on files and FIFOs: the agent's work, and handshakes with tests.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::SystemTime;

/// Appends to a file, creating it if necessary.
pub fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    File::options().append(true).create(true).open(path)?.write_all(bytes)
}

/// Creates a file, or updates its modification time.
pub fn touch(path: &Path) -> io::Result<()> {
    let file = File::options().append(true).create(true).open(path)?;
    file.set_modified(SystemTime::now())
}

/// Removes a file or an empty directory, if it exists.
pub fn remove(path: &Path) -> io::Result<()> {
    let gone = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => std::fs::remove_dir(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    gone.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Creates a file and returns whether it did not exist. Only one of several concurrent callers gets true.
pub fn create_new(path: &Path) -> io::Result<bool> {
    match File::options().write(true).create_new(true).open(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Increments the number in a file and returns it.
pub fn count_up(path: &Path) -> io::Result<u64> {
    let before = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let before: u64 = match before.trim() {
        "" => 0,
        text => text
            .parse()
            .map_err(|_| io::Error::other(format!("{} does not contain a number", path.display())))?,
    };
    let now = before.saturating_add(1);
    std::fs::write(path, format!("{now}\n"))?;
    Ok(now)
}

/// Writes the pid to a file. On a FIFO this waits for a reader.
pub fn ready(path: &Path) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(true).open(path)?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
}

/// Reads a file to the end. On a FIFO this waits for a writer, then for the last writer to close it.
pub fn await_end(path: &Path) -> io::Result<()> {
    io::copy(&mut File::open(path)?, &mut io::sink()).map(drop)
}

/// Opens a FIFO for writing, deliberately without close-on-exec, so that child processes hold it open too.
pub fn hold(path: &Path) -> io::Result<OwnedFd> {
    loop {
        match rustix::fs::open(path, OFlags::WRONLY, Mode::empty()) {
            Err(Errno::INTR) => {}
            opened => return Ok(opened?),
        }
    }
}

/// Reads a descriptor to the end without closing it.
pub fn read_to_end(from: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    // Read from a duplicate, so that dropping the file does not close stdin.
    File::from(from.try_clone_to_owned()?).read_to_end(&mut all)?;
    Ok(all)
}
