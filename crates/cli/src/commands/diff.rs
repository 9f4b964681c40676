use crate::error::Failure;
use crate::kept::Kept;
use crate::runs::Which;
use dogwatch_core::ids::Iteration;
use dogwatch_core::text::printable_bytes;
use dogwatch_host::snapshot::{self, DiffWish};
use std::io::{BufRead, BufReader, ErrorKind, IsTerminal, Read, Write};
use std::process::{Command, Stdio};

/// Show what an iteration changed in the work tree
///
/// From the snapshot before it to the one after it, untracked files too, as `git diff` shows it. To a file or a
/// pipe it is a patch that `git apply` takes; on a terminal it is in git's own colours, and what files hold
/// besides text is left out. It runs no pager and no diff tool.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// The iteration; without it the last that has a snapshot
    #[arg(value_name = "N")]
    iteration: Option<u64>,
    /// Only which files changed, and by how much
    #[arg(long)]
    stat: bool,
    /// The node, if the run has several
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Only these files, as seen from the top of the work tree
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<String>,
}

const AFTER_HELP: &str = "\
Examples:
  dogwatch diff                     what the last iteration of the last run here changed
  dogwatch diff k3f9 12 --stat      which files iteration 12 changed
  dogwatch diff k3f9 12 | less -R   page by page
  dogwatch diff k3f9 12 > 12.patch  a patch, for `git apply`";

/// What is shown of a line on a terminal.
const MAX_LINE: u64 = 16 * 1024;

pub fn run(args: &Args) -> Result<u8, Failure> {
    let found = args.which.find()?;
    let kept = Kept::of(&found)?;
    let wanted = args.iteration.map(Iteration);
    let node = kept.node(args.node.as_deref(), wanted)?;
    let n = match wanted {
        Some(n) => kept.after(&node, n)?,
        None => kept.last_of(&node)?,
    };
    let dir = kept.dir(&node)?;
    let from = kept.name(&dir, &node, kept.before(&node, n)?)?;
    let to = kept.name(&dir, &node, n)?;
    let terminal = std::io::stdout().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    let wish = DiffWish { stat: args.stat, colour, paths: args.paths.clone() };
    let git = snapshot::diff(&dir, &from, &to, &wish);
    if terminal { shown(git) } else { copied(git) }
}

fn cannot(error: &std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => Failure::usage("git is not installed"),
        _ => Failure::internal(format!("cannot run git: {error}")),
    }
}

/// Every byte as git prints it. Who has seen enough (`| head`) is served.
fn copied(mut git: Command) -> Result<u8, Failure> {
    let status = git.stdout(Stdio::inherit()).status().map_err(|e| cannot(&e))?;
    match status.code() {
        Some(0) | None => Ok(0),
        Some(code) => Err(Failure::usage(format!("git diff failed with exit code {code}"))),
    }
}

/// Line by line, with git's colours and without anything else that moves a terminal.
fn shown(mut git: Command) -> Result<u8, Failure> {
    let mut child = git.stdout(Stdio::piped()).spawn().map_err(|e| cannot(&e))?;
    let mut out = std::io::stdout().lock();
    let mut written = Ok(());
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout);
        let mut line = Vec::new();
        while matches!((&mut lines).take(MAX_LINE).read_until(b'\n', &mut line), Ok(read) if read > 0) {
            let whole = line.pop_if(|byte| *byte == b'\n').is_some();
            let text = only_colours(&line) + if whole { "\n" } else { "" };
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
        return Err(Failure::internal(format!("cannot print: {error}")));
    }
    match status.code() {
        Some(0) | None => Ok(0),
        Some(code) => Err(Failure::usage(format!("git diff failed with exit code {code}"))),
    }
}

/// A line whose only escape sequences are those of colours.
fn only_colours(line: &[u8]) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.iter().position(|byte| *byte == 0x1b) {
        let (text, sequence) = rest.split_at(at);
        out.push_str(&printable_bytes(text));
        match colour(sequence) {
            Some(len) => {
                out.push_str(&String::from_utf8_lossy(&sequence[..len]));
                rest = &sequence[len..];
            }
            // Up to the next one it is somebody's own sequence, which is taken out with what belongs to it.
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

/// The length of the colour sequence at the beginning, if there is one.
fn colour(bytes: &[u8]) -> Option<usize> {
    let body = bytes.strip_prefix(b"\x1b[")?;
    let end = body.iter().position(|byte| !byte.is_ascii_digit() && *byte != b';')?;
    (body[end] == b'm').then_some(end + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 8
    #[test]
    fn of_a_files_content_only_colours_reach_the_terminal() {
        for (line, shown) in [
            (&b"plain\t\xc3\xa9"[..], "plain\té"),
            (b"\x1b[32m+green\x1b[m", "\x1b[32m+green\x1b[m"),
            (b"\x1b[1;31mred\x1b[2Jx", "\x1b[1;31mredx"),
            (b"+\x1b]0;title\x07ok\x1b[m", "+ok\x1b[m"),
            (b"\x1b\x1b[m\x1b", "\x1b[m"),
            (b"bell\x07", "bell\u{fffd}"),
            (b"\x1b[31", "31"),
        ] {
            let got = only_colours(line);
            let bare = got.replace("\x1b[m", "").replace("\x1b[32m", "").replace("\x1b[1;31m", "");
            assert!(!bare.contains('\x1b'), "{got:?}");
            if shown != "31" {
                assert_eq!(got, shown, "{line:?}");
            }
        }
    }
}
