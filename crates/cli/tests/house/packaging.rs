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

#[test]
fn the_commit_of_a_build_may_be_marked_as_changed() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("build");
    let built = Command::new("rustc")
        .args(["--edition", "2024", "-o"])
        .arg(&script)
        .arg(root().join("crates/cli/build.rs"))
        .status()
        .expect("rustc is installed");
    assert!(built.success());
    for (given, wanted) in [
        ("0123abcdef", "0123abcdef"),
        ("0123abcdef-modified", "0123abcdef-modified"),
        ("0123abc-dirty", "0123abc-dirty"),
        ("0123abcdef-mine", "unknown"),
        ("-modified", "unknown"),
    ] {
        let out = dir.path().join("debug/build/x");
        let done = Command::new(&script).env("DOGWATCH_COMMIT", given).env("OUT_DIR", out).output();
        let text = String::from_utf8(done.expect("it runs").stdout).expect("UTF-8");
        let line = format!("cargo:rustc-env=DOGWATCH_BUILD_COMMIT={wanted}");
        assert!(text.lines().any(|found| found == line), "{given}: {text}");
    }
}

fn release_workflow() -> String {
    read(&root().join(".github/workflows/release.yml"))
}

#[test]
fn every_action_of_the_release_is_pinned_to_a_commit() {
    let workflow = release_workflow();
    let actions: Vec<&str> =
        workflow.lines().filter_map(|line| line.split_once("uses: ")).map(|(_, it)| it).collect();
    assert!(actions.len() >= 6, "{actions:?}");
    for action in actions {
        let commit =
            action.split_once('@').and_then(|(_, at)| at.split_once(" # v")).map(|(commit, _)| commit);
        let is_hash = |text: &str| text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(commit.is_some_and(is_hash), "{action}");
    }
}

/// Returns the script of a step of the release.
fn release_step(name: &str) -> String {
    let workflow = release_workflow();
    let step = workflow.split(&format!("- name: {name}\n")).nth(1).expect("the step");
    let script = step.split("run: |\n").nth(1).expect("a script");
    script
        .lines()
        .take_while(|line| line.starts_with("          "))
        .fold(String::new(), |all, line| all + line + "\n")
}

#[test]
fn a_release_publishes_only_the_npm_packages_that_are_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let npm = "#!/bin/sh\necho \"$@\" >> log\nif [ $1 = view ]; then grep -xF \"$2\" published; fi\n";
    std::fs::write(dir.path().join("npm"), npm).expect("writes");
    std::fs::create_dir(dir.path().join("packages")).expect("a directory");
    for name in
        ["dogwatch-linux-x64-0.1.0.tgz", "dogwatch-0.1.0.tgz", "dogwatch-0.1.0-x86_64-linux-gnu.tar.gz"]
    {
        std::fs::write(dir.path().join("packages").join(name), "").expect("writes");
    }
    let script = format!("chmod +x npm; PATH=$PWD:$PATH\n{}", release_step("npm"));
    let views = "view dogwatch-linux-x64@0.1.0 version\n";
    let platform = "publish --access public ./packages/dogwatch-linux-x64-0.1.0.tgz\n";
    let main = "view dogwatch@0.1.0 version\npublish --access public ./packages/dogwatch-0.1.0.tgz\n";
    for (published, calls) in
        [("", format!("{views}{platform}{main}")), ("dogwatch-linux-x64@0.1.0\n", format!("{views}{main}"))]
    {
        std::fs::write(dir.path().join("published"), published).expect("writes");
        std::fs::write(dir.path().join("log"), "").expect("writes");
        let done =
            Command::new("bash").args(["-eo", "pipefail", "-c", &script]).current_dir(dir.path()).output();
        let done = done.expect("bash is installed");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(read(&dir.path().join("log")), calls);
    }
}
