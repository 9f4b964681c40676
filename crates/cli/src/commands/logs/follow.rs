//! `logs -f`: the run's events say which iteration it is at, the kernel says when its output grew. Nothing
//! here looks again and again.

use super::out::{Out, Stop};
use super::record::{self, Look, Seen, ending};
use super::source::Source;
use crate::error::Failure;
use crate::runs::FoundRun;
use crate::screen::{Line, Tone, words};
use dogwatch_core::event::{Event, Recorded, WaitEndedBy};
use dogwatch_core::text::printable;
use dogwatch_host::home;
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

/// What may wait for a slow terminal; then those who tell us wait too.
const MAX_NEWS: usize = 64;
const BUFFER: usize = 4 * 1024;

enum News {
    Event(Box<Recorded>),
    /// Something in the watched directory changed.
    Grew,
    /// The run's stream of events ended; by an error, if it did not end well.
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

pub fn follow(found: &FoundRun, stderr: bool, out: &mut Out) -> Result<(), Stop> {
    let look = record::look_at_last(found)?;
    let after = look.seen.as_ref().map_or(0, |seen| seen.seq.saturating_sub(1));
    let (sender, news) = sync_channel(MAX_NEWS);
    let watcher = Watcher::start(sender.clone());
    tell_events(found, after, sender)?;
    let mut follower = Follower { found, stderr, out, look, watcher, source: None, over: false };
    for news in news {
        match news {
            News::Event(event) => follower.event(&event)?,
            News::Grew => {}
            News::Over(error) => return follower.ended(error),
        }
        follower.drain()?;
    }
    Ok(())
}

/// The run's events, from a thread of their own.
fn tell_events(found: &FoundRun, after: u64, to: SyncSender<News>) -> Result<(), Failure> {
    let path = format!("/v1/events?after={after}");
    let events = found.client()?.stream(&path);
    let events = events.map_err(|e| Failure::usage(format!("run {}: {e}", found.id)))?;
    let told = move || {
        let mut error = None;
        for event in events {
            match event {
                // An event of a later version may be none to us.
                Ok(event) => {
                    let Ok(event) = serde_json::from_str(&event.data) else { continue };
                    if to.send(News::Event(event)).is_err() {
                        return;
                    }
                }
                Err(e) => error = Some(e.to_string()),
            }
        }
        let _ = to.send(News::Over(error));
    };
    let started = std::thread::Builder::new().name("events".into()).spawn(told);
    started.map(drop).map_err(|e| Failure::internal(format!("cannot start a thread: {e}")))
}

impl Follower<'_> {
    fn event(&mut self, recorded: &Recorded) -> Result<(), Stop> {
        match &recorded.event {
            Event::IterationStarted { node, iteration, .. } => {
                self.close()?;
                let seen = Seen::new(recorded.seq, recorded.at, node.clone(), *iteration);
                self.source = Some(self.look.source(&self.found.dir, &seen, self.stderr));
                self.out.line(&super::head(&seen))
            }
            Event::SessionStarted { node, iteration, .. } => {
                self.watcher.watch(&home::iteration_dir(&self.found.dir, node, *iteration));
                Ok(())
            }
            // What it printed is in the file before its end is in the record.
            Event::SessionEnded(_) => self.close(),
            Event::RunEnded(end) => {
                self.over = true;
                self.close()?;
                let tone = if end.exit_code == 0 { Tone::Good } else { Tone::Bad };
                self.tell(tone, &format!("{}: {}", end.outcome, end.reason))
            }
            event => match (ending(event), told(event)) {
                (Some((_, line)), _) | (None, Some(line)) => self.out.line(&line),
                (None, None) => Ok(()),
            },
        }
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

    fn tell(&mut self, tone: Tone, text: &str) -> Result<(), Stop> {
        self.out.line(&Line { tone, text: printable(text).into_owned() })
    }

    fn ended(mut self, error: Option<String>) -> Result<(), Stop> {
        self.close()?;
        if self.over {
            return Ok(());
        }
        let id = &self.found.id;
        let why = error.map_or_else(String::new, |e| format!(": {e}"));
        Err(Failure::with_hint(
            format!("run {id} is not there any more{why}"),
            format!("`dogwatch resume {id}` goes on with it"),
        )
        .into())
    }
}

/// What happens between the agent's words.
fn told(event: &Event) -> Option<Line> {
    let (tone, text) = match event {
        Event::HardStop { message, reason, .. } => {
            (Tone::Bad, format!("ended by the watchdog: {message} [{reason}]"))
        }
        Event::WaitStarted { why, delay_s: Some(delay), .. } => {
            (Tone::Quiet, format!("waiting {delay} ({})", words::wait(*why)))
        }
        Event::WaitStarted { delay_s: None, .. } => (Tone::Quiet, "paused".to_owned()),
        Event::WaitEnded { by: WaitEndedBy::Timer, .. } => return None,
        Event::WaitEnded { by, .. } => (Tone::Quiet, format!("woken ({by})")),
        Event::Trouble { kind, detail } => (Tone::Bad, format!("trouble: {detail} [{kind}]")),
        _ => return None,
    };
    Some(Line { tone, text: printable(&text).into_owned() })
}

/// Tells when a file in one directory grows. Where the system gives no watch, output is shown when a session
/// ends, and that is said.
struct Watcher {
    fd: Option<Arc<OwnedFd>>,
    watched: Option<i32>,
}

impl Watcher {
    fn start(to: SyncSender<News>) -> Watcher {
        let Ok(fd) = inotify::init(CreateFlags::CLOEXEC) else { return Watcher { fd: None, watched: None } };
        let fd = Arc::new(fd);
        let own = Arc::clone(&fd);
        let watch = move || {
            let mut buffer = [MaybeUninit::uninit(); BUFFER];
            let mut reader = Reader::new(&*own, &mut buffer);
            while reader.next().is_ok() {
                // A queue that is full holds news enough: whatever comes next, all that is there is shown.
                let _ = to.try_send(News::Grew);
            }
        };
        // Without the thread it is as without a watch.
        let started = std::thread::Builder::new().name("watch".into()).spawn(watch);
        Watcher { fd: started.is_ok().then_some(fd), watched: None }
    }

    fn watch(&mut self, dir: &Path) {
        let Some(fd) = &self.fd else { return blind() };
        if let Some(before) = self.watched.take() {
            let _ = inotify::remove_watch(&**fd, before);
        }
        match inotify::add_watch(&**fd, dir, WatchFlags::MODIFY | WatchFlags::CREATE) {
            Ok(watch) => self.watched = Some(watch),
            Err(_) => blind(),
        }
    }
}

fn blind() {
    eprintln!("Note: the system gives no file watch; output is shown when a session ends");
}
