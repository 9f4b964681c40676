//! Notifications (`notify`). This module decides from the events alone which notifications are sent; the host delivers
//! them.
//!
//! Every notification has a key that is derived from the event. The event `notified` records which keys were delivered,
//! so a notification is sent once, even if the run is resumed. A recipient sees a key twice only if dogwatch was killed
//! between the delivery and its record.

mod targets;

pub use targets::{Telegram, TelegramError, Topic};

use crate::record::event::{self, Event, Outcome, Recorded, RunEnded};
use crate::record::ids::{Iteration, NodeName, RunId};
use crate::record::view::View;
use crate::record::words::{self, Style};
use crate::text::one_line;
use crate::text::redact;
use crate::time::moment::Wall;
use crate::watch::{Evidence, StopReason};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;

/// The most pending deliveries; further notifications are recorded as not delivered.
pub const MAX_PENDING_NOTIFICATIONS: usize = 32;
/// The most keys of delivered notifications that are remembered.
pub const MAX_DELIVERED_KEYS: usize = 256;
/// The longest text of a notification, in bytes.
pub const MAX_NOTIFICATION_TEXT: usize = 1_000;
/// The longest URL of a webhook, in bytes.
pub const MAX_URL: usize = 2_048;

event::words! {
    /// The kinds of notifications.
    NotificationKind {
        /// The run ended.
        Ended = "ended",
        /// The watchdog stopped a session.
        HardStop = "hard_stop",
        /// The agent waits for a person.
        NeedsHuman = "needs_human",
        /// The agent's service refuses for now.
        RateLimited = "rate_limited",
        /// `dogwatch notify` sends it on request; a run never does.
        Test = "test",
    }
}

impl NotificationKind {
    /// The kinds that `notify.on` can name.
    pub const SELECTABLE: [NotificationKind; 4] = [
        NotificationKind::Ended,
        NotificationKind::HardStop,
        NotificationKind::NeedsHuman,
        NotificationKind::RateLimited,
    ];
}

event::words! {
    /// How a notification is delivered.
    How {
        /// A shell command receives it on stdin.
        Command = "command",
        /// It is posted to a URL.
        Webhook = "webhook",
        /// It is published to a topic of ntfy.
        Ntfy = "ntfy",
        /// It is posted to an incoming webhook of Slack.
        Slack = "slack",
        /// It is posted to a webhook of Discord.
        Discord = "discord",
        /// A bot of Telegram sends it.
        Telegram = "telegram",
        /// `notify-send` shows it on this desktop.
        Desktop = "desktop",
    }
}

/// The notifications to send, and where to send them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NotifyPolicy {
    /// The kinds that are sent.
    pub on: Vec<NotificationKind>,
    /// A shell command that receives the notification on stdin.
    pub command: Option<String>,
    /// The URL that the notification is posted to.
    pub webhook: Option<Webhook>,
    /// The topic of ntfy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ntfy: Option<Topic>,
    /// The incoming webhook of Slack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slack: Option<Webhook>,
    /// The webhook of Discord.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discord: Option<Webhook>,
    /// The bot of Telegram and its chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telegram: Option<Telegram>,
    /// Whether the desktop shows the notification.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub desktop: bool,
}

impl NotifyPolicy {
    fn hows(&self, kind: NotificationKind) -> impl Iterator<Item = How> {
        let wanted = self.on.contains(&kind);
        self.targets().into_iter().filter(move |_| wanted)
    }

    /// Returns all configured ways to deliver a notification.
    pub fn targets(&self) -> Vec<How> {
        let is_set = |how: &How| match how {
            How::Command => self.command.is_some(),
            How::Webhook => self.webhook.is_some(),
            How::Ntfy => self.ntfy.is_some(),
            How::Slack => self.slack.is_some(),
            How::Discord => self.discord.is_some(),
            How::Telegram => self.telegram.is_some(),
            How::Desktop => self.desktop,
        };
        How::ALL.iter().copied().filter(is_set).collect()
    }

    /// Returns the policy without secrets, for the record and the screen.
    pub fn redacted(&self) -> NotifyPolicy {
        NotifyPolicy {
            on: self.on.clone(),
            command: self.command.as_deref().map(redact::text),
            webhook: self.webhook.as_ref().map(Webhook::redacted),
            ntfy: self.ntfy.as_ref().map(Topic::redacted),
            slack: self.slack.as_ref().map(Webhook::redacted),
            discord: self.discord.as_ref().map(Webhook::redacted),
            telegram: self.telegram.as_ref().map(Telegram::redacted),
            desktop: self.desktop,
        }
    }
}

