use crate::detached;
use crate::error::CliError;
use crate::remote::wire::{Answer, FromFeed, Lines, MAX_TO_FEED, ToFeed};
use crate::runs::FoundRun;
use crate::top::watch::Watch;
use crate::version;
use dogwatch_core::record::event::Outcome;
use dogwatch_core::record::ids::RunId;
use dogwatch_host::clock;
use dogwatch_host::store::home;
use dogwatch_host::store::journal::{self, Tail};
use dogwatch_host::store::mirror::{MAX_RUNS, RemoteRun};
use dogwatch_host::store::registry::{self, Pointer, Registry};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// The longest time between two messages.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long the first message of the client may take.
const FIRST_MESSAGE: Duration = Duration::from_secs(30);
/// The most ended runs that are sent, newest first.
const MAX_ENDED: usize = 30;
/// The most requests that are passed on at once.
const MAX_REQUESTS: usize = 8;
/// The most bytes of requests read at once.
const PIECE: usize = 16 * 1024;

/// Send the runs of this machine to another dogwatch
///
/// `dogwatch top --host` and `dogwatch serve --host` start this command over SSH. It ends when its input does.
#[derive(clap::Args)]
pub struct Args {}

/// Runs `dogwatch feed` and returns the exit code.
pub fn run(_: &Args) -> Result<u8, CliError> {
    let cannot = |e: io::Error| CliError::internal(format!("cannot send runs: {e}"));
    let mut feed = Feed::new().map_err(cannot)?;
    match feed.run() {
        // The client is gone.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(cannot(error)),
        Ok(()) => Ok(0),
    }
}

struct Feed {
    input: Lines,
    /// The last sequence number of each run that the client has; unknown until its first message.
    have: Option<BTreeMap<RunId, u64>>,
    watch: Watch,
    pointers: BTreeMap<RunId, Pointer>,
    tails: BTreeMap<RunId, Tail>,
    listed: Vec<RemoteRun>,
    answers: (SyncSender<Answer>, Receiver<Answer>),
    /// Requests that are being passed on.
    open: BTreeSet<u64>,
    bell: Arc<OwnedFd>,
}

