//! Formats events as lines without control characters, one block per iteration. The terminal shows the same lines.

use super::Lost;
use super::event_node::event_node;
use super::terminal::paint;
use super::words;
use super::writer::Writer;
use dogwatch_core::record::event::{
    Event, HumanEndedBy, NodeState, Outcome, Recorded, RunEnded, RunStarted, WaitEndedBy, WaitWhy,
};
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::record::view::View;
use dogwatch_core::settings::{AfterStop, Tampered};
use dogwatch_core::text::{one_line, printable};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Moment;
use dogwatch_host::driver::Reporter;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The most of the agent's command line to show in the first line, in bytes.
const MAX_AGENT: usize = 80;
/// The most of a list of files to show on a line, in bytes.
const MAX_FILES: usize = 200;

/// The tone of a line, which determines its color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Head,
    Good,
    Bad,
    Quiet,
}

/// A line to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScreenLine {
    pub tone: Tone,
    pub text: String,
}

/// Turns events into lines. Collects the parts of a line until the line is complete.
pub struct Formatter {
    run_dir: PathBuf,
    nodes: BTreeMap<NodeName, Pieces>,
}

/// The collected parts of the incomplete lines of one node.
#[derive(Default)]
struct Pieces {
    prepared: Vec<String>,
    ended: String,
    /// The idle streak so far, for the line about the wait that follows.
    idle: String,
}

/// The longest node name that fits the name column, in characters.
const MAX_NAME: usize = 20;

impl Formatter {
    /// Returns a formatter for a run.
    pub fn new(run_dir: &Path) -> Formatter {
        Formatter { run_dir: run_dir.to_owned(), nodes: BTreeMap::new() }
    }

    /// Returns the lines for an event. In a graph, each line starts with the name of its node.
    pub fn format(&mut self, recorded: &Recorded, view: &View) -> Vec<ScreenLine> {
        let event = &recorded.event;
        match event {
            Event::RunStarted(s) => return self.head(s),
            Event::RunEnded(end) => return self.foot(end, view),
            _ => {}
        }
        let graph = view.nodes.len() > 1;
        let Some(node) = event_node(event) else { return run_lines(event) };
        let pieces = self.nodes.entry(node.clone()).or_default();
        let mut lines = if graph { state_change(event) } else { Vec::new() };
        lines.extend(pieces.format(event));
        if matches!(event, Event::NodeTransition { to: NodeState::Done | NodeState::Failed, .. }) {
            self.nodes.remove(node);
        }
        if graph {
            let wide = view.nodes.iter().map(|n| n.name.as_str().chars().count()).max().unwrap_or(0);
            let wide = wide.min(MAX_NAME);
            for line in &mut lines {
                line.text =
                    printable(&format!("{:<wide$}  {}", node.as_str(), line.text.trim_start())).into_owned();
            }
        }
        lines
    }

    fn head(&self, s: &RunStarted) -> Vec<ScreenLine> {
        let name = match s.nodes.as_slice() {
            [one] => one.to_string(),
            many => words::count(many.len() as u64, "node"),
        };
        let text = format!("dogwatch  {name}  ({})  run {}", one_line(&s.agent, MAX_AGENT), s.run);
        vec![ScreenLine { tone: Tone::Head, text: printable(&text).into_owned() }]
    }

    fn foot(&self, end: &RunEnded, view: &View) -> Vec<ScreenLine> {
        let tone = if end.exit_code == 0 { Tone::Good } else { Tone::Bad };
        let idle = if end.idle > 0 { format!(" ({} idle)", end.idle) } else { String::new() };
        let mut counts = vec![format!("{} completed{idle}", end.completed)];
        if end.failed > 0 {
            counts.push(format!("{} failed", end.failed));
        }
        if view.totals().interrupted > 0 {
            counts.push(format!("{} interrupted", view.totals().interrupted));
        }
        let verified = match end.outcome {
            Outcome::Clean | Outcome::CleanWithFlake if !end.verified => " (no checks, so not verified)",
            _ => "",
        };
        let first = format!("{}: {}{verified}", end.outcome, end.reason);
        let second = format!(
            "  {}: {}; {}; exit code {}",
            words::count(end.iterations, "iteration"),
            counts.join(", "),
            words::span(end.total_duration_s),
            end.exit_code
        );
        let third = format!("  record: {}", shown_path(&self.run_dir));
        [(tone, first), (Tone::Plain, second), (Tone::Quiet, third)]
            .map(|(tone, text)| ScreenLine { tone, text: printable(&text).into_owned() })
            .into()
    }
}

