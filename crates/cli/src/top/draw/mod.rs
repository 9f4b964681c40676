//! Draws the screen from the model alone.

mod overview;
mod run;

use super::model::Top;
use crate::screen::Tone;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

/// The narrowest supported screen, in columns.
pub const MIN_WIDTH: u16 = 60;
/// The lowest supported screen, in lines.
pub const MIN_HEIGHT: u16 = 18;

/// Styles, with or without colors.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub color: bool,
}

impl Look {
    /// Returns the style of a tone.
    pub fn tone(self, tone: Tone) -> Style {
        match tone {
            Tone::Plain => Style::new(),
            Tone::Head => Style::new().add_modifier(Modifier::BOLD),
            Tone::Good => self.fg(Color::Green),
            Tone::Bad => self.fg(Color::Red),
            Tone::Quiet => Style::new().add_modifier(Modifier::DIM),
        }
    }

    /// Returns a foreground style, without color if colors are off.
    pub fn fg(self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    /// Returns the style of the selected line, which is visible without colors as well.
    fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// Draws the screen: a run, the overview or the help.
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
        "press q to quit".to_owned(),
    ];
    for (y, line) in (area.y..area.y + area.height).zip(lines) {
        text(buffer, area, y, 0, &line, Style::new());
    }
}

/// Writes a line at a column of an area, clipped to the area. Returns the next column.
pub fn text(buffer: &mut Buffer, area: Rect, y: u16, column: u16, line: &str, style: Style) -> u16 {
    if column >= area.width || y >= area.y + area.height {
        return column;
    }
    let room = usize::from(area.width - column);
    let (x, _) = buffer.set_stringn(area.x + column, y, line, room, style);
    x - area.x
}

/// Writes a line of at most `width` columns. A longer line ends in `…`.
fn cell(buffer: &mut Buffer, area: Rect, y: u16, column: u16, width: u16, line: &str, style: Style) {
    let width = width.min(area.width.saturating_sub(column));
    let field = Rect { x: area.x + column, width, ..area };
    text(buffer, field, y, 0, &crate::screen::shorten(line, usize::from(width)), style);
}

/// Draws the last line: a question, a message or the keys.
fn foot(top: &Top, look: Look, area: Rect, buffer: &mut Buffer) {
    if let Some(run) = &top.asking {
        let question = format!(" stop run {} after the current iteration? y/n ", super::model::tail(run));
        text(buffer, area, area.y, 0, &question, look.chosen());
        return;
    }
    if let Some((tone, said)) = &top.said {
        text(buffer, area, area.y, 0, &format!(" {said}"), look.tone(*tone));
        return;
    }
    let keys = match top.page {
        Some(_) => " ↑↓ event  v verdict  o output  ←→ +- window  f follow  w wake  p pause  s stop  ? help",
        None => " ↑↓ select  Enter open  w wake  p pause/resume  s stop  ? help  q quit",
    };
    text(
        buffer,
        area,
        area.y,
        0,
        &crate::screen::shorten(keys, usize::from(area.width)),
        look.tone(Tone::Quiet),
    );
}

const HELP: [&str; 21] = [
    "",
    "  everywhere",
    "    w        wake: end the wait of the run now",
    "    p        pause or resume",
    "    s        stop after the current iteration (asks first)",
    "    r        refresh the list and the screen",
    "    q, Esc   back; q quits from the overview, Ctrl-C from anywhere",
    "  overview",
    "    ↑ ↓ j k  select a run; PgUp PgDn Home End",
    "    Enter    open the run",
    "  run",
    "    ↑ ↓ j k  select an event; End selects the latest",
    "    v V      next or previous verdict, with its evidence",
    "    o        show the agent's output, or the events again",
    "    ← → h l  move along the time axis",
    "    + - 0    zoom in, zoom out, show all",
    "    f        follow the latest events, or stop following",
    "  lanes",
    "    session  █ working or done  ░ idle  ▒ limited  ▓ failed  · interrupted",
    "    verdicts ✖ hard stop  ? needs human  ! trouble  ▴ deferred  ↻ resumed",
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
