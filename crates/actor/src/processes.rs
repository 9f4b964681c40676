//! Starts new processes. A child runs this program again with the text of its block. State that the block needs is
//! passed as options, and the prompt, if it was already read, as stdin. Only `rabbit` forks directly, because it must
//! be faster than a program start.

use crate::script::Spawn;
use dogwatch_core::time::dur::Dur;
use dogwatch_host::sys::{Forked, fork};
use rustix::fs::MemfdFlags;
use std::ffi::OsString;
use std::io::{self, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Makes a process start its block in a new session and exit, which orphans the new process.
pub const DETACH: &str = "--away";
/// Gives an orphan the pid of the intermediate process. The orphan waits until that process is gone.
pub const AFTER: &str = "--after";
/// Passes the value of the counter.
pub const COUNT: &str = "--count";
/// Passes on that a closed pipe is ignored.
pub const EPIPE_OK: &str = "--epipe-ok";

/// The command line of this program up to the actor's own arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfCommand {
    argv0: OsString,
    prefix: Vec<OsString>,
}

impl SelfCommand {
    /// Splits `argv` before `own`, the actor's own arguments: `dogwatch actor …` or a bare `actor …`.
    pub fn new(argv: &[OsString], own: &[OsString]) -> SelfCommand {
        let argv0 = argv.first().cloned().unwrap_or_else(|| "actor".into());
        let prefix = match argv.get(1..).and_then(|rest| rest.strip_suffix(own)) {
            Some(prefix) => prefix.to_vec(),
            None => vec!["actor".into()],
        };
        SelfCommand { argv0, prefix }
    }

    /// Returns a command that runs this program with other actor arguments.
    pub fn command(&self, args: impl IntoIterator<Item = OsString>) -> Command {
        let mut command = Command::new(program());
        command.arg0(&self.argv0).args(&self.prefix).args(args);
        command
    }
}

/// Returns the path of this program. On Linux this is a link that still works after the file was replaced.
fn program() -> std::path::PathBuf {
    let link = std::path::Path::new("/proc/self/exe");
    if link.exists() { link.to_owned() } else { std::env::current_exe().unwrap_or_default() }
}

/// The state that a block inherits.
pub struct Inherited<'a> {
    pub count: Option<u64>,
    pub epipe_ok: bool,
    pub prompt: Option<&'a [u8]>,
    pub args: &'a [OsString],
}

impl Inherited<'_> {
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

/// Starts a process that plays `block`, and returns it if it is a child. An orphan is already reparented and in its
/// own session when this function returns.
pub fn start(
    self_command: &SelfCommand,
    spawn: Spawn,
    block: &str,
    with: &Inherited<'_>,
) -> io::Result<Option<Child>> {
    let mut args = with.options();
    if spawn != Spawn::Child {
        args.insert(0, DETACH.into());
    }
    args.extend(["-e".into(), block.into()]);
    args.extend(with.args.iter().cloned());
    let mut command = self_command.command(args);
    command.stdin(with.stdin()?);
    if spawn == Spawn::Bare {
        command.env_clear();
    }
    let mut child = command.spawn()?;
    if spawn == Spawn::Child {
        return Ok(Some(child));
    }
    let status = child.wait()?;
    if status.success() {
        Ok(None)
    } else {
        Err(io::Error::other(format!("the intermediate process failed: {status}")))
    }
}

/// Runs as the intermediate process: creates a new session, starts the orphan in it, and returns.
pub fn detach(self_command: &SelfCommand, args: Vec<OsString>) -> io::Result<()> {
    // This fails if the process is already a session leader, which is fine.
    let _ = rustix::process::setsid();
    let after = [AFTER.into(), std::process::id().to_string().into()];
    self_command.command(after.into_iter().chain(args)).spawn().map(drop)
}

/// Waits until the process is reparented, so that it is an orphan from its first step on.
pub fn wait_until_orphaned(parent: i32) {
    let has_parent = || rustix::process::getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == parent);
    while has_parent() {
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Forks repeatedly until the limit: each parent exits, and only the last process returns.
pub fn run_rabbit(limit: Dur) -> io::Result<()> {
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
    fn a_child_uses_the_command_line_prefix_of_its_parent() {
        for (argv, own, prefix) in [
            ("dogwatch actor x.actor a", "x.actor a", "actor"),
            ("dogwatch --quiet actor x.actor", "x.actor", "--quiet actor"),
            ("/bin/actor x.actor", "x.actor", ""),
            ("dogwatch odd", "x.actor", "actor"),
            ("", "x.actor", "actor"),
        ] {
            assert_eq!(SelfCommand::new(&words(argv), &words(own)).prefix, words(prefix), "{argv}");
        }
    }
}
