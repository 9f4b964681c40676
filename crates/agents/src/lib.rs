//! Reads the output of agent CLIs and builds their command lines. One file per agent.
//!
//! The host drains an agent's pipes and passes the bytes to a `Listener`. Its `Splitter` cuts them into lines, the
//! agent's `Reader` turns a line into signs, and the core's `Feed` turns signs into facts. `launch` builds the command line from the words of a loop file, and `marker` finds the state that an
//! agent declares in its final text. Nothing here does I/O, reads a clock or the environment, keeps an unbounded part
//! of the output, or fails on any input.

mod claude;
mod codex;
mod drift;
mod gemini;
#[doc(hidden)]
pub mod json;
mod novelty;
mod opencode;
mod plain;
mod resets;
mod tail_buffer;

pub mod inject;
pub mod launch;
pub mod limits;
pub mod lines;
pub mod listener;
pub mod marker;
pub mod readable;
pub mod reader;
pub mod subagent_log;
pub mod tools;
pub mod transcript;

pub use inject::{Injection, McpBridge, inject};
pub use launch::{EnvChange, Launch, detect, launch, model, resuming};
pub use lines::{Line, MAX_LINE, Splitter};
pub use listener::{Listener, MAX_LAST_LINE};
pub use marker::{Marker, last_marker};
pub use reader::Reader;
pub use subagent_log::{Entry, MAX_SUBAGENT_LOG_LINE, Reading, SubagentLog};
pub use transcript::{About, Format, Record, Transcribed, Transcript, Turns};
