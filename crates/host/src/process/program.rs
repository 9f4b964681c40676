//! Runs short helper programs under a keeper, with limits on time and output.
//!
//! `dogwatch doctor` uses it to query versions and to prove containment, `notify` to run notification commands, and
//! `dogwatch merge` to run checks. Sessions and checks of a run use their own path.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::fs::digest::ignored::Rules;
use crate::process::keeper::{EnvChange, Exit, Keeper, Order, Report, StartOrder};
use crate::process::pump::{self, Pump};
use crate::process::sinks::{JobSink, Tails};
use dogwatch_core::run::job::OutputTail;

/// The most output that is read from a program.
const MAX_PROGRAM_OUTPUT: u64 = 4096;
/// How long to wait for the process tree to end: the keeper kills for five seconds, plus slack.
const END_BOUND: Duration = Duration::from_secs(7);
/// A shell script that leaves a background process, as agents do. The process exits by itself if the keeper misses
/// it.
const ABANDON: &str = "(setsid sleep 10 || sleep 10) >/dev/null 2>&1 & exit 0";

/// A keeper that runs one short program at a time.
#[derive(Debug)]
pub struct ProgramRunner {
    keeper: Keeper,
    jobs: u64,
}

/// The result of running a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramResult {
    /// The program ended. `stdout` holds the beginning of its output.
    Ended {
        /// How the program ended.
        how: Exit,
        /// The beginning of its output.
        stdout: String,
    },
    /// The program could not be started, and why.
    Refused(String),
    /// The time limit expired first.
    TimedOut,
}

/// Whether the keeper ended a process that its parent left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Containment {
    /// The keeper found the process and ended it in this time.
    Holds {
        /// How long ending it took.
        within: Duration,
    },
    /// The process escaped: this system does not hand orphans to the keeper.
    Leaks,
    /// Unknown: no shell to run the test with, or the test timed out.
    Untried,
}

impl ProgramRunner {
    /// Starts the keeper.
    pub fn start() -> io::Result<ProgramRunner> {
        Ok(ProgramRunner { keeper: Keeper::start(None)?, jobs: 0 })
    }

    /// Runs a program with `/dev/null` as stdin, kills its leftover processes and returns its answer.
    pub fn run(
        &mut self,
        argv: &[&str],
        env: Vec<EnvChange>,
        cwd: &Path,
        bound: Duration,
    ) -> io::Result<ProgramResult> {
        let stdout = self.start_job(argv, env, cwd, null()?)?;
        self.wait_for_result(stdout, bound, bound)
    }

    /// Like [`ProgramRunner::run`], but gives the program up to `most` as long as it uses CPU time in every period of
    /// `quiet`. This distinguishes a program that is slow to start from one that hangs.
    pub fn run_while_busy(
        &mut self,
        argv: &[&str],
        cwd: &Path,
        quiet: Duration,
        most: Duration,
    ) -> io::Result<ProgramResult> {
        let stdout = self.start_job(argv, Vec::new(), cwd, null()?)?;
        self.wait_for_result(stdout, quiet, most)
    }

    /// Like [`ProgramRunner::run`], but passes `input` on stdin. The input must fit in a pipe buffer.
    pub fn run_with_input(
        &mut self,
        argv: &[&str],
        env: Vec<EnvChange>,
        cwd: &Path,
        input: &[u8],
        bound: Duration,
    ) -> io::Result<ProgramResult> {
        let (stdin, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        // Non-blocking: input that does not fit would wait for a program that has not started.
        fcntl_setfl(&ours, OFlags::NONBLOCK)?;
        std::fs::File::from(ours).write_all(input)?;
        let stdout = self.start_job(argv, env, cwd, stdin)?;
        self.wait_for_result(stdout, bound, bound)
    }

    /// Runs a line in a shell, however much it prints. Also returns the end of its output.
    pub fn run_line(
        &mut self,
        line: &str,
        env: Vec<EnvChange>,
        cwd: &Path,
        bound: Duration,
    ) -> io::Result<(ProgramResult, OutputTail)> {
        let mut pipes = pump::pipes()?;
        pipes.parent.stdin = None;
        let [_, stdout, stderr] = pipes.child;
        let pump = Pump::start(pipes.parent, Vec::new(), JobSink::Check(Tails::default()), || {})?;
        let sent = self.send(&["sh", "-c", line], env, cwd, [null()?, stdout, stderr]);
        let result = sent.and_then(|()| self.wait_for_exit(bound, bound));
        pump.stop();
        let tail = match pump.join() {
            JobSink::Check(tails) => tails.tail(),
            JobSink::Command(_) | JobSink::Session(_) => OutputTail::default(),
        };
        Ok((result?, tail))
    }

    /// Waits until the program has ended, and ends what it left behind. It may take up to `most` as long as it uses CPU
    /// time in every period of `quiet`.
    fn wait_for_exit(&mut self, quiet: Duration, most: Duration) -> io::Result<ProgramResult> {
        let began = Instant::now();
        let (mut until, mut pid, mut used) = (began + quiet, None, 0);
        let how = loop {
            match self.next(until)? {
                Some(Report::Started { pid: started, .. }) => pid = Some(started),
                Some(Report::Exited { how, .. }) => break Some(how),
                Some(Report::Refused { message, .. }) => return Ok(ProgramResult::Refused(message)),
                Some(_) => {}
                None => {
                    let now = pid.and_then(cpu_ticks).unwrap_or(0);
                    if now <= used || began.elapsed() >= most {
                        break None;
                    }
                    (used, until) = (now, (until + quiet).min(began + most));
                }
            }
        };
        self.end()?;
        Ok(how.map_or(ProgramResult::TimedOut, |how| ProgramResult::Ended { how, stdout: String::new() }))
    }

    fn wait_for_result(
        &mut self,
        stdout: OwnedFd,
        quiet: Duration,
        most: Duration,
    ) -> io::Result<ProgramResult> {
        let result = self.wait_for_exit(quiet, most)?;
        let ProgramResult::Ended { how, .. } = result else { return Ok(result) };
        // Every process of the job is gone, so the pipe holds all of its output. The read end is non-blocking, so a
        // foreign holder of the write end cannot block this read.
        let mut text = Vec::new();
        match std::fs::File::from(stdout).take(MAX_PROGRAM_OUTPUT).read_to_end(&mut text) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Ok(_) | Err(_) => {}
        }
        Ok(ProgramResult::Ended { how, stdout: String::from_utf8_lossy(&text).into_owned() })
    }

