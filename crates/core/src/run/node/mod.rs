//! One node: the state machine of its iterations. Each iteration goes through commands, prompt, session and
//! checks. The node returns the ending of each iteration; the run decides what comes next.

mod checking;
mod closing;
mod committing;
mod preparing;
mod session;

use super::cx::Cx;
use super::job_tree::JobTree;
use super::over::NodeEnd;
use super::wait::Wait;
use super::watching::{Watching, record_ceiling};
use crate::record::event::{Cause, CommandFinished, EndedBy, Event, InputDigest, WaitEndedBy, WaitWhy};
use crate::record::ids::{Iteration, NodeIx};
use crate::record::view::NodeView;
use crate::run::decision::{Decision, WantedPrompt};
use crate::run::ending::{Ending, Judged};
use crate::run::input::NodeInput;
use crate::run::job::{Commit, Exit, Job, JobKind, JobReport, OutputTail, Snapshot, Worktree};
use crate::settings::{CommandPlan, NO_PENDING_TASKS};
use crate::time::dur::Dur;
use crate::time::moment::Awake;
use crate::time::timer::{Deadline, Timer};
use crate::watch::StopReason;
use checking::Checking;
use session::Session;
use std::cmp::Ordering;

/// How long a snapshot of the work tree may take.
const SNAPSHOT_BOUND: Dur = Dur::from_secs(30);
/// How long creating a worktree may take: it merges the dependencies, checks out all files and waits for other nodes'
/// checkouts.
const WORKTREE_BOUND: Dur = Dur::from_mins(5);
/// How long one setup command may take: it may download and build dependencies.
const SETUP_BOUND: Dur = Dur::from_mins(30);
/// How long committing a finished node's work may take.
const COMMIT_BOUND: Dur = Dur::from_mins(5);

#[derive(Default)]
pub(super) struct Node {
    ix: NodeIx,
    pub iteration: Iteration,
    began: Awake,
    phase: Phase,
    /// Set when the run has asked for the end of this iteration: no further job of it starts.
    ending: Option<EndedBy>,
    /// The agent of this iteration, as an index into the chain.
    pub agent: u32,
    /// The agent's own session that this iteration resumes.
    pub resumes: Option<String>,
    /// An operator ended the wait for an agent: the next iteration starts even if no agent may be called.
    pub forced: bool,
    /// The snapshot before the first iteration was attempted.
    first_kept: bool,
    /// The cause of the iteration that is being prepared.
    prepares: Cause,
    /// The work tree after this iteration's session.
    judged: JudgedTree,
}

/// The work tree that the checks judge.
#[derive(Default)]
enum JudgedTree {
    /// No session has worked in this iteration.
    #[default]
    Untouched,
    /// A session has worked. The state of the tree is unknown and may be new.
    Unknown,
    /// The hash of the tree after the session.
    Known(String),
}

#[derive(Default)]
enum Phase {
    #[default]
    Resting,
    /// A prep command or the gate is running.
    PrepJob(JobTree),
    Prompting,
    Session(JobTree, Option<Box<Watching>>),
    /// A snapshot of the work tree is being taken.
    Keeping(JobTree, KeptFor),
    /// The node's own worktree is being created or set up.
    Arranging(JobTree),
    /// The node is done, and its work is being committed.
    Committing(JobTree, Box<NodeEnd>),
    /// The pinned files are being hashed.
    Pinning(Hashed),
    Checking(Box<Checking>),
    Waiting(Wait),
}

/// When the pinned files are hashed.
enum Hashed {
    /// Before the first iteration.
    First,
    /// Before the checks.
    Before(Box<Closing>),
    /// After checks that all passed.
    After(Box<Checking>),
}

/// Why a snapshot is taken; this decides what follows it.
enum KeptFor {
    /// The first iteration is about to start.
    First,
    /// A session ended; its iteration closes next.
    Session(Box<Closing>),
    /// The supervisor of the open iteration was lost.
    Lost,
}

/// The ending of an iteration that closes once the snapshot and the checks are done.
struct Closing {
    judged: Judged,
    fingerprint: Option<String>,
}

