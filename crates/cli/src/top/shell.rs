//! The shell around the model: sleeps until something happens, feeds the model, draws the screen and performs the
//! model's acts.

use super::draw::{self, Look};
use super::keys::Keys;
use super::model::{Act, Input, Known, Order, Session, Top};
use super::tail::Tail;
use super::terminal::{self, Taken, Tty};
use super::watch::Watch;
use crate::color;
use crate::commands::Source;
use crate::error::CliError;
use crate::remote::{HostArgs, OnChange};
use crate::runs::FoundRun;
use crate::screen::Tone;
use dogwatch_agents::readable::Renderer;
use dogwatch_core::record::ids::RunId;
use dogwatch_host::clock;
use dogwatch_host::store::fleet_job;
use dogwatch_host::store::home;
use dogwatch_host::store::journal;
use dogwatch_host::store::lock;
use dogwatch_host::store::registry::{self, Pointer, Registry};
use dogwatch_host::sys::{Clock, SignalFd, Timer, block, ignores};
use dogwatch_server::OtherMachines;
use ratatui_core::backend::Backend;
use ratatui_core::terminal::Terminal;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// The shortest time between two drawings.
const FRAME: Duration = Duration::from_millis(50);
/// How long the rest of an escape sequence may take.
const SEQUENCE: Duration = Duration::from_millis(25);
/// The most answers that may be queued. Each run has at most one open request.
const MAX_ANSWERS: usize = super::model::MAX_ROWS;
/// The most bytes of a session's output to read before the output that comes from now on.
const LAST_OUTPUT: u64 = 256 * 1024;
/// The most bytes of key input to read at once.
const KEYS: usize = 256;

/// Runs `top` until the user quits, and returns the exit code.
pub fn run(hosts: &HostArgs) -> Result<u8, CliError> {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if dumb || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(CliError::with_help(
            "`dogwatch top` needs a terminal",
            "use `dogwatch ps` or `dogwatch status` instead",
        ));
    }
    let cannot = |e: io::Error| CliError::internal(format!("cannot use the terminal: {e}"));
    let mut shell = Shell::new().map_err(cannot)?;
    shell.connect(hosts)?;
    let taken = Taken::take().map_err(cannot)?;
    let code = shell.run_loop();
    drop(taken);
    code.map_err(cannot)
}

struct Shell {
    top: Top,
    look: Look,
    terminal: Terminal<Tty>,
    pointers: BTreeMap<RunId, Pointer>,
    tails: BTreeMap<RunId, Tail>,
    /// The problem of each record, if it has one, and whether the run was live when the record was checked.
    judged: BTreeMap<RunId, (bool, Option<String>)>,
    /// Runs whose journals may hold unread events.
    unread: VecDeque<RunId>,
    /// The session whose output is shown, and whether there may be more of it.
    output: Option<(Session, Source)>,
    more_output: bool,
    /// The runs of other machines.
    others: Option<Arc<dyn OtherMachines>>,
    watch: Watch,
    signals: SignalFd,
    ticker: Timer,
    keys: Keys,
    answers: (SyncSender<OrderResult>, Receiver<OrderResult>),
    bell: Arc<OwnedFd>,
    /// The model changed after the last drawing.
    stale: bool,
    drawn: Option<Instant>,
    exit: Option<u8>,
}

struct OrderResult {
    run: RunId,
    order: Order,
    error: Option<String>,
}

impl Shell {
    fn new() -> io::Result<Shell> {
        let mut taken = vec![
            Signal::INT,
            Signal::TERM,
            Signal::HUP,
            Signal::QUIT,
            Signal::WINCH,
            Signal::TSTP,
            Signal::CONT,
        ];
        taken.retain(|signal| !ignores(*signal));
        block(&taken)?;
        let tty = Tty::default();
        let size = tty.size()?;
        let mut shell = Shell {
            top: Top::new(clock::now(), (size.width, size.height)),
            look: Look { color: color::on_stdout() },
            terminal: Terminal::new(tty)?,
            pointers: BTreeMap::new(),
            tails: BTreeMap::new(),
            judged: BTreeMap::new(),
            unread: VecDeque::new(),
            output: None,
            more_output: false,
            others: None,
            watch: Watch::new(),
            signals: SignalFd::new(&taken)?,
            ticker: Timer::new(Clock::Awake)?,
            keys: Keys::default(),
            answers: sync_channel(MAX_ANSWERS),
            bell: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
            stale: true,
            drawn: None,
            exit: None,
        };
        let list = home::user_state_dir().join("runs");
        // The directory must exist before new runs in it can be watched.
        let _ = home::make_private(&list);
        shell.watch.list(&list);
        shell.list_runs();
        if !shell.watch.is_active() {
            let why = "cannot watch files on this system; press r to refresh".to_owned();
            shell.top.said = Some((Tone::Bad, why));
        }
        Ok(shell)
    }

