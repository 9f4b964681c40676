//! The way of the bytes: one thread per stream, from the command's pipe to our own stdout or stderr, as they come.
//!
//! A copier reads, lets the bytes be heard, and writes. When the reader of our output is slow it waits in the write,
//! and the command is held up as by any pipe; nobody else waits for a copier. When the reader has gone the command's
//! pipe is closed, and its next write fails as it would without us. Any other write error (a full disk) is remembered
//! and reported at the end; the command continues, and later output is written if there is room again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Awake;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::hearing::{Heard, Hearing};
use crate::clock;

/// Read at a time: a whole pipe of the usual size. With more, or a greater pipe, the bytes fall out of the
/// processor's cache on their way, and a gigabyte takes twice as long.
const BUFFER: usize = 64 * 1024;
/// More facts than this wait for the watchdog only if output comes faster than it can judge: then the copier waits.
const MAX_WAITING: usize = 10_000;
/// How long a copier waits for the watchdog before it looks again.
const WAIT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// What the copiers have heard, and how far they are.
#[derive(Clone)]
pub struct Ears(Arc<Shared>);

struct Shared {
    bell: OwnedFd,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    hearing: Hearing,
    pipes: [Pipe; 2],
    /// The workspace has changed.
    stirred: bool,
}

#[derive(Default)]
struct Pipe {
    /// The end we read from; none once it is closed.
    fd: Option<Arc<OwnedFd>>,
    /// The reader of our output has kept us waiting since then.
    writing: Option<Awake>,
    /// The last byte ended no line.
    midline: bool,
    /// The first write error by which output was lost.
    lost: Option<Errno>,
}

impl Ears {
    pub fn new(hearing: Hearing) -> io::Result<Ears> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let state = Mutex::new(State { hearing, pipes: Default::default(), stirred: false });
        Ok(Ears(Arc::new(Shared { bell, state, changed: Condvar::new() })))
    }

    /// Starts to copy what comes from a new pipe; gives the end that is the command's.
    pub fn copy(&self, stream: Stream) -> io::Result<OwnedFd> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        let flags = rustix::fs::fcntl_getfl(&ours)?;
        // The flag belongs to one end of a pipe: the command's stays blocking.
        rustix::fs::fcntl_setfl(&ours, flags | rustix::fs::OFlags::NONBLOCK)?;
        let fd = Arc::new(ours);
        self.lock().pipes[stream as usize].fd = Some(Arc::clone(&fd));
        let copier = Copier { ears: self.clone(), stream, fd, buffer: vec![0; BUFFER] };
        std::thread::Builder::new().name("copy".into()).spawn(move || copier.run())?;
        Ok(theirs)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Who panicked with it has told; what was heard before is still right.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn ring(&self) {
        // Fails only when the counter is full: then it is ringing already.
        let _ = rustix::io::write(&self.0.bell, &1_u64.to_ne_bytes());
    }

    /// The bell has been heard.
    pub fn quiet(&self) {
        let _ = rustix::io::read(&self.0.bell, &mut [0_u8; 8]);
    }

    /// What was heard since the last time.
    pub fn heard(&self) -> Vec<Heard> {
        let heard = self.lock().hearing.take();
        self.0.changed.notify_all();
        heard
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut Hearing) -> T) -> T {
        act(&mut self.lock().hearing)
    }

    pub fn workspace_changed(&self, digest: Option<u64>) {
        let mut state = self.lock();
        state.hearing.changed(clock::awake(), digest);
        state.stirred = true;
        drop(state);
        self.ring();
    }

    pub fn subagents_did(&self, count: u64) {
        self.lock().hearing.subagents_did(clock::awake(), count);
        self.ring();
    }

    /// Whether the workspace has changed since this was last asked.
    pub fn stirred(&self) -> bool {
        std::mem::take(&mut self.lock().stirred)
    }

    /// Both pipes have come to their end, and all that was in them is written.
    pub fn closed(&self) -> bool {
        self.lock().pipes.iter().all(|pipe| pipe.fd.is_none())
    }

    /// Something is left to be written.
    pub fn pending(&self) -> bool {
        self.lock().pipes.iter().any(|pipe| pipe.writing.is_some() || pipe.waits() > 0)
    }

    /// How long the reader of our output has kept us waiting.
    pub fn held_up(&self, now: Awake) -> Dur {
        let since = self.lock().pipes.iter().filter_map(|pipe| pipe.writing).min();
        since.map_or(Dur::ZERO, |since| now.since(since))
    }

    /// The first write error of each stream by which output was lost.
    pub fn lost(&self) -> Vec<(Stream, Errno)> {
        let state = self.lock();
        let lost = |stream| state.pipes[stream as usize].lost.map(|error| (stream, error));
        [Stream::Stdout, Stream::Stderr].into_iter().filter_map(lost).collect()
    }

    pub fn midline(&self, stream: Stream) -> bool {
        self.lock().pipes[stream as usize].midline
    }

    /// Waits until what is in the pipes now has been heard, at most for `bound`: silence is judged with empty
    /// pipes. A copier that is itself kept waiting is not waited for.
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
        state.hearing.flush(clock::awake());
    }
}

