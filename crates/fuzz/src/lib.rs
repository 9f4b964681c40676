//! Feeds random bytes to everything that reads bytes from outside: agents, files, sockets.
//!
//! A target is a function that panics if a property does not hold. The suite runs each target on its corpus and on a
//! fixed number of mutated inputs; `scripts/fuzz` runs it for minutes. A finding is fixed and its input is added to
//! `corpus/<target>`.

pub mod corpus;
pub mod mutate;
pub mod targets;

/// A target: its name and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 12] = [
    ("splitter", targets::text::splitter),
    ("sanitizer", targets::text::sanitizer),
    ("redactor", targets::text::redactor),
    ("marker", targets::text::marker),
    ("fingerprint", targets::text::fingerprint),
    ("json", targets::agents::json),
    ("readers", targets::agents::readers),
    ("loop_file", targets::files::loop_file),
    ("graph", targets::files::graph),
    ("journal", targets::files::journal),
    ("keeper_wire", targets::sockets::keeper_wire),
    ("channel", targets::sockets::channel),
];

/// Returns the target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|(known, _)| *known == name)
}
