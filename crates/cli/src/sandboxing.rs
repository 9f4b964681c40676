//! Says before a run starts what its sandbox cannot enforce on this machine.

use crate::error::CliError;
use dogwatch_core::run::input::Input;
use dogwatch_core::settings::{Plan, SandboxMode};
use dogwatch_host::sandbox::{Support, support};

/// Returns a trouble for the record if the kernel cannot enforce all of a sandbox. With `sandbox.required` it is an
/// error.
pub fn examine(plan: &Plan) -> Result<Vec<Input>, CliError> {
    let policies = || plan.nodes.iter().map(|node| &node.settings.sandbox);
    if policies().all(|policy| policy.mode == SandboxMode::Off) {
        return Ok(Vec::new());
    }
    let support = support().unwrap_or_default();
    check(&support, policies().map(|policy| (policy.mode, policy.required)))
}

fn check(
    support: &Support,
    policies: impl Iterator<Item = (SandboxMode, bool)>,
) -> Result<Vec<Input>, CliError> {
    let mut missing = Vec::new();
    for (mode, required) in policies {
        let now = support.missing(mode);
        if required && !now.is_empty() {
            return Err(CliError::with_help(
                format!("the sandbox cannot be enforced here: {}", now.join("; ")),
                "run on a newer kernel, in a container, or without `sandbox.required`",
            ));
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
        let ask = |required| check(&old, [(SandboxMode::Strict, required)].into_iter());
        let trouble = ask(false).expect("starts");
        let detail = format!("{trouble:?}");
        assert!(detail.contains("TCP cannot be limited") && detail.contains("signals"), "{detail}");
        assert!(ask(true).is_err_and(|failure| failure.exit_code() == 2));
        let new = Support { landlock: 6, mounts: true };
        assert!(check(&new, [(SandboxMode::Strict, true)].into_iter()).is_ok_and(|notes| notes.is_empty()));
    }
}
