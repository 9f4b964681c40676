//! Formats events as lines without control characters, one block per iteration. The terminal shows the same lines.

use super::output::Outputs;
use super::terminal::{shorten, width};
use super::wrap::wrap;
use super::writer::Screen;
use super::{Show, ShownLine, words};
use crate::local;
use crate::since_last_run;
use dogwatch_core::record::event::{Event, NodeAttempt, NodeState, Recorded, RunEnded, RunStarted, WaitWhy};
use dogwatch_core::record::ids::NodeName;
use dogwatch_core::record::view::{NodeView, View};
use dogwatch_core::record::words::{Sentence, Style, Tone, Weight};
use dogwatch_core::text::{one_line, printable};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::{Moment, Wall};
use dogwatch_host::driver::{OutputView, Reporter};
use dogwatch_host::store::registry::Registry;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use unicode_width::UnicodeWidthStr;

/// The most of the agent's command line to show in the first line, in bytes.
const MAX_AGENT: usize = 80;

/// Turns events into lines. Collects the parts of a line until the line is complete.
pub struct Formatter {
    run_dir: PathBuf,
    show: Show,
    nodes: BTreeMap<NodeName, Pieces>,
    /// The width of the column for node names; 0 in a run of one node. Known once the run has started.
    pub names: Option<usize>,
    /// Stdout is a terminal: lines are wrapped to its width. Files and pipes get whole lines.
    wraps: bool,
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
        let wraps = std::io::stdout().is_terminal();
        Formatter { run_dir: run_dir.to_owned(), show, nodes: BTreeMap::new(), names: None, wraps }
    }

    /// Returns the lines for an event, as wide as the terminal. In a graph, each starts with the name of its node.
    pub fn format(&mut self, recorded: &Recorded, view: &View) -> Vec<ShownLine> {
        let mut lines = self.whole_lines(recorded, view);
        if self.wraps {
            let columns = width();
            lines.iter_mut().for_each(|line| line.text = wrap(&line.text, columns));
        }
        lines
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    fn whole_lines(&mut self, recorded: &Recorded, view: &View) -> Vec<ShownLine> {
        let (event, at) = (&recorded.event, recorded.at);
        let names = *self.names.get_or_insert_with(|| name_column(view));
        match event {
            Event::RunStarted(s) => return self.head(s, at),
            Event::RunEnded(end) => return self.foot(event, end, at, view),
            _ if since_last_run::is_reported(event) => return Vec::new(),
            _ => {}
        }
        let Some(node) = event.node() else { return main_line(event, at, self.show) };
        let pieces = self.nodes.entry(node.clone()).or_default();
        let mut lines = if names > 0 { state_change(event) } else { Vec::new() };
        if lines.is_empty() {
            lines = pieces.format(event, at, self.show);
        }
        if matches!(event, Event::NodeTransition { to: NodeState::Done | NodeState::Failed, .. }) {
            self.nodes.remove(node);
        }
        if names > 0 {
            for line in &mut lines {
                line.text =
                    printable(&format!("{:<names$}  {}", node.as_str(), line.text.trim_start())).into_owned();
            }
        }
        lines
    }

    fn head(&self, s: &RunStarted, at: Wall) -> Vec<ShownLine> {
        let name = match s.nodes.len() {
            1 => s.name().to_owned(),
            many => format!("{}, {}", s.name(), words::count(many as u64, "node")),
        };
        let agent = one_line(&s.agent, MAX_AGENT);
        let head = |agent: &str, at: &str| {
            printable(&format!("dogwatch  {name}  ({agent})  run {}{at}", s.run)).into_owned()
        };
        let mut at = format!("  {}", local::full(at));
        let mut text = head(&agent, &at);
        let columns = if self.wraps { width() } else { usize::MAX };
        if text.width() > columns {
            // The run id and the time say more than the rest of the agent's command line. The headings of the
            // iterations have the time, too.
            if head("…", &at).width() > columns {
                at.clear();
            }
            let room = columns.saturating_sub(head("", &at).width()).max(1);
            text = head(&shorten(&agent, room), &at);
        }
        vec![ShownLine { tone: Tone::Head, text }]
    }

    fn foot(&self, event: &Event, end: &RunEnded, at: Wall, view: &View) -> Vec<ShownLine> {
        let second = format!(
            "  {}; {}, ended at {}; exit code {}",
            words::iterations(&view.totals()),
            words::span(end.total_duration_s),
            local::clock(at),
            end.exit_code
        );
        let head = view.started.as_ref().and_then(|started| Registry::of_user().head(&started.run));
        let head = head.map_or_else(String::new, |head| format!(", head {head}"));
        let third = format!("  record: {}{head}", shown_path(&self.run_dir));
        let fourth = merge_command(view).map(|command| (Tone::Plain, format!("  merge the work: {command}")));
        let more = [(Tone::Plain, second), (Tone::Quiet, third)].into_iter().chain(fourth);
        let mut lines = vec![ShownLine::from(local::sentence(event, Style::Line))];
        lines.extend(more.map(|(tone, text)| ShownLine { tone, text: printable(&text).into_owned() }));
        lines
    }
}

