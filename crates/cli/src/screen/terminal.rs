//! The reporter for terminals: the same lines in color, and a live line below them that is redrawn once a second.
//!
//! It changes no terminal state that would have to be restored: no raw mode, no alternate screen, no hidden
//! cursor. The live line is cleared before anything else is written.

use super::lines::{Formatter, Lines};
use super::output::Outputs;
use super::writer::Screen;
use super::{ShownLine, Tone, words};
use dogwatch_core::record::calls::CallStatus;
use dogwatch_core::record::event::{Event, NodeState, Recorded, WaitWhy};
use dogwatch_core::record::view::{Doing, NodeView, View};
use dogwatch_core::text::printable;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Moment;
use dogwatch_host::driver::{OutputView, Reporter};
use std::os::fd::AsFd;
use std::sync::Arc;
use unicode_width::UnicodeWidthChar;

const DEFAULT_WIDTH: usize = 80;
/// The end of the live line while a request to stop is pending.
const STOPPING: &str = "; stopping after this iteration";

/// The hints at the end of the live line in a wait. The first that fits is shown.
const HINTS: [&str; 2] = [": Ctrl-C skips the wait, twice stops the run", ": Ctrl-C skips it"];

/// The reporter for terminals.
pub struct Terminal {
    lines: Lines,
    /// There is activity to show in a live line.
    busy: bool,
}

impl Terminal {
    /// Returns a reporter for a terminal.
    pub fn new(formatter: Formatter, screen: Screen, outputs: Option<Arc<Outputs>>) -> Terminal {
        Terminal { lines: Lines::new(formatter, screen, outputs), busy: false }
    }
}

impl Reporter for Terminal {
    fn begin(&mut self) -> std::io::Result<()> {
        self.lines.begin()
    }

    fn show(&mut self, event: &Recorded, view: &View) {
        self.lines.show(event, view);
        if matches!(event.event, Event::SessionEnded(_) | Event::WaitEnded { .. } | Event::RunEnded(_)) {
            self.lines.screen.clear();
        }
        // A graph may be large, so its nodes are examined only when the live line is drawn.
        self.busy = match view.nodes.len() {
            0..=1 => live_text(event.moment(), view, DEFAULT_WIDTH).is_some(),
            _ => !view.is_over(),
        };
    }

    fn tick(&mut self, now: Moment, view: &View) {
        if in_background() {
            self.lines.screen.forget();
            return;
        }
        let columns = width().saturating_sub(1);
        let stopping = if view.stopping { STOPPING } else { "" };
        let room = columns.saturating_sub(stopping.len());
        if let Some(text) = live_text(now, view, room) {
            let text = shorten(&text, room) + stopping;
            self.lines.screen.draw(&ShownLine { tone: Tone::Quiet, text: fit(&text, columns) });
        }
    }

    fn ticks(&self) -> bool {
        self.busy
    }

    fn output(&self) -> Option<Arc<dyn OutputView>> {
        self.lines.output()
    }
}

/// Returns the text of the live line, if there is activity to show.
fn live_text(now: Moment, view: &View, columns: usize) -> Option<String> {
    if view.is_over() {
        return None;
    }
    if view.nodes.len() > 1 {
        return Some(graph_text(now, view, columns));
    }
    view.nodes.iter().find_map(|node| match &node.doing {
        Doing::Working { since, messages, last_output, .. } => {
            let worked = words::clock(now.awake.since(*since));
            let text = format!("  working for {worked}, {}", words::count(*messages, "message"));
            let issue = health_issue(now, node).map_or_else(String::new, |issue| format!("; {issue}"));
            let room = columns.saturating_sub(text.chars().count() + issue.chars().count() + 1);
            if let Some(call) = call_of(now, view, node) {
                return Some(format!("{text} {}{issue}", call.text(room)));
            }
            let quiet = match last_output {
                Some(at) => format!("last output {} ago", words::clock(now.awake.since(*at))),
                None => "no output yet".to_owned(),
            };
            Some(format!("{text}, {quiet}{issue}"))
        }
        Doing::Waiting { until: None, .. } => None,
        Doing::Waiting { why, until: Some(until), .. } => {
            let left = words::clock(Dur::from_millis(u64::try_from(until.0 - now.wall.0).unwrap_or(0)));
            let why = if *why == WaitWhy::Idle {
                let streak = &node.idle_streak;
                format!("idle, {} in a row, {}", words::nth(streak.count), streak.reason)
            } else {
                words::wait(*why).to_owned()
            };
            let text = format!("  {left} left ({why})");
            let fits = |hint: &&str| columns_of(&text) + columns_of(hint) <= columns;
            Some(format!("{text}{}", HINTS.into_iter().find(fits).unwrap_or_default()))
        }
        Doing::Checking => Some("  running checks".to_owned()),
        Doing::Preparing => preparing(now, view, node),
        Doing::Nothing => None,
    })
}

