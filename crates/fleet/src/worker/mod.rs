//! `dogwatch work`: pulls jobs, holds their leases, and runs them as ordinary dogwatch runs.
//!
//! ```text
//! mod.rs       the worker: reports its presence, drains
//! pulling.rs   pulls jobs for free slots, and graphs whose nodes are jobs of their own
//! holding.rs   one delivered job: carries out what the lease machine decides
//! running.rs   one claimed job: checkout, run    finishing.rs its result
//! early.rs     a checkout before the claim        remains.rs  what an earlier claim left
//! leftovers.rs checkouts that a killed worker left
//! steering.rs  requests to a run
//! copying.rs   copies the journal of a run while it grows, and reads its events
//! growing.rs   wakes the copying task when the journal grows
//! journal.rs   the fenced copy on the server      child.rs    the dogwatch process on its leash
//! git.rs       caches, checkouts, pushes          command.rs  bounded commands
//! account.rs   limits that the workers of an account share
//! reserving.rs shares of the budget of the day that running jobs hold
//! nodes.rs     a node of a graph as a job         sessions.rs the graph whose nodes are jobs
//! branches.rs  branches of nodes with worktrees   refusals.rs the jobs that this worker does not run
//! slots.rs     which account gets a free slot
//! ```

pub(crate) mod account;
mod branches;
mod child;
mod command;
mod copying;
mod early;
mod finishing;
mod git;
mod growing;
mod holding;
pub mod journal;
mod leftovers;
mod nodes;
mod pulling;
mod refusals;
mod remains;
pub(crate) mod reserving;
mod running;
pub mod sessions;
mod slots;
mod steering;

use crate::client::{Client, FleetError, Log, MAX_RECONNECT};
use crate::join::JoinLine;
use crate::names::{self, Name};
use crate::record::{Job, Limit, Presence, Want};
use dogwatch_core::lease::Times;
use dogwatch_core::time::moment::{Boot, Wall};
use dogwatch_host::clock;
use git::Repositories;
use refusals::Refusals;
use running::Order;
use slots::Slots;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The most jobs that one worker runs at once.
pub const MAX_SLOTS: usize = 1024;
/// The least free space for a new job, in bytes.
pub const MIN_FREE: u64 = 256 * 1024 * 1024;
/// With less free space than this the runs of a worker are ended, in bytes: they cannot write their records.
pub const FULL: u64 = 4 * 1024 * 1024;
/// How often a worker that has too little space for jobs looks at its disk. A file system reports no changes of its free
/// space. A worker with enough space does not look by time: it looks before each pull, and when it renews a lease.
const LOOK: Duration = Duration::from_secs(5);
/// How long a worker waits for its jobs to end when it is drained.
pub const MAX_DRAIN: Duration = Duration::from_secs(60);
/// The pause after the first attempt to connect that failed.
const CONNECT_RETRY: Duration = Duration::from_millis(50);

/// Why a checked-out job does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// This worker does not allow it; another may.
    Here(String),
    /// It cannot work anywhere.
    Everywhere(String),
}

/// Decides whether this worker may run a checked-out job.
pub type Allow = Arc<dyn Fn(&Path, &Job) -> Result<(), Denied> + Send + Sync>;

/// How a worker works.
#[derive(Clone)]
pub struct Settings {
    /// How to connect, as whom, and for which accounts.
    pub join: JoinLine,
    /// How many jobs it runs at once.
    pub slots: usize,
    /// Its labels.
    pub labels: Vec<String>,
    /// The repositories that it runs jobs of: addresses, where `*` matches anything.
    pub repositories: Vec<String>,
    /// Decides about agents.
    pub allow: Allow,
    /// Where it keeps caches and checkouts.
    pub dir: PathBuf,
    /// The dogwatch program.
    pub program: PathBuf,
    /// Its version.
    pub version: String,
    /// The times of leases.
    pub times: Times,
}

