//! Notifications: when they are sent, and how long the end of a run waits for their delivery.

use super::Run;
use crate::record::event::{Event, RunEnded};
use crate::record::notification::{self, How};
use crate::run::decision::Decision;
use crate::run::input::Input;
use crate::time::dur::Dur;
use crate::time::timer::{Deadline, Timer};

/// How long the end of a run waits for the delivery of the last notifications.
const LAST_NOTIFICATIONS: Dur = Dur::from_secs(12);

/// The end of a run, which is recorded after its notifications are delivered.
pub(super) struct PendingEnd {
    ended: RunEnded,
    waiting: Vec<(String, How)>,
}

impl Run {
    /// Ends the run: sends the notifications of its end and then records the end.
    pub(super) fn leave(&mut self, ended: RunEnded) {
        let fresh = notification::of_end(&ended, self.cx.now.wall, &self.cx.view);
        let before = self.cx.view.notifications.pending.iter().map(|d| (d.notification.key.clone(), d.how));
        let waiting: Vec<_> =
            before.chain(fresh.iter().map(|d| (d.notification.key.clone(), d.how))).collect();
        self.cx.out.extend(fresh.into_iter().map(|d| Decision::Notify(Box::new(d))));
        let at = self.cx.now.awake.plus(LAST_NOTIFICATIONS);
        self.cx.timers.set(Timer::LastNotifications, Deadline::Awake(at));
        self.pending_end = Some(PendingEnd { ended, waiting });
        self.leave_if_notified();
    }

    /// Handles an input while the run only waits for its last notifications.
    #[expect(clippy::wildcard_enum_match_arm, reason = "at the end only a few inputs matter")]
    pub(super) fn take_at_the_end(&mut self, input: Input) {
        match input {
            Input::Notified { key, how, error } => self.notified(key, how, error),
            // A further stop request ends the wait.
            Input::Interrupted | Input::EndAsked(_) | Input::LeashClosed | Input::RecordLost { .. } => {
                self.leave_now();
            }
            Input::Noticed { kind, message } => self.cx.record(Event::Notice { kind: kind.into(), message }),
            Input::TroubleMet { kind, detail } => self.cx.trouble(kind, detail),
            Input::RecordFailed { detail } => self.record_failed(detail),
            Input::RecordRecovered => self.record_recovered(),
            _ => {}
        }
    }

    pub(super) fn notified(&mut self, key: String, how: How, error: Option<String>) {
        if let Some(words) = &mut self.pending_end {
            words.waiting.retain(|(k, h)| *k != key || *h != how);
        }
        self.cx.notified(key, how, error);
        self.leave_if_notified();
    }

    fn leave_if_notified(&mut self) {
        if self.pending_end.as_ref().is_some_and(|words| words.waiting.is_empty()) {
            self.leave_now();
        }
    }

    /// Records the end of the run. Notifications that are still pending are recorded as failed.
    pub(super) fn leave_now(&mut self) {
        let Some(PendingEnd { ended, waiting }) = self.pending_end.take() else { return };
        for (key, how) in waiting {
            self.cx.notified(key, how, Some("not delivered before the run ended".to_owned()));
        }
        let exit_code = ended.exit_code;
        self.cx.record(Event::RunEnded(ended));
        self.cx.out.push(Decision::Finish { exit_code });
        self.finished = true;
    }

    /// Sends the notifications again that the lost supervisor had not delivered.
    pub(super) fn resend_notifications(&mut self) {
        let pending = self.cx.view.notifications.pending.clone();
        self.cx.out.extend(pending.into_iter().map(|d| Decision::Notify(Box::new(d))));
    }
}