/// Returns the command that merges the branches of nodes with worktrees, if any of these nodes is done.
fn merge_command(view: &View) -> Option<String> {
    let run = &view.started.as_ref()?.run;
    let on_branch = |node: &NodeView| node.state == NodeState::Done && node.work.worktree.is_some();
    view.nodes.iter().any(on_branch).then(|| format!("dogwatch merge {}", run.tail()))
}

/// Returns the width of the column for node names; 0 in a run of one node.
fn name_column(view: &View) -> usize {
    match view.nodes.as_slice() {
        [] | [_] => 0,
        many => many.iter().map(|n| n.name.as_str().chars().count()).max().unwrap_or(0).min(MAX_NAME),
    }
}

/// Returns the line for an event that the screen shows by itself, indented below the heading of its iteration. A heading
/// and bad news have the time of day.
fn main_line(event: &Event, at: Wall, show: Show) -> Vec<ShownLine> {
    let style = if show == Show::Quiet { Style::Full } else { Style::Line };
    let Sentence { weight, tone, text } = local::sentence(event, style);
    let is_outcome = tone == Tone::Bad || event.ending().is_some();
    let at = local::clock(at);
    let text = match (weight, show) {
        // Without the headings of the iterations there is nothing to indent.
        (Weight::Main, Show::Quiet) if is_outcome => format!("{at}  {text}"),
        (Weight::Main, Show::Normal | Show::Verbose) if tone == Tone::Head => format!("{text}  {at}"),
        (Weight::Main, Show::Normal | Show::Verbose) if tone == Tone::Bad && event.ending().is_none() => {
            format!("  {at} {text}")
        }
        (Weight::Main, Show::Normal | Show::Verbose) | (Weight::Detail, Show::Verbose) => format!("  {text}"),
        (_, _) => return Vec::new(),
    };
    vec![ShownLine { tone, text }]
}

/// Returns a line when a node of a graph is done, failed or blocked.
fn state_change(event: &Event) -> Vec<ShownLine> {
    let Event::NodeTransition { to, .. } = event else { return Vec::new() };
    match to {
        NodeState::Done | NodeState::Failed | NodeState::Blocked => {
            vec![local::sentence(event, Style::Line).into()]
        }
        NodeState::Pending | NodeState::Ready | NodeState::Running => Vec::new(),
    }
}

fn line(tone: Tone, text: String) -> Vec<ShownLine> {
    vec![ShownLine { tone, text: printable(&text).into_owned() }]
}

/// Returns a line that a quiet run does not print.
fn normally(show: Show, tone: Tone, text: String) -> Vec<ShownLine> {
    if show == Show::Quiet { Vec::new() } else { line(tone, text) }
}

