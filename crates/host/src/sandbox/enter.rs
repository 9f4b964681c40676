//! Applies a policy to this process, which then becomes the agent.

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

/// The name of this part of dogwatch, for the keeper. As the first argument of the binary it reports what this machine
/// supports.
pub const ARGUMENT: &str = "sandboxed";

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
    let output = command.arg(ARGUMENT).stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace();
    let landlock = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    Ok(Support { landlock, mounts: words.next() == Some("mounts") })
}

/// Enters the sandbox and becomes the agent. The arguments are the policy and the command line of the agent. Returns an
/// exit code if the agent cannot be started.
pub fn become_agent(mut args: impl Iterator<Item = OsString>) -> u8 {
    let policy = args.next().and_then(|text| serde_json::from_str::<Policy>(text.to_str()?).ok());
    let (Some(policy), Some(program)) = (policy, args.next()) else {
        return fail(CANNOT_EXECUTE, "the sandbox policy is missing or invalid");
    };
    if let Err(why) = enter(&policy) {
        return fail(CANNOT_EXECUTE, &why);
    }
    let error = Command::new(&program).args(args).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE };
    fail(code, &format!("cannot start {}: {error}", Path::new(&program).display()))
}

fn fail(code: u8, why: &str) -> u8 {
    let _ = writeln!(io::stderr(), "dogwatch: sandbox: {why}");
    code
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

/// Prints what this machine supports, for [`support`].
pub fn probe() -> ExitCode {
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
