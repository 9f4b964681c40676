//! The job's process tree: what is known of it, and ending it.
//!
//! `advance` does what is due and can be called at any time; it never sleeps. Phases, in order of life:
//! none → running → left (main gone, others there) → asked (TERM sent, grace runs) → killing → none.

use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::descendants::Descendants;
use super::order::Report;
use crate::sys::{Gone, Waited, wait_any};

/// After so much killing what is left is reported as standing.
const KILL_BOUND: Duration = Duration::from_secs(5);
/// Between two rounds of killing when no child's end wakes us: at first, and at most. Only met when
/// something is stuck in the kernel or belongs to another user.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// Rounds of killing in one go before orders are looked at again.
const MAX_ROUNDS: u32 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No child at all.
    Nothing,
    /// There are children, and nobody has asked for their end.
    Living,
    /// All were told to go; at `until` they will be killed.
    Terminating {
        until: Instant,
    },
    Killing {
        since: Instant,
        pause: Duration,
        reported: bool,
    },
}

#[derive(Debug)]
struct Job {
    id: u64,
    /// None once it was reaped: its pid, which is its group's too, may then mean somebody else.
    main: Option<i32>,
    cpu: Duration,
    /// Reaped after we had told all to go, the main process not counted.
    killed: u64,
    /// A `Sweep` or `Kill` waits for its answer.
    owed: bool,
}

#[derive(Debug)]
pub struct Tree {
    descendants: Descendants,
    phase: Phase,
    job: Option<Job>,
}

impl Tree {
    pub fn new() -> Self {
        Self { descendants: Descendants::new(), phase: Phase::Nothing, job: None }
    }

    /// Proven: `waitpid` has said that there is no child, and none was started since.
    pub fn is_empty(&self) -> bool {
        self.phase == Phase::Nothing
    }

    pub fn began(&mut self, id: u64, main: i32) {
        self.job = Some(Job { id, main: Some(main), cpu: Duration::ZERO, killed: 0, owed: false });
        self.phase = Phase::Living;
    }

    /// To the group while the main process holds its pid, else to each that is left.
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

    pub fn sweep(&mut self, now: Instant, grace: Duration) {
        self.expect_report();
        match self.phase {
            Phase::Nothing | Phase::Killing { .. } => {}
            Phase::Living => {
                self.descendants.signal_all(&[Signal::TERM, Signal::CONT]);
                self.phase = Phase::Terminating { until: now + grace };
            }
            // The shorter grace holds, and nobody is told twice.
            Phase::Terminating { until } => self.phase = Phase::Terminating { until: until.min(now + grace) },
        }
    }

    pub fn kill(&mut self, now: Instant) {
        self.expect_report();
        match self.phase {
            Phase::Nothing | Phase::Killing { .. } => {}
            Phase::Living | Phase::Terminating { .. } => self.begin_killing(now),
        }
    }

    fn expect_report(&mut self) {
        if let Some(job) = &mut self.job {
            job.owed = true;
        }
    }

    fn begin_killing(&mut self, now: Instant) {
        // One pass over the whole tree first: the fewer live, the fewer fork.
        self.descendants.signal_all(&[Signal::KILL]);
        self.phase = Phase::Killing { since: now, pause: FIRST_PAUSE, reported: false };
    }

    /// When `advance` must be called again at the latest, if no child ends before.
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

    /// Reaps all that has ended and does what is due.
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
            && std::mem::take(&mut job.owed)
        {
            reports.push(Report::Empty { job: job.id, killed: job.killed });
        }
        Ok(reports)
    }

    /// Reaps until nothing has ended any more; gives how many there were.
    fn reap(&mut self, reports: &mut Vec<Report>) -> io::Result<u64> {
        if self.is_empty() {
            return Ok(0);
        }
        let mut reaped = 0;
        let mut ended = None;
        loop {
            match wait_any()? {
                Waited::Gone(gone) => {
                    reaped += 1;
                    ended = self.note(gone).or(ended);
                }
                Waited::NotYet => break,
                Waited::Nobody => {
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

    /// Notes a reaped child; gives it back if it was the main one.
    fn note(&mut self, gone: Gone) -> Option<Gone> {
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

    /// Kills own children for as long as that brings anything. What forks away becomes our child the
    /// moment its parent is gone, and a process with SIGKILL pending cannot fork.
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

    /// Nothing more can be done until a child ends; says so once when that takes too long.
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
