//! `dogwatch fleet account`: the limits that all workers of an account share.

use super::dir::DirArgs;
use super::steer::{connect, failed};
use crate::error::CliError;
use dogwatch_core::text::figures::count;
use dogwatch_fleet::operator::{AccountChange, AccountState};
use dogwatch_fleet::{FleetError, Name};
use dogwatch_host::clock;

/// Show or change the limits of an account
///
/// The limits hold for all workers together. A day ends at midnight UTC. An account that has spent its budget, or that the
/// provider refuses, is parked: no worker starts its jobs, and running jobs wait.
#[derive(clap::Args)]
pub struct Args {
    /// Name of the account
    name: Name,
    /// How many of its jobs run at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    cap: Option<u64>,
    /// Most US dollars per day, or `off`
    #[arg(long, value_name = "USD", value_parser = usd)]
    budget_usd: Option<Budget>,
    /// Most tokens per day, or `off`
    #[arg(long, value_name = "N", value_parser = tokens)]
    budget_tokens: Option<Budget>,
    /// Workers of several accounts serve the highest priority first; 0 unless set
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Let a parked account continue
    #[arg(long)]
    unpark: bool,
    /// Print the limits as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    dir: DirArgs,
}

/// A budget, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Budget(Option<u64>);

/// Reads dollars as millionths.
fn usd(text: &str) -> Result<Budget, String> {
    if text == "off" {
        return Ok(Budget(None));
    }
    let usd = text.parse::<f64>().ok().filter(|usd| (0.0..=1e9).contains(usd));
    usd.map(|usd| Budget(Some((usd * 1e6).round() as u64)))
        .ok_or_else(|| "expected dollars or `off`".to_owned())
}

fn tokens(text: &str) -> Result<Budget, String> {
    if text == "off" {
        return Ok(Budget(None));
    }
    let tokens = text.replace('_', "").parse::<u64>();
    tokens.map(|tokens| Budget(Some(tokens))).map_err(|_| "expected a number of tokens or `off`".to_owned())
}

/// Runs `dogwatch fleet account` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    /// The server's number for a queue that does not exist.
    const NO_QUEUE: u64 = 10014;
    let operator = connect(&args.dir)?;
    let change = AccountChange {
        cap: args.cap,
        day_micro_usd: args.budget_usd.map(|budget| budget.0),
        day_tokens: args.budget_tokens.map(|budget| budget.0),
        priority: args.priority,
        unpark: args.unpark,
    };
    let state = operator.change_account(&args.name, &change).map_err(|error| match error {
        FleetError::Refused { code: NO_QUEUE, .. } => CliError::with_help(
            format!("the fleet has no account {}", args.name),
            format!("let a worker join for it: `dogwatch fleet join WORKER --account {}`", args.name),
        ),
        error @ (FleetError::Connect { .. }
        | FleetError::Denied { .. }
        | FleetError::NoAnswer
        | FleetError::NoResponders
        | FleetError::Conflict
        | FleetError::Refused { .. }
        | FleetError::BadAnswer(_)) => failed(&error),
    })?;
    match args.json {
        true => crate::commands::print_json(&json(&args.name, &state)),
        false => crate::commands::print(text(&args.name, &state).as_bytes()),
    }
}

fn json(name: &Name, state: &AccountState) -> serde_json::Value {
    let AccountState { cap, limit, micro_usd_today, tokens_today, reserved } = state;
    serde_json::json!({
        "account": name, "cap": cap, "limit": limit, "micro_usd_today": micro_usd_today, "tokens_today": tokens_today,
        "reserved": reserved,
    })
}

fn text(name: &Name, state: &AccountState) -> String {
    let AccountState { cap, limit, micro_usd_today, tokens_today, reserved } = state;
    let dollars = |micro: u64| format!("${}.{:02}", micro / 1_000_000, micro % 1_000_000 / 10_000);
    let of =
        |budget: Option<String>| budget.map_or_else(|| "no budget".to_owned(), |all| format!("of {all}"));
    let parked = limit.until.filter(|until| *until > clock::now().wall);
    let parked = parked.map_or_else(String::new, |until| {
        format!("parked    until {until}: {}\n", dogwatch_fleet::record::why_parked(limit))
    });
    format!(
        "account   {name}\n\
         cap       {} at once\n\
         money     {} today, {} reserved, {}\n\
         tokens    {tokens_today} today, {} reserved, {}\n\
         priority  {}\n{parked}",
        count(*cap, "job"),
        dollars(*micro_usd_today),
        dollars(reserved.micro_usd),
        of(limit.day_micro_usd.map(dollars)),
        reserved.tokens,
        of(limit.day_tokens.map(|tokens| tokens.to_string())),
        limit.priority,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_read_and_bad_ones_are_refused() {
        assert_eq!(usd("2.5"), Ok(Budget(Some(2_500_000))));
        assert_eq!(usd("off"), Ok(Budget(None)));
        assert_eq!(tokens("1_000_000"), Ok(Budget(Some(1_000_000))));
        for bad in ["", "-1", "NaN", "1e99", "much"] {
            assert!(usd(bad).is_err(), "{bad}");
            assert!(tokens(bad).is_err(), "{bad}");
        }
    }
}
