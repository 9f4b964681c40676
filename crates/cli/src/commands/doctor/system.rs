//! Checks the machine: process containment, git and the clock.

use super::Finding;
use dogwatch_core::settings::SandboxMode;
use dogwatch_core::text::one_line;
use dogwatch_host::clock;
use dogwatch_host::process::keeper::Exit;
use dogwatch_host::process::program::{Containment, ProgramResult, ProgramRunner};
use dogwatch_host::store::home;
use std::path::Path;
use std::time::Duration;

/// How long a command may take.
const BOUND: Duration = Duration::from_secs(5);

/// The oldest version of git that snapshots are tested with.
const OLDEST_GIT: (u32, u32) = (2, 20);

/// The oldest version of git that merges without a work tree.
const MERGING_GIT: (u32, u32) = (2, 38);

/// 2025-01-01 in milliseconds since 1970. A clock that shows an earlier time is wrong, because dogwatch did not exist
/// then.
const BEFORE_US: i64 = 1_735_689_600_000;

/// Checks that leftover processes cannot escape the keeper.
pub fn containment() -> Finding {
    const NAME: &str = "containment";
    let advice = "agents may leave processes behind here; use Linux 3.4 or later with /proc mounted";
    match ProgramRunner::start().and_then(|mut runner| runner.try_containment(BOUND)) {
        Ok(Containment::Holds { within }) => Finding::ok(
            NAME,
            format!(
                "subreaper: found and killed a leftover process in {:.1} ms (cgroup.kill is not used)",
                within.as_secs_f64() * 1e3
            ),
        ),
        Ok(Containment::Leaks) => Finding::problem(NAME, "a leftover process escaped", advice),
        Ok(Containment::Untried) => {
            Finding::warning(NAME, "cannot test it: no shell, or too slow", "make sure that `sh` is on PATH")
        }
        Err(error) => Finding::problem(NAME, format!("cannot start the keeper: {error}"), advice),
    }
}

/// Checks what the sandbox of sessions can enforce here.
pub fn sandbox() -> Finding {
    const NAME: &str = "sandbox";
    let support = dogwatch_host::sandbox::support().unwrap_or_default();
    let missing = support.missing(SandboxMode::Strict);
    let found = format!(
        "Landlock {}, {} user namespaces",
        support.landlock,
        if support.mounts { "with" } else { "without" }
    );
    if missing.is_empty() {
        return Finding::ok(NAME, format!("{found}: `worktree` and `strict` are enforced completely"));
    }
    Finding::warning(
        NAME,
        format!("{found}: {}", missing.join("; ")),
        "update the kernel, or run agents in a container or as another user",
    )
}

/// Checks the version of git, and whether the directory is a work tree that snapshots can cover.
pub fn git(here: &Path) -> Vec<Finding> {
    let answer = run(here, &["git", "--version"]);
    let Some(version) = answer.as_ref().ok().and_then(|text| text.strip_prefix("git version ")) else {
        let why = answer.err().unwrap_or_else(|| "`git --version` prints no version".to_owned());
        return vec![Finding::warning("git", why, "install git; snapshots need it")];
    };
    let shown = one_line(version, 40);
    let first = match numbers(version) {
        Some(numbers) if numbers < OLDEST_GIT => {
            let (major, minor) = OLDEST_GIT;
            Finding::warning(
                "git",
                shown,
                format!("update git; snapshots are tested with {major}.{minor} and later"),
            )
        }
        Some(numbers) if numbers < MERGING_GIT => {
            let (major, minor) = MERGING_GIT;
            let needs = format!(
                "graphs with `worktree: true` and `dogwatch merge` need git {major}.{minor} or later"
            );
            Finding::warning("git", shown, needs)
        }
        Some(_) | None => Finding::ok("git", shown),
    };
    vec![first, work_tree(here)]
}

fn work_tree(here: &Path) -> Finding {
    const NAME: &str = "snapshots";
    match run(here, &["git", "rev-parse", "--is-inside-work-tree"]) {
        Ok(answer) if answer.trim() == "true" => {
            Finding::ok(NAME, format!("{} is a git work tree", home::work_tree(here).display()))
        }
        Ok(_) | Err(_) => Finding::warning(
            NAME,
            "this directory is not a git work tree",
            "run `git init`, or check `git status`; snapshots need a work tree",
        ),
    }
}

/// Runs a command. Returns its output if it succeeds, and what went wrong otherwise.
fn run(here: &Path, argv: &[&str]) -> Result<String, String> {
    let env = vec![(b"LC_ALL".to_vec(), Some(b"C".to_vec()))];
    match ProgramRunner::start().and_then(|mut runner| runner.run(argv, env, here, BOUND)) {
        Ok(ProgramResult::Ended { how: Exit::Code(0), stdout }) => Ok(stdout),
        Ok(ProgramResult::Ended { how: Exit::Code(code), .. }) => Err(format!("exit code {code}")),
        Ok(ProgramResult::Ended { how: Exit::Signal(signal), .. }) => {
            Err(format!("killed by signal {signal}"))
        }
        Ok(ProgramResult::Refused(why)) => Err(why),
        Ok(ProgramResult::TimedOut) => Err(format!("no answer within {} s", BOUND.as_secs())),
        Err(error) => Err(error.to_string()),
    }
}

fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim().split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Checks that the clock is plausible.
pub fn clock() -> Finding {
    let now = clock::now();
    let advice =
        "set the clock (`timedatectl set-ntp true`); reset times, day budgets and the record depend on it";
    if now.wall.0 < BEFORE_US {
        return Finding::problem("clock", format!("the clock is wrong: {}", now.wall), advice);
    }
    Finding::ok("clock", now.wall.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(numbers("2.47.3\n"), Some((2, 47)));
        assert_eq!(numbers("2.9.0 (Apple Git-1)"), Some((2, 9)));
        assert!(numbers("2.9.0") < numbers("2.20.1"));
        assert_eq!(numbers("unknown"), None);
    }
}
