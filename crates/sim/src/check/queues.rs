//! Every queue stays within its limit.

use crate::machine::Machine;
use dogwatch_core::drive::journal::MAX_PENDING;
use dogwatch_core::drive::{Driver, MAX_EARLY};
use dogwatch_core::record::notification::MAX_PENDING_NOTIFICATIONS;
use dogwatch_core::run::MAX_PENDING_MESSAGES;

/// Inputs of one moment: more than that wait for the core only if something repeats itself.
const MAX_INPUTS: usize = 10_000;

/// Asserts the limits of what waits in the driver and in the view.
pub(crate) fn hold(driver: &Driver<Machine>) {
    let (unwritten, early, inputs) = (driver.journal().pending(), driver.most_early(), driver.inputs());
    assert!(unwritten <= MAX_PENDING, "{unwritten} bytes wait to be written");
    // Only observations are dropped; a few other inputs may come on top.
    assert!(early <= MAX_EARLY + 1_000, "{early} inputs wait for the start of their job");
    assert!(inputs <= MAX_INPUTS, "{inputs} inputs wait for the core");
    let view = driver.run().view();
    assert!(view.pending_messages.len() <= MAX_PENDING_MESSAGES);
    assert!(view.notifications.pending.len() <= MAX_PENDING_NOTIFICATIONS);
}
