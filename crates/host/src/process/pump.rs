//! The pump: one thread per child process that writes its stdin and drains its stdout and stderr.
//!
//! The thread blocks only in `poll` and in the sink. While the sink has no room, the thread leaves the output in the
//! pipes, but it still handles requests.
//! The pump does not interpret the output; it passes bytes to the [`Sink`] as they arrive.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::sys;

/// The largest and the initial size of the read buffer, shared by both streams. Most agents print little, and there
/// may be hundreds of them, so the buffer grows only in a flood.
const BUFFER: usize = 256 * 1024;
const FIRST_BUFFER: usize = 8 * 1024;
const GROWTH: usize = 4;
/// The requested size of a pipe: how much a child can write while this thread is not scheduled. The default is 64
/// KiB.
const PIPE_SIZE: usize = 1024 * 1024;
const DEFAULT_PIPE_SIZE: usize = 64 * 1024;

/// The receiver of a child's output. It runs on the pump's thread; nothing is drained while it works.
pub trait Sink: Send + 'static {
    /// Receives bytes of stdout.
    fn stdout(&mut self, bytes: &[u8]);
    /// Receives bytes of stderr.
    fn stderr(&mut self, bytes: &[u8]);
    /// Hands over buffered results. Called after everything that was in the pipes at the time of the request has been
    /// passed to the sink, and once when both streams have ended.
    fn flush(&mut self) {}
    /// Returns whether the sink has something to flush even after both streams have ended. The thread then continues
    /// until it is stopped.
    fn outlives_output(&self) -> bool {
        false
    }
    /// Returns `None` if the sink can receive bytes, and otherwise a descriptor that becomes readable when it can. A
    /// requested flush passes bytes to the sink even so.
    fn full(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The parent's ends of the pipes, non-blocking. Without `stdin`, the child has another stdin, such as /dev/null.
#[derive(Debug)]
pub struct ParentEnds {
    /// Writes to the stdin of the child.
    pub stdin: Option<OwnedFd>,
    /// Reads the stdout of the child.
    pub stdout: OwnedFd,
    /// Reads the stderr of the child.
    pub stderr: OwnedFd,
}

/// Three pipes between a parent and a child.
#[derive(Debug)]
pub struct Pipes {
    /// The parent's ends.
    pub parent: ParentEnds,
    /// stdin, stdout and stderr of the child, blocking.
    pub child: [OwnedFd; 3],
}

/// Creates three pipes, all closed on exec.
pub fn pipes() -> io::Result<Pipes> {
    let (child_in, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stdout, child_out) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, child_err) = pipe_with(PipeFlags::CLOEXEC)?;
    for ours in [&stdin, &stdout, &stderr] {
        // The flag applies to one end of a pipe: the end of the child stays blocking.
        let flags = rustix::fs::fcntl_getfl(ours)?;
        rustix::fs::fcntl_setfl(ours, flags | rustix::fs::OFlags::NONBLOCK)?;
    }
    enlarge(stdout.as_fd());
    enlarge(stderr.as_fd());
    let parent = ParentEnds { stdin: Some(stdin), stdout, stderr };
    Ok(Pipes { parent, child: [child_in, child_out, child_err] })
}

/// Enlarges a pipe, best effort: the total size of a user's pipes is limited, and a small pipe is only slower.
fn enlarge(pipe: BorrowedFd<'_>) {
    let _ = fcntl_setpipe_size(pipe, PIPE_SIZE);
}

/// The requests to the thread, and its progress.
#[derive(Debug, Default)]
struct Requests {
    stop: bool,
    /// The number of flushes requested. All up to `flushed` are done.
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
        // Ignore poisoning: the panic was already reported and the counters are still valid.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // Fails only if the counter is full, and then the thread wakes up anyway.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

/// The number of a requested flush.
#[derive(Clone, Copy, Debug)]
pub struct Flush(u64);

/// A running pump. Dropping it without `join` stops the thread.
#[derive(Debug)]
pub struct Pump<S> {
    control: Arc<Control>,
    thread: Option<JoinHandle<S>>,
}

impl<S: Sink> Pump<S> {
    /// Starts the thread. It writes `prompt` to stdin and closes it, and drains stdout and stderr into `sink`. It
    /// calls `done` once, when both streams have ended, but not if the pump is stopped first.
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

