//! The state and logic of `top`, without a terminal, files or a clock: it takes inputs and returns acts. `draw` shows
//! the state, `shell` feeds the inputs.

use super::keys::Key;
use super::page::Page;
use crate::screen::{ShownLine, Tone};
use dogwatch_core::record::event::{Outcome, Recorded};
use dogwatch_core::record::ids::{Iteration, NodeName, RunId};
use dogwatch_core::record::status::{DoingStatus, State, Status};
use dogwatch_core::record::view::View;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::text::one_line;
use dogwatch_core::time::moment::{Moment, Wall};
use dogwatch_host::store::registry::Origin;
use dogwatch_server::{MachineEntry, MachineState};
use std::collections::BTreeSet;

/// The most runs to show: live runs first, then the newest.
pub const MAX_ROWS: usize = 200;
/// The most of an error to show, in bytes.
const MAX_SHOWN: usize = 200;

/// An event that changes the model.
#[derive(Debug)]
pub enum Input {
    Key(Key),
    /// Time passed.
    Tick,
    /// The known runs, newest first.
    Runs(Vec<Known>),
    /// The states of the other machines, and what they share.
    Machines(Vec<MachineEntry>, Option<String>),
    /// Whether a run has a supervisor now.
    Live(RunId, bool),
    /// New events of a run. `more` is set if the journal holds further events.
    Read {
        run: RunId,
        events: Vec<Recorded>,
        more: bool,
    },
    /// When the supervisor of a run was lost. No event has that time.
    Lost(RunId, Wall),
    /// The journal of a run was replaced.
    Replaced(RunId),
    /// More output of a session, if it is still the one that the page shows.
    Printed {
        session: Session,
        lines: Vec<ShownLine>,
    },
    Unreadable(RunId, String),
    Answered {
        run: RunId,
        order: Order,
        error: Option<String>,
    },
    Resized {
        width: u16,
        height: u16,
    },
}

/// A run in the list of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    pub run: RunId,
    pub live: bool,
    /// The job of a fleet that the run belongs to.
    pub job: Option<String>,
    /// The machine of the run, if it is another one.
    pub origin: Option<Origin>,
}

/// An action for the shell.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    Quit,
    /// Send a request to a run.
    Send {
        run: RunId,
        order: Order,
    },
    /// Read the run's journal from the start.
    Reread(RunId),
    /// Read and follow the output of a session, or of none.
    Output(Option<Session>),
    /// List the runs again, and check which of them are live.
    ListRuns,
    /// Draw the whole screen again.
    Redraw,
    /// Release the terminal until the process is continued.
    Suspend,
}

/// A session whose output is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    pub run: RunId,
    pub node: NodeName,
    pub iteration: Iteration,
    /// The reader that understands the output.
    pub reader: ReaderName,
    /// The directory in which the session works.
    pub work_dir: String,
}

/// A request to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Wake,
    Pause,
    Resume,
    Stop,
}

impl Order {
    /// Returns the name of the request in the API.
    pub fn path(self) -> &'static str {
        match self {
            Order::Wake => "wake",
            Order::Pause => "pause",
            Order::Resume => "resume",
            Order::Stop => "stop",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Order::Wake => "was woken",
            Order::Pause => "will pause after the current iteration",
            Order::Resume => "was resumed",
            Order::Stop => "will stop after the current iteration",
        }
    }
}

/// A run in the overview.
#[derive(Debug)]
pub struct Row {
    pub run: RunId,
    pub live: bool,
    /// The job of a fleet that the run belongs to.
    pub job: Option<String>,
    /// The machine of the run, if it is another one.
    pub origin: Option<Origin>,
    pub view: View,
    pub fault: Option<String>,
    /// The journal was read to the end at least once.
    pub read: bool,
}

impl Row {
    /// Returns the status of the run at this moment.
    pub fn status(&self, now: Moment) -> Status {
        Status::of(&self.view, self.live.then_some(self.moment(now)))
    }

    /// Returns a moment on the clocks of the run's machine.
    pub fn moment(&self, now: Moment) -> Moment {
        self.origin.as_ref().map_or(now, |origin| now.on(origin.skew))
    }

