use crate::error::CliError;
use crate::runs::{FoundRun, Which};
use dogwatch_core::text::escape_json;
use dogwatch_host::store::journal::{self, Tail};
use std::io::{ErrorKind, Write};

/// Print the events of a run as JSON lines
///
/// Observations are frequent and only needed for a replay, so they are omitted unless you pass --observed.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Print new events as they happen, until the run ends
    #[arg(long, short)]
    follow: bool,
    /// Print only events after this sequence number
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: u64,
    /// Include observations
    #[arg(long)]
    observed: bool,
    /// Accepted because other commands have it: events are always printed as JSON
    #[arg(long = "json", hide = true)]
    _json: bool,
    /// Print only events of this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Print only events of this iteration
    #[arg(long, short, value_name = "N")]
    iteration: Option<u64>,
}

/// The fields that every event of a node or an iteration has.
#[derive(serde::Deserialize)]
struct Subject {
    node: Option<String>,
    iteration: Option<u64>,
}

impl Args {
    /// Returns an error for a node that the run does not have: no event would ever be printed.
    fn check_node(&self, found: &FoundRun) -> Result<(), CliError> {
        let (Some(name), Some(started)) = (&self.node, found.started()) else { return Ok(()) };
        match started.nodes.iter().any(|node| node.as_str() == name) {
            true => Ok(()),
            false => Err(found.has_no_node(name)),
        }
    }

    /// Returns whether an event belongs to the selected node and iteration.
    fn selects(&self, line: &[u8]) -> bool {
        if self.node.is_none() && self.iteration.is_none() {
            return true;
        }
        serde_json::from_slice(line).is_ok_and(|Subject { node, iteration }: Subject| {
            (self.node.is_none() || self.node == node)
                && (self.iteration.is_none() || self.iteration == iteration)
        })
    }
}

/// Runs `dogwatch events` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let found = args.which.find()?;
    found.check_record();
    args.check_node(&found)?;
    if args.follow && found.is_live() { follow(args, &found) } else { from_record(args, &found) }
}

fn follow(args: &Args, found: &FoundRun) -> Result<u8, CliError> {
    let path = format!("/v1/events?after={}&observed={}", args.after, args.observed);
    let events =
        found.client()?.stream(&path).map_err(|e| CliError::usage(format!("run {}: {e}", found.id)))?;
    for event in events {
        let event = event.map_err(|e| CliError::usage(format!("run {}: {e}", found.id)))?;
        if args.selects(event.data.as_bytes()) && !print_line(event.data.as_bytes())? {
            break;
        }
    }
    Ok(0)
}

fn from_record(args: &Args, found: &FoundRun) -> Result<u8, CliError> {
    let path = found.dir.join(journal::FILE);
    let cannot = |e: std::io::Error| CliError::usage(format!("cannot read {}: {e}", path.display()));
    let mut lines = Tail::up_to_now(&path).map_err(cannot)?.in_large_pieces();
    while let Some(line) = lines.next_line().map_err(cannot)? {
        // `status` and `resume` report lines that are not events.
        let Some(head) = journal::head(line) else { continue };
        let wanted = head.seq > args.after && (args.observed || head.event != "observed");
        if wanted && args.selects(line) && !print_line(line)? {
            break;
        }
    }
    Ok(0)
}

/// Prints a line to stdout. Returns false if the reader has closed the pipe. dogwatch escapes hidden characters when it
/// writes a line, but another program may have changed the record.
fn print_line(line: &[u8]) -> Result<bool, CliError> {
    let text = String::from_utf8_lossy(line);
    let mut out = std::io::stdout().lock();
    match out
        .write_all(escape_json(&text).as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush())
    {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(CliError::internal(format!("cannot write to stdout: {e}"))),
    }
}
