//! `logs -f`: the event stream of the run shows which iteration is active, inotify shows when its output grows.
//! Nothing here polls.

use super::out::{Out, Stop};
use super::record::{self, IterationRecord, Look, ending_line};
use super::source::Source;
use crate::error::CliError;
use crate::local;
use crate::runs::{FoundRun, note};
use dogwatch_core::record::event::{Event, Recorded, WaitEndedBy};
use dogwatch_core::record::words::Style;
use dogwatch_host::store::home;
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

/// The most updates that may be queued for a slow terminal. When the queue is full, the senders wait.
const MAX_UPDATES: usize = 64;
/// The size of the inotify buffer, in bytes.
const BUFFER: usize = 4 * 1024;

/// A reason to print more.
enum Update {
    Event(Box<Recorded>),
    /// Something in the watched directory changed.
    Grew,
    /// The event stream of the run ended, with the error if there was one.
    Over(Option<String>),
}

struct Follower<'a> {
    found: &'a FoundRun,
    stderr: bool,
    out: &'a mut Out,
    look: Look,
    watcher: Watcher,
    source: Option<Source>,
    over: bool,
}

/// Prints the output of a run until it ends.
pub fn follow(found: &FoundRun, node: Option<&str>, stderr: bool, out: &mut Out) -> Result<(), Stop> {
    let look = record::latest_session(found, node)?;
    if let Some(unknown) = node.filter(|node| !look.has_node(node)) {
        return Err(found.has_no_node(unknown).into());
    }
    let after = look.seen.as_ref().map_or(0, |seen| seen.seq.saturating_sub(1));
    let (sender, updates) = sync_channel(MAX_UPDATES);
    let watcher = Watcher::start(sender.clone());
    forward_events(found, after, sender)?;
    let mut follower = Follower { found, stderr, out, look, watcher, source: None, over: false };
    for update in updates {
        match update {
            // Events of other nodes are skipped; those of the whole run are not.
            Update::Event(event)
                if event.event.node().is_some_and(|of| node.is_some_and(|n| n != of.as_str())) => {}
            Update::Event(event) => follower.event(&event)?,
            Update::Grew => {}
            Update::Over(error) => return follower.ended(error),
        }
        follower.drain()?;
    }
    Ok(())
}

/// Starts a thread that forwards the events of the run.
fn forward_events(found: &FoundRun, after: u64, to: SyncSender<Update>) -> Result<(), CliError> {
    let path = format!("/v1/events?after={after}");
    let events = found.client()?.stream(&path);
    let events = events.map_err(|e| CliError::usage(format!("run {}: {e}", found.id)))?;
    let forward = move || {
        let mut error = None;
        for event in events {
            match event {
                // An event of a later version may be unknown here; skip it.
                Ok(event) => {
                    let Ok(event) = dogwatch_codec::read(event.data.as_bytes()) else { continue };
                    if to.send(Update::Event(Box::new(event))).is_err() {
                        return;
                    }
                }
                Err(e) => error = Some(e.to_string()),
            }
        }
        let _ = to.send(Update::Over(error));
    };
    let started = std::thread::Builder::new().name("events".into()).spawn(forward);
    started.map(drop).map_err(|e| CliError::internal(format!("cannot start a thread: {e}")))
}

impl Follower<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    fn event(&mut self, recorded: &Recorded) -> Result<(), Stop> {
        match &recorded.event {
            Event::IterationStarted { node, iteration, .. } => {
                self.close()?;
                let seen = IterationRecord::new(recorded.seq, recorded.at, node.clone(), *iteration);
                self.source = Some(self.look.source(&self.found.dir, &seen, self.stderr));
                self.out.begin(&seen);
                self.out.line(&super::head(&seen, self.look.has_several_nodes()))
            }
            Event::SessionStarted { node, iteration, .. } => {
                self.watcher.watch(&home::iteration_dir(&self.found.dir, node, *iteration));
                Ok(())
            }
            // The file holds all output before the record holds the end of the session.
            Event::SessionEnded(_) => self.close(),
            Event::RunEnded(_) => {
                self.over = true;
                self.close()?;
                self.say(&recorded.event)
            }
            event if event.ending().is_some() => self.out.line(&ending_line(event)),
            event if is_shown(event) => self.say(event),
            _ => Ok(()),
        }
    }

    fn say(&mut self, event: &Event) -> Result<(), Stop> {
        self.out.line(&local::sentence(event, Style::Full).into())
    }

    fn drain(&mut self) -> Result<(), Stop> {
        match &mut self.source {
            Some(source) => source.drain(self.out),
            None => Ok(()),
        }
    }

    fn close(&mut self) -> Result<(), Stop> {
        let Some(mut source) = self.source.take() else { return Ok(()) };
        source.drain(self.out)?;
        source.finish(self.out)
    }

    fn ended(mut self, error: Option<String>) -> Result<(), Stop> {
        self.close()?;
        if self.over {
            return Ok(());
        }
        let id = &self.found.id;
        let why = error.map_or_else(String::new, |e| format!(": {e}"));
        Err(CliError::with_help(
            format!("run {id} stopped responding{why}"),
            format!("continue it with `dogwatch resume {id}`"),
        )
        .into())
    }
}

/// Returns whether to print an event that is neither agent output nor the end of an iteration.
fn is_shown(event: &Event) -> bool {
    let woken = matches!(event, Event::WaitEnded { by, .. } if *by != WaitEndedBy::Timer);
    woken
        || matches!(
            event,
            Event::HardStop { .. }
                | Event::WaitStarted { .. }
                | Event::NodeAttempt(_)
                | Event::Trouble { .. }
        )
}

/// Watches one directory for files that grow. If the system provides no watch, output appears when a session ends,
/// and a note says so.
struct Watcher {
    fd: Option<Arc<OwnedFd>>,
    watched: Option<i32>,
}

impl Watcher {
    fn start(to: SyncSender<Update>) -> Watcher {
        let Ok(fd) = inotify::init(CreateFlags::CLOEXEC) else { return Watcher { fd: None, watched: None } };
        let fd = Arc::new(fd);
        let own = Arc::clone(&fd);
        let watch = move || {
            let mut buffer = [MaybeUninit::uninit(); BUFFER];
            let mut reader = Reader::new(&*own, &mut buffer);
            while reader.next().is_ok() {
                // Skip the update if the queue is full: every queued update prints all available output.
                let _ = to.try_send(Update::Grew);
            }
        };
        // Without the thread, output is shown only when an event arrives.
        let started = std::thread::Builder::new().name("watch".into()).spawn(watch);
        Watcher { fd: started.is_ok().then_some(fd), watched: None }
    }

    fn watch(&mut self, dir: &Path) {
        let Some(fd) = &self.fd else { return warn_unwatched() };
        if let Some(before) = self.watched.take() {
            let _ = inotify::remove_watch(&**fd, before);
        }
        match inotify::add_watch(&**fd, dir, WatchFlags::MODIFY | WatchFlags::CREATE) {
            Ok(watch) => self.watched = Some(watch),
            Err(_) => warn_unwatched(),
        }
    }
}

fn warn_unwatched() {
    note("cannot watch files on this system; output appears when a session ends");
}
