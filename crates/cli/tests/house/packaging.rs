//! Checks what the packages say about dogwatch.

use crate::{read, root};
use std::process::Command;

#[test]
fn every_package_has_the_description_of_the_help() {
    let [about, long] = ["-h", "--help"].map(|flag| {
        let help = Command::new(env!("CARGO_BIN_EXE_dogwatch")).arg(flag).output().expect("it runs");
        String::from_utf8_lossy(&help.stdout).lines().next().expect("a first line").to_owned()
    });
    assert_eq!(about, long);
    for (file, name) in [
        ("crates/cli/Cargo.toml", "description = "),
        ("flake.nix", "description = "),
        ("packaging/homebrew/dogwatch.rb", "desc "),
    ] {
        let line = format!("{name}\"{about}\"");
        assert!(read(&root().join(file)).contains(&line), "{file} has no {line}");
    }
}
