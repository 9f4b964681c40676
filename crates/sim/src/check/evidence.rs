//! Every verdict has evidence, and a reason with figures.

use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::watch::{Channel, Evidence};

/// Asserts that verdicts have evidence of all channels, and that stops have a reason with figures.
#[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
pub(super) fn is_there(events: &[Recorded]) {
    for recorded in events {
        match &recorded.event {
            Event::HardStop { message, evidence_summary, .. } => {
                covers_all_channels(recorded, evidence_summary);
                assert!(
                    message.contains(|c: char| c.is_ascii_digit()),
                    "a stop without a figure: {recorded:?}"
                );
            }
            Event::WatchdogContinue { deferred_by, evidence_summary, .. } => {
                covers_all_channels(recorded, evidence_summary);
                let by = evidence_summary.iter().find(|evidence| evidence.channel == *deferred_by);
                assert!(by.is_some_and(|by| by.counter > 0), "deferred without evidence: {recorded:?}");
            }
            Event::RecoveryPlanned(plan) => assert!(!plan.because.is_empty(), "{recorded:?}"),
            Event::RunEnded(end) => assert!(!end.reason.is_empty(), "{recorded:?}"),
            _ => {}
        }
    }
}

fn covers_all_channels(recorded: &Recorded, evidence: &[Evidence]) {
    let channels: Vec<Channel> = evidence.iter().map(|evidence| evidence.channel).collect();
    assert_eq!(channels, Channel::ALL, "{recorded:?}");
    for evidence in evidence {
        assert_eq!(evidence.counter == 0, evidence.last_at.is_none(), "{recorded:?}");
    }
}
