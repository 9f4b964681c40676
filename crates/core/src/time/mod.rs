//! Time: durations, moments on three clocks, and the timer table.

pub mod absence;
pub mod dur;
pub mod moment;
pub mod timer;
pub mod watched;