impl Closing {
    fn of(judged: Judged) -> Closing {
        Closing { judged, fingerprint: None }
    }
}

/// What follows from a fact for the run.
#[derive(Debug)]
pub(super) enum Turn {
    Stay,
    IterationOver(Ending),
    /// The wait is over; the next iteration begins for this cause.
    WaitOver(Cause),
    /// A precondition of its first iteration failed: the reason for programs and for people.
    CannotBegin(&'static str, String),
    /// The node's work is committed, and the node ends.
    NodeOver(Box<NodeEnd>),
    /// The snapshot of an iteration whose supervisor was lost is done. If it failed, the record says why.
    Rescued,
}

impl Node {
    /// Creates a node that has not started.
    pub fn new(ix: NodeIx) -> Node {
        Node { ix, ..Node::default() }
    }

    /// Restores a node from the record of its run.
    pub fn resume(ix: NodeIx, view: &NodeView) -> Node {
        Node { iteration: view.iteration, ..Node::new(ix) }
    }

    /// Returns whether this job is the node's current one.
    pub fn has_job(&self, job: Job) -> bool {
        self.tree().is_some_and(|t| t.job == job)
    }

    /// Returns whether an iteration is in progress.
    pub fn is_working(&self) -> bool {
        !matches!(self.phase, Phase::Resting | Phase::Waiting(_))
    }

    /// Returns whether a session is running.
    pub fn has_session(&self) -> bool {
        matches!(self.phase, Phase::Session(..))
    }

    /// Returns whether the node neither works nor waits.
    pub fn is_resting(&self) -> bool {
        matches!(self.phase, Phase::Resting)
    }

    /// Returns whether an iteration is in progress or a process of the node is alive.
    pub fn is_busy(&self) -> bool {
        self.is_working() || self.tree().is_some()
    }

    /// Returns the reason for the current wait.
    pub fn waiting(&self) -> Option<WaitWhy> {
        if let Phase::Waiting(wait) = &self.phase { Some(wait.why()) } else { None }
    }

    fn tree(&self) -> Option<&JobTree> {
        match &self.phase {
            Phase::PrepJob(tree)
            | Phase::Session(tree, _)
            | Phase::Keeping(tree, _)
            | Phase::Arranging(tree)
            | Phase::Committing(tree, _) => Some(tree),
            Phase::Checking(checking) => Some(&checking.tree),
            Phase::Waiting(wait) => wait.probe(),
            Phase::Resting | Phase::Prompting | Phase::Pinning(_) => None,
        }
    }

    fn tree_mut(&mut self) -> Option<&mut JobTree> {
        match &mut self.phase {
            Phase::PrepJob(tree)
            | Phase::Session(tree, _)
            | Phase::Keeping(tree, _)
            | Phase::Arranging(tree)
            | Phase::Committing(tree, _) => Some(tree),
            Phase::Checking(checking) => Some(&mut checking.tree),
            Phase::Waiting(wait) => wait.probe_mut(),
            Phase::Resting | Phase::Prompting | Phase::Pinning(_) => None,
        }
    }

    /// Starts the next iteration.
    pub fn begin(&mut self, cx: &mut Cx, cause: Cause) {
        self.iteration = cx.view.node(self.ix).iteration.next();
        self.began = cx.now.awake;
        self.ending = None;
        self.judged = JudgedTree::Untouched;
        cx.record(Event::IterationStarted { node: cx.name(self.ix), iteration: self.iteration, cause });
        self.next_prep_job(cx, 0);
    }

    /// Starts a wait. A delay of `None` means that no timer ends the wait, as in a pause.
    pub fn wait(&mut self, cx: &mut Cx, why: WaitWhy, delay: Option<Dur>) {
        self.phase = Phase::Waiting(Wait::begin(cx, self.ix, self.iteration, why, delay));
    }

    /// Ends the wait. Returns `Stay` while a running probe must be stopped first.
    pub fn wake(&mut self, cx: &mut Cx, by: WaitEndedBy, cause: Cause) -> Turn {
        let Phase::Waiting(wait) = &mut self.phase else { return Turn::Stay };
        let turn = wait.leave(cx, by, cause);
        self.left(turn)
    }

