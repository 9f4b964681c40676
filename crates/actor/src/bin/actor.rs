//! The actor alone, without `dogwatch` around it: what this crate's own tests start.

use std::process::ExitCode;

fn main() -> ExitCode {
    dogwatch_actor::main(std::env::args_os().skip(1))
}
