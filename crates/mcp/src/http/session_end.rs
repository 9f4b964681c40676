//! How the end of a session is seen from outside of its process tree: its file is removed with it. And how the end of
//! the agent is seen by who stands agent it.

use crate::bound::until;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// More than the few events that can come of one file take.
const EVENTS: usize = 4096;

pub struct SessionEnd {
    file: PathBuf,
    inotify: pipe::Receiver,
    /// The agent's process, if this stands agent it.
    agent: Option<pipe::Receiver>,
}

impl SessionEnd {
    /// Sees the end of the session with this file, or of the process that the system has opened.
    pub fn watch(file: &Path, agent: Option<OwnedFd>) -> io::Result<SessionEnd> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let flags = WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        inotify::add_watch(&inotify, file, flags)?;
        // They are waited for as a pipe is: what comes is of no interest but that it comes.
        let agent = agent.map(pipe::Receiver::from_owned_fd_unchecked).transpose()?;
        Ok(SessionEnd {
            file: file.to_owned(),
            inotify: pipe::Receiver::from_owned_fd_unchecked(inotify)?,
            agent,
        })
    }

    /// Returns when the file is gone, or the process.
    pub async fn wait(mut self) {
        let process = self.agent.take();
        let gone = async {
            while self.file.exists() {
                // unbounded: the session lasts as long as it lasts
                if self.inotify.read(&mut [0; EVENTS]).await.is_err() {
                    return;
                }
            }
        };
        match process {
            // unbounded: as above
            None => gone.await,
            Some(process) => {
                let ended = async {
                    // unbounded: the agent lives as long as it lives
                    let _ = process.readable().await;
                };
                // unbounded: as above
                until(ended, gone).await;
            }
        }
    }
}
