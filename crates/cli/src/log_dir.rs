//! `run --log-dir`: copies the output of each iteration to a directory, on a separate thread.

use crate::error::CliError;
use dogwatch_core::record::event::Recorded;
use dogwatch_core::record::view::View;
use dogwatch_core::time::moment::Moment;
use dogwatch_host::driver::Reporter;
use dogwatch_host::store::{home, safe_file};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

/// The most iterations whose output waits to be copied. Further ones are not copied; the record keeps their output.
const MAX_WAITING_COPIES: usize = 64;

/// A directory for copies of the output.
#[derive(Debug)]
pub struct LogDir(PathBuf);

impl LogDir {
    /// Creates the directory.
    pub fn make(dir: PathBuf) -> Result<LogDir, CliError> {
        std::fs::create_dir_all(&dir).map_err(|e| {
            CliError::with_help(
                format!("cannot create {}: {e}", dir.display()),
                "choose another directory with --log-dir",
            )
        })?;
        Ok(LogDir(dir))
    }

    /// Wraps a reporter so that it also copies the output of every iteration that ends.
    pub fn copying(self, inner: Box<dyn Reporter>, run_dir: &Path) -> Box<dyn Reporter> {
        Box::new(Copying { inner, dir: self.0, run_dir: run_dir.to_owned(), copier: None })
    }
}

/// A copy to make: from the directory of an iteration to a file.
struct Job {
    from: PathBuf,
    to: PathBuf,
}

struct Copying {
    inner: Box<dyn Reporter>,
    dir: PathBuf,
    run_dir: PathBuf,
    copier: Option<(SyncSender<Job>, JoinHandle<()>)>,
}

impl Copying {
    fn job(&self, event: &Recorded, view: &View) -> Option<Job> {
        let (_, end) = event.event.ending()?;
        let from = home::iteration_dir(&self.run_dir, &end.node, end.iteration);
        let at: String = event.at.to_string().chars().take(19).filter(|c| !matches!(c, '-' | ':')).collect();
        let node = if view.nodes.len() > 1 { format!("{}_", end.node) } else { String::new() };
        let name = format!("{node}{:03}_{}.log", end.iteration.0, at.replace('T', "-"));
        Some(Job { from, to: self.dir.join(name) })
    }
}

impl Reporter for Copying {
    fn begin(&mut self) -> io::Result<()> {
        let (sender, jobs) = sync_channel::<Job>(MAX_WAITING_COPIES);
        let thread = std::thread::Builder::new().name("log-dir".into()).spawn(move || {
            while let Ok(job) = jobs.recv() {
                if let Err(error) = copy(&job) {
                    crate::error::warn(&format!("cannot write {}: {error}", job.to.display()));
                }
            }
        })?;
        self.copier = Some((sender, thread));
        self.inner.begin()
    }

    fn show(&mut self, event: &Recorded, view: &View) {
        if let (Some(job), Some((sender, _))) = (self.job(event, view), &self.copier)
            && let Err(full) = sender.try_send(job)
        {
            let (std::sync::mpsc::TrySendError::Full(job) | std::sync::mpsc::TrySendError::Disconnected(job)) =
                full;
            self.inner.warn(&format!("not written: {}; too many copies are waiting", job.to.display()));
        }
        self.inner.show(event, view);
    }

    fn tick(&mut self, now: Moment, view: &View) {
        self.inner.tick(now, view);
    }

    fn ticks(&self) -> bool {
        self.inner.ticks()
    }

    fn warn(&mut self, text: &str) {
        self.inner.warn(text);
    }
}

/// Waits for the copies that are still to be made.
impl Drop for Copying {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.copier.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

/// Writes the output and then the errors of an iteration. An iteration without a session has neither.
fn copy(job: &Job) -> io::Result<()> {
    let mut to = safe_file::create(&job.to, safe_file::PRIVATE)?;
    for stream in ["stdout", "stderr"] {
        match safe_file::read(&job.from.join(stream)) {
            Ok(mut from) => {
                io::copy(&mut from, &mut to)?;
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
