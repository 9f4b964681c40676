//! The machine of one worker for one delivered job.

use super::{CLAIM_TRIES, JobRecord, JobResult, JobState, MAX_CRASHES, Times};
use crate::record::ids::RunId;
use crate::time::moment::Boot;

/// A record as it was read, with its revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The revision of the record.
    pub revision: u64,
    /// The record.
    pub record: JobRecord,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The queue delivered the job.
    Delivered,
    /// The record was read; there may be none. A read may be out of date.
    Found(Option<Seen>),
    /// The record could not be read.
    ReadFailed,
    /// The write was stored as this revision.
    Written(u64),
    /// The store holds another revision than the one that the write named.
    Refused,
    /// Nothing was written, but it may work at the next try.
    Busy,
    /// No answer came. The write may have happened, or may still happen.
    Unanswered,
    /// The run has an id now.
    Named(RunId),
    /// An iteration finished.
    Moved,
    /// The run is over, and no process of it is left.
    Finished(JobResult),
    /// The run ended before it was over, and no process of it is left.
    Stopped,
    /// The run or its preparation failed in an unclean way, and no process of it is left.
    Crashed(String),
    /// The worker has to give up its jobs.
    Drained,
    /// A moment that `next_wakeup` named has come.
    Woke,
}

/// A decision for the worker to carry out. At most one `Read` or `Write` is open at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Read the record.
    Read,
    /// Write the record if its revision is `expected`; 0 means that there is none.
    Write {
        /// The revision to replace.
        expected: u64,
        /// The new record.
        record: Box<JobRecord>,
    },
    /// Report to the queue that the delivery is still in progress.
    KeepDelivery,
    /// Start the run, or continue the one that the record names. It may live until the moment.
    Start {
        /// The number of the claim.
        epoch: u64,
        /// The run to continue.
        run: Option<RunId>,
        /// Until when it may live.
        until: Boot,
    },
    /// Let the run live until this moment.
    Extend(Boot),
    /// End every process of the run now.
    End,
    /// Remove the message from the queue, because the job is over.
    Ack,
    /// Remove the message from the queue for this reason.
    Term(String),
    /// Give the message back to the queue, and wait for the answer.
    GiveBack,
    /// Report that the job is poisoned.
    ReportPoison(String),
    /// Forget the delivery without an answer.
    StepBack,
}

/// An open request to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Open {
    Read,
    Write { sent: Boot },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for the first look at the record.
    Looking,
    /// Another worker holds the lease: waits whether its record stays unchanged.
    Observing { since: Boot, seen: Box<Seen> },
    /// Tries to become the owner.
    Claiming { expected: u64, record: Box<JobRecord>, first_sent: Option<Boot>, tries: u32 },
    /// Owns the job.
    Owning(Box<Owning>),
    /// Nothing more to do.
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Owning {
    revision: u64,
    record: JobRecord,
    deadline: Boot,
    /// When the oldest write was sent that is neither confirmed nor known to be refused.
    unconfirmed: Option<Boot>,
    /// Whether a process of the run may be alive.
    live: bool,
    /// Whether the run was ordered to end.
    ending: bool,
    /// Whether the record differs from what is stored.
    changed: bool,
    /// Whether another worker owns the job now.
    lost: bool,
}

/// The lease of one delivered job, from the side of one worker.
#[derive(Clone, Debug)]
pub struct Lease {
    times: Times,
    owner: String,
    nonce: String,
    sequence: u64,
    title: String,
    phase: Phase,
    open: Option<Open>,
    /// When the next request is due.
    due: Option<Boot>,
    /// When the delivery has to be renewed.
    keep_at: Option<Boot>,
    drained: bool,
}

impl Lease {
    /// Returns the machine for the message with this sequence number. The nonce must be new and random.
    pub fn new(times: Times, owner: &str, nonce: &str, sequence: u64, title: &str) -> Lease {
        Lease {
            times,
            owner: owner.to_owned(),
            nonce: nonce.to_owned(),
            sequence,
            title: title.to_owned(),
            phase: Phase::Looking,
            open: None,
            due: None,
            keep_at: None,
            drained: false,
        }
    }

    /// Returns whether nothing is left to do.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Returns until when the run may live, if this worker owns the job and has not ended it.
    pub fn deadline(&self) -> Option<Boot> {
        self.owning().filter(|own| own.live).map(|own| own.deadline)
    }

    fn owning(&self) -> Option<&Owning> {
        if let Phase::Owning(own) = &self.phase { Some(own) } else { None }
    }

    /// Returns whether another worker owns the job that this one started.
    pub fn is_lost(&self) -> bool {
        self.owning().is_some_and(|own| own.lost)
    }

