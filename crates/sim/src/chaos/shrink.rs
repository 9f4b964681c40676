//! Makes a failing scenario smaller: drops faults, requests, quirks, actors, nodes and settings while it still fails.

use super::{Scenario, play};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

/// The most scenarios that are tried.
const MAX_TRIES: usize = 2_000;

/// Returns a small scenario that fails, and how it fails.
pub fn shrink(failing: Scenario) -> (Scenario, String) {
    // The hook prints every panic; only the last one is of interest.
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let shrunk = smallest(failing);
    set_hook(hook);
    shrunk
}

fn smallest(mut failing: Scenario) -> (Scenario, String) {
    let mut why = failure(&failing).unwrap_or_else(|| "it does not fail when it is played again".to_owned());
    let mut tries = 0;
    'smaller: while tries < MAX_TRIES {
        for less in failing.smaller() {
            tries += 1;
            if let Some(because) = failure(&less) {
                (failing, why) = (less, because);
                continue 'smaller;
            }
        }
        break;
    }
    (failing, why)
}

/// Returns how a scenario fails, if it does.
fn failure(scenario: &Scenario) -> Option<String> {
    let failed = catch_unwind(AssertUnwindSafe(|| play(scenario))).err()?;
    let text = failed.downcast_ref::<String>().cloned();
    Some(text.or(failed.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
}
