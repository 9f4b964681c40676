//! Draws the overview: one line per run, and details of the selected run.

use super::{Look, cell, text};
use crate::local;
use crate::screen::{Tone, words};
use crate::top::model::{Row, Top, tail};
use dogwatch_core::record::event::Outcome;
use dogwatch_core::record::status::{DoingStatus, NodeStatus, State, Status};
use dogwatch_core::text::{one_line, printable};
use dogwatch_core::time::moment::{Moment, Wall};
use dogwatch_server::{MachineEntry, MachineState};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Style};

/// The number of lines below the list, for the selected run.
const DETAIL: u16 = 5;
/// The most machines that get a separate line.
const MAX_MACHINES: usize = 5;
/// The most of a reason to show, in bytes.
const MAX_REASON: usize = 300;

/// The start and width of each column. `why` gets the remaining width.
struct Columns {
    name: (u16, u16),
    state: (u16, u16),
    why: (u16, u16),
    seen: (u16, u16),
    turns: (u16, u16),
    cost: (u16, u16),
}

impl Columns {
    fn of(width: u16) -> Columns {
        // A narrow screen cuts `clean, unverified`; the details of the run show all of it.
        let (name, state) = if width >= 110 { (24, 17) } else { (13, 13) };
        let (seen, turns, cost) = (16, 5, 7);
        let why = width.saturating_sub(2 + name + 1 + state + 1 + 1 + seen + 1 + turns + 1 + cost);
        let mut at = 2;
        let mut next = |width: u16| {
            let begins = at;
            at += width + 1;
            (begins, width)
        };
        Columns {
            name: next(name),
            state: next(state),
            why: next(why),
            seen: next(seen),
            turns: next(turns),
            cost: next(cost),
        }
    }
}

/// Draws the list of runs.
pub fn draw(top: &Top, look: Look, area: Rect, buffer: &mut Buffer) {
    head(top, look, area, buffer);
    let machines = machines(top, look, area, buffer);
    let area = Rect { y: area.y + machines, height: area.height - machines, ..area };
    if top.rows.is_empty() {
        let line = "no runs on this machine; start one with `dogwatch run DIR`";
        text(buffer, area, area.y + 2, 2, line, look.tone(Tone::Quiet));
        return;
    }
    let columns = Columns::of(area.width);
    titles(&columns, look, area, buffer);
    let list = Rect { y: area.y + 2, height: area.height - 2 - DETAIL, ..area };
    let room = usize::from(list.height);
    let chosen = top.selected();
    let first = chosen.saturating_sub(room / 2).min(top.rows.len().saturating_sub(room));
    for (y, (place, row)) in (list.y..list.y + list.height).zip(top.rows.iter().enumerate().skip(first)) {
        line(top, row, &columns, look, list, y, buffer);
        if place == chosen {
            buffer.set_style(Rect { y, height: 1, ..list }, look.chosen());
        }
    }
    if let Some(row) = top.rows.get(chosen) {
        let below = Rect { y: list.y + list.height, height: DETAIL, ..area };
        detail(top.now, row, look, below, buffer);
    }
}

fn head(top: &Top, look: Look, area: Rect, buffer: &mut Buffer) {
    let live = top.rows.iter().filter(|row| row.live).count();
    let hidden = if top.hidden > 0 { format!(", {} older not shown", top.hidden) } else { String::new() };
    let title = format!("dogwatch top  {}, {live} live{hidden}", words::count(top.rows.len() as u64, "run"));
    text(buffer, area, area.y, 1, &title, look.tone(Tone::Head));
    let clock = format!("{} {}", local::clock(top.now.wall), local::zone(top.now.wall));
    let column = area.width.saturating_sub(clock.len() as u16 + 1);
    text(buffer, area, area.y, column, &clock, look.tone(Tone::Quiet));
}

/// Draws a line for each other machine, those that are not connected first. Returns the number of lines.
fn machines(top: &Top, look: Look, area: Rect, buffer: &mut Buffer) -> u16 {
    let mut all: Vec<&MachineEntry> = top.machines.iter().collect();
    all.sort_by_key(|machine| (machine.state == MachineState::Up, &machine.name));
    let more = all.len().saturating_sub(MAX_MACHINES);
    let mut y = area.y;
    if let Some(summary) = &top.summary {
        y += 1;
        cell(buffer, area, y, 2, area.width - 3, &printable(summary), look.tone(Tone::Quiet));
    }
    let first = y;
    for machine in all.iter().take(MAX_MACHINES) {
        y += 1;
        let tone = match machine.state {
            MachineState::Up | MachineState::Connecting => look.tone(Tone::Quiet),
            MachineState::Down => look.tone(Tone::Bad),
        };
        let mut line = machine_text(machine, top.now.wall);
        if more > 0 && usize::from(y - first) == MAX_MACHINES {
            line.push_str(&format!("  (and {more} more machines)"));
        }
        cell(buffer, area, y, 2, area.width - 3, &printable(&line), tone);
    }
    y - area.y
}