    /// Passes what is in the pipes now to the sink, then ends the thread. Does not wait for it.
    pub fn stop(&self) {
        self.control.lock().stop = true;
        self.control.ring();
    }

    /// Waits until the thread ends and returns the sink. The thread ends when both streams have ended and the prompt
    /// is written or refused, unless the sink outlives them, or after `stop`.
    pub fn join(mut self) -> S {
        let thread = self.thread.take().expect("only join takes it, and it takes self");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Passes what is in the pipes now to the sink. Returns false if `bound` expired first.
    pub fn flush(&self, bound: Duration) -> bool {
        self.await_flush(self.ask_flush(), bound)
    }

    /// Requests a flush without waiting. Pass the result to [`Pump::await_flush`].
    pub fn ask_flush(&self) -> Flush {
        let mut requests = self.control.lock();
        requests.flushes += 1;
        self.control.ring();
        Flush(requests.flushes)
    }

    /// Waits for a requested flush. Returns false if `bound` expired first.
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

/// Marks the thread as ended when dropped, even if the sink panics.
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
    /// Writes as much as fits. Returns false if all is written or the child closed its stdin, which is not an error:
    /// many programs never read stdin.
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
    /// `None` once closed, as are the two fields below.
    feed: Option<Feed>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    buffer: Vec<u8>,
    sink: S,
}

impl<S: Sink> Pumping<S> {
    fn run(mut self, done: impl FnOnce()) -> S {
        // Get EPIPE instead of a deadly SIGPIPE, even if the process restored the default action of the signal.
        let _ = sys::block_pipe_signal_here();
        self.feed();
        let mut done = Some(done);
        loop {
            let drained = self.stdout.is_none() && self.stderr.is_none();
            if let Some(done) = done.take_if(|_| drained) {
                // The child may run on without its streams. A later flush would find no thread that hands this over.
                self.sink.flush();
                done();
            }
            if drained && self.feed.is_none() && !self.sink.outlives_output() {
                return self.sink;
            }
            if self.round() {
                return self.sink;
            }
        }
    }

    /// Waits for and handles one round of events. Returns true on a stop request.
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

    /// Waits, and returns which of the bell, stdin, stdout and stderr are ready. While the sink is full, it waits for
    /// the sink instead of the output.
    fn wait(&self) -> [bool; 4] {
        let full = self.sink.full();
        let [stdout, stderr] =
            [&self.stdout, &self.stderr].map(|fd| fd.as_ref().filter(|_| full.is_none()).map(OwnedFd::as_fd));
        let watched = [
            Some((self.control.0.bell.as_fd(), PollFlags::IN)),
            self.feed.as_ref().map(|feed| (feed.fd.as_fd(), PollFlags::OUT)),
            stdout.map(|fd| (fd, PollFlags::IN)),
            stderr.map(|fd| (fd, PollFlags::IN)),
        ];
        let mut fds: Vec<PollFd<'_>> =
            watched.iter().flatten().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        fds.extend(full.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // If poll fails (out of memory), treat all as ready: non-blocking reads sort it out.
        let failed = poll(&mut fds, None).is_err();
        let mut ready = fds.iter().map(|fd| failed || !fd.revents().is_empty());
        watched.map(|one| one.is_some() && ready.next().unwrap_or(false))
    }

    fn feed(&mut self) {
        if self.feed.as_mut().is_some_and(|feed| !feed.write_some()) {
            self.feed = None;
        }
    }

    /// Reads once and returns the number of bytes. Closes a stream that has ended.
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

    /// Handles pending requests. Returns true on a stop request.
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

    /// Reads what is in the pipe at this moment, but not what arrives meanwhile.
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
