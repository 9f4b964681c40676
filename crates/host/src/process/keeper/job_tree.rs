//! The process tree of a job: its state, and how it is ended.
//!
//! `advance` performs the due steps. It never sleeps and can be called at any time. The phases are: nothing, living
//! (with or without the main process), terminating (TERM sent, grace period running), killing, nothing.

use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::descendants::Descendants;
use super::order::Report;
use crate::sys::{ReapedChild, Waited, wait_any};

/// Processes that survive SIGKILL for this long are reported as unkillable.
const KILL_BOUND: Duration = Duration::from_secs(5);
/// The first and the longest pause between two rounds of killing when no exiting child wakes the keeper. Only reached
/// if a process is stuck in the kernel or belongs to another user.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// The most rounds of killing before orders are read again.
const MAX_ROUNDS: u32 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The tree is empty.
    Nothing,
    /// There are children, and no order to end them.
    Living,
    /// All processes got SIGTERM. They are killed at `until`.
    Terminating { until: Instant },
    /// All processes get SIGKILL until none is left.
    Killing { since: Instant, pause: Duration, reported: bool },
}

#[derive(Debug)]
struct Job {
    id: u64,
    /// The pid of the main process and of its group. `None` once it is reaped, since the pid may belong to another
    /// process then.
    main: Option<i32>,
    cpu: Duration,
    /// Processes reaped after they were signaled to stop, excluding the main process.
    killed: u64,
    /// The command lines of leftover processes, from before the first signal.
    names: Vec<String>,
    /// A `Sweep` or `Kill` waits for its `Empty` report.
    report_due: bool,
}

/// The process tree of the current job.
#[derive(Debug)]
pub struct JobTree {
    descendants: Descendants,
    phase: Phase,
    job: Option<Job>,
}

impl JobTree {
    /// Creates an empty tree.
    pub fn new() -> Self {
        Self { descendants: Descendants::new(), phase: Phase::Nothing, job: None }
    }

    /// Returns whether the tree is proven empty: `waitpid` found no child, and no job started since.
    pub fn is_empty(&self) -> bool {
        self.phase == Phase::Nothing
    }

    /// Records that a job started with the main process `main`.
    pub fn began(&mut self, id: u64, main: i32) {
        let (cpu, names) = (Duration::ZERO, Vec::new());
        self.job = Some(Job { id, main: Some(main), cpu, killed: 0, names, report_due: false });
        self.phase = Phase::Living;
    }

    /// Sends signals to the process group while the main process is unreaped, then to each remaining descendant.
    pub fn signal(&self, signals: &[Signal]) {
        match self.job.as_ref().and_then(|job| job.main).and_then(Pid::from_raw) {
            Some(group) => {
                for signal in signals {
                    let _ = kill_process_group(group, *signal);
                }
            }
            None if self.is_empty() => {}
            None => self.descendants.signal_all(signals),
        }
    }

    /// Sends SIGTERM to all descendants and kills them after `grace`.
    pub fn sweep(&mut self, now: Instant, grace: Duration) {
        self.expect_report();
        self.end(now, grace);
    }

    /// Does the same without an order, so without a report.
    pub fn end(&mut self, now: Instant, grace: Duration) {
        match self.phase {
            Phase::Nothing | Phase::Killing { .. } => {}
            Phase::Living => {
                self.name_leftovers();
                self.descendants.signal_all(&[Signal::TERM, Signal::CONT]);
                self.phase = Phase::Terminating { until: now + grace };
            }
            // The shorter grace period applies, and SIGTERM is sent only once.
            Phase::Terminating { until } => self.phase = Phase::Terminating { until: until.min(now + grace) },
        }
    }

    /// Kills all descendants.
    pub fn kill(&mut self, now: Instant) {
        self.expect_report();
        match self.phase {
            Phase::Nothing | Phase::Killing { .. } => {}
            Phase::Living => {
                self.name_leftovers();
                self.begin_killing(now);
            }
            Phase::Terminating { .. } => self.begin_killing(now),
        }
    }

    /// Notes the command lines of the leftover processes, once the main process is gone. A dead process has none.
    fn name_leftovers(&mut self) {
        if let Some(job) = self.job.as_mut().filter(|job| job.main.is_none()) {
            job.names = self.descendants.names();
        }
    }

