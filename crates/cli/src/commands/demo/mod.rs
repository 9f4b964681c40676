use crate::color;
use crate::error::CliError;
use crate::screen::{Formatter, Show, ShownLine, Tone, paint, words, wrap_for};
use acts::Acts;
use dogwatch_agents::Splitter;
use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::record::view::View;
use dogwatch_core::text::printable;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Boot;
use dogwatch_host::clock;
use dogwatch_host::sys::{SignalFd, block};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use stage::Stage;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout};

mod acts;
mod stage;

/// Run a short demo with a scripted agent
///
/// The demo is a real run in a temporary directory; it needs no API key and no network. The scripted agent works, goes
/// idle so that the waits get longer, is woken by a file, hangs and is stopped, and goes idle until the run ends by
/// itself. The record is kept so that you can look at it. Stop the demo with Ctrl-C.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 if every step happened, 1 if not, 2 if the demo cannot start.")]
pub struct Args {}

/// The longest time that the demo may take.
const BOUND: Dur = Dur::from_secs(55);
/// The time from the start of the wait to the file, so that the user sees the wait.
const BEFORE_FILE: Dur = Dur::from_millis(1_500);
/// The most bytes to read at once.
const CHUNK: usize = 16 * 1024;
/// The longest line of the run's output: `run_started` with its settings.
const MAX_LINE: usize = dogwatch_host::store::journal::MAX_LINE;

/// Runs `dogwatch demo` and returns the exit code.
pub fn run(_: &Args) -> Result<u8, CliError> {
    // Blocked before there is anything to clean up.
    let taken = [Signal::INT, Signal::TERM, Signal::HUP];
    let cannot = |e: std::io::Error| CliError::internal(format!("cannot set up signals: {e}"));
    block(&taken).map_err(cannot)?;
    let signals = SignalFd::new(&taken).map_err(cannot)?;
    let stage = Stage::set()?;
    let mut child = stage.start()?;
    let stdout = child.stdout.take().ok_or_else(|| CliError::internal("the run has no stdout"))?;
    Play::new(stage, child, signals).play(stdout)
}

/// The running demo.
struct Play {
    stage: Stage,
    child: Child,
    signals: SignalFd,
    acts: Acts,
    formatter: Option<Formatter>,
    view: View,
    color: bool,
    began: Boot,
    /// When the file is due.
    file_at: Option<Boot>,
    /// Why the demo was stopped early.
    stopped: Option<Stopped>,
}

/// Why the demo was stopped early.
enum Stopped {
    Signal(i32),
    /// The reader of stdout is gone.
    Closed,
    TooLong,
}

impl Play {
    fn new(stage: Stage, child: Child, signals: SignalFd) -> Play {
        Play {
            stage,
            child,
            signals,
            acts: Acts::default(),
            formatter: None,
            view: View::default(),
            color: color::on_stdout(),
            began: clock::now().boot,
            file_at: None,
            stopped: None,
        }
    }

