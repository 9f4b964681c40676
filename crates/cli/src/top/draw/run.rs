//! Draws the page of one run: its lanes on a time axis, its events, and the evidence of the selected event.

use super::overview::{cost, machine_text, name, state, why, windows};
use super::{Look, cell, text};
use crate::local::{self, clock};
use crate::screen::{Tone, words};
use crate::top::lanes::{Checked, Lane, Lanes, Mark, Session};
use crate::top::log::Entry;
use crate::top::model::{Row, Top, tail};
use crate::top::page::Page;
use dogwatch_core::record::event::{NodeState, WaitWhy};
use dogwatch_core::record::status::Status;
use dogwatch_core::text::printable;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use dogwatch_core::watch::{Channel, Evidence};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Style};

/// The width of the lane names left of the axis, in columns.
const NAMES: u16 = 11;
/// The lines above the events: title, reason, axis and eight lanes.
const ABOVE: u16 = 11;
/// The lines below the events: a rule, a title and two lines with two channels each.
const BELOW: u16 = 4;
/// The least distance between labels of the axis, in columns.
const BETWEEN_LABELS: i64 = 12;
/// The least weight that fills a cell completely.
const FULL_CELL_WEIGHT: u64 = 16;
/// The symbols for the weight of a cell.
const LEVELS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Draws the page of a run.
pub fn draw(top: &Top, page: &Page, row: &Row, look: Look, area: Rect, buffer: &mut Buffer) {
    title(top, row, look, area, buffer);
    let now = if row.live { row.moment(top.now).wall.0 } else { page.lanes.last };
    let lanes = page.lanes.at(now);
    let axis = Rect { x: area.x + NAMES, width: area.width - NAMES - 1, ..area };
    let first = page.lanes.first.unwrap_or(now);
    let (from, to) = page.window.range(first, now.max(page.lanes.last));
    labels(from, to, look, Rect { y: area.y + 2, ..axis }, buffer);
    draw_lanes(&lanes, (from, to), look, area, axis, buffer);
    let list = Rect { y: area.y + ABOVE, height: area.height - ABOVE - BELOW, ..area };
    if page.shows_output {
        let list = Rect { height: area.height - ABOVE, ..list };
        return output(page, look, list, buffer);
    }
    events(page, look, list, buffer);
    let below = Rect { y: list.y + list.height, height: BELOW, ..area };
    evidence(page.entry(), look, below, buffer);
}

fn title(top: &Top, row: &Row, look: Look, area: Rect, buffer: &mut Buffer) {
    let status = row.status(top.now);
    let (word, style) =
        if row.read { state(&status, look) } else { ("reading …".to_owned(), look.tone(Tone::Quiet)) };
    let name = printable(&name(row)).into_owned();
    let column = text(buffer, area, area.y, 1, &name, look.tone(Tone::Head));
    let column = text(buffer, area, area.y, column + 2, &word, style);
    let turns = match &status.nodes[..] {
        [node] => format!("  iteration {}", node.iteration),
        nodes => format!("  {}", words::count(nodes.len() as u64, "node")),
    };
    let turns = format!("{turns}  cost {}", cost(&status));
    text(buffer, area, area.y, column, &turns, Style::new());
    let right = format!("run {}  {} {}", tail(&row.run), clock(top.now.wall), local::zone(top.now.wall));
    let column = area.width.saturating_sub(right.len() as u16 + 1);
    text(buffer, area, area.y, column, &right, look.tone(Tone::Quiet));
    let line = match &row.fault {
        Some(fault) => fault.clone(),
        None if !row.read => String::new(),
        None => {
            let lost = top
                .lost_machine(row)
                .map_or_else(String::new, |machine| machine_text(machine, top.now.wall) + "; ");
            lost + &why(row, &status) + &nodes(&status) + &windows(&status)
        }
    };
    cell(buffer, area, area.y + 1, 1, area.width - 2, &printable(&line), Style::new());
}

/// Counts the nodes of a graph by state: `; 3 done, 1 running, 2 pending`.
fn nodes(status: &Status) -> String {
    // The reason of an ended graph counts its nodes already.
    if status.nodes.len() < 2 || status.ended.is_some() {
        return String::new();
    }
    let count = |state: &NodeState| status.nodes.iter().filter(|n| n.state == *state).count();
    let some = NodeState::ALL.iter().map(|state| (count(state), state)).filter(|(n, _)| *n > 0);
    let some: Vec<String> = some.map(|(n, state)| format!("{n} {state}")).collect();
    format!("; {}", some.join(", "))
}

/// The possible distances between labels, in seconds.
const STEPS: [i64; 16] =
    [1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 604_800];

