//! Formats events as lines without control characters, one block per iteration. The terminal shows the same lines.

use super::terminal::paint;
use super::words;
use super::writer::Writer;
use super::{Lost, Show};
use dogwatch_core::record::event::{Event, NodeAttempt, NodeState, Recorded, RunEnded, RunStarted, WaitWhy};
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::record::view::{NodeView, View};
use dogwatch_core::record::words::{Sentence, Style, Tone, Weight};
use dogwatch_core::text::{one_line, printable};
use dogwatch_core::time::moment::Moment;
use dogwatch_host::driver::Reporter;
use dogwatch_host::store::registry::Registry;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The most of the agent's command line to show in the first line, in bytes.
const MAX_AGENT: usize = 80;

/// A line to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScreenLine {
    pub tone: Tone,
    pub text: String,
}

impl From<Sentence> for ScreenLine {
    fn from(sentence: Sentence) -> ScreenLine {
        ScreenLine { tone: sentence.tone, text: sentence.text }
    }
}

/// Turns events into lines. Collects the parts of a line until the line is complete.
pub struct Formatter {
    run_dir: PathBuf,
    show: Show,
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
    pub fn new(run_dir: &Path, show: Show) -> Formatter {
        Formatter { run_dir: run_dir.to_owned(), show, nodes: BTreeMap::new() }
    }

    /// Returns the lines for an event. In a graph, each line starts with the name of its node.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    pub fn format(&mut self, recorded: &Recorded, view: &View) -> Vec<ScreenLine> {
        let event = &recorded.event;
        match event {
            Event::RunStarted(s) => return self.head(s),
            Event::RunEnded(end) => return self.foot(event, end, view),
            _ => {}
        }
        let graph = view.nodes.len() > 1;
        let Some(node) = event.node() else { return main_line(event, self.show) };
        let pieces = self.nodes.entry(node.clone()).or_default();
        let mut lines = if graph { state_change(event) } else { Vec::new() };
        if lines.is_empty() {
            lines = pieces.format(event, self.show);
        }
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
        let name = match s.nodes.len() {
            1 => s.name().to_owned(),
            many => format!("{}, {}", s.name(), words::count(many as u64, "node")),
        };
        let text = format!("dogwatch  {name}  ({})  run {}", one_line(&s.agent, MAX_AGENT), s.run);
        vec![ScreenLine { tone: Tone::Head, text: printable(&text).into_owned() }]
    }

    fn foot(&self, event: &Event, end: &RunEnded, view: &View) -> Vec<ScreenLine> {
        let second = format!(
            "  {}; {}; exit code {}",
            words::iterations(&view.totals()),
            words::span(end.total_duration_s),
            end.exit_code
        );
        let head = view.started.as_ref().and_then(|started| Registry::of_user().head(&started.run));
        let head = head.map_or_else(String::new, |head| format!(", head {head}"));
        let third = format!("  record: {}{head}", shown_path(&self.run_dir));
        let fourth = merge_command(view).map(|command| (Tone::Plain, format!("  merge the work: {command}")));
        let more = [(Tone::Plain, second), (Tone::Quiet, third)].into_iter().chain(fourth);
        let mut lines = vec![ScreenLine::from(words::sentence(event, Style::Line))];
        lines.extend(more.map(|(tone, text)| ScreenLine { tone, text: printable(&text).into_owned() }));
        lines
    }
}

/// Returns the command that merges the work of nodes on branches of their own, if any of them is done.
fn merge_command(view: &View) -> Option<String> {
    let run = &view.started.as_ref()?.run;
    let on_branch = |node: &NodeView| node.state == NodeState::Done && node.work.worktree.is_some();
    view.nodes.iter().any(on_branch).then(|| format!("dogwatch merge {}", run.tail()))
}