/// Returns how long the commands before the session have been running. Without commands there is nothing to wait for.
fn preparing(now: Moment, view: &View, node: &NodeView) -> Option<String> {
    let settings = &view.started.as_ref()?.settings.nodes.first()?.settings;
    let since = node.current.before_session()?;
    let runs = !settings.commands.is_empty() || settings.work_when.is_some();
    runs.then(|| format!("  running commands for {}", words::clock(now.awake.since(since))))
}

/// Returns the agent's newest open tool call.
fn call_of(now: Moment, view: &View, node: &NodeView) -> Option<CallStatus> {
    CallStatus::of(&node.session.calls, view.place(node), Some(now))
}

/// Returns the progress of a graph, and the newest tool call of its agents.
fn graph_text(now: Moment, view: &View, columns: usize) -> String {
    let count = |is: fn(&NodeView) -> bool| view.nodes.iter().filter(|n| is(n)).count();
    let parts = [
        (count(|n| matches!(n.doing, Doing::Working { .. })), "working"),
        (count(|n| matches!(n.doing, Doing::Checking)), "checking"),
        (count(|n| matches!(n.doing, Doing::Waiting { .. })), "waiting"),
        (count(|n| n.state == NodeState::Failed), "failed"),
        (count(|n| n.state == NodeState::Blocked), "blocked"),
    ];
    let said: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, w)| format!("{n} {w}")).collect();
    let done = count(|n| n.state == NodeState::Done);
    let text = format!("  {done} of {} nodes done; {}", view.nodes.len(), said.join(", "));
    let newest = view.nodes.iter().max_by_key(|node| node.session.calls.newest().map(|call| call.since));
    let Some((node, call)) = newest.and_then(|node| Some((node, call_of(now, view, node)?))) else {
        return text;
    };
    let text = format!("{text}; {}", node.name);
    let room = columns.saturating_sub(text.chars().count() + 1);
    format!("{text} {}", call.text(room))
}

/// Returns the most urgent health issue of the agent.
fn health_issue(now: Moment, node: &NodeView) -> Option<String> {
    let health = &node.session.health;
    if let Some(asking) = &health.asking {
        let left =
            asking.until.map(|until| Dur::from_millis(u64::try_from(until.0 - now.wall.0).unwrap_or(0)));
        let left = left.map_or_else(String::new, |left| format!(" ({} left)", words::clock(left)));
        return Some(printable(&format!("{}{left}: {}", words::NEEDS_HUMAN, asking.what)).into_owned());
    }
    if let Some(retrying) = &health.retrying {
        return Some(format!("retrying for {}", words::clock(now.awake.since(retrying.since))));
    }
    health.drifted.then(|| "most output lines not recognized".to_owned())
}

/// Colors a line according to its tone.
pub fn paint(color: bool, tone: Tone, text: &str) -> String {
    let code = match tone {
        Tone::Plain => return text.to_owned(),
        Tone::Head => "1",
        Tone::Good => "32",
        Tone::Bad => "31",
        Tone::Quiet => "2",
    };
    if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Cuts a text to the given number of columns.
pub fn fit(text: &str, columns: usize) -> String {
    let mut used = 0;
    text.chars()
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= columns
        })
        .collect()
}

/// Cuts a text to the given number of columns, and ends it with `…` if something is missing.
pub fn shorten(text: &str, columns: usize) -> String {
    match fit(text, columns) {
        whole if whole.len() == text.len() => whole,
        _ => format!("{}…", fit(text, columns.saturating_sub(1))),
    }
}

/// Returns the number of columns that a text takes on a terminal. Escape sequences take none.
pub fn columns_of(text: &str) -> usize {
    let mut escape = false;
    let mut columns = 0;
    for c in text.chars() {
        if escape {
            escape = !c.is_ascii_alphabetic();
        } else if c == '\x1b' {
            escape = true;
        } else {
            columns += c.width().unwrap_or(0);
        }
    }
    columns
}

/// Returns whether another job has the terminal: a live line would overwrite what the user types there.
fn in_background() -> bool {
    rustix::termios::tcgetpgrp(std::io::stdout()).is_ok_and(|front| front != rustix::process::getpgrp())
}

/// Returns the width of the terminal on stdout, in columns.
pub fn width() -> usize {
    width_of(&std::io::stdout())
}

/// Returns the width of a terminal, in columns.
pub fn width_of(stream: &impl AsFd) -> usize {
    match rustix::termios::tcgetwinsize(stream) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        Ok(_) | Err(_) => DEFAULT_WIDTH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_by_columns_not_by_characters() {
        assert_eq!(fit("漢字かな", 5), "漢字");
        assert_eq!(fit("plain", 5), "plain");
        assert_eq!(fit("plain", 4), "plai");
        assert_eq!((shorten("plain", 5), shorten("plain", 4)), ("plain".to_owned(), "pla…".to_owned()));
        assert_eq!(shorten("漢字かな", 5), "漢字…");
    }
}