fn labels(from: i64, to: i64, look: Look, area: Rect, buffer: &mut Buffer) {
    let width = i64::from(area.width);
    let span = (to - from).max(1);
    let fits = |step: &&i64| **step * 1000 * width / span >= BETWEEN_LABELS;
    let step = STEPS.iter().find(fits).unwrap_or(&STEPS[STEPS.len() - 1]) * 1000;
    let mut at = (from + step - 1).div_euclid(step) * step;
    while at < to {
        let column = u16::try_from((at - from) * width / span).unwrap_or(0);
        let label = format!("╵{}", local::label(Wall(at), step));
        if column + label.len() as u16 <= area.width {
            text(buffer, area, area.y, column, &label, look.tone(Tone::Quiet));
        }
        at += step;
    }
}

fn draw_lanes(
    lanes: &Lanes,
    (from, to): (i64, i64),
    look: Look,
    area: Rect,
    axis: Rect,
    buffer: &mut Buffer,
) {
    let width = usize::from(axis.width);
    let mut y = area.y + 3;
    let mut lane = |name: &str, cells: Vec<Option<(&'static str, Style)>>| {
        text(buffer, Rect { width: NAMES, ..area }, y, 1, name, look.tone(Tone::Quiet));
        for (column, cell) in (0..axis.width).zip(cells) {
            if let Some((symbol, style)) = cell {
                text(buffer, axis, y, column, symbol, style);
            }
        }
        y += 1;
    };
    let each = |columns: Vec<Option<(Session, u64)>>| {
        columns.into_iter().map(|c| c.map(|(kind, _)| session(kind, look))).collect()
    };
    lane("session", each(lanes.sessions.columns(from, to, width)));
    lane("wait", waits(&lanes.waits, from, to, width, look));
    for channel in Channel::ALL {
        let columns = lanes.channels[*channel as usize].columns(from, to, width);
        let most = columns.iter().flatten().map(|(_, weight)| *weight).max().unwrap_or(0);
        let style = channel_style(*channel, look);
        let cells = columns.into_iter().map(|c| c.map(|(_, weight)| (level(weight, most), style)));
        lane(channel.as_str(), cells.collect());
    }
    let checks = lanes.checks.columns(from, to, width).into_iter();
    lane("checks", checks.map(|c| c.map(|(kind, _)| check(kind, look))).collect());
    let marks = lanes.marks.columns(from, to, width).into_iter();
    lane("verdicts", marks.map(|c| c.map(|(kind, _)| mark(kind, look))).collect());
}

fn session(kind: Session, look: Look) -> (&'static str, Style) {
    match kind {
        Session::Interrupted => ("·", look.tone(Tone::Quiet)),
        Session::Idle => ("░", look.tone(Tone::Quiet)),
        Session::Completed => ("█", look.fg(Color::Green)),
        Session::Open => ("█", look.fg(Color::Cyan)),
        Session::Limited => ("▒", look.fg(Color::Yellow)),
        Session::Failed => ("▓", look.fg(Color::Red)),
    }
}

fn check(kind: Checked, look: Look) -> (&'static str, Style) {
    match kind {
        Checked::Passed => ("✔", look.fg(Color::Green)),
        Checked::Open => ("…", look.fg(Color::Cyan)),
        Checked::Failed => ("✘", look.fg(Color::Red)),
    }
}

/// Draws a wait as a line that starts with the letter of its reason.
fn waits(
    lane: &Lane<usize>,
    from: i64,
    to: i64,
    width: usize,
    look: Look,
) -> Vec<Option<(&'static str, Style)>> {
    let mut before = None;
    let columns = lane.columns(from, to, width).into_iter();
    columns
        .map(|column| {
            let why = column.and_then(|(why, _)| WaitWhy::ALL.get(why).copied());
            let begins = why != before;
            before = why;
            why.map(|why| (if begins { letter(why) } else { "─" }, look.fg(Color::Yellow)))
        })
        .collect()
}

fn letter(why: WaitWhy) -> &'static str {
    match why {
        WaitWhy::Paused => "p",
        WaitWhy::RateLimit => "l",
        WaitWhy::Idle => "i",
        WaitWhy::Error => "e",
        WaitWhy::Recovery => "r",
        WaitWhy::Backoff => "b",
        WaitWhy::Delay => "d",
        WaitWhy::Asleep => "z",
    }
}

/// Returns the symbol for a weight, on a logarithmic scale up to the greatest weight of the lane.
fn level(weight: u64, most: u64) -> &'static str {
    let height = |n: u64| (1.0 + n as f64).ln();
    let share = height(weight) / height(most.max(FULL_CELL_WEIGHT));
    let top = LEVELS.len() - 1;
    LEVELS[((share * top as f64).round() as usize).min(top)]
}

