//! Waits for records, keys and journals.

use super::{ACCOUNT, Harbor, TIMEOUT, id};
use dogwatch_core::lease::{JobRecord, JobState};
use dogwatch_fleet::names::{self, JobId};
use dogwatch_fleet::record::{Limit, Presence};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

impl Harbor {
    /// Waits until the record of a job is as wanted, and returns it.
    #[track_caller]
    pub fn until_record(&self, job: &str, what: &str, right: impl Fn(&JobRecord) -> bool) -> JobRecord {
        self.until_record_of(&id(job), what, right)
    }

    #[track_caller]
    pub fn until_record_of(&self, id: &JobId, what: &str, right: impl Fn(&JobRecord) -> bool) -> JobRecord {
        let found = self.records().wait(TIMEOUT, |all| all.get(id).filter(|record| right(record)).cloned());
        found.unwrap_or_else(|| {
            panic!("waited in vain until {id} {what}: {:?}\n{}", self.record_of(id), self.logs())
        })
    }

    #[track_caller]
    pub fn until_state(&self, job: &str, state: JobState) -> JobRecord {
        self.until_record(job, &format!("is {}", state.as_str()), |record| record.state == state)
    }

    /// Waits until this worker owns the job.
    #[track_caller]
    pub fn until_owner(&self, job: &str, owner: &str) -> JobRecord {
        self.until_record(job, &format!("is owned by {owner}"), |record| record.owner == owner)
    }

    /// Waits until the records of all jobs hold something.
    #[track_caller]
    pub fn until_jobs<T>(&self, what: &str, found: impl Fn(&BTreeMap<JobId, JobRecord>) -> Option<T>) -> T {
        let found = self.records().wait(TIMEOUT, found);
        found.unwrap_or_else(|| panic!("waited in vain until {what}\n{}", self.logs()))
    }

    /// Waits until the value of a key is as wanted, and returns it.
    #[track_caller]
    fn until_key<T: DeserializeOwned>(
        &self,
        bucket: &str,
        key: &str,
        what: &str,
        right: impl Fn(&T) -> bool,
    ) -> T {
        let found = self.block_on(|client| async move {
            let mut values = client.watch(bucket, key);
            tokio::time::timeout(TIMEOUT, async {
                loop {
                    let value = serde_json::from_slice(&values.next().await.payload).ok();
                    if let Some(value) = value.filter(&right) {
                        return value;
                    }
                }
            })
            .await
        });
        found.unwrap_or_else(|_| panic!("waited in vain until {what}\n{}", self.logs()))
    }

    #[track_caller]
    pub fn until_limit(&self, what: &str, right: impl Fn(&Limit) -> bool) -> Limit {
        self.until_key(names::KV_LIMITS, ACCOUNT, what, right)
    }

    #[track_caller]
    pub fn until_presence(&self, worker: &str, what: &str, right: impl Fn(&Presence) -> bool) -> Presence {
        self.until_key(names::KV_HERE, worker, what, right)
    }

    /// Waits until the journal of a job on the server is as wanted.
    #[track_caller]
    pub fn until_journal(&self, job: &str, what: &str, right: impl Fn(&str) -> bool) {
        let subject = id(job).events_subject();
        let found = self.block_on(|client| async move {
            let (mut pieces, mut text) = (client.tail(names::EVENTS, &subject), String::new());
            let wait = async {
                while !right(&text) {
                    text.push_str(&String::from_utf8_lossy(&pieces.next().await.payload));
                }
            };
            tokio::time::timeout(TIMEOUT, wait).await
        });
        assert!(found.is_ok(), "waited in vain for {what} in the journal of {job}\n{}", self.logs());
    }
}
