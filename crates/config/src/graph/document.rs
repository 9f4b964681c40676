//! Parses a graph file in any of its formats.

use crate::diagnostic::{Diagnostics, Source};
use crate::document::Node;
use crate::limits::{MAX_GRAPH_BYTES, MAX_GRAPH_EVENTS};
use crate::load::is_too_long;
use crate::{json, toml, yaml};

/// The format of a graph file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `graph.yaml` or `graph.yml`.
    Yaml,
    /// `graph.toml`.
    Toml,
    /// `graph.json`.
    Json,
}

impl Format {
    /// Returns the format for a file name, or none if its extension is not one of a graph file.
    pub fn of(file_name: &str) -> Option<Format> {
        let (_, extension) = file_name.rsplit_once('.')?;
        match extension {
            "yaml" | "yml" => Some(Format::Yaml),
            "toml" => Some(Format::Toml),
            "json" => Some(Format::Json),
            _ => None,
        }
    }
}

/// Parses a graph file and reports syntax errors.
pub fn read(source: Source<'_>, format: Format, diagnostics: &mut Diagnostics) -> Option<Node> {
    if is_too_long(source, source.text, MAX_GRAPH_BYTES, diagnostics) {
        return None;
    }
    let (name, parsed) = match format {
        Format::Yaml => {
            ("YAML", yaml::parse_within(source.text, 0, MAX_GRAPH_EVENTS).map_err(|bad| vec![bad]))
        }
        Format::Toml => ("TOML", toml::parse(source.text)),
        Format::Json => ("JSON", json::parse(source.text).map_err(|bad| vec![bad])),
    };
    parsed.map_err(|bad| diagnostics.syntax_errors(source, name, 0, bad)).ok()
}
