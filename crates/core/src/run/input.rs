//! Inputs of the core: events in the past tense, reported by the shell, each with a moment.

use crate::record::day::DayUse;
use crate::record::event::{InputDigest, Observation, Pin, Report, Usage, WaitEndedBy};
use crate::record::ids::{Iteration, NodeIx, NodeName};
use crate::record::notification::How;
use crate::record::windows::Window;
use crate::run::caller::Source;
use crate::run::job::{Exit, Job, JobReport};
use crate::time::dur::Dur;
use crate::time::moment::{Awake, Boot, Wall};
use crate::time::timer::Timer;
use crate::watch::Fact;
use crate::watch::feed::FeedItem;
use crate::watch::health::HealthIssue;
use crate::watch::limits::Label;

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
    OutputDrained {
        /// The moment up to which all output has been reported.
        upto: Awake,
    },
    /// Something happened to a job. It is ignored if the iteration of the job has closed.
    Job(Job, NodeInput),
    /// Something happened in an iteration of a node. It is ignored if that iteration has closed.
    Node(NodeIx, Iteration, NodeInput),
    /// Even KILL has not emptied the process tree yet. The keeper keeps trying.
    TreeUnkillable {
        /// The job.
        job: Job,
        /// The details, for people.
        detail: String,
    },
    /// The usage of all runs of the project today. Reported before a session starts if the plan has a day budget.
    DayUsed(DayUse),
    /// The service of a session's agent reported how much of its windows is used.
    WindowsSeen {
        /// The job.
        job: Job,
        /// When the service reported it.
        seen_at: Wall,
        /// The windows.
        windows: Vec<Window>,
    },
    /// A person or program requested that no agent be called for a while, as if a service had refused.
    LimitAsked {
        /// Until when.
        until: Wall,
        /// The account that it applies to; `None` for all agents.
        account: Option<String>,
    },
    /// The local time zone's distance from UTC. Reported before the first step and whenever it changes.
    ZoneSeen {
        /// The offset of local time from UTC, in seconds.
        utc_offset_s: i32,
    },
    /// The host was suspended, or dogwatch could not run.
    Suspended {
        /// How long it lasted.
        lasted: Dur,
        /// The awake clock kept running meanwhile.
        unwatched: bool,
    },
    /// The operator pressed Ctrl-C.
    Interrupted,
    /// dogwatch received TERM or HUP.
    EndAsked(EndSignal),
    /// The leash has a new end: until then the run may live.
    LeashRenewed {
        /// The end on the boot clock.
        until: Boot,
    },
    /// The other end of the leash was closed.
    LeashClosed,
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
    MessageReceived {
        /// The message.
        text: String,
        /// The author of the message.
        from: Source,
    },
    /// A person labeled a stop of the watchdog.
    VerdictLabeled {
        /// The node's name.
        node: NodeName,
        /// The number of the stopped iteration.
        iteration: Iteration,
        /// Whether the stop was right.
        label: Label,
    },
    /// The context entry was written, or writing it failed.
    ContextKept {
        /// Why it failed. `None` if it succeeded.
        error: Option<String>,
    },
    /// A notification was delivered, or its delivery failed.
    Notified {
        /// The key of the notification.
        key: String,
        /// How it was delivered.
        how: How,
        /// Why it failed. `None` if it succeeded.
        error: Option<String>,
    },
    /// The shell has a notice for the record.
    Noticed {
        /// The kind of notice.
        kind: &'static str,
        /// The notice as a sentence for people.
        message: String,
    },
    /// The shell met a problem that belongs in the record.
    TroubleMet {
        /// The kind of problem.
        kind: &'static str,
        /// The details, for people.
        detail: String,
    },
    /// The record cannot be written at the moment: keep supervising, start nothing new.
    RecordFailed {
        /// The details, for people.
        detail: String,
    },
    /// The record can be written again.
    RecordRecovered,
    /// The record is lost permanently.
    RecordLost {
        /// The details, for people.
        detail: String,
    },
}

/// Something that happened in the current iteration of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeInput {
    /// The job's main process has started.
    Started {
        /// The process id of the main process.
        pid: u32,
        /// The command line as it was run.
        argv: Vec<String>,
    },
    /// The order to start the job was sent; the keeper owes a report from now on.
    Sent,
    /// The job did not start because a resource (processes, memory, descriptors) was missing or its keeper was lost.
    /// No process of it exists. The same start may succeed later.
    Unstarted {
        /// Why it failed.
        error: String,
    },
    /// The job could not be started; no process of it exists.
    Refused {
        /// Why it failed.
        error: String,
    },
    /// The answer to `Decision::Nudge`: whether the keeper was stopped. The shell has continued it.
    KeeperSeen {
        /// Whether the keeper was stopped.
        stopped: bool,
    },
    /// The job's main process exited. Other processes of its tree may still be alive.
    Exited(Exit),
    /// No process holds the job's output pipes any longer.
    PipesClosed,
    /// The process tree is proven empty and the pipes are drained.
    Ended(Box<JobReport>),
    /// The prompt is ready.
    PromptAssembled {
        /// The length of the prompt in bytes.
        bytes: u64,
        /// The SHA-256 hash of the prompt.
        sha256: String,
        /// The digest of the agent's input, if the decision asked for it.
        input_digest: Option<InputDigest>,
    },
    /// The hashes of the files that the node's checks depend on, or the reason they cannot be read.
    PinsHashed {
        /// The hashes, or why they cannot be computed.
        pins: Result<Vec<Pin>, String>,
        /// The hash of the work tree, if it was requested and could be read in time.
        tree: Option<String>,
    },
    /// Progress was observed on a channel.
    Observed(Observation),
    /// A single fact for the watchdog.
    Noted(Fact),
    /// The agent has a health issue.
    HealthIssueFound(HealthIssue),
    /// The agent sent a report over the agent channel.
    Reported(Box<Report>),
    /// The session's usage so far.
    Used(Usage),
    /// The agent gave its final result, and no background work is in progress.
    ResultSeen,
    /// A timer of the node is due. Only the core itself makes this input.
    Due(Timer),
}

impl Input {
    /// Returns the input for something that a session's feed found.
    pub fn from_feed(job: Job, item: FeedItem) -> Input {
        match item {
            FeedItem::Fact(Fact::Observed(seen)) => Input::Job(job, NodeInput::Observed(seen)),
            FeedItem::Fact(fact) => Input::Job(job, NodeInput::Noted(fact)),
            FeedItem::Issue(issue) => Input::Job(job, NodeInput::HealthIssueFound(issue)),
        }
    }
}

/// The signals that end a run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndSignal {
    /// SIGTERM.
    Terminate,
    /// SIGHUP.
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