    /// Adds the runs of other machines.
    fn connect(&mut self, hosts: &HostArgs) -> Result<(), CliError> {
        let bell = Arc::clone(&self.bell);
        let ring = move || {
            // A full counter has rung already.
            let _ = rustix::io::write(&*bell, &1_u64.to_ne_bytes());
        };
        let ring: OnChange = Arc::new(ring);
        self.others = hosts.connect(&ring)?;
        for registry in self.others.iter().flat_map(|others| others.registries()) {
            self.watch.list(registry.dir());
        }
        self.list_runs();
        Ok(())
    }

    fn run_loop(&mut self) -> io::Result<u8> {
        loop {
            if let Some(code) = self.exit {
                return Ok(code);
            }
            self.read_some();
            self.read_output();
            self.draw()?;
            self.sleep()?;
        }
    }

    /// Feeds an input to the model and performs the acts that it returns.
    fn feed(&mut self, input: Input) {
        self.stale = true;
        for act in self.top.apply(clock::now(), input) {
            match act {
                Act::Quit => self.exit = Some(0),
                Act::Send { run, order } => self.send(run, order),
                Act::Reread(run) => {
                    if let Some(tail) = self.tails.get_mut(&run) {
                        tail.rewind();
                    }
                    self.unread.push_front(run);
                }
                Act::Output(session) => self.follow_output(session),
                Act::ListRuns => self.list_runs(),
                // This fails only if the terminal is gone, and then the next drawing fails as well.
                Act::Redraw => drop(self.terminal.clear()),
                Act::Suspend => drop(self.suspend()),
            }
        }
    }

    /// Lists the runs again, and checks which of them are live.
    fn list_runs(&mut self) {
        let mut pointers = Registry::of_user().list();
        if let Some(others) = &self.others {
            let copied = others.registries().into_iter().flat_map(|registry| registry.list());
            pointers = registry::merge(pointers, copied);
            let (machines, summary) = (others.machines(), others.summary());
            self.feed(Input::Machines(machines, summary));
        }
        let known = pointers.iter().map(|p| Known {
            run: p.run.clone(),
            live: registry::is_live(&p.run_dir),
            job: job_of(p),
            origin: p.origin.clone(),
        });
        let known: Vec<Known> = known.collect();
        let pointers = pointers.into_iter().map(|p| (p.run.clone(), p)).collect();
        let before = std::mem::replace(&mut self.pointers, pointers);
        self.feed(Input::Runs(known));
        // A run that moved to another machine is read from there.
        for (run, old) in before {
            if self.pointers.get(&run).is_some_and(|new| new.run_dir != old.run_dir) {
                self.tails.remove(&run);
                self.watch.forget(&run);
                self.feed(Input::Replaced(run));
            }
        }
        let shown: Vec<(RunId, bool)> = self.top.rows.iter().map(|r| (r.run.clone(), r.live)).collect();
        self.tails.retain(|run, _| shown.iter().any(|(known, _)| known == run));
        self.judged.retain(|run, _| shown.iter().any(|(known, _)| known == run));
        for (run, live) in shown {
            let Some(pointer) = self.pointers.get(&run) else { continue };
            if live && !self.watch.is_watching(&run) {
                self.watch.run(&run, &pointer.run_dir.join(journal::FILE), pointer.pid);
            } else if !live {
                self.watch.forget(&run);
            }
            self.tails.entry(run.clone()).or_insert_with(|| Tail::new(&pointer.run_dir));
            self.note_unread(run);
        }
    }

    fn note_unread(&mut self, run: RunId) {
        if !self.unread.contains(&run) {
            self.unread.push_back(run);
        }
    }

    /// Reads one piece of one journal, so that keys never wait long.
    fn read_some(&mut self) {
        let Some(run) = self.unread.pop_front() else { return };
        let Some(tail) = self.tails.get_mut(&run) else { return };
        match tail.read() {
            Ok(piece) => {
                if piece.replaced {
                    self.judged.remove(&run);
                    self.feed(Input::Replaced(run.clone()));
                }
                // The run on the open page has priority; the others take turns.
                match (piece.more, &self.top.page) {
                    (true, Some(page)) if page.run == run => self.unread.push_front(run.clone()),
                    (true, _) => self.unread.push_back(run.clone()),
                    (false, _) => {}
                }
                self.feed(Input::Read { run: run.clone(), events: piece.events, more: piece.more });
                if !piece.more {
                    self.read_loss(&run);
                    if let Some(problem) = self.record_problem(&run) {
                        self.feed(Input::Unreadable(run, problem));
                    }
                }
            }
            Err(error) => self.feed(Input::Unreadable(run, format!("cannot read its record: {error}"))),
        }
    }

