//! Which agents are there, and whether they answer.

use super::Finding;
use crate::loading::find_program;
use dogwatch_core::text::one_line;
use dogwatch_host::ask::{Answer, Asker};
use dogwatch_host::keeper::HowEnded;
use std::path::Path;
use std::time::Duration;

/// Those that dogwatch knows how to start and to read.
const KNOWN: [&str; 4] = ["claude", "codex", "opencode", "gemini"];

/// Node programs take half a second to say their version, on a busy machine several.
const BOUND: Duration = Duration::from_secs(5);

/// How much of a version is shown.
const MAX_SHOWN: usize = 60;

pub fn all(here: &Path) -> Vec<Finding> {
    // Side by side: each has a keeper of its own.
    let mut findings: Vec<(bool, Finding)> = std::thread::scope(|scope| {
        let asked: Vec<_> = KNOWN.iter().map(|name| scope.spawn(move || one(name, here))).collect();
        asked.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    if !findings.iter().any(|(there, _)| *there) {
        let advice = "install one of them, or give a loop any other command as its `agent:`; \
                      `dogwatch demo` needs none";
        findings.push((false, Finding::warning("agents", "none that dogwatch knows is on PATH", advice)));
    }
    findings.into_iter().map(|(_, finding)| finding).collect()
}

fn one(name: &str, here: &Path) -> (bool, Finding) {
    let Some(path) = find_program(name, here) else {
        return (false, Finding::ok(name, "not on PATH; needed only by a loop that names it"));
    };
    let shown = path.display();
    let warning = |what: String| Finding::warning(name, what, format!("run `{name} --version` yourself"));
    let finding = match version(&path.to_string_lossy(), here) {
        Ok(Answer::Said { how: HowEnded::Code(0), stdout }) => {
            Finding::ok(name, format!("{} ({shown}), preset known", one_line(&stdout, MAX_SHOWN)))
        }
        Ok(Answer::Said { how: HowEnded::Code(code), .. }) => {
            warning(format!("{shown} --version fails with exit code {code}"))
        }
        Ok(Answer::Said { how: HowEnded::Signal(signal), .. }) => {
            warning(format!("{shown} --version dies by signal {signal}"))
        }
        Ok(Answer::Refused(why)) => warning(format!("cannot be started: {why}")),
        Ok(Answer::TookTooLong) => {
            warning(format!("{shown} --version does not answer within {} s", BOUND.as_secs()))
        }
        Err(error) => warning(format!("could not be asked: {error}")),
    };
    (true, finding)
}

fn version(path: &str, here: &Path) -> std::io::Result<Answer> {
    Asker::start()?.ask(&[path, "--version"], Vec::new(), here, BOUND)
}