/// A worker.
pub(crate) struct Worker {
    pub settings: Settings,
    pub client: Client,
    pub repositories: Repositories,
    pub log: Log,
    pub drain: watch::Receiver<bool>,
    jobs: Mutex<BTreeMap<u64, Held>>,
    tickets: AtomicU64,
    refusals: Mutex<Refusals>,
    limits: watch::Sender<BTreeMap<Name, Limit>>,
    /// Changes when reservations of an account may have changed.
    shares: watch::Sender<()>,
    changed: tokio::sync::Notify,
    since: Wall,
}

/// A job that this worker runs.
#[derive(Clone)]
struct Held {
    job: names::JobId,
    /// Whether it is a graph whose nodes are jobs of their own. It holds no slot.
    spread: bool,
    orders: mpsc::UnboundedSender<Order>,
}

/// Works until `drain` is set and every job is given back.
pub async fn work(settings: Settings, log: Log, mut drain: watch::Receiver<bool>) -> Result<(), FleetError> {
    let connected = first_connection(&settings.join, &log, &mut drain).await?;
    let Some(client) = connected else { return Ok(()) };
    let client = client.with_request_timeout(Duration::from_millis(settings.times.attempt.as_millis()));
    let slots = settings.slots.clamp(1, MAX_SLOTS);
    let (asked, drained) = watch::channel(false);
    let worker = Arc::new(Worker {
        repositories: Repositories::at(&settings.dir),
        settings,
        client,
        log,
        drain: drained.clone(),
        jobs: Mutex::default(),
        tickets: AtomicU64::new(0),
        refusals: Mutex::default(),
        limits: watch::channel(BTreeMap::new()).0,
        shares: watch::channel(()).0,
        changed: tokio::sync::Notify::new(),
        since: clock::now().wall,
    });
    if worker.is_drained().await {
        worker.say(&undo(worker.name()));
        return Ok(());
    }
    leftovers::remove(&worker).await;
    let free = Slots::new(slots);
    let graphs = Slots::new(slots);
    let (mut pulls, mut tasks) = (tokio::task::JoinSet::new(), tokio::task::JoinSet::new());
    for account in &worker.settings.join.accounts {
        pulls.spawn(pulling::jobs(worker.clone(), account.clone(), free.clone()));
        pulls.spawn(pulling::graphs(worker.clone(), account.clone(), graphs.clone()));
        tasks.spawn(account::follow(worker.clone(), account.clone()));
    }
    let asked = Arc::new(asked);
    tasks.spawn(hear_drain(worker.clone(), asked.clone()));
    let presence = tokio::spawn(report_presence(worker.clone()));
    let mut by_operator = drained;
    tokio::select! {
        // The worker also ends when its caller does.
        _ = drain.wait_for(|set| *set) => {}
        _ = by_operator.wait_for(|set| *set) => worker.say(&undo(worker.name())),
    }
    worker.say("draining: no new jobs; running jobs are given back");
    tasks.shutdown().await;
    asked.send_replace(true);
    // A pull ends when it cannot bring a job any more. Without a server the queue delivers such a job again later.
    if worker.client.is_connected() {
        let pulled = async { while pulls.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(names::REQUEST, pulled).await;
    }
    pulls.shutdown().await;
    // Every job holds a slot until its lease is over.
    let all_free = async { tokio::join!(free.all_free(), graphs.all_free()) };
    let ended = tokio::time::timeout(MAX_DRAIN, all_free).await;
    if ended.is_err() {
        worker.say("some jobs did not end in time; their leases will run out");
    }
    presence.abort();
    let key = worker.settings.join.user.to_string();
    // Without it the entry expires by itself.
    if worker.client.is_connected() {
        let _ = worker.client.remove(names::KV_HERE, &key).await;
        worker.client.flush().await;
    }
    Ok(())
}

/// Returns what a worker says that ends because the operator drained it.
fn undo(worker: &Name) -> String {
    format!("the operator drained this worker; `dogwatch fleet drain {worker} --undo` lets it work again")
}

/// Connects for the first time. Tries again while the server cannot be reached, but not if it refuses the secret. Returns
/// nothing if the worker has to end.
async fn first_connection(
    join: &JoinLine,
    log: &Log,
    drain: &mut watch::Receiver<bool>,
) -> Result<Option<Client>, FleetError> {
    let (mut pause, mut said) = (CONNECT_RETRY, None);
    loop {
        let tried = tokio::select! {
            _ = drain.wait_for(|set| *set) => return Ok(None),
            tried = Client::connect(join, false, log.clone()) => tried,
        };
        let error = match tried {
            Ok(client) => return Ok(Some(client)),
            Err(error @ FleetError::Connect { .. }) => error,
            Err(error) => return Err(error),
        };
        if said.as_ref() != Some(&error) {
            log(&format!("{error}; trying again"));
            log("help: start the server with `dogwatch fleet up`; the join line holds its address");
            said = Some(error);
        }
        tokio::select! {
            _ = drain.wait_for(|set| *set) => return Ok(None),
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(MAX_RECONNECT);
    }
}

/// Kills every command that a worker runs, for a worker that ends at once.
pub(crate) fn end_commands() {
    command::end_all();
}

impl Worker {
    /// Returns whether the operator wants this worker to take no jobs.
    async fn is_drained(&self) -> bool {
        let key = names::worker_key(self.name());
        let stored = self.client.get(names::KV_WANT, &key).await.ok().flatten();
        let stored = stored.filter(|stored| !stored.is_removal());
        stored.and_then(|stored| serde_json::from_slice::<Want>(&stored.payload).ok()) == Some(Want::Stop)
    }

    pub fn say(&self, text: &str) {
        (self.log)(text);
    }

    pub fn name(&self) -> &Name {
        &self.settings.join.user
    }

    /// Returns the times of the lease rule.
    pub fn times(&self) -> Times {
        self.settings.times
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<u64, Held>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job to those that this worker holds. Returns a number for `forget`, and whether no other delivery of the job is
    /// held.
    pub fn add(&self, id: &names::JobId, spread: bool, orders: mpsc::UnboundedSender<Order>) -> (u64, bool) {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let mut jobs = self.jobs();
        let is_only = jobs.values().all(|held| held.job != *id);
        jobs.insert(ticket, Held { job: id.clone(), spread, orders });
        self.changed.notify_one();
        (ticket, is_only)
    }

    /// Removes a job.
    pub fn forget(&self, ticket: u64) {
        self.jobs().remove(&ticket);
        self.changed.notify_one();
    }

    /// Passes an order to the runs of an account.
    pub fn order_account(&self, account: &Name, order: impl Fn() -> Order) {
        for held in self.jobs().values().filter(|held| held.job.account == *account) {
            // A job that has just ended needs no order.
            let _ = held.orders.send(order());
        }
    }

    /// Passes an order to the runs of a job.
    pub fn order_job(&self, job: &names::JobId, order: impl Fn() -> Order) {
        for held in self.jobs().values().filter(|held| held.job == *job) {
            let _ = held.orders.send(order());
        }
    }

    /// Returns the jobs that this worker does not run.
    pub fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the limits of an account, as far as they are known.
    fn known_limit(&self, account: &Name) -> Limit {
        self.limits.borrow().get(account).cloned().unwrap_or_default()
    }

    /// Waits while an account is parked, but not for much longer than a pull. The queue itself delivers no job of a parked
    /// account; without this, open pulls would keep slots from other accounts.
    async fn wait_while_parked(&self, account: &Name) {
        let mut limits = self.limits.subscribe();
        let until = self.known_limit(account).until;
        let left = until.map_or(0, |until| until.0.saturating_sub(clock::now().wall.0));
        if let Some(left) = u64::try_from(left).ok().filter(|left| *left > 0) {
            let changed = limits.wait_for(|all| all.get(account).is_none_or(|limit| limit.until != until));
            // The clock of this machine may be wrong.
            let _ = tokio::time::timeout(Duration::from_millis(left).min(names::PULL), changed).await;
        }
    }

    /// Waits until an account is not parked.
    async fn wait_until_unparked(&self, account: &Name) {
        while self.known_limit(account).until.is_some_and(|until| until > clock::now().wall) {
            self.wait_while_parked(account).await;
        }
    }

    /// Returns the free space of the disk, in bytes, if it is known.
    fn free_space(&self) -> Option<u64> {
        // The directory may not exist yet; then its nearest ancestor counts.
        let dir = self.settings.dir.ancestors().find(|dir| dir.exists())?;
        let stat = rustix::fs::statvfs(dir).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Returns whether the runs here cannot write their records any more.
    fn is_full(&self) -> bool {
        self.free_space().is_some_and(|free| free < FULL)
    }

    /// Returns why this worker can take no job now.
    fn trouble(&self) -> Option<String> {
        let free = self.free_space()?;
        (free < MIN_FREE).then(|| format!("only {} MiB of disk space are free", free / 1024 / 1024))
    }

    /// Returns the jobs that hold a slot, or the graphs that hold none.
    fn held(&self, spread: bool) -> Vec<String> {
        let jobs = self.jobs();
        jobs.values().filter(|held| held.spread == spread).map(|held| held.job.to_string()).collect()
    }

    fn presence(&self) -> Presence {
        Presence {
            worker: self.name().clone(),
            host: host_name(),
            version: self.settings.version.clone(),
            accounts: self.settings.join.accounts.clone(),
            slots: self.settings.slots,
            jobs: self.held(false),
            graphs: self.held(true),
            labels: self.settings.labels.clone(),
            draining: *self.drain.borrow(),
            refuses: self.refusals().recent(now()),
            trouble: self.trouble(),
            load: load(),
            since: self.since,
        }
    }
}

/// Returns the name of this machine.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Returns the load of the last minute, in hundredths of a process.
fn load() -> u32 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = text.split(' ').next().and_then(|word| word.parse::<f32>().ok()).unwrap_or(0.0);
    (load * 100.0) as u32
}

/// Reports that the worker is present, and again when its jobs change.
async fn report_presence(worker: Arc<Worker>) {
    loop {
        let key = worker.name().to_string();
        // The next report repeats one that fails.
        let _ = worker.client.put(names::KV_HERE, &key, &worker.presence(), None).await;
        let _ = tokio::time::timeout(names::PRESENCE / 3, worker.changed.notified()).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Follows the operator's request to drain this worker.
async fn hear_drain(worker: Arc<Worker>, asked: Arc<watch::Sender<bool>>) {
    let mut wishes = worker.client.watch(names::KV_WANT, &names::worker_key(worker.name()));
    loop {
        let stored = wishes.next().await;
        let want = serde_json::from_slice::<Want>(&stored.payload);
        if !stored.is_removal() && want.is_ok_and(|want| want == Want::Stop) {
            asked.send_replace(true);
        }
    }
}

/// Returns the current time of the boot clock.
pub(crate) fn now() -> Boot {
    clock::now().boot
}

/// Returns whether an address matches a pattern, in which `*` matches anything.
pub fn matches(pattern: &str, address: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = address.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Returns whether version `have` is at least `need`. Parts that are not numbers count as 0.
pub fn is_new_enough(have: &str, need: &str) -> bool {
    let numbers = |text: &str| {
        let core = text.split(['-', '+', ' ']).next().unwrap_or_default().to_owned();
        let mut parts = [0_u64; 3];
        for (part, word) in parts.iter_mut().zip(core.split('.')) {
            *part = word.parse().unwrap_or(0);
        }
        parts
    };
    numbers(have) >= numbers(need)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_of_repositories_matches_whole_addresses() {
        for (pattern, address, expected) in [
            ("https://h/a.git", "https://h/a.git", true),
            ("https://h/a.git", "https://h/a.git2", false),
            ("https://h/*", "https://h/x/y", true),
            ("https://h/*.git", "https://h/x", false),
            ("*", "anything", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxc", false),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, address), expected, "{pattern} {address}");
        }
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert!(is_new_enough("0.10.0", "0.9.3"));
        assert!(is_new_enough("1.2.3-dev", "1.2.3"));
        assert!(!is_new_enough("0.1.0", "0.2"));
    }
}
