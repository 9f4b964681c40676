//! The state of a fleet as it was read, and what of it is shown.

use crate::names::{JobId, Name};
use crate::record::{JobRecord, JobState, Limit, Presence, Want, why_parked};
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

/// Why a revoked worker that still owns a job is listed.
pub const REVOKED: &str = "revoked; its jobs move when their leases end";

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
    /// The wishes of the operator for jobs.
    pub wants: Vec<(JobId, Want)>,
    /// The workers that were asked to drain.
    pub draining: Vec<Name>,
    /// The workers that were revoked.
    pub revoked: Vec<Name>,
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

    /// Returns the state of a job in one word: the outcome of one that is over.
    pub fn state_of<'a>(&self, id: &JobId, record: &'a JobRecord) -> &'a str {
        let want = self.wants.iter().find(|(job, _)| job == id).map(|(_, want)| *want);
        match (record.state, want) {
            (JobState::Done, _) => record.result.as_ref().map_or("done", |result| &result.outcome),
            (JobState::Running, Some(Want::Pause)) => "paused",
            (JobState::Running, Some(Want::Stop)) => "stopping",
            (JobState::Running | JobState::Queued | JobState::Released | JobState::Poisoned, _) => {
                record.state.as_str()
            }
        }
    }

    /// Returns why a job is in its state, if there is more to say than the state.
    pub fn detail_of(&self, id: &JobId, record: &JobRecord) -> Option<String> {
        match record.state {
            JobState::Running => None,
            JobState::Done | JobState::Poisoned => record.result.as_ref()?.detail.clone(),
            JobState::Queued | JobState::Released => {
                let gave_up = record.why.as_ref().map(|why| format!("{} gave it up: {why}", record.owner));
                let reasons: Vec<String> = gave_up.into_iter().chain(self.why_waiting(id, record)).collect();
                (!reasons.is_empty()).then(|| reasons.join("; "))
            }
        }
    }

    /// Returns the jobs of any account that have this name.
    pub fn named(&self, name: &str) -> Vec<&JobId> {
        self.jobs.iter().map(|(id, _)| id).filter(|id| id.job.as_str() == name).collect()
    }

    /// Returns whether the fleet has seen a worker: it is present, was asked to drain, or owned a job.
    pub fn knows(&self, worker: &Name) -> bool {
        self.machines.iter().any(|machine| machine.worker == *worker)
            || self.draining.contains(worker)
            || self.jobs.iter().any(|(_, record)| record.owner == worker.as_str())
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
            why: Some(match self.revoked.iter().any(|revoked| revoked.as_str() == name) {
                true => REVOKED.to_owned(),
                false => "no sign of life for a minute; its jobs move when their leases end".to_owned(),
            }),
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

    /// Returns how many jobs of a queue wait and how many run. The server counts a job that every worker refused as held
    /// until it delivers it again.
    fn split(&self, queue: &Account) -> (u64, u64) {
        let graph = |id: &JobId| self.machines.iter().any(|machine| machine.graphs.contains(&id.to_string()));
        let running = self.jobs.iter().filter(|(id, record)| {
            id.account == queue.name && record.state == JobState::Running && !graph(id)
        });
        let running = queue.held.min(running.count() as u64);
        (queue.queued + queue.held - running, running)
    }

    /// Describes the queue: `queue: acme 12 waiting, 3 of 8 running; corp parked until 21:00`.
    pub fn summary(&self) -> String {
        let one = |queue: &Account| {
            let Account { name, cap, parked, .. } = queue;
            let (waiting, running) = self.split(queue);
            let limit = self.limits.iter().find(|(account, _)| account == name).map(|(_, limit)| limit);
            let parked = match (parked, limit.and_then(|limit| Some((limit, limit.until?)))) {
                (true, Some((limit, until))) => format!(", parked until {until}: {}", why_parked(limit)),
                (true, None) => ", parked".to_owned(),
                (false, _) => String::new(),
            };
            format!("{name} {waiting} waiting, {running} of {cap} running{parked}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{JobResult, Refusal};

    fn id(text: &str) -> JobId {
        text.parse().expect("a job")
    }

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn machine(refuses: &[(&str, &str)]) -> Presence {
        let refuses = refuses.iter().map(|(job, why)| Refusal { job: (*job).into(), why: (*why).into() });
        Presence {
            worker: name("anna"),
            host: "box1".into(),
            version: "0.1.0".into(),
            accounts: vec![name("acme")],
            slots: 1,
            jobs: Vec::new(),
            graphs: Vec::new(),
            labels: Vec::new(),
            draining: false,
            refuses: refuses.collect(),
            trouble: None,
            load: 0,
            since: Wall(0),
        }
    }

    fn job(job: &str, state: JobState) -> (JobId, JobRecord) {
        (id(job), JobRecord { state, owner: "anna".into(), ..JobRecord::default() })
    }

    #[test]
    fn a_job_that_is_over_is_listed_with_its_outcome_and_the_reason() {
        let mut fleet = Fleet::default();
        let (id, mut record) = job("acme.one", JobState::Done);
        assert_eq!((fleet.state_of(&id, &record), fleet.detail_of(&id, &record)), ("done", None));
        let detail = Some("no RALPH.md in work".to_owned());
        record.result =
            Some(JobResult { outcome: "refused".into(), detail: detail.clone(), ..JobResult::default() });
        assert_eq!((fleet.state_of(&id, &record), fleet.detail_of(&id, &record)), ("refused", detail));
        record.state = JobState::Running;
        assert_eq!((fleet.state_of(&id, &record), fleet.detail_of(&id, &record)), ("running", None));
        for (want, state) in [(Want::Pause, "paused"), (Want::Stop, "stopping"), (Want::Run, "running")] {
            fleet.wants = vec![(id.clone(), want)];
            assert_eq!(fleet.state_of(&id, &record), state);
        }
    }

    #[test]
    fn a_released_job_is_listed_with_the_reason_of_its_last_worker() {
        let fleet = Fleet { machines: vec![machine(&[])], ..Fleet::default() };
        let (id, mut record) = job("acme.one", JobState::Released);
        assert_eq!(fleet.detail_of(&id, &record), None);
        record.why = Some("dogwatch was killed by signal 9".into());
        let why = "anna gave it up: dogwatch was killed by signal 9";
        assert_eq!(fleet.detail_of(&id, &record).as_deref(), Some(why));
    }

    #[test]
    fn a_job_that_every_worker_refused_counts_as_waiting() {
        let queue = Account { name: name("acme"), queued: 0, held: 2, cap: 64, parked: false };
        let fleet = Fleet {
            machines: vec![machine(&[("acme.two", "it needs the label gpu")])],
            jobs: vec![job("acme.one", JobState::Running), job("acme.two", JobState::Queued)],
            queues: vec![queue],
            ..Fleet::default()
        };
        assert_eq!(fleet.summary(), "queue: acme 1 waiting, 1 of 64 running");
        let (id, record) = &fleet.jobs[1];
        let why = "no worker runs it: anna: it needs the label gpu";
        assert_eq!(fleet.detail_of(id, record).as_deref(), Some(why));
    }

    #[test]
    fn a_worker_without_a_sign_of_life_is_listed_once_and_a_revoked_one_says_so() {
        let jobs = vec![job("acme.one", JobState::Running), job("acme.two", JobState::Running)];
        let mut fleet = Fleet { jobs, ..Fleet::default() };
        let why = |fleet: &Fleet| {
            let all = fleet.entries(Wall(0));
            assert_eq!(all.len(), 1);
            all[0].why.clone().expect("a reason")
        };
        assert!(why(&fleet).contains("no sign of life"));
        fleet.revoked = vec![name("anna")];
        assert_eq!(why(&fleet), REVOKED);
        assert!(fleet.knows(&name("anna")) && !fleet.knows(&name("otto")));
    }
}
