//! Starting a job's main process: environment, search on PATH, and why it could not be done.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FileType, access};
use rustix::io::Errno;

use super::order::{EnvChange, StartOrder};
use crate::sys::{Spawn, spawn};

/// Where programs are sought when there is no PATH, as the C library does it.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

/// How much of a name is shown, in characters.
const MAX_NAME: usize = 256;

/// Why a job was refused.
#[derive(Debug)]
pub struct Refusal {
    pub errno: i32,
    pub message: String,
}

impl Refusal {
    pub fn new(errno: Errno, about: &str) -> Self {
        let reason = io::Error::from(errno);
        // A program's name may be as long as an order: the report must stay a line.
        let cut: String = about.chars().take(MAX_NAME).collect();
        Self { errno: errno.raw_os_error(), message: format!("{cut}: {reason}") }
    }
}

/// The keeper's own environment, read once: nothing in the keeper changes it.
#[derive(Debug)]
pub struct BaseEnv(Vec<(Vec<u8>, Vec<u8>)>);

impl BaseEnv {
    pub fn of_this_process() -> Self {
        let bytes = OsString::into_vec;
        Self(std::env::vars_os().map(|(name, value)| (bytes(name), bytes(value))).collect())
    }

    /// The last change of a name wins.
    fn with(&self, changes: &[EnvChange]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut env = self.0.clone();
        for (name, value) in changes {
            env.retain(|(known, _)| known != name);
            if let Some(value) = value {
                env.push((name.clone(), value.clone()));
            }
        }
        env
    }
}

/// Starts the main process and gives its pid.
pub fn start(order: &StartOrder, base: &BaseEnv) -> Result<i32, Refusal> {
    let Some(program) = order.argv.first().filter(|program| !program.is_empty()) else {
        return Err(Refusal::new(Errno::NOENT, "no program is named"));
    };
    let name = String::from_utf8_lossy(program).into_owned();
    if !order.cwd.is_absolute() {
        return Err(Refusal::new(Errno::INVAL, "the working directory is not absolute"));
    }
    let env = base.with(&order.env);
    let path = env.iter().find(|(name, _)| name == b"PATH").map_or(DEFAULT_PATH, |(_, value)| value);
    let candidates = candidates(program, path);
    let launch = Launch::new(order, &env).map_err(|errno| Refusal::new(errno, &name))?;
    launch.first_that_starts(&candidates).map_err(|errno| why(errno, &name, &order.cwd))
}

/// The paths to try, in order; relative ones count from the job's directory, as they would for execvp.
fn candidates(program: &[u8], path: &[u8]) -> Vec<PathBuf> {
    let program = OsStr::from_bytes(program);
    if program.as_bytes().contains(&b'/') {
        return vec![PathBuf::from(program)];
    }
    let directory = |part: &[u8]| {
        if part.is_empty() { PathBuf::from(".") } else { PathBuf::from(OsStr::from_bytes(part)) }
    };
    path.split(|byte| *byte == b':').map(|part| directory(part).join(program)).collect()
}

/// A bad directory and a missing program give the same errno; say which it was.
fn why(errno: Errno, name: &str, cwd: &Path) -> Refusal {
    let directory = match rustix::fs::stat(cwd) {
        Ok(stat) if !FileType::from_raw_mode(stat.st_mode).is_dir() => Err(Errno::NOTDIR),
        Ok(_) => access(cwd, Access::EXEC_OK),
        Err(errno) => Err(errno),
    };
    match directory {
        Ok(()) => Refusal::new(errno, name),
        Err(bad) => Refusal::new(bad, &format!("working directory {}", cwd.display())),
    }
}

struct Launch<'a> {
    order: &'a StartOrder,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
}

impl<'a> Launch<'a> {
    fn new(order: &'a StartOrder, env: &[(Vec<u8>, Vec<u8>)]) -> Result<Self, Errno> {
        let argv = order.argv.iter().map(|argument| c_string(argument)).collect::<Result<_, _>>()?;
        let line = |(name, value): &(Vec<u8>, Vec<u8>)| c_string(&[name, &b"="[..], value].concat());
        let env = env.iter().map(line).collect::<Result<_, _>>()?;
        Ok(Self { order, argv, env, cwd: c_string(order.cwd.as_os_str().as_bytes())? })
    }

    /// As execvp: what is not there is passed over, what may not be executed is remembered.
    fn first_that_starts(&self, candidates: &[PathBuf]) -> Result<i32, Errno> {
        let mut worst = Errno::NOENT;
        for candidate in candidates {
            match self.attempt(candidate) {
                Ok(pid) => return Ok(pid),
                Err(Errno::ACCESS) => worst = Errno::ACCESS,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE | Errno::NODEV | Errno::TIMEDOUT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(worst)
    }

    fn attempt(&self, candidate: &Path) -> Result<i32, Errno> {
        // Asked first, because a system call is far cheaper than a process that fails to exec.
        access(self.order.cwd.join(candidate), Access::EXEC_OK)?;
        let path = c_string(candidate.as_os_str().as_bytes())?;
        match self.spawn(&path, &self.argv) {
            Err(Errno::NOEXEC) => self.spawn_by_shell(path),
            result => result,
        }
    }

    /// A script without a first line `#!`: execvp hands it to the shell.
    fn spawn_by_shell(&self, script: CString) -> Result<i32, Errno> {
        let shell = c"/bin/sh";
        let rest = self.argv.iter().skip(1).cloned();
        let argv: Vec<CString> = [shell.to_owned(), script].into_iter().chain(rest).collect();
        self.spawn(shell, &argv)
    }

    fn spawn(&self, path: &std::ffi::CStr, argv: &[CString]) -> Result<i32, Errno> {
        let [stdin, stdout, stderr] = &self.order.stdio;
        let stdio = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        let what = Spawn { path, argv, env: &self.env, cwd: &self.cwd, stdio };
        spawn(&what).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

fn c_string(bytes: &[u8]) -> Result<CString, Errno> {
    CString::new(bytes).map_err(|_| Errno::INVAL)
}