    /// Interrupts the current wait with a pause.
    pub fn pause(&mut self, cx: &mut Cx) {
        if let Phase::Waiting(wait) = &mut self.phase {
            wait.pause(cx);
        }
    }

    /// Lifts the pause. The wait that it interrupted continues with its remaining time.
    pub fn unpause(&mut self, cx: &mut Cx, by: WaitEndedBy) -> Turn {
        let Phase::Waiting(wait) = &mut self.phase else { return Turn::Stay };
        let turn = wait.unpause(cx, by);
        self.left(turn)
    }

    fn left(&mut self, turn: Turn) -> Turn {
        if matches!(turn, Turn::WaitOver(_)) {
            self.phase = Phase::Resting;
        }
        turn
    }

    /// Ends the current iteration gently. A snapshot of a session's work may finish first.
    pub fn end(&mut self, cx: &mut Cx, by: EndedBy) {
        self.ending.get_or_insert(by);
        if self.is_keeping_work() {
            return self.bound_snapshot(cx);
        }
        if let Some(tree) = self.tree_mut() {
            tree.end(cx, by);
        }
    }

    /// Kills the processes of the current iteration without any grace.
    pub fn kill(&mut self, cx: &mut Cx, by: EndedBy) {
        self.ending.get_or_insert(by);
        if let Some(tree) = self.tree_mut() {
            tree.kill(cx, by);
        }
    }

    /// Records that the keeper has reported that it cannot empty the tree: no other report is due.
    pub fn keeper_reported(&mut self, cx: &mut Cx) {
        if let Some(tree) = self.tree_mut() {
            tree.reported(cx);
        }
    }

    /// Stops the current job because the node or the run has reached its ceiling. The verdict is recorded before the
    /// first signal. A snapshot or a commit may finish within its own bound.
    pub fn reach_ceiling(&mut self, cx: &mut Cx, reason: StopReason, message: &str) {
        if let Phase::Committing(..) = self.phase {
            return;
        }
        self.ending.get_or_insert(EndedBy::Watchdog);
        if let Phase::Keeping(..) = self.phase {
            return;
        }
        // The watch of a session reaches the same verdict and has the evidence.
        if let Phase::Session(tree, Some(watching)) = &mut self.phase {
            watching.judge(cx, self.ix, tree);
        }
        let Some(tree) = self.tree_mut() else { return };
        if tree.exit().is_none() && tree.ended_by().is_none() {
            record_ceiling(cx, tree.job, reason, message);
        }
        tree.end(cx, EndedBy::Watchdog);
    }

    /// Handles a fact and returns what follows from it.
    pub fn handle(&mut self, cx: &mut Cx, fact: NodeInput) -> Turn {
        if let Some(fact) = self.handle_tree(cx, fact) { self.advance(cx, fact) } else { Turn::Stay }
    }

    /// Handles facts that mean the same for every process tree. Returns any other fact.
    fn handle_tree(&mut self, cx: &mut Cx, fact: NodeInput) -> Option<NodeInput> {
        let ix = self.ix;
        // A wait handles its own probe.
        let waits = self.waiting().is_some();
        let Some(tree) = self.tree_mut().filter(|_| !waits) else { return Some(fact) };
        match tree.handle(cx, fact) {
            Some(NodeInput::Started { .. }) if tree.job.kind != JobKind::Session => {
                tree.started(cx);
                let timeout = job_timeout(cx, tree.job);
                cx.timers.set(Timer::PrepJob(ix), Deadline::Awake(cx.now.awake.plus(timeout)));
                None
            }
            other => other,
        }
    }

