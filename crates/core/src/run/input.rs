//! What happened: past tense, told by the shell, each with a moment.

use crate::record::day::DayUse;
use crate::record::event::{InputDigest, Observation, Pin, Report, Usage, WaitEndedBy};
use crate::record::ids::{Iteration, NodeIx};
use crate::record::notification::How;
use crate::run::job::{Exit, Job, JobReport};
use crate::time::dur::Dur;
use crate::time::moment::Awake;
use crate::watch::Fact;
use crate::watch::health::HealthIssue;

#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The shell is ready; the run may begin.
    Began,
    /// A moment that `next_wakeup` asked for may have come. Harmless at any time. Nothing that was said before it is
    /// still on its way.
    TimePassed,
    /// The same, for a shell with pipes: what the nodes of [`Run::to_judge`](crate::Run::to_judge) had said up to that
    /// moment has been told. Whose limit came later is judged later.
    Heard {
        upto: Awake,
    },
    JobStarted {
        job: Job,
        pid: u32,
        argv: Vec<String>,
    },
    /// The order to start it was sent; the keeper owes a report from now on.
    JobSent {
        job: Job,
    },
    /// A resource was missing (processes, memory, descriptors) or its keeper was lost before it started. No process of
    /// it exists. The same start may work later.
    JobUnstarted {
        job: Job,
        error: String,
    },
    /// The answer to `Decision::Nudge`: whether the keeper was stopped. It was continued.
    KeeperSeen {
        job: Job,
        stopped: bool,
    },
    /// It could not be started; no process of it exists.
    JobRefused {
        job: Job,
        error: String,
    },
    /// The job's main process exited. Others of its tree may live on.
    JobExited {
        job: Job,
        exit: Exit,
    },
    /// Nobody holds the job's output pipes any more.
    PipesClosed {
        job: Job,
    },
    /// The tree is empty, proven; the pipes are drained.
    JobEnded {
        job: Job,
        report: Box<JobReport>,
    },
    /// Even KILL did not empty the tree yet. It is still being tried.
    TreeStands {
        job: Job,
        detail: String,
    },
    PromptAssembled {
        node: NodeIx,
        iteration: Iteration,
        bytes: u64,
        sha256: String,
        sight: Option<InputDigest>,
    },
    /// What the files that the node's checks rest on contain, or why nobody can tell.
    PinsHashed {
        node: NodeIx,
        iteration: Iteration,
        pins: Result<Vec<Pin>, String>,
    },
    Observed {
        job: Job,
        seen: Observation,
    },
    /// Something the watchdog is told singly.
    Noted {
        job: Job,
        fact: Fact,
    },
    /// Something ails the agent.
    Strained {
        job: Job,
        strain: HealthIssue,
    },
    /// The agent told us something beside its output.
    Reported {
        job: Job,
        report: Box<Report>,
    },
    /// What the session has used so far.
    Used {
        job: Job,
        usage: Usage,
    },
    /// What all runs of the project have used today. Told before a session starts, if anybody asked for a limit.
    DayUsed(DayUse),
    /// The agent gave its final result, and no work goes on behind its back.
    ResultSeen {
        job: Job,
    },
    /// The host slept for so long, or dogwatch could not run.
    Suspended {
        lasted: Dur,
        /// The awake clock ran on meanwhile.
        unwatched: bool,
    },
    /// Ctrl-C.
    Interrupted,
    /// TERM or HUP of dogwatch.
    EndAsked(EndSignal),
    /// A person or program asks that the run stop after this iteration.
    StopAsked,
    /// End the wait now.
    WakeAsked(WaitEndedBy),
    /// Begin no iteration until told to go on.
    PauseAsked,
    UnpauseAsked,
    /// A person's words for the agent.
    Told {
        text: String,
    },
    /// The context entry was kept, or could not be.
    ContextKept {
        error: Option<String>,
    },
    /// Somebody was told of something, or could not be.
    Notified {
        key: String,
        how: How,
        error: Option<String>,
    },
    Noticed {
        kind: &'static str,
        message: String,
    },
    TroubleMet {
        kind: &'static str,
        detail: String,
    },
    /// The record cannot be written just now: supervise on, start nothing new.
    RecordFailed {
        detail: String,
    },
    RecordRecovered,
    /// The record is gone for good.
    RecordLost {
        detail: String,
    },
}

/// The signals that end a run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndSignal {
    Terminate,
    HangUp,
}

impl EndSignal {
    pub fn exit_code(self) -> u8 {
        match self {
            EndSignal::Terminate => 143,
            EndSignal::HangUp => 129,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            EndSignal::Terminate => "SIGTERM",
            EndSignal::HangUp => "SIGHUP",
        }
    }
}
