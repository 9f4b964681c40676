//! Reads what agent CLIs print, and knows how to start them. One file per agent.
//!
//! The host drains an agent's pipes and hands the bytes to a `Splitter`; each line goes to the agent's
//! `Reader`, which answers with signs. `launch` turns a command line from a loop file into the one that is
//! run, `marker` finds the state an agent declared in its final text. Nothing in here does I/O, looks at a
//! clock or the environment, keeps more than a bounded piece of the output, or fails on any input.

mod claude;
mod codex;
mod drift;
mod gemini;
mod json;
mod novelty;
mod opencode;
mod plain;
mod resets;
mod tail;

pub mod inject;
pub mod launch;
pub mod limits;
pub mod lines;
pub mod marker;
pub mod reader;
pub mod subagent_log;
pub mod tools;
pub mod transcript;

pub use inject::{Door, Injection, inject};
pub use launch::{EnvChange, Launch, detect, launch, resuming};
pub use lines::{Line, MAX_LINE, Splitter};
pub use marker::{Marker, last_marker};
pub use reader::Reader;
pub use subagent_log::{Entry, MAX_SUBAGENT_LOG_LINE, Reading, SubagentLog};
pub use transcript::{Format, Record, Transcript};
