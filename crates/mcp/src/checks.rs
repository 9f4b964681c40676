//! The user's checks, run for the agent: in its own process tree, so that whatever they start ends with the
//! session. What decides is dogwatch's own run of them after the session.

use crate::bound::within;
use crate::child::{self, Tail};
use dogwatch_core::settings::Tampered;
use dogwatch_host::door::Pinned;
use dogwatch_host::pins::PIN_BOUND;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

/// After the exit, for the rest of the output to be read.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// What came of one check.
pub struct CheckResult {
    pub command: String,
    /// As a shell says it; none if it took too long or could not be started.
    pub exit: Option<ExitStatus>,
    pub tail: String,
    pub why: Option<String>,
}

impl CheckResult {
    pub fn passed(&self) -> bool {
        self.exit.is_some_and(|exit| exit.success())
    }
}

/// Runs one check in the work tree.
pub async fn run(command: &str, work_dir: &Path, limit: Duration) -> CheckResult {
    let argv = ["sh", "-c", command].map(str::to_owned);
    let started = match child::start(&argv, work_dir, false) {
        Ok(started) => started,
        Err(error) => {
            let why = Some(format!("could not be started: {error}"));
            return CheckResult { command: command.to_owned(), exit: None, tail: String::new(), why };
        }
    };
    let tail = Tail::default();
    let readers = [started.stdout, started.stderr].map(|pipe| tokio::spawn(child::drain(pipe, tail.clone())));
    let exit = within(limit + 2 * DRAIN_LIMIT, started.child.wait_at_most(limit)).await.ok().flatten();
    for reader in readers {
        let _ = within(DRAIN_LIMIT, reader).await;
    }
    let why = exit.is_none().then(|| format!("ended after {}", crate::bound::seconds(limit)));
    CheckResult { command: command.to_owned(), exit, tail: tail.text(), why }
}

/// What became of the files that the checks rest on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tampering {
    /// Those that are not what they were, or why that cannot be told.
    pub files: Vec<String>,
    /// Nothing that the checks would say counts.
    pub fatal: bool,
    unknown: bool,
}

/// So many changed files are named.
pub const MAX_NAMED: usize = 20;
/// For the files to be read.
pub const PINS_LIMIT: Duration = Duration::from_secs(2 * PIN_BOUND.as_secs());

impl Tampering {
    fn of(changed: Result<Vec<String>, String>, policy: Tampered) -> Tampering {
        let unknown = changed.is_err();
        let files = changed.unwrap_or_else(|why| vec![why]);
        Tampering { fatal: policy == Tampered::Fail && !files.is_empty(), files, unknown }
    }

    /// The first of them, for the record.
    pub fn named(&self) -> Vec<String> {
        self.files.iter().take(MAX_NAMED).cloned().collect()
    }

    /// For a model to read; nothing if nothing was changed.
    pub fn message(&self) -> String {
        let more = self.files.len().saturating_sub(MAX_NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let files = self.named().join(", ");
        match (self.files.is_empty(), self.unknown, self.fatal) {
            (true, ..) => String::new(),
            (_, true, true) => format!(
                "The checks were NOT run: whether the files that they rest on are what they were cannot be told \
                 ({files}), and without that no check counts."
            ),
            (_, true, false) => {
                format!("Whether the pinned files are what they were cannot be told: {files}.")
            }
            (_, false, true) => format!(
                "The checks FAIL and were not run: files that they rest on were changed ({files}{more}). These \
                 are pinned; no check counts until they are as they were when the work began. Restore them."
            ),
            (_, false, false) => format!("Pinned files were changed, which the user is told: {files}{more}."),
        }
    }
}

/// Looks whether the files that the checks rest on are what they were.
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

/// The results, for a model to read.
pub fn summary(results: &[CheckResult]) -> String {
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
