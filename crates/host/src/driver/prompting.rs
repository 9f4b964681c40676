//! Prepares a node's session: collects the outputs of its prep commands, then assembles the prompt.

use super::HostShell;
use crate::driver::inbox::Mail;
use crate::fs::digest::Digester;
use crate::fs::outputs;
use crate::fs::pins::{self, Hashed};
use crate::prompt::{Ask, Prompter};
use crate::store::journal;
use dogwatch_config::placeholders::CommandOutput;
use dogwatch_core::Run;
use dogwatch_core::record::event::{InputDigest, NodeState};
use dogwatch_core::record::ids::{Iteration, NodeIx};
use dogwatch_core::record::view::View;
use dogwatch_core::run::decision::WantedPrompt;
use dogwatch_core::run::input::{Input, NodeInput};
use dogwatch_core::run::job::{Job, JobKind};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the digest of the work tree may take. After that the agent is called without one.
const DIGEST_BOUND: Duration = Duration::from_secs(2);

/// The pending prompt of an open iteration. Dropped when the iteration closes.
#[derive(Default)]
struct PendingPrompt {
    outputs: Vec<CommandOutput>,
    prompt: String,
    sha256: String,
    /// The error, if the prompt could not be assembled. The session is then not started.
    fault: Option<String>,
}

/// The prompts of open iterations, and what they are made from.
pub(super) struct Prompts {
    prompter: Prompter,
    digester: Digester,
    pending: BTreeMap<NodeIx, PendingPrompt>,
    /// The iteration of each node whose directory holds the node's last prompt, and the hash of that prompt.
    stored: BTreeMap<NodeIx, (Iteration, String)>,
}

impl Prompts {
    /// Creates the prompts of a run.
    pub fn new(prompter: Prompter, digester: Digester) -> Prompts {
        Prompts { prompter, digester, pending: BTreeMap::new(), stored: BTreeMap::new() }
    }

    /// Returns the prompt of a session.
    pub fn prompt_of(&self, job: Job) -> &str {
        self.pending.get(&job.node).map_or("", |pending| &pending.prompt)
    }

    /// Returns the iteration in whose directory the prompt of a session is stored already.
    pub fn stored_in(&self, job: Job) -> Option<Iteration> {
        let prompt = &self.pending.get(&job.node)?.sha256;
        self.stored.get(&job.node).filter(|(_, stored)| stored == prompt).map(|(iteration, _)| *iteration)
    }

    /// Notes whether the prompt of a session is stored in the directory of its iteration.
    pub fn set_stored(&mut self, job: Job, stored: bool) {
        match self.pending.get(&job.node).filter(|_| stored) {
            Some(pending) => self.stored.insert(job.node, (job.iteration, pending.sha256.clone())),
            None => self.stored.remove(&job.node),
        };
    }

    /// Returns why a session has no prompt, if it has none.
    pub fn fault_of(&self, job: Job) -> Option<&str> {
        self.pending.get(&job.node)?.fault.as_deref()
    }

    /// Keeps the output of a prep command for the prompt.
    pub fn set_output(&mut self, job: Job, output: CommandOutput) {
        let outputs = &mut self.pending.entry(job.node).or_default().outputs;
        outputs.retain(|known| known.name != output.name);
        outputs.push(output);
    }

    /// Uses an error in place of the output of a prep command that did not start.
    pub fn command_failed(&mut self, run: &Run, job: Job, error: &str) {
        if let JobKind::Command(index) = job.kind {
            let name = run.plan().nodes[job.node.0].settings.commands[index].name.clone();
            let text = format!("[dogwatch: command `{name}` could not be started: {error}]");
            self.set_output(job, CommandOutput { name, text, exit_code: None });
        }
    }

    /// Drops the prompts of closed iterations, so that only open ones use memory.
    pub fn forget_closed(&mut self, view: &View) {
        self.pending.retain(|node, _| view.node(*node).current.started.is_some());
        self.prompter.forget(|node| view.node(node).state == NodeState::Running);
    }
}

impl HostShell<'_> {
    /// Assembles the prompt of an iteration. Returns what happened, with `PromptAssembled` as the last input.
    pub(super) fn assemble_prompt(&mut self, run: &Run, wanted: &WantedPrompt) -> Vec<Input> {
        let (node, iteration) = (wanted.node, wanted.iteration);
        let stopped = wanted.prompt_context.diagnosis.as_ref().map(|diagnosis| diagnosis.iteration);
        let last_output = stopped.map(|stopped| self.last_output(run, node, stopped)).unwrap_or_default();
        let artifacts = if stopped.is_some() { self.artifacts(run, node) } else { Vec::new() };
        let pending = self.prompts.pending.entry(node).or_default();
        let outputs = std::mem::take(&mut pending.outputs);
        let assembled = self.prompts.prompter.assemble(&Ask {
            ix: node,
            node: &run.plan().nodes[node.0],
            iteration,
            outputs: &outputs,
            messages: &wanted.messages,
            prompt_context: &wanted.prompt_context,
            last_output: &last_output,
            artifacts: &artifacts,
        });
        let (bytes, sha256) = (assembled.text.len() as u64, sha256(&assembled.text));
        (pending.prompt, pending.sha256, pending.fault) = (assembled.text, sha256.clone(), assembled.fault);
        let mut inputs: Vec<Input> = assembled.about_file.into_iter().chain(assembled.trouble).collect();
        let input_digest = if wanted.input_digest {
            self.input_digest(run, node, &assembled.key, &mut inputs)
        } else {
            None
        };
        inputs.push(Input::Node(node, iteration, NodeInput::PromptAssembled { bytes, sha256, input_digest }));
        inputs
    }

    /// Hashes the files that the node's checks depend on. Another thread reads them and posts the result to the
    /// inbox.
    pub(super) fn hash_pins(&self, run: &Run, node: NodeIx, iteration: Iteration, tree: bool) {
        let policy = &run.plan().nodes[node.0].settings.checks;
        let known = run.view().node(node).attempts.pins.as_deref();
        let request = pins::Request {
            work_dir: self.work_dir(run, node),
            globs: policy.pin.clone(),
            // The programs of the checks are looked up only once. A program that the agent has yet to write is not
            // a change.
            checks: if known.is_none() { policy.commands.clone() } else { Vec::new() },
            known: known.into_iter().flatten().map(|pin| pin.path.clone()).collect(),
            state_dirs: self.state_dirs(run, node),
            tree,
        };
        let inbox = self.inbox.clone();
        let post = move |Hashed { pins, tree }| {
            inbox.post(Mail::Input(Input::Node(node, iteration, NodeInput::PinsHashed { pins, tree })));
        };
        pins::hash_aside(request, post);
    }

    /// Digests what the agent is about to see. Returns `None`, so that no call is skipped, if the work tree cannot
    /// be read in time.
    fn input_digest(
        &mut self,
        run: &Run,
        node: NodeIx,
        key: &str,
        inputs: &mut Vec<Input>,
    ) -> Option<InputDigest> {
        let digest = match self.own_tree(run, node) {
            Some(own) => Digester::new(&own, &outputs::own_files()).digest(DIGEST_BOUND),
            None => self.prompts.digester.digest(DIGEST_BOUND),
        };
        let tree = match digest {
            Ok(tree) => tree,
            Err(error) => {
                let detail = format!("{error}; calling the agent anyway");
                inputs.push(Input::TroubleMet { kind: "work_tree_digest", detail });
                return None;
            }
        };
        Some(InputDigest { prompt: sha256(key), tree })
    }
}

fn sha256(text: &str) -> String {
    journal::hex(&Sha256::digest(text.as_bytes()))
}
