use crate::error::Failure;

/// Print the manual page
///
/// View it with `dogwatch man | man -l -`.
#[derive(clap::Args)]
pub struct Args {}

/// Runs `dogwatch man` and returns the exit code.
pub fn run(_: &Args) -> Result<u8, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(crate::command_line())
        .render(&mut page)
        .map_err(|e| Failure::internal(format!("cannot generate the manual page: {e}")))?;
    super::print(&page)
}