    /// Reads when the supervisor of a run was lost. The lock of a run of another machine is there.
    fn read_loss(&mut self, run: &RunId) {
        let mut rows = self.top.rows.iter();
        let lost = rows.find(|row| row.run == *run && !row.live && row.origin.is_none());
        if let Some(at) = lost.and_then(|row| lock::lost_at(&row.view)) {
            self.feed(Input::Lost(run.clone(), at));
        }
    }

    /// Returns what is wrong with the record of a run. Reads all of it, so once while the run is live and once after it.
    fn record_problem(&mut self, run: &RunId) -> Option<String> {
        let live = self.top.rows.iter().any(|row| row.run == *run && row.live);
        if let Some((_, known)) = self.judged.get(run).filter(|(then, _)| *then == live) {
            return known.clone();
        }
        let dir = self.pointers.get(run)?.run_dir.clone();
        let found = FoundRun { id: run.clone(), dir };
        let problem = found.judged_record().ok().and_then(|(_, integrity)| integrity.problem());
        self.judged.insert(run.clone(), (live, problem.clone()));
        problem
    }

    /// Follows the output of a session, or of none.
    fn follow_output(&mut self, session: Option<Session>) {
        self.output = session.and_then(|session| {
            let dir = &self.pointers.get(&session.run)?.run_dir;
            let dir = home::iteration_dir(dir, &session.node, session.iteration);
            self.watch.output(Some(&dir));
            let renderer = Renderer::new(session.reader, &session.work_dir);
            Some((session, Source::new(dir, false, renderer)))
        });
        self.more_output = self.output.is_some();
        if self.output.is_none() {
            self.watch.output(None);
        }
    }

    /// Reads one piece of the output that is shown.
    fn read_output(&mut self) {
        let Some((session, source)) = self.output.as_mut().filter(|_| self.more_output) else { return };
        match source.next_lines(LAST_OUTPUT) {
            Some(lines) => {
                let session = session.clone();
                self.feed(Input::Printed { session, lines });
            }
            None => self.more_output = false,
        }
    }