impl AsFd for Ears {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }
}

impl Pipe {
    /// Bytes in the pipe.
    fn waits(&self) -> u64 {
        self.fd.as_ref().and_then(|fd| rustix::io::ioctl_fionread(fd).ok()).unwrap_or(0)
    }
}

struct Copier {
    ears: Ears,
    stream: Stream,
    fd: Arc<OwnedFd>,
    buffer: Vec<u8>,
}

impl Copier {
    fn run(mut self) {
        while let Some(got) = self.take() {
            let written = write_all(target(self.stream), &self.buffer[..got]);
            let mut state = self.ears.lock();
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

    /// Reads a piece and lets it be heard; none at the end. Both happen under one lock, so that whoever finds the
    /// pipe empty knows that all of it was heard.
    fn take(&mut self) -> Option<usize> {
        loop {
            wait(self.fd.as_fd(), PollFlags::IN);
            let mut state = self.ears.lock();
            while state.hearing.waiting() > MAX_WAITING {
                let waited = self.ears.0.changed.wait_timeout(state, WAIT);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            let got = match rustix::io::read(&*self.fd, &mut self.buffer[..]) {
                Err(Errno::AGAIN | Errno::INTR) => continue,
                Ok(0) | Err(_) => return None,
                Ok(got) => got,
            };
            let (bytes, now) = (&self.buffer[..got], clock::awake());
            state.hearing.hear(self.stream, bytes, now);
            let pipe = &mut state.pipes[self.stream as usize];
            pipe.writing = Some(now);
            pipe.midline = bytes.last() != Some(&b'\n');
            let news = state.hearing.waiting() > 0;
            drop(state);
            self.ears.0.changed.notify_all();
            if news {
                self.ears.ring();
            }
            return Some(got);
        }
    }

    /// Who reads our stdout sees its end when the command closes its own. stderr stays: we may have a word to say.
    fn close(self) {
        let Copier { ears, stream, fd, .. } = self;
        if let (Stream::Stdout, Ok(null)) =
            (stream, std::fs::OpenOptions::new().write(true).open("/dev/null"))
        {
            let _ = rustix::stdio::dup2_stdout(null);
        }
        drop(fd);
        ears.lock().pipes[stream as usize].fd = None;
        ears.0.changed.notify_all();
        ears.ring();
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
            // Somebody else has made our descriptor non-blocking.
            Err(Errno::AGAIN) => wait(target, PollFlags::OUT),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A poll that fails says nothing; the call after it finds out.
fn wait(fd: BorrowedFd<'_>, what: PollFlags) {
    let _ = poll(&mut [PollFd::from_borrowed_fd(fd, what)], None);
}
