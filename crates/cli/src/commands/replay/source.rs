//! Detects the kind of a recording by its content.

use super::read::Lines;
use crate::error::CliError;
use dogwatch_agents::Format;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::path::Path;

/// The number of records in which the format of a transcript is searched. Titles and other bookkeeping may come first.
const MAX_HEAD_RECORDS: usize = 1_000;

/// The kind of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Journal,
    Timeline,
    Transcript(Format),
}

/// The fields of a first line that identify its kind.
#[derive(Deserialize)]
struct Head {
    v: Option<IgnoredAny>,
    event: Option<IgnoredAny>,
    t_ms: Option<IgnoredAny>,
    input: Option<IgnoredAny>,
    line: Option<IgnoredAny>,
    #[serde(rename = "type")]
    kind: Option<IgnoredAny>,
}

impl Source {
    /// Detects the kind of a file.
    pub fn of(path: &Path) -> Result<Source, CliError> {
        let mut lines = Lines::open(path)?;
        let Some(first) = lines.next()? else {
            return Err(CliError::with_help(
                format!("{} is empty", path.display()),
                "FILE is a run's journal in .dogwatch/runs/, a timeline or an agent's transcript",
            ));
        };
        let Ok(head) = serde_json::from_slice::<Head>(first) else { return Err(unknown(path)) };
        if head.v.is_some() && head.event.is_some() {
            return Ok(Source::Journal);
        }
        if head.t_ms.is_some() || head.input.is_some() || head.line.is_some() {
            return Ok(Source::Timeline);
        }
        if head.kind.is_some() {
            for _ in 0..MAX_HEAD_RECORDS {
                if let Some(format) = Format::of(lines.current()) {
                    return Ok(Source::Transcript(format));
                }
                if lines.next()?.is_none() {
                    break;
                }
            }
        }
        Err(unknown(path))
    }
}

fn unknown(path: &Path) -> CliError {
    CliError::with_help(
        format!(
            "{} is not a journal, a timeline, a Claude Code transcript or a Codex rollout",
            path.display()
        ),
        "see docs/guide/replay.md for the formats; an agent's stdout needs a time for each line: {\"t_ms\": n, \"line\": \"...\"}",
    )
}
