//! Combines many small pieces of progress into few records, between an agent's output and the watchdog.
//!
//! After a quiet time a record is made at once, otherwise at most once per `PERIOD`. Pending progress is flushed before
//! every evaluation. No record spans a quiet time, so all of a record counts as work. `Watch` sees only these records,
//! and exactly these are recorded, so a replay sees the same.

use crate::record::event::Observation;
use crate::time::dur::Dur;
use crate::time::moment::Awake;
use crate::watch::Channel;

/// The shortest time between two records of a channel.
pub const PERIOD: Dur = Dur::from_secs(5);

/// Combines the progress on one channel.
#[derive(Clone, Debug, Default)]
pub struct Coalescer {
    channel: Channel,
    waiting: Option<Observation>,
    last_record: Option<Awake>,
    /// When anything last arrived, progress or not.
    last_seen: Option<Awake>,
}

impl Coalescer {
    /// Creates a coalescer for a channel.
    pub fn new(channel: Channel) -> Coalescer {
        Coalescer { channel, ..Coalescer::default() }
    }

    /// Takes `count` pieces of progress, `messages` of them messages, and returns the records that are due. Progress from
    /// before a quiet time becomes a separate record.
    pub fn saw(&mut self, at: Awake, count: u64, messages: u64) -> impl Iterator<Item = Observation> + use<> {
        self.seen(at, count, messages, None)
    }

    /// Takes a change of the work tree to this state. A record holds the last state of its stretch.
    pub fn changed(&mut self, at: Awake, digest: Option<u64>) -> impl Iterator<Item = Observation> + use<> {
        self.seen(at, 1, 0, digest)
    }

    /// Takes something that is not progress by itself. Returns whether nothing arrived for a `PERIOD` before it, so that
    /// at most one per `PERIOD` passes.
    pub fn is_after_pause(&mut self, at: Awake) -> bool {
        let before = self.last_seen.replace(at);
        before.is_none_or(|before| at.since(before) >= PERIOD)
    }

    fn seen(
        &mut self,
        at: Awake,
        count: u64,
        messages: u64,
        digest: Option<u64>,
    ) -> impl Iterator<Item = Observation> + use<> {
        if count > 0 {
            self.last_seen = Some(at);
        }
        let quiet = count > 0 && self.waiting.is_some_and(|w| at.since(w.last_ms) >= PERIOD);
        let before = if quiet { self.waiting.take() } else { None };
        let now = if count > 0 { self.add(at, count, messages, digest) } else { None };
        before.into_iter().chain(now)
    }

    fn add(&mut self, at: Awake, count: u64, messages: u64, digest: Option<u64>) -> Option<Observation> {
        self.waiting = Some(match self.waiting {
            Some(w) => Observation {
                last_ms: at,
                count: w.count.saturating_add(count),
                messages: w.messages.saturating_add(messages),
                max_gap_ms: w.max_gap_ms.max(at.since(w.last_ms).as_millis()),
                digest,
                ..w
            },
            None => Observation {
                channel: self.channel,
                first_ms: at,
                last_ms: at,
                count,
                messages,
                max_gap_ms: 0,
                digest,
            },
        });
        let due = self.last_record.is_none_or(|last| at.since(last) >= PERIOD);
        if due { self.flush(at) } else { None }
    }

    /// Returns the pending progress as a record, before an evaluation.
    pub fn flush(&mut self, at: Awake) -> Option<Observation> {
        let record = self.waiting.take();
        if record.is_some() {
            self.last_record = Some(at);
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times of the first and the last piece of each record.
    fn spans(records: impl Iterator<Item = Observation>) -> Vec<(u64, u64)> {
        records.map(|o| (o.first_ms.0, o.last_ms.0)).collect()
    }

    #[test]
    fn the_first_piece_after_quiet_passes_at_once_and_a_flood_every_five_seconds() {
        let mut c = Coalescer::new(Channel::Stdout);
        assert_eq!(spans(c.saw(Awake(100), 1, 1)), [(100, 100)]);
        let records: Vec<Observation> = (101..20_000).flat_map(|ms| c.saw(Awake(ms), 1, 0)).collect();
        assert_eq!(records.iter().map(|o| o.last_ms.0).collect::<Vec<_>>(), [5_100, 10_100, 15_100]);
        assert_eq!(records[0].count, 5_000);
        assert_eq!(c.flush(Awake(20_000)).map(|o| o.count), Some(4_899));
        assert_eq!(c.flush(Awake(20_000)), None);
    }

    #[test]
    fn pending_progress_is_not_joined_to_progress_after_a_quiet_time() {
        let mut c = Coalescer::new(Channel::Stdout);
        assert_eq!(spans(c.saw(Awake(0), 1, 0)), [(0, 0)]);
        assert_eq!(spans(c.saw(Awake(2_000), 1, 0)), []);
        assert_eq!(spans(c.saw(Awake(98_000), 1, 0)), [(2_000, 2_000), (98_000, 98_000)]);
        assert_eq!(spans(c.saw(Awake(99_000), 1, 0)), []);
        assert_eq!(spans(c.saw(Awake(103_999), 1, 0)), [(99_000, 103_999)], "less than a period apart");
    }

    #[test]
    fn the_longest_gap_within_a_record_is_kept() {
        let mut c = Coalescer::new(Channel::Stdout);
        assert_eq!(spans(c.saw(Awake(0), 1, 1)).len(), 1);
        assert_eq!(spans(c.saw(Awake(1_000), 1, 0)), []);
        assert_eq!(spans(c.saw(Awake(4_000), 2, 1)), []);
        let o = c.flush(Awake(4_500)).expect("something waits");
        assert_eq!(
            (o.first_ms, o.last_ms, o.count, o.messages, o.max_gap_ms),
            (Awake(1_000), Awake(4_000), 3, 1, 3_000)
        );
    }

    #[test]
    fn a_record_carries_the_last_state_of_its_stretch() {
        let mut c = Coalescer::new(Channel::Workspace);
        let states = |records: Vec<Observation>| records.iter().map(|o| o.digest).collect::<Vec<_>>();
        assert_eq!(states(c.changed(Awake(0), Some(1)).collect()), [Some(1)]);
        assert_eq!(states(c.changed(Awake(100), Some(2)).collect()), []);
        assert_eq!(states(c.changed(Awake(200), Some(3)).collect()), []);
        assert_eq!(states(c.changed(Awake(90_000), None).collect()), [Some(3), None]);
    }

    #[test]
    fn a_repeated_line_passes_after_a_pause_only() {
        let mut c = Coalescer::new(Channel::Stdout);
        assert_eq!(spans(c.saw(Awake(0), 1, 1)).len(), 1);
        let passed: Vec<u64> = (1..=300).map(|n| n * 100).filter(|ms| c.is_after_pause(Awake(*ms))).collect();
        assert_eq!(passed, [] as [u64; 0], "a line every 100 ms never pauses");
        assert!(c.is_after_pause(Awake(35_000)) && !c.is_after_pause(Awake(39_999)));
        assert!(c.is_after_pause(Awake(44_999)));
    }

    #[test]
    fn nothing_seen_is_nothing_recorded() {
        let mut c = Coalescer::new(Channel::Workspace);
        assert_eq!(spans(c.saw(Awake(0), 0, 0)), []);
        assert_eq!(spans(c.saw(Awake(0), 1, 0)).len() + spans(c.saw(Awake(1), 1, 0)).len(), 1);
        assert_eq!(spans(c.saw(Awake(9_000), 0, 0)), [], "and pending progress is not flushed by it");
    }
}
