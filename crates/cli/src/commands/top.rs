use crate::error::Failure;
use crate::top;

/// Look at all runs of this machine, live
///
/// An overview with a line for each run, and a page for each with its lanes of evidence, its events and the
/// evidence of its verdicts. Keys wake, pause and stop; `?` shows all of them.
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: &Args) -> Result<u8, Failure> {
    top::run()
}
