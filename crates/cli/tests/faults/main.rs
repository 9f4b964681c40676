//! The fault lab: the real binary is killed, stopped, refused and confused at every point, and must come to the right
//! end. docs/internals/faults.md lists each fault, the expected behavior and its test.
//!
//! The quick suite takes a sample of the points. `DOGWATCH_FULL=1` takes all of them.

#[path = "../kit/mod.rs"]
mod kit;

mod bomb;
mod inject;
mod pids;
mod starts;
mod state;
mod stopped;

/// Returns whether to try every point instead of a sample.
fn full() -> bool {
    std::env::var_os("DOGWATCH_FULL").is_some()
}
