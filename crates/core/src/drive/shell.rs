//! The interface between the driver and the outside world. `dogwatch-host` implements it with processes, files and clocks;
//! `dogwatch-sim` implements it with a simulated machine.
//!
//! A shell acts and reports. It decides nothing: it neither reorders nor delays what the driver asks for.

use super::journal::JournalFile;
use crate::record::event::Recorded;
use crate::record::ids::{Iteration, NodeIx};
use crate::record::notification::Delivery;
use crate::record::view::View;
use crate::run::Run;
use crate::run::agent_channel::{AgentRequest, AgentResponse};
use crate::run::decision::{ContextEntry, WantedPrompt};
use crate::run::input::{EndSignal, Input};
use crate::run::job::{Exit, Job, JobReport, Leftovers};
use crate::run::life::TreeOrder;
use crate::time::dur::Dur;
use crate::time::moment::{Awake, Boot, Moment};
use crate::time::timer::Wakeup;
use std::collections::BTreeSet;

/// The outside world of one run.
pub trait Shell {
    /// The journal of the run.
    type File: JournalFile;
    /// The address for the answer to an agent's request.
    type Reply;
    /// The address for a copy of the view.
    type ViewReply;
    /// An error after which the run cannot continue.
    type Error;

    /// Returns the current moment.
    fn now(&self) -> Moment;

    /// Returns when this process was last stopped, if it ever was.
    fn last_stop(&self) -> Option<Awake>;

    /// Sleeps until something happens, at the latest until `until`. With `at_once`, only looks.
    fn sleep(&mut self, until: Wakeup, at_once: bool) -> Result<Woken, Self::Error>;

    /// Takes the messages of other threads, oldest first.
    fn take_mail(&mut self) -> Vec<Mail<Self::Reply, Self::ViewReply>>;

    /// Takes the signals that this process received.
    fn take_signals(&mut self) -> Result<Vec<Signaled>, Self::Error>;

    /// Returns whether this is the token of the job's agent channel.
    fn is_token(&self, job: Job, token: &str) -> bool;

    /// Answers an agent's request. Must not block.
    fn reply(&mut self, to: Self::Reply, answer: Result<AgentResponse, ChannelError>);

    /// Sends a copy of the view. Must not block.
    fn send_view(&mut self, to: Self::ViewReply, view: &View);

    /// Shows an event that is in the journal.
    fn show(&mut self, event: &Recorded, view: &View);

    /// Updates the live line.
    fn tick(&mut self, view: &View);

    /// Prints a warning that cannot go into the record.
    fn warn(&mut self, text: &str);

    /// Returns why some wake paths are not watched. Returns each reason once.
    fn unwatched_paths(&mut self) -> Option<String>;

    /// Watches the wake paths again after a change.
    fn rearm_waker(&mut self);

    /// Sets the timer that ends a pause of the waker. Returns whether that worked.
    fn pause_waker(&mut self, until: Awake) -> bool;

    /// Watches a work tree again after a change: that of a node, or the shared one.
    fn rearm_tree(&mut self, owner: Option<NodeIx>);

    /// Writes a session's prompt to disk. Other jobs have none.
    fn keep_prompt(&mut self, run: &Run, job: Job) -> Result<(), String>;

    /// Sends a keeper the order to start a job. `number` identifies the job in the keeper's reports.
    fn start(&mut self, run: &Run, job: Job, number: u64) -> Result<Sent, Unsent>;

    /// Notes that the main process of a job runs: its work tree can be surveyed now.
    fn started(&mut self, job: Job);

    /// Sends an order to the job's keeper. An error means that the keeper is lost.
    fn order(&mut self, job: Job, order: TreeOrder) -> Result<(), String>;

    /// Returns the next report of the node's keeper. An error means that the keeper is lost.
    fn receive(&mut self, node: NodeIx) -> Result<Option<Report>, String>;

    /// Continues the job's keeper and returns whether it was stopped.
    fn nudge(&mut self, job: Job) -> bool;

    /// Samples the children of a session's main process.
    fn sample(&mut self, run: &Run, job: Job, main: u32) -> Sample;

    /// Hands over the output that is in the pipes of these nodes, as mail.
    fn flush(&mut self, nodes: &BTreeSet<NodeIx>);

    /// Kills the job's keeper and every process of the job.
    fn kill_keeper(&mut self, job: Job, number: u64) -> KeeperKilled;

    /// Frees what a job used that never ran. Its keeper, if it still has one, becomes idle.
    fn abandon(&mut self, job: Job);

    /// Collects the output of a job with no processes left. Its keeper, if it still has one, becomes idle.
    fn collect(&mut self, run: &Run, over: &Over) -> Collected;

    /// Uses an error in place of the output of a prep command that did not start.
    fn no_output(&mut self, run: &Run, job: Job, error: &str);

    /// Stops the idle keepers.
    fn release_keepers(&mut self);

    /// Passes the new end of the leash to all keepers, including those that start later.
    fn renew_leash(&mut self, until: Boot) {
        let _ = until;
    }

    /// Assembles the prompt of an iteration. Returns what happened, with `PromptAssembled` as the last input.
    fn assemble(&mut self, run: &Run, wanted: &WantedPrompt) -> Vec<Input>;

    /// Drops prompts of closed iterations.
    fn forget_prompts(&mut self, view: &View);

    /// Hashes the pinned files of a node. The answer is returned, or comes as mail.
    fn hash_pins(&mut self, run: &Run, node: NodeIx, iteration: Iteration, tree: bool) -> Option<Input>;