    fn advance(&mut self, cx: &mut Cx, fact: NodeInput) -> Turn {
        match (&mut self.phase, fact) {
            (Phase::PrepJob(_), NodeInput::Refused { error }) => {
                cx.trouble("command_not_started", error);
                self.prep_job_over(cx, &JobReport::default())
            }
            (Phase::PrepJob(_), NodeInput::Ended(report)) => self.prep_job_over(cx, &report),
            (Phase::Keeping(..), NodeInput::Refused { error }) => {
                self.kept(cx, Some(Snapshot::Failed { why: error }))
            }
            (Phase::Keeping(..), NodeInput::Ended(report)) => self.kept(cx, report.snapshot),
            (Phase::Arranging(_), NodeInput::Refused { error }) => {
                let tail = OutputTail { text: error.clone(), truncated: false };
                let worktree = Some(Worktree::Failed { why: error });
                self.arranged(cx, JobReport { worktree, tail, ..JobReport::default() })
            }
            (Phase::Arranging(_), NodeInput::Ended(report)) => self.arranged(cx, *report),
            (Phase::Committing(..), NodeInput::Refused { error }) => {
                self.committed(cx, Some(Commit::Failed { why: error }))
            }
            (Phase::Committing(..), NodeInput::Ended(report)) => self.committed(cx, report.commit),
            (Phase::Pinning(_), NodeInput::PinsHashed { pins, tree }) => self.pinned(cx, pins, tree),
            (Phase::Checking(_), NodeInput::Refused { error }) => self.check_refused(cx, error),
            (Phase::Checking(_), NodeInput::Ended(report)) => self.check_over(cx, *report),
            (Phase::Prompting, NodeInput::PromptAssembled { bytes, sha256, input_digest }) => {
                self.prompt_ready(cx, bytes, sha256, input_digest)
            }
            (Phase::Session(..), NodeInput::Refused { error }) => self.session_refused(cx, &error),
            (Phase::Session(..), NodeInput::Ended(report)) => self.session_over(cx, *report),
            (Phase::Session(tree, watch), input) => {
                let (ix, iteration, agent) = (self.ix, self.iteration, self.agent);
                let resumes = self.resumes.as_ref();
                Session { ix, iteration, agent, resumes, tree, watch }.handle(cx, input);
                Turn::Stay
            }
            (Phase::Waiting(wait), fact) => {
                let turn = wait.handle(cx, fact);
                self.left(turn)
            }
            // A fact that does not belong to this phase is late or foreign, and harmless.
            (
                Phase::PrepJob(_)
                | Phase::Keeping(..)
                | Phase::Arranging(_)
                | Phase::Committing(..)
                | Phase::Pinning(_)
                | Phase::Checking(_)
                | Phase::Prompting
                | Phase::Resting,
                _,
            ) => Turn::Stay,
        }
    }

    /// Starts the next prep job: the commands in order, then the gate, then the prompt.
    fn next_prep_job(&mut self, cx: &mut Cx, index: usize) {
        let settings = cx.settings(self.ix);
        let kind = match settings.commands.len().cmp(&index) {
            Ordering::Greater => JobKind::Command(index),
            Ordering::Equal if settings.work_when.is_some() => JobKind::Gate,
            Ordering::Equal | Ordering::Less => return self.ask_for_prompt(cx),
        };
        self.phase =
            Phase::PrepJob(JobTree::start(cx, Job { node: self.ix, iteration: self.iteration, kind }));
    }

    fn ask_for_prompt(&mut self, cx: &mut Cx) {
        self.phase = Phase::Prompting;
        let input_digest = cx.settings(self.ix).idle.as_ref().is_some_and(|i| i.skip_unchanged);
        cx.out.push(Decision::AssemblePrompt(Box::new(WantedPrompt {
            node: self.ix,
            iteration: self.iteration,
            messages: cx.view.pending_messages.clone(),
            input_digest,
            prompt_context: self.prompt_context(cx),
        })));
    }

    fn prep_job_over(&mut self, cx: &mut Cx, report: &JobReport) -> Turn {
        let Phase::PrepJob(tree) = &self.phase else { return Turn::Stay };
        let (kind, exit, timed_out) =
            (tree.job.kind, tree.exit(), tree.ended_by() == Some(EndedBy::Watchdog));
        let lasted = tree.lasted(cx);
        clear_job_timers(cx, self.ix);
        if let JobKind::Command(index) = kind {
            let event = CommandFinished {
                node: cx.name(self.ix),
                iteration: self.iteration,
                name: cx.settings(self.ix).commands[index].name.clone(),
                exit_code: exit.and_then(Exit::code),
                signal: exit.and_then(Exit::signal),
                timed_out,
                duration_s: lasted,
                bytes: report.stdout_bytes + report.stderr_bytes,
                cut_bytes: report.cut_bytes,
            };
            cx.record(Event::CommandFinished(event));
        }
        if let Some(by) = self.ending {
            return self.interrupted(cx, by);
        }
        let JobKind::Command(index) = kind else { return self.gate_over(cx, exit, timed_out) };
        self.next_prep_job(cx, index + 1);
        Turn::Stay
    }

