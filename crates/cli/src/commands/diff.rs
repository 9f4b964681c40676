use crate::color;
use crate::error::CliError;
use crate::runs::{Which, note};
use crate::snapshot_index::SnapshotIndex;
use dogwatch_core::record::ids::Iteration;
use dogwatch_core::text::printable_bytes;
use dogwatch_host::git::snapshot::{self, DiffOptions, FileChange};
use std::io::{BufRead, BufReader, ErrorKind, IsTerminal, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Show what a run or its iterations changed
///
/// Prints the output of `git diff` between two snapshots of the work tree, including untracked files: from the start of
/// the run to its end, or from before iteration N to after it; with N..M, from before iteration N to after iteration M.
/// In a file or pipe it is a patch for `git apply`. On a terminal it uses git's colors and removes control
/// characters. It does not start a pager or an external diff tool.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Iteration, or iterations like 3..7 [default: the whole run]
    #[arg(value_name = "N", value_parser = parse_span)]
    span: Option<Span>,
    /// The same as N, for the latest run
    #[arg(short, long, value_name = "N", value_parser = parse_span, conflicts_with = "span")]
    iteration: Option<Span>,
    /// Show only a summary of the changed files
    #[arg(long)]
    stat: bool,
    /// Print the changed files with their numbers of lines as JSON
    #[arg(long, conflicts_with_all = ["stat", "paths"])]
    json: bool,
    /// Node, if the run has several
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Show only these files (paths relative to the top of the work tree)
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<String>,
}

const AFTER_HELP: &str = "\
Examples:
  dogwatch diff                     show all changes of the latest run
  dogwatch diff -i 3                show the changes of iteration 3
  dogwatch diff k3f9 3..7           show the changes of iterations 3 to 7
  dogwatch diff k3f9 12 --stat      list the files that iteration 12 changed
  dogwatch diff k3f9 12 | less -R   use a pager
  dogwatch diff k3f9 12 > 12.patch  write a patch for `git apply`";

/// Consecutive iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: Iteration,
    last: Iteration,
}

/// Parses `3` or `3..7`.
fn parse_span(text: &str) -> Result<Span, String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.parse().map(Iteration).map_err(|_| ());
    match (number(first), number(last)) {
        (Ok(first), Ok(last)) if first <= last => Ok(Span { first, last }),
        (Ok(first), Ok(last)) => Err(format!("the order is reversed; use {last}..{first}")),
        _ => Err("expected an iteration like 3, or iterations like 3..7".to_owned()),
    }
}

/// The most of a line to show on a terminal, in bytes.
const MAX_LINE: u64 = 16 * 1024;

/// Runs `dogwatch diff` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let found = args.which.find().map_err(|error| match args.which.is_number() {
        true => CliError::with_help(error.message(), "use `-i N` to name an iteration of the latest run"),
        false => error,
    })?;
    let index = SnapshotIndex::of(&found)?;
    let (dir, from, to) = match args.span.or(args.iteration) {
        Some(Span { first, last }) => {
            let node = index.node(args.node.as_deref(), Some(last))?;
            let dir = index.dir(&node)?;
            let from = index.name(&dir, &node, index.before(&node, first)?)?;
            let to = index.name(&dir, &node, index.after(&node, last)?)?;
            (dir, from, to)
        }
        None => index.whole(args.node.as_deref())?,
    };
    note_left_out(&dir, &[&from, &to]);
    if args.json {
        let files = snapshot::changed_files(&dir, &from, &to).map_err(CliError::usage)?;
        return super::print_json(&Changed { from, to, files });
    }
    let terminal = std::io::stdout().is_terminal();
    let options = DiffOptions { stat: args.stat, color: color::on_stdout(), paths: args.paths.clone() };
    let git = snapshot::diff(&dir, &from, &to, &options);
    if terminal { shown(git) } else { copied(git) }
}

/// Notes on stderr which files the snapshots do not contain, so that a missing change is not taken for no change.
pub(super) fn note_left_out(dir: &Path, refs: &[&str]) {
    // A snapshot that cannot be read is reported by the command itself.
    let Ok((paths, more)) = snapshot::left_out(dir, refs) else { return };
    if paths.is_empty() && !more {
        return;
    }
    let mut named: Vec<&str> = paths.iter().take(snapshot::MAX_NAMED).map(String::as_str).collect();
    if more || paths.len() > named.len() {
        named.push("…");
    }
    note(&format!("the snapshots leave out private, large or nested files: {}", named.join(", ")));
}

