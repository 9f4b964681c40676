//! The rules in virtual time. One program for all files, because each program is linked with everything that it uses.

#![allow(clippy::wildcard_enum_match_arm, reason = "tests look at a few variants")]

mod agent_channel;
mod ceilings;
mod checks;
mod coalescing;
mod days;
mod graphs;
mod health;
mod histories;
mod idling;
mod journal_faults;
mod keepers;
mod learned;
mod lease;
mod leash;
mod looping;
mod many;
mod merging;
mod notifications;
mod order_of_inputs;
mod progress;
mod properties;
mod recovery;
mod rescue;
mod resuming;
mod sleeping;
mod stopping;
mod traces;
mod windows;
