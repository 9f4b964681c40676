//! Loop files and `dogwatch.toml`: from the text people write to a plan that cannot be wrong.
//!
//! Pure: the caller reads the files and passes their text; no clock, environment or disk in here. What
//! is wrong is reported all at once, each finding with file, line, column and a way out.
//!
//! The way of a setting: [`frontmatter`] cuts the file, `yaml` and `toml` make the same `tree` of it,
//! `layers` looks every key up in the one table of [`keys`] and has its value read by `parsed`, and
//! [`load`] fills in what nobody said. [`placeholders`] and [`words`] are for run time.

mod args;
mod commands;
mod comments;
pub mod diagnostic;
mod effective;
pub mod explain;
mod flags;
pub mod frontmatter;
pub mod graph;
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
mod toml;
mod tree;
pub mod words;
mod yaml;

pub use diagnostic::{Diagnostic, Severity, Source, Style};
pub use explain::Setting;
pub use flags::Flags;
pub use graph::{Format, GraphSources, LoadedGraph, load_graph};
pub use load::{Loaded, Sources, load, load_external};
pub use machine::Machine;
pub use nearest::nearest;
