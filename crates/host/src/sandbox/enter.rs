//! The role that applies a policy to itself and becomes the agent.

use super::mounts;
use super::policy::Policy;
use dogwatch_core::settings::SandboxMode;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, NetPort, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The argument that selects this role.
pub const ARGUMENT: &str = "sandboxed";
/// The argument after it that only reports what this machine supports.
pub const PROBE: &str = "--probe";
/// The variable that holds the policy. The agent does not see it.
pub const POLICY_VAR: &str = "DOGWATCH_SANDBOX";

/// The exit codes of a shell for a program that cannot be executed, and for one that does not exist.
const CANNOT_EXECUTE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The newest version of Landlock whose limits are used.
const NEWEST: ABI = ABI::V6;

/// What this machine can enforce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Support {
    /// The version of Landlock, 0 without it. Version 4 limits TCP and version 6 signals.
    pub landlock: u32,
    /// Whether paths inside the work tree can be made read-only.
    pub mounts: bool,
}

impl Support {
    /// Returns what cannot be enforced in a mode, in words. Nothing is missing if the list is empty.
    pub fn missing(&self, mode: SandboxMode) -> Vec<&'static str> {
        let strict = mode == SandboxMode::Strict;
        let needs = [
            (
                mode != SandboxMode::Off && self.landlock < 3,
                "writing cannot be limited (Landlock 3, Linux 6.2)",
            ),
            (strict && self.landlock < 4, "TCP cannot be limited (Landlock 4, Linux 6.7)"),
            (
                mode != SandboxMode::Off && self.landlock < 6,
                "signals cannot be limited (Landlock 6, Linux 6.12)",
            ),
            (
                mode != SandboxMode::Off && !self.mounts,
                "the record, git hooks and the loop file cannot be made read-only (no user namespaces)",
            ),
        ];
        needs.into_iter().filter(|(missing, _)| *missing).map(|(_, what)| what).collect()
    }
}

/// Asks a process of its own what this machine supports, because the answer changes the process.
pub fn support() -> io::Result<Support> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.args([ARGUMENT, PROBE]).stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace();
    let landlock = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    Ok(Support { landlock, mounts: words.next() == Some("mounts") })
}

/// Runs this role. Returns only if the agent cannot be started.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(program) = args.next() else { return fail(CANNOT_EXECUTE, "no program given") };
    if program == PROBE {
        return probe();
    }
    let policy = std::env::var(POLICY_VAR).ok().and_then(|text| serde_json::from_str::<Policy>(&text).ok());
    let Some(policy) = policy else {
        return fail(CANNOT_EXECUTE, "the sandbox policy is missing or invalid");
    };
    if let Err(why) = enter(&policy) {
        return fail(CANNOT_EXECUTE, &why);
    }
    let error = Command::new(&program).args(args).env_remove(POLICY_VAR).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE };
    fail(code, &format!("cannot start {}: {error}", Path::new(&program).display()))
}

fn fail(code: u8, why: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "dogwatch: sandbox: {why}");
    ExitCode::from(code)
}

/// Applies the policy to this process. Without `required` it enforces what the kernel can.
fn enter(policy: &Policy) -> Result<(), String> {
    let here = std::env::current_dir();
    match mounts::protect(&policy.protect, &policy.write) {
        Err(error) if policy.required => return Err(format!("cannot protect files of dogwatch: {error}")),
        // The current directory may be below a new mount, which hides it from relative paths.
        Ok(()) => here
            .and_then(std::env::set_current_dir)
            .map_err(|e| format!("cannot enter the work tree: {e}"))?,
        Err(_) => {}
    }
    let status = restrict(policy).map_err(|error| format!("cannot apply Landlock: {error}"))?;
    match status {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced if policy.required => {
            Err("the kernel cannot enforce all of it, and `sandbox.required` is set".to_owned())
        }
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => Ok(()),
    }
}

fn restrict(policy: &Policy) -> Result<RulesetStatus, landlock::RulesetError> {
    let strict = policy.mode == SandboxMode::Strict;
    let mut ruleset = Ruleset::default().handle_access(AccessFs::from_all(NEWEST))?;
    if strict {
        ruleset = ruleset.handle_access(AccessNet::ConnectTcp)?;
    }
    let everything = [PathBuf::from("/")];
    let read: &[PathBuf] = if strict { &policy.read } else { &everything };
    let devices = AccessFs::from_file(NEWEST) | AccessFs::ReadDir;
    let mut created = ruleset
        .scope(Scope::from_all(NEWEST))?
        .create()?
        .add_rules(path_beneath_rules(read, AccessFs::from_read(NEWEST)))?
        .add_rules(path_beneath_rules(["/dev"], devices))?
        .add_rules(path_beneath_rules(&policy.write, AccessFs::from_all(NEWEST)))?;
    if strict {
        for port in &policy.ports {
            created = created.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
        }
    }
    Ok(created.restrict_self()?.ruleset)
}

fn probe() -> ExitCode {
    let landlock = (1_u32..=6).rev().find(|version| is_supported(*version)).unwrap_or(0);
    let dir = std::env::temp_dir();
    let mounts = if mounts::protect(&[dir], &[]).is_ok() { "mounts" } else { "none" };
    let _ = writeln!(io::stdout(), "{landlock} {mounts}");
    ExitCode::SUCCESS
}

/// Returns whether the kernel supports this version of Landlock.
fn is_supported(version: u32) -> bool {
    let hard = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let files = |abi| hard().handle_access(AccessFs::from_all(abi)).and_then(Ruleset::create).is_ok();
    match version {
        6 => hard().scope(Scope::from_all(ABI::V6)).and_then(Ruleset::create).is_ok(),
        5 => files(ABI::V5),
        4 => hard().handle_access(AccessNet::from_all(ABI::V4)).and_then(Ruleset::create).is_ok(),
        3 => files(ABI::V3),
        2 => files(ABI::V2),
        _ => files(ABI::V1),
    }
}
