//! Writing without a buffer: what a step prints has left the process when the step is over.

use crate::script::Stream;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    All,
    /// Nobody reads any more.
    PipeClosed,
}

pub fn descriptor(stream: Stream) -> BorrowedFd<'static> {
    match stream {
        Stream::Stdin => rustix::stdio::stdin(),
        Stream::Stdout => rustix::stdio::stdout(),
        Stream::Stderr => rustix::stdio::stderr(),
    }
}

/// Writes everything, in as many pieces as the reader takes.
pub fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<Wrote> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(Errno::PIPE) => return Ok(Wrote::PipeClosed),
            // Whoever shares the pipe with us may have made it non-blocking.
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

/// The pipe's other end sees us gone, and the number stays taken: a file that is opened later cannot
/// become stdout by accident.
pub fn redirect_to_null(stream: Stream) -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    match stream {
        Stream::Stdin => rustix::stdio::dup2_stdin(&null)?,
        Stream::Stdout => rustix::stdio::dup2_stdout(&null)?,
        Stream::Stderr => rustix::stdio::dup2_stderr(&null)?,
    }
    Ok(())
}
