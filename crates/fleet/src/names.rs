//! The names of everything on the server: subjects, streams, buckets and consumers, and the limits that belong to them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The oldest server that has everything a fleet needs: schedules in a work queue.
pub const MIN_SERVER: (u64, u64, u64) = (2, 14, 0);
/// How long the server waits for a sign of life about a delivered job.
pub const ACK_WAIT: Duration = Duration::from_secs(30);
/// How often the client checks that the server answers.
pub const PING: Duration = Duration::from_secs(5);
/// How long one request may take.
pub const REQUEST: Duration = Duration::from_secs(3);
/// How long one pull stays open on the server.
pub const PULL: Duration = Duration::from_secs(30);
/// How long a worker is listed after its last sign of life.
pub const PRESENCE: Duration = Duration::from_secs(60);
/// How long journals are kept.
pub const KEEP_EVENTS: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long the server remembers the ids of messages.
pub const DEDUPE: Duration = Duration::from_secs(600);
/// The largest piece of a journal in one message, in bytes.
pub const MAX_PIECE: usize = 256 * 1024;
/// The shortest time between two pieces of one journal.
pub const PIECE_EVERY: Duration = Duration::from_secs(1);
/// How many pulls of one account may be open.
pub const MAX_WAITING: i64 = 4096;
/// How many jobs of an account run at once unless the operator says otherwise.
pub const DEFAULT_CAP: i64 = 64;
/// How many graphs of an account may be spread over workers at once. They hold no slot.
pub const MAX_GRAPHS: i64 = 64;
/// The longest name of an account, job or worker, in characters.
pub const MAX_NAME: usize = 64;

/// The stream that is the queue.
pub const JOBS: &str = "DW_JOBS";
/// The stream that holds journals.
pub const EVENTS: &str = "DW_EV";
/// The stream that counts money.
pub const COST: &str = "DW_COST";
/// The bucket with the records of jobs.
pub const KV_JOBS: &str = "dw_jobs";
/// The bucket with what operators want of a job.
pub const KV_WANT: &str = "dw_want";
/// The bucket with the limits of accounts.
pub const KV_LIMITS: &str = "dw_limits";
/// The bucket in which workers report that they are present.
pub const KV_HERE: &str = "dw_here";
/// The bucket of large objects.
pub const BLOBS: &str = "dw_blobs";

/// The header of a piece of a journal: the epoch of its writer.
pub const H_EPOCH: &str = "Dw-Epoch";
/// The header of a piece of a journal: its offset in bytes.
pub const H_OFFSET: &str = "Dw-Offset";
/// The header of a piece of a journal: the commit of the work tree's HEAD, as pushed.
pub const H_HEAD: &str = "Dw-Head";
/// The header of a piece of a journal: the commit that holds the work tree, as pushed.
pub const H_TREE: &str = "Dw-Tree";

/// The name of an account, a job or a worker: lower-case letters, digits, `-` and `_`. It is one token of a subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a name: use up to {MAX_NAME} lower-case letters, digits, `-` and `_`", .0.escape_default())]
pub struct NameError(pub String);

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Name, NameError> {
        let first = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let all =
            text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_');
        if first && all && text.len() <= MAX_NAME {
            Ok(Name(text.to_owned()))
        } else {
            Err(NameError(text.to_owned()))
        }
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Name, NameError> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A job: its account and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    /// The account.
    pub account: Name,
    /// The job.
    pub job: Name,
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.account, self.job)
    }
}

impl FromStr for JobId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<JobId, NameError> {
        let (account, job) = text.split_once('.').ok_or_else(|| NameError(text.to_owned()))?;
        Ok(JobId { account: account.parse()?, job: job.parse()? })
    }
}

impl JobId {
    /// Returns the subject of the job's message in the queue.
    pub fn queue_subject(&self) -> String {
        format!("dw.jobs.{self}")
    }

    /// Returns the subject of the job's journal.
    pub fn events_subject(&self) -> String {
        format!("dw.ev.{self}")
    }

    /// Returns the subject on which the owner of the job listens to operators.
    pub fn control_subject(&self) -> String {
        format!("dw.ctl.{self}")
    }

    /// Returns the subject of a graph whose nodes are jobs of their own.
    pub fn graph_subject(&self) -> String {
        format!("dw.graphs.{self}")
    }