    /// Handles the gate's exit: 0 means work, 1 means none. Any other exit is inconclusive, so the agent decides.
    fn gate_over(&mut self, cx: &mut Cx, exit: Option<Exit>, timed_out: bool) -> Turn {
        match exit {
            Some(Exit::Code(0)) => {}
            Some(Exit::Code(1)) => {
                let reason = NO_PENDING_TASKS.to_owned();
                let because = "work_when found nothing to do".to_owned();
                return self.verify(
                    cx,
                    Closing::of(Judged { ending: Ending::Idle { reason, skipped: true }, because }),
                );
            }
            other => {
                let how = match other {
                    _ if timed_out => "timed out".to_owned(),
                    Some(Exit::Code(c)) => format!("exit code {c}"),
                    Some(Exit::Signal(s)) => format!("signal {s}"),
                    None => "could not be started".to_owned(),
                };
                cx.trouble("work_when", format!("work_when: {how}; treated as work"));
            }
        }
        self.ask_for_prompt(cx);
        Turn::Stay
    }

    fn prompt_ready(
        &mut self,
        cx: &mut Cx,
        bytes: u64,
        sha256: String,
        input_digest: Option<InputDigest>,
    ) -> Turn {
        let unchanged =
            input_digest.is_some() && cx.view.node(self.ix).idle_streak.input_digest == input_digest;
        cx.record(Event::PromptAssembled {
            node: cx.name(self.ix),
            iteration: self.iteration,
            bytes,
            sha256,
            input_digest,
        });
        if let Some(by) = self.ending {
            return self.interrupted(cx, by);
        }
        if unchanged {
            let reason = cx.view.node(self.ix).idle_streak.reason.clone();
            let because = "prompt and work tree are unchanged since the last idle answer".to_owned();
            return self
                .verify(cx, Closing::of(Judged { ending: Ending::Idle { reason, skipped: true }, because }));
        }
        let job = Job { node: self.ix, iteration: self.iteration, kind: JobKind::Session };
        self.phase = Phase::Session(JobTree::start(cx, job), None);
        Turn::Stay
    }

    fn interrupted(&mut self, cx: &mut Cx, by: EndedBy) -> Turn {
        let judged = Judged { ending: Ending::Interrupted { by }, because: format!("ended by {by}") };
        self.close(cx, Closing::of(judged))
    }
}

pub(super) fn clear_job_timers(cx: &mut Cx, ix: NodeIx) {
    clear_limits(cx, ix);
    cx.timers.clear(Timer::Step(ix));
    cx.timers.clear(Timer::Keeper(ix));
    cx.timers.clear(Timer::StartRetry(ix));
}

/// Clears the time limits of a main process that has exited.
pub(super) fn clear_limits(cx: &mut Cx, ix: NodeIx) {
    cx.timers.clear(Timer::PrepJob(ix));
    cx.timers.clear(Timer::Watch(ix));
    cx.timers.clear(Timer::Result(ix));
}

fn job_timeout(cx: &Cx, job: Job) -> Dur {
    match job.kind {
        JobKind::Command(index) => cx.settings(job.node).commands[index].timeout,
        JobKind::Snapshot => SNAPSHOT_BOUND,
        JobKind::Worktree => WORKTREE_BOUND,
        JobKind::Setup(_) => SETUP_BOUND,
        JobKind::Commit => COMMIT_BOUND,
        JobKind::Check(_) => cx.settings(job.node).checks.timeout,
        JobKind::Gate | JobKind::Probe | JobKind::Session => CommandPlan::DEFAULT_TIMEOUT,
    }
}