/// The URL of a webhook: https, or http to this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Webhook(String);

/// Why a webhook URL is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookError {
    /// The text is not a URL.
    NoUrl,
    /// The URL uses http to another machine, so the notification could be read on the way.
    NotSecret,
    /// The URL contains a user or password.
    HoldsPassword,
    /// The URL is longer than [`MAX_URL`].
    TooLong,
}

impl fmt::Display for WebhookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WebhookError::NoUrl => f.write_str("not a URL; write `https://HOST/PATH`"),
            WebhookError::NotSecret => {
                f.write_str("http is allowed only to this machine (localhost, 127.0.0.1, [::1]); use https")
            }
            WebhookError::HoldsPassword => f.write_str("a URL must not contain a user or password"),
            WebhookError::TooLong => write!(f, "a URL has at most {MAX_URL} bytes"),
        }
    }
}

impl Webhook {
    /// Parses and validates a URL.
    pub fn parse(text: &str) -> Result<Webhook, WebhookError> {
        if text.len() > MAX_URL {
            return Err(WebhookError::TooLong);
        }
        let (scheme, rest) = text.split_once("://").ok_or(WebhookError::NoUrl)?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
        let plain = rest.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'\\' | b'"' | b'<' | b'>'));
        if authority.contains('@') {
            return Err(WebhookError::HoldsPassword);
        }
        let host = host_of(authority).filter(|_| plain).ok_or(WebhookError::NoUrl)?;
        match scheme.to_ascii_lowercase().as_str() {
            "https" => Ok(Webhook(text.to_owned())),
            "http" if is_loopback(host) => Ok(Webhook(text.to_owned())),
            "http" => Err(WebhookError::NotSecret),
            _ => Err(WebhookError::NoUrl),
        }
    }

    /// Returns the complete URL. It may be a secret: anyone who knows it can post to it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the URL uses https.
    pub fn is_https(&self) -> bool {
        self.0.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"))
    }

    /// Returns the URL with its path hidden, because the path is often a secret.
    pub fn redacted(&self) -> Webhook {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("https", ""));
        let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
        if rest.len() == authority.len() || &rest[authority.len()..] == "/" {
            return self.clone();
        }
        Webhook(format!("{scheme}://{authority}/***"))
    }
}

impl TryFrom<String> for Webhook {
    type Error = String;

    fn try_from(text: String) -> Result<Webhook, String> {
        Webhook::parse(&text).map_err(|bad| bad.to_string())
    }
}

impl From<Webhook> for String {
    fn from(webhook: Webhook) -> String {
        webhook.0
    }
}

/// Returns the host without its port: `example.com`, `127.0.0.1` or `[::1]`.
fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inner, after)) => (&authority[..inner.len() + 2], after.strip_prefix(':')),
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let named = !host.is_empty() && (host.starts_with('[') || host.bytes().all(is_host_byte));
    (named && port.is_none_or(|port| port.parse::<u16>().is_ok())).then_some(host)
}

fn is_host_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')
}

/// Returns whether the host is this machine, by name or address. `127.0.0.1.example.com` is not.
fn is_loopback(host: &str) -> bool {
    let mut parts = host.split('.').map(|part| part.parse::<u8>());
    let number = parts.next() == Some(Ok(127)) && parts.filter(Result::is_ok).count() == 3;
    (number && host.split('.').count() == 4) || host.eq_ignore_ascii_case("localhost") || host == "[::1]"
}

/// A notification as it is sent: one JSON document (docs/guide/notifications.md). Fields are only added.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Notification {
    /// The version of the format: 1.
    pub v: u32,
    /// The key; the same notification always has the same key.
    pub key: String,
    /// The kind of notification.
    #[serde(rename = "news")]
    pub kind: NotificationKind,
    /// The notification as a sentence for people.
    pub text: String,
    /// When it happened.
    pub at: Wall,
    /// The run's id.
    pub run: RunId,
    /// The path of the loop file.
    pub path: String,
    /// The directory in which sessions run.
    pub work_dir: String,
    /// The node, if the notification is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// The iteration, if the notification is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iteration: Option<Iteration>,
    /// The verdict, for `hard_stop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hard_stop: Option<HardStopNotification>,
    /// The end of the run, for `ended`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<RunEnded>,
    /// When the service accepts requests again, if it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<Wall>,
    /// When an agent that waits for a person is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Wall>,
    /// The page of the run, while `dogwatch serve` is running. The host adds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

