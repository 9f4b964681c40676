//! `dogwatch fleet demo`: a server and three workers on this machine, twelve jobs, and two kills.

mod plot;
mod stage;

use super::server::version_of;
use crate::color;
use crate::error::CliError;
use crate::screen::{Tone, paint, words};
use dogwatch_core::lease::JobRecord;
use dogwatch_core::text::printable;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Boot;
use dogwatch_fleet::names::{DEFAULT_CAP, JobId};
use dogwatch_fleet::record::Job;
use dogwatch_fleet::server::audit;
use dogwatch_fleet::setup::Setup;
use dogwatch_fleet::{JoinLine, blocking};
use dogwatch_host::clock;
use dogwatch_host::sys::{SignalFd, block};
use plot::{Act, JOBS, Plot, SLOTS};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use stage::{LEASE, Stage, WORKERS};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Watch a local fleet lose a worker and its server
///
/// Starts a NATS server and three workers on this machine, queues twelve jobs with a scripted agent, kills one worker and the
/// server, and shows that every job ends once. It needs git and nats-server, but no API key and no network. It leaves nothing
/// behind. Stop it with Ctrl-C.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 if everything happened as shown, 1 if not.")]
pub struct Args {
    /// Path of the server's program [default: nats-server in PATH]
    #[arg(long, value_name = "PATH")]
    nats_server: Option<PathBuf>,
}

/// The longest time that the demo may take.
const BOUND: Dur = Dur::from_secs(120);
/// How long the server may take to start.
const STARTING: Duration = Duration::from_secs(20);
/// The pause between two attempts to use a server that starts.
const TRY_EVERY: Duration = Duration::from_millis(50);

/// Runs `dogwatch fleet demo` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let program = args.nats_server.clone().unwrap_or_else(|| PathBuf::from("nats-server"));
    let version = version_of(&program)?;
    if let Some(fault) = audit::version(version) {
        return Err(CliError::with_help(fault.what, fault.fix));
    }
    // Blocked before there is anything to clean up.
    let taken = [Signal::INT, Signal::TERM, Signal::HUP];
    let failed = |e: std::io::Error| CliError::internal(format!("cannot set up signals: {e}"));
    block(&taken).map_err(failed)?;
    let signals = SignalFd::new(&taken).map_err(failed)?;
    let began = clock::now().boot;
    let (stage, color) = (Stage::set(program)?, color::on_stdout());
    let mut play = Play { stage, signals, plot: Plot::default(), began, color, closed: false };
    let played = play.play(&version.to_string());
    play.finish(played)
}

/// What the connection reports.
enum News {
    /// The jobs are queued.
    Queued,
    /// The record of a job has this value.
    Record(JobId, Box<JobRecord>),
    /// The fleet could not be set up.
    Failed(String),
}

/// How the demo ended.
enum End {
    /// Every job is over.
    Over,
    /// By a signal.
    Signal(i32),
    /// The reader of stdout is gone.
    Closed,
}

struct Play {
    stage: Stage,
    signals: SignalFd,
    plot: Plot,
    began: Boot,
    color: bool,
    /// Whether the reader of stdout is gone.
    closed: bool,
}

impl Play {
    fn play(&mut self, version: &str) -> Result<End, CliError> {
        let workers = WORKERS.join(", ");
        self.print(
            Tone::Plain,
            "dogwatch fleet demo: a server, three workers, twelve jobs; no API key, no network",
        );
        self.step(&format!("starting nats-server {version} at {}", self.stage.address()));
        self.stage.start_server()?;
        let jobs = self.stage.jobs()?;
        let mut news = Feed::start(self.stage.operator()?, jobs)?;
        self.step(&format!("starting the workers {workers}, each for {SLOTS} jobs at once"));
        for worker in WORKERS {
            self.stage.start_worker(worker)?;
        }
        loop {
            if let Some(end) = self.wait(&news)? {
                return Ok(end);
            }
            if self.closed {
                return Ok(End::Closed);
            }
            self.stage.check()?;
            for item in news.take() {
                self.take(item)?;
            }
            while let Some(act) = self.plot.next_act() {
                self.act(&act)?;
            }
            if self.plot.is_over() {
                return Ok(End::Over);
            }
        }
    }