    fn play(mut self, mut stdout: ChildStdout) -> Result<u8, CliError> {
        self.say(Tone::Plain, "dogwatch demo: a scripted agent, no API key, no network, about 15 seconds");
        self.say(Tone::Plain, &format!("in {}", self.stage.dir.display()));
        let mut lines = Splitter::with_max(MAX_LINE);
        let mut buffer = vec![0; CHUNK];
        while self.wait(&stdout)? {
            match stdout.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    let mut events = Vec::new();
                    lines.feed(&buffer[..n], |line| events.extend(dogwatch_codec::read(line.bytes)));
                    events.iter().for_each(|event| self.show(event));
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(CliError::internal(format!("cannot read the output of the run: {e}"))),
            }
        }
        let status =
            self.child.wait().map_err(|e| CliError::internal(format!("cannot wait for the run: {e}")))?;
        self.finish(status.code())
    }

    /// Waits for output of the run, and drops the file or stops the run when that is due.
    fn wait(&mut self, stdout: &ChildStdout) -> Result<bool, CliError> {
        loop {
            let now = clock::now().boot;
            if self.file_at.is_some_and(|at| at <= now) {
                self.file_appears()?;
            }
            if now.since(self.began) >= BOUND {
                self.stop(Stopped::TooLong);
            }
            let due = self.file_at.unwrap_or(self.began.plus(BOUND));
            // After the run was stopped, wait only for its end.
            let left = if self.stopped.is_some() { BOUND } else { due.since(now) };
            let timeout = Timespec::try_from(std::time::Duration::from(left)).ok();
            let mut fds = [
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(CliError::internal(format!("cannot wait: {e}"))),
            }
            let readable = !fds[1].revents().is_empty();
            while let Ok(Some(signal)) = self.signals.take() {
                self.stop(Stopped::Signal(signal));
            }
            if readable {
                return Ok(true);
            }
        }
    }

    fn show(&mut self, recorded: &Recorded) {
        if let Event::RunStarted(started) = &recorded.event {
            self.formatter = Some(Formatter::new(&self.stage.run_dir(started.run.as_str()), Show::Normal));
        }
        if let Some(act) = Acts::announce(&recorded.event) {
            self.act(act);
        }
        self.view.apply(recorded);
        self.acts.see(recorded);
        let lines = self.formatter.as_mut().map(|formatter| formatter.format(recorded, &self.view));
        lines.unwrap_or_default().iter().for_each(|line| self.print(line));
        if self.acts.wants_file() && self.file_at.is_none() {
            self.file_at = Some(clock::now().boot.plus(BEFORE_FILE));
        }
    }

    fn file_appears(&mut self) -> Result<(), CliError> {
        self.file_at = None;
        self.act("a file appears in inbox/: the run wakes immediately");
        self.acts.file_dropped(clock::now().boot);
        self.stage.drop_file()
    }

    /// Stops the run and its processes: with TERM the first time, with KILL the second time.
    fn stop(&mut self, why: Stopped) {
        let again = self.stopped.is_some();
        self.stopped.get_or_insert(why);
        let signal = if again { Signal::KILL } else { Signal::TERM };
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // The child has not been waited for, so its pid cannot belong to another process.
            let _ = kill_process(pid, signal);
        }
        self.file_at = None;
    }

    fn finish(mut self, exit_code: Option<i32>) -> Result<u8, CliError> {
        let nothing_left = self.stage.is_empty();
        if let Some(Stopped::Signal(signal)) = self.stopped {
            let left =
                if nothing_left { "no process is left running" } else { "a process is left: see `ps`" };
            self.say(Tone::Plain, &format!("demo stopped; {left}"));
            return Ok(u8::try_from(128 + signal).unwrap_or(1));
        }
        let acts = self.acts.summary(exit_code, nothing_left);
        let took = clock::now().boot.since(self.began);
        self.act(&format!("what you saw, in {}", words::span(took)));
        for (happened, text) in &acts {
            let (tone, sign) = if *happened { (Tone::Good, '✓') } else { (Tone::Bad, '✗') };
            self.say(tone, &format!("  {sign} {text}"));
        }
        self.next_steps();
        let missing = acts.iter().filter(|(happened, _)| !happened).count();
        if missing > 0 || self.stopped.is_some() {
            self.say(Tone::Bad, &format!("{missing} of {} acts did not happen as expected", acts.len()));
            return Ok(1);
        }
        Ok(0)
    }

    fn next_steps(&mut self) {
        let dir = self.stage.dir.display().to_string();
        self.say(Tone::Plain, &format!("The loop file and the record are in {dir}:"));
        self.say(Tone::Plain, &format!("  cd {dir}"));
        for line in [
            "  dogwatch                 list the run",
            "  dogwatch logs -i 6       show the output of the agent that hung",
            "  dogwatch events          show every decision and its reason",
            "To start your own loop: dogwatch init my-loop",
        ] {
            self.say(Tone::Plain, line);
        }
    }

    fn act(&mut self, text: &str) {
        self.say(Tone::Head, &format!("\n— {text}"));
    }

    fn say(&mut self, tone: Tone, text: &str) {
        self.print(&ShownLine { tone, text: printable(text).into_owned() });
    }

    fn print(&mut self, line: &ShownLine) {
        let mut out = std::io::stdout().lock();
        let text = wrap_for(&out, &line.text);
        let written = writeln!(out, "{}", paint(self.color, line.tone, &text));
        if written.and_then(|()| out.flush()).is_err() && self.stopped.is_none() {
            self.stop(Stopped::Closed);
        }
    }
}
