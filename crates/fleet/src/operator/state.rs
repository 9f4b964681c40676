//! The state of a fleet as it was read, and what of it is shown.

use crate::names::{JobId, Name};
use crate::record::{JobRecord, JobState, Limit, Presence, why_parked};
use dogwatch_core::record::ids::RunId;
use dogwatch_core::text::figures::count;
use dogwatch_core::time::moment::Wall;
use dogwatch_server::{MachineEntry, MachineState};

/// The queue of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The account.
    pub name: Name,
    /// Jobs that no worker has.
    pub queued: u64,
    /// Jobs that workers hold.
    pub held: u64,
    /// How many jobs may be held.
    pub cap: u64,
    /// Whether the queue gives out no jobs because of a rate limit.
    pub parked: bool,
}

/// A fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet {
    /// The workers that are present.
    pub machines: Vec<Presence>,
    /// The records of all jobs.
    pub jobs: Vec<(JobId, JobRecord)>,
    /// The limits of accounts.
    pub limits: Vec<(Name, Limit)>,
    /// The queues.
    pub queues: Vec<Account>,
    /// The schedules, each with its rule.
    pub schedules: Vec<(JobId, String)>,
}

impl Fleet {
    pub(crate) fn sort(&mut self) {
        self.machines.sort_by(|a, b| a.worker.cmp(&b.worker));
        self.jobs.sort_by(|a, b| a.0.cmp(&b.0));
        self.limits.sort_by(|a, b| a.0.cmp(&b.0));
        self.queues.sort_by(|a, b| a.name.cmp(&b.name));
        self.schedules.sort();
    }

    /// Returns the jobs whose runs are shown: running ones first, then the newest, at most `max`.
    pub fn shown(&self, max: usize) -> Vec<(&JobId, &JobRecord, &RunId)> {
        let with_run = self.jobs.iter().filter_map(|(id, record)| Some((id, record, record.run.as_ref()?)));
        let mut all: Vec<(&JobId, &JobRecord, &RunId)> = with_run.collect();
        all.sort_by(|a, b| {
            let live = |record: &JobRecord| record.state == JobState::Running;
            live(b.1).cmp(&live(a.1)).then_with(|| b.2.cmp(a.2))
        });
        all.truncate(max);
        all
    }

    /// Returns a line for each worker: those that are present, and those that hold a job but are not.
    pub fn entries(&self, now: Wall) -> Vec<MachineEntry> {
        let present = self.machines.iter().map(entry);
        let mut lost: Vec<&str> = Vec::new();
        for (_, record) in &self.jobs {
            let known = self.machines.iter().any(|machine| machine.worker.as_str() == record.owner);
            if record.state == JobState::Running && !known && !lost.contains(&record.owner.as_str()) {
                lost.push(&record.owner);
            }
        }
        let lost = lost.into_iter().map(|name| MachineEntry {
            name: name.to_owned(),
            state: MachineState::Down,
            since: now,
            why: Some("no sign of life for a minute; its jobs move when their leases end".to_owned()),
            version: None,
            runs: 0,
            detail: None,
        });
        present.chain(lost).collect()
    }

    /// Returns why a job that waits does not start, if no present worker runs it.
    pub fn why_waiting(&self, id: &JobId, record: &JobRecord) -> Option<String> {
        match record.state {
            JobState::Queued | JobState::Released => {}
            JobState::Running | JobState::Done | JobState::Poisoned => return None,
        }
        let job = id.to_string();
        let mut reasons: Vec<String> = Vec::new();
        for machine in self.machines.iter().filter(|machine| machine.accounts.contains(&id.account)) {
            let refusal = machine.refuses.iter().find(|refusal| refusal.job == job);
            let why = match refusal {
                Some(refusal) => refusal.why.clone(),
                None if machine.draining => "draining".to_owned(),
                None => machine.trouble.clone()?,
            };
            reasons.push(format!("{}: {why}", machine.worker));
        }
        match reasons.is_empty() {
            true => Some(format!("no worker of account {} is present", id.account)),
            false => Some(format!("no worker runs it: {}", reasons.join("; "))),
        }
    }

    /// Describes the queue: `queue: acme 12 waiting, 3 of 8 running; corp parked until 21:00`.
    pub fn summary(&self) -> String {
        let one = |queue: &Account| {
            let Account { name, queued, held, cap, parked } = queue;
            let limit = self.limits.iter().find(|(account, _)| account == name).map(|(_, limit)| limit);
            let parked = match (parked, limit.and_then(|limit| Some((limit, limit.until?)))) {
                (true, Some((limit, until))) => format!(", parked until {until}: {}", why_parked(limit)),
                (true, None) => ", parked".to_owned(),
                (false, _) => String::new(),
            };
            format!("{name} {queued} waiting, {held} of {cap} running{parked}")
        };
        match self.queues.is_empty() {
            true => "queue: no accounts yet".to_owned(),
            false => format!("queue: {}", self.queues.iter().map(one).collect::<Vec<_>>().join("; ")),
        }
    }
}

fn entry(machine: &Presence) -> MachineEntry {
    let mut detail = format!(
        "{}/{} jobs, load {}.{:02}, accounts {}",
        machine.jobs.len(),
        machine.slots,
        machine.load / 100,
        machine.load % 100,
        machine.accounts.iter().map(Name::as_str).collect::<Vec<_>>().join(" ")
    );
    if !machine.graphs.is_empty() {
        detail.push_str(&format!(", coordinates {}", count(machine.graphs.len() as u64, "graph")));
    }
    if !machine.labels.is_empty() {
        detail.push_str(&format!(", labels {}", machine.labels.join(" ")));
    }
    if machine.draining {
        detail.push_str(", draining");
    }
    if let Some(trouble) = &machine.trouble {
        detail.push_str(&format!(", takes no jobs: {trouble}"));
    }
    MachineEntry {
        name: machine.worker.to_string(),
        state: MachineState::Up,
        since: machine.since,
        why: None,
        version: Some(machine.version.clone()),
        runs: machine.jobs.len() + machine.graphs.len(),
        detail: Some(detail),
    }
}
