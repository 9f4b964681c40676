//! `dogwatch top`: a terminal UI for all runs on this machine and, with `--host`, on others.
//!
//! [`model`] holds the state and makes the decisions, [`draw`] draws the state, and [`shell`] feeds the model with keys,
//! the list of runs and their journals, and sends requests to runs through their sockets. The screen shows the
//! folded journals, which are read as they grow. Nothing polls: the process sleeps until a key, a journal, the list of
//! runs or the end of a supervisor wakes it. It ticks only while something on the screen counts up or down.

mod draw;
mod keys;
mod lanes;
mod log;
mod model;
mod page;
mod shell;
mod tail;
mod terminal;
pub mod watch;

#[cfg(test)]
mod tests;

pub use shell::run;