    /// Returns when `Woke` is due.
    pub fn next_wakeup(&self) -> Option<Boot> {
        let deadline = self.owning().filter(|own| own.live && !own.ending).map(|own| own.deadline);
        let due = self.due.filter(|_| self.open.is_none());
        let keep = self.keep_at.filter(|_| self.phase != Phase::Over);
        [due, deadline, keep].into_iter().flatten().min()
    }

    /// Takes one input and returns what to do.
    pub fn step(&mut self, now: Boot, input: Input) -> Vec<Decision> {
        let mut out = Vec::new();
        match input {
            Input::Delivered => {
                self.keep_at = Some(now.plus(self.times.renew));
                self.read(&mut out);
            }
            Input::Found(seen) => {
                self.open = None;
                self.found(now, seen, &mut out);
            }
            Input::ReadFailed => {
                self.open = None;
                self.due = Some(now.plus(self.times.retry));
                if self.drained && self.phase == Phase::Looking {
                    self.over(&mut out, Decision::StepBack);
                }
            }
            Input::Written(revision) => self.written(now, revision, &mut out),
            Input::Refused => self.refused(&mut out),
            Input::Busy => {
                self.open = None;
                self.due = Some(now.plus(self.times.retry));
            }
            Input::Unanswered => self.unanswered(now, &mut out),
            Input::Named(run) => self.change(now, |record| record.run = Some(run)),
            Input::Moved => self.change(now, |record| (record.moved, record.crashes) = (true, 0)),
            Input::Finished(result) => self.ended(now, |record| {
                record.state = JobState::Done;
                record.result = Some(result);
            }),
            Input::Stopped => self.ended(now, |record| record.state = JobState::Released),
            Input::Crashed(why) => self.ended(now, |record| crash(record, why)),
            Input::Drained => self.drain(&mut out),
            Input::Woke => {}
        }
        self.run_due(now, &mut out);
        out
    }

    /// Does what is due at this moment.
    fn run_due(&mut self, now: Boot, out: &mut Vec<Decision>) {
        if self.phase == Phase::Over {
            return;
        }
        if self.keep_at.is_some_and(|at| at <= now) {
            self.keep_at = Some(now.plus(self.times.renew));
            if !self.is_lost() {
                out.push(Decision::KeepDelivery);
            }
        }
        if let Phase::Owning(own) = &mut self.phase
            && own.live
            && !own.ending
            && own.deadline <= now
        {
            own.ending = true;
            out.push(Decision::End);
        }
        if self.open.is_some() || self.due.is_none_or(|due| now < due) {
            return;
        }
        self.due = None;
        match &self.phase {
            Phase::Looking => self.read(out),
            Phase::Observing { since, seen } => {
                if since.plus(self.times.lease) <= now {
                    let seen = (**seen).clone();
                    self.claim(now, seen, out);
                } else {
                    self.read(out);
                }
            }
            Phase::Claiming { .. } => self.send_claim(now, out),
            Phase::Owning(own) if own.lost => {}
            Phase::Owning(_) => self.send_record(now, out),
            Phase::Over => {}
        }
    }

    fn read(&mut self, out: &mut Vec<Decision>) {
        self.open = Some(Open::Read);
        out.push(Decision::Read);
    }

    fn over(&mut self, out: &mut Vec<Decision>, last: Decision) {
        self.phase = Phase::Over;
        self.due = None;
        self.keep_at = None;
        out.push(last);
    }

    fn found(&mut self, now: Boot, seen: Option<Seen>, out: &mut Vec<Decision>) {
        match &mut self.phase {
            Phase::Over => {}
            Phase::Looking => self.judge(now, seen, out),
            Phase::Observing { since, seen: before } => match seen {
                Some(seen) if seen.revision > before.revision => match seen.record.state {
                    // The owner is alive, or another worker was faster.
                    JobState::Running | JobState::Queued => self.over(out, Decision::StepBack),
                    JobState::Released | JobState::Done | JobState::Poisoned => {
                        self.judge(now, Some(seen), out);
                    }
                },
                // An older revision is an old copy and says nothing.
                Some(_) | None => {
                    let due = now.plus(self.times.renew).min(since.plus(self.times.lease));
                    self.due = Some(due);
                }
            },
            Phase::Claiming { expected, first_sent, .. } => match seen {
                Some(seen) if seen.record.nonce == self.nonce && seen.revision > *expected => {
                    let sent = first_sent.unwrap_or(now);
                    self.own(now, seen.revision, seen.record, sent, out);
                }
                Some(seen) if seen.revision > *expected => self.over(out, Decision::StepBack),
                Some(_) | None => self.due = Some(now.plus(self.times.retry)),
            },
            Phase::Owning(own) => match seen {
                Some(seen) if seen.revision > own.revision && seen.record.nonce == self.nonce => {
                    own.revision = seen.revision;
                    own.changed = seen.record != own.record;
                    let sent = own.unconfirmed.take();
                    self.confirmed(now, sent, out);
                }
                Some(seen) if seen.revision > own.revision => self.lose(out),
                // An older revision is an old copy and says nothing.
                Some(_) | None => self.due = Some(now.plus(self.times.retry)),
            },
        }
    }