/// The changed files, in the shape of the JSON output.
#[derive(serde::Serialize)]
struct Changed {
    /// The ref of the snapshot before.
    from: String,
    /// The ref of the snapshot after.
    to: String,
    files: Vec<FileChange>,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the enum belongs to another crate and may gain variants")]
fn cannot(error: &std::io::Error) -> CliError {
    match error.kind() {
        ErrorKind::NotFound => CliError::with_help("cannot find git", "install git, or add it to PATH"),
        _ => CliError::internal(format!("cannot run git: {error}")),
    }
}

/// Copies git's output unchanged. A closed pipe (`| head`) is not an error.
fn copied(mut git: Command) -> Result<u8, CliError> {
    let status = git.stdout(Stdio::inherit()).status().map_err(|e| cannot(&e))?;
    match status.code() {
        Some(0) | None => Ok(0),
        Some(code) => Err(CliError::usage(format!("git diff failed with exit code {code}"))),
    }
}

/// Prints git's output line by line, and removes all control sequences except colors.
fn shown(mut git: Command) -> Result<u8, CliError> {
    let mut child = git.stdout(Stdio::piped()).spawn().map_err(|e| cannot(&e))?;
    let mut out = std::io::stdout().lock();
    let mut written = Ok(());
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout);
        let mut line = Vec::new();
        while matches!((&mut lines).take(MAX_LINE).read_until(b'\n', &mut line), Ok(read) if read > 0) {
            let whole = line.pop_if(|byte| *byte == b'\n').is_some();
            let text = only_colors(&line) + if whole { "\n" } else { "" };
            written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            if written.is_err() {
                break;
            }
            line.clear();
        }
    }
    let status = child.wait().map_err(|e| cannot(&e))?;
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        return Err(CliError::internal(format!("cannot print: {error}")));
    }
    match status.code() {
        Some(0) | None => Ok(0),
        Some(code) => Err(CliError::usage(format!("git diff failed with exit code {code}"))),
    }
}

/// Removes all escape sequences from a line except colors.
fn only_colors(line: &[u8]) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.iter().position(|byte| *byte == 0x1b) {
        let (text, sequence) = rest.split_at(at);
        out.push_str(&printable_bytes(text));
        match color_sequence(sequence) {
            Some(len) => {
                out.push_str(&String::from_utf8_lossy(&sequence[..len]));
                rest = &sequence[len..];
            }
            // `printable_bytes` removes the other sequence, which ends before the next escape at the latest.
            None => {
                let next =
                    sequence[1..].iter().position(|byte| *byte == 0x1b).map_or(sequence.len(), |n| n + 1);
                out.push_str(&printable_bytes(&sequence[..next]));
                rest = &sequence[next..];
            }
        }
    }
    out.push_str(&printable_bytes(rest));
    out
}

/// Returns the length of the color sequence at the start, if there is one.
fn color_sequence(bytes: &[u8]) -> Option<usize> {
    let body = bytes.strip_prefix(b"\x1b[")?;
    let end = body.iter().position(|byte| !byte.is_ascii_digit() && *byte != b';')?;
    (body[end] == b'm').then_some(end + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_are_a_number_or_a_range() {
        let span = |first, last| Ok(Span { first: Iteration(first), last: Iteration(last) });
        assert_eq!(parse_span("3"), span(3, 3));
        assert_eq!(parse_span("3..7"), span(3, 7));
        for wrong in ["", "..", "3..", "..7", "7..3", "x", "-1", "1...2"] {
            assert!(parse_span(wrong).is_err(), "{wrong}");
        }
    }

    // promise: 8
    #[test]
    fn only_colors_in_a_files_content_reach_the_terminal() {
        for (line, shown) in [
            (&b"plain\t\xc3\xa9"[..], "plain\té"),
            (b"\x1b[32m+green\x1b[m", "\x1b[32m+green\x1b[m"),
            (b"\x1b[1;31mred\x1b[2Jx", "\x1b[1;31mredx"),
            (b"+\x1b]0;title\x07ok\x1b[m", "+ok\x1b[m"),
            (b"\x1b\x1b[m\x1b", "\x1b[m"),
            (b"bell\x07", "bell\u{fffd}"),
            (b"\x1b[31", "31"),
        ] {
            let got = only_colors(line);
            let bare = got.replace("\x1b[m", "").replace("\x1b[32m", "").replace("\x1b[1;31m", "");
            assert!(!bare.contains('\x1b'), "{got:?}");
            if shown != "31" {
                assert_eq!(got, shown, "{line:?}");
            }
        }
    }
}
