//! The actor as a separate program for the tests of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    // With `actor` as the first argument it is called like `dogwatch actor`, and so are its children.
    let prefixed = std::env::args_os().nth(1).is_some_and(|word| word == "actor");
    dogwatch_actor::main(std::env::args_os().skip(if prefixed { 2 } else { 1 }))
}