/// The watchdog's verdict in a notification.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HardStopNotification {
    /// The rule that fired.
    pub reason: StopReason,
    /// The evidence on all channels.
    pub evidence_summary: Vec<Evidence>,
    /// Whether another attempt makes sense.
    pub recoverable: bool,
}

/// A notification to be delivered in one way.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The notification.
    pub notification: Notification,
    /// How it is delivered.
    pub how: How,
}

/// The pending and the delivered notifications of a run, folded from its record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NotificationQueue {
    /// Deliveries that are still pending.
    pub pending: Vec<Delivery>,
    delivered: VecDeque<(String, How)>,
    /// How often the run ended; a resumed run can end again.
    ends: u64,
}

impl NotificationQueue {
    fn was_delivered(&self, key: &str, how: How) -> bool {
        self.delivered.iter().any(|(k, h)| k == key && *h == how)
    }

    /// Applies an event, with the deliveries that it causes.
    pub(crate) fn apply(&mut self, event: &Event, fresh: Vec<Delivery>) {
        if let Event::Notified { key, how, .. } = event {
            self.pending.retain(|d| d.notification.key != *key || d.how != *how);
            if self.delivered.len() == MAX_DELIVERED_KEYS {
                self.delivered.pop_front();
            }
            self.delivered.push_back((key.clone(), *how));
        } else if let Event::RunEnded(_) = event {
            self.ends += 1;
        } else {
            let room = MAX_PENDING_NOTIFICATIONS.saturating_sub(self.pending.len());
            self.pending.extend(fresh.into_iter().take(room));
        }
    }
}

/// Returns the deliveries that an event causes. `view` is the view before the event.
#[expect(clippy::wildcard_enum_match_arm, reason = "few events are worth a notification")]
pub fn of_event(recorded: &Recorded, view: &View) -> Vec<Delivery> {
    let notification = match &recorded.event {
        Event::HardStop { node, iteration, reason, evidence_summary, recoverable, .. } => {
            let about = format!("{node}, iteration {iteration}: {}", said(&recorded.event));
            let stop = HardStopNotification {
                reason: *reason,
                evidence_summary: evidence_summary.clone(),
                recoverable: *recoverable,
            };
            let notification = notification(view, NotificationKind::HardStop, recorded.at, &about);
            notification.map(|n| Notification { hard_stop: Some(stop), ..n.about(node, *iteration) })
        }
        // An agent may ask more than once in an iteration, so the key contains the event's number.
        Event::NeedsHuman { node, iteration, until, .. } => {
            let about = format!("{node}, iteration {iteration}: {}", said(&recorded.event));
            let notification = notification(view, NotificationKind::NeedsHuman, recorded.at, &about);
            notification.map(|n| n.about(node, *iteration)).map(|n| Notification {
                key: format!("{}:{}", n.key, recorded.seq),
                until: *until,
                ..n
            })
        }
        // Only the first of consecutive refusals causes a notification.
        Event::IterationRateLimited { end, resets_at, .. } if !view.is_limited(&end.node) => {
            let until = resets_at.map_or_else(String::new, |at| format!("; resets at {at}"));
            let about = format!("{}, iteration {}: rate limited{until}", end.node, end.iteration);
            let notification = notification(view, NotificationKind::RateLimited, recorded.at, &about);
            notification.map(|n| Notification { resets_at: *resets_at, ..n.about(&end.node, end.iteration) })
        }
        _ => None,
    };
    deliveries(view, notification)
}

fn said(event: &Event) -> String {
    words::sentence(event, Style::Line).text
}

/// Returns the deliveries for the end of the run, just before `run_ended` is recorded.
pub fn of_end(end: &RunEnded, at: Wall, view: &View) -> Vec<Delivery> {
    let unverified = matches!(end.outcome, Outcome::Clean | Outcome::CleanWithFlake) && !end.verified;
    let verified = if unverified { " (not verified)" } else { "" };
    let about = format!("the run ended: {}{verified}: {}", end.outcome, end.reason);
    let notification = notification(view, NotificationKind::Ended, at, &about);
    let notification = notification.map(|n| Notification {
        key: format!("{}:{}", NotificationKind::Ended, view.notifications.ends + 1),
        ended: Some(RunEnded { reason: fit(&end.reason), ..end.clone() }),
        ..n
    });
    deliveries(view, notification)
}

