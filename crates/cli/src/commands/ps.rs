use super::status::{headline, status};
use crate::error::Failure;
use crate::runs::registered;

/// List the runs of this machine that are alive
#[derive(clap::Args)]
pub struct Args {
    /// Also those that have ended or whose dogwatch died
    #[arg(long, short)]
    all: bool,
    /// As JSON, one status a line
    #[arg(long)]
    json: bool,
}

/// Enough for a screen or two.
const MAX_SHOWN: usize = 50;

pub fn run(args: &Args) -> Result<u8, Failure> {
    let mut text = String::new();
    for found in registered().filter(|r| args.all || r.is_live()).take(MAX_SHOWN) {
        let line = match status(&found) {
            Ok(status) if args.json => {
                serde_json::to_string(&status).map_err(|e| Failure::internal(e.to_string()))?
            }
            Ok(status) => dogwatch_core::text::printable(&headline(&status)).into_owned(),
            Err(_) => format!(
                "run {}  its record cannot be read: `dogwatch status {}` says why",
                found.id, found.id
            ),
        };
        text.push_str(&line);
        text.push('\n');
    }
    if text.is_empty() && !args.json {
        let which = if args.all { "" } else { " alive" };
        text = format!("no run is{which} on this machine; `dogwatch run DIR` starts one\n")
            .replace("is on", "is known on");
    }
    super::print(text.as_bytes())
}