/// Returns the line for an event that the screen shows by itself, indented below the heading of its iteration.
fn main_line(event: &Event, show: Show) -> Vec<ScreenLine> {
    let style = if show == Show::Quiet { Style::Full } else { Style::Line };
    let Sentence { weight, tone, text } = words::sentence(event, style);
    let is_outcome = tone == Tone::Bad || event.ending().is_some();
    match (weight, show) {
        // Without the headings of the iterations there is nothing to indent.
        (Weight::Main, Show::Quiet) if is_outcome => vec![ScreenLine { tone, text }],
        (Weight::Main, Show::Normal | Show::Verbose) if tone == Tone::Head => vec![ScreenLine { tone, text }],
        (Weight::Main, Show::Normal | Show::Verbose) | (Weight::Detail, Show::Verbose) => {
            vec![ScreenLine { tone, text: format!("  {text}") }]
        }
        (_, _) => Vec::new(),
    }
}

/// Returns a line when a node of a graph is done, failed or blocked.
fn state_change(event: &Event) -> Vec<ScreenLine> {
    let Event::NodeTransition { to, .. } = event else { return Vec::new() };
    match to {
        NodeState::Done | NodeState::Failed | NodeState::Blocked => {
            vec![words::sentence(event, Style::Line).into()]
        }
        NodeState::Pending | NodeState::Ready | NodeState::Running => Vec::new(),
    }
}

fn line(tone: Tone, text: String) -> Vec<ScreenLine> {
    vec![ScreenLine { tone, text: printable(&text).into_owned() }]
}

/// Returns a line that a quiet run does not print.
fn normally(show: Show, tone: Tone, text: String) -> Vec<ScreenLine> {
    if show == Show::Quiet { Vec::new() } else { line(tone, text) }
}

impl Pieces {
    /// Returns the lines of an event. Adds to its sentence what earlier events of the iteration said.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    fn format(&mut self, event: &Event, show: Show) -> Vec<ScreenLine> {
        if event.ending().is_some() {
            return self.over(event, show);
        }
        match event {
            Event::IterationStarted { .. } => {
                self.prepared.clear();
                self.ended.clear();
                main_line(event, show)
            }
            Event::CommandFinished(c) => {
                self.prepared.push(words::command(c));
                Vec::new()
            }
            Event::PromptAssembled { .. } => {
                self.prepared.push(words::sentence(event, Style::Line).text);
                normally(show, Tone::Quiet, format!("  {}", self.prepared.join(", ")))
            }
            Event::SessionEnded(s) => {
                let said = words::said(s);
                self.ended = words::session(s);
                if said.is_empty() {
                    Vec::new()
                } else {
                    normally(show, Tone::Plain, format!("  \"{said}\""))
                }
            }
            Event::NodeAttempt(attempt) if !attempt.converged && show != Show::Quiet => {
                failed_checks(attempt)
            }
            // After a resume, the idle iteration was reported by the previous process.
            Event::WaitStarted { why: WaitWhy::Idle, delay_s: Some(delay), because, .. } => {
                let why = if self.idle.is_empty() { "idle" } else { &self.idle };
                let because = words::because(because.as_deref());
                let text = format!("  {why}, backing off to {}{because}", words::seconds(*delay));
                normally(show, Tone::Quiet, text)
            }
            event => main_line(event, show),
        }
    }

    /// Returns the last line of an iteration: how it ended, why, and a summary of its session.
    fn over(&mut self, event: &Event, show: Show) -> Vec<ScreenLine> {
        if let Event::IterationIdle { reason, consecutive, .. } = event {
            self.idle = format!("idle ({} in a row, {reason})", words::nth(*consecutive));
        }
        let mut lines = main_line(event, show);
        if !self.ended.is_empty() {
            lines.iter_mut().for_each(|line| line.text.push_str(&format!("; {}", self.ended)));
        }
        lines
    }
}

/// Returns a line for each failed check and one for the last line of its output.
fn failed_checks(attempt: &NodeAttempt) -> Vec<ScreenLine> {
    let mut lines = Vec::new();
    for (sentence, output) in words::failed_checks(attempt) {
        lines.extend(line(sentence.tone, format!("  {}", sentence.text)));
        lines.extend(output.map(|output| ScreenLine { tone: Tone::Quiet, text: format!("    {output}") }));
    }
    lines
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
    pub fn new(formatter: Formatter, lost: Lost, color: bool) -> Lines {
        Lines { formatter, writer: Writer::new(lost), color }
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
