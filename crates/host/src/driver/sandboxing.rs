//! Puts a session into its sandbox.

use super::HostShell;
use super::agent_channel::McpSession;
use super::commands::plan_of;
use crate::process::keeper::EnvChange;
use crate::sandbox::{Facts, Ground, Policy, wrap};
use crate::store::home;
use dogwatch_core::Run;
use dogwatch_core::record::ids::NodeIx;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::Job;
use dogwatch_core::settings::ReaderName;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// The policies of the run's sessions, by node, reader and program. Each is decided once: what it allows must not depend on files
/// that a session has made.
#[derive(Default)]
pub(super) struct Policies(RefCell<HashMap<(NodeIx, ReaderName, String), Option<Policy>>>);

impl HostShell<'_> {
    /// Returns the command line of a session in its sandbox. Extends the environment. Without a sandbox nothing changes.
    pub(super) fn sandboxed(
        &self,
        run: &Run,
        job: Job,
        argv: Vec<String>,
        mcp: Option<&McpSession>,
        env: &mut Vec<EnvChange>,
    ) -> Result<Vec<String>, String> {
        let program = argv.first().map_or("", String::as_str);
        let mut policies = self.policies.0.borrow_mut();
        let key = (job.node, run.session(job.node).reader, program.to_owned());
        let policy = policies.entry(key).or_insert_with(|| self.policy(run, job, program)).clone();
        let Some(policy) = policy else { return Ok(argv) };
        let policy = match mcp {
            Some(session) => policy.with_channel(&session.files, &session.homes),
            None => policy,
        };
        let (argv, more) =
            wrap(&policy, argv).map_err(|error| format!("cannot prepare the sandbox: {error}"))?;
        env.extend(more);
        Ok(argv)
    }

    fn policy(&self, run: &Run, job: Job, program: &str) -> Option<Policy> {
        let home_dir = std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let home_dir = home_dir.map(|dir| dir.canonicalize().unwrap_or(dir));
        let shared = &self.paths.ground;
        // The `.git` of a node's own worktree is dogwatch's work.
        let own = self.own_tree(run, job.node).map(|tree| Ground::at(tree, shared.loop_file.clone()));
        let facts = Facts {
            reader: run.session(job.node).reader,
            program,
            ground: own.as_ref().unwrap_or(shared),
            work_dir: &self.work_dir(run, job.node),
            state_dir: &self.paths.state_dir,
            run_dir: &self.paths.run_dir,
            agent_dir: &home::agent_dir(&self.paths.run_dir, &plan_of(run, job).name),
            loop_file: &self.paths.loop_file,
            home: home_dir.as_deref(),
            env: &|name| std::env::var(name).ok(),
        };
        Policy::of(&plan_of(run, job).settings.sandbox, &facts)
    }

    /// Removes what a session must not have created, and returns a trouble about it.
    pub(super) fn remove_created(&self, node: NodeIx) -> Vec<Input> {
        let policies = self.policies.0.borrow();
        let of_node = policies.iter().filter(|((owner, _, _), _)| *owner == node);
        let created = of_node.filter_map(|(_, policy)| policy.as_ref()?.remove_created());
        let trouble = |(file, removed): (&Path, io::Result<()>)| Input::TroubleMet {
            kind: "git_redirected",
            detail: format!(
                "a session created {}, with which git uses settings and hooks from elsewhere; {}",
                file.display(),
                removed
                    .map_or_else(|error| format!("cannot remove it: {error}"), |()| "removed it".to_owned()),
            ),
        };
        created.map(trouble).collect()
    }
}
