//! Serves the raw output of an agent in byte ranges. It is sent as plain text, so a browser shows it and never runs
//! scripts in it.

use super::stream::Pace;
use crate::error::ApiError;
use crate::events::Pieces;
use crate::listener::Cut;
use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue, RANGE};
use axum::response::Response;
use bytes::Bytes;
use dogwatch_agents::readable::Renderer;
use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_core::record::view::View;
use dogwatch_core::record::words::ShownLine;
use dogwatch_core::settings::ReaderName;
use dogwatch_host::git::snapshot::{self, Patch};
use dogwatch_host::git::worktree;
use dogwatch_host::store::home;
use dogwatch_host::store::registry::Pointer;
use dogwatch_host::store::safe_file;
use schemars::JsonSchema;
use serde::Serialize;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The most bytes in one response; clients request the rest as ranges.
pub(crate) const MAX_OUTPUT: u64 = 8 * 1024 * 1024;
/// The most bytes of output that are made readable at once.
pub(crate) const MAX_READABLE: u64 = 2 * 1024 * 1024;
/// The most bytes of a diff in a response.
pub(crate) const MAX_PATCH: usize = 1024 * 1024;
/// The name of the file that holds an iteration's prompt.
const PROMPT: &str = "prompt.md";
/// The longest file name that is listed.
const MAX_NAME: usize = 64;
/// The most files that are listed for one iteration.
const MAX_FILES: usize = 100;
/// How many bytes are read and sent at a time; also the memory that a client costs if it does not read.
const CHUNK: u64 = 64 * 1024;

/// A validated node and iteration; it cannot point outside the run directory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    node: NodeName,
    iteration: Iteration,
}

impl Place {
    /// Parses and validates the path segments.
    pub fn parse(node: &str, iteration: &str) -> Result<Place, ApiError> {
        let name = NodeName::new(node);
        let number = iteration.bytes().all(|b| b.is_ascii_digit()).then(|| iteration.parse().ok()).flatten();
        match number {
            Some(n) if n > 0 && name.as_str() == node => Ok(Place { node: name, iteration: Iteration(n) }),
            _ => Err(ApiError::BadPath),
        }
    }

    fn dir(&self, run_dir: &Path) -> PathBuf {
        home::iteration_dir(run_dir, &self.node, self.iteration)
    }
}

/// The files of an iteration that are served. Other files hold keys (`mcp.json`) or settings of the session.
const SERVED: [&str; 4] = ["prompt.md", "result.md", "stderr", "stdout"];

/// Returns whether `name` is a plain file name, and so stays in its directory.
fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    name.len() <= MAX_NAME && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.bytes().all(plain)
}

/// The output files of an iteration.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Outputs {
    pub files: Vec<OutputFile>,
}

/// One output file and its size.
#[derive(Debug, JsonSchema, PartialEq, Serialize)]
pub(crate) struct OutputFile {
    pub name: String,
    pub bytes: u64,
}

pub(crate) fn list(run_dir: &Path, place: &Place) -> Result<Outputs, ApiError> {
    let entries = std::fs::read_dir(place.dir(run_dir)).map_err(|_| ApiError::NoSuchOutput)?;
    let files = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().to_str().filter(|name| SERVED.contains(name))?.to_owned();
        let meta = entry.metadata().ok().filter(|meta| meta.is_file())?;
        Some(OutputFile { name, bytes: meta.len() })
    });
    let mut files: Vec<OutputFile> = files.take(MAX_FILES).collect();
    files.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(Outputs { files })
}

pub(crate) fn answer(
    run_dir: &Path,
    place: &Place,
    stream: &str,
    headers: &HeaderMap,
    cut: Cut,
) -> Result<Response, ApiError> {
    if !is_name(stream) {
        return Err(ApiError::BadPath);
    }
    // The API calls it `prompt`, whatever the name of the file.
    let name = if stream == "prompt" { PROMPT } else { stream };
    if !SERVED.contains(&name) {
        return Err(ApiError::NoSuchOutput);
    }
    let file = safe_file::read(&place.dir(run_dir).join(name)).map_err(|_| ApiError::NoSuchOutput)?;
    let length = file.metadata().map_err(|_| ApiError::NoSuchOutput)?.len();
    let wanted = Span::wanted(headers, length)?;
    let mut response = crate::routes::answer(
        if wanted.is_whole(length) { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT },
        "text/plain; charset=utf-8",
        Body::from_stream(send(file, wanted, cut)),
    );
    let headers = response.headers_mut();
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(wanted.length));
    if !wanted.is_whole(length) {
        let last = (wanted.from + wanted.length).saturating_sub(1);
        let range = format!("bytes {}-{last}/{length}", wanted.from);
        headers.extend(HeaderValue::try_from(range).map(|value| (CONTENT_RANGE, value)));
    }
    Ok(response)
}

