//! What is made ready for a node's session: the outputs of its commands, then the prompt.

use super::Driver;
use crate::journal;
use dogwatch_config::placeholders::CommandOutput;
use dogwatch_core::event::Sight;
use dogwatch_core::ids::{Iteration, NodeIx};
use dogwatch_core::input::Input;
use dogwatch_core::job::Job;
use sha2::{Digest, Sha256};
use std::time::Duration;

/// How long we look at the work tree before we rather ask the agent.
const DIGEST_BOUND: Duration = Duration::from_secs(2);

/// Of an iteration that is open; forgotten when it closes.
#[derive(Default)]
pub(super) struct Draft {
    pub outputs: Vec<CommandOutput>,
    pub prompt: String,
}

impl Driver<'_> {
    pub(super) fn draft(&mut self, job: Job) -> &mut Draft {
        self.drafts.entry(job.node).or_default()
    }

    pub(super) fn prompt_of(&self, job: Job) -> &str {
        self.drafts.get(&job.node).map_or("", |draft| &draft.prompt)
    }

    /// Forgets what was made ready for iterations that are over, so that only open ones cost memory.
    pub(super) fn forget_drafts(&mut self) {
        let view = self.run.view();
        self.drafts.retain(|node, _| view.node(*node).open.is_some());
    }

    pub(super) fn assemble(&mut self, node: NodeIx, iteration: Iteration, told: &[String], sight: bool) {
        let plan = &self.run.plan().nodes[node.0];
        let draft = self.drafts.entry(node).or_default();
        let outputs = std::mem::take(&mut draft.outputs);
        let assembled = self.prompter.assemble(plan, iteration, &outputs, told);
        let (bytes, sha256) = (assembled.text.len() as u64, sha256(&assembled.text));
        draft.prompt = assembled.text;
        self.todo.extend(assembled.news);
        let sight = if sight { self.sight(&assembled.key) } else { None };
        self.todo.push_back(Input::PromptAssembled { node, iteration, bytes, sha256, sight });
    }

    /// What the agent is about to see. If the work tree cannot be told in time, nothing is skipped.
    fn sight(&mut self, key: &str) -> Option<Sight> {
        let tree = match self.digester.digest(DIGEST_BOUND) {
            Ok(tree) => tree,
            Err(error) => {
                let detail = format!("{error}; the agent is asked");
                self.todo.push_back(Input::TroubleMet { kind: "work_tree_digest", detail });
                return None;
            }
        };
        Some(Sight { prompt: sha256(key), tree })
    }
}

fn sha256(text: &str) -> String {
    journal::hex(&Sha256::digest(text.as_bytes()))
}
