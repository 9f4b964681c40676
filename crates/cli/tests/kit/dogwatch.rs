//! A running dogwatch, and its output after it has exited.

use super::{TIMEOUT, all, names, one};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A running dogwatch.
pub struct Running {
    child: Child,
    lines: Receiver<Vec<u8>>,
    seen: Vec<Vec<u8>>,
    stderr: Receiver<Vec<u8>>,
    errors: Vec<u8>,
}

/// Sends the lines of a stream to the returned channel until the stream ends.
fn read_lines(stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let _ = sender.send(std::mem::take(&mut line));
        }
    });
    lines
}

impl Running {
    /// Starts dogwatch and collects its output.
    pub fn start(mut command: Command) -> Running {
        // A script's background jobs ignore INT. Tests started that way must not pass that on to dogwatch.
        for signal in [Signal::INT, Signal::HUP, Signal::TERM] {
            dogwatch_host::sys::default_action(signal).expect("the default action can be set");
        }
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("dogwatch starts");
        let lines = read_lines(child.stdout.take().expect("piped"));
        let stderr = read_lines(child.stderr.take().expect("piped"));
        Running { child, lines, seen: Vec::new(), stderr, errors: Vec::new() }
    }

    /// Returns the pid of dogwatch.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// Sends a signal to dogwatch.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid()).expect("a pid");
        kill_process(pid, signal).expect("an unreaped child keeps its pid");
    }

    /// Stops dogwatch for `span` with SIGSTOP, then continues it. Returns the time for which it was certainly stopped.
    pub fn stop_for(&self, span: Duration) -> Duration {
        self.wait_for_stop_clock();
        self.signal(Signal::STOP);
        // The first thread may be stopped earlier than the one that measures the stop.
        self.wait_for_threads("is stopped", |threads| threads.iter().all(|stat| stat.contains(") T ")));
        let stopped = Instant::now();
        std::thread::sleep(span);
        let lasted = stopped.elapsed();
        self.signal(Signal::CONT);
        lasted
    }

    /// Waits until dogwatch would notice that it is stopped.
    pub fn wait_for_stop_clock(&self) {
        let sleeps = |stat: &String| stat.contains("(stop-clock) S ");
        self.wait_for_threads("measures stops", |threads| threads.iter().any(sleeps));
    }

    /// Waits until the `stat` files of all threads of dogwatch fulfill a condition.
    fn wait_for_threads(&self, what: &str, condition: impl Fn(&[String]) -> bool) {
        let until = Instant::now() + TIMEOUT;
        loop {
            let tasks =
                std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("the process is alive");
            let stat = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).ok();
            let threads: Vec<String> = tasks.filter_map(|task| stat(task.ok()?)).collect();
            if condition(&threads) {
                return;
            }
            assert!(Instant::now() < until, "dogwatch never {what}: {threads:#?}");
            std::thread::yield_now();
        }
    }

    /// Reads `--json` lines until one matches, and returns it.
    pub fn wait_until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + TIMEOUT;
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            let event: Value = serde_json::from_slice(&line).expect("--json prints JSON lines");
            self.seen.push(line);
            if wanted(&event) {
                return event;
            }
        }
        let seen: Vec<Value> = self.seen.iter().map(|l| serde_json::from_slice(l).expect("JSON")).collect();
        panic!("no {what} came after {:?}", names(&seen))
    }

    /// Waits for the event of this name.
    pub fn wait_for(&mut self, event: &str) -> Value {
        self.wait_until(event, |e| e["event"] == event)
    }

    /// Reads lines until one contains this text, and returns it.
    pub fn wait_for_line(&mut self, text: &str) -> String {
        let until = Instant::now() + TIMEOUT;
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            let shown = String::from_utf8_lossy(&line).into_owned();
            self.seen.push(line);
            if shown.contains(text) {
                return shown;
            }
        }
        panic!("no line with {text:?} came after:\n{}", String::from_utf8_lossy(&self.seen.concat()))
    }

    /// Reads lines from stderr until one contains this text.
    pub fn wait_for_error(&mut self, text: &str) {
        let until = Instant::now() + TIMEOUT;
        while let Ok(line) = self.stderr.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.errors.extend_from_slice(&line);
            if String::from_utf8_lossy(&line).contains(text) {
                return;
            }
        }
        panic!("no error with {text:?} came after:\n{}", String::from_utf8_lossy(&self.errors))
    }

    /// Waits for a trouble or notice of this kind.
    pub fn wait_for_kind(&mut self, kind: &str) -> Value {
        self.wait_until(kind, |e| e["kind"] == kind)
    }

    /// Returns whether dogwatch has exited.
    pub fn has_exited(&self) -> bool {
        // The status stays for `finish`.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let pid = Pid::from_raw(self.pid()).expect("a pid");
        waitid(WaitId::Pid(pid), options).expect("the child is ours").is_some()
    }

    /// Kills dogwatch with SIGKILL.
    pub fn kill(self) -> Done {
        self.signal(Signal::KILL);
        self.finish()
    }

    /// Waits until dogwatch exits.
    pub fn finish(self) -> Done {
        self.finish_within(TIMEOUT)
    }

    /// Waits until dogwatch exits, for at most this long.
    pub fn finish_within(mut self, bound: Duration) -> Done {
        let status = self.exit_status(bound);
        let until = Instant::now() + TIMEOUT;
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.seen.push(line);
        }
        while let Ok(line) = self.stderr.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.errors.extend_from_slice(&line);
        }
        let stderr = String::from_utf8_lossy(&self.errors).into_owned();
        Done { code: status.code(), signal: status.signal(), stdout: self.seen.concat(), stderr }
    }

    fn exit_status(&mut self, bound: Duration) -> ExitStatus {
        let pid = Pid::from_raw(self.pid()).expect("a pid");
        let fd = pidfd_open(pid, PidfdFlags::empty()).expect("the child is not reaped yet");
        let bound = Timespec::try_from(bound).expect("seconds");
        let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&bound)).expect("polls");
        if ready == 0 {
            let _ = self.child.kill();
            let output: Vec<u8> = self.lines.try_iter().flatten().collect();
            panic!("dogwatch did not exit; its output:\n{}", String::from_utf8_lossy(&output));
        }
        self.child.wait().expect("the child can be reaped")
    }
}

/// The result of a dogwatch that has exited.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Done {
    #[track_caller]
    pub fn assert_code(&self, code: i32) -> &Done {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.text(), self.stderr);
        self
    }

    /// Returns stdout as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns the events that `--json` printed. Every line must be one.
    #[track_caller]
    pub fn events(&self) -> Vec<Value> {
        let text = std::str::from_utf8(&self.stdout).expect("events are text");
        text.lines()
            .map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("not an event ({e}): {l}")))
            .collect()
    }

    /// Returns the printed `run_ended` event.
    #[track_caller]
    pub fn end(&self) -> Value {
        one(&self.events(), "run_ended").clone()
    }

    /// Returns how many events of this name were printed.
    #[track_caller]
    pub fn count(&self, name: &str) -> usize {
        all(&self.events(), name).len()
    }
}
