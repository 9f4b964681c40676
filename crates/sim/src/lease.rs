//! A model of a fleet: workers, each with its own clock, a store that answers late, twice or never, and a queue that
//! delivers too often. It runs the real lease machine in virtual time.

use crate::dice::Dice;
use dogwatch_core::lease::{Decision, Input, JobRecord, JobResult, JobState, Lease, Seen, Times};
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Boot;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How long faults may occur, in milliseconds.
const TROUBLED: u64 = 1_800_000;
/// How long a job may take to end after the last fault.
const CALM: u64 = 3_600_000;
/// How long an agent may outlive its leash: the keeper waits a second, and a second more before it kills.
const KEEPER: u64 = 2_000;
/// How long the queue waits for a sign of life.
const ACK_WAIT: u64 = 30_000;
/// The workers of a model.
const WORKERS: usize = 3;

/// A fault that is built in on purpose, to see that the model notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// None.
    Nothing,
    /// The store ignores the expected revision of a write.
    NoFence,
    /// Observers wait for a third of a lease only.
    Hasty,
    /// The leash is ignored.
    NoLeash,
}

/// What a model saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    /// How often an agent was started.
    pub starts: u32,
    /// How often a lease was taken from a worker that was lost.
    pub takeovers: u32,
    /// How often a worker learned that its lease was lost.
    pub losses: u32,
    /// How often a job was released.
    pub releases: u32,
    /// How often the last answer was lost and its write was found by reading.
    pub found: u32,
    /// How the job ended.
    pub end: Option<JobState>,
}

enum Happening {
    /// A worker with nothing to do asks the queue.
    Poll(usize),
    /// A request reaches the store.
    Arrive { worker: usize, life: u64, request: Request, answer_in: Option<u64> },
    /// An answer, or the lack of one, reaches a worker.
    Answer { worker: usize, life: u64, id: u64, input: Input },
    /// The next wake-up of a lease.
    Wake(usize),
    /// An agent has done its work.
    Worked { worker: usize, life: u64 },
    /// An agent's leash ends.
    Leash { worker: usize, life: u64 },
    /// The processes of a run are gone.
    Gone { worker: usize, life: u64, input: Input },
    /// Something goes wrong with a worker, or is repaired.
    Fault(usize),
}

#[derive(Clone)]
enum Request {
    Read { id: u64 },
    Write { id: u64, expected: u64, record: Box<JobRecord> },
}

struct Agent {
    until: u64,
    ending: bool,
}

#[derive(Default)]
struct Worker {
    offset: u64,
    lease: Option<Lease>,
    message: usize,
    agent: Option<Agent>,
    /// Whether it has started an agent for its lease.
    owned: bool,
    /// Changes when the worker forgets everything.
    life: u64,
    /// The number of the open request.
    open: u64,
    stopped: bool,
    cut: bool,
    /// The inputs that arrived while it was stopped.
    waiting: Vec<Input>,
}

struct Message {
    sequence: u64,
    visible: u64,
    removed: bool,
}

/// A model with its state.
pub struct Model {
    dice: Dice,
    planted: Planted,
    now: u64,
    number: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: std::collections::BTreeMap<u64, Happening>,
    workers: Vec<Worker>,
    messages: Vec<Message>,
    history: Vec<Seen>,
    revision: u64,
    requests: u64,
    ends: u32,
    story: Story,
}

/// Plays the model of a seed. Returns what happened, or which rule was broken.
pub fn play(seed: u64, planted: Planted) -> Result<Story, String> {
    let mut dice = Dice::new(seed);
    let workers = (0..WORKERS).map(|_| Worker { offset: dice.below(1_000_000_000), ..Worker::default() });
    let workers = workers.collect();
    let mut messages = vec![Message { sequence: 1, visible: 0, removed: false }];
    if dice.one_in(3) {
        messages.push(Message { sequence: 2, visible: dice.below(100_000), removed: false });
    }
    let mut model = Model {
        dice,
        planted,
        now: 0,
        number: 0,
        queue: BinaryHeap::new(),
        happenings: std::collections::BTreeMap::new(),
        workers,
        messages,
        history: vec![Seen { revision: 1, record: JobRecord::default() }],
        revision: 1,
        requests: 0,
        ends: 0,
        story: Story::default(),
    };
    for worker in 0..WORKERS {
        model.after(0, Happening::Poll(worker));
        let first = model.dice.below(60_000);
        model.after(first, Happening::Fault(worker));
    }
    model.run()
}