    /// Returns the subject of a node in the queue. Only such jobs are queued by workers.
    pub fn node_subject(&self) -> String {
        format!("dw.jobs.{}.node.{}", self.account, self.job)
    }

    /// Returns the subject on which the owner of a node hears that it has to end.
    pub fn end_subject(&self) -> String {
        format!("dw.end.{self}")
    }

    /// Returns the ref that holds the result of a node.
    pub fn result_ref(&self, epoch: u64) -> String {
        format!("refs/dogwatch/{}/{epoch}/result", self.job)
    }

    /// Returns the ref that holds the work of a node with a worktree of its own.
    pub fn branch_ref(&self, epoch: u64, node: &str) -> String {
        format!("refs/dogwatch/{}/{epoch}/nodes/{node}", self.job)
    }

    /// Returns the branch that holds the result of a claim.
    pub fn branch(&self, epoch: u64) -> String {
        format!("refs/heads/dogwatch/{}/{epoch}", self.job)
    }

    /// Returns the ref that holds the work tree of a claim.
    pub fn tree_ref(&self, epoch: u64) -> String {
        format!("refs/dogwatch/{}/{epoch}/tree", self.job)
    }
}

/// Returns a short hash of a text, the same on every machine.
pub(crate) fn short_hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Returns the subjects of all jobs of an account, with the nodes of graphs.
pub fn queue_of(account: &Name) -> String {
    format!("dw.jobs.{account}.>")
}

/// Returns the subjects of an account's graphs whose nodes are jobs of their own.
pub fn graphs_of(account: &Name) -> String {
    format!("dw.graphs.{account}.*")
}

/// Returns the consumer of an account's graphs. No account has such a name.
pub fn graph_queue(account: &Name) -> String {
    format!("_graphs-{account}")
}

/// Returns the subjects of all answers to the queue.
pub fn all_answers() -> String {
    format!("$JS.ACK.{JOBS}.>")
}

/// Returns the subject of a schedule.
pub fn schedule_subject(account: &Name, name: &Name) -> String {
    format!("dw.sched.{account}.{name}")
}

/// Returns the subject that counts the cost of an account on a day (`2026-11-17`), in millionths of a dollar.
pub fn cost_subject(account: &Name, day: &str) -> String {
    format!("dw.cost.{account}.{day}")
}

/// Returns the subject that counts the tokens of an account on a day.
pub fn tokens_subject(account: &Name, day: &str) -> String {
    format!("dw.cost.{account}.tokens-{day}")
}

/// Returns the key of an account's reservations, in the bucket of limits.
pub fn reserved_key(account: &Name) -> String {
    format!("{account}.reserved")
}

/// Returns the key that marks a poisoned job as reported, in the bucket of wishes.
pub fn notified_key(job: &JobId) -> String {
    format!("_notified.{job}")
}

/// Returns the subject of the pieces of a worker's object.
pub fn blob_pieces(worker: &Name, id: &str) -> String {
    format!("$O.{BLOBS}.C.{worker}.{id}")
}

/// Returns the subject of the description of a worker's object; the key is its name in base64url.
pub fn blob_description(worker: &Name, key: &str) -> String {
    format!("$O.{BLOBS}.M.{worker}.{key}")
}

/// Returns the stream behind a bucket.
pub fn bucket_stream(bucket: &str) -> String {
    format!("KV_{bucket}")
}

/// Returns the subject of a key in a bucket.
pub fn key_subject(bucket: &str, key: &str) -> String {
    format!("$KV.{bucket}.{key}")
}

/// How the keys of the operator's wishes for workers start.
pub const WORKER_KEYS: &str = "_worker.";

/// Returns the key of the operator's wish for a worker, in the bucket of wishes. No account has such a name.
pub fn worker_key(worker: &Name) -> String {
    format!("{WORKER_KEYS}{worker}")
}

/// The subjects that a worker may use. The server denies all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// The subjects that it may publish to.
    pub publish: Vec<String>,
    /// The subjects that it may subscribe to.
    pub subscribe: Vec<String>,
}

/// Returns the inbox prefix of a worker.
pub fn inbox_prefix(worker: &Name) -> String {
    format!("_INBOX_{worker}")
}

