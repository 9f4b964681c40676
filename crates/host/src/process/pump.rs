//! The pump: one thread per running child that feeds its stdin and drains its stdout and stderr.
//!
//! It waits for nobody: `poll` and the sink are all that it ever spends time in, so a child can always
//! write, whatever the rest of dogwatch does. It judges nothing; bytes go to the [`Sink`] as they come.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::sys;

/// Read at a time, one buffer for both streams: so much in a flood, and this little until there is one. Most agents say
/// little, and there may be hundreds of them.
const BUFFER: usize = 256 * 1024;
const FIRST_BUFFER: usize = 8 * 1024;
const GROWTH: usize = 4;
/// Asked for the pipes: what a child can write while this thread is not scheduled. The default is 64 KiB.
const PIPE_SIZE: usize = 1024 * 1024;
const DEFAULT_PIPE_SIZE: usize = 64 * 1024;

/// Where a child's output goes. Runs on the pump's thread; while it works, nothing is drained.
pub trait Sink: Send + 'static {
    fn stdout(&mut self, bytes: &[u8]);
    fn stderr(&mut self, bytes: &[u8]);
    /// All that was in the pipes when somebody asked has come; hand over what was held back.
    fn flush(&mut self) {}
}

/// The parent's ends, non-blocking. Without `stdin` the child reads from elsewhere (/dev/null).
#[derive(Debug)]
pub struct ParentEnds {
    pub stdin: Option<OwnedFd>,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// Three pipes between a parent and a child.
#[derive(Debug)]
pub struct Pipes {
    pub parent: ParentEnds,
    /// stdin, stdout, stderr of the child, blocking.
    pub child: [OwnedFd; 3],
}

/// Makes the three pipes, all closed on exec.
pub fn pipes() -> io::Result<Pipes> {
    let (child_in, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stdout, child_out) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, child_err) = pipe_with(PipeFlags::CLOEXEC)?;
    for ours in [&stdin, &stdout, &stderr] {
        // The flag belongs to one end of a pipe: the child's stays blocking.
        let flags = rustix::fs::fcntl_getfl(ours)?;
        rustix::fs::fcntl_setfl(ours, flags | rustix::fs::OFlags::NONBLOCK)?;
    }
    enlarge(stdout.as_fd());
    enlarge(stderr.as_fd());
    let parent = ParentEnds { stdin: Some(stdin), stdout, stderr };
    Ok(Pipes { parent, child: [child_in, child_out, child_err] })
}

/// Best effort: a user's pipes together are limited, and a small pipe is only slower.
fn enlarge(pipe: BorrowedFd<'_>) {
    let _ = fcntl_setpipe_size(pipe, PIPE_SIZE);
}

/// What others ask of the thread, and how far it is.
#[derive(Debug, Default)]
struct Requests {
    stop: bool,
    /// Flushes are counted; all up to `flushed` are done.
    flushes: u64,
    flushed: u64,
    ended: bool,
}

#[derive(Debug)]
struct Control {
    bell: OwnedFd,
    requests: Mutex<Requests>,
    changed: Condvar,
}

impl Control {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        // Whoever panicked with it left plain counters: still right.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // Fails only when the counter is full: then it is ringing already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

/// A flush of a pump, by its number.
#[derive(Clone, Copy, Debug)]
pub struct Flush(u64);

/// A running pump. Dropped without `join` it stops by itself.
#[derive(Debug)]
pub struct Pump<S> {
    control: Arc<Control>,
    thread: Option<JoinHandle<S>>,
}

impl<S: Sink> Pump<S> {
    /// Starts pumping: writes `prompt` to stdin and closes it, drains the others into `sink`. `done` is
    /// called once, on the pump's thread, when both have come to their end; not when stopped before.
    pub fn start(
        ends: ParentEnds,
        prompt: Vec<u8>,
        sink: S,
        done: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let control = Arc::new(Control { bell, requests: Mutex::default(), changed: Condvar::new() });
        if let Some(stdin) = ends.stdin.as_ref().filter(|_| prompt.len() > DEFAULT_PIPE_SIZE) {
            enlarge(stdin.as_fd());
        }
        let pumping = Pumping {
            control: EndMark(Arc::clone(&control)),
            feed: ends.stdin.map(|fd| Feed { fd, prompt, written: 0 }),
            stdout: Some(ends.stdout),
            stderr: Some(ends.stderr),
            buffer: vec![0; FIRST_BUFFER],
            sink,
        };
        let thread = std::thread::Builder::new().name("pump".into()).spawn(move || pumping.run(done))?;
        Ok(Self { control, thread: Some(thread) })
    }

    /// Takes what is in the pipes now, then ends the thread. Does not wait for it.
    pub fn stop(&self) {
        self.control.lock().stop = true;
        self.control.ring();
    }

