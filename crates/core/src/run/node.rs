//! One node: the machine of its iterations. It goes through commands, prompt and session, and tells the
//! run how each iteration ended; the run decides what comes next.

use super::cx::Cx;
use super::tree::Tree;
use crate::decision::Decision;
use crate::dur::Dur;
use crate::ending::{Ending, Facts, Judged, judge};
use crate::event::{
    Cause, CommandFinished, EndedBy, Event, IterationEnd, Observation, SessionEnded, WaitEndedBy, WaitWhy,
};
use crate::fingerprint::fingerprint;
use crate::ids::{Iteration, NodeIx};
use crate::job::{Exit, Job, JobKind, JobReport};
use crate::moment::Awake;
use crate::text::one_line;
use crate::timer::{Deadline, Timer};
use crate::watch::{Verdict, Watch};

/// How much of an agent's words goes into the record.
const MAX_SAID: usize = 300;

pub(super) struct Node {
    ix: NodeIx,
    pub iteration: Iteration,
    began: Awake,
    phase: Phase,
    /// The run wants this iteration over: nothing more of it is started.
    ending: Option<EndedBy>,
}

enum Phase {
    Resting,
    Command(Tree),
    Prompting,
    Session(Tree, Option<Watch>),
    Waiting,
}

/// Something that happened to the node's present iteration.
#[derive(Debug)]
pub(super) enum Fact {
    Started { pid: u32, argv: Vec<String> },
    Refused { error: String },
    Observed(Observation),
    Exited(Exit),
    PipesClosed,
    Ended(Box<JobReport>),
    PromptAssembled { bytes: u64, sha256: String },
    Due(Timer),
}

impl Node {
    pub fn new(ix: NodeIx) -> Node {
        Node { ix, iteration: Iteration(0), began: Awake(0), phase: Phase::Resting, ending: None }
    }

    pub fn has_job(&self, job: Job) -> bool {
        self.tree().is_some_and(|t| t.job == job)
    }

    /// An iteration is under way.
    pub fn is_busy(&self) -> bool {
        match self.phase {
            Phase::Resting | Phase::Waiting => false,
            Phase::Command(_) | Phase::Prompting | Phase::Session(..) => true,
        }
    }