    /// Waits for news, a signal or the end of a process.
    fn wait(&self, news: &Feed) -> Result<Option<End>, CliError> {
        let left = BOUND.saturating_sub(clock::now().boot.since(self.began));
        if left == Dur::from_secs(0) {
            return Err(CliError::internal(format!("the jobs did not end within {BOUND}")));
        }
        let left = Timespec::try_from(Duration::from(left)).ok();
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&news.wake, PollFlags::IN)];
        fds.extend(self.stage.processes().map(|kept| PollFd::new(kept, PollFlags::IN)));
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(CliError::internal(format!("cannot wait: {e}"))),
        }
        let signal = self.signals.take().map_err(|e| CliError::internal(format!("cannot wait: {e}")))?;
        Ok(signal.map(End::Signal))
    }

    fn take(&mut self, news: News) -> Result<(), CliError> {
        match news {
            News::Queued => self.step(&format!("queued {JOBS} jobs")),
            News::Record(id, record) => {
                if let Some(line) = self.plot.see(id.job.as_str(), *record) {
                    self.step(&line);
                }
            }
            News::Failed(why) => return Err(CliError::internal(format!("cannot use the server: {why}"))),
        }
        Ok(())
    }

    fn act(&mut self, act: &Act) -> Result<(), CliError> {
        match act {
            Act::KillWorker(worker, jobs) => {
                self.head(&format!("killing the worker {worker} and everything it started"));
                self.stage.kill_worker(worker)?;
                let jobs = jobs.join(" and ");
                self.step(&format!("{worker} held {jobs}; its leases of {LEASE} s end without renewals"));
            }
            Act::KillServer(running) => {
                let running = words::count(*running as u64, "running job");
                self.head(&format!("killing the server, and starting it again; {running}"));
                self.stage.kill_server()?;
                self.stage.start_server()?;
            }
        }
        Ok(())
    }

    fn head(&mut self, text: &str) {
        self.print(Tone::Head, &format!("— {text}"));
    }

    /// Prints a line with the time since the start.
    fn step(&mut self, text: &str) {
        let time = clock::now().boot.since(self.began).as_millis();
        self.print(Tone::Plain, &format!("{:>4}.{} s  {text}", time / 1000, time % 1000 / 100));
    }

    fn print(&mut self, tone: Tone, text: &str) {
        self.closed |= !show(self.color, tone, text);
    }

    fn finish(self, played: Result<End, CliError>) -> Result<u8, CliError> {
        let Play { stage, plot, began, color, .. } = self;
        let acts = plot.summary(&stage.marks());
        let took = clock::now().boot.since(began);
        let nothing_left = stage.clear();
        let left = match nothing_left {
            true => "no process is left running, and the demo's directory is removed",
            false => "a process or the demo's directory is left",
        };
        match played? {
            End::Signal(signal) => {
                show(color, Tone::Plain, &format!("demo stopped; {left}"));
                return Ok(u8::try_from(128 + signal).unwrap_or(1));
            }
            End::Closed => return Ok(0),
            End::Over => {}
        }
        show(color, Tone::Head, &format!("\n— what you saw, in {}", words::span(took)));
        let mut missing = 0;
        for (happened, text) in acts.into_iter().chain([(nothing_left, left.to_owned())]) {
            let (tone, sign) = if happened { (Tone::Good, '✓') } else { (Tone::Bad, '✗') };
            missing += usize::from(!happened);
            show(color, tone, &format!("  {sign} {text}"));
        }
        if missing > 0 {
            show(color, Tone::Bad, &format!("{missing} of these did not happen as expected"));
            return Ok(1);
        }
        show(color, Tone::Plain, "To make your own fleet: dogwatch fleet init --listen HOST:4222");
        Ok(0)
    }
}

/// Prints a line. Returns whether stdout takes it.
fn show(color: bool, tone: Tone, text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{}", paint(color, tone, &printable(text)));
    written.and_then(|()| out.flush()).is_ok()
}

/// News of a thread that uses the server. The pipe is readable when there are any.
struct Feed {
    news: Receiver<News>,
    wake: PipeReader,
}

impl Feed {
    /// Sets the fleet up, queues the jobs, and follows their records.
    fn start(line: JoinLine, jobs: Vec<(JobId, Job)>) -> Result<Feed, CliError> {
        let failed = |e: std::io::Error| CliError::internal(format!("cannot follow the server: {e}"));
        let (wake, waker) = std::io::pipe().map_err(failed)?;
        rustix::io::ioctl_fionbio(&wake, true).map_err(|e| failed(e.into()))?;
        let (sender, news) = channel();
        let source = Source { sender, waker };
        let work = move || source.run(&line, &jobs);
        std::thread::Builder::new().name("records".into()).spawn(work).map_err(failed)?;
        Ok(Feed { news, wake })
    }

    /// Returns the news that have arrived.
    fn take(&mut self) -> Vec<News> {
        let mut bytes = [0; 64];
        while self.wake.read(&mut bytes).is_ok_and(|count| count == bytes.len()) {}
        self.news.try_iter().collect()
    }
}

/// The other end of a feed.
struct Source {
    sender: Sender<News>,
    waker: PipeWriter,
}

impl Source {
    fn send(&self, news: News) -> bool {
        self.sender.send(news).is_ok() && (&self.waker).write_all(b"!").is_ok()
    }

    fn run(self, line: &JoinLine, jobs: &[(JobId, Job)]) {
        if let Err(why) = self.queue(line, jobs) {
            self.send(News::Failed(why));
            return;
        }
        self.send(News::Queued);
        // It ends only with this process.
        let _ = blocking::follow(line, |id, record| self.send(News::Record(id, Box::new(record))));
    }

    fn queue(&self, line: &JoinLine, jobs: &[(JobId, Job)]) -> Result<(), String> {
        let Some((first, _)) = jobs.first() else { return Ok(()) };
        let setup = Setup { replicas: 1, ack_wait: Duration::from_secs(LEASE / 2) };
        let began = Instant::now();
        while let Err(error) = blocking::set_up(line, &first.account, DEFAULT_CAP, setup) {
            if began.elapsed() > STARTING {
                return Err(error.to_string());
            }
            std::thread::sleep(TRY_EVERY);
        }
        blocking::submit(line, jobs, None, clock::now().wall).map_err(|error| error.to_string())
    }
}
