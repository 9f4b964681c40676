//! Copies output: one thread per stream, from the command's pipe to our own stdout or stderr, without delay.
//!
//! A copier reads, passes the bytes to the listener, and writes. When the reader of our output is slow, the copier
//! blocks in the write and the command is held up, as with any pipe; no other thread waits for a copier. When the
//! reader is gone, the copier closes the command's pipe, and the command's next write fails as it would without us.
//! Any other write error (a full disk) is remembered and reported at the end. The command continues, and later
//! output is written if there is space again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dogwatch_agents::Listener;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::feed::{FeedItem, Input, Stream};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::clock;

/// The size of one read: a whole pipe of the usual size. A larger buffer or pipe pushes the bytes out of the
/// processor's cache, and copying a gigabyte then takes twice as long.
const BUFFER: usize = 64 * 1024;
/// The most facts that may wait for the watchdog. Beyond this, output arrives faster than it can be judged, and the
/// copier waits.
const MAX_WAITING: usize = 10_000;
/// How long a copier waits for the watchdog before it checks again.
const WAIT: Duration = Duration::from_secs(1);

/// The state shared between the copiers and the main thread.
#[derive(Clone)]
pub struct CopyState(Arc<Shared>);

struct Shared {
    bell: OwnedFd,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    listener: Listener,
    pipes: [Pipe; 2],
    /// Whether the workspace has changed.
    stirred: bool,
}

#[derive(Default)]
struct Pipe {
    /// The read end of the pipe; `None` once closed.
    fd: Option<Arc<OwnedFd>>,
    /// Since when the reader of our output has blocked a write.
    writing: Option<Awake>,
    /// Whether the last byte was not a newline.
    midline: bool,
    /// The first write error that lost output.
    lost: Option<Errno>,
}

impl CopyState {
    /// Creates the shared state for one command.
    pub fn new(listener: Listener) -> io::Result<CopyState> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let state = Mutex::new(State { listener, pipes: Default::default(), stirred: false });
        Ok(CopyState(Arc::new(Shared { bell, state, changed: Condvar::new() })))
    }

    /// Creates a pipe, starts copying from it, and returns the command's end.
    pub fn copy(&self, stream: Stream) -> io::Result<OwnedFd> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        let flags = rustix::fs::fcntl_getfl(&ours)?;
        // The flag belongs to our end of the pipe only; the command's end stays blocking.
        rustix::fs::fcntl_setfl(&ours, flags | rustix::fs::OFlags::NONBLOCK)?;
        let fd = Arc::new(ours);
        self.lock().pipes[stream as usize].fd = Some(Arc::clone(&fd));
        let copier = Copier { copy_state: self.clone(), stream, fd, buffer: vec![0; BUFFER] };
        std::thread::Builder::new().name("copy".into()).spawn(move || copier.run())?;
        Ok(theirs)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Ignore poisoning: the panic was already reported and the data is still valid.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the main thread.
    pub fn ring(&self) {
        // The write fails only when the counter is full. Then the main thread is woken anyway.
        let _ = rustix::io::write(&self.0.bell, &1_u64.to_ne_bytes());
    }

    /// Resets the bell.
    pub fn quiet(&self) {
        let _ = rustix::io::read(&self.0.bell, &mut [0_u8; 8]);
    }

    /// Takes what was read since the last call.
    pub fn take_items(&self) -> Vec<FeedItem> {
        let items = self.lock().listener.take();
        self.0.changed.notify_all();
        items
    }

    /// Runs `act` on the locked listener.
    pub fn with<T>(&self, act: impl FnOnce(&mut Listener) -> T) -> T {
        act(&mut self.lock().listener)
    }

    /// Notes a change in the workspace and wakes the main thread.
    pub fn workspace_changed(&self, digest: Option<u64>) {
        let mut state = self.lock();
        state.listener.feed().take(clock::awake(), Input::Workspace { path: None, digest });
        state.stirred = true;
        drop(state);
        self.ring();
    }

    /// Notes `count` actions of subagents and wakes the main thread.
    pub fn subagents_did(&self, count: u64) {
        self.lock().listener.feed().take(clock::awake(), Input::Subagents { count });
        self.ring();
    }

    /// Returns whether the workspace has changed since the last call.
    pub fn stirred(&self) -> bool {
        std::mem::take(&mut self.lock().stirred)
    }

    /// Returns whether both pipes are closed and all their output is written.
    pub fn closed(&self) -> bool {
        self.lock().pipes.iter().all(|pipe| pipe.fd.is_none())
    }

    /// Returns whether output is left to write.
    pub fn pending(&self) -> bool {
        self.lock().pipes.iter().any(|pipe| pipe.writing.is_some() || pipe.waits() > 0)
    }

    /// Returns how long the reader of our output has blocked us.
    pub fn held_up(&self, now: Awake) -> Dur {
        let since = self.lock().pipes.iter().filter_map(|pipe| pipe.writing).min();
        since.map_or(Dur::ZERO, |since| now.since(since))
    }

    /// Returns the first write error that lost output, for each stream.
    pub fn lost(&self) -> Vec<(Stream, Errno)> {
        let state = self.lock();
        let lost = |stream| state.pipes[stream as usize].lost.map(|error| (stream, error));
        [Stream::Stdout, Stream::Stderr].into_iter().filter_map(lost).collect()
    }

    /// Returns whether the stream's output ended without a newline.
    pub fn midline(&self, stream: Stream) -> bool {
        self.lock().pipes[stream as usize].midline
    }

    /// Waits, at most for `bound`, until everything in the pipes has been read: silence may only be judged with
    /// empty pipes. A copier that is blocked in a write is not waited for.
    pub fn drain(&self, bound: Duration) {
        let until = Instant::now() + bound;
        let mut state = self.lock();
        while state.pipes.iter().any(|pipe| pipe.writing.is_none() && pipe.waits() > 0) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.0.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.listener.feed().flush(clock::awake());
    }
}

