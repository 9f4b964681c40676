//! `dogwatch top`: all runs of the machine, and each of them, in a terminal.
//!
//! [`model`] is all it knows and decides, [`draw`] shows that, [`shell`] feeds it from the keys, the list of runs and
//! their journals, and gives orders to runs through their sockets. What is shown is the fold of the journals,
//! read as they grow. Nothing is asked again and again: it sleeps until a key, a journal, the list of runs or the end
//! of a run's dogwatch wakes it, and ticks only while something on the screen counts.

mod draw;
mod keys;
mod lanes;
mod log;
mod model;
mod page;
mod shell;
mod tail;
mod terminal;
mod watch;

#[cfg(test)]
mod tests;

pub use shell::run;
