//! The lease of a fleet's job: which worker may run it, and until when.
//!
//! The record of a job in the fleet's key-value store is the truth, and its revision is the fence: every write names
//! the revision it replaces. The queue only hints. `Lease` is the machine of one worker for one delivered job. It is
//! pure: inputs carry moments of the worker's own boot clock, and no other clock takes part.

mod machine;
mod record;
pub mod reserve;
pub mod spread;
#[cfg(test)]
mod tests;

pub use machine::{Decision, Input, Lease, Seen};
pub use record::{JobRecord, JobResult, JobState};

use crate::time::dur::Dur;

/// How many unclean ends without a finished iteration poison a job.
pub const MAX_CRASHES: u32 = 3;
/// How often a claim without an answer is tried before the worker leaves the job to others.
pub const CLAIM_TRIES: u32 = 5;

/// The times of the lease rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How long a record must stay unchanged before another worker takes the job.
    pub lease: Dur,
    /// How often the owner renews.
    pub renew: Dur,
    /// How long one request may take.
    pub attempt: Dur,
    /// How long before the end of the lease the agent is ended.
    pub stop: Dur,
    /// The pause after a request that failed.
    pub retry: Dur,
}

impl Times {
    /// The times of a fleet.
    pub const STANDARD: Times = Times {
        lease: Dur::from_secs(60),
        renew: Dur::from_secs(10),
        attempt: Dur::from_secs(3),
        stop: Dur::from_secs(15),
        retry: Dur::from_millis(250),
    };

    /// Returns the times for a shorter lease, all in the same proportion. For tests and demonstrations.
    pub fn with_lease(lease: Dur) -> Times {
        let all = Times::STANDARD;
        let scale = |time: Dur| {
            let scaled = time.as_millis().saturating_mul(lease.as_millis()) / all.lease.as_millis();
            Dur::from_millis(scaled.max(1))
        };
        Times {
            lease,
            renew: scale(all.renew),
            attempt: scale(all.attempt),
            stop: scale(all.stop),
            retry: scale(all.retry),
        }
    }

    /// Returns how long a job may run after its last confirmed renewal was sent.
    pub const fn hold(&self) -> Dur {
        self.lease.saturating_sub(self.stop)
    }
}
