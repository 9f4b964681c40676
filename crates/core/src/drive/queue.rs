//! The queues of the driver: inputs for the core, its decisions, and jobs to start.

use crate::run::decision::Decision;
use crate::run::input::Input;
use crate::run::job::Job;
use std::collections::VecDeque;

/// The queues of the driver.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Inputs that the core has not taken yet.
    pub todo: VecDeque<Input>,
    /// Decisions of the core, carried out after all pending inputs.
    effects: Vec<Decision>,
    /// Jobs waiting to be started, and whether the events that precede each are on disk.
    starts: VecDeque<(Job, bool)>,
}

/// The decisions that are carried out together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// In order. Prompts are last: they take longest, and stopping a job must not wait for them.
    pub effects: Vec<Decision>,
    /// Whether the events that precede any of them must be on disk first.
    pub waits_for_disk: bool,
}

impl Queue {
    /// Adds a decision.
    pub fn decide(&mut self, decision: Decision) {
        self.effects.push(decision);
    }

    /// Takes all decisions.
    pub fn take_batch(&mut self) -> Batch {
        let effects = std::mem::take(&mut self.effects);
        let waits_for_disk = effects.iter().any(Decision::waits_for_disk);
        let (prompts, mut others): (Vec<_>, Vec<_>) =
            effects.into_iter().partition(|e| matches!(e, Decision::AssemblePrompt(_)));
        others.extend(prompts);
        Batch { effects: others, waits_for_disk }
    }

    /// Adds a job to start. `durable`: the events that precede it are on disk.
    pub fn start_later(&mut self, job: Job, durable: bool) {
        self.starts.push_back((job, durable));
    }

    /// Takes the next job to start.
    pub fn next_start(&mut self) -> Option<(Job, bool)> {
        self.starts.pop_front()
    }

    /// Cancels a job that waits to be started. Returns whether there was one.
    pub fn cancel_start(&mut self, job: Job) -> bool {
        let before = self.starts.len();
        self.starts.retain(|(waits, _)| *waits != job);
        self.starts.len() < before
    }

    /// Returns whether there is something to do: inputs to take, or jobs to start.
    pub fn is_busy(&self) -> bool {
        !self.todo.is_empty() || self.has_starts()
    }

    /// Returns whether jobs wait to be started.
    pub fn has_starts(&self) -> bool {
        !self.starts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::event::EndStep;
    use crate::record::ids::{Iteration, NodeIx};
    use crate::run::decision::{PromptContext, WantedPrompt};
    use crate::run::job::JobKind;
    use crate::run::life::TreeOrder;

    fn job(node: usize) -> Job {
        Job { node: NodeIx(node), iteration: Iteration(1), kind: JobKind::Session }
    }

    fn prompt(node: usize) -> Decision {
        Decision::AssemblePrompt(Box::new(WantedPrompt {
            node: NodeIx(node),
            iteration: Iteration(1),
            messages: Vec::new(),
            input_digest: false,
            prompt_context: PromptContext::default(),
        }))
    }

    #[test]
    fn prompts_are_assembled_after_every_other_decision_of_the_batch() {
        let mut queue = Queue::default();
        let step = |step, node| Decision::Order(job(node), TreeOrder::Step(step));
        let (kill, interrupt) = (step(EndStep::Kill, 1), step(EndStep::Interrupt, 3));
        for decision in [prompt(0), kill.clone(), prompt(2), interrupt.clone()] {
            queue.decide(decision);
        }
        let batch = queue.take_batch();
        assert_eq!(batch.effects, [kill, interrupt, prompt(0), prompt(2)]);
        assert!(batch.waits_for_disk);
        assert!(queue.take_batch().effects.is_empty(), "each decision is taken once");
    }

    #[test]
    fn a_batch_that_leaves_no_trace_does_not_wait_for_the_disk() {
        let mut queue = Queue::default();
        for decision in [prompt(0), Decision::Sample(job(0)), Decision::Nudge(job(0)), Decision::RetryRecord]
        {
            queue.decide(decision);
        }
        assert!(!queue.take_batch().waits_for_disk);
        queue.decide(Decision::Sample(job(0)));
        queue.decide(Decision::Start(job(0)));
        assert!(queue.take_batch().waits_for_disk);
    }

    #[test]
    fn a_canceled_start_is_never_taken() {
        let mut queue = Queue::default();
        (0..3).for_each(|n| queue.start_later(job(n), n > 0));
        assert!(queue.cancel_start(job(1)));
        assert!(!queue.cancel_start(job(1)), "only once");
        assert_eq!(queue.next_start(), Some((job(0), false)));
        assert_eq!(queue.next_start(), Some((job(2), true)));
        assert!(!queue.has_starts() && queue.next_start().is_none());
    }
}