impl AsFd for CopyState {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }
}

impl Pipe {
    /// Returns how many bytes are in the pipe.
    fn waits(&self) -> u64 {
        self.fd.as_ref().and_then(|fd| rustix::io::ioctl_fionread(fd).ok()).unwrap_or(0)
    }
}

struct Copier {
    copy_state: CopyState,
    stream: Stream,
    fd: Arc<OwnedFd>,
    buffer: Vec<u8>,
}

impl Copier {
    fn run(mut self) {
        while let Some(got) = self.take() {
            let written = write_all(target(self.stream), &self.buffer[..got]);
            let mut state = self.copy_state.lock();
            let pipe = &mut state.pipes[self.stream as usize];
            pipe.writing = None;
            match written {
                Ok(()) => {}
                Err(Errno::PIPE) => break,
                Err(error) => pipe.lost = pipe.lost.or(Some(error)),
            }
        }
        self.close();
    }

    /// Reads a chunk and passes it to the listener; `None` at the end. One lock covers both, so that a caller who
    /// finds the pipe empty knows that everything in it was processed.
    fn take(&mut self) -> Option<usize> {
        loop {
            wait(self.fd.as_fd(), PollFlags::IN);
            let mut state = self.copy_state.lock();
            while state.listener.feed().waiting() > MAX_WAITING {
                let waited = self.copy_state.0.changed.wait_timeout(state, WAIT);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            let got = match rustix::io::read(&*self.fd, &mut self.buffer[..]) {
                Err(Errno::AGAIN | Errno::INTR) => continue,
                Ok(0) | Err(_) => return None,
                Ok(got) => got,
            };
            let (bytes, now) = (&self.buffer[..got], clock::awake());
            state.listener.chunk(now, self.stream, bytes);
            let pipe = &mut state.pipes[self.stream as usize];
            pipe.writing = Some(now);
            pipe.midline = bytes.last() != Some(&b'\n');
            let waits = state.listener.feed().waiting() > 0 || state.listener.feed().holds().is_some();
            drop(state);
            self.copy_state.0.changed.notify_all();
            if waits {
                self.copy_state.ring();
            }
            return Some(got);
        }
    }

    /// Closes our stdout when the command closes its own, so that the reader sees the end. Our stderr stays open
    /// for our own messages.
    fn close(self) {
        let Copier { copy_state, stream, fd, .. } = self;
        if let (Stream::Stdout, Ok(null)) =
            (stream, std::fs::OpenOptions::new().write(true).open("/dev/null"))
        {
            let _ = rustix::stdio::dup2_stdout(null);
        }
        drop(fd);
        copy_state.lock().pipes[stream as usize].fd = None;
        copy_state.0.changed.notify_all();
        copy_state.ring();
    }
}

fn target(stream: Stream) -> BorrowedFd<'static> {
    match stream {
        Stream::Stdout => rustix::stdio::stdout(),
        Stream::Stderr => rustix::stdio::stderr(),
    }
}

fn write_all(target: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(target, bytes) {
            Ok(written) => bytes = &bytes[written..],
            // Another process has made our descriptor non-blocking.
            Err(Errno::AGAIN) => wait(target, PollFlags::OUT),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits for an event. Errors are ignored: the system call that follows reports them.
fn wait(fd: BorrowedFd<'_>, what: PollFlags) {
    let _ = poll(&mut [PollFd::from_borrowed_fd(fd, what)], None);
}