fn notification(view: &View, kind: NotificationKind, at: Wall, about: &str) -> Option<Notification> {
    let started = view.started.as_ref()?;
    let (path, work_dir) = (started.path.clone(), started.work_dir.clone());
    Some(Notification::new(kind, about, at, started.run.clone(), path, work_dir))
}

impl Notification {
    /// Returns a notification that only shows that the settings work.
    pub fn test(run: RunId, path: &str, work_dir: &str, at: Wall) -> Notification {
        let text = "notifications of this loop arrive here";
        Notification::new(NotificationKind::Test, text, at, run, path.to_owned(), work_dir.to_owned())
    }

    /// Returns a notification about a run. Its text is cut and redacted, and its key is its kind.
    pub fn new(
        kind: NotificationKind,
        text: &str,
        at: Wall,
        run: RunId,
        path: String,
        work_dir: String,
    ) -> Notification {
        Notification {
            v: 1,
            key: kind.to_string(),
            kind,
            text: fit(text),
            at,
            run,
            path,
            work_dir,
            node: None,
            iteration: None,
            hard_stop: None,
            ended: None,
            resets_at: None,
            until: None,
            link: None,
        }
    }

    fn about(self, node: &NodeName, iteration: Iteration) -> Notification {
        let key = format!("{}:{node}:{iteration}", self.kind);
        Notification { key, node: Some(node.clone()), iteration: Some(iteration), ..self }
    }
}

fn fit(text: &str) -> String {
    redact::text(&one_line(text, MAX_NOTIFICATION_TEXT))
}

/// Returns the deliveries that the policy asks for and that are not done yet.
fn deliveries(view: &View, notification: Option<Notification>) -> Vec<Delivery> {
    let policy = view.started.as_ref().and_then(|s| s.settings.nodes.first()).map(|n| &n.settings.notify);
    let (Some(notification), Some(policy)) = (notification, policy) else { return Vec::new() };
    let hows = policy
        .hows(notification.kind)
        .filter(|how| !view.notifications.was_delivered(&notification.key, *how));
    hows.map(|how| Delivery { notification: notification.clone(), how }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_is_https_or_on_this_machine() {
        for good in [
            "https://hooks.example.com/services/T/B/x",
            "HTTPS://example.com",
            "https://example.com:8443/a?b=c",
            "http://localhost:8080/hook",
            "http://127.0.0.1/x",
            "http://127.8.9.1:1/x",
            "http://[::1]:9000/",
        ] {
            assert!(Webhook::parse(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("http://example.com/hook", WebhookError::NotSecret),
            ("http://127.0.0.1.example.com/", WebhookError::NotSecret),
            ("http://localhost.example.com/", WebhookError::NotSecret),
            ("http://10.0.0.1/", WebhookError::NotSecret),
            ("http://[::2]/", WebhookError::NotSecret),
            ("http://0x7f.1/", WebhookError::NotSecret),
            ("http://localhost@example.com/", WebhookError::HoldsPassword),
            ("https://user:secret@example.com/", WebhookError::HoldsPassword),
            ("ftp://localhost/", WebhookError::NoUrl),
            ("file:///etc/passwd", WebhookError::NoUrl),
            ("example.com/hook", WebhookError::NoUrl),
            ("https://", WebhookError::NoUrl),
            ("https://exa mple.com/", WebhookError::NoUrl),
            ("https://example.com/a b", WebhookError::NoUrl),
            ("https://example.com:99999/", WebhookError::NoUrl),
            ("https://example.com/\r\nhost: x", WebhookError::NoUrl),
            ("http://localhost\\@example.com/", WebhookError::HoldsPassword),
        ] {
            assert_eq!(Webhook::parse(bad), Err(why), "{bad}");
        }
        let long = |n: usize| format!("https://h/{}", "x".repeat(n - 10));
        assert!(Webhook::parse(&long(MAX_URL)).is_ok());
        assert_eq!(Webhook::parse(&long(MAX_URL + 1)), Err(WebhookError::TooLong));
    }

    #[test]
    fn a_webhook_is_shown_without_its_path() {
        for (given, shown) in [
            ("https://hooks.example.com/services/T/B/secret", "https://hooks.example.com/***"),
            ("https://example.com?token=x", "https://example.com/***"),
            ("http://127.0.0.1:80/x", "http://127.0.0.1:80/***"),
            ("https://example.com/", "https://example.com/"),
            ("https://example.com", "https://example.com"),
        ] {
            let webhook = Webhook::parse(given).expect("good");
            assert_eq!(webhook.redacted().as_str(), shown);
            assert_eq!(webhook.redacted().redacted(), webhook.redacted());
        }
    }
}