/// Describes another machine: `box1 up for 2m05s, dogwatch 0.1.0, 3 live`, `box2 down for 5s: connection refused`.
pub fn machine_text(machine: &MachineEntry, now: Wall) -> String {
    let MachineEntry { name, state, since, why, version, runs, detail } = machine;
    let long = age(*since, now);
    match state {
        MachineState::Connecting => format!("{name} connecting for {long}"),
        MachineState::Up => {
            let version =
                version.as_ref().map_or_else(String::new, |version| format!(", dogwatch {version}"));
            let detail = detail.clone().unwrap_or_else(|| format!("{runs} live"));
            format!("{name} up for {long}{version}, {detail}")
        }
        MachineState::Down => format!("{name} down for {long}: {}", why.as_deref().unwrap_or("unknown")),
    }
}

/// Returns the name of a run, with its graph if it is a node of one, and with its machine if that is another one.
pub fn name(row: &Row) -> String {
    let Some(origin) = &row.origin else { return row.name().to_owned() };
    let graph = origin.graph.as_ref().map_or_else(String::new, |graph| format!("{graph}/"));
    let own = row.job.as_deref().filter(|_| origin.graph.is_none()).unwrap_or(row.name());
    format!("{graph}{own} @{}", origin.host)
}

fn titles(columns: &Columns, look: Look, area: Rect, buffer: &mut Buffer) {
    let style = look.tone(Tone::Quiet);
    for ((column, width), title) in [
        (columns.name, "run"),
        (columns.state, "state"),
        (columns.why, "reason, next start"),
        (columns.seen, "last activity"),
        (columns.turns, "iters"),
        (columns.cost, "cost"),
    ] {
        cell(buffer, area, area.y + 1, column, width, title, style);
    }
}

fn line(top: &Top, row: &Row, at: &Columns, look: Look, area: Rect, y: u16, buffer: &mut Buffer) {
    let now = row.moment(top.now);
    let status = row.status(top.now);
    let (state, style) = state(&status, look);
    let mut put = |(column, width): (u16, u16), text: &str, style: Style| {
        cell(buffer, area, y, column, width, text, style);
    };
    put(at.name, &printable(&name(row)), Style::new());
    if row.read {
        put(at.state, &state, style);
    }
    match &row.fault {
        Some(fault) => return put(at.why, fault, look.tone(Tone::Bad)),
        None if !row.read => return put(at.why, "reading …", look.tone(Tone::Quiet)),
        None if top.lost_machine(row).is_some() => put(at.why, "its machine is down", look.tone(Tone::Bad)),
        None => put(at.why, &why(row, &status), Style::new()),
    }
    put(at.seen, &seen(&status, now), Style::new());
    put(at.turns, &(status.counts.iterations + status.unfinished).to_string(), Style::new());
    put(at.cost, &cost(&status), Style::new());
}

/// Returns the state of a run, or its outcome if it has ended.
pub fn state(status: &Status, look: Look) -> (String, Style) {
    let style = match status.state {
        State::Working | State::Preparing | State::Checking | State::Starting => look.fg(Color::Cyan),
        State::Waiting | State::Paused | State::Asleep => look.fg(Color::Yellow),
        State::NeedsHuman => look.fg(Color::Magenta),
        State::Lost => look.tone(Tone::Bad),
        State::Ended => status.ended.as_ref().map_or_else(Style::new, |e| outcome_style(e.outcome, look)),
    };
    let word = match (status.state, &status.ended) {
        (State::Ended, Some(end)) => words::outcome(end.outcome, end.verified)
            .replace(Outcome::CleanWithFlake.as_str(), "clean, flaky")
            .replace('_', " "),
        (State::NeedsHuman, _) => "needs human".to_owned(),
        (_, _) if status.stopping => "stopping".to_owned(),
        (_, _) if status.paused && status.state == State::Working => "pausing".to_owned(),
        (state, _) => state.as_str().to_owned(),
    };
    (word, style)
}

fn outcome_style(outcome: Outcome, look: Look) -> Style {
    match outcome {
        Outcome::Clean => look.fg(Color::Green),
        Outcome::CleanWithFlake | Outcome::BudgetExceeded | Outcome::Ceiling => look.fg(Color::Yellow),
        Outcome::Idle | Outcome::Stopped | Outcome::Interrupted => look.tone(Tone::Quiet),
        Outcome::Partial
        | Outcome::Stuck
        | Outcome::Catastrophic
        | Outcome::StoppedOnError
        | Outcome::ErrorLimit
        | Outcome::AuthFailed
        | Outcome::RecordLost => look.fg(Color::Red),
    }
}

/// Returns why a run is in its state, and when it continues.
pub fn why(row: &Row, status: &Status) -> String {
    let interrupted = status.ended.as_ref().is_some_and(|end| end.outcome == Outcome::Interrupted);
    if row.job.is_some() && (status.state == State::Lost || interrupted) {
        return "not running here; `dogwatch fleet ls`".to_owned();
    }
    match (status.state, &status.ended) {
        (State::Ended, Some(end)) => one_line(&local::times(&end.reason), MAX_REASON),
        (State::Lost, _) => "supervisor died; `dogwatch resume`".to_owned(),
        _ => status.nodes.iter().max_by_key(|n| weight(&n.doing)).map_or_else(String::new, doing),
    }
}

