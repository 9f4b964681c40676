//! Detects the end of a session: the session file is removed. Outside of the session's process tree there is no
//! other signal. A server that runs beside an agent also detects the exit of the agent's process.

use crate::bound::until;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// The size of the inotify buffer, in bytes: more than the few events of one file need.
const EVENTS: usize = 4096;

/// Watches for the end of a session.
pub struct SessionEnd {
    file: PathBuf,
    inotify: pipe::Receiver,
    /// The agent's pidfd, if this server runs beside an agent.
    agent: Option<pipe::Receiver>,
}

impl SessionEnd {
    /// Starts watching a session file and, optionally, the agent's pidfd.
    pub fn watch(file: &Path, agent: Option<OwnedFd>) -> io::Result<SessionEnd> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let flags = WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        inotify::add_watch(&inotify, file, flags)?;
        // Both descriptors become readable at the event, so they can be awaited like pipes.
        let agent = agent.map(pipe::Receiver::from_owned_fd_unchecked).transpose()?;
        Ok(SessionEnd {
            file: file.to_owned(),
            inotify: pipe::Receiver::from_owned_fd_unchecked(inotify)?,
            agent,
        })
    }

    /// Waits until the file is gone or the process has exited.
    pub async fn reached(mut self) {
        let process = self.agent.take();
        let gone = async {
            while self.file.exists() {
                // unbounded: until the session ends
                if self.inotify.read(&mut [0; EVENTS]).await.is_err() {
                    return;
                }
            }
        };
        match process {
            // unbounded: see above
            None => gone.await,
            Some(process) => {
                let ended = async {
                    // unbounded: until the agent exits
                    let _ = process.readable().await;
                };
                // unbounded: see above
                until(ended, gone).await;
            }
        }
    }
}
