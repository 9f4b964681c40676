//! The actor alone, without `dogwatch` around it: what this crate's own tests start.

use std::process::ExitCode;

fn main() -> ExitCode {
    // With `actor` as first word it is called as `dogwatch actor` is; the children must be so too.
    let prefixed = std::env::args_os().nth(1).is_some_and(|word| word == "actor");
    dogwatch_actor::main(std::env::args_os().skip(if prefixed { 2 } else { 1 }))
}