    fn send(&mut self, run: RunId, order: Order) {
        let Some(pointer) = self.pointers.get(&run) else { return };
        let found = FoundRun { id: run.clone(), dir: pointer.run_dir.clone() };
        let elsewhere = self.others.clone().filter(|_| pointer.origin.is_some());
        let elsewhere = elsewhere.map(|others| (others, pointer.clone()));
        let (to, bell) = (self.answers.0.clone(), Arc::clone(&self.bell));
        let (asked, answer) = (run.clone(), to.clone());
        // A run may be slow to answer. `post` has its own time limits.
        let ask = move || {
            let error = match &elsewhere {
                Some((others, pointer)) => ask_elsewhere(others, pointer, order).err(),
                None => found.post(order.path(), &()).err().map(|failure| failure.message()),
            };
            let _ = to.send(OrderResult { run, order, error });
            let _ = rustix::io::write(&*bell, &1_u64.to_ne_bytes());
        };
        if let Err(error) = std::thread::Builder::new().name("order".into()).spawn(ask) {
            let error = Some(format!("cannot start a thread: {error}"));
            let _ = answer.send(OrderResult { run: asked, order, error });
            let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        if !self.stale || self.too_soon().is_some() {
            return Ok(());
        }
        let (top, look) = (&self.top, self.look);
        self.terminal.draw(|frame| draw::draw(top, look, frame.buffer_mut()))?;
        self.stale = false;
        self.drawn = Some(Instant::now());
        Ok(())
    }

    /// Returns how long the next drawing must wait.
    fn too_soon(&self) -> Option<Duration> {
        let since = self.drawn?.elapsed();
        FRAME.checked_sub(since).filter(|left| !left.is_zero())
    }

    /// Returns how long to sleep if nothing happens. `None` means forever.
    fn patience(&self) -> Option<Duration> {
        if !self.unread.is_empty() || self.more_output {
            return Some(Duration::ZERO);
        }
        let sequence = self.keys.is_waiting().then_some(SEQUENCE);
        let frame = if self.stale { Some(self.too_soon().unwrap_or(Duration::ZERO)) } else { None };
        sequence.into_iter().chain(frame).min()
    }

    fn sleep(&mut self) -> io::Result<()> {
        if self.top.counts() {
            let next = clock::awake().0 / 1000 * 1000 + 1000;
            self.ticker.set_at(Duration::from_millis(next))?;
        } else {
            self.ticker.clear()?;
        }
        let patience = self.patience();
        let stdin = io::stdin();
        let mut runs: Vec<Option<RunId>> = Vec::new();
        let mut fds = vec![
            PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.ticker.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN),
        ];
        for (run, fd) in self.watch.fds() {
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            runs.push(run.cloned());
        }
        let timeout = patience.map(|d| Timespec { tv_sec: 0, tv_nsec: i64::from(d.subsec_nanos()) });
        let ready = match poll(&mut fds, timeout.as_ref()) {
            Ok(ready) => ready,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let is_ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if ready == 0 {
            if self.keys.is_waiting() && patience == Some(SEQUENCE) {
                self.keys.settle().into_iter().for_each(|key| self.feed(Input::Key(key)));
            }
            return Ok(());
        }
        self.handle(&is_ready, runs)
    }

    fn handle(&mut self, ready: &[bool], runs: Vec<Option<RunId>>) -> io::Result<()> {
        let (ours, others) = ready.split_at(4);
        if ours[1] {
            self.take_signals()?;
        }
        if ours[0] {
            self.take_keys()?;
        }
        if ours[2] && self.ticker.drain()? {
            self.feed(Input::Tick);
        }
        if ours[3] {
            let mut count = [0; 8];
            let _ = rustix::io::read(&*self.bell, &mut count);
            if let Some(others) = &self.others {
                let (machines, summary) = (others.machines(), others.summary());
                self.feed(Input::Machines(machines, summary));
            }
            while let Ok(OrderResult { run, order, error }) = self.answers.1.try_recv() {
                self.feed(Input::Answered { run, order, error });
            }
        }
        for run in runs.into_iter().zip(others).filter(|(_, ready)| **ready).map(|(run, _)| run) {
            match run {
                Some(run) => self.dogwatch_ended(run),
                None => self.files_changed(),
            }
        }
        Ok(())
    }

    fn files_changed(&mut self) {
        let changed = self.watch.read();
        changed.journals.into_iter().for_each(|run| self.note_unread(run));
        self.more_output |= changed.output && self.output.is_some();
        if changed.list {
            self.list_runs();
        }
    }

    /// Handles the exit of a supervisor. Its lock is released, and its last events are in the journal.
    fn dogwatch_ended(&mut self, run: RunId) {
        self.watch.forget(&run);
        let dir: Option<PathBuf> = self.pointers.get(&run).map(|p| p.run_dir.clone());
        let live = dir.is_some_and(|dir| registry::is_live(&dir));
        self.feed(Input::Live(run.clone(), live));
        if !live {
            // The keeper may note the loss only after the journal is read, and nothing reports that.
            self.feed(Input::Lost(run.clone(), clock::now().wall));
        }
        self.note_unread(run);
    }

    fn take_keys(&mut self) -> io::Result<()> {
        let mut bytes = [0; KEYS];
        match rustix::io::read(io::stdin(), &mut bytes) {
            // The terminal is gone.
            Ok(0) => self.exit = Some(129),
            Ok(count) => {
                for key in self.keys.take(&bytes[..count]) {
                    self.feed(Input::Key(key));
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::IO) => self.exit = Some(129),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn take_signals(&mut self) -> io::Result<()> {
        while let Some(number) = self.signals.take()? {
            match number {
                n if n == Signal::WINCH.as_raw() => self.resized()?,
                n if n == Signal::TSTP.as_raw() => self.suspend()?,
                n if n == Signal::CONT.as_raw() => self.continued()?,
                n => self.exit = Some(u8::try_from(128 + n).unwrap_or(1)),
            }
        }
        Ok(())
    }

    fn resized(&mut self) -> io::Result<()> {
        let size = self.terminal.backend().size()?;
        self.feed(Input::Resized { width: size.width, height: size.height });
        Ok(())
    }

    /// Returns the terminal to the parent shell until this process is continued.
    fn suspend(&mut self) -> io::Result<()> {
        terminal::give_back();
        kill_process(getpid(), Signal::STOP)?;
        self.continued()
    }

    fn continued(&mut self) -> io::Result<()> {
        terminal::enter()?;
        self.terminal.clear()?;
        self.resized()
    }
}

/// Sends a request to a run of another machine.
fn ask_elsewhere(others: &Arc<dyn OtherMachines>, pointer: &Pointer, order: Order) -> Result<(), String> {
    let answer = others.ask(pointer, order.path(), &serde_json::json!({}))?;
    if answer.is_ok() { Ok(()) } else { Err(answer.message()) }
}

/// Returns the job of a fleet that a run belongs to.
fn job_of(pointer: &Pointer) -> Option<String> {
    match &pointer.origin {
        Some(origin) => origin.job.clone(),
        None => fleet_job::of_run(&pointer.run_dir),
    }
}
