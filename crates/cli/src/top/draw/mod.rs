//! The screen, drawn from the model and nothing else.

mod overview;
mod run;

use super::model::Top;
use crate::screen::Tone;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

/// Below this nothing sensible fits.
pub const MIN_WIDTH: u16 = 60;
pub const MIN_HEIGHT: u16 = 18;

/// Styles, with colours or without.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub colour: bool,
}

impl Look {
    pub fn tone(self, tone: Tone) -> Style {
        match tone {
            Tone::Plain => Style::new(),
            Tone::Head => Style::new().add_modifier(Modifier::BOLD),
            Tone::Good => self.fg(Color::Green),
            Tone::Bad => self.fg(Color::Red),
            Tone::Quiet => Style::new().add_modifier(Modifier::DIM),
        }
    }

    pub fn fg(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// The line that is looked at stands out without colours too.
    fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

pub fn draw(top: &Top, look: Look, buffer: &mut Buffer) {
    let area = buffer.area;
    if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        return too_small(area, buffer);
    }
    let body = Rect { height: area.height - 1, ..area };
    match (&top.page, top.current()) {
        (Some(page), Some(row)) => run::draw(top, page, row, look, body, buffer),
        (Some(_), None) | (None, _) => overview::draw(top, look, body, buffer),
    }
    if top.help {
        help(look, body, buffer);
    }
    foot(top, look, Rect { y: area.y + area.height - 1, height: 1, ..area }, buffer);
}

fn too_small(area: Rect, buffer: &mut Buffer) {
    let lines = [
        format!("{}×{} is too small", area.width, area.height),
        format!("top needs {MIN_WIDTH}×{MIN_HEIGHT}"),
        "q quits".to_owned(),
    ];
    for (y, line) in (area.y..area.y + area.height).zip(lines) {
        text(buffer, area, y, 0, &line, Style::new());
    }
}

/// Writes a line at a column of an area, clipped to it; answers the next column.
pub fn text(buffer: &mut Buffer, area: Rect, y: u16, column: u16, line: &str, style: Style) -> u16 {
    if column >= area.width || y >= area.y + area.height {
        return column;
    }
    let room = usize::from(area.width - column);
    let (x, _) = buffer.set_stringn(area.x + column, y, line, room, style);
    x - area.x
}

/// The same, of at most so many columns; what does not fit ends in `…`.
fn cell(buffer: &mut Buffer, area: Rect, y: u16, column: u16, width: u16, line: &str, style: Style) {
    let width = width.min(area.width.saturating_sub(column));
    let field = Rect { x: area.x + column, width, ..area };
    text(buffer, field, y, 0, &shorten(line, usize::from(width)), style);
}

fn shorten(line: &str, columns: usize) -> String {
    if crate::screen::fit(line, columns) == line {
        return line.to_owned();
    }
    format!("{}…", crate::screen::fit(line, columns.saturating_sub(1)))
}

/// The last line: a question, what there is to say, or the keys.
fn foot(top: &Top, look: Look, area: Rect, buffer: &mut Buffer) {
    if let Some(run) = &top.asking {
        let question = format!(" stop run {} after its iteration? y/n ", super::model::tail(run));
        text(buffer, area, area.y, 0, &question, look.chosen());
        return;
    }
    if let Some((tone, said)) = &top.said {
        text(buffer, area, area.y, 0, &format!(" {said}"), look.tone(*tone));
        return;
    }
    let keys = match top.page {
        Some(_) => " ↑↓ event  v verdict  ←→ +- window  f follow  w wake  p pause  s stop  ? help  q",
        None => " ↑↓ choose  Enter open  w wake  p pause/resume  s stop  ? help  q quit",
    };
    text(buffer, area, area.y, 0, &shorten(keys, usize::from(area.width)), look.tone(Tone::Quiet));
}

const HELP: [&str; 20] = [
    "",
    "  everywhere",
    "    w        wake: end the run's wait now",
    "    p        pause, or go on",
    "    s        stop after the present iteration (asks)",
    "    r        look again, draw again",
    "    q, Esc   back; q quits from the overview, Ctrl-C from anywhere",
    "  overview",
    "    ↑ ↓ j k  choose a run; PgUp PgDn Home End",
    "    Enter    open it",
    "  run",
    "    ↑ ↓ j k  choose an event; End goes back to the latest",
    "    v V      the next verdict, the one before: with its evidence",
    "    ← → h l  move the window on the time axis",
    "    + - 0    zoom in, out, all",
    "    f        follow what happens, or stay",
    "  lanes",
    "    session  █ at work or done  ░ idle  ▒ limited  ▓ failed  · cut off",
    "    verdicts ✖ hard stop  ? needs a person  ! trouble  ▴ deferred  ↻ resumed",
    "    waits    i idle  l limit  e error  r recovery  b backoff  d delay  p pause",
];

fn help(look: Look, area: Rect, buffer: &mut Buffer) {
    for y in area.y..area.y + area.height {
        text(buffer, area, y, 0, &" ".repeat(usize::from(area.width)), Style::reset());
    }
    text(buffer, area, area.y, 1, "dogwatch top: keys", look.tone(Tone::Head));
    for (y, line) in (area.y + 1..area.y + area.height).zip(HELP) {
        text(buffer, area, y, 0, line, Style::new());
    }
}
