//! One host: the `ssh` that connects to it, what it sends, and the requests that it is asked to pass on.

use super::wire::{Answer, FromFeed, Lines, MAX_FROM_FEED, MAX_TO_FEED, ToFeed};
use super::{OnChange, connecting, now};
use dogwatch_core::record::ids::RunId;
use dogwatch_core::text::one_line;
use dogwatch_core::time::moment::Skew;
use dogwatch_host::clock;
use dogwatch_host::store::mirror::Mirror;
use dogwatch_host::store::registry::Origin;
use dogwatch_server::{MachineEntry, MachineState, Response};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long `ssh` may take to connect, in seconds.
const CONNECT_S: u32 = 10;
/// The interval at which `ssh` checks an idle connection, in seconds. It gives up after three of them.
const ALIVE_S: u32 = 5;
/// How long a host may take until its first message: the connection, a login and the start of dogwatch.
const FIRST_MESSAGE: Duration = Duration::from_secs(30);
/// How long a connected host may be silent. A feed sends a message at least every five seconds.
const SILENCE: Duration = Duration::from_secs(20);
/// The time before the first new attempt to connect. It doubles up to the longest.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest time between two attempts to connect.
const RETRY_LAST: Duration = Duration::from_secs(60);
/// How long a run may take to answer a request, over the network.
const ANSWER: Duration = Duration::from_secs(8);
/// The most requests that wait for an answer of one host.
const MAX_REQUESTS: usize = 16;
/// The most of the error output of `ssh` that is kept, in bytes.
const MAX_ERRORS: usize = 4096;
/// The most of a reason that is shown, in bytes.
const MAX_REASON: usize = 200;
/// The most bytes read at once.
const PIECE: usize = 64 * 1024;

/// The remote command. A shell without a login often lacks the directories where users install programs.
const COMMAND: &str = "exec sh -c 'PATH=\"$PATH:$HOME/.local/bin:$HOME/.cargo/bin:/usr/local/bin\"; \
                       export PATH; exec dogwatch feed'";

/// A host whose runs are copied.
pub struct Host {
    pub name: String,
    entry: Mutex<MachineEntry>,
    link: Mutex<Link>,
    on_change: OnChange,
}

/// The way to the feed, and the requests that it has not answered.
#[derive(Default)]
struct Link {
    stdin: Option<ChildStdin>,
    next: u64,
    waiting: BTreeMap<u64, SyncSender<Answer>>,
}

impl Host {
    /// Returns a host that is not connected yet.
    pub fn new(name: &str, on_change: OnChange) -> Host {
        Host { name: name.to_owned(), entry: Mutex::new(connecting(name)), link: Mutex::default(), on_change }
    }

    /// Returns what is known of the host.
    pub fn entry(&self) -> MachineEntry {
        lock(&self.entry).clone()
    }

    /// Passes a request on to a run of this host. Waits a limited time for the answer.
    pub fn ask(&self, run: &RunId, what: &str, body: &Value) -> Result<Response, String> {
        let (to, answered) = sync_channel(1);
        let id = self.send(run, what, body, to)?;
        let answer = answered.recv_timeout(ANSWER);
        lock(&self.link).waiting.remove(&id);
        let answer =
            answer.map_err(|_| format!("no answer from {} within {} s", self.name, ANSWER.as_secs()))?;
        let body = serde_json::to_vec(&answer.body).map_err(|e| e.to_string())?;
        Ok(Response { status: answer.status, content_type: "application/json".into(), body })
    }

    fn send(&self, run: &RunId, what: &str, body: &Value, to: SyncSender<Answer>) -> Result<u64, String> {
        let mut link = lock(&self.link);
        if link.waiting.len() >= MAX_REQUESTS {
            return Err(format!("{} has not answered {MAX_REQUESTS} requests", self.name));
        }
        let id = link.next;
        let (run, what, body) = (run.clone(), what.to_owned(), body.clone());
        let line = ToFeed::Ask { id, run, what, body }.to_line();
        if line.len() > MAX_TO_FEED {
            return Err("the request is too long".to_owned());
        }
        let Some(stdin) = &mut link.stdin else { return Err(format!("{} is not connected", self.name)) };
        // The pipe does not block. A host that reads nothing is disconnected, because half a message may be written.
        if let Err(error) = stdin.write_all(&line) {
            link.stdin = None;
            return Err(format!("cannot reach {}: {error}", self.name));
        }
        link.next += 1;
        link.waiting.insert(id, to);
        Ok(id)
    }

