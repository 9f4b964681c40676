//! Parses a graph file in any of its formats.

use crate::diagnostic::{Diagnostics, Source};
use crate::document::Node;
use crate::limits::{MAX_GRAPH_BYTES, MAX_GRAPH_EVENTS};
use crate::load::is_too_long;
use crate::yaml::Bounds;
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
    match format {
        Format::Yaml => match yaml::parse_within(source.text, 0, Bounds { events: MAX_GRAPH_EVENTS }) {
            Ok(tree) => Some(tree),
            Err(bad) => {
                let diagnostic = diagnostics.error(
                    source,
                    bad.span.unwrap_or(0..0),
                    format!("invalid YAML: {}", bad.message),
                );
                if let Some(help) = bad.help {
                    diagnostic.help(help);
                }
                None
            }
        },
        Format::Toml => toml::parse(source.text)
            .map_err(|all| {
                for bad in all {
                    diagnostics.error(
                        source,
                        bad.span.unwrap_or(0..0),
                        format!("invalid TOML: {}", bad.message),
                    );
                }
            })
            .ok(),
        Format::Json => json::parse(source.text)
            .map_err(|bad| {
                diagnostics.error(source, bad.span, format!("invalid JSON: {}", bad.message));
            })
            .ok(),
    }
}