    pub fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting)
    }

    fn tree(&self) -> Option<&Tree> {
        match &self.phase {
            Phase::Command(tree) | Phase::Session(tree, _) => Some(tree),
            Phase::Resting | Phase::Prompting | Phase::Waiting => None,
        }
    }

    fn tree_mut(&mut self) -> Option<&mut Tree> {
        match &mut self.phase {
            Phase::Command(tree) | Phase::Session(tree, _) => Some(tree),
            Phase::Resting | Phase::Prompting | Phase::Waiting => None,
        }
    }

    pub fn begin(&mut self, cx: &mut Cx, cause: Cause) {
        self.iteration = cx.view.node(self.ix).iteration.next();
        self.began = cx.now.awake;
        self.ending = None;
        cx.record(Event::IterationStarted { node: cx.name(self.ix), iteration: self.iteration, cause });
        self.command_or_prompt(cx, 0);
    }

    pub fn wait(&mut self, cx: &mut Cx, why: WaitWhy, delay: Dur) {
        self.phase = Phase::Waiting;
        cx.timers.set(Timer::Wait(self.ix), Deadline::Boot(cx.now.boot.plus(delay)));
        let until = cx.now.wall.plus(delay);
        cx.record(Event::WaitStarted { node: cx.name(self.ix), why, delay_s: delay, until });
    }

    /// Ends the wait; true if there was one.
    pub fn wake(&mut self, cx: &mut Cx, by: WaitEndedBy) -> bool {
        if !self.is_waiting() {
            return false;
        }
        self.phase = Phase::Resting;
        cx.timers.clear(Timer::Wait(self.ix));
        cx.record(Event::WaitEnded { node: cx.name(self.ix), by });
        true
    }

    /// The run wants the present iteration over.
    pub fn end(&mut self, cx: &mut Cx, by: EndedBy) {
        self.ending.get_or_insert(by);
        if let Some(tree) = self.tree_mut() {
            tree.end(cx, by);
        }
    }

    /// The run wants it over without any more grace.
    pub fn kill(&mut self, cx: &mut Cx, by: EndedBy) {
        self.ending.get_or_insert(by);
        if let Some(tree) = self.tree_mut() {
            tree.kill(cx, by);
        }
    }

    /// Takes a fact; answers how the iteration ended if this fact ended it.
    pub fn handle(&mut self, cx: &mut Cx, fact: Fact) -> Option<Ending> {
        match (&mut self.phase, fact) {
            (Phase::Command(tree) | Phase::Session(tree, _), Fact::Exited(exit)) => {
                cx.timers.clear(Timer::Command(self.ix));
                cx.timers.clear(Timer::Watch(self.ix));
                let leak = cx.settings(self.ix).watchdog.leak;
                tree.exited(cx, exit, leak);
                None
            }
            (Phase::Command(tree) | Phase::Session(tree, _), Fact::PipesClosed) => {
                tree.pipes_closed(cx);
                None
            }
            (Phase::Command(tree) | Phase::Session(tree, _), Fact::Due(Timer::Grace(_))) => {
                tree.next_step(cx);
                None
            }
            (Phase::Command(tree) | Phase::Session(tree, _), Fact::Due(Timer::Leak(_))) => {
                tree.sweep(cx);
                None
            }
            (Phase::Command(tree), Fact::Started { .. }) => {
                tree.started(cx);
                let JobKind::Command(index) = tree.job.kind else { return None };
                let timeout = cx.settings(self.ix).commands[index].timeout;
                cx.timers.set(Timer::Command(self.ix), Deadline::Awake(cx.now.awake.plus(timeout)));
                None
            }
            (Phase::Command(tree), Fact::Due(Timer::Command(_))) => {
                tree.end(cx, EndedBy::Watchdog);
                None
            }
            (Phase::Command(_), Fact::Refused { error }) => {
                cx.trouble("command_not_started", error);
                self.command_over(cx, &JobReport::default())
            }
            (Phase::Command(_), Fact::Ended(report)) => self.command_over(cx, &report),
            (Phase::Prompting, Fact::PromptAssembled { bytes, sha256 }) => {
                self.prompt_ready(cx, bytes, sha256)
            }
            (Phase::Session(tree, watch), Fact::Started { pid, argv }) => {
                tree.started(cx);
                let begun = Watch::new(cx.settings(self.ix).watchdog.clone(), cx.now.awake);
                set_watch_timer(cx, self.ix, &begun);
                *watch = Some(begun);
                cx.record(Event::SessionStarted {
                    node: cx.name(self.ix),
                    iteration: self.iteration,
                    pid,
                    argv,
                });
                None
            }
            (Phase::Session(_, watch), Fact::Observed(seen)) => {
                if let Some(watch) = watch {
                    watch.observe(&seen);
                }
                cx.record(Event::Observed { node: cx.name(self.ix), iteration: self.iteration, seen });
                None
            }
            (Phase::Session(tree, Some(watch)), Fact::Due(Timer::Watch(_))) => {
                watch_due(cx, self.ix, tree, watch);
                None
            }
            (Phase::Session(..), Fact::Refused { error }) => self.session_refused(cx, &error),
            (Phase::Session(..), Fact::Ended(report)) => self.session_over(cx, *report),
            // What cannot be in this phase is late or foreign, and harmless.
            (Phase::Command(_), Fact::Observed(_) | Fact::PromptAssembled { .. } | Fact::Due(_))
            | (Phase::Session(..), Fact::PromptAssembled { .. } | Fact::Due(_))
            | (Phase::Prompting | Phase::Resting | Phase::Waiting, _) => None,
        }
    }

    fn command_or_prompt(&mut self, cx: &mut Cx, index: usize) {
        if index < cx.settings(self.ix).commands.len() {
            let kind = JobKind::Command(index);
            self.phase =
                Phase::Command(Tree::start(cx, Job { node: self.ix, iteration: self.iteration, kind }));
        } else {
            self.phase = Phase::Prompting;
            cx.out.push(Decision::AssemblePrompt { node: self.ix, iteration: self.iteration });
        }
    }

    fn command_over(&mut self, cx: &mut Cx, report: &JobReport) -> Option<Ending> {
        let Phase::Command(tree) = &self.phase else { return None };
        let JobKind::Command(index) = tree.job.kind else { return None };
        clear_job_timers(cx, self.ix);
        let plan = &cx.settings(self.ix).commands[index];
        let event = CommandFinished {
            node: cx.name(self.ix),
            iteration: self.iteration,
            name: plan.name.clone(),
            exit_code: tree.exit().and_then(Exit::code),
            signal: tree.exit().and_then(Exit::signal),
            timed_out: tree.ended_by() == Some(EndedBy::Watchdog),
            duration_s: tree.lasted(cx),
            bytes: report.stdout_bytes + report.stderr_bytes,
            cut_bytes: report.cut_bytes,
        };
        cx.record(Event::CommandFinished(event));
        if let Some(by) = self.ending {
            return Some(self.interrupted(cx, by));
        }
        self.command_or_prompt(cx, index + 1);
        None
    }

    fn prompt_ready(&mut self, cx: &mut Cx, bytes: u64, sha256: String) -> Option<Ending> {
        cx.record(Event::PromptAssembled {
            node: cx.name(self.ix),
            iteration: self.iteration,
            bytes,
            sha256,
        });
        if let Some(by) = self.ending {
            return Some(self.interrupted(cx, by));
        }
        let job = Job { node: self.ix, iteration: self.iteration, kind: JobKind::Session };
        self.phase = Phase::Session(Tree::start(cx, job), None);
        None
    }

    fn interrupted(&mut self, cx: &mut Cx, by: EndedBy) -> Ending {
        let judged = Judged { ending: Ending::Interrupted { by }, because: format!("ended by {by}") };
        self.close(cx, judged, None)
    }

    fn session_refused(&mut self, cx: &mut Cx, error: &str) -> Option<Ending> {
        clear_job_timers(cx, self.ix);
        let ended_by = self.ending.unwrap_or(EndedBy::Nobody);
        let facts =
            Facts { ended_by, exit: None, structured: false, result: None, marker: None, complaint: error };
        let judged = judge(&facts);
        Some(self.close(cx, judged, Some(fingerprint(error))))
    }

    fn session_over(&mut self, cx: &mut Cx, report: JobReport) -> Option<Ending> {
        let Phase::Session(tree, _) = &self.phase else { return None };
        clear_job_timers(cx, self.ix);
        let (exit, lasted) = (tree.exit(), tree.lasted(cx));
        let ended_by = tree.ended_by().unwrap_or(EndedBy::Itself);
        let result = report.tally.result.as_ref();
        let complaint = complaint(&report);
        let facts = Facts {
            ended_by,
            exit,
            structured: cx.settings(self.ix).reader.is_structured(),
            result,
            marker: report.marker.as_ref(),
            complaint: &complaint,
        };
        let judged = judge(&facts);
        let failed = judged.ending == Ending::Failed;
        let said = result.filter(|r| !r.is_error).map_or(complaint.as_str(), |r| last_words(&r.text));
        cx.record(Event::SessionEnded(SessionEnded {
            node: cx.name(self.ix),
            iteration: self.iteration,
            exit_code: exit.and_then(Exit::code),
            signal: exit.and_then(Exit::signal),
            ended_by,
            duration_s: lasted,
            messages: report.tally.messages,
            tools: report.tally.tools,
            tokens: report.tally.tokens,
            cost_usd: report.tally.cost_usd,
            is_error: result.map(|r| r.is_error),
            said: one_line(said, MAX_SAID),
            stdout_bytes: report.stdout_bytes,
            stderr_bytes: report.stderr_bytes,
            cut_bytes: report.cut_bytes,
            stragglers: report.stragglers,
        }));
        if let Some(m) = report.marker {
            let (node, iteration) = (cx.name(self.ix), self.iteration);
            cx.record(Event::MarkerSeen { node, iteration, state: m.state, attrs: m.attrs });
        }
        let print = failed.then(|| fingerprint(&judged.because));
        Some(self.close(cx, judged, print))
    }

    /// Writes down how the iteration ended.
    fn close(&mut self, cx: &mut Cx, judged: Judged, fingerprint: Option<String>) -> Ending {
        self.phase = Phase::Resting;
        let end = IterationEnd {
            node: cx.name(self.ix),
            iteration: self.iteration,
            duration_s: cx.now.awake.since(self.began),
            because: judged.because,
            fingerprint,
        };
        let event = match &judged.ending {
            Ending::Completed => Event::IterationCompleted(end),
            Ending::Idle { reason } => {
                let spell = &cx.view.node(self.ix).spell;
                let (consecutive, spell_s) = (spell.count.saturating_add(1), spell.lasted(cx.now.boot));
                Event::IterationIdle { end, reason: reason.clone(), consecutive, spell_s, skipped: false }
            }
            Ending::Failed => Event::IterationFailed(end),
            Ending::TimedOut => Event::IterationTimedOut(end),
            Ending::RateLimited => Event::IterationRateLimited(end),
            Ending::AuthFailed => Event::IterationAuthFailed(end),
            Ending::Interrupted { by } => Event::IterationInterrupted { end, by: by.as_str().to_owned() },
        };
        cx.record(event);
        judged.ending
    }
}

