//! Prepares the agent channel of a session.

use super::HostShell;
use crate::driver::mcp_setup::{self, Pinned, Place, SessionSetup};
use dogwatch_agents::Launch;
use dogwatch_core::Run;
use dogwatch_core::record::ids::NodeIx;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::Job;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The MCP setup of a session. Its files are removed when it is dropped.
pub(super) struct McpSession {
    pub token: String,
    /// Files that the agent reads.
    pub files: Vec<PathBuf>,
    /// Home directories that the agent's CLI reads and writes.
    pub homes: Vec<PathBuf>,
}

impl McpSession {
    /// Takes over the prepared setup.
    pub fn new(step: SessionSetup) -> McpSession {
        McpSession { token: step.token, files: step.files, homes: step.homes }
    }
}

impl Drop for McpSession {
    fn drop(&mut self) {
        for file in &self.files {
            // A file that cannot be removed is harmless: its token is no longer valid.
            let _ = std::fs::remove_file(file);
        }
        self.homes.iter().for_each(|home| mcp_setup::remove_home(home));
    }
}

/// The session files of the run's nodes. They stay until the end of the run, because creating and removing a file for each
/// session takes longer than everything else that dogwatch does for it. The token in a file is void once its session has ended.
#[derive(Default)]
pub(super) struct SessionFiles(RefCell<BTreeSet<PathBuf>>);

impl Drop for SessionFiles {
    fn drop(&mut self) {
        for file in self.0.get_mut().iter() {
            let _ = std::fs::remove_file(file);
        }
    }
}

impl HostShell<'_> {
    /// Prepares the MCP setup of a session, if its node has MCP enabled. The session runs without it if this fails.
    pub(super) fn session_setup(
        &self,
        run: &Run,
        job: Job,
        agent: &[String],
        launch: &Launch,
        inputs: &mut Vec<Input>,
    ) -> Option<SessionSetup> {
        let work_dir = self.work_dir(run, job.node);
        let node = &run.plan().nodes[job.node.0];
        if !node.settings.mcp.enabled {
            return None;
        }
        let place = Place {
            run: &self.paths.run_id,
            run_dir: &self.paths.run_dir,
            work_dir: &work_dir,
            node: &node.name,
            iteration: job.iteration,
            pinned: self.pinned(run, job.node),
        };
        let file = place.session_file();
        let step = match mcp_setup::prepare(place, &node.settings, agent, launch) {
            Ok(step) => step,
            Err(error) => {
                inputs.push(mcp_not_injected(&format!("{}: {error}", file.display())));
                return None;
            }
        };
        self.session_files.0.borrow_mut().insert(file);
        if let Some(why) = &step.not_injected {
            inputs.push(mcp_not_injected(why));
        }
        Some(step)
    }

    /// Returns the pinned files of a node, so that its agent can run the checks itself.
    fn pinned(&self, run: &Run, ix: NodeIx) -> Option<Pinned> {
        let policy = &run.plan().nodes[ix.0].settings.checks;
        let files = run.view().node(ix).attempts.pins.clone().unwrap_or_default();
        if files.is_empty() && policy.pin.is_empty() {
            return None;
        }
        let state_dirs = self.state_dirs(run, ix);
        Some(Pinned { globs: policy.pin.clone(), files, state_dirs, policy: policy.tampered })
    }
}

fn mcp_not_injected(why: &str) -> Input {
    let detail = format!("the agent runs without dogwatch's MCP server: {why}");
    Input::TroubleMet { kind: "mcp_not_injected", detail }
}