impl Pieces {
    /// Returns the lines of an event. Adds to its sentence what earlier events of the iteration said.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    fn format(&mut self, event: &Event, at: Wall, show: Show) -> Vec<ShownLine> {
        if event.ending().is_some() {
            return self.over(event, at, show);
        }
        match event {
            Event::IterationStarted { .. } => {
                self.prepared.clear();
                self.ended.clear();
                main_line(event, at, show)
            }
            Event::CommandFinished(c) => {
                self.prepared.push(words::command(c));
                Vec::new()
            }
            Event::PromptAssembled { .. } => {
                self.prepared.push(local::sentence(event, Style::Line).text);
                normally(show, Tone::Quiet, format!("  {}", self.prepared.join(", ")))
            }
            Event::SessionEnded(s) => {
                self.ended = words::session(s);
                // A verbose run has shown the whole message.
                let said = Some(words::said(s)).filter(|said| !said.is_empty() && show == Show::Normal);
                let said = said.map(|said| (Tone::Plain, format!("  \"{said}\"")));
                let killed = words::killed(s).filter(|_| show != Show::Quiet);
                let killed = killed.map(|killed| (Tone::Quiet, format!("  {killed}")));
                said.into_iter().chain(killed).flat_map(|(tone, text)| line(tone, text)).collect()
            }
            Event::NodeAttempt(attempt) if !attempt.converged && show != Show::Quiet => {
                failed_checks(attempt)
            }
            // After a resume, the idle iteration was reported by the previous process.
            Event::WaitStarted { why: WaitWhy::Idle, delay_s: Some(delay), until, because, .. } => {
                let why = if self.idle.is_empty() { "idle" } else { &self.idle };
                let (until, because) = (ends_at(*delay, *until), words::because(because.as_deref()));
                // Plain waits are easy to compare in seconds; learned ones can be long.
                let length = if *delay < IN_MINUTES { words::seconds(*delay) } else { words::span(*delay) };
                let text = format!("  {why}, backing off to {length}{until}{because}");
                normally(show, Tone::Quiet, text)
            }
            Event::WaitStarted { delay_s: Some(delay), until, .. } => {
                let mut lines = main_line(event, at, show);
                lines.iter_mut().for_each(|line| line.text.push_str(&ends_at(*delay, *until)));
                lines
            }
            event => main_line(event, at, show),
        }
    }

    /// Returns the last line of an iteration: how it ended, why, and a summary of its session.
    fn over(&mut self, event: &Event, at: Wall, show: Show) -> Vec<ShownLine> {
        if let Event::IterationIdle { reason, consecutive, .. } = event {
            self.idle = format!("idle ({} in a row, {reason})", words::nth(*consecutive));
        }
        let mut lines = main_line(event, at, show);
        if !self.ended.is_empty() {
            lines.iter_mut().for_each(|line| line.text.push_str(&format!("; {}", self.ended)));
        }
        lines
    }
}

/// The shortest idle wait that is shown in minutes.
const IN_MINUTES: Dur = Dur::from_mins(10);
/// The shortest wait whose end is shown as a time of day.
const LONG_WAIT: Dur = Dur::from_mins(1);

/// Returns the end of a long wait: `, until 21:15:33`.
fn ends_at(delay: Dur, until: Option<Wall>) -> String {
    let until = until.filter(|_| delay >= LONG_WAIT);
    until.map_or_else(String::new, |until| format!(", until {}", local::clock(until)))
}

/// Returns a line for each failed check and one for the last line of its output.
fn failed_checks(attempt: &NodeAttempt) -> Vec<ShownLine> {
    let mut lines = Vec::new();
    for (sentence, output) in words::failed_checks(attempt) {
        lines.extend(line(sentence.tone, format!("  {}", sentence.text)));
        lines.extend(output.map(|output| ShownLine { tone: Tone::Quiet, text: format!("    {output}") }));
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
    pub(super) screen: Screen,
    outputs: Option<Arc<Outputs>>,
}

impl Lines {
    /// Returns a reporter that prints lines to stdout.
    pub fn new(formatter: Formatter, screen: Screen, outputs: Option<Arc<Outputs>>) -> Lines {
        Lines { formatter, screen, outputs }
    }
}

impl Reporter for Lines {
    fn begin(&mut self) -> std::io::Result<()> {
        self.screen.begin()
    }

    fn show(&mut self, event: &Recorded, view: &View) {
        let lines = self.formatter.format(event, view);
        if let Some(outputs) = &self.outputs {
            outputs.set_names(self.formatter.names.unwrap_or(0));
        }
        self.screen.lines(&lines);
    }

    fn tick(&mut self, _: Moment, _: &View) {}

    fn ticks(&self) -> bool {
        false
    }

    fn output(&self) -> Option<Arc<dyn OutputView>> {
        self.outputs.clone().map(|outputs| outputs as Arc<dyn OutputView>)
    }
}
