//! Tests the pump with bare pipes and without processes: what reaches the sink, and when.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use dogwatch_host::process::pump::{ParentEnds, Pump, Sink, pipes};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// How long to wait for an event that should happen immediately.
const PATIENCE: Duration = Duration::from_secs(30);

/// Keeps the received bytes, and can block inside the sink.
#[derive(Default)]
struct Kept {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    gate: Option<(Sender<()>, Receiver<()>)>,
}

impl Sink for Kept {
    fn stdout(&mut self, bytes: &[u8]) {
        self.stdout.extend_from_slice(bytes);
        if let Some((entered, leave)) = &self.gate {
            entered.send(()).expect("the test listens");
            leave.recv_timeout(PATIENCE).expect("the test releases the sink");
        }
    }
    fn stderr(&mut self, bytes: &[u8]) {
        self.stderr.extend_from_slice(bytes);
    }
}

fn pipe_ends() -> (ParentEnds, [OwnedFd; 3]) {
    let pipes = pipes().expect("three pipes");
    (pipes.parent, pipes.child)
}

fn put(fd: &OwnedFd, bytes: &[u8]) {
    assert_eq!(rustix::io::write(fd, bytes), Ok(bytes.len()));
}

fn prompt_read_from(fd: OwnedFd) -> Vec<u8> {
    let mut prompt = Vec::new();
    std::io::Read::read_to_end(&mut std::fs::File::from(fd), &mut prompt).expect("a blocking pipe");
    prompt
}

#[test]
fn prompt_is_written_and_stdin_closed() {
    for length in [0, 1, 65_536, 65_537, 3_000_000] {
        let (ends, [stdin, stdout, stderr]) = pipe_ends();
        let pump = Pump::start(ends, vec![b'p'; length], Kept::default(), || {}).expect("a thread");
        assert_eq!(prompt_read_from(stdin).len(), length);
        drop((stdout, stderr));
        pump.join();
    }
}

#[test]
fn streams_are_separate_and_done_is_called_when_both_end() {
    let (ends, [stdin, stdout, stderr]) = pipe_ends();
    let (done, is_done) = channel();
    let pump = Pump::start(ends, Vec::new(), Kept::default(), move || {
        done.send(()).expect("the test listens");
    })
    .expect("a thread");
    put(&stdout, b"out");
    put(&stderr, b"err");
    drop((stdin, stdout));
    assert!(pump.flush(PATIENCE));
    assert!(is_done.try_recv().is_err(), "stderr is still open");
    drop(stderr);
    is_done.recv_timeout(PATIENCE).expect("both streams have ended");
    let kept = pump.join();
    assert_eq!((kept.stdout.as_slice(), kept.stderr.as_slice()), (&b"out"[..], &b"err"[..]));
}

#[test]
fn flush_returns_after_earlier_output_reached_the_sink() {
    let (ends, [_stdin, stdout, stderr]) = pipe_ends();
    let (entered, is_in) = channel();
    let (let_go, leave) = channel();
    let sink = Kept { gate: Some((entered, leave)), ..Kept::default() };
    let pump = Pump::start(ends, Vec::new(), sink, || {}).expect("a thread");
    put(&stdout, b"first");
    is_in.recv_timeout(PATIENCE).expect("it is read at once");
    // The thread is blocked in the sink: a flush cannot finish and must return after its bound.
    assert!(!pump.flush(Duration::from_millis(1)));
    put(&stderr, b"second");
    let_go.send(()).expect("the sink waits");
    assert!(pump.flush(PATIENCE));
    pump.stop();
    let kept = pump.join();
    assert_eq!((kept.stdout.as_slice(), kept.stderr.as_slice()), (&b"first"[..], &b"second"[..]));
}

#[test]
fn stop_drains_the_pipe_while_the_writer_is_alive() {
    let (ends, [_stdin, stdout, _stderr]) = pipe_ends();
    let pump = Pump::start(ends, vec![b'p'; 4 << 20], Kept::default(), || {}).expect("a thread");
    put(&stdout, &[b'x'; 60_000]);
    pump.stop();
    assert_eq!(pump.join().stdout.len(), 60_000);
}

#[test]
fn stop_works_during_a_flood() {
    let (ends, [_stdin, stdout, _stderr]) = pipe_ends();
    let flood = std::thread::spawn(move || {
        let _ = write_until_refused(&stdout);
    });
    let pump = Pump::start(ends, Vec::new(), Kept::default(), || {}).expect("a thread");
    assert!(pump.flush(PATIENCE));
    pump.stop();
    pump.join();
    // The read end is closed now, which ends the flood.
    flood.join().expect("it ends by EPIPE");
}

/// Writes until the read end is closed. The Rust runtime ignores SIGPIPE.
fn write_until_refused(fd: &OwnedFd) -> rustix::io::Result<()> {
    loop {
        rustix::io::write(fd, &[b'x'; 65_536])?;
    }
}