fn clear_job_timers(cx: &mut Cx, ix: NodeIx) {
    for timer in [Timer::Command(ix), Timer::Watch(ix), Timer::Grace(ix), Timer::Leak(ix)] {
        cx.timers.clear(timer);
    }
}

fn set_watch_timer(cx: &mut Cx, ix: NodeIx, watch: &Watch) {
    match watch.due() {
        Some(at) => cx.timers.set(Timer::Watch(ix), Deadline::Awake(at)),
        None => cx.timers.clear(Timer::Watch(ix)),
    }
}

/// The verdict stands in the record, with its evidence, before the first signal is sent.
fn watch_due(cx: &mut Cx, ix: NodeIx, tree: &mut Tree, watch: &Watch) {
    match watch.evaluate(cx.now.awake) {
        Verdict::Continue => set_watch_timer(cx, ix, watch),
        Verdict::HardStop(stop) => {
            cx.record(Event::HardStop {
                node: cx.name(ix),
                iteration: tree.job.iteration,
                reason: stop.reason,
                message: stop.message,
                evidence_summary: stop.evidence_summary,
                active_channel: stop.active_channel,
                recoverable: stop.recoverable,
            });
            tree.end(cx, EndedBy::Watchdog);
        }
    }
}

/// The best words for what went wrong: the agent's own error, else its last line.
fn complaint(report: &JobReport) -> String {
    let tally = &report.tally;
    match (&tally.result, &tally.last_error) {
        (Some(r), _) if r.is_error && !r.text.trim().is_empty() => r.text.clone(),
        (_, Some(error)) => error.clone(),
        _ => report.last_line.clone(),
    }
}

/// The last line that says something: agents sum up at the end.
fn last_words(text: &str) -> &str {
    text.lines().rev().map(str::trim).find(|l| !l.is_empty() && !l.starts_with("<!--")).unwrap_or("")
}
