//! The page of one run: its lanes, its events, the selected event and the visible part of the time axis.

use super::keys::Key;
use super::lanes::Lanes;
use super::log::{Entry, Log};
use crate::screen::ShownLine;
use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::record::ids::{Iteration, NodeName, RunId};
use std::collections::VecDeque;

/// The shortest window, in milliseconds.
const MIN_SPAN: i64 = 10_000;
/// The longest window, in milliseconds.
const MAX_SPAN: i64 = 100 * 24 * 3_600_000;

/// The state of the page of one run.
#[derive(Clone, Debug)]
pub struct Page {
    pub run: RunId,
    pub lanes: Lanes,
    pub log: Log,
    /// The sequence number of the selected event. `None` follows the latest event.
    selected: Option<u64>,
    pub window: Window,
    /// The journal is still being read.
    pub reading: bool,
    /// The latest session: its node and its iteration.
    pub session: Option<(NodeName, Iteration)>,
    /// The page shows the agent's output instead of the events.
    pub shows_output: bool,
    pub output: Output,
}

/// The most lines of output to keep.
pub const MAX_OUTPUT: usize = 2_000;

/// The agent's output, and how far it is scrolled back.
#[derive(Clone, Debug, Default)]
pub struct Output {
    lines: VecDeque<ShownLine>,
    /// The number of lines below the visible ones.
    pub back: usize,
}

impl Output {
    /// Adds lines. The oldest beyond the limit are dropped. A view that is scrolled back stays in place.
    pub fn add(&mut self, lines: Vec<ShownLine>) {
        if self.back > 0 {
            self.back += lines.len();
        }
        self.lines.extend(lines);
        self.lines.drain(..self.lines.len().saturating_sub(MAX_OUTPUT));
        self.back = self.back.min(self.lines.len().saturating_sub(1));
    }

    /// Removes all lines.
    pub fn clear(&mut self) {
        *self = Output::default();
    }

    /// Returns the last lines that fit, or those before them if it is scrolled back.
    pub fn visible(&self, room: usize) -> impl Iterator<Item = &ShownLine> {
        let end = self.lines.len() - self.back.min(self.lines.len().saturating_sub(room));
        self.lines.range(end.saturating_sub(room)..end)
    }

    fn scroll(&mut self, by: isize) {
        self.back = self.back.saturating_add_signed(-by).min(self.lines.len().saturating_sub(1));
    }
}

/// The visible part of the time axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The length in milliseconds. `None` shows the whole run.
    pub span: Option<i64>,
    /// The right edge. `None` follows the current time.
    pub end: Option<i64>,
}

impl Window {
    const ALL: Window = Window { span: None, end: None };

    /// Returns whether the window follows the current time.
    pub fn follows(&self) -> bool {
        self.end.is_none()
    }

    /// Returns the start and end of the window for a run that started at `first`.
    pub fn range(&self, first: i64, now: i64) -> (i64, i64) {
        let end = self.end.unwrap_or(now);
        let span = self.span.unwrap_or_else(|| end - first).clamp(MIN_SPAN, MAX_SPAN);
        match self.span {
            // A young run fills the window from the left.
            None => (first.min(end), first.min(end) + span),
            Some(_) => (end - span, end),
        }
    }
}

impl Page {
    /// Returns an empty page of a run.
    pub fn new(run: RunId) -> Page {
        Page {
            run,
            lanes: Lanes::default(),
            log: Log::default(),
            selected: None,
            window: Window::ALL,
            reading: true,
            session: None,
            shows_output: false,
            output: Output::default(),
        }
    }

    /// Adds a recorded event.
    pub fn apply(&mut self, recorded: &Recorded) {
        self.lanes.apply(recorded);
        self.log.apply(recorded);
        if let Event::SessionStarted { node, iteration, .. } = &recorded.event {
            self.session = Some((node.clone(), *iteration));
        }
    }

    /// Clears the page before its journal is read again. The selection stays.
    pub fn restart(&mut self) {
        self.lanes = Lanes::default();
        self.log = Log::default();
        self.reading = true;
    }

    /// Returns the position of the selected event in the list.
    pub fn position(&self) -> usize {
        let last = self.log.entries.len().saturating_sub(1);
        self.selected.map_or(last, |seq| self.log.position(seq))
    }

    /// Returns the selected entry.
    pub fn entry(&self) -> Option<&Entry> {
        self.log.entries.get(self.position())
    }

    /// Returns whether the page follows the latest event.
    pub fn follows(&self) -> bool {
        self.selected.is_none() && self.window.follows()
    }

