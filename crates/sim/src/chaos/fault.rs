//! Faults of the machine, and what the operator does.

use crate::dice::Dice;
use crate::machine::{DiskFaults, EPOCH, Happening, Machine};
use crate::world::Crash;
use dogwatch_core::drive::shell::Signaled;
use dogwatch_core::record::event::WaitEndedBy;
use dogwatch_core::run::caller::Source;
use dogwatch_core::run::input::{EndSignal, Input};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;

/// A fault of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Writes fail this many times, each after half of the bytes.
    WriteFails(u32),
    /// Syncs fail this many times, and lose what was not synced.
    SyncFails(u32),
    /// A write fails, and so does cutting half a line off.
    TruncateFails(u32),
    /// The state of the journal cannot be read this many times.
    Blind(u32),
    /// Prompts cannot be written this many times.
    PromptFails(u32),
    /// The disk is full for this long.
    DiskFull(Dur),
    /// Another program removes the journal.
    JournalRemoved,
    /// Another program cuts the journal.
    JournalCut,
    /// The machine is suspended.
    Suspend(Dur),
    /// dogwatch is stopped and continued.
    Stop(Dur),
    /// dogwatch is frozen without a signal.
    Freeze(Dur),
    /// dogwatch gets no CPU time.
    Starve(Dur),
    /// The wall clock is set, in seconds.
    ClockSet(i64),
    /// An idle keeper dies.
    IdleKeeperDies,
    /// Context entries cannot be stored.
    ContextFails,
    /// Notifications fail.
    NotificationsFail,
    /// Notifications never complete.
    NotificationsHang,
    /// dogwatch is killed at its n-th act from then, and the run is resumed later.
    Kill {
        /// The number of the act.
        act: u64,
        /// How long it takes until the run is resumed.
        down: Dur,
    },
    /// The machine loses power at the n-th act of dogwatch from then, with these unsynced bytes at most.
    PowerLoss {
        /// The number of the act.
        act: u64,
        /// How long it takes until the run is resumed.
        down: Dur,
        /// How many unsynced bytes are lost at most.
        lost_bytes: usize,
    },
}

impl Fault {
    /// The number of kinds, which `draw` covers.
    const KINDS: u64 = 24;

    /// The names of all kinds.
    pub const NAMES: [&str; 19] = [
        "WriteFails",
        "SyncFails",
        "TruncateFails",
        "Blind",
        "PromptFails",
        "DiskFull",
        "JournalRemoved",
        "JournalCut",
        "Suspend",
        "Stop",
        "Freeze",
        "Starve",
        "ClockSet",
        "IdleKeeperDies",
        "ContextFails",
        "NotificationsFail",
        "NotificationsHang",
        "Kill",
        "PowerLoss",
    ];

    /// Draws a fault.
    pub fn draw(dice: &mut Dice) -> Fault {
        let few = |dice: &mut Dice| 1 + u32::try_from(dice.below(4)).expect("small");
        match dice.below(Fault::KINDS) {
            0 => Fault::WriteFails(few(dice)),
            1 => Fault::SyncFails(few(dice)),
            2 => Fault::TruncateFails(few(dice)),
            3 => Fault::Blind(few(dice) * 5),
            4 => Fault::PromptFails(few(dice)),
            5 => Fault::DiskFull(dice.secs(300)),
            6 if dice.one_in(4) => Fault::JournalRemoved,
            6 if dice.one_in(4) => Fault::JournalCut,
            6 | 7 => Fault::Suspend(dice.secs(20_000)),
            8 => Fault::Stop(dice.secs(900)),
            9 => Fault::Freeze(dice.secs(300)),
            10 => Fault::Starve(dice.secs(60)),
            11 => Fault::ClockSet(i64::try_from(dice.below(40_000)).expect("small") - 20_000),
            12 => Fault::IdleKeeperDies,
            13 => Fault::ContextFails,
            14 => Fault::NotificationsFail,
            15 => Fault::NotificationsHang,
            16..=20 => Fault::Kill { act: 1 + dice.below(60), down: dice.secs(4_000) },
            _ => Fault::PowerLoss {
                act: 1 + dice.below(60),
                down: dice.secs(9_000),
                lost_bytes: usize::try_from(dice.below(3_000)).expect("small"),
            },
        }
    }

    /// Returns the name of the kind.
    pub fn name(&self) -> String {
        let shown = format!("{self:?}");
        shown.split(['(', ' ']).next().unwrap_or("").to_owned()
    }

