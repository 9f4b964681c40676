//! The demo's directory: the loop, its scripted agent, and a FIFO that shows whether a process of the agent is left.

use crate::error::CliError;
use crate::supervise::random;
use dogwatch_host::store::journal::hex;
use rustix::fs::{CWD, Mode, OFlags};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const LOOP: &str = include_str!("RALPH.md");
const SCRIPT: &str = include_str!("demo.actor");
/// The loop's directory, and so its name.
const NAME: &str = "demo";
/// A FIFO that every process of the agent holds open for writing.
const HELD: &str = "held";

/// The directory of the demo.
pub struct Stage {
    pub dir: PathBuf,
    held: OwnedFd,
}

impl Stage {
    /// Creates the directory with everything in it.
    pub fn set() -> Result<Stage, CliError> {
        let name = format!("dogwatch-demo-{}", hex(&random::<4>()?));
        let dir = std::env::temp_dir().join(name);
        let cannot = |e: std::io::Error| {
            CliError::with_help(
                format!("cannot set up the demo in {}: {e}", dir.display()),
                "set TMPDIR to a writable directory for temporary files",
            )
        };
        let held = build(&dir).map_err(cannot)?;
        Ok(Stage { dir, held })
    }

    /// Starts a real run in its own process group. Ctrl-C reaches only the demo, which then stops the run.
    pub fn start(&self) -> Result<Child, CliError> {
        let program = own_program()
            .map_err(|e| CliError::internal(format!("cannot find the dogwatch executable: {e}")))?;
        let started = Command::new(program)
            .args(["run", NAME, "--json"])
            .current_dir(&self.dir)
            // The user's settings must not change the demo, and the demo must not write to the home directory.
            .env("XDG_CONFIG_HOME", self.dir.join(".config"))
            .env("XDG_STATE_HOME", self.dir.join(".state"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn();
        started.map_err(|e| CliError::internal(format!("cannot start `dogwatch run`: {e}")))
    }

    /// Returns the directory of a run of the demo.
    pub fn run_dir(&self, run: &str) -> PathBuf {
        self.dir.join(".dogwatch").join("runs").join(run)
    }

    /// Writes the file that wakes the loop.
    pub fn drop_file(&self) -> Result<(), CliError> {
        let path = self.dir.join("inbox").join("task.md");
        std::fs::write(&path, "Please write one more line.\n")
            .map_err(|e| CliError::internal(format!("cannot write {}: {e}", path.display())))
    }

    /// Returns whether no process of the agent is left. The FIFO is at its end when no process holds it open.
    pub fn is_empty(&self) -> bool {
        rustix::io::read(&self.held, &mut [0_u8; 16]) == Ok(0)
    }
}

fn build(dir: &Path) -> std::io::Result<OwnedFd> {
    std::fs::DirBuilder::new().mode(0o700).create(dir)?;
    let of_loop = dir.join(NAME);
    std::fs::create_dir(&of_loop)?;
    std::fs::create_dir(dir.join("inbox"))?;
    std::fs::write(of_loop.join("RALPH.md"), LOOP.replace("AGENT", &agent()?))?;
    std::fs::write(of_loop.join("demo.actor"), SCRIPT)?;
    let held = dir.join(HELD);
    rustix::fs::mkfifoat(CWD, &held, Mode::RUSR | Mode::WUSR)?;
    // Opened before the agent starts, because the agent's open blocks until there is a reader.
    Ok(rustix::fs::open(&held, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?)
}

fn own_program() -> std::io::Result<PathBuf> {
    std::env::current_exe()
}

/// Returns the agent's command line, quoted for YAML because the path of this binary may contain any character.
fn agent() -> std::io::Result<String> {
    let program = own_program()?.display().to_string().replace('\'', r"'\''");
    Ok(serde_json::to_string(&format!("'{program}' actor {NAME}/demo.actor"))?)
}