/// Returns the lines for an event that concerns the whole run.
fn run_lines(event: &Event) -> Vec<ScreenLine> {
    match event {
        Event::RunResumed(s) => line(Tone::Head, format!("dogwatch  run {} resumed", s.run)),
        Event::MessageReceived { text, from } => {
            line(Tone::Quiet, format!("  message for the next prompt: {}", from.label(text)))
        }
        Event::Paused {} => line(Tone::Quiet, "  pause requested".into()),
        Event::Unpaused {} => line(Tone::Quiet, "  resumed".into()),
        Event::Notice { message, .. } => line(Tone::Quiet, format!("  {message}")),
        Event::Trouble { kind, detail } => line(Tone::Bad, format!("  trouble: {detail} [{kind}]")),
        Event::Suspended { for_s, .. } => line(Tone::Quiet, format!("  suspended for {for_s} (not counted)")),
        _ => Vec::new(),
    }
}

/// Returns a line when a node of a graph is done, failed or blocked.
fn state_change(event: &Event) -> Vec<ScreenLine> {
    let Event::NodeTransition { to, reason, .. } = event else { return Vec::new() };
    let why = reason.as_ref().map_or_else(String::new, |r| format!(" ({r})"));
    match to {
        NodeState::Done => line(Tone::Good, format!("done{why}")),
        NodeState::Failed | NodeState::Blocked => line(Tone::Bad, format!("{to}{why}")),
        NodeState::Pending | NodeState::Ready | NodeState::Running => Vec::new(),
    }
}

pub(super) fn line(tone: Tone, text: String) -> Vec<ScreenLine> {
    vec![ScreenLine { tone, text: printable(&text).into_owned() }]
}