    /// Handles a key. Returns whether the page uses that key.
    pub fn key(&mut self, key: Key, now: i64) -> bool {
        if self.shows_output {
            let by = match key {
                Key::Up | Key::Char('k') => -1,
                Key::Down | Key::Char('j') => 1,
                Key::PageUp => -10,
                Key::PageDown => 10,
                Key::Home | Key::Char('g') => -(MAX_OUTPUT as isize),
                Key::End | Key::Char('G' | 'f') => MAX_OUTPUT as isize,
                Key::Left
                | Key::Right
                | Key::Enter
                | Key::Escape
                | Key::Char(_)
                | Key::Interrupt
                | Key::Redraw
                | Key::Suspend => 0,
            };
            self.output.scroll(by);
            if by != 0 {
                return true;
            }
        }
        match key {
            Key::Char('o') => self.shows_output = !self.shows_output,
            Key::Up | Key::Char('k') => self.step(-1),
            Key::Down | Key::Char('j') => self.step(1),
            Key::PageUp => self.step(-10),
            Key::PageDown => self.step(10),
            Key::Home | Key::Char('g') => self.select(0),
            Key::End | Key::Char('G') => self.selected = None,
            Key::Char('v') => self.seek_verdict(1),
            Key::Char('V') => self.seek_verdict(-1),
            Key::Left | Key::Char('h') => self.pan(-1, now),
            Key::Right | Key::Char('l') => self.pan(1, now),
            Key::Char('+' | '=') => self.zoom(false, now),
            Key::Char('-') => self.zoom(true, now),
            Key::Char('0') => self.window = Window::ALL,
            Key::Char('f') => self.follow(now),
            Key::Enter | Key::Escape | Key::Char(_) | Key::Interrupt | Key::Redraw | Key::Suspend => {
                return false;
            }
        }
        true
    }

    fn step(&mut self, by: isize) {
        let last = self.log.entries.len().saturating_sub(1);
        let to = self.position().saturating_add_signed(by).min(last);
        // At the end of the list, follow the latest event.
        self.selected = None;
        if to < last {
            self.select(to);
        }
    }

    fn select(&mut self, position: usize) {
        self.selected = self.log.entries.get(position).map(|e| e.seq);
    }

    /// Selects the next or the previous verdict in the list.
    fn seek_verdict(&mut self, by: isize) {
        let here = self.position();
        let verdicts = self.log.entries.iter().enumerate().filter(|(_, e)| e.verdict.is_some());
        let mut places = verdicts.map(|(place, _)| place);
        let to = if by > 0 { places.find(|p| *p > here) } else { places.rfind(|p| *p < here) };
        if let Some(to) = to {
            self.select(to);
        }
    }

    fn range(&self, now: i64) -> (i64, i64) {
        self.window.range(self.lanes.first.unwrap_or(now), now.max(self.lanes.last))
    }

    fn pan(&mut self, by: i64, now: i64) {
        let (from, to) = self.range(now);
        let span = to - from;
        let (first, last) = (self.lanes.first.unwrap_or(now), now.max(self.lanes.last));
        let end = (to + by * span / 4).clamp(first + MIN_SPAN, last.max(first + MIN_SPAN));
        self.window = Window { span: Some(span), end: (end < last).then_some(end) };
    }

    fn zoom(&mut self, out: bool, now: i64) {
        let (from, to) = self.range(now);
        let span = if out { (to - from) * 2 } else { (to - from) / 2 }.clamp(MIN_SPAN, MAX_SPAN);
        let whole = now.max(self.lanes.last) - self.lanes.first.unwrap_or(now);
        if out && span >= whole {
            self.window = Window::ALL;
            return;
        }
        // Center on the selected event if it is in the window.
        let center = self.entry().filter(|_| self.selected.is_some()).map(|e| e.at.0);
        let end = match center.filter(|at| (from..=to).contains(at)) {
            Some(at) => Some(at + span / 2),
            None => self.window.end,
        };
        let end = end.filter(|end| *end < now.max(self.lanes.last));
        self.window = Window { span: Some(span), end };
    }

    /// Toggles following the latest events.
    fn follow(&mut self, now: i64) {
        if self.follows() {
            let (_, to) = self.range(now);
            let span = self.window.span.or(Some(to - self.lanes.first.unwrap_or(to)));
            self.window = Window { span, end: Some(to) };
            self.select(self.position());
        } else {
            self.window.end = None;
            self.selected = None;
        }
    }
}