/// The agent's output as lines for people.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Readable {
    /// Where the shown part of stdout starts, in bytes.
    pub from: u64,
    /// The size of stdout in bytes.
    pub size: u64,
    pub lines: Vec<ReadableLine>,
}

/// A line of the agent's output.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ReadableLine {
    /// `plain`, `head` for a tool call, `good`, `bad` or `quiet`.
    pub tone: &'static str,
    pub text: String,
}

/// Makes the end of an agent's output readable, as `dogwatch logs` does. A range selects the part.
pub(crate) fn readable(
    run_dir: &Path,
    place: &Place,
    headers: &HeaderMap,
    view: &View,
) -> Result<Readable, ApiError> {
    let file = safe_file::read(&place.dir(run_dir).join("stdout")).map_err(|_| ApiError::NoSuchOutput)?;
    let size = file.metadata().map_err(|_| ApiError::NoSuchOutput)?.len();
    let wanted = Span::wanted(headers, size)?;
    let from = wanted.from.max((wanted.from + wanted.length).saturating_sub(MAX_READABLE));
    let mut bytes = vec![0; usize::try_from(wanted.from + wanted.length - from).unwrap_or(0)];
    file.read_exact_at(&mut bytes, from).map_err(|_| ApiError::NoSuchOutput)?;
    // The first line is probably incomplete.
    let whole = if from == 0 { 0 } else { bytes.iter().position(|b| *b == b'\n').map_or(0, |end| end + 1) };
    let plans = view.started.iter().flat_map(|started| &started.settings.nodes);
    let plan = plans.into_iter().find(|plan| plan.name == place.node);
    let reader = plan.map_or(ReaderName::Plain, |plan| plan.settings.reader);
    let node = view.nodes.iter().find(|node| node.name == place.node);
    let mut renderer = Renderer::new(reader, node.map_or("", |node| view.place(node)));
    let mut lines = renderer.feed(&bytes[whole..]);
    lines.extend(renderer.finish());
    let line = |line: ShownLine| ReadableLine { tone: line.tone.as_str(), text: line.text };
    Ok(Readable { from, size, lines: lines.into_iter().map(line).collect() })
}

/// Returns what an iteration changed, as a diff between two snapshots.
pub(crate) fn changes(pointer: &Pointer, place: &Place, view: &View) -> Result<Patch, ApiError> {
    let work_dir = view.started.as_ref().map(|started| PathBuf::from(&started.work_dir));
    let state_dir = pointer.run_dir.parent().and_then(Path::parent);
    let own =
        state_dir.map(|state| worktree::place(state, &pointer.run, &place.node)).filter(|own| own.is_dir());
    let dir = own.or(work_dir).ok_or(ApiError::NoSuchOutput)?;
    match snapshot::iteration_patch(&dir, &pointer.run, &place.node, place.iteration, MAX_PATCH) {
        Ok(Some(patch)) => Ok(patch),
        Ok(None) | Err(_) => Err(ApiError::NoSuchOutput),
    }
}

fn send(file: File, wanted: Span, cut: Cut) -> Pieces {
    Pieces::from(None, Some((cut, Pace::default())), async move |out| {
        let end = wanted.from + wanted.length;
        let mut at = wanted.from;
        while at < end {
            let mut piece = vec![0; usize::try_from(CHUNK.min(end - at)).unwrap_or(0)];
            if file.read_exact_at(&mut piece, at).is_err() {
                // The file was truncated in the meantime; the client notices from the content length.
                return None;
            }
            at += piece.len() as u64;
            out.send(Bytes::from(piece)).await?;
        }
        Some(())
    })
}