fn channel_style(channel: Channel, look: Look) -> Style {
    look.fg(match channel {
        Channel::Stdout => Color::Blue,
        Channel::McpTool => Color::Magenta,
        Channel::Subagent => Color::Cyan,
        Channel::Workspace => Color::Green,
    })
}

fn mark(kind: Mark, look: Look) -> (&'static str, Style) {
    match kind {
        Mark::MessageReceived => ("“", look.fg(Color::Blue)),
        Mark::Resumed => ("↻", look.fg(Color::Blue)),
        Mark::Deferred => ("▴", look.fg(Color::Yellow)),
        Mark::Recovery => ("+", look.fg(Color::Yellow)),
        Mark::Trouble => ("!", look.fg(Color::Red)),
        Mark::NeedsHuman => ("?", look.fg(Color::Magenta)),
        Mark::HardStop => ("✖", look.fg(Color::Red)),
        Mark::Ended => ("■", Style::new()),
    }
}

/// Draws the end of the agent's output.
fn output(page: &Page, look: Look, area: Rect, buffer: &mut Buffer) {
    let which = match &page.session {
        Some((node, iteration)) => format!("{node}, iteration {iteration}"),
        None => "no session yet".to_owned(),
    };
    let how = if page.output.back > 0 { "f to follow" } else { "following" };
    let rule = format!("── output of {} ── {how}, o for events ", printable(&which));
    let rule = rule + &"─".repeat(usize::from(area.width));
    text(buffer, area, area.y, 0, &rule, look.tone(Tone::Quiet));
    let list = Rect { y: area.y + 1, height: area.height - 1, ..area };
    let rows = list.y..list.y + list.height;
    for (y, line) in rows.zip(page.output.visible(usize::from(list.height))) {
        cell(buffer, list, y, 1, list.width - 1, &line.text, look.tone(line.tone));
    }
}

fn events(page: &Page, look: Look, area: Rect, buffer: &mut Buffer) {
    let how = match (page.reading, page.follows()) {
        (true, _) => "reading …",
        (false, true) => "following",
        (false, false) => "f to follow",
    };
    let rule = format!("── events ── {how}, o for output ");
    let rule = rule + &"─".repeat(usize::from(area.width));
    text(buffer, area, area.y, 0, &rule, look.tone(Tone::Quiet));
    let list = Rect { y: area.y + 1, height: area.height - 1, ..area };
    let (room, here) = (usize::from(list.height), page.position());
    let entries = &page.log.entries;
    let first = here.saturating_sub(room.saturating_sub(1)).min(entries.len().saturating_sub(room));
    for (y, (place, entry)) in (list.y..list.y + list.height).zip(entries.iter().enumerate().skip(first)) {
        text(buffer, list, y, 1, &clock(entry.at), look.tone(Tone::Quiet));
        cell(buffer, list, y, 10, list.width - 10, &entry.text, look.tone(entry.tone));
        if place == here {
            buffer.set_style(Rect { y, height: 1, ..list }, look.chosen());
        }
    }
}

/// Draws the evidence of a verdict, or the full text of any other event.
fn evidence(entry: Option<&Entry>, look: Look, area: Rect, buffer: &mut Buffer) {
    let rule = "─".repeat(usize::from(area.width));
    text(buffer, area, area.y, 0, &rule, look.tone(Tone::Quiet));
    let Some(entry) = entry else { return };
    let Some(verdict) = &entry.verdict else {
        let width = usize::from(area.width.saturating_sub(2));
        let mut rest = entry.text.as_str();
        for y in area.y + 1..area.y + area.height {
            let part = crate::screen::fit(rest, width);
            text(buffer, area, y, 1, &part, Style::new());
            rest = &rest[part.len()..];
        }
        return;
    };
    cell(buffer, area, area.y + 1, 1, area.width - 2, &entry.text, look.tone(entry.tone));
    let half = area.width / 2;
    for (place, seen) in (0_u16..).zip(&verdict.evidence).take(4) {
        let line = one_channel(seen, verdict.active);
        cell(buffer, area, area.y + 2 + place / 2, 1 + place % 2 * half, half - 1, &line, Style::new());
    }
}

/// Formats the evidence of a channel: `stdout     5m 00s ago, 12 seen`.
fn one_channel(seen: &Evidence, active: Option<Channel>) -> String {
    let mark = if active == Some(seen.channel) { "*" } else { " " };
    let span = |s: f64| words::clock(Dur::from_millis((s.max(0.0) * 1000.0) as u64));
    match seen.age_seconds {
        Some(age) => format!("{mark}{:<9} {} ago, {} seen", seen.channel.as_str(), span(age), seen.counter),
        None => format!("{mark}{:<9} never seen", seen.channel.as_str()),
    }
}
