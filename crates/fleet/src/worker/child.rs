//! The dogwatch process that supervises a job's run. It is on a leash: it ends when its time is over or this process does.

use dogwatch_core::record::ids::RunId;
use dogwatch_core::time::moment::Boot;
use dogwatch_host::git;
use std::ffi::OsString;
use std::io::{PipeWriter, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tokio::sync::oneshot;

/// The exit code of a run whose leash ended.
pub const LEASH_ENDED: i32 = 6;

/// How the process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal. Its keepers may still be ending what it started.
    Signal(i32),
}

/// A running process.
pub struct Child {
    leash: Option<PipeWriter>,
    exit: oneshot::Receiver<Exit>,
    exited: Option<Exit>,
}

/// What to start.
pub struct Start<'a> {
    /// The dogwatch program.
    pub program: &'a Path,
    /// The work tree.
    pub tree: &'a Path,
    /// The arguments of `dogwatch run` before the leash.
    pub args: Vec<OsString>,
    /// The run to continue instead of starting a new one.
    pub resume: Option<&'a RunId>,
    /// The arguments of the loop.
    pub loop_args: &'a [String],
    /// Until when the run may live.
    pub until: Boot,
    /// Variables for its environment.
    pub env: Vec<(&'static str, PathBuf)>,
    /// Where to put what it prints to stderr.
    pub errors: &'a Path,
}

impl Child {
    /// Starts the process.
    pub fn start(start: &Start<'_>) -> std::io::Result<Child> {
        let (reader, writer) = std::io::pipe()?;
        let mut command = Command::new(start.program);
        // The variables of a worker that a git hook started name another repository than that of the job.
        git::leave_tree(&mut command);
        match start.resume {
            Some(run) => command.args(["resume", run.as_str(), "--adopt", "--at"]).arg(start.tree),
            None => command.arg("run").args(&start.args),
        };
        // The leash is the standard input, because every program passes that on to its child.
        command.args(["--leash", "0", "--json"]);
        if start.resume.is_none() && !start.loop_args.is_empty() {
            command.arg("--").args(start.loop_args);
        }
        let errors = std::fs::File::create(start.errors)?;
        command.current_dir(start.tree).stdin(Stdio::from(reader)).stdout(Stdio::null()).stderr(errors);
        command.envs(start.env.iter().map(|(name, value)| (name, value)));
        // Ctrl-C in the worker's terminal drains the worker; it must not reach the run.
        command.process_group(0);
        let mut child = Child { leash: Some(writer), exit: oneshot::channel().1, exited: None };
        child.extend(start.until);
        let mut process = command.spawn()?;
        let (send, exit) = oneshot::channel();
        let wait = move || {
            let exit = match process.wait() {
                Ok(status) => match (status.code(), status.signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (None, signal) => Exit::Signal(signal.unwrap_or(0)),
                },
                Err(_) => Exit::Signal(0),
            };
            // The worker may have forgotten the job.
            let _ = send.send(exit);
        };
        std::thread::Builder::new().name("child".into()).spawn(wait)?;
        child.exit = exit;
        Ok(child)
    }

    /// Lets the run live until this moment.
    pub fn extend(&mut self, until: Boot) {
        if let Some(leash) = &mut self.leash {
            // A closed pipe means that the process has ended.
            let _ = writeln!(leash, "{}", until.0);
        }
    }

    /// Ends the run and everything that it started.
    pub fn end(&mut self) {
        self.leash = None;
    }

    /// Waits for the end of the process.
    pub async fn exited(&mut self) -> Exit {
        if let Some(exit) = self.exited {
            return exit;
        }
        let exit = (&mut self.exit).await.unwrap_or(Exit::Signal(0));
        self.exited = Some(exit);
        exit
    }
}