    /// Writes the log of the node's last attempt. Returns the trouble it met.
    fn keep_log(&mut self, run: &Run, node: NodeIx, iteration: Iteration) -> Option<Input>;

    /// Writes a summary of abandoned work. Returns the trouble it met.
    fn keep_partial(&mut self, run: &Run, node: NodeIx, iteration: Iteration, file: &str) -> Option<Input>;

    /// Appends the reason for going to sleep to the context file.
    fn keep_context(&mut self, entry: &ContextEntry) -> Result<(), String>;

    /// Returns whether a day limit is set, so that `read_day` has something to read.
    fn has_day_limit(&self) -> bool;

    /// Reads what the project has used today. Every event of this run must be in the journal.
    fn read_day(&mut self) -> Option<Input>;

    /// Hands over a notification. Its result comes as mail.
    fn notify(&mut self, run: &Run, delivery: Delivery) -> Result<(), String>;

    /// Waits this long before the end of the run is written again. Returns whether a signal asked to exit.
    fn wait_for_space(&mut self, pause: Dur) -> bool;

    /// Stops all keepers. With `clean`, no process of the run is left and its lock is cleared.
    fn shut_down(&mut self, clean: bool);
}

/// What ended a sleep. Several things may have happened at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// There is mail.
    pub mail: bool,
    /// There are signals.
    pub signals: bool,
    /// A deadline of the core may have passed.
    pub due: bool,
    /// The pause of the waker is over.
    pub waker: bool,
    /// The live line is due.
    pub tick: bool,
    /// The nodes whose keepers have reports.
    pub keepers: Vec<NodeIx>,
    /// Why idle keepers were lost.
    pub lost_idle: Vec<String>,
}

/// A signal that this process received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signaled {
    /// SIGINT.
    Interrupt,
    /// A signal that ends the run.
    End(EndSignal),
    /// SIGUSR1: end all waits.
    Wake,
    /// The process was continued.
    Continue,
}

/// A message from another thread.
#[derive(Debug)]
pub enum Mail<R, V> {
    /// An input from a running session.
    FromSession {
        /// The job.
        job: Job,
        /// The input.
        input: Input,
    },
    /// Something in the work tree changed. With `node`, the change is in that node's own worktree.
    WorkTreeChanged {
        /// The node; `None` for the shared work tree.
        node: Option<NodeIx>,
        /// The digest of the current state, if known.
        digest: Option<u64>,
    },
    /// No process holds the job's output pipes any longer.
    PipesClosed {
        /// The job.
        job: Job,
    },
    /// An input from another thread, such as an operator request.
    Input(Input),
    /// A request from a session's agent.
    AgentRequested {
        /// The token that the agent sent.
        token: String,
        /// The request.
        request: Box<AgentRequest>,
        /// Where to send the answer.
        reply: R,
    },
    /// A request for a copy of the current view.
    ViewAsked(V),
}

/// Why an agent's request was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelError {
    /// The session is not running, or has ended.
    SessionOver,
    /// The token is not the session's.
    WrongToken,
}

/// A report of a keeper. `number` is the number that `Shell::start` gave the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The main process of the job runs.
    Started {
        /// The job's number.
        number: u64,
        /// The id of its main process.
        pid: u32,
    },
    /// The job did not start.
    Refused {
        /// The job's number.
        number: u64,
        /// Why it did not start.
        error: String,
        /// The same start may work later.
        again: bool,
    },
    /// The main process ended.
    Exited {
        /// The job's number.
        number: u64,
        /// How it ended.
        exit: Exit,
        /// No other process of the job was left.
        alone: bool,
    },
    /// The process tree is empty.
    Empty {
        /// The job's number.
        number: u64,
        /// The leftover processes that were ended.
        killed: Leftovers,
    },
    /// Some process survives SIGKILL.
    Unkillable {
        /// The job's number.
        number: u64,
        /// The processes.
        detail: String,
    },
}

/// A job whose start was ordered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sent {
    /// The command line, with secrets redacted.
    pub argv: Vec<String>,
    /// Whether the session has an agent channel.
    pub has_channel: bool,
    /// Whether the job's own work tree is watched instead of the shared one.
    pub watches_own_tree: bool,
    /// Other inputs for the core.
    pub inputs: Vec<Input>,
}

/// A job whose start could not be ordered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unsent {
    /// Why it could not be ordered.
    pub error: String,
    /// The same start may work later.
    pub again: bool,
    /// Other inputs for the core.
    pub inputs: Vec<Input>,
}

/// A sample of a process tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The number of live children.
    pub children: u32,
    /// The CPU time that they have used, in milliseconds.
    pub cpu_ms: u64,
}

/// The result of killing a keeper and its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeeperKilled {
    /// How many processes of the job were killed.
    pub killed: u64,
    /// Whether none is left.
    pub all: bool,
}

/// An ended job, before its output is collected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    /// The job.
    pub job: Job,
    /// How its main process ended, if that is known.
    pub exit: Option<Exit>,
    /// Whether the job was signaled before it exited by itself.
    pub signaled: bool,
    /// The leftover processes that were ended.
    pub leftovers: Leftovers,
}

/// The output of an ended job.
#[derive(Clone, Debug, PartialEq)]
pub struct Collected {
    /// The report for the core.
    pub report: JobReport,
    /// Other inputs for the core.
    pub inputs: Vec<Input>,
}

impl Report {
    /// Returns the number of the job that the report is about.
    pub fn number(&self) -> u64 {
        match self {
            Report::Started { number, .. }
            | Report::Refused { number, .. }
            | Report::Exited { number, .. }
            | Report::Empty { number, .. }
            | Report::Unkillable { number, .. } => *number,
        }
    }
}
