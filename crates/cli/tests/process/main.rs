//! dogwatch as its users run it: a process with a command line, signals, files and hostile agents. Every test checks
//! that no process is left.

#![allow(clippy::wildcard_enum_match_arm, reason = "tests look at a few variants")]

#[path = "../kit/mod.rs"]
mod kit;

mod agent_channel;
mod bad_input;
mod canaries;
mod checks;
mod client;
mod commands;
mod control;
mod costs;
mod crowd;
mod day;
mod doctor;
mod endings;
mod far;
mod first_contact;
mod flipping;
mod full_disk;
mod full_output;
mod graphs;
mod history;
mod idle;
mod interactive;
mod keepers;
mod learned;
mod leash;
mod limits;
mod locks;
mod looping;
mod many;
mod merging;
mod moved;
mod moving_in;
mod notify;
mod other_hosts;
mod output_in_tree;
mod packaged;
mod planted;
mod prices;
mod record;
mod recovery;
mod resume;
mod safety;
mod sandbox;
mod screen;
mod serve;
mod shells;
mod shown;
mod signals;
mod snapshots;
mod steering;
mod subagents;
mod surroundings;
mod suspension;
mod tampering;
mod tuning;
mod usage;
mod vanishing;
mod wake;
mod windows;
