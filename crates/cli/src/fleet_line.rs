//! Finds the join line with which the operator connects to the fleet.

use crate::error::CliError;
use dogwatch_fleet::JoinLine;
use dogwatch_fleet::join::{MAX_LINE, VARIABLE};
use dogwatch_fleet::server::OPERATOR_LINE;
use dogwatch_fleet::server::book::OPERATOR;
use dogwatch_host::store::safe_file;
use std::io::Read;
use std::path::Path;

/// Returns the operator's join line, if this user has one.
pub fn configured(local: &Path) -> Option<Result<JoinLine, CliError>> {
    (std::env::var_os(VARIABLE).is_some() || local.exists()).then(|| operator(local))
}

/// Returns the operator's join line: from the variable `DOGWATCH_FLEET`, which holds the line or the path of a file with it,
/// or else from a fleet on this machine.
pub fn operator(local: &Path) -> Result<JoinLine, CliError> {
    let set = std::env::var(VARIABLE).ok().filter(|value| !value.is_empty());
    match &set {
        Some(value) => given(value),
        None => parse(&read(local)?),
    }
}

/// Returns a join line that the user gave: the line itself, or the path of a file with it.
pub fn given(text: &str) -> Result<JoinLine, CliError> {
    match text.starts_with("dogwatch+") {
        true => parse(text),
        false => parse(&read(Path::new(text))?),
    }
}

fn parse(text: &str) -> Result<JoinLine, CliError> {
    let help = format!("set {VARIABLE} to the operator's join line, or to a file with it");
    let line: JoinLine = text.trim().parse().map_err(|error| {
        CliError::with_help(format!("cannot use the fleet's join line: {error}"), help.clone())
    })?;
    // A worker's user may not read what these commands show.
    if line.user.as_str() != OPERATOR && !line.accounts.is_empty() {
        return Err(CliError::with_help(
            format!("this is the join line of the worker {}, not the operator's", line.user),
            format!("{help}: `{OPERATOR_LINE}` in the fleet's directory"),
        ));
    }
    Ok(line)
}

fn read(path: &Path) -> Result<String, CliError> {
    let mut text = String::new();
    let read =
        safe_file::read(path).and_then(|file| file.take(MAX_LINE as u64 + 1).read_to_string(&mut text));
    read.map_err(|error| {
        CliError::with_help(
            format!("cannot read the operator's join line, {}: {error}", path.display()),
            format!("make a fleet with `dogwatch fleet init`, or set {VARIABLE} to its join line or a file with it"),
        )
    })?;
    Ok(text)
}