impl Model {
    fn after(&mut self, delay: u64, happening: Happening) {
        self.number += 1;
        self.queue.push(Reverse((self.now + delay, self.number)));
        self.happenings.insert(self.number, happening);
    }

    fn run(mut self) -> Result<Story, String> {
        while let Some(Reverse((at, number))) = self.queue.pop() {
            self.now = at;
            let Some(happening) = self.happenings.remove(&number) else { continue };
            self.happen(happening)?;
            if self.messages.iter().all(|message| message.removed)
                && self.workers.iter().all(|worker| worker.lease.is_none() && worker.agent.is_none())
            {
                break;
            }
            if self.now > TROUBLED + CALM {
                return Err(format!("the job did not end: {:?}", self.history.last()));
            }
        }
        let last = self.history.last().map(|seen| seen.record.state);
        if !last.is_some_and(JobState::is_over) || self.ends != 1 {
            let line = |seen: &Seen| {
                let record = &seen.record;
                format!("{} {} {} {}", seen.revision, record.nonce, record.epoch, record.state.as_str())
            };
            let tail: Vec<String> = self.history.iter().rev().take(6).map(line).collect();
            return Err(format!("the job ended {} times: {}", self.ends, tail.join(", ")));
        }
        self.story.end = last;
        Ok(self.story)
    }

    fn times(&self) -> Times {
        let times = Times::STANDARD;
        match self.planted {
            // The owner's deadline stays the same.
            Planted::Hasty => Times { lease: Dur::from_secs(20), stop: Dur::ZERO, ..times },
            Planted::Nothing | Planted::NoFence | Planted::NoLeash => times,
        }
    }

    fn boot(&self, worker: usize) -> Boot {
        Boot(self.workers[worker].offset + self.now)
    }

    fn happen(&mut self, happening: Happening) -> Result<(), String> {
        match happening {
            Happening::Poll(worker) => self.poll(worker),
            Happening::Arrive { worker, life, request, answer_in } => {
                self.arrive(worker, life, &request, answer_in);
                Ok(())
            }
            Happening::Answer { worker, life, id, input } => {
                if self.workers[worker].life == life && self.workers[worker].open == id {
                    self.workers[worker].open = 0;
                    return self.input(worker, input);
                }
                Ok(())
            }
            Happening::Wake(worker) => {
                let due = self.workers[worker].lease.as_ref().and_then(Lease::next_wakeup);
                if due.is_some_and(|due| due <= self.boot(worker)) {
                    return self.input(worker, Input::Woke);
                }
                Ok(())
            }
            Happening::Worked { worker, life } => {
                let alive = self.workers[worker].life == life && self.workers[worker].agent.is_some();
                if !alive || self.workers[worker].agent.as_ref().is_some_and(|agent| agent.ending) {
                    return Ok(());
                }
                let input = match self.dice.below(8) {
                    0 => Input::Crashed("crashed".to_owned()),
                    1 => Input::Stopped,
                    _ => Input::Finished(JobResult::default()),
                };
                self.workers[worker].agent = None;
                self.input(worker, input)
            }
            Happening::Leash { worker, life } => {
                let Some(agent) =
                    self.workers[worker].agent.as_ref().filter(|_| self.workers[worker].life == life)
                else {
                    return Ok(());
                };
                if agent.until > self.now || agent.ending || self.planted == Planted::NoLeash {
                    return Ok(());
                }
                self.end_agent(worker, Input::Stopped);
                Ok(())
            }
            Happening::Gone { worker, life, input } => {
                if self.workers[worker].life == life && self.workers[worker].agent.take().is_some() {
                    return self.input(worker, input);
                }
                Ok(())
            }
            Happening::Fault(worker) => self.fault(worker),
        }
    }

