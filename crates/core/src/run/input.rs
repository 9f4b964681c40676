//! Inputs of the core: events in the past tense, reported by the shell, each with a moment.

use crate::record::day::DayUse;
use crate::record::event::{InputDigest, Observation, Pin, Report, Usage, WaitEndedBy};
use crate::record::ids::{Iteration, NodeIx};
use crate::record::notification::How;
use crate::run::caller::Source;
use crate::run::job::{Exit, Job, JobReport};
use crate::time::dur::Dur;
use crate::time::moment::Awake;
use crate::watch::Fact;
use crate::watch::health::HealthIssue;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The shell is ready; the run may begin.
    Began,
    /// A moment that `next_wakeup` asked for may have come. Harmless at any time. All earlier output has already been
    /// reported.
    TimePassed,
    /// The same, for a shell with pipes: the output of the nodes of [`Run::to_judge`](crate::Run::to_judge) up to
    /// `upto` has been reported. Nodes with a later limit are judged later.
    OutputDrained { upto: Awake },
    /// The job's main process has started.
    JobStarted { job: Job, pid: u32, argv: Vec<String> },
    /// The order to start the job was sent; the keeper owes a report from now on.
    JobSent { job: Job },
    /// The job did not start because a resource (processes, memory, descriptors) was missing or its keeper was lost.
    /// No process of it exists. The same start may succeed later.
    JobUnstarted { job: Job, error: String },
    /// The answer to `Decision::Nudge`: whether the keeper was stopped. The shell has continued it.
    KeeperSeen { job: Job, stopped: bool },
    /// The job could not be started; no process of it exists.
    JobRefused { job: Job, error: String },
    /// The job's main process exited. Other processes of its tree may still be alive.
    JobExited { job: Job, exit: Exit },
    /// No process holds the job's output pipes any longer.
    PipesClosed { job: Job },
    /// The process tree is proven empty and the pipes are drained.
    JobEnded { job: Job, report: Box<JobReport> },
    /// Even KILL has not emptied the process tree yet. The keeper keeps trying.
    TreeUnkillable { job: Job, detail: String },
    /// The prompt is ready.
    PromptAssembled {
        node: NodeIx,
        iteration: Iteration,
        bytes: u64,
        sha256: String,
        input_digest: Option<InputDigest>,
    },
    /// The hashes of the files that the node's checks depend on, or the reason they cannot be read.
    PinsHashed { node: NodeIx, iteration: Iteration, pins: Result<Vec<Pin>, String> },
    /// Progress was observed on a channel.
    Observed { job: Job, seen: Observation },
    /// A single fact for the watchdog.
    Noted { job: Job, fact: Fact },
    /// The agent has a health issue.
    HealthIssueFound { job: Job, issue: HealthIssue },
    /// The agent sent a report over the agent channel.
    Reported { job: Job, report: Box<Report> },
    /// The session's usage so far.
    Used { job: Job, usage: Usage },
    /// The usage of all runs of the project today. Reported before a session starts if the plan has a day budget.
    DayUsed(DayUse),
    /// The agent gave its final result, and no background work is in progress.
    ResultSeen { job: Job },
    /// The host was suspended, or dogwatch could not run.
    Suspended {
        lasted: Dur,
        /// The awake clock kept running meanwhile.
        unwatched: bool,
    },
    /// The operator pressed Ctrl-C.
    Interrupted,
    /// dogwatch received TERM or HUP.
    EndAsked(EndSignal),
    /// A person or program requested a stop after this iteration.
    StopAsked,
    /// The operator requested a stop after this iteration and accepts checks that do not pass.
    StopAccepted,
    /// A person, program or file change requested the end of all waits.
    WakeAsked(WaitEndedBy),
    /// A person or program requested a pause: no iteration starts until it is lifted.
    PauseAsked,
    /// A person or program lifted the pause.
    UnpauseAsked,
    /// A message for the agent arrived.
    MessageReceived { text: String, from: Source },
    /// The context entry was written, or writing it failed.
    ContextKept { error: Option<String> },
    /// A notification was delivered, or its delivery failed.
    Notified { key: String, how: How, error: Option<String> },
    /// The shell has a notice for the record.
    Noticed { kind: &'static str, message: String },
    /// The shell met a problem that belongs in the record.
    TroubleMet { kind: &'static str, detail: String },
    /// The record cannot be written at the moment: keep supervising, start nothing new.
    RecordFailed { detail: String },
    /// The record can be written again.
    RecordRecovered,
    /// The record is lost permanently.
    RecordLost { detail: String },
}

/// The signals that end a run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndSignal {
    Terminate,
    HangUp,
}

impl EndSignal {
    /// Returns the exit code of a run that the signal ended.
    pub fn exit_code(self) -> u8 {
        match self {
            EndSignal::Terminate => 143,
            EndSignal::HangUp => 129,
        }
    }

    /// Returns the signal's name.
    pub fn name(self) -> &'static str {
        match self {
            EndSignal::Terminate => "SIGTERM",
            EndSignal::HangUp => "SIGHUP",
        }
    }
}
