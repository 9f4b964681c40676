//! Parses loop files, graph files and `dogwatch.toml` into a validated plan.
//!
//! This crate is pure: the caller reads the files and passes their text. It uses no clock, environment or
//! disk. A load reports all errors at once, each with file, line, column and a suggested fix.
//!
//! A setting passes through these modules: [`frontmatter`] splits the file; `yaml`, `toml` and `json` parse it
//! into the same `document`; `layers` looks up every key in the table of [`keys`]; `parsed` reads its value; and
//! [`load()`] fills in the defaults. [`placeholders`] and [`words`] are used while a run is active.

mod args;
pub mod changes;
mod commands;
mod comments;
pub mod diagnostic;
mod document;
mod effective;
pub mod explain;
mod flags;
pub mod frontmatter;
pub mod graph;
pub mod import;
mod json;
pub mod keys;
mod layers;
pub mod limits;
mod lists;
mod load;
pub mod machine;
mod mcp;
mod nearest;
mod parsed;
pub mod placeholders;
pub mod prices;
mod toml;
pub mod words;
mod yaml;

pub use diagnostic::{Diagnostic, Severity, Source, Style};
pub use explain::Setting;
pub use flags::Flags;
pub use graph::{Format, load_graph};
pub use load::{Loaded, Sources, load, load_external};
pub use machine::{AGENTS, Machine};
pub use nearest::{nearest, typo_of};
