//! No effect happens before its intent is on disk.

use crate::machine::Disk;
use dogwatch_core::record::event::{Event, Recorded};

/// The exit code of a run whose end could not be recorded.
const NOT_RECORDED: u8 = 5;
/// Exit codes from here on name the signal that ended the run.
const BY_SIGNAL: u8 = 128;

/// Asserts that no event that an effect follows from is still to be synced.
pub(crate) fn is_durable<'a>(unsynced: impl Iterator<Item = &'a Recorded>, effect: &str) {
    for recorded in unsynced {
        assert!(!is_intent(&recorded.event), "{effect} came before its record was on disk: {recorded:?}");
    }
}

/// Asserts that a run whose exit code does not say otherwise has its end on disk.
pub(crate) fn end_is_recorded(exit_code: u8, events: &[Recorded], disk: &Disk) {
    let unrecorded = exit_code == NOT_RECORDED || exit_code >= BY_SIGNAL;
    let ended = matches!(events.last().map(|last| &last.event), None | Some(Event::RunEnded(_)));
    assert!(unrecorded || ended, "exit code {exit_code} without an end: {:?}", events.last());
    assert!(
        unrecorded || disk.unsynced().next().is_none(),
        "exit code {exit_code} before the end was on disk"
    );
}

/// Returns whether effects follow from this event, or whether it must never be lost. This list is on purpose not the
/// one of the core.
fn is_intent(event: &Event) -> bool {
    matches!(
        event,
        Event::RunStarted(_)
            | Event::RunResumed(_)
            | Event::IterationStarted { .. }
            | Event::PromptAssembled { .. }
            | Event::HardStop { .. }
            | Event::SessionSignalled { .. }
            | Event::SessionEnded(_)
            | Event::NodeAttempt(_)
            | Event::RecoveryPlanned(_)
            | Event::PartialKept { .. }
            | Event::WaitStarted { .. }
            | Event::WaitEnded { .. }
            | Event::Paused {}
            | Event::Unpaused {}
            | Event::MessageReceived { .. }
            | Event::RunSlept { .. }
            | Event::RunEnded(_)
    ) || event.ending().is_some()
}