    /// Returns the name of the run.
    pub fn name(&self) -> &str {
        self.view.started.as_ref().map_or("?", |started| started.name())
    }

    /// Returns whether the row shows something that changes with time.
    fn counts(&self, now: Moment) -> bool {
        let doing = |n: &dogwatch_core::record::status::NodeStatus| match &n.doing {
            DoingStatus::Working { .. } => true,
            DoingStatus::Waiting { left_s, .. } => left_s.is_some(),
            DoingStatus::Nothing | DoingStatus::Preparing | DoingStatus::Checking => false,
        };
        self.live && self.status(now).nodes.iter().any(doing)
    }
}

/// The state of `top`.
#[derive(Debug, Default)]
pub struct Top {
    pub now: Moment,
    pub size: (u16, u16),
    pub rows: Vec<Row>,
    pub machines: Vec<MachineEntry>,
    /// What the other machines share, for example a queue.
    pub summary: Option<String>,
    selected: Option<RunId>,
    pub page: Option<Page>,
    /// The run whose stop waits for confirmation.
    pub asking: Option<RunId>,
    pub help: bool,
    /// The message in the last line of the screen.
    pub said: Option<(Tone, String)>,
    /// Runs that have not answered a request yet.
    asked: BTreeSet<RunId>,
    /// The number of known runs that are not shown.
    pub hidden: usize,
}

impl Top {
    /// Returns an empty model for a screen of this size.
    pub fn new(now: Moment, size: (u16, u16)) -> Top {
        Top { now, size, ..Top::default() }
    }

    /// Handles an input and returns the acts for the shell.
    pub fn apply(&mut self, now: Moment, input: Input) -> Vec<Act> {
        let before = self.shown_session();
        let mut acts = self.apply_input(now, input);
        let after = self.shown_session();
        if before != after {
            if let Some(page) = &mut self.page {
                page.output.clear();
            }
            acts.push(Act::Output(after));
        }
        acts
    }

    /// Returns the session whose output the page shows: the latest of the run.
    fn shown_session(&self) -> Option<Session> {
        let page = self.page.as_ref().filter(|page| page.shows_output && !page.reading)?;
        let row = self.current()?;
        let (node, iteration) = page.session.clone()?;
        let started = row.view.started.as_ref()?;
        let plan = started.settings.nodes.iter().find(|plan| plan.name == node);
        let reader = plan.map_or(ReaderName::Plain, |plan| plan.settings.reader);
        Some(Session { run: page.run.clone(), node, iteration, reader, work_dir: started.work_dir.clone() })
    }

    fn apply_input(&mut self, now: Moment, input: Input) -> Vec<Act> {
        self.now = now;
        match input {
            Input::Key(key) => return self.key(key),
            Input::Printed { session, lines } => {
                if let (true, Some(page)) = (self.shown_session() == Some(session), &mut self.page) {
                    page.output.add(lines);
                }
            }
            Input::Tick => {}
            Input::Runs(known) => self.runs(known),
            Input::Machines(machines, summary) => (self.machines, self.summary) = (machines, summary),
            Input::Live(run, live) => self.set_live(&run, live),
            Input::Read { run, events, more } => self.read(&run, &events, more),
            Input::Lost(run, at) => {
                if let Some(row) = self.row_mut(&run) {
                    row.view.note_loss(at);
                }
            }
            Input::Replaced(run) => self.restart_reading(&run),
            Input::Unreadable(run, why) => {
                if let Some(row) = self.row_mut(&run) {
                    row.fault = Some(one_line(&why, MAX_SHOWN));
                }
            }
            Input::Answered { run, order, error } => self.answered(&run, order, error),
            Input::Resized { width, height } => self.size = (width, height),
        }
        Vec::new()
    }

    /// Returns whether something on the screen changes with time. Only then does the shell tick.
    pub fn counts(&self) -> bool {
        match &self.page {
            Some(page) => self.rows.iter().any(|row| row.run == page.run && row.counts(self.now)),
            // The lines of the machines show for how long each is up or down.
            None => !self.machines.is_empty() || self.rows.iter().any(|row| row.counts(self.now)),
        }
    }

    /// Returns the index of the selected row.
    pub fn selected(&self) -> usize {
        let wanted = self.selected.as_ref();
        self.rows.iter().position(|row| Some(&row.run) == wanted).unwrap_or(0)
    }