    /// Tests whether the keeper finds and ends a process that was left behind.
    pub fn try_containment(&mut self, bound: Duration) -> io::Result<Containment> {
        let _stdout = self.start_job(&["sh", "-c", ABANDON], Vec::new(), Path::new("/"), null()?)?;
        let until = Instant::now() + bound;
        let alone = loop {
            match self.next(until)? {
                Some(Report::Exited { alone, .. }) => break alone,
                Some(Report::Refused { .. }) => return Ok(Containment::Untried),
                Some(_) => {}
                None => {
                    self.end()?;
                    return Ok(Containment::Untried);
                }
            }
        };
        if alone {
            return Ok(Containment::Leaks);
        }
        let began = Instant::now();
        let killed = self.end()?;
        Ok(if killed > 0 { Containment::Holds { within: began.elapsed() } } else { Containment::Leaks })
    }

    fn start_job(
        &mut self,
        argv: &[&str],
        env: Vec<EnvChange>,
        cwd: &Path,
        stdin: OwnedFd,
    ) -> io::Result<OwnedFd> {
        let pipes = pump::pipes()?;
        let [_, stdout, _] = pipes.child;
        self.send(argv, env, cwd, [stdin, stdout, null()?])?;
        Ok(pipes.parent.stdout)
    }

    fn send(
        &mut self,
        argv: &[&str],
        env: Vec<EnvChange>,
        cwd: &Path,
        stdio: [OwnedFd; 3],
    ) -> io::Result<()> {
        self.jobs += 1;
        let argv = argv.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.keeper.send(Order::Start(StartOrder { job: self.jobs, argv, env, cwd: cwd.to_owned(), stdio }))
    }

    /// Kills all processes of the job. Returns how many there were, excluding the main process.
    fn end(&mut self) -> io::Result<u64> {
        self.keeper.send(Order::Kill)?;
        let until = Instant::now() + END_BOUND;
        loop {
            match self.next(until)? {
                Some(Report::Empty { killed, .. }) => return Ok(killed),
                Some(_) => {}
                None => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }

    /// Returns the next report, or `None` once `until` has passed.
    fn next(&mut self, until: Instant) -> io::Result<Option<Report>> {
        loop {
            if let Some(report) = self.keeper.receive()? {
                return Ok(Some(report));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let timeout = left.try_into().map_err(io::Error::other)?;
            match poll(&mut [PollFd::from_borrowed_fd(self.keeper.as_fd(), PollFlags::IN)], Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns the CPU time that a process and its reaped children have used, in clock ticks.
fn cpu_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    // `utime`, `stime`, `cutime` and `cstime` follow the state and ten other fields.
    fields.skip(11).take(4).map(|ticks| ticks.parse::<u64>().ok()).sum()
}

fn null() -> io::Result<OwnedFd> {
    Ok(std::fs::File::options().read(true).write(true).open("/dev/null")?.into())
}

/// Counts the directories of a work tree that need a watch, without ignored ones. Returns false with the count if
/// `max` or the time limit was reached first.
pub fn count_directories(root: &Path, max: u64, bound: Duration) -> (u64, bool) {
    let until = Instant::now() + bound;
    let mut open = vec![(root.to_owned(), Rules::at_root(root))];
    let mut count = 0;
    while let Some((dir, rules)) = open.pop() {
        if count >= max || Instant::now() >= until {
            return (count, false);
        }
        count += 1;
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let path = entry.path();
            if !rules.ignored(&path, true) {
                let inside = rules.enter(&path);
                open.push((path, inside));
            }
        }
    }
    (count, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_directories_are_not_counted_and_the_limit_holds() {
        let dir = tempfile::tempdir().expect("a directory");
        for path in ["a/b", "c", "node_modules/x/y", ".git/objects"] {
            std::fs::create_dir_all(dir.path().join(path)).expect("made");
        }
        std::fs::write(dir.path().join(".gitignore"), "node_modules\n").expect("written");
        let count = |max| count_directories(dir.path(), max, Duration::from_secs(60));
        assert_eq!((count(100), count(4), count(3)), ((4, true), (4, true), (3, false)));
    }
}
