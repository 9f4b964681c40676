//! A run does not outlive its leash.

use crate::machine::Machine;
use dogwatch_core::time::dur::Dur;

/// How long a run may take to end after its leash: a keeper that has to be given up, a sweep, processes that survive KILL
/// for a while, and the last notifications.
const ENDS_IN: Dur = Dur::from_secs(90);

/// Asserts that a run that could always act is over soon after the end of its leash.
pub(crate) fn ends_the_run(machine: &Machine) {
    if let Some(until) =
        machine.leash_over().filter(|_| machine.truth.punctual && machine.exit_code.is_none())
    {
        let late = machine.clocks.now().boot.since(until);
        assert!(late <= ENDS_IN, "the run continues for {late} after the end of its leash");
    }
}