    fn poll(&mut self, worker: usize) -> Result<(), String> {
        let pause = 200 + self.dice.below(2_000);
        self.after(pause, Happening::Poll(worker));
        let free = self.workers[worker].lease.is_none() && self.workers[worker].agent.is_none();
        if !free || self.workers[worker].stopped || self.workers[worker].cut {
            return Ok(());
        }
        let visible = |message: &Message| !message.removed && message.visible <= self.now;
        let Some(at) = self.messages.iter().position(visible) else { return Ok(()) };
        self.messages[at].visible = self.now + ACK_WAIT;
        self.requests += 1;
        let (name, nonce) = (format!("w{worker}"), format!("n{}", self.requests));
        let lease = Lease::new(self.times(), &name, &nonce, self.messages[at].sequence, "job");
        self.workers[worker].lease = Some(lease);
        self.workers[worker].message = at;
        self.workers[worker].owned = false;
        self.workers[worker].open = 0;
        self.input(worker, Input::Delivered)
    }

    /// Gives an input to a worker's lease, now or when it runs again.
    fn input(&mut self, worker: usize, input: Input) -> Result<(), String> {
        if self.workers[worker].stopped {
            self.workers[worker].waiting.push(input);
            return Ok(());
        }
        let now = self.boot(worker);
        let Some(lease) = &mut self.workers[worker].lease else { return Ok(()) };
        if matches!(&input, Input::Found(Some(_))) && lease.deadline().is_some() {
            self.story.found += 1;
        }
        let decisions = lease.step(now, input);
        let over = lease.is_over();
        for decision in decisions {
            self.carry_out(worker, decision)?;
        }
        if over {
            self.workers[worker].lease = None;
            return Ok(());
        }
        if let Some(due) = self.workers[worker].lease.as_ref().and_then(Lease::next_wakeup) {
            let delay = due.since(self.boot(worker)).as_millis() + self.dice.below(20);
            self.after(delay, Happening::Wake(worker));
        }
        Ok(())
    }

    fn carry_out(&mut self, worker: usize, decision: Decision) -> Result<(), String> {
        let at = self.workers[worker].message;
        let cut = self.workers[worker].cut;
        match decision {
            Decision::Read => self.send(worker, |id| Request::Read { id }),
            Decision::Write { expected, record } => {
                self.send(worker, |id| Request::Write { id, expected, record });
            }
            Decision::KeepDelivery if !cut => self.messages[at].visible = self.now + ACK_WAIT,
            Decision::Ack | Decision::Term(_) if !cut => self.messages[at].removed = true,
            Decision::GiveBack if !cut => self.messages[at].visible = self.now,
            Decision::KeepDelivery | Decision::Ack | Decision::Term(_) | Decision::GiveBack => {}
            Decision::Start { until, .. } => {
                self.story.starts += 1;
                self.workers[worker].owned = true;
                let other = self.workers.iter().position(|other| other.agent.is_some());
                if let Some(other) = other {
                    return Err(format!("worker {worker} started while an agent of {other} was alive"));
                }
                let until = until.0 - self.workers[worker].offset;
                self.workers[worker].agent = Some(Agent { until, ending: false });
                let life = self.workers[worker].life;
                let work = 1_000 + self.dice.below(200_000);
                self.after(work, Happening::Worked { worker, life });
                self.leash(worker, until);
            }
            Decision::Extend(until) => {
                let until = until.0 - self.workers[worker].offset;
                if let Some(agent) = &mut self.workers[worker].agent {
                    agent.until = until;
                    self.leash(worker, until);
                }
            }
            Decision::End => {
                if self.workers[worker].agent.is_some() {
                    self.end_agent(worker, Input::Stopped);
                } else {
                    let life = self.workers[worker].life;
                    self.workers[worker].agent = Some(Agent { until: self.now, ending: true });
                    self.after(1, Happening::Gone { worker, life, input: Input::Stopped });
                }
            }
            Decision::StepBack if self.workers[worker].owned => self.story.losses += 1,
            Decision::ReportPoison(_) | Decision::StepBack => {}
        }
        Ok(())
    }

    fn leash(&mut self, worker: usize, until: u64) {
        let life = self.workers[worker].life;
        self.after(until.saturating_sub(self.now), Happening::Leash { worker, life });
    }

    /// The processes of a run end, a little later.
    fn end_agent(&mut self, worker: usize, input: Input) {
        let life = self.workers[worker].life;
        let Some(agent) = &mut self.workers[worker].agent else { return };
        if !std::mem::replace(&mut agent.ending, true) {
            let delay = self.dice.below(KEEPER);
            self.after(delay, Happening::Gone { worker, life, input });
        }
    }

