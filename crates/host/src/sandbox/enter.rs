//! Applies a policy to this process, which then becomes the agent.

use super::mounts;
use super::policy::Policy;
use crate::process::keeper::{DEFAULT_PATH, missing_interpreter};
use crate::sys::restrict_self;
use dogwatch_core::settings::SandboxMode;
use dogwatch_core::text::without_error_numbers;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, NetPort, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope, path_beneath_rules,
};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
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

/// Asks a process of its own what this machine supports in the current directory, because the answer changes the
/// process.
pub fn support() -> io::Result<Support> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.arg(ARGUMENT).stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace();
    let landlock = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    Ok(Support { landlock, mounts: words.next() == Some("mounts") })
}

/// A session that is ready to be started in its sandbox.
///
/// The keeper prepares it before it forks: in the new process each of these steps would also fault in the pages that
/// it needs, which takes longer than the steps themselves.
#[derive(Debug)]
pub struct Sandboxed {
    policy: Policy,
    program: OsString,
    args: Vec<OsString>,
    rules: Rules,
}

/// The rules of Landlock for a session.
#[derive(Debug)]
struct Rules {
    /// The ruleset, unless the kernel knows nothing about Landlock.
    ruleset: Option<OwnedFd>,
    /// Whether the kernel enforces all of them.
    complete: bool,
}

impl Sandboxed {
    /// Prepares a session. The arguments are the policy and the command line of the agent. Returns an exit code and the
    /// reason if there is nothing to start.
    pub fn prepare(mut args: impl Iterator<Item = OsString>) -> Result<Sandboxed, (u8, String)> {
        let policy = args.next().and_then(|text| serde_json::from_str::<Policy>(text.to_str()?).ok());
        let (Some(policy), Some(program)) = (policy, args.next()) else {
            return Err((CANNOT_EXECUTE, "the sandbox policy is missing or invalid".to_owned()));
        };
        let rules =
            rules(&policy).map_err(|error| (CANNOT_EXECUTE, format!("cannot apply Landlock: {error}")))?;
        Ok(Sandboxed { policy, program, args: args.collect(), rules })
    }

    /// Returns the descriptor that the new process needs until it has become the agent.
    pub fn ruleset(&self) -> Option<BorrowedFd<'_>> {
        self.rules.ruleset.as_ref().map(AsFd::as_fd)
    }

    /// Enters the sandbox and becomes the agent. Returns an exit code if the agent cannot be started.
    pub fn become_agent(&self) -> u8 {
        if let Err(why) = self.enter() {
            return fail(CANNOT_EXECUTE, &why);
        }
        let error = Command::new(&self.program).args(&self.args).exec();
        let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE };
        let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        let missing = (code == NOT_FOUND)
            .then(|| missing_interpreter(self.program.as_bytes(), path.as_bytes(), Path::new(".")));
        let about = missing.flatten().map_or_else(String::new, |interpreter| format!("{interpreter}: "));
        fail(code, &format!("cannot start {}: {about}{error}", Path::new(&self.program).display()))
    }

    /// Applies the policy to this process. Without `required` it enforces what the kernel can.
    fn enter(&self) -> Result<(), String> {
        let Sandboxed { policy, rules, .. } = self;
        if policy.required && !rules.complete {
            return Err("the kernel cannot enforce all of it, and `sandbox.required` is set".to_owned());
        }
        let here = std::env::current_dir();
        let protected = |error: io::Error| format!("cannot protect files of dogwatch: {error}");
        match mounts::separate() {
            // A machine that does not allow it was reported before the run started.
            Err(error) if policy.required => return Err(protected(error)),
            Err(_) => {}
            Ok(()) => {
                mounts::protect(&policy.protect, &policy.write).map_err(protected)?;
                // The current directory may be below a new mount, which hides it from relative paths.
                here.and_then(std::env::set_current_dir)
                    .map_err(|e| format!("cannot enter the work tree: {e}"))?;
            }
        }
        match &rules.ruleset {
            Some(ruleset) => {
                restrict_self(ruleset.as_fd()).map_err(|e| format!("cannot apply Landlock: {e}"))
            }
            None => Ok(()),
        }
    }
}

/// Prints why a session cannot be started, and returns the exit code.
pub fn fail(code: u8, why: &str) -> u8 {
    let _ = writeln!(io::stderr(), "dogwatch: sandbox: {}", without_error_numbers(why));
    code
}

/// Creates the rules of a session. Rules name files, not mounts, so they hold in the mount table of the session too.
fn rules(policy: &Policy) -> Result<Rules, landlock::RulesetError> {
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
        .add_rules(path_beneath_rules(distinct(read), AccessFs::from_read(NEWEST)))?
        .add_rules(path_beneath_rules(["/dev"], devices))?
        .add_rules(path_beneath_rules(distinct(&policy.write), AccessFs::from_all(NEWEST)))?;
    if strict {
        for port in &policy.ports {
            created = created.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
        }
    }
    let ruleset: Option<OwnedFd> = created.into();
    let complete = ruleset.is_some() && is_supported(6);
    Ok(Rules { ruleset, complete })
}

/// Returns each path once.
fn distinct(paths: &[PathBuf]) -> BTreeSet<&PathBuf> {
    paths.iter().collect()
}

/// Prints what this machine supports, for [`support`].
pub fn probe() -> ExitCode {
    let landlock = (1_u32..=6).rev().find(|version| is_supported(*version)).unwrap_or(0);
    // Where a run works, because file systems differ.
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let mounts = mounts::separate().and_then(|()| mounts::protect(&[here], &[]));
    let mounts = if mounts.is_ok() { "mounts" } else { "none" };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_started_is_refused_before_a_process_is_made() {
        for args in [&[][..], &["{}"], &["not json", "true"]] {
            let prepared = Sandboxed::prepare(args.iter().map(OsString::from));
            assert!(prepared.is_err_and(|(code, _)| code == CANNOT_EXECUTE), "{args:?}");
        }
    }
}
