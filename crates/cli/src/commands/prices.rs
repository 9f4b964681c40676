use crate::error::CliError;
use dogwatch_core::record::prices::PriceTable;
use dogwatch_host::store::prices::{self, PricesError};
use serde::Serialize;
use std::fmt::Write as _;

/// List the prices that costs are computed with
///
/// Codex and Gemini CLI report tokens and no cost, so dogwatch computes the cost from list prices, in US dollars per
/// million tokens. Put your own prices into the file that this command names. See docs/guide/cost-and-limits.md.
#[derive(clap::Args)]
pub struct Args {
    /// Print the prices as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listing<'a> {
    /// The file with the user's own prices, whether it exists or not.
    file: Option<String>,
    file_exists: bool,
    models: Vec<Model<'a>>,
}

#[derive(Serialize)]
struct Model<'a> {
    model: &'a str,
    input: f64,
    cached_input: f64,
    output: f64,
    date: &'a str,
}

/// Runs `dogwatch prices` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let table = load()?;
    let listing = Listing {
        file: prices::user_file().map(|path| path.display().to_string()),
        file_exists: prices::user_file().is_some_and(|path| path.exists()),
        models: table
            .iter()
            .map(|(model, price, date)| Model {
                model,
                input: price.input,
                cached_input: price.cached_input,
                output: price.output,
                date,
            })
            .collect(),
    };
    if args.json { super::print_json(&listing) } else { super::print_text(&text(&listing)) }
}

/// Loads the prices that apply to this user.
pub fn load() -> Result<PriceTable, CliError> {
    prices::load().map_err(|error| match error {
        PricesError::Unreadable(path, error) => {
            CliError::usage(format!("cannot read the prices in {}: {error}", path.display()))
        }
        PricesError::Invalid(diagnostics) => CliError::Diagnostics(diagnostics),
    })
}

fn text(listing: &Listing<'_>) -> String {
    let name = listing.models.iter().map(|m| m.model.len()).max().unwrap_or(0);
    let mut text = format!("{:name$}  {:>8}  {:>8}  {:>8}  as of\n", "model", "input", "cached", "output");
    for Model { model, input, cached_input, output, date } in &listing.models {
        let _ = writeln!(text, "{model:name$}  {input:8.3}  {cached_input:8.3}  {output:8.3}  {date}");
    }
    text.push_str("list prices in US dollars per million tokens\n");
    if let Some(file) = &listing.file {
        let how = if listing.file_exists { "your own prices are in" } else { "put your own prices into" };
        let _ = writeln!(text, "{how} {file}");
    }
    dogwatch_core::text::printable(&text).into_owned()
}