    /// Sends a request. It may arrive late or never, and so may its answer.
    fn send(&mut self, worker: usize, request: impl FnOnce(u64) -> Request) {
        self.requests += 1;
        let (id, life) = (self.requests, self.workers[worker].life);
        self.workers[worker].open = id;
        let request = request(id);
        let attempt = Times::STANDARD.attempt.as_millis();
        let troubled = self.now < TROUBLED;
        let cut = self.workers[worker].cut;
        // A client keeps what it could not send, and sends it when it is connected again.
        let arrives = match self.dice.below(20) {
            _ if cut && self.dice.one_in(2) => None,
            _ if cut => Some(3_000 + self.dice.below(120_000)),
            0 if troubled => None,
            1 if troubled => Some(self.dice.below(90_000)),
            _ => Some(self.dice.below(20)),
        };
        if let Some(delay) = arrives {
            let lost = cut || (troubled && self.dice.one_in(15));
            let answer_in = if lost { None } else { Some(self.dice.below(30)) };
            self.after(delay, Happening::Arrive { worker, life, request: request.clone(), answer_in });
        }
        let input = match request {
            Request::Read { .. } => Input::ReadFailed,
            Request::Write { .. } => Input::Unanswered,
        };
        self.after(attempt, Happening::Answer { worker, life, id, input });
    }

    fn arrive(&mut self, worker: usize, life: u64, request: &Request, answer_in: Option<u64>) {
        let (id, input) = match request {
            Request::Read { id } => {
                // A server that is behind answers with an old record.
                let back = if self.dice.one_in(10) { self.dice.below(3) } else { 0 };
                let back = usize::try_from(back).unwrap_or(0);
                let at = self.history.len().saturating_sub(1 + back);
                (*id, Input::Found(self.history.get(at).cloned()))
            }
            Request::Write { id, expected, record } => {
                let busy = self.now < TROUBLED && self.dice.one_in(30);
                let fits = *expected == self.revision || self.planted == Planted::NoFence;
                let input = match (busy, fits) {
                    (true, _) => Input::Busy,
                    (false, false) => Input::Refused,
                    (false, true) => {
                        self.store((**record).clone());
                        Input::Written(self.revision)
                    }
                };
                (*id, input)
            }
        };
        if let Some(delay) = answer_in {
            self.after(delay, Happening::Answer { worker, life, id, input });
        }
    }

    fn store(&mut self, record: JobRecord) {
        let before = self.history.last().map(|seen| seen.record.clone()).unwrap_or_default();
        if before.state == JobState::Running && record.epoch > before.epoch {
            self.story.takeovers += 1;
        }
        if record.state == JobState::Released {
            self.story.releases += 1;
        }
        if record.state.is_over() {
            self.ends += 1;
        }
        self.revision += 1;
        self.history.push(Seen { revision: self.revision, record });
    }

    /// Something goes wrong with a worker, or is repaired. In the end everything is.
    fn fault(&mut self, worker: usize) -> Result<(), String> {
        let troubled = self.now < TROUBLED;
        if troubled {
            let next = 5_000 + self.dice.below(200_000);
            self.after(next, Happening::Fault(worker));
        }
        let what = if troubled { self.dice.below(6) } else { 5 };
        match what {
            0 => self.kill(worker),
            1 => self.workers[worker].stopped = true,
            2 => self.workers[worker].cut = true,
            3 if self.dice.one_in(2) => return self.input(worker, Input::Drained),
            _ => {
                self.workers[worker].cut = false;
                if std::mem::replace(&mut self.workers[worker].stopped, false) {
                    for input in std::mem::take(&mut self.workers[worker].waiting) {
                        self.input(worker, input)?;
                    }
                    return self.input(worker, Input::Woke);
                }
            }
        }
        // A worker that is stopped or cut off when the trouble ends is repaired.
        let end = TROUBLED.saturating_sub(self.now);
        self.after(end + 1, Happening::Fault(worker));
        Ok(())
    }

    /// The worker dies, and its agent with it: the pipe of its leash is closed.
    fn kill(&mut self, worker: usize) {
        let this = &mut self.workers[worker];
        this.lease = None;
        this.waiting.clear();
        this.open = 0;
        this.stopped = false;
        // A new worker starts when the processes of the old one are gone.
        if this.agent.is_some() {
            let (life, delay) = (this.life, self.dice.below(KEEPER));
            self.after(delay, Happening::Gone { worker, life, input: Input::Stopped });
        } else {
            self.workers[worker].life += 1;
        }
    }
}
