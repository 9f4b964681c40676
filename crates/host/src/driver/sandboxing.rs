//! Puts a session into its sandbox.

use super::HostShell;
use super::agent_channel::McpSession;
use super::commands::plan_of;
use crate::process::keeper::EnvChange;
use crate::sandbox::{Facts, Policy, wrap};
use crate::store::home;
use dogwatch_core::Run;
use dogwatch_core::run::job::Job;
use std::path::PathBuf;

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
        let work_dir = self.work_dir(run, job.node);
        let agent_dir = home::agent_dir(&self.paths.run_dir, &plan_of(run, job).name);
        let home_dir = std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let facts = Facts {
            reader: run.session(job.node).reader,
            program: argv.first().map_or("", String::as_str),
            work_tree: &home::work_tree(&work_dir),
            work_dir: &work_dir,
            state_dir: &self.paths.state_dir,
            run_dir: &self.paths.run_dir,
            agent_dir: &agent_dir,
            loop_file: &self.paths.loop_file,
            setup: mcp.map_or(&[], |session| &session.files),
            homes: mcp.map_or(&[], |session| &session.homes),
            home: home_dir.as_deref(),
            env: &|name| std::env::var(name).ok(),
        };
        let Some(policy) = Policy::of(&plan_of(run, job).settings.sandbox, &facts) else { return Ok(argv) };
        let (argv, more) =
            wrap(&policy, argv).map_err(|error| format!("cannot prepare the sandbox: {error}"))?;
        env.extend(more);
        Ok(argv)
    }
}
