//! Unbuffered output: everything a step prints is written before the step ends.

use crate::script::Stream;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    All,
    /// The reader has closed the pipe.
    PipeClosed,
}

/// Returns the file descriptor of a stream.
pub fn descriptor(stream: Stream) -> BorrowedFd<'static> {
    match stream {
        Stream::Stdin => rustix::stdio::stdin(),
        Stream::Stdout => rustix::stdio::stdout(),
        Stream::Stderr => rustix::stdio::stderr(),
    }
}

/// Writes all bytes, in as many pieces as necessary.
pub fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<Wrote> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(Errno::PIPE) => return Ok(Wrote::PipeClosed),
            // Another process may have made the shared pipe non-blocking.
            Err(Errno::AGAIN) => wait_until_writable(to)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Wrote::All)
}

fn wait_until_writable(to: BorrowedFd<'_>) -> io::Result<()> {
    match poll(&mut [PollFd::new(&to, PollFlags::OUT)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Redirects a stream to `/dev/null`. The other end of the pipe sees it closed, and the descriptor number stays in use,
/// so that a file opened later cannot become stdout by accident.
pub fn redirect_to_null(stream: Stream) -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    match stream {
        Stream::Stdin => rustix::stdio::dup2_stdin(&null)?,
        Stream::Stdout => rustix::stdio::dup2_stdout(&null)?,
        Stream::Stderr => rustix::stdio::dup2_stderr(&null)?,
    }
    Ok(())
}
