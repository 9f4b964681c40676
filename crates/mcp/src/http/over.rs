//! How the end of a session is seen from outside of its process tree: its file is removed with it. And how the end of
//! the agent is seen by who stands beside it.

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// More than the few events that can come of one file take.
const EVENTS: usize = 4096;

pub struct Over {
    file: PathBuf,
    watch: pipe::Receiver,
}

impl Over {
    pub fn of(file: &Path) -> io::Result<Over> {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let flags = WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        inotify::add_watch(&watch, file, flags)?;
        // It is read as a pipe is: what comes is of no interest but that it comes.
        Ok(Over { file: file.to_owned(), watch: pipe::Receiver::from_owned_fd_unchecked(watch)? })
    }

    /// Returns when the file is gone.
    pub async fn seen(mut self) {
        while self.file.exists() {
            // unbounded: the session lasts as long as it lasts
            if self.watch.read(&mut [0; EVENTS]).await.is_err() {
                return;
            }
        }
    }
}

/// A process, by what the system opens for it.
pub struct Neighbour(pipe::Receiver);

impl Neighbour {
    pub fn new(process: OwnedFd) -> io::Result<Neighbour> {
        // Nothing is read of it; it is readable when the process has ended.
        Ok(Neighbour(pipe::Receiver::from_owned_fd_unchecked(process)?))
    }

    pub async fn gone(self) {
        // unbounded: the agent lives as long as it lives
        let _ = self.0.readable().await;
    }
}
