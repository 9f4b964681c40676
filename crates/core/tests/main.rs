//! The watchdog and learned limits on recorded turns, the sentences for events and recorded plans. One program for all files, because each program is linked with everything that it uses.

mod learning;
mod needs;
mod parallel;
mod plans;
mod scene;
mod watchdog;
mod words;
