//! Starts the main process of a job: builds its environment, searches PATH, and explains failures.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FileType, access};
use rustix::io::Errno;

use super::order::{EnvChange, StartOrder};
use super::own;
use crate::sys::{Spawn, spawn};
use dogwatch_core::text::without_error_numbers;

/// The search path if PATH is not set, as in the C library.
pub const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The most characters of a name that are shown.
const MAX_NAME: usize = 256;

/// The most bytes of a script that the kernel searches for its interpreter.
const MAX_FIRST_LINE: u64 = 256;

/// Why a job was refused.
#[derive(Debug)]
pub struct StartError {
    /// The error number.
    pub errno: i32,
    /// The message for the user.
    pub message: String,
}

impl StartError {
    /// Describes a failure. `about` names what it concerns, such as the program.
    pub fn new(errno: Errno, about: &str) -> Self {
        let reason = io::Error::from(errno);
        // A program name may be very long; keep the report to one line.
        let cut: String = about.chars().take(MAX_NAME).collect();
        Self { errno: errno.raw_os_error(), message: without_error_numbers(&format!("{cut}: {reason}")) }
    }
}

/// The environment of the keeper, read once because the keeper never changes it.
#[derive(Debug)]
pub struct BaseEnv(Vec<(Vec<u8>, Vec<u8>)>);

impl BaseEnv {
    /// Reads the environment of this process.
    pub fn of_this_process() -> Self {
        let bytes = OsString::into_vec;
        Self(std::env::vars_os().map(|(name, value)| (bytes(name), bytes(value))).collect())
    }

    /// Returns the environment with the changes applied. The last change of a name wins.
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

/// Starts the main process and returns its pid.
pub fn start(order: &StartOrder, base: &BaseEnv) -> Result<i32, StartError> {
    let Some(program) = order.argv.first().filter(|program| !program.is_empty()) else {
        return Err(StartError::new(Errno::NOENT, "no program given"));
    };
    let name = String::from_utf8_lossy(program).into_owned();
    if !order.cwd.is_absolute() {
        return Err(StartError::new(Errno::INVAL, "the working directory is not absolute"));
    }
    if let Some(started) = own::start(order) {
        return started;
    }
    let env = base.with(&order.env);
    let path = env.iter().find(|(name, _)| name == b"PATH");
    let path = path.map_or(DEFAULT_PATH.as_bytes(), |(_, value)| value);
    let candidates = candidates(program, path);
    let launch = Launch::new(order, &env).map_err(|errno| StartError::new(errno, &name))?;
    launch.first_that_starts(&candidates).map_err(|errno| {
        let missing = (errno == Errno::NOENT).then(|| missing_interpreter(program, path, &order.cwd));
        match missing.flatten() {
            Some(interpreter) => StartError::new(errno, &format!("{name}: {interpreter}")),
            None => why(errno, &name, &order.cwd),
        }
    })
}

/// Describes the interpreter of a program that could not be found although it exists: the one in its first line, or the
/// loader of a binary. The kernel reports a missing interpreter as if the program itself were missing.
pub fn missing_interpreter(program: &[u8], path: &[u8], cwd: &Path) -> Option<String> {
    if !cwd.is_dir() {
        return None;
    }
    let is_executable = |path: &PathBuf| access(path, Access::EXEC_OK).is_ok();
    let program = candidates(program, path).iter().map(|path| cwd.join(path)).find(is_executable)?;
    let mut start = Vec::new();
    // If it cannot be read, the description only lacks the name.
    let _ = File::open(program).and_then(|file| file.take(MAX_FIRST_LINE).read_to_end(&mut start));
    let text = String::from_utf8_lossy(&start);
    let Some(line) = text.strip_prefix("#!").and_then(|rest| rest.split('\n').next()) else {
        return Some("its loader".to_owned());
    };
    let named = line.trim_start_matches([' ', '\t']).split([' ', '\t']).next().unwrap_or_default();
    let windows = if line.ends_with('\r') { " (the file has Windows line endings)" } else { "" };
    Some(format!("its interpreter `{}`{windows}", named.escape_debug()))
}

/// Returns the paths to try, in order. Relative ones start at the working directory of the job, as with execvp.
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

/// Explains a failed start. An invalid directory and a missing program give the same errno, so check which one it
/// was.
pub(super) fn why(errno: Errno, name: &str, cwd: &Path) -> StartError {
    let directory = match rustix::fs::stat(cwd) {
        Ok(stat) if !FileType::from_raw_mode(stat.st_mode).is_dir() => Err(Errno::NOTDIR),
        Ok(_) => access(cwd, Access::EXEC_OK),
        Err(errno) => Err(errno),
    };
    match directory {
        Ok(()) => StartError::new(errno, name),
        Err(bad) => StartError::new(bad, &format!("working directory {}", cwd.display())),
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

    /// Starts the first candidate that works. Like execvp, skips missing files and remembers that one was not
    /// executable.
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
        // Check first: a system call is much cheaper than a process that fails to exec.
        access(self.order.cwd.join(candidate), Access::EXEC_OK)?;
        let path = c_string(candidate.as_os_str().as_bytes())?;
        match self.spawn(&path, &self.argv) {
            Err(Errno::NOEXEC) => self.spawn_by_shell(path),
            result => result,
        }
    }

    /// Runs a script without a `#!` line in the shell, as execvp does.
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