    /// Decides what to do with a record that another process wrote.
    fn judge(&mut self, now: Boot, seen: Option<Seen>, out: &mut Vec<Decision>) {
        let Some(seen) = seen else {
            let record = JobRecord { title: self.title.clone(), ..JobRecord::default() };
            return self.claim(now, Seen { revision: 0, record }, out);
        };
        let record = &seen.record;
        if record.sequence != 0 && record.sequence != self.sequence {
            let reason = format!("message {} is the message of this job", record.sequence);
            return self.over(out, Decision::Term(reason));
        }
        match record.state {
            JobState::Done | JobState::Poisoned => self.over(out, Decision::Ack),
            JobState::Queued | JobState::Released => self.claim(now, seen, out),
            JobState::Running if self.drained => self.over(out, Decision::StepBack),
            JobState::Running => {
                self.due = Some(now.plus(self.times.renew));
                self.phase = Phase::Observing { since: now, seen: Box::new(seen) };
            }
        }
    }

    fn claim(&mut self, now: Boot, seen: Seen, out: &mut Vec<Decision>) {
        if self.drained {
            // No worker holds it, or its holder is gone: the next worker takes it at once.
            return self.over(out, Decision::GiveBack);
        }
        let mut record = seen.record;
        let unclean = record.state == JobState::Running;
        if unclean {
            let why = format!("worker {} was lost", record.owner);
            crash(&mut record, why);
        }
        if record.state != JobState::Poisoned {
            record.state = JobState::Running;
        }
        record.owner.clone_from(&self.owner);
        record.nonce.clone_from(&self.nonce);
        record.epoch = record.epoch.saturating_add(1);
        record.sequence = self.sequence;
        record.moved = false;
        record.why = None;
        let (expected, record) = (seen.revision, Box::new(record));
        self.phase = Phase::Claiming { expected, record, first_sent: None, tries: 0 };
        self.send_claim(now, out);
    }

    fn send_claim(&mut self, now: Boot, out: &mut Vec<Decision>) {
        let Phase::Claiming { expected, record, first_sent, tries } = &mut self.phase else { return };
        if *tries >= CLAIM_TRIES {
            return self.over(out, Decision::StepBack);
        }
        *tries += 1;
        first_sent.get_or_insert(now);
        let write = Decision::Write { expected: *expected, record: record.clone() };
        self.open = Some(Open::Write { sent: now });
        out.push(write);
    }

    fn own(&mut self, now: Boot, revision: u64, record: JobRecord, sent: Boot, out: &mut Vec<Decision>) {
        if record.state == JobState::Poisoned {
            let why = record.result.as_ref().and_then(|result| result.detail.clone()).unwrap_or_default();
            out.push(Decision::ReportPoison(why.clone()));
            return self.over(out, Decision::Term(format!("poisoned: {why}")));
        }
        let deadline = sent.plus(self.times.hold());
        let (epoch, run) = (record.epoch, record.run.clone());
        let live = now < deadline && !self.drained;
        let mut own = Owning {
            revision,
            record,
            deadline,
            unconfirmed: None,
            live,
            ending: false,
            changed: false,
            lost: false,
        };
        if live {
            self.due = Some(sent.plus(self.times.renew));
            out.push(Decision::Start { epoch, run, until: deadline });
        } else {
            // The answer came too late to start anything.
            own.record.state = JobState::Released;
            own.changed = true;
            self.due = Some(now);
        }
        self.phase = Phase::Owning(Box::new(own));
    }

    fn send_record(&mut self, now: Boot, out: &mut Vec<Decision>) {
        let Phase::Owning(own) = &mut self.phase else { return };
        own.unconfirmed.get_or_insert(now);
        own.changed = false;
        let record = Box::new(own.record.clone());
        let write = Decision::Write { expected: own.revision, record };
        self.open = Some(Open::Write { sent: now });
        out.push(write);
    }

