//! Requests that an agent sends during its session: which ones are accepted, and how they are answered.

use super::Driver;
use super::slots::Slot;
use crate::clock;
use crate::driver::inbox::{ChannelError, Reply};
use crate::driver::mcp_setup::{self, Pinned, Place, SessionSetup};
use dogwatch_agents::Launch;
use dogwatch_core::record::ids::NodeIx;
use dogwatch_core::run::agent_channel::{AgentChannel, AgentRequest, AgentResponse, Handled};
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::{Job, Marker};
use std::path::{Path, PathBuf};

/// The MCP setup of a running session.
pub(super) struct McpSession {
    token: String,
    channel: AgentChannel,
    /// Removed when the session ends.
    files: Vec<PathBuf>,
    homes: Vec<PathBuf>,
}

impl McpSession {
    /// Creates the channel of `job` from its prepared setup.
    pub fn new(job: Job, step: SessionSetup) -> McpSession {
        McpSession {
            token: step.token,
            channel: AgentChannel::new(job),
            files: step.files,
            homes: step.homes,
        }
    }

    /// Returns the observation that the channel holds back, if any.
    pub fn flush(&mut self, job: Job) -> Option<Input> {
        self.channel.flush(clock::awake()).map(|seen| Input::Observed { job, seen })
    }

    /// Ends the session: removes its files and returns the state that the agent reported last.
    pub fn close(self) -> Option<Marker> {
        for file in &self.files {
            // A file that cannot be removed is harmless: its token is no longer valid.
            let _ = std::fs::remove_file(file);
        }
        self.homes.iter().for_each(|home| mcp_setup::remove_home(home));
        self.channel.marker().cloned()
    }
}

impl Driver<'_> {
    /// Prepares the MCP setup of a session, if its node has MCP enabled. The session runs without it if this fails.
    pub(super) fn session_setup(
        &mut self,
        job: Job,
        agent: &[String],
        launch: &Launch,
        dir: &Path,
    ) -> Option<SessionSetup> {
        let work_dir = self.work_dir(job.node);
        let node = &self.run.plan().nodes[job.node.0];
        if !node.settings.mcp.enabled {
            return None;
        }
        let place = Place {
            run: &self.setup.run_id,
            run_dir: &self.setup.run_dir,
            work_dir: &work_dir,
            iteration_dir: dir,
            node: &node.name,
            iteration: job.iteration,
            pinned: self.pinned(job.node),
        };
        let step = match mcp_setup::prepare(place, &node.settings, agent, launch) {
            Ok(step) => step,
            Err(error) => {
                self.mcp_not_injected(format!("{}: {error}", dir.join(mcp_setup::FILE).display()));
                return None;
            }
        };
        if let Some(why) = &step.not_injected {
            self.mcp_not_injected(why.clone());
        }
        Some(step)
    }

    /// Returns the pinned files of a node, so that its agent can run the checks itself.
    fn pinned(&self, ix: NodeIx) -> Option<Pinned> {
        let policy = &self.run.plan().nodes[ix.0].settings.checks;
        let files = self.run.view().node(ix).attempts.pins.clone().unwrap_or_default();
        if files.is_empty() && policy.pin.is_empty() {
            return None;
        }
        let state_dirs = self.state_dirs(ix);
        Some(Pinned { globs: policy.pin.clone(), files, state_dirs, policy: policy.tampered })
    }

    fn mcp_not_injected(&mut self, why: String) {
        let detail = format!("the agent runs without dogwatch's MCP server: {why}");
        self.todo.push_back(Input::TroubleMet { kind: "mcp_not_injected", detail });
    }

    /// Answers a request made on behalf of a session. Never blocks.
    pub(super) fn answer_request(&mut self, token: &str, request: &AgentRequest, reply: Reply) {
        reply.send(self.answer(token, request));
    }

    fn answer(&mut self, token: &str, request: &AgentRequest) -> Result<AgentResponse, ChannelError> {
        let is_sender = |slot: &&mut Slot| {
            let job = slot.live.job;
            job.iteration == request.iteration && self.run.plan().nodes[job.node.0].name == request.node
        };
        let live = &mut self.slots.all().find(is_sender).ok_or(ChannelError::SessionOver)?.live;
        let open = live.mcp.as_mut().ok_or(ChannelError::SessionOver)?;
        if !mcp_setup::same(&open.token, token) {
            return Err(ChannelError::WrongToken);
        }
        let node = self.run.view().node(live.job.node);
        let Handled { inputs, answer } = open.channel.handle(clock::awake(), node, &request.body);
        // A request may arrive before the keeper reports that the agent has started.
        if live.started {
            self.todo.extend(inputs);
        } else {
            live.early.extend(inputs);
        }
        Ok(answer)
    }
}
