//! Prepares a node's session: collects the outputs of its prep commands, then assembles the prompt.

use super::Driver;
use crate::driver::inbox::Mail;
use crate::fs::digest::Digester;
use crate::fs::outputs;
use crate::fs::pins;
use crate::prompt::Ask;
use crate::store::journal;
use dogwatch_config::placeholders::CommandOutput;
use dogwatch_core::record::event::{InputDigest, NodeState};
use dogwatch_core::record::ids::{Iteration, NodeIx};
use dogwatch_core::run::decision::PromptContext;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::Job;
use sha2::{Digest, Sha256};
use std::time::Duration;

/// How long the digest of the work tree may take. After that the agent is called without one.
const DIGEST_BOUND: Duration = Duration::from_secs(2);

/// The pending prompt of an open iteration. Dropped when the iteration closes.
#[derive(Default)]
pub(super) struct PendingPrompt {
    pub outputs: Vec<CommandOutput>,
    pub prompt: String,
    /// Why there is no prompt. The session is then not started.
    pub fault: Option<String>,
}

/// What the core wants in a prompt.
pub(super) struct Wanted {
    pub messages: Vec<String>,
    pub input_digest: bool,
    pub prompt_context: Box<PromptContext>,
}

impl Driver<'_> {
    pub(super) fn pending_prompt(&mut self, job: Job) -> &mut PendingPrompt {
        self.pending_prompts.entry(job.node).or_default()
    }

    pub(super) fn prompt_of(&self, job: Job) -> &str {
        self.pending_prompts.get(&job.node).map_or("", |pending| &pending.prompt)
    }

    /// Drops the pending prompts of closed iterations, so that only open ones use memory.
    pub(super) fn drop_pending_prompts(&mut self) {
        let view = self.run.view();
        self.pending_prompts.retain(|node, _| view.node(*node).current.started.is_some());
        self.prompter.forget(|node| view.node(node).state == NodeState::Running);
    }

    pub(super) fn assemble(&mut self, node: NodeIx, iteration: Iteration, wanted: &Wanted) {
        let stopped = wanted.prompt_context.diagnosis.as_ref().map(|diagnosis| diagnosis.iteration);
        let last_output = stopped.map(|stopped| self.last_output(node, stopped)).unwrap_or_default();
        let artifacts = if stopped.is_some() { self.artifacts(node) } else { Vec::new() };
        let pending = self.pending_prompts.entry(node).or_default();
        let outputs = std::mem::take(&mut pending.outputs);
        let assembled = self.prompter.assemble(&Ask {
            ix: node,
            node: &self.run.plan().nodes[node.0],
            iteration,
            outputs: &outputs,
            messages: &wanted.messages,
            prompt_context: &wanted.prompt_context,
            last_output: &last_output,
            artifacts: &artifacts,
        });
        let (bytes, sha256) = (assembled.text.len() as u64, sha256(&assembled.text));
        (pending.prompt, pending.fault) = (assembled.text, assembled.fault);
        self.todo.extend(assembled.about_file.into_iter().chain(assembled.trouble));
        let input_digest = if wanted.input_digest { self.input_digest(node, &assembled.key) } else { None };
        self.todo.push_back(Input::PromptAssembled { node, iteration, bytes, sha256, input_digest });
    }

    /// Hashes the files that the node's checks depend on. Another thread reads them and posts the result to the
    /// inbox.
    pub(super) fn hash_pins(&mut self, node: NodeIx, iteration: Iteration) {
        let policy = &self.run.plan().nodes[node.0].settings.checks;
        let known = self.run.view().node(node).attempts.pins.as_deref();
        let request = pins::Request {
            work_dir: self.work_dir(node),
            globs: policy.pin.clone(),
            // The programs of the checks are looked up only once. A program that the agent has yet to write is not
            // a change.
            checks: if known.is_none() { policy.commands.clone() } else { Vec::new() },
            known: known.into_iter().flatten().map(|pin| pin.path.clone()).collect(),
            state_dirs: self.state_dirs(node),
        };
        let inbox = self.inbox.clone();
        let post = move |pins| {
            inbox.post(Mail::Input(Input::PinsHashed { node, iteration, pins }));
        };
        pins::hash_aside(request, post);
    }

    /// Digests what the agent is about to see. Returns `None`, so that no call is skipped, if the work tree cannot
    /// be read in time.
    fn input_digest(&mut self, node: NodeIx, key: &str) -> Option<InputDigest> {
        let digest = match self.own_tree(node) {
            Some(own) => Digester::new(&own, &outputs::own_files()).digest(DIGEST_BOUND),
            None => self.digester.digest(DIGEST_BOUND),
        };
        let tree = match digest {
            Ok(tree) => tree,
            Err(error) => {
                let detail = format!("{error}; calling the agent anyway");
                self.todo.push_back(Input::TroubleMet { kind: "work_tree_digest", detail });
                return None;
            }
        };
        Some(InputDigest { prompt: sha256(key), tree })
    }
}

fn sha256(text: &str) -> String {
    journal::hex(&Sha256::digest(text.as_bytes()))
}
