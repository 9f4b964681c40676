//! dogwatch as its users meet it: a process with a command line, signals, files and an agent that does
//! its worst. Every test looks at what is left afterwards.

#[path = "../kit/mod.rs"]
mod kit;

mod bad_input;
mod commands;
mod doctor;
mod endings;
mod full_disk;
mod looping;
mod record;
mod screen;
mod signals;
mod usage;