    /// Returns the run that keys act on.
    pub fn current(&self) -> Option<&Row> {
        match &self.page {
            Some(page) => self.rows.iter().find(|row| row.run == page.run),
            None => self.rows.get(self.selected()),
        }
    }

    /// Returns the machine of a run, if it is another one and it is not connected.
    pub fn lost_machine(&self, row: &Row) -> Option<&MachineEntry> {
        let host = &row.origin.as_ref()?.host;
        self.machines.iter().find(|machine| machine.name == *host && machine.state == MachineState::Down)
    }

    fn row_mut(&mut self, run: &RunId) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.run == *run)
    }

    fn runs(&mut self, known: Vec<Known>) {
        let mut before: Vec<Row> = std::mem::take(&mut self.rows);
        let all = known.len();
        let (live, dead): (Vec<Known>, Vec<Known>) = known.into_iter().partition(|k| k.live);
        let shown = live.into_iter().chain(dead).take(MAX_ROWS);
        self.rows = shown
            .map(|k| match before.iter().position(|row| row.run == k.run) {
                Some(at) => Row { live: k.live, job: k.job, origin: k.origin, ..before.swap_remove(at) },
                None => Row {
                    run: k.run,
                    live: k.live,
                    job: k.job,
                    origin: k.origin,
                    view: View::default(),
                    fault: None,
                    read: false,
                },
            })
            .collect();
        self.hidden = all - self.rows.len();
        if self.page.as_ref().is_some_and(|page| self.rows.iter().all(|row| row.run != page.run)) {
            self.page = None;
            self.said = Some((Tone::Bad, "the record of this run was removed".to_owned()));
        }
    }

    fn set_live(&mut self, run: &RunId, live: bool) {
        if let Some(row) = self.row_mut(run) {
            row.live = live;
        }
        self.sort();
    }

    /// Sorts live runs first, then by age. The selection follows the run, not the line.
    fn sort(&mut self) {
        self.selected = self.rows.get(self.selected()).map(|row| row.run.clone());
        self.rows.sort_by(|a, b| b.live.cmp(&a.live).then_with(|| b.run.cmp(&a.run)));
    }

    fn read(&mut self, run: &RunId, events: &[Recorded], more: bool) {
        let Some(row) = self.rows.iter_mut().find(|row| row.run == *run) else { return };
        row.fault = None;
        row.read |= !more;
        let mut page = self.page.as_mut().filter(|page| page.run == *run);
        for event in events {
            row.view.apply(event);
            if let Some(page) = &mut page {
                page.apply(event);
            }
        }
        if let Some(page) = page {
            page.reading = more;
        }
    }

    fn restart_reading(&mut self, run: &RunId) {
        if let Some(row) = self.row_mut(run) {
            row.view = View::default();
            row.read = false;
        }
        if let Some(page) = self.page.as_mut().filter(|page| page.run == *run) {
            page.restart();
        }
    }

    fn answered(&mut self, run: &RunId, order: Order, error: Option<String>) {
        self.asked.remove(run);
        self.said = Some(match error {
            None => (Tone::Good, format!("run {} {}", tail(run), order.done())),
            Some(why) => (Tone::Bad, one_line(&why, MAX_SHOWN)),
        });
    }

    fn key(&mut self, key: Key) -> Vec<Act> {
        if let Some(run) = self.asking.take() {
            return self.answer(run, key);
        }
        self.said = None;
        match key {
            Key::Interrupt => vec![Act::Quit],
            Key::Suspend => vec![Act::Suspend],
            Key::Redraw | Key::Char('r') => vec![Act::ListRuns, Act::Redraw],
            _ if std::mem::take(&mut self.help) => Vec::new(),
            Key::Char('?') => {
                self.help = true;
                Vec::new()
            }
            Key::Char('w') => self.order(Order::Wake),
            Key::Char('p') => self.pause(),
            Key::Char('s') => self.ask_to_stop(),
            Key::Escape | Key::Char('q') if self.page.take().is_some() => Vec::new(),
            Key::Escape => Vec::new(),
            Key::Char('q') => vec![Act::Quit],
            key @ (Key::Up
            | Key::Down
            | Key::Left
            | Key::Right
            | Key::PageUp
            | Key::PageDown
            | Key::Home
            | Key::End
            | Key::Enter
            | Key::Char(_)) => self.move_by(key),
        }
    }

    /// Handles the answer to a confirmation: `y` confirms, any other key cancels.
    fn answer(&mut self, run: RunId, key: Key) -> Vec<Act> {
        if let Key::Interrupt = key {
            return vec![Act::Quit];
        }
        if let Key::Char('y' | 'Y') = key {
            return self.send(run, Order::Stop);
        }
        self.said = Some((Tone::Quiet, "not stopped".to_owned()));
        Vec::new()
    }

    fn move_by(&mut self, key: Key) -> Vec<Act> {
        if let Some(page) = &mut self.page {
            let row = self.rows.iter().find(|row| row.run == page.run);
            let now = row.map_or(self.now, |row| row.moment(self.now));
            page.key(key, now.wall.0);
            return Vec::new();
        }
        let (here, last) = (self.selected(), self.rows.len().saturating_sub(1));
        let to = match key {
            Key::Up | Key::Char('k') => here.saturating_sub(1),
            Key::Down | Key::Char('j') => (here + 1).min(last),
            Key::PageUp => here.saturating_sub(10),
            Key::PageDown => (here + 10).min(last),
            Key::Home | Key::Char('g') => 0,
            Key::End | Key::Char('G') => last,
            Key::Enter | Key::Right | Key::Char('l') => return self.open(),
            Key::Left | Key::Escape | Key::Char(_) | Key::Interrupt | Key::Redraw | Key::Suspend => here,
        };
        self.selected = self.rows.get(to).map(|row| row.run.clone());
        Vec::new()
    }

    fn open(&mut self) -> Vec<Act> {
        let Some(row) = self.current() else { return Vec::new() };
        let run = row.run.clone();
        self.selected = Some(run.clone());
        self.page = Some(Page::new(run.clone()));
        // The page needs every event, so the journal is read again for both the page and the row.
        self.restart_reading(&run);
        vec![Act::Reread(run)]
    }

    fn order(&mut self, order: Order) -> Vec<Act> {
        match self.current() {
            Some(row) if row.live => {
                let run = row.run.clone();
                self.send(run, order)
            }
            Some(row) => {
                let status = row.status(self.now);
                let outcome = status.ended.as_ref().map(|end| end.outcome);
                let hint = match (status.state, outcome) {
                    _ if row.job.is_some() => "it is a job of a fleet; `dogwatch fleet ls` shows it",
                    (State::Ended, Some(Outcome::Idle)) => "it ended idle; continue it with `dogwatch wake`",
                    (State::Ended, Some(Outcome::Stopped | Outcome::Interrupted)) => {
                        "it was stopped; continue it with `dogwatch resume`"
                    }
                    (State::Ended, _) => "it has ended",
                    _ => "its supervisor died; continue it with `dogwatch resume`",
                };
                self.said = Some((Tone::Bad, format!("run {}: {hint}", tail(&row.run))));
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    fn pause(&mut self) -> Vec<Act> {
        let paused = self.current().is_some_and(|row| row.view.paused || row.view.stopping);
        self.order(if paused { Order::Resume } else { Order::Pause })
    }

    fn ask_to_stop(&mut self) -> Vec<Act> {
        match self.current() {
            Some(row) if row.live => {
                self.asking = Some(row.run.clone());
                Vec::new()
            }
            _ => self.order(Order::Stop),
        }
    }

    /// Sends a request, unless the run has not answered the previous one.
    fn send(&mut self, run: RunId, order: Order) -> Vec<Act> {
        if !self.asked.insert(run.clone()) {
            self.said = Some((Tone::Quiet, format!("run {} has not answered yet", tail(&run))));
            return Vec::new();
        }
        self.said = Some((Tone::Quiet, format!("asking run {} …", tail(&run))));
        vec![Act::Send { run, order }]
    }
}

/// Returns the last part of a run id, which is enough to identify the run.
pub fn tail(run: &RunId) -> &str {
    run.as_str().rsplit('-').next().unwrap_or(run.as_str())
}
