//! Runs the user's checks for the agent. They run in the agent's process tree, so that everything they start ends
//! with the session. Only dogwatch's own run of the checks after the session decides.

use crate::bound::within;
use crate::child::{self, BoundedTail};
use dogwatch_core::settings::Tampered;
use dogwatch_host::driver::mcp_setup::Pinned;
use dogwatch_host::fs::pins::PIN_BOUND;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

/// How long to read the rest of the output after the exit.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// The result of one check.
pub struct CheckResult {
    pub command: String,
    /// The exit status; `None` if the check timed out or could not be started.
    pub exit: Option<ExitStatus>,
    pub tail: String,
    /// The error, if the exit status is unknown.
    pub why: Option<String>,
}

impl CheckResult {
    /// Returns whether the check exited with code 0.
    pub fn passed(&self) -> bool {
        self.exit.is_some_and(|exit| exit.success())
    }
}

/// Runs one check in the work tree for at most `limit`.
pub async fn run(command: &str, work_dir: &Path, limit: Duration) -> CheckResult {
    let argv = ["sh", "-c", command].map(str::to_owned);
    let started = match child::start(&argv, work_dir, false) {
        Ok(started) => started,
        Err(error) => {
            let why = Some(format!("could not be started: {error}"));
            return CheckResult { command: command.to_owned(), exit: None, tail: String::new(), why };
        }
    };
    let tail = BoundedTail::default();
    let readers = [started.stdout, started.stderr].map(|pipe| tokio::spawn(child::drain(pipe, tail.clone())));
    let exit = within(limit + 2 * DRAIN_LIMIT, started.child.wait_at_most(limit)).await.ok().flatten();
    for reader in readers {
        let _ = within(DRAIN_LIMIT, reader).await;
    }
    let why = exit.is_none().then(|| format!("killed after {}", crate::bound::seconds(limit)));
    CheckResult { command: command.to_owned(), exit, tail: tail.text(), why }
}

/// Changes to the pinned files that the checks depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tampering {
    /// The changed files, or the reason why the comparison failed.
    pub files: Vec<String>,
    /// Whether the policy makes the checks fail because of it.
    pub fatal: bool,
    unknown: bool,
}

/// How many changed files are named.
pub const MAX_NAMED: usize = 20;
/// How long reading the pinned files may take.
pub const PINS_LIMIT: Duration = Duration::from_secs(2 * PIN_BOUND.as_secs());

impl Tampering {
    fn of(changed: Result<Vec<String>, String>, policy: Tampered) -> Tampering {
        let unknown = changed.is_err();
        let files = changed.unwrap_or_else(|why| vec![why]);
        Tampering { fatal: policy == Tampered::Fail && !files.is_empty(), files, unknown }
    }

    /// Returns the first changed files, for the record.
    pub fn named(&self) -> Vec<String> {
        self.files.iter().take(MAX_NAMED).cloned().collect()
    }

    /// Returns a message for the model; empty if no file was changed.
    pub fn message(&self) -> String {
        let more = self.files.len().saturating_sub(MAX_NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let files = self.named().join(", ");
        match (self.files.is_empty(), self.unknown, self.fatal) {
            (true, ..) => String::new(),
            (_, true, true) => format!(
                "The checks were NOT run: dogwatch cannot verify the pinned files they depend on ({files}). \
                 No check counts until it can."
            ),
            (_, true, false) => {
                format!("dogwatch cannot verify the pinned files: {files}.")
            }
            (_, false, true) => format!(
                "The checks FAIL and were not run: pinned files they depend on were changed ({files}{more}). \
                 No check counts until these files have their original content. Restore them."
            ),
            (_, false, false) => {
                format!("Pinned files were changed; the user will be notified: {files}{more}.")
            }
        }
    }
}

/// Compares the pinned files with their recorded hashes.
pub async fn find_tampering(pinned: Option<Pinned>, work_dir: &Path) -> Tampering {
    let Some(pinned) = pinned else { return Tampering::default() };
    let (policy, work_dir) = (pinned.policy, work_dir.to_owned());
    let looked = tokio::task::spawn_blocking(move || pinned.changed(&work_dir));
    let changed = match within(PINS_LIMIT, looked).await {
        Ok(Ok(changed)) => changed,
        Ok(Err(error)) => Err(error.to_string()),
        Err(late) => Err(late.to_string()),
    };
    Tampering::of(changed, policy)
}

/// Returns a summary of the results for the model.
pub fn summary(results: &[CheckResult]) -> String {
    let failed = results.iter().filter(|r| !r.passed()).count();
    let mut text = match failed {
        0 => format!("All {} checks pass.", results.len()),
        failed => format!("{failed} of {} checks fail.", results.len()),
    };
    for result in results {
        let how = match (&result.why, result.exit.and_then(|exit| exit.code())) {
            _ if result.passed() => "passes".to_owned(),
            (Some(why), _) => format!("FAILS: {why}"),
            (None, Some(code)) => format!("FAILS with exit code {code}"),
            (None, None) => "FAILS: killed by a signal".to_owned(),
        };
        text.push_str(&format!("\n\n$ {}\n{how}", result.command));
        if !result.passed() && !result.tail.is_empty() {
            text.push_str(&format!("; end of its output:\n{}", result.tail));
        }
    }
    text
}