    fn expect_report(&mut self) {
        if let Some(job) = &mut self.job {
            job.report_due = true;
        }
    }

    fn begin_killing(&mut self, now: Instant) {
        // Kill the whole tree once first: fewer live processes fork less.
        self.descendants.signal_all(&[Signal::KILL]);
        self.phase = Phase::Killing { since: now, pause: FIRST_PAUSE, reported: false };
    }

    /// Returns the longest time until `advance` must be called again if no child exits first.
    pub fn timeout(&self, now: Instant) -> Option<Duration> {
        match self.phase {
            Phase::Nothing | Phase::Living => None,
            Phase::Terminating { until } => Some(until.saturating_duration_since(now)),
            Phase::Killing { pause, reported: true, .. } => Some(pause),
            Phase::Killing { since, pause, reported: false } => {
                Some(pause.min((since + KILL_BOUND).saturating_duration_since(now)))
            }
        }
    }

    /// Reaps ended processes, performs the due steps and returns the reports.
    pub fn advance(&mut self, now: Instant) -> io::Result<Vec<Report>> {
        let mut reports = Vec::new();
        self.reap(&mut reports)?;
        if let Phase::Terminating { until } = self.phase
            && now >= until
        {
            self.begin_killing(now);
        }
        if let Phase::Killing { .. } = self.phase {
            self.kill_rounds(&mut reports)?;
        }
        if let (Phase::Nothing, Some(job)) = (self.phase, &mut self.job)
            && std::mem::take(&mut job.report_due)
        {
            let names = std::mem::take(&mut job.names);
            reports.push(Report::Empty { job: job.id, killed: job.killed, names });
        }
        Ok(reports)
    }

    /// Reaps all ended children and returns how many there were.
    fn reap(&mut self, reports: &mut Vec<Report>) -> io::Result<u64> {
        if self.is_empty() {
            return Ok(0);
        }
        let mut reaped = 0;
        let mut ended = None;
        loop {
            match wait_any()? {
                Waited::Reaped(gone) => {
                    reaped += 1;
                    ended = self.note(gone).or(ended);
                }
                Waited::NotYet => break,
                Waited::NoChild => {
                    self.phase = Phase::Nothing;
                    break;
                }
            }
        }
        if let (Some(gone), Some(job)) = (ended, &self.job) {
            let alone = self.phase == Phase::Nothing;
            reports.push(Report::Exited { job: job.id, how: gone.how, cpu: job.cpu, alone });
        }
        Ok(reaped)
    }

    /// Records a reaped child. Returns it if it was the main process.
    fn note(&mut self, gone: ReapedChild) -> Option<ReapedChild> {
        let ending = matches!(self.phase, Phase::Terminating { .. } | Phase::Killing { .. });
        let job = self.job.as_mut()?;
        job.cpu += gone.cpu;
        if job.main == Some(gone.pid) {
            job.main = None;
            return Some(gone);
        }
        job.killed += u64::from(ending);
        None
    }

    /// Kills direct children as long as that makes progress. A process that forks away becomes a direct child as soon
    /// as its parent is gone, and a process with SIGKILL pending cannot fork.
    fn kill_rounds(&mut self, reports: &mut Vec<Report>) -> io::Result<()> {
        let mut before = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let children = self.descendants.signal_children(Signal::KILL);
            let reaped = self.reap(reports)?;
            if self.is_empty() {
                return Ok(());
            }
            if reaped == 0 && children == before {
                self.pause_killing(reports);
                return Ok(());
            }
            before = children;
        }
        Ok(())
    }

    /// Pauses until a child exits, and reports the tree as unkillable once if that takes too long.
    fn pause_killing(&mut self, reports: &mut Vec<Report>) {
        let Phase::Killing { since, pause, reported } = &mut self.phase else { return };
        *pause = (*pause * 2).min(LAST_PAUSE);
        if since.elapsed() < KILL_BOUND || std::mem::replace(reported, true) {
            return;
        }
        if let Some(job) = &self.job {
            let (left, detail) = self.descendants.remnants();
            reports.push(Report::Unkillable { job: job.id, left, detail });
        }
    }
}
