//! Says before a run starts what its sandbox cannot enforce on this machine.

use crate::error::CliError;
use dogwatch_core::run::input::Input;
use dogwatch_core::settings::{Plan, SandboxMode};
use dogwatch_host::sandbox::{GitDir, GitPlace, Ground, Support, support};

/// Returns a trouble for the record if not all of a sandbox can be enforced. With `sandbox.required` it is an error.
pub fn examine(plan: &Plan, ground: &Ground) -> Result<Vec<Input>, CliError> {
    let policies = || plan.nodes.iter().map(|node| &node.settings.sandbox);
    if policies().all(|policy| policy.mode == SandboxMode::Off) {
        return Ok(Vec::new());
    }
    let support = support().unwrap_or_default();
    let policies = policies().map(|policy| (policy.mode, policy.required));
    let redirected =
        ground.git.as_ref().filter(|git| git.is_redirected).map(|git| {
            format!("git uses settings and hooks from where {} leads", git.redirection().display())
        });
    let mut notes = check(&support, redirected, policies)?;
    notes.extend(ground.git.as_ref().filter(|git| git.place == GitPlace::Unknown).map(not_writable));
    Ok(notes)
}

fn not_writable(git: &GitDir) -> Input {
    let message = format!(
        "sessions cannot commit: {} may belong to another work tree; if it does not, add it to `sandbox.write`",
        git.own.display()
    );
    Input::Noticed { kind: "sandbox_git", message }
}

fn check(
    support: &Support,
    redirected: Option<String>,
    policies: impl Iterator<Item = (SandboxMode, bool)>,
) -> Result<Vec<Input>, CliError> {
    let mut missing: Vec<String> = Vec::new();
    for (mode, required) in policies {
        let mut now: Vec<String> = support.missing(mode).into_iter().map(str::to_owned).collect();
        let help = match now.is_empty() {
            true => "remove the file: git creates it only for linked worktrees",
            false => "run on a newer kernel, in a container, or without `sandbox.required`",
        };
        now.extend(redirected.iter().filter(|_| mode != SandboxMode::Off).cloned());
        if required && !now.is_empty() {
            let message = format!("the sandbox cannot be enforced here: {}", now.join("; "));
            return Err(CliError::with_help(message, help));
        }
        missing.extend(now.into_iter().filter(|what| !missing.contains(what)).collect::<Vec<_>>());
    }
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let detail = format!("the sandbox is not complete: {}", missing.join("; "));
    Ok(vec![Input::TroubleMet { kind: "sandbox_incomplete", detail }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kernel_is_trouble_and_refused_if_the_sandbox_is_required() {
        let old = Support { landlock: 3, mounts: true };
        let ask = |required| check(&old, None, [(SandboxMode::Strict, required)].into_iter());
        let trouble = ask(false).expect("starts");
        let detail = format!("{trouble:?}");
        assert!(detail.contains("TCP cannot be limited") && detail.contains("signals"), "{detail}");
        assert!(ask(true).is_err_and(|failure| failure.exit_code() == 2));
        let new = Support { landlock: 6, mounts: true };
        let strict = || [(SandboxMode::Strict, true)].into_iter();
        assert!(check(&new, None, strict()).is_ok_and(|notes| notes.is_empty()));
        assert!(check(&new, Some("git reads elsewhere".to_owned()), strict()).is_err());
    }
}