    /// Keeps a connection to the host until `stop` is readable.
    pub fn follow(&self, mirror: &Mirror, stop: &OwnedFd) {
        let mut retry = RETRY_FIRST;
        loop {
            let (connected, why) = self.connect(mirror, stop);
            *lock(&self.link) = Link::default();
            let Some(why) = why else { return };
            self.change(|entry| {
                if entry.state != MachineState::Down {
                    entry.since = now();
                }
                entry.state = MachineState::Down;
                entry.why = Some(one_line(&why, MAX_REASON));
            });
            retry = if connected { RETRY_FIRST } else { (retry * 2).min(RETRY_LAST) };
            if is_readable_within(stop, retry) {
                return;
            }
        }
    }

    /// Connects once. Returns whether the host sent anything, and why the connection ended; `None` if it has to stop.
    fn connect(&self, mirror: &Mirror, stop: &OwnedFd) -> (bool, Option<String>) {
        let mut ssh = match start(&self.name) {
            Ok(ssh) => ssh,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return (false, Some("`ssh` is not installed on this machine".to_owned()));
            }
            Err(error) => return (false, Some(format!("cannot start ssh: {error}"))),
        };
        let mut session =
            Session { host: self, mirror, skew: Skew::default(), connected: false, errors: Vec::new() };
        let ended = session.run(&mut ssh, stop);
        // The feed ends when its input does; a hanging ssh is killed.
        lock(&self.link).stdin = None;
        let status = match ended {
            Ended::Exited => ssh.wait().ok(),
            Ended::Stop | Ended::Failed(_) => {
                let _ = ssh.kill();
                let _ = ssh.wait();
                None
            }
        };
        let why = match ended {
            Ended::Stop => None,
            Ended::Failed(why) => Some(why),
            Ended::Exited => Some(reason(&String::from_utf8_lossy(&session.errors), status)),
        };
        (session.connected, why)
    }

    fn change(&self, change: impl FnOnce(&mut MachineEntry)) {
        let changed = {
            let mut entry = lock(&self.entry);
            let before = entry.clone();
            change(&mut entry);
            *entry != before
        };
        if changed {
            (self.on_change)();
        }
    }
}

fn start(name: &str) -> io::Result<Child> {
    Command::new("ssh")
        .args(["-T", "-o", "BatchMode=yes", "-o", &format!("ConnectTimeout={CONNECT_S}")])
        .args(["-o", &format!("ServerAliveInterval={ALIVE_S}"), "-o", "ServerAliveCountMax=3"])
        .args(["--", name, COMMAND])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C in the terminal is for dogwatch, which ends ssh itself.
        .process_group(0)
        .spawn()
}

/// Returns why `ssh` ended: the last line of its errors, or what its exit code means.
fn reason(errors: &str, status: Option<ExitStatus>) -> String {
    let last = errors.lines().map(str::trim).rfind(|line| !line.is_empty());
    match (status.and_then(|status| status.code()), last) {
        (Some(127), _) => "dogwatch is not installed there, or not in the PATH of `sh`".to_owned(),
        (Some(2), _) if errors.contains("unrecognized subcommand") => {
            "the dogwatch there is too old for --host; install the same version".to_owned()
        }
        (_, Some(line)) => line.to_owned(),
        (Some(code), None) => format!("ssh ended with exit code {code}"),
        (None, None) => "ssh was killed".to_owned(),
    }
}

enum Ended {
    /// This process ends.
    Stop,
    /// `ssh` ended, or is about to.
    Exited,
    Failed(String),
}

/// One connection.
struct Session<'a> {
    host: &'a Host,
    mirror: &'a Mirror,
    skew: Skew,
    connected: bool,
    errors: Vec<u8>,
}

