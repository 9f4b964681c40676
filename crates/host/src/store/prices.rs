//! The price table of this user: the built-in prices, replaced by those in `prices.toml` next to the user's settings.

use crate::store::{home, safe_file};
use dogwatch_config::{Diagnostic, prices};
use dogwatch_core::record::prices::PriceTable;
use std::io::{self, Read};
use std::path::PathBuf;

/// Returns the user's price table file (`$XDG_CONFIG_HOME/dogwatch/prices.toml`).
pub fn user_file() -> Option<PathBuf> {
    Some(home::user_config_file()?.with_file_name("prices.toml"))
}

/// Why the user's prices cannot be used.
#[derive(Debug)]
pub enum PricesError {
    /// The file cannot be read.
    Unreadable(PathBuf, io::Error),
    /// The file is not a price table.
    Invalid(Vec<Diagnostic>),
}

/// Returns the prices that apply to this user.
pub fn load() -> Result<PriceTable, PricesError> {
    let mut table = prices::built_in();
    let Some(path) = user_file() else { return Ok(table) };
    let mut text = String::new();
    let most = prices::MAX_PRICES_BYTES as u64 + 1;
    let read = safe_file::read_named(&path).and_then(|file| file.take(most).read_to_string(&mut text));
    match read {
        // A service without a home directory has a file in its place, such as `/dev/null`.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(table);
        }
        Err(error) => return Err(PricesError::Unreadable(path, error)),
        Ok(_) => {}
    }
    prices::add(&mut table, &path.display().to_string(), &text).map_err(PricesError::Invalid)?;
    Ok(table)
}