impl Pieces {
    fn format(&mut self, event: &Event) -> Vec<ScreenLine> {
        match event {
            Event::IterationStarted { iteration, .. } => {
                self.prepared.clear();
                self.ended.clear();
                line(Tone::Head, format!("iteration {iteration}"))
            }
            Event::CommandFinished(c) => {
                self.prepared.push(words::command(c));
                Vec::new()
            }
            Event::PromptAssembled { bytes, .. } => {
                self.prepared.push(format!("prompt {}", words::size(*bytes)));
                line(Tone::Quiet, format!("  {}", self.prepared.join(", ")))
            }
            Event::HardStop { reason, message, .. } => {
                line(Tone::Bad, format!("  stopped by the watchdog: {message} [{reason}]"))
            }
            Event::SessionSignalled { step, ended_by, .. } => {
                line(Tone::Quiet, format!("  {}", words::end_step(*step, *ended_by)))
            }
            Event::AgentReported { report, .. } => line(Tone::Quiet, format!("  {}", words::report(report))),
            Event::SessionEnded(s) => {
                let said = words::said(s);
                self.ended = words::session(s);
                if said.is_empty() { Vec::new() } else { line(Tone::Plain, format!("  \"{said}\"")) }
            }
            Event::IterationCompleted(end) => self.over(Tone::Good, "completed", end.duration_s, None),
            Event::IterationIdle { end, reason, consecutive, skipped, .. } => {
                self.idle = format!("idle ({} in a row, {reason})", words::nth(*consecutive));
                let because = skipped.then_some(end.because.as_str());
                self.over(Tone::Quiet, "idle", end.duration_s, because)
            }
            Event::IterationFailed(end) => self.over(Tone::Bad, "failed", end.duration_s, Some(&end.because)),
            Event::IterationTimedOut(end) => {
                self.over(Tone::Bad, "timed out", end.duration_s, Some(&end.because))
            }
            Event::IterationRateLimited { end, .. } => {
                self.over(Tone::Quiet, "rate limited", end.duration_s, Some(&end.because))
            }
            Event::IterationAuthFailed(end) => {
                self.over(Tone::Bad, "not logged in", end.duration_s, Some(&end.because))
            }
            Event::IterationInterrupted { end, .. } => {
                self.over(Tone::Bad, "interrupted", end.duration_s, Some(&end.because))
            }
            Event::WaitStarted { why, delay_s, .. } => match (why, delay_s) {
                (WaitWhy::Idle, Some(delay)) => {
                    // After a resume, the idle iteration was reported by the previous process.
                    let why = if self.idle.is_empty() { "idle" } else { &self.idle };
                    line(Tone::Quiet, format!("  {why}, backing off to {}", words::seconds(*delay)))
                }
                (WaitWhy::Asleep, _) => line(Tone::Quiet, format!("  {}", words::ASLEEP)),
                (WaitWhy::Paused, _) | (_, None) => {
                    line(Tone::Quiet, "  paused; continue with `dogwatch resume`".into())
                }
                (other, Some(delay)) => {
                    line(Tone::Quiet, format!("  waiting {} {}", words::length(*delay), words::wait(*other)))
                }
            },
            Event::RunSlept { reason, consecutive, after: AfterStop::Watch, .. } => {
                line(Tone::Quiet, words::slept(reason, *consecutive))
            }
            // The line about the end says the same.
            Event::RunSlept { after: AfterStop::Exit, .. } => Vec::new(),
            Event::WaitEnded { by, .. } => match by {
                WaitEndedBy::Timer => Vec::new(),
                by => line(Tone::Quiet, format!("  {}", words::wait_ended(*by))),
            },
            Event::NeedsHuman { what, until, .. } => {
                line(Tone::Bad, format!("  {}{}: {what}", words::NEEDS_HUMAN, words::until(*until)))
            }
            Event::NeedsHumanEnded { by: HumanEndedBy::Progress, .. } => {
                line(Tone::Quiet, "  the agent continues; no input needed any more".into())
            }
            Event::AgentRetrying { status, delay_s, .. } => {
                line(Tone::Quiet, format!("  {}", words::retrying(*status, *delay_s)))
            }
            Event::DayUsed(day) if day.unknown_cost > 0 => {
                let sessions = words::count(day.unknown_cost, "session");
                line(Tone::Quiet, format!("  today's cost is incomplete: {sessions} did not report a cost"))
            }
            Event::DayUsed(_) => Vec::new(),
            Event::AgentDrifted { .. } => line(Tone::Bad, format!("  {}", words::DRIFTED)),
            Event::ChecksStarted { .. } => line(Tone::Quiet, "  running checks".into()),
            Event::NodeAttempt(attempt) => words::attempt(attempt),
            Event::CheckTampered { files, policy, .. } => {
                let tone = if *policy == Tampered::Fail { Tone::Bad } else { Tone::Quiet };
                line(tone, format!("  pinned files changed: {}", one_line(&files.join(", "), MAX_FILES)))
            }
            Event::RecoveryPlanned(plan) => line(Tone::Quiet, format!("  {}", words::recovery(plan))),
            Event::PartialKept { file, .. } => line(Tone::Quiet, format!("  partial result kept in {file}")),
            Event::WorktreeReady { path, branch, .. } => {
                line(Tone::Quiet, format!("  working in {path} on branch {branch}"))
            }
            _ => Vec::new(),
        }
    }

    /// Returns the last line of an iteration: how it ended, why, and a summary of its session.
    fn over(&self, tone: Tone, word: &str, took: Dur, because: Option<&str>) -> Vec<ScreenLine> {
        let session = if self.ended.is_empty() { String::new() } else { format!("; {}", self.ended) };
        line(tone, format!("  {}{session}", words::ended(word, took, because)))
    }
}

fn shown_path(path: &Path) -> String {
    let here = std::env::current_dir().and_then(|h| h.canonicalize()).ok();
    let short = here.and_then(|h| path.strip_prefix(h).ok().map(Path::to_owned));
    short.unwrap_or_else(|| path.to_owned()).display().to_string()
}

/// The reporter for files and pipes.
pub struct Lines {
    formatter: Formatter,
    writer: Writer,
    color: bool,
}

impl Lines {
    /// Returns a reporter that prints lines to stdout.
    pub fn new(run_dir: &Path, lost: Lost, color: bool) -> Lines {
        Lines { formatter: Formatter::new(run_dir), writer: Writer::new(lost), color }
    }
}

impl Reporter for Lines {
    fn begin(&mut self) -> std::io::Result<()> {
        self.writer.begin()
    }

    fn show(&mut self, event: &Recorded, view: &View) {
        for line in self.formatter.format(event, view) {
            self.writer.write(paint(self.color, line.tone, &line.text) + "\n");
        }
    }

    fn tick(&mut self, _: Moment, _: &View) {}

    fn ticks(&self) -> bool {
        false
    }
}
