use super::status::{headline, status};
use crate::error::CliError;
use crate::runs::registered;

/// List the live runs on this machine
#[derive(clap::Args)]
pub struct Args {
    /// Include runs that have ended or whose supervisor died
    #[arg(long, short)]
    all: bool,
    /// Print the status of each run as one line of JSON
    #[arg(long)]
    json: bool,
}

/// The most runs to list.
const MAX_SHOWN: usize = 50;

/// Runs `dogwatch ps` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let mut text = String::new();
    for found in registered().filter(|r| args.all || r.is_live()).take(MAX_SHOWN) {
        let line = match status(&found) {
            Ok(status) if args.json => super::json_line(&status)?,
            Ok(status) => {
                let line = dogwatch_core::text::printable(&headline(&status)).into_owned();
                match found.stopped_process() {
                    Some(pid) => format!("{line}; suspended, continue it with `kill -CONT {pid}`"),
                    None => line,
                }
            }
            Err(_) => {
                format!("run {}  cannot read its record; `dogwatch status {}` shows why", found.id, found.id)
            }
        };
        text.push_str(&line);
        text.push('\n');
    }
    if text.is_empty() && !args.json {
        let which = if args.all { "runs" } else { "live runs" };
        text = format!("no {which} on this machine; start one with `dogwatch run DIR`\n");
    }
    if args.json { super::print(text) } else { super::print_text(&text) }
}