impl Session<'_> {
    fn run(&mut self, ssh: &mut Child, stop: &OwnedFd) -> Ended {
        let (Some(stdin), Some(mut stdout), Some(mut stderr)) =
            (ssh.stdin.take(), ssh.stdout.take(), ssh.stderr.take())
        else {
            return Ended::Failed("ssh has no pipes".to_owned());
        };
        // An `ssh` that has ended already says why below.
        match self.begin(stdin) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                return Ended::Failed(format!("cannot reach ssh: {error}"));
            }
            Ok(()) | Err(_) => {}
        }
        let mut lines = Lines::of(MAX_FROM_FEED);
        let (mut last, mut buffer) = (Instant::now(), vec![0; PIECE]);
        let mut has_errors = true;
        loop {
            let limit = if self.connected { SILENCE } else { FIRST_MESSAGE };
            let Some(left) = limit.checked_sub(last.elapsed()) else {
                return Ended::Failed(format!("no message for {} s", limit.as_secs()));
            };
            let mut fds = vec![PollFd::new(stop, PollFlags::IN), PollFd::new(&stdout, PollFlags::IN)];
            if has_errors {
                fds.push(PollFd::new(&stderr, PollFlags::IN));
            }
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Ended::Failed(format!("cannot wait for ssh: {error}")),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            if ready[0] {
                return Ended::Stop;
            }
            if ready.get(2) == Some(&true) {
                let read = stderr.read(&mut buffer).unwrap_or(0);
                has_errors = read > 0;
                self.errors.extend_from_slice(&buffer[..read]);
                self.errors.drain(..self.errors.len().saturating_sub(MAX_ERRORS));
            }
            if ready[1] {
                match stdout.read(&mut buffer) {
                    Ok(0) => {
                        self.read_last_errors(&mut stderr, has_errors);
                        return Ended::Exited;
                    }
                    Ok(count) => {
                        last = Instant::now();
                        if let Err(why) = self.take(&mut lines, &buffer[..count]) {
                            return Ended::Failed(why);
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Ended::Failed(format!("cannot read from ssh: {error}")),
                }
            }
        }
    }

    /// Reads what `ssh` printed before it ended. A connection that `ssh` keeps open for later may hold the pipe, so
    /// nothing waits for its end.
    fn read_last_errors(&mut self, stderr: &mut (impl Read + AsFd), has_errors: bool) {
        let mut buffer = [0; MAX_ERRORS];
        let soon = Duration::from_millis(200);
        while has_errors && is_readable_within(&*stderr, soon) {
            match stderr.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(read) => self.errors.extend_from_slice(&buffer[..read]),
            }
            self.errors.drain(..self.errors.len().saturating_sub(MAX_ERRORS));
        }
    }

    fn begin(&self, mut stdin: ChildStdin) -> io::Result<()> {
        stdin.write_all(&ToFeed::Have(self.mirror.known(&self.host.name)).to_line())?;
        let flags = rustix::fs::fcntl_getfl(&stdin)?;
        rustix::fs::fcntl_setfl(&stdin, flags | OFlags::NONBLOCK)?;
        lock(&self.host.link).stdin = Some(stdin);
        Ok(())
    }

    fn take(&mut self, lines: &mut Lines, bytes: &[u8]) -> Result<(), String> {
        for line in lines.take(bytes)? {
            match FromFeed::parse(&line) {
                Ok(message) => self.hear(message)?,
                // A login script may print something before the feed starts.
                Err(_) if !self.connected => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    fn hear(&mut self, message: FromFeed) -> Result<(), String> {
        let name = &self.host.name;
        let copied = match message {
            FromFeed::Here { version, now: there } => {
                self.connected = true;
                self.skew = Skew::between(there, clock::now());
                self.host.change(|entry| {
                    if entry.state != MachineState::Up {
                        (entry.state, entry.since, entry.why) = (MachineState::Up, now(), None);
                    }
                    entry.version = Some(one_line(&version, MAX_REASON));
                });
                Ok(())
            }
            FromFeed::Runs(runs) => {
                self.host.change(|entry| entry.runs = runs.iter().filter(|run| run.live).count());
                {
                    let origin = Origin { host: name.clone(), job: None, graph: None, skew: self.skew };
                    let runs: Vec<_> = runs.into_iter().map(|run| (origin.clone(), run)).collect();
                    self.mirror.list(name, &runs)
                }
            }
            FromFeed::Line(run, line) => self.mirror.append(name, &run, &line),
            FromFeed::Restart(run) => self.mirror.restart(name, &run),
            FromFeed::Answer(answer) => {
                if let Some(to) = lock(&self.host.link).waiting.remove(&answer.id) {
                    let _ = to.try_send(answer);
                }
                Ok(())
            }
        };
        copied.map_err(|e| format!("cannot copy its runs: {e}"))
    }
}

fn is_readable_within(fd: impl AsFd, bound: Duration) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&timespec(bound))), Ok(1..))
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn the_reason_is_the_last_line_of_ssh_or_what_its_exit_code_means() {
        let of = |errors: &str, code: i32| reason(errors, Some(ExitStatus::from_raw(code << 8)));
        let refused = "ssh: connect to host box1 port 22: Connection refused";
        assert_eq!(of(&format!("Warning: added box1\n{refused}\r\n\n"), 255), refused);
        assert_eq!(
            of("sh: 1: exec: dogwatch: not found\n", 127),
            "dogwatch is not installed there, or not in the PATH of `sh`"
        );
        let old = "error: unrecognized subcommand 'feed'\n\nUsage: dogwatch …\n";
        assert_eq!(of(old, 2), "the dogwatch there is too old for --host; install the same version");
        assert_eq!(of("", 1), "ssh ended with exit code 1");
        assert_eq!(reason("", None), "ssh was killed");
    }
}
