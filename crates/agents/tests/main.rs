//! Tests on recorded output of real agents. One program for all files, because each program is linked with everything that it uses.

#![allow(clippy::wildcard_enum_match_arm, reason = "tests look at a few variants")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)] // reads the recordings

mod heartbeats;
mod markers;
mod readable;
mod recordings;
mod surprises;
mod watching;