    fn written(&mut self, now: Boot, revision: u64, out: &mut Vec<Decision>) {
        let sent = match self.open.take() {
            Some(Open::Write { sent }) => sent,
            Some(Open::Read) | None => return,
        };
        match &mut self.phase {
            Phase::Claiming { record, .. } => {
                let record = (**record).clone();
                self.own(now, revision, record, sent, out);
            }
            Phase::Owning(own) => {
                own.revision = revision;
                own.unconfirmed = None;
                self.confirmed(now, Some(sent), out);
            }
            Phase::Looking | Phase::Observing { .. } | Phase::Over => {}
        }
    }

    /// The store holds what this worker wrote, in a write that was sent at `sent` or later.
    fn confirmed(&mut self, now: Boot, sent: Option<Boot>, out: &mut Vec<Decision>) {
        let times = self.times;
        let Phase::Owning(own) = &mut self.phase else { return };
        let deadline = sent.map_or(own.deadline, |sent| own.deadline.max(sent.plus(times.hold())));
        if own.live && !own.ending && deadline > own.deadline {
            own.deadline = deadline;
            out.push(Decision::Extend(deadline));
        }
        if own.changed {
            self.due = Some(now);
        } else if own.live {
            self.due = Some(sent.unwrap_or(now).plus(times.renew).max(now));
        } else {
            match own.record.state {
                JobState::Done => self.over(out, Decision::Ack),
                JobState::Released => self.over(out, Decision::GiveBack),
                JobState::Poisoned => {
                    let detail = own.record.result.as_ref().and_then(|result| result.detail.clone());
                    let why = detail.unwrap_or_default();
                    out.push(Decision::ReportPoison(why.clone()));
                    self.over(out, Decision::Term(format!("poisoned: {why}")));
                }
                JobState::Running | JobState::Queued => {}
            }
        }
    }

    fn refused(&mut self, out: &mut Vec<Decision>) {
        self.open = None;
        match &self.phase {
            // One's own earlier try may be the reason.
            Phase::Claiming { .. } | Phase::Owning(_) => self.read(out),
            Phase::Looking | Phase::Observing { .. } | Phase::Over => {}
        }
    }

    fn unanswered(&mut self, now: Boot, out: &mut Vec<Decision>) {
        self.open = None;
        match &self.phase {
            Phase::Claiming { .. } => self.read(out),
            Phase::Owning(_) | Phase::Looking | Phase::Observing { .. } => {
                self.due = Some(now.plus(self.times.retry));
            }
            Phase::Over => {}
        }
    }

    /// Changes the record of a live run, and writes it soon.
    fn change(&mut self, now: Boot, set: impl FnOnce(&mut JobRecord)) {
        let Phase::Owning(own) = &mut self.phase else { return };
        let before = own.record.clone();
        set(&mut own.record);
        if own.record != before {
            own.changed = true;
            if self.open.is_none() {
                self.due = Some(self.due.map_or(now, |due| due.min(now.plus(self.times.retry))));
            }
        }
    }

    /// No process of the run is left: writes how it ended.
    fn ended(&mut self, now: Boot, set: impl FnOnce(&mut JobRecord)) {
        let Phase::Owning(own) = &mut self.phase else { return };
        // A run ends once: a later report must not change how.
        if !std::mem::replace(&mut own.live, false) {
            return;
        }
        if own.lost {
            self.phase = Phase::Over;
            self.due = None;
            self.keep_at = None;
            return;
        }
        set(&mut own.record);
        own.changed = true;
        if self.open.is_none() {
            self.due = Some(now);
        }
    }

    fn lose(&mut self, out: &mut Vec<Decision>) {
        let Phase::Owning(own) = &mut self.phase else { return };
        own.lost = true;
        self.due = None;
        if !own.live {
            return self.over(out, Decision::StepBack);
        }
        if !std::mem::replace(&mut own.ending, true) {
            out.push(Decision::End);
        }
    }

    fn drain(&mut self, out: &mut Vec<Decision>) {
        self.drained = true;
        match &mut self.phase {
            Phase::Observing { .. } => self.over(out, Decision::StepBack),
            // The answer decides: a job that no worker holds is given back, and an unwanted claim is released.
            Phase::Looking | Phase::Claiming { .. } => {}
            Phase::Owning(own) => {
                if own.live && !std::mem::replace(&mut own.ending, true) {
                    out.push(Decision::End);
                }
            }
            Phase::Over => {}
        }
    }
}

/// Counts an unclean end. The third in a row without a finished iteration poisons the job.
fn crash(record: &mut JobRecord, why: String) {
    record.state = JobState::Released;
    record.why = Some(why.clone());
    if record.moved {
        return;
    }
    record.crashes = record.crashes.saturating_add(1);
    if record.crashes >= MAX_CRASHES {
        record.state = JobState::Poisoned;
        let result = JobResult { outcome: "poisoned".to_owned(), detail: Some(why), ..JobResult::default() };
        record.result = Some(result);
    }
}
