//! Reports a test that cannot run here, because a test that returns early looks like one that passed.

use std::io::Write;

/// Prints why a test cannot run, and adds it to the list that `scripts/test` prints at the end.
pub fn skip(why: &str) {
    // nextest names the test on the command line, the standard runner names the thread.
    let named = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let test = named.or_else(|| std::thread::current().name().map(str::to_owned)).unwrap_or_default();
    eprintln!("skipped: {test}: {why}");
    let Some(list) = std::env::var_os("DOGWATCH_SKIPPED") else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(list);
    file.and_then(|mut file| writeln!(file, "{test}: {why}")).expect("the list can be written");
}