    /// Waits until the thread has ended (both streams at their end and stdin written or refused, or
    /// stopped) and gives the sink back.
    pub fn join(mut self) -> S {
        let thread = self.thread.take().expect("only join takes it, and it takes self");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Has what is in the pipes now go to the sink. True when that is done, false when `bound` passed.
    pub fn flush(&self, bound: Duration) -> bool {
        self.await_flush(self.ask_flush(), bound)
    }

    /// Asks for what is in the pipes now and does not wait; gives what to wait for.
    pub fn ask_flush(&self) -> Flush {
        let mut requests = self.control.lock();
        requests.flushes += 1;
        self.control.ring();
        Flush(requests.flushes)
    }

    /// Waits for a flush that was asked for. True when it is done, false when `bound` passed.
    pub fn await_flush(&self, flush: Flush, bound: Duration) -> bool {
        let pending = |requests: &mut Requests| requests.flushed < flush.0 && !requests.ended;
        let waited = self.control.changed.wait_timeout_while(self.control.lock(), bound, pending);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl<S> Drop for Pump<S> {
    fn drop(&mut self) {
        self.control.lock().stop = true;
        self.control.ring();
    }
}

/// Says that the thread has ended, also when the sink panicked.
struct EndMark(Arc<Control>);

impl Drop for EndMark {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

struct Feed {
    fd: OwnedFd,
    prompt: Vec<u8>,
    written: usize,
}

impl Feed {
    /// Writes what fits. False when there is no more to write, or nobody to read it: not an error,
    /// many programs never look at their stdin.
    fn write_some(&mut self) -> bool {
        match rustix::io::write(&self.fd, &self.prompt[self.written..]) {
            Ok(count) => {
                self.written += count;
                self.written < self.prompt.len()
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Stream {
    Stdout,
    Stderr,
}

struct Pumping<S> {
    control: EndMark,
    /// None once it is closed; so for the two below.
    feed: Option<Feed>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    buffer: Vec<u8>,
    sink: S,
}

impl<S: Sink> Pumping<S> {
    fn run(mut self, done: impl FnOnce()) -> S {
        // Where the process has given SIGPIPE its deadly action back, ours must still be a mere EPIPE.
        let _ = sys::block_pipe_signal_here();
        self.feed();
        let mut done = Some(done);
        loop {
            let drained = self.stdout.is_none() && self.stderr.is_none();
            if let Some(done) = done.take_if(|_| drained) {
                done();
            }
            if drained && self.feed.is_none() {
                return self.sink;
            }
            if self.round() {
                return self.sink;
            }
        }
    }

    /// Sleeps until something can be done and does it. True when told to stop.
    fn round(&mut self) -> bool {
        let [rung, stdin, stdout, stderr] = self.wait();
        if rung && self.handle_requests() {
            return true;
        }
        if stdin {
            self.feed();
        }
        if stdout {
            self.read(Stream::Stdout);
        }
        if stderr {
            self.read(Stream::Stderr);
        }
        false
    }

    /// Which of bell, stdin, stdout and stderr are ready.
    fn wait(&self) -> [bool; 4] {
        let watched = [
            Some((self.control.0.bell.as_fd(), PollFlags::IN)),
            self.feed.as_ref().map(|feed| (feed.fd.as_fd(), PollFlags::OUT)),
            self.stdout.as_ref().map(|fd| (fd.as_fd(), PollFlags::IN)),
            self.stderr.as_ref().map(|fd| (fd.as_fd(), PollFlags::IN)),
        ];
        let mut fds: Vec<PollFd<'_>> =
            watched.iter().flatten().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        // A poll that fails (out of memory) says nothing: reading without blocking finds out.
        let failed = poll(&mut fds, None).is_err();
        let mut ready = fds.iter().map(|fd| failed || !fd.revents().is_empty());
        watched.map(|one| one.is_some() && ready.next().unwrap_or(false))
    }

    fn feed(&mut self) {
        if self.feed.as_mut().is_some_and(|feed| !feed.write_some()) {
            self.feed = None;
        }
    }

    /// Reads once. Gives how much there was; closes what has come to its end.
    fn read(&mut self, stream: Stream) -> usize {
        let place = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let Some(fd) = place else { return 0 };
        let got = match rustix::io::read(fd, &mut self.buffer[..]) {
            Err(Errno::AGAIN | Errno::INTR) => return 0,
            Ok(0) | Err(_) => {
                *place = None;
                return 0;
            }
            Ok(got) => got,
        };
        match stream {
            Stream::Stdout => self.sink.stdout(&self.buffer[..got]),
            Stream::Stderr => self.sink.stderr(&self.buffer[..got]),
        }
        if got == self.buffer.len() && got < BUFFER {
            self.buffer = vec![0; (got * GROWTH).min(BUFFER)];
        }
        got
    }

    /// Does what was asked for. True when that was to stop.
    fn handle_requests(&mut self) -> bool {
        let _ = rustix::io::read(&self.control.0.bell, &mut [0_u8; 8]);
        let (stop, flushes) = {
            let requests = self.control.0.lock();
            (requests.stop, requests.flushes)
        };
        self.drain(Stream::Stdout);
        self.drain(Stream::Stderr);
        self.sink.flush();
        self.control.0.lock().flushed = flushes;
        self.control.0.changed.notify_all();
        stop
    }

    /// Reads what is in the pipe at this moment, not what a flood adds meanwhile.
    fn drain(&mut self, stream: Stream) {
        let fd = match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        };
        let there = fd.as_ref().and_then(|fd| rustix::io::ioctl_fionread(fd).ok()).unwrap_or(0);
        let mut left = usize::try_from(there).unwrap_or(usize::MAX).min(PIPE_SIZE);
        while left > 0 {
            match self.read(stream) {
                0 => return,
                got => left = left.saturating_sub(got),
            }
        }
    }
}
