//! New processes. A child plays its block by running this same program again with the block's text;
//! what it must know besides goes along as options, and the prompt, when it was read, as its stdin.
//! Only the rabbit forks: it must be faster than a program start.

use crate::script::Kin;
use dogwatch_core::dur::Dur;
use dogwatch_host::sys::{Forked, fork};
use rustix::fs::MemfdFlags;
use std::ffi::OsString;
use std::io::{self, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Tells a process to start its block once more, in a new session, and exit: the second half of an
/// orphan's birth.
pub const AWAY: &str = "--away";
/// With the pid of the process between, for the orphan: its block begins when that one is gone.
pub const AFTER: &str = "--after";
pub const COUNT: &str = "--count";
pub const EPIPE_OK: &str = "--epipe-ok";

/// How this program was called, up to where the actor's own arguments begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Myself {
    argv0: OsString,
    prefix: Vec<OsString>,
}

impl Myself {
    /// `own` is what the actor was given of the whole `argv`: `dogwatch actor …` or a bare `actor …`.
    pub fn new(argv: &[OsString], own: &[OsString]) -> Myself {
        let argv0 = argv.first().cloned().unwrap_or_else(|| "actor".into());
        let prefix = match argv.get(1..).and_then(|rest| rest.strip_suffix(own)) {
            Some(prefix) => prefix.to_vec(),
            None => vec!["actor".into()],
        };
        Myself { argv0, prefix }
    }

    pub fn command(&self, args: impl IntoIterator<Item = OsString>) -> Command {
        let mut command = Command::new(program());
        command.arg0(&self.argv0).args(&self.prefix).args(args);
        command
    }
}

/// On Linux the link is followed in the new process, so it works after the file was replaced too.
fn program() -> std::path::PathBuf {
    let link = std::path::Path::new("/proc/self/exe");
    if link.exists() { link.to_owned() } else { std::env::current_exe().unwrap_or_default() }
}

/// What a block needs besides its text.
pub struct Inheritance<'a> {
    pub count: Option<u64>,
    pub epipe_ok: bool,
    pub prompt: Option<&'a [u8]>,
    pub args: &'a [OsString],
}

impl Inheritance<'_> {
    fn options(&self) -> Vec<OsString> {
        let count = self.count.into_iter().flat_map(|n| [COUNT.into(), n.to_string().into()]);
        count.chain(self.epipe_ok.then(|| EPIPE_OK.into())).collect()
    }

    fn stdin(&self) -> io::Result<Stdio> {
        let Some(prompt) = self.prompt else { return Ok(Stdio::inherit()) };
        let mut file = std::fs::File::from(rustix::fs::memfd_create("prompt", MemfdFlags::CLOEXEC)?);
        file.write_all(prompt)?;
        file.rewind()?;
        Ok(file.into())
    }
}

/// Starts a process that plays `block`. A child is given back; an orphan is on its own, reparented and
/// in its new session, when this returns.
pub fn start(myself: &Myself, kin: Kin, block: &str, with: &Inheritance<'_>) -> io::Result<Option<Child>> {
    let mut args = with.options();
    if kin != Kin::Child {
        args.insert(0, AWAY.into());
    }
    args.extend(["-e".into(), block.into()]);
    args.extend(with.args.iter().cloned());
    let mut command = myself.command(args);
    command.stdin(with.stdin()?);
    if kin == Kin::Bare {
        command.env_clear();
    }
    let mut child = command.spawn()?;
    if kin == Kin::Child {
        return Ok(Some(child));
    }
    let status = child.wait()?;
    if status.success() { Ok(None) } else { Err(io::Error::other(format!("the process between: {status}"))) }
}

/// The process between parent and orphan: a new session, the orphan in it, and gone.
pub fn go_away(myself: &Myself, args: Vec<OsString>) -> io::Result<()> {
    // A session leader already (started so by hand): then there is nothing to leave.
    let _ = rustix::process::setsid();
    let after = [AFTER.into(), std::process::id().to_string().into()];
    myself.command(after.into_iter().chain(args)).spawn().map(drop)
}

/// So that an orphan is one from its first step on, whoever looks.
pub fn wait_to_be_an_orphan(of: i32) {
    let still = || rustix::process::getppid().is_some_and(|parent| parent.as_raw_nonzero().get() == of);
    while still() {
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Runs from process to process until the time is over; only the last one returns.
pub fn run_away(limit: Dur) -> io::Result<()> {
    let until = Instant::now() + Duration::from(limit);
    while Instant::now() < until {
        match fork()? {
            Forked::Parent(_) => std::process::exit(0),
            Forked::Child => drop(rustix::process::setsid()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_child_is_called_as_its_parent_was() {
        for (argv, own, prefix) in [
            ("dogwatch actor x.actor a", "x.actor a", "actor"),
            ("dogwatch --quiet actor x.actor", "x.actor", "--quiet actor"),
            ("/bin/actor x.actor", "x.actor", ""),
            ("dogwatch odd", "x.actor", "actor"),
            ("", "x.actor", "actor"),
        ] {
            assert_eq!(Myself::new(&words(argv), &words(own)).prefix, words(prefix), "{argv}");
        }
    }
}
