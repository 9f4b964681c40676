//! A harness for one actor: its directory, FIFOs, output and exit status. It kills everything that was started under it,
//! even if the test panics. Nothing here sleeps, and every wait has a limit.
#![allow(dead_code, reason = "each test file uses its own part")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A timeout that is long enough on any machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// The environment of an actor that is not started yet.
pub struct Setup {
    pub dir: TempDir,
    prompt: Option<PathBuf>,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl Setup {
    pub fn new() -> Setup {
        let dir = TempDir::new().expect("a directory for the test");
        Setup { dir, prompt: None, args: Vec::new(), env: Vec::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn prompt(mut self, text: &str) -> Setup {
        let path = self.path("prompt");
        std::fs::write(&path, text).expect("a small file");
        self.prompt = Some(path);
        self
    }

    pub fn arg(mut self, arg: &str) -> Setup {
        self.args.push(arg.to_owned());
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Setup {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).expect("a small file");
        self.path(name)
    }

    /// Creates a FIFO that the test reads.
    pub fn fifo(&self, name: &str) -> Fifo {
        Fifo::new(&self.path(name))
    }

    /// Creates a FIFO that an actor can `await`.
    pub fn gate(&self, name: &str) -> Gate {
        let path = self.path(name);
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).expect("a FIFO");
        Gate { path }
    }

    pub fn play(self, steps: &str) -> Harness {
        Harness::start(self, &["-e", steps])
    }

    pub fn call(self, args: &[&str]) -> Harness {
        Harness::start(self, args)
    }
}

pub fn play(steps: &str) -> Harness {
    Setup::new().play(steps)
}

pub struct Gate {
    path: PathBuf,
}

impl Gate {
    /// Waits for the actor at the gate, then lets it continue.
    pub fn open(self) {
        let until = Instant::now() + PATIENCE;
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Opening fails until a reader is there. The reader then sees the end of file at once.
        while rustix::fs::open(&self.path, flags, Mode::empty()).is_err() {
            assert!(Instant::now() < until, "no reader of {}", self.path.display());
            std::thread::yield_now();
        }
    }
}

pub struct Fifo {
    reader: OwnedFd,
}

impl Fifo {
    fn new(path: &Path) -> Fifo {
        mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).expect("a FIFO");
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Fifo { reader: rustix::fs::open(path, flags, Mode::empty()).expect("opens without waiting") }
    }

    /// Reads until the last writer has closed the FIFO. At least one writer must appear.
    pub fn read_to_end(&self) -> String {
        let mut all = Vec::new();
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(
                self.poll(until.saturating_duration_since(Instant::now())),
                "no writer, or a writer still holds the FIFO"
            );
            let mut chunk = [0; 4096];
            match rustix::io::read(&self.reader, &mut chunk) {
                Ok(0) => return String::from_utf8(all).expect("text"),
                Ok(n) => all.extend(&chunk[..n]),
                Err(rustix::io::Errno::AGAIN) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Returns the pid that `ready` has written.
    pub fn pid(&self) -> i32 {
        self.read_to_end().trim().parse().expect("a pid and a newline")
    }

    /// Returns whether there is data or the last writer has closed the FIFO.
    pub fn is_readable(&self) -> bool {
        self.poll(Duration::ZERO)
    }

    fn poll(&self, patience: Duration) -> bool {
        let mut fds = [PollFd::new(&self.reader, PollFlags::IN)];
        let timeout =
            Timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: patience.subsec_nanos().into() };
        poll(&mut fds, Some(&timeout)).expect("polls") > 0
    }
}

pub struct Harness {
    pub setup: Setup,
    pub pid: i32,
    process: Child,
    control: BufReader<UnixStream>,
    ended: Option<(Exit, Duration)>,
}

impl Harness {
    fn start(setup: Setup, args: &[&str]) -> Harness {
        let (ours, theirs) = UnixStream::pair().expect("a socket");
        ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut command = Command::new(env!("CARGO_BIN_EXE_actor-harness"));
        if let Some(prompt) = &setup.prompt {
            command.arg("--stdin").arg(prompt);
        }
        command.arg(env!("CARGO_BIN_EXE_actor")).args(args).args(&setup.args);
        command.current_dir(&setup.dir).envs(setup.env.iter().cloned());
        // A signal to the process group of the tests (Ctrl-C, timeout(1)) must not kill the harness before it has
        // cleaned up.
        command.process_group(0);
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = command.spawn().expect("the harness starts");
        // The command still holds the other end of the socket; close it.
        drop(command);
        let mut harness = Harness { setup, pid: 0, process, control: BufReader::new(ours), ended: None };
        harness.pid = harness.expect_line("pid").parse().expect("a pid");
        harness
    }

    /// Reads the next line from the harness, which must start with `word`, and returns the rest.
    fn expect_line(&mut self, word: &str) -> String {
        let line = self.line();
        let rest = line.strip_prefix(word).unwrap_or_else(|| panic!("wanted {word}, got {line}"));
        rest.trim().to_owned()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.control.read_line(&mut line).expect("a line within the timeout");
        line
    }

    /// Returns how the actor itself ended, and the CPU time it used.
    pub fn ended(&mut self) -> (Exit, Duration) {
        if let Some(ended) = self.ended {
            return ended;
        }
        let line = self.line();
        let words: Vec<&str> = line.split_whitespace().collect();
        let number =
            |i: usize| words.get(i).and_then(|w| w.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
        let how = match words.first() {
            Some(&"code") => Exit::Code(number(1)),
            Some(&"signal") => Exit::Signal(number(1)),
            _ => panic!("{line:?}"),
        };
        let ended = (how, Duration::from_millis(number(3).unsigned_abs().into()));
        self.ended = Some(ended);
        ended
    }

    pub fn exit(&mut self) -> Exit {
        self.ended().0
    }

    /// Reads stdout until every process has closed it.
    pub fn stdout(&mut self) -> String {
        String::from_utf8(self.stdout_bytes()).expect("text")
    }

    pub fn stdout_bytes(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        self.process.stdout.take().expect("not taken yet").read_to_end(&mut all).expect("reads");
        all
    }

    pub fn stderr(&mut self) -> String {
        let mut all = String::new();
        self.process.stderr.take().expect("not taken yet").read_to_string(&mut all).expect("reads");
        all
    }

    /// Closes the reading end of stdout.
    pub fn drop_stdout(&mut self) {
        drop(self.process.stdout.take());
    }

    /// Kills everything and returns how many processes were left, not counting the actor.
    pub fn end(&mut self) -> u64 {
        self.control.get_ref().shutdown(Shutdown::Write).expect("the harness is there");
        loop {
            let line = self.line();
            match line.strip_prefix("killed ") {
                Some(count) => return count.trim().parse().expect("a number"),
                None => assert!(!line.is_empty(), "the harness died"),
            }
        }
    }

    pub fn kill(&self, pid: i32, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("it is there");
    }

    /// Waits until the process is in this state (`S` sleeping, `T` stopped).
    pub fn wait_for_state(&self, pid: i32, state: &str) {
        let until = Instant::now() + PATIENCE;
        while stat(pid).first().map(String::as_str) != Some(state) {
            assert!(Instant::now() < until, "{pid} was never {state}: {:?}", stat(pid));
            std::thread::yield_now();
        }
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        // Closing the socket makes the harness kill everything and exit. It does the same if this process dies.
        let _ = self.control.get_ref().shutdown(Shutdown::Both);
        let _ = self.process.wait();
    }
}

/// Returns the fields of `/proc/PID/stat` after the name: state, parent, group, session and so on.
pub fn stat(pid: i32) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().map(str::to_owned).collect()
}

pub fn parent(pid: i32) -> i32 {
    stat(pid)[1].parse().expect("a number")
}

pub fn group(pid: i32) -> i32 {
    stat(pid)[2].parse().expect("a number")
}

pub fn session(pid: i32) -> i32 {
    stat(pid)[3].parse().expect("a number")
}

pub fn open(path: &Path) -> File {
    File::open(path).expect("the file is there")
}