/// Returns what a worker needs for its accounts. It cannot change streams or touch other accounts, and of jobs it can queue
/// only nodes of graphs that the operator queued.
pub fn worker_permissions(worker: &Name, accounts: &[Name]) -> Permissions {
    let own_want = key_subject(KV_WANT, &worker_key(worker));
    let mut publish = vec![
        format!("$KV.{KV_HERE}.{worker}"),
        format!("$JS.API.DIRECT.GET.KV_{KV_WANT}.{own_want}"),
        format!("$JS.API.CONSUMER.CREATE.KV_{KV_WANT}.*.{own_want}"),
    ];
    let mut subscribe = vec![format!("{}.>", inbox_prefix(worker))];
    for account in accounts {
        let reserved = key_subject(KV_LIMITS, &reserved_key(account));
        publish.extend([
            format!("$JS.API.CONSUMER.MSG.NEXT.{JOBS}.{account}"),
            format!("$JS.API.CONSUMER.PAUSE.{JOBS}.{account}"),
            format!("$JS.ACK.{JOBS}.{account}.>"),
            format!("$JS.API.CONSUMER.MSG.NEXT.{JOBS}.{}", graph_queue(account)),
            format!("$JS.ACK.{JOBS}.{}.>", graph_queue(account)),
            format!("$JS.API.DIRECT.GET.{JOBS}.{}", graphs_of(account)),
            format!("dw.jobs.{account}.node.*"),
            format!("dw.end.{account}.*"),
            format!("$KV.{KV_JOBS}.{account}.*"),
            format!("$KV.{KV_LIMITS}.{account}"),
            reserved.clone(),
            format!("$JS.API.DIRECT.GET.KV_{KV_JOBS}.$KV.{KV_JOBS}.{account}.*"),
            format!("$JS.API.DIRECT.GET.KV_{KV_WANT}.$KV.{KV_WANT}.{account}.*"),
            format!("$JS.API.DIRECT.GET.KV_{KV_LIMITS}.$KV.{KV_LIMITS}.{account}"),
            format!("$JS.API.DIRECT.GET.KV_{KV_LIMITS}.{reserved}"),
            format!("$JS.API.CONSUMER.CREATE.KV_{KV_JOBS}.*.$KV.{KV_JOBS}.{account}.*"),
            format!("$JS.API.CONSUMER.CREATE.KV_{KV_WANT}.*.$KV.{KV_WANT}.{account}.*"),
            format!("$JS.API.CONSUMER.CREATE.KV_{KV_LIMITS}.*.$KV.{KV_LIMITS}.{account}"),
            format!("$JS.API.CONSUMER.CREATE.KV_{KV_LIMITS}.*.{reserved}"),
            format!("dw.ev.{account}.*"),
            format!("$JS.API.DIRECT.GET.{EVENTS}.dw.ev.{account}.*"),
            format!("$JS.API.CONSUMER.CREATE.{EVENTS}.*.dw.ev.{account}.*"),
            format!("dw.cost.{account}.*"),
            format!("$JS.API.DIRECT.GET.{COST}.dw.cost.{account}.*"),
        ]);
        subscribe.extend([format!("dw.ctl.{account}.*"), format!("dw.end.{account}.*")]);
    }
    // The name of a reading consumer is random, and only its creation says what it reads.
    publish.push(format!("$JS.API.CONSUMER.MSG.NEXT.{EVENTS}.*"));
    publish.extend([blob_pieces(worker, "*"), blob_description(worker, "*")]);
    Permissions { publish, subscribe }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_token_of_a_subject() {
        for good in ["a", "acme", "job-1_x", "0a", &"x".repeat(MAX_NAME)] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", "A", "a.b", "a b", "*", ">", "-a", "ä", &"x".repeat(MAX_NAME + 1)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_worker_may_not_touch_the_queue_or_another_account() {
        let name = |text: &str| text.parse::<Name>().expect("a name");
        let may = worker_permissions(&name("anna"), &[name("acme")]);
        let all = may.publish.iter().chain(&may.subscribe);
        assert!(all.clone().count() > 10);
        for subject in all {
            let words: Vec<&str> = subject.split('.').collect();
            assert!(!subject.starts_with("dw.jobs") || subject == "dw.jobs.acme.node.*", "{subject}");
            assert!(!subject.starts_with("dw.graphs"), "{subject}");
            assert!(!words.contains(&"STREAM"), "{subject}");
            let own = subject.contains("acme") || subject.contains("anna");
            let shared = subject.ends_with("MSG.NEXT.DW_EV.*");
            assert!(own || shared, "{subject}");
        }
    }
}
