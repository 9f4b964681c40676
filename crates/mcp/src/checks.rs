//! The user's checks, run for the agent: in its own process tree, so that whatever they start ends with the
//! session. What decides is dogwatch's own run of them after the session.

use crate::bound::within;
use crate::child::{self, Tail};
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

/// After the exit, for the rest of the output to be read.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// What came of one check.
pub struct Checked {
    pub command: String,
    /// As a shell says it; none if it took too long or could not be started.
    pub exit: Option<ExitStatus>,
    pub tail: String,
    pub why: Option<String>,
}

impl Checked {
    pub fn passed(&self) -> bool {
        self.exit.is_some_and(|exit| exit.success())
    }
}

/// Runs one check in the work tree.
pub async fn run(command: &str, work_dir: &Path, limit: Duration) -> Checked {
    let argv = ["sh", "-c", command].map(str::to_owned);
    let started = match child::start(&argv, work_dir, false) {
        Ok(started) => started,
        Err(error) => {
            let why = Some(format!("could not be started: {error}"));
            return Checked { command: command.to_owned(), exit: None, tail: String::new(), why };
        }
    };
    let tail = Tail::default();
    let readers = [started.stdout, started.stderr].map(|pipe| tokio::spawn(child::drain(pipe, tail.clone())));
    let exit = within(limit + 2 * DRAIN_LIMIT, started.child.end_within(limit)).await.ok().flatten();
    for reader in readers {
        let _ = within(DRAIN_LIMIT, reader).await;
    }
    let why = exit.is_none().then(|| format!("ended after {}", crate::bound::seconds(limit)));
    Checked { command: command.to_owned(), exit, tail: tail.text(), why }
}

/// The results, for a model to read.
pub fn tell(results: &[Checked]) -> String {
    let failed = results.iter().filter(|r| !r.passed()).count();
    let mut text = match failed {
        0 => format!("All {} checks pass.", results.len()),
        failed => format!("{failed} of {} checks fail.", results.len()),
    };
    for result in results {
        let how = match (&result.why, result.exit.and_then(|exit| exit.code())) {
            _ if result.passed() => "passes".to_owned(),
            (Some(why), _) => format!("FAILS, {why}"),
            (None, Some(code)) => format!("FAILS with exit code {code}"),
            (None, None) => "FAILS by a signal".to_owned(),
        };
        text.push_str(&format!("\n\n$ {}\n{how}", result.command));
        if !result.passed() && !result.tail.is_empty() {
            text.push_str(&format!(", and prints at the end:\n{}", result.tail));
        }
    }
    text
}