#[test]
fn flush_of_an_ended_pump_returns_immediately() {
    let (ends, child) = pipe_ends();
    let (done, is_done) = channel::<()>();
    let pump = Pump::start(ends, Vec::new(), Kept::default(), move || drop(done)).expect("a thread");
    drop(child);
    assert_eq!(is_done.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected), "dropped when done");
    assert!(pump.flush(PATIENCE));
    pump.join();
}

/// Counts the flushes.
struct Flushed {
    flushes: Arc<AtomicUsize>,
    outlives: bool,
}

impl Sink for Flushed {
    fn stdout(&mut self, _: &[u8]) {}
    fn stderr(&mut self, _: &[u8]) {}
    fn flush(&mut self) {
        self.flushes.fetch_add(1, Ordering::SeqCst);
    }
    fn outlives_output(&self) -> bool {
        self.outlives
    }
}

#[test]
fn the_end_of_both_streams_flushes_the_sink_and_later_flushes_reach_one_that_outlives_them() {
    for outlives in [false, true] {
        let (ends, child) = pipe_ends();
        let (done, is_done) = channel();
        let flushes = Arc::new(AtomicUsize::new(0));
        let (sink, count) = (Flushed { flushes: Arc::clone(&flushes), outlives }, Arc::clone(&flushes));
        let done = move || done.send(count.load(Ordering::SeqCst)).expect("the test listens");
        let pump = Pump::start(ends, Vec::new(), sink, done).expect("a thread");
        drop(child);
        assert_eq!(is_done.recv_timeout(PATIENCE), Ok(1), "flushed before the end is reported");
        if outlives {
            assert!(pump.flush(PATIENCE));
            assert_eq!(flushes.load(Ordering::SeqCst), 2);
            pump.stop();
        }
        pump.join();
    }
}

#[test]
fn a_panic_in_the_sink_unblocks_waiters_and_reaches_join() {
    struct Bad;
    impl Sink for Bad {
        fn stdout(&mut self, _: &[u8]) {
            panic!("a bad sink");
        }
        fn stderr(&mut self, _: &[u8]) {}
    }
    let (ends, [_stdin, stdout, _stderr]) = pipe_ends();
    let pump = Pump::start(ends, Vec::new(), Bad, || {}).expect("a thread");
    put(&stdout, b"x");
    assert!(pump.flush(PATIENCE));
    let joined = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pump.join()));
    assert!(joined.is_err());
}

/// A sink that is full until its descriptor becomes readable.
struct Full {
    room: OwnedFd,
    received: Arc<AtomicUsize>,
}

impl Sink for Full {
    fn stdout(&mut self, bytes: &[u8]) {
        self.received.fetch_add(bytes.len(), Ordering::SeqCst);
    }
    fn stderr(&mut self, bytes: &[u8]) {
        self.stdout(bytes);
    }
    fn full(&self) -> Option<BorrowedFd<'_>> {
        let mut fds = [PollFd::new(&self.room, PollFlags::IN)];
        let ready = poll(&mut fds, Some(&Timespec::default())).expect("a poll");
        (ready == 0).then(|| self.room.as_fd())
    }
}

#[test]
fn output_stays_in_the_pipe_while_the_sink_is_full_and_requests_are_handled() {
    let (ends, [stdin, stdout, stderr]) = pipe_ends();
    let room = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    let received = Arc::new(AtomicUsize::new(0));
    let sink = Full { room: room.try_clone().expect("a descriptor"), received: Arc::clone(&received) };
    put(&stdout, b"12345");
    put(&stderr, b"67");
    // Writing this prompt takes several rounds of the thread. In each of them there is output to read.
    let pump = Pump::start(ends, vec![b'p'; 4 << 20], sink, || {}).expect("a thread");
    assert_eq!(prompt_read_from(stdin).len(), 4 << 20);
    assert_eq!(received.load(Ordering::SeqCst), 0, "nothing is read while the sink is full");
    assert!(pump.flush(PATIENCE));
    assert_eq!(received.load(Ordering::SeqCst), 7, "a flush reads what is in the pipes");
    put(&stdout, b"890");
    drop((stdout, stderr));
    put(&room, &1_u64.to_ne_bytes());
    pump.join();
    assert_eq!(received.load(Ordering::SeqCst), 10, "the rest is read once there is room");
}

#[test]
fn child_ends_block_and_no_end_is_inherited() {
    let (ends, child) = pipe_ends();
    let nonblocking =
        |fd: &OwnedFd| rustix::fs::fcntl_getfl(fd).expect("flags").contains(rustix::fs::OFlags::NONBLOCK);
    let inherited =
        |fd: &OwnedFd| !rustix::io::fcntl_getfd(fd).expect("flags").contains(rustix::io::FdFlags::CLOEXEC);
    let parent = [ends.stdin.expect("a pipe"), ends.stdout, ends.stderr];
    assert!(parent.iter().all(nonblocking));
    assert!(!child.iter().any(nonblocking));
    assert!(!parent.iter().chain(&child).any(inherited));
}
