//! Checks which agents are installed and whether they start.

use super::Finding;
use crate::loading::find_program;
use dogwatch_config::AGENTS;
use dogwatch_core::text::one_line;
use dogwatch_host::process::keeper::Exit;
use dogwatch_host::process::program::{ProgramResult, ProgramRunner};
use std::path::Path;
use std::time::Duration;

/// How long `--version` may take without using CPU time. Node.js programs need half a second, and much longer on a busy
/// machine, but they use CPU time meanwhile.
const QUIET: Duration = Duration::from_secs(5);
/// How long `--version` may take at all.
const BOUND: Duration = Duration::from_secs(60);

/// The most of a version to show, in bytes.
const MAX_SHOWN: usize = 60;

/// Checks all known agents at the same time.
pub fn all(here: &Path) -> Vec<Finding> {
    // In parallel: each agent runs under its own keeper.
    let mut findings: Vec<(bool, Finding)> = std::thread::scope(|scope| {
        let asked: Vec<_> = AGENTS.iter().map(|name| scope.spawn(move || one(name, here))).collect();
        asked.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    if !findings.iter().any(|(there, _)| *there) {
        let advice = "install one of them, or use any other command as the `agent` of a loop; \
                      `dogwatch demo` works without one";
        let names = AGENTS.join(", ");
        findings = vec![(false, Finding::warning("agents", format!("none of {names} is on PATH"), advice))];
    }
    findings.into_iter().map(|(_, finding)| finding).collect()
}

fn one(name: &str, here: &Path) -> (bool, Finding) {
    let Some(path) = find_program(name, here) else {
        return (false, Finding::ok(name, "not on PATH (needed only for loops that use it)"));
    };
    let shown = path.display();
    let warning = |what: String| Finding::warning(name, what, format!("run `{name} --version` to see why"));
    let finding = match version(&path.to_string_lossy(), here) {
        Ok(ProgramResult::Ended { how: Exit::Code(0), stdout }) => {
            Finding::ok(name, format!("{} ({shown})", one_line(&stdout, MAX_SHOWN)))
        }
        Ok(ProgramResult::Ended { how: Exit::Code(code), .. }) => {
            warning(format!("{shown} --version fails with exit code {code}"))
        }
        Ok(ProgramResult::Ended { how: Exit::Signal(signal), .. }) => {
            warning(format!("{shown} --version was killed by signal {signal}"))
        }
        Ok(ProgramResult::Refused(why)) => warning(format!("cannot start {shown}: {why}")),
        Ok(ProgramResult::TimedOut) => warning(format!(
            "{shown} --version hangs: no answer and no CPU time used for {} s, or no answer for {} s",
            QUIET.as_secs(),
            BOUND.as_secs()
        )),
        Err(error) => warning(format!("cannot run {shown} --version: {error}")),
    };
    (true, finding)
}

fn version(path: &str, here: &Path) -> std::io::Result<ProgramResult> {
    ProgramRunner::start()?.run_while_busy(&[path, "--version"], here, QUIET, BOUND)
}
