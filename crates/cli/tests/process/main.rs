//! dogwatch as its users meet it: a process with a command line, signals, files and an agent that does
//! its worst. Every test looks at what is left afterwards.

#[path = "../kit/mod.rs"]
mod kit;

mod bad_input;
mod checks;
mod client;
mod commands;
mod control;
mod crowd;
mod day;
mod doctor;
mod endings;
mod far;
mod flipping;
mod full_disk;
mod full_output;
mod graphs;
mod history;
mod idle;
mod keepers;
mod limits;
mod locks;
mod looping;
mod many;
mod notify;
mod output_in_tree;
mod record;
mod recovery;
mod resume;
mod safety;
mod screen;
mod serve;
mod side_door;
mod signals;
mod snapshots;
mod subagents;
mod suspension;
mod usage;
mod vanishing;
mod wake;