    /// Plans the fault.
    pub(super) fn plan(self, at: Dur, machine: &mut Machine) {
        let disk = |faults| Happening::DiskFails(faults);
        let none = DiskFaults::default();
        match self {
            Fault::WriteFails(writes) => machine.plan(at, disk(DiskFaults { writes, ..none })),
            Fault::SyncFails(syncs) => machine.plan(at, disk(DiskFaults { syncs, ..none })),
            Fault::TruncateFails(n) => {
                machine.plan(at, disk(DiskFaults { writes: n, truncates: n, ..none }));
            }
            Fault::Blind(blind) => machine.plan(at, disk(DiskFaults { blind, ..none })),
            Fault::PromptFails(prompts) => machine.plan(at, disk(DiskFaults { prompts, ..none })),
            Fault::DiskFull(lasts) => {
                machine.plan(at, disk(DiskFaults { full: true, ..none }));
                machine.plan(at.saturating_add(lasts), disk(none));
            }
            Fault::JournalRemoved => machine.plan(at, Happening::JournalTouched { removed: true }),
            Fault::JournalCut => machine.plan(at, Happening::JournalTouched { removed: false }),
            Fault::Suspend(lasts) => machine.plan(at, Happening::Suspends(lasts)),
            Fault::Stop(lasts) => machine.plan(at, Happening::Stops(lasts, true)),
            Fault::Freeze(lasts) => machine.plan(at, Happening::Stops(lasts, false)),
            Fault::Starve(lasts) => machine.plan(at, Happening::Starves(lasts)),
            Fault::ClockSet(secs) => machine.plan(at, Happening::ClockSet(secs * 1_000)),
            Fault::IdleKeeperDies => machine.plan(at, Happening::IdleKeeperDies),
            Fault::ContextFails => machine.context_fails = true,
            Fault::NotificationsFail => machine.notification_fails = true,
            Fault::NotificationsHang => machine.notification_takes = None,
            Fault::Kill { act, .. } | Fault::PowerLoss { act, .. } => {
                machine.plan(at, Happening::Killed(act));
            }
        }
    }

    /// Returns how the run is interrupted, if it is.
    pub(super) fn crash(&self, wake: bool) -> Option<Crash> {
        if let Fault::PowerLoss { down, lost_bytes, .. } = *self {
            return Some(Crash { lost_bytes, down, reboots: true, wake, noticed: false });
        }
        let Fault::Kill { down, .. } = *self else { return None };
        Some(Crash { lost_bytes: 0, down, reboots: false, wake, noticed: true })
    }
}

/// Something that the operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Wakes the run.
    Wake(WaitEndedBy),
    /// Sends SIGUSR1.
    WakeSignal,
    /// Pauses the run.
    Pause,
    /// Lifts the pause.
    Unpause,
    /// Sends a message to the agent.
    Message,
    /// Asks to stop after the iteration.
    Stop,
    /// Asks to stop and accepts checks that fail.
    Accept,
    /// Presses Ctrl-C.
    Interrupt,
    /// Sends TERM.
    Terminate,
    /// Closes the terminal.
    HangUp,
    /// Continues dogwatch, which was not stopped.
    Continue,
    /// Looks at the run.
    Look,
    /// Asks that no agent be called until this many minutes after the beginning.
    Limit(i64),
}

impl Request {
    /// Draws a request. Those that end a run are rare, because most failures take a while to build up.
    pub fn draw(dice: &mut Dice) -> Request {
        match dice.below(40) {
            0 | 1 => Request::Interrupt,
            2 => Request::Stop,
            3 => Request::Accept,
            4 if dice.one_in(2) => Request::Terminate,
            4 => Request::HangUp,
            5..=8 => Request::Pause,
            9..=16 => Request::Unpause,
            17..=19 => Request::Message,
            20 => Request::Continue,
            21..=24 => Request::Look,
            25..=27 => Request::WakeSignal,
            _ => Request::Wake(*dice.of(&[WaitEndedBy::Api, WaitEndedBy::Path, WaitEndedBy::Operator])),
        }
    }

    pub(super) fn plan(self, at: Dur, machine: &mut Machine) {
        let message = || Input::MessageReceived { text: "be brief".to_owned(), from: Source::Operator };
        let posted = match self {
            Request::Wake(by) => Input::WakeAsked(by),
            Request::Pause => Input::PauseAsked,
            Request::Unpause => Input::UnpauseAsked,
            Request::Message => message(),
            Request::Stop => Input::StopAsked,
            Request::Accept => Input::StopAccepted,
            Request::WakeSignal => return machine.plan(at, Happening::Signaled(Signaled::Wake)),
            Request::Interrupt => return machine.plan(at, Happening::Signaled(Signaled::Interrupt)),
            Request::Terminate => {
                return machine.plan(at, Happening::Signaled(Signaled::End(EndSignal::Terminate)));
            }
            Request::HangUp => {
                return machine.plan(at, Happening::Signaled(Signaled::End(EndSignal::HangUp)));
            }
            Request::Continue => return machine.plan(at, Happening::Signaled(Signaled::Continue)),
            Request::Look => return machine.plan(at, Happening::ViewAsked),
            Request::Limit(minutes) => {
                Input::LimitAsked { until: Wall(EPOCH + minutes * 60_000), account: None }
            }
        };
        machine.plan(at, Happening::Posted(posted));
    }
}