/// A byte range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from: u64,
    length: u64,
}

impl Span {
    fn wanted(headers: &HeaderMap, length: u64) -> Result<Span, ApiError> {
        let range = headers.get(RANGE).and_then(|value| value.to_str().ok());
        let span = match range.and_then(|text| Span::parse(text, length)) {
            Some(span) => span.ok_or(ApiError::BadRange(length))?,
            None => Span { from: 0, length },
        };
        Ok(Span { length: span.length.min(MAX_OUTPUT), ..span })
    }

    fn is_whole(self, length: u64) -> bool {
        self.from == 0 && self.length == length
    }

    /// Parses `bytes=A-B`, `bytes=A-` or `bytes=-N`. Returns `None` for any other syntax and for several ranges (the
    /// header is then ignored), and `Some(None)` if the range lies outside the file.
    fn parse(text: &str, length: u64) -> Option<Option<Span>> {
        let digits = |text: &str| -> Option<u64> {
            let all = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            // A number that overflows lies beyond the end of any file.
            all.then(|| text.parse().unwrap_or(u64::MAX))
        };
        let (first, last) = text.trim().strip_prefix("bytes=")?.trim().split_once('-')?;
        let (from, end) = match (first, last) {
            ("", last) => (length.saturating_sub(digits(last)?), length),
            (first, "") => (digits(first)?, length),
            (first, last) => (digits(first)?, digits(last)?.saturating_add(1).min(length)),
        };
        if !first.is_empty() && !last.is_empty() && digits(first)? > digits(last)? {
            return None;
        }
        Some((from < end).then(|| Span { from, length: end - from }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_clamped_to_the_file() {
        let span = |text: &str| Span::parse(text, 10).map(|s| s.map(|s| (s.from, s.length)));
        assert_eq!(span("bytes=0-3"), Some(Some((0, 4))));
        assert_eq!(span("bytes=9-"), Some(Some((9, 1))));
        assert_eq!(span("bytes=-4"), Some(Some((6, 4))));
        assert_eq!(span("bytes=-40"), Some(Some((0, 10))));
        assert_eq!(span("bytes=2-99999999999999999999999"), Some(Some((2, 8))));
        for outside in ["bytes=10-", "bytes=-0", "bytes=99999999999999999999-"] {
            assert_eq!(span(outside), Some(None), "{outside}");
        }
        for nothing in [
            "",
            "bytes",
            "lines=0-3",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=3-1",
            "bytes=0-1,3-4",
            "bytes=+1-2",
        ] {
            assert_eq!(span(nothing), None, "{nothing}");
        }
    }

    // promise: 4
    #[test]
    fn one_response_is_bounded() {
        for (length, expected) in
            [(MAX_OUTPUT - 1, MAX_OUTPUT - 1), (MAX_OUTPUT, MAX_OUTPUT), (MAX_OUTPUT + 1, MAX_OUTPUT)]
        {
            let span = Span::wanted(&HeaderMap::new(), length).expect("a valid span");
            assert_eq!(span, Span { from: 0, length: expected });
            assert_eq!(span.is_whole(length), length == expected);
        }
        assert!(Span { from: 0, length: 0 }.is_whole(0));
    }

    // promise: 14
    #[test]
    fn no_part_of_a_path_leads_outside() {
        for (node, iteration) in [
            ("..", "1"),
            (".", "1"),
            ("", "1"),
            ("a/b", "1"),
            ("a\\b", "1"),
            ("a\0", "1"),
            ("a", "0"),
            ("a", ""),
            ("a", "-1"),
            ("a", "+1"),
            ("a", "../1"),
            ("a", "99999999999999999999"),
        ] {
            assert_eq!(Place::parse(node, iteration), Err(ApiError::BadPath), "{node} {iteration}");
        }
        assert!(Place::parse("fix bugs", "000012").is_ok());
        for name in ["", ".", "..", ".hidden", "a/b", "../stdout", "a\0", "é", &"x".repeat(MAX_NAME + 1)] {
            assert!(!is_name(name), "{name}");
        }
        for name in ["stdout", "stderr", "prompt", "command-1.out", &"x".repeat(MAX_NAME)] {
            assert!(is_name(name), "{name}");
        }
    }
}
