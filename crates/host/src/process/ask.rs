//! Asking a program a short question: run under a keeper, bounded in time and in what is read of it.
//!
//! For `dogwatch doctor`, which wants versions and a proof that the keeper holds what it starts, and for `notify`,
//! which tells programs of news. Sessions and checks are not run by it.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::fs::digest::ignored::Rules;
use crate::process::keeper::{EnvChange, HowEnded, Keeper, Order, Report, StartOrder};
use crate::process::pump;

/// So much of an answer is read.
const MAX_ANSWER: u64 = 4096;
/// Ending what was started: the keeper's own five seconds of KILL, and slack.
const END_BOUND: Duration = Duration::from_secs(7);
/// A child that its parent leaves behind, as agents do. If nobody finds it, it goes by itself.
const ABANDON: &str = "(setsid sleep 10 || sleep 10) >/dev/null 2>&1 & exit 0";

/// A keeper that asks.
#[derive(Debug)]
pub struct Asker {
    keeper: Keeper,
    jobs: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It ended; the beginning of its stdout.
    Said {
        how: HowEnded,
        stdout: String,
    },
    Refused(String),
    TookTooLong,
}

/// What became of a process whose parent left it behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Containment {
    /// It was ours and is gone: ended in that time.
    Holds { within: Duration },
    /// It got away: this system does not hand orphans to the keeper.
    Leaks,
    /// There is no shell to try it with, or it took too long.
    Untried,
}

impl Asker {
    pub fn start() -> io::Result<Asker> {
        Ok(Asker { keeper: Keeper::start(None)?, jobs: 0 })
    }

    /// Runs a program with `/dev/null` as its stdin, ends whatever is left of it, and gives its answer.
    pub fn ask(
        &mut self,
        argv: &[&str],
        env: Vec<EnvChange>,
        cwd: &Path,
        bound: Duration,
    ) -> io::Result<Answer> {
        let stdout = self.start_job(argv, env, cwd, null()?)?;
        self.wait_for_answer(stdout, bound)
    }

    /// As `ask`, of a program that reads `input`, which must be shorter than a pipe.
    pub fn tell(
        &mut self,
        argv: &[&str],
        env: Vec<EnvChange>,
        cwd: &Path,
        input: &[u8],
        bound: Duration,
    ) -> io::Result<Answer> {
        let (stdin, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        // What does not fit would wait for a program that has not started.
        fcntl_setfl(&ours, OFlags::NONBLOCK)?;
        std::fs::File::from(ours).write_all(input)?;
        let stdout = self.start_job(argv, env, cwd, stdin)?;
        self.wait_for_answer(stdout, bound)
    }

    fn wait_for_answer(&mut self, stdout: OwnedFd, bound: Duration) -> io::Result<Answer> {
        let until = Instant::now() + bound;
        let how = loop {
            match self.next(until)? {
                Some(Report::Exited { how, .. }) => break Some(how),
                Some(Report::Refused { message, .. }) => return Ok(Answer::Refused(message)),
                Some(_) => {}
                None => break None,
            }
        };
        self.end()?;
        let Some(how) = how else { return Ok(Answer::TookTooLong) };
        // All who could write are gone: what is in the pipe is all. Should somebody else hold it, it says so.
        let mut text = Vec::new();
        match std::fs::File::from(stdout).take(MAX_ANSWER).read_to_end(&mut text) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Ok(_) | Err(_) => {}
        }
        Ok(Answer::Said { how, stdout: String::from_utf8_lossy(&text).into_owned() })
    }

    /// Tries whether a process that was left behind is found and ended.
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
        self.jobs += 1;
        let order = StartOrder {
            job: self.jobs,
            argv: argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
            env,
            cwd: cwd.to_owned(),
            stdio: [stdin, stdout, null()?],
        };
        self.keeper.send(Order::Start(order))?;
        Ok(pipes.parent.stdout)
    }

    /// Kills what is left; gives how many there were besides the main process.
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

    /// The next report, or none when the time has come.
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

fn null() -> io::Result<OwnedFd> {
    Ok(std::fs::File::options().read(true).write(true).open("/dev/null")?.into())
}

/// The directories of a work tree that watching it needs, ignored ones left out: exactly, or with false when
/// `max` or the time was reached first.
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