fn weight(doing: &DoingStatus) -> u8 {
    match doing {
        DoingStatus::Nothing => 0,
        DoingStatus::Waiting { .. } => 1,
        DoingStatus::Preparing | DoingStatus::Checking => 2,
        DoingStatus::Working { needs_human: None, .. } => 3,
        DoingStatus::Working { needs_human: Some(_), .. } => 4,
    }
}

fn doing(node: &NodeStatus) -> String {
    match &node.doing {
        DoingStatus::Nothing => String::new(),
        DoingStatus::Preparing | DoingStatus::Checking => format!("iter {}", node.iteration),
        DoingStatus::Working { needs_human: Some(asks), .. } => {
            let left = asks.left_s.map_or_else(String::new, |left| format!("{} left: ", words::clock(left)));
            format!("{left}{}", one_line(&asks.what, MAX_REASON))
        }
        DoingStatus::Working { working_s, retrying, call, .. } => {
            let long = working_s.map_or_else(String::new, |d| format!(" for {}", words::clock(d)));
            let retrying = if retrying.is_some() { ", retrying" } else { "" };
            let call = call.as_ref().map_or_else(String::new, |call| format!(" {}", call.text(MAX_REASON)));
            format!("iter {}{long}{retrying}{call}", node.iteration)
        }
        DoingStatus::Waiting { why, left_s, .. } => match left_s {
            Some(left) => format!("{} left, {}", words::clock(*left), words::wait(*why)),
            None => words::wait(*why).to_owned(),
        },
    }
}

/// Returns the channel of the last activity and its age: `workspace 2m05s`.
fn seen(status: &Status, now: Moment) -> String {
    let Some(seen) = &status.last_evidence else { return "none yet".to_owned() };
    format!("{} {}", seen.channel, age(seen.at, now.wall))
}

/// Formats an age: `5s`, `2m05s`, `1h02m`, `3d`.
pub fn age(at: Wall, now: Wall) -> String {
    let s = u64::try_from(now.0.saturating_sub(at.0)).unwrap_or(0) / 1000;
    match s {
        0..60 => format!("{s}s"),
        60..3_600 => format!("{}m{:02}s", s / 60, s % 60),
        3_600..86_400 => format!("{}h{:02}m", s / 3600, s / 60 % 60),
        _ => format!("{}d", s / 86_400),
    }
}

/// Formats the cost. An unknown cost is `?`, never zero.
pub fn cost(status: &Status) -> String {
    let spent = &status.spent;
    match (spent.cost_usd > 0.0, spent.unknown_cost > 0) {
        (true, false) => format!("${:.2}", spent.cost_usd),
        (true, true) => format!("${:.2}+", spent.cost_usd),
        (false, true) => "?".to_owned(),
        (false, false) => "-".to_owned(),
    }
}

/// Lists the subscription windows with their ages: `; claude five_hour 24% (2m 00s ago), seven_day 13% (2m 00s ago)`.
pub fn windows(status: &Status) -> String {
    let mut text = String::new();
    let mut account = "";
    for window in &status.windows {
        let who = if account == window.account { String::new() } else { format!("{} ", window.account) };
        let used = window.used_percent.map_or_else(|| "unknown".to_owned(), |used| used.to_string());
        let age = window.age_s.map_or_else(String::new, |age| format!(" ({} ago)", words::clock(age)));
        let between = if account == window.account { ", " } else { "; " };
        text.push_str(&format!("{between}{who}{} {used}{age}", window.window));
        account = &window.account;
    }
    text
}

fn detail(now: Moment, row: &Row, look: Look, area: Rect, buffer: &mut Buffer) {
    let status = row.status(now);
    let rule = "─".repeat(usize::from(area.width));
    text(buffer, area, area.y, 0, &rule, look.tone(Tone::Quiet));
    let path = status.path.clone().unwrap_or_default();
    let trouble = status.troubles.last.as_ref().map_or_else(String::new, |t| {
        format!("; {}, latest: {}", words::count(status.troubles.count, "problem"), t.detail)
    });
    let used = status.spent;
    let lines = [
        format!(
            "run {}{}  {path}",
            row.run,
            row.origin.as_ref().map_or_else(String::new, |o| format!(" on {}", o.host))
        ),
        format!("{}: {}", state(&status, look).0, why(row, &status)),
        format!(
            "{}; {}",
            words::iterations_with(&status.counts, status.unfinished),
            words::span(status.supervised_s)
        ),
        format!("{}, {}{}{trouble}", words::tokens(&used), words::cost(&used), windows(&status)),
    ];
    for (y, line) in (area.y + 1..area.y + area.height).zip(lines) {
        let line = printable(&line).replace('\n', " ");
        cell(buffer, area, y, 1, area.width - 1, &line, Style::new());
    }
    let id = format!(" {} ", tail(&row.run));
    text(buffer, area, area.y, area.width.saturating_sub(id.len() as u16 + 2), &id, look.tone(Tone::Quiet));
}