impl Feed {
    fn new() -> io::Result<Feed> {
        let mut watch = Watch::new();
        let list = home::user_state_dir().join("runs");
        // The directory must exist before new runs in it can be watched.
        let _ = home::make_private(&list);
        watch.list(&list);
        Ok(Feed {
            input: Lines::of(MAX_TO_FEED),
            have: None,
            watch,
            pointers: BTreeMap::new(),
            tails: BTreeMap::new(),
            listed: Vec::new(),
            answers: sync_channel(MAX_REQUESTS),
            open: BTreeSet::new(),
            bell: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        say(&self.here())?;
        let began = Instant::now();
        while self.have.is_none() {
            let left = FIRST_MESSAGE.checked_sub(began.elapsed());
            let left = left.ok_or_else(|| io::Error::new(ErrorKind::TimedOut, "no first message"))?;
            if !self.sleep(left)? {
                return Ok(());
            }
        }
        self.list_runs(true)?;
        loop {
            if !self.sleep(HEARTBEAT)? {
                return Ok(());
            }
            say(&self.here())?;
        }
    }

    fn here(&self) -> FromFeed {
        FromFeed::Here { version: version::NUMBER.to_owned(), now: clock::now() }
    }

    /// Waits until something happens and handles it. Returns false when the input has ended.
    fn sleep(&mut self, limit: Duration) -> io::Result<bool> {
        let stdin = io::stdin();
        let mut runs: Vec<Option<RunId>> = Vec::new();
        let mut fds = vec![PollFd::new(&stdin, PollFlags::IN), PollFd::new(&self.bell, PollFlags::IN)];
        for (run, fd) in self.watch.fds() {
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            runs.push(run.cloned());
        }
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        match poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if ready[0] && !self.read_requests()? {
            return Ok(false);
        }
        if ready[1] {
            let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
            while let Ok(answer) = self.answers.1.try_recv() {
                self.open.remove(&answer.id);
                say(&FromFeed::Answer(answer))?;
            }
        }
        // Nothing is sent before the first message of the client, which lists what it has.
        if self.have.is_none() {
            return Ok(true);
        }
        let ended = runs.iter().zip(&ready[2..]).filter(|(run, ready)| **ready && run.is_some()).count() > 0;
        let changed = self.watch.read();
        for run in &changed.journals {
            self.send_lines(run)?;
        }
        if changed.list || ended {
            self.list_runs(false)?;
        }
        Ok(true)
    }

    /// Sends the list of runs if it changed, and then their new lines.
    fn list_runs(&mut self, first: bool) -> io::Result<()> {
        let pointers = Registry::of_user().list();
        let known = pointers.into_iter().map(|p| (registry::is_live(&p.run_dir), p));
        let (live, ended): (Vec<_>, Vec<_>) = known.partition(|(live, _)| *live);
        let chosen: Vec<(bool, Pointer)> =
            live.into_iter().chain(ended.into_iter().take(MAX_ENDED)).take(MAX_RUNS).collect();
        let listed = chosen.iter().map(|(live, p)| RemoteRun {
            run: p.run.clone(),
            path: p.path.clone(),
            since: p.since,
            live: *live,
        });
        let listed: Vec<RemoteRun> = listed.collect();
        for (live, pointer) in &chosen {
            if *live && !self.watch.is_watching(&pointer.run) {
                self.watch.run(&pointer.run, &pointer.run_dir.join(journal::FILE), pointer.pid);
            } else if !*live {
                self.watch.forget(&pointer.run);
            }
        }
        self.pointers = chosen.into_iter().map(|(_, p)| (p.run.clone(), p)).collect();
        self.tails.retain(|run, _| self.pointers.contains_key(run));
        let ids: Vec<RunId> = listed.iter().map(|run| run.run.clone()).collect();
        // A run that ended wrote its last lines before it released its lock: they go first.
        let known: Vec<RunId> = self.tails.keys().cloned().collect();
        for run in &known {
            self.send_lines(run)?;
        }
        if first || listed != self.listed {
            say(&FromFeed::Runs(listed.clone()))?;
            self.listed = listed;
        }
        for run in ids.iter().filter(|run| !known.contains(run)) {
            self.send_lines(run)?;
        }
        Ok(())
    }

    fn send_lines(&mut self, run: &RunId) -> io::Result<()> {
        let (Some(pointer), Some(have)) = (self.pointers.get(run), &mut self.have) else { return Ok(()) };
        let path = pointer.run_dir.join(journal::FILE);
        let replaced = match self.tails.get(run) {
            Some(tail) => tail.length()? < tail.offset(),
            None => false,
        };
        if replaced {
            self.tails.remove(run);
            have.remove(run);
            say(&FromFeed::Restart(run.clone()))?;
        }
        if !self.tails.contains_key(run) {
            // A record that cannot be read is shown without lines.
            let Ok(tail) = Tail::follow(&path) else { return Ok(()) };
            self.tails.insert(run.clone(), tail.in_large_pieces());
        }
        let Some(tail) = self.tails.get_mut(run) else { return Ok(()) };
        let last = have.entry(run.clone()).or_insert(0);
        let mut out = io::BufWriter::new(io::stdout().lock());
        while let Ok(Some(line)) = tail.next_line() {
            let Some(head) = journal::head(line).filter(|head| head.seq > *last) else { continue };
            *last = head.seq;
            out.write_all(&FromFeed::Line(run.clone(), line.to_vec()).to_line())?;
        }
        out.flush()
    }

    /// Reads the requests of the client. Returns false at the end.
    fn read_requests(&mut self) -> io::Result<bool> {
        let mut bytes = [0; PIECE];
        let count = match rustix::io::read(io::stdin(), &mut bytes) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        let bad = |why: String| io::Error::new(ErrorKind::InvalidData, why);
        for line in self.input.take(&bytes[..count]).map_err(bad)? {
            match ToFeed::parse(&line).map_err(bad)? {
                ToFeed::Have(have) => self.have = Some(have),
                ToFeed::Ask { id, run, what, body } => self.ask(id, &run, what, body)?,
            }
        }
        Ok(true)
    }

    /// Passes a request on to a run, on a separate thread: a run may be slow to answer.
    fn ask(&mut self, id: u64, run: &RunId, what: String, body: Value) -> io::Result<()> {
        let refuse = |status: u16, why: &str| {
            say(&FromFeed::Answer(Answer { id, status, body: json!({"error": {"message": why}}) }))
        };
        let Some(pointer) = self.pointers.get(run).cloned() else {
            return refuse(404, "no such run on this machine");
        };
        if self.open.len() >= MAX_REQUESTS {
            return refuse(503, "too many requests at once");
        }
        let (to, bell) = (self.answers.0.clone(), Arc::clone(&self.bell));
        let pass_on = move || {
            let (status, body) = pass_on(&pointer, &what, &body);
            let _ = to.send(Answer { id, status, body });
            let _ = rustix::io::write(&*bell, &1_u64.to_ne_bytes());
        };
        match std::thread::Builder::new().name("request".into()).spawn(pass_on) {
            Ok(_) => {
                self.open.insert(id);
                Ok(())
            }
            Err(error) => refuse(503, &format!("cannot start a thread: {error}")),
        }
    }
}

/// The requests that are passed on.
const REQUESTS: [&str; 6] = ["wake", "pause", "resume", "stop", "tell", "limit"];

fn pass_on(pointer: &Pointer, what: &str, body: &Value) -> (u16, Value) {
    let refused = |status: u16, why: String| (status, json!({"error": {"message": why}}));
    if !REQUESTS.contains(&what) {
        return refused(404, format!("unknown request `{what}`"));
    }
    let found = FoundRun { id: pointer.run.clone(), dir: pointer.run_dir.clone() };
    let asleep = || {
        let view = found.view().ok();
        view.is_some_and(|view| {
            view.is_asleep() || view.ended.as_ref().is_some_and(|end| end.outcome == Outcome::Idle)
        })
    };
    let done = match found.post(what, body) {
        Err(_) if what == "wake" && !found.is_live() && asleep() => detached::continue_run(pointer),
        result => result.map_err(|failure| failure.message()),
    };
    match done {
        Ok(()) => (202, json!({"ok": true})),
        Err(why) => refused(409, why),
    }
}

fn say(message: &FromFeed) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(&message.to_line())?;
    out.flush()
}
