//! News: what somebody who does not look is told of (`notify`). What is news is decided here, from the events
//! alone; how it is delivered is the host's.
//!
//! Every piece of news has a key that is the same whenever the same thing is told, so that it is told once, also
//! by a run that was resumed: `notified` in the record says which keys are done with. Whoever is told may see a
//! key twice only if dogwatch was killed between the telling and its record.

use crate::record::event::{Event, Outcome, Recorded, RunEnded, words};
use crate::record::ids::{Iteration, NodeName, RunId};
use crate::record::view::View;
use crate::text::one_line;
use crate::text::redact;
use crate::time::moment::Wall;
use crate::watch::{Evidence, StopReason};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;

/// Deliveries that may wait; what comes beyond them is recorded as not told.
pub const MAX_UNTOLD: usize = 32;
/// The keys of what was told that are remembered.
pub const MAX_TOLD_KEYS: usize = 256;
/// Of a sentence in the news.
pub const MAX_NEWS_TEXT: usize = 1_000;
/// The longest address of a webhook.
pub const MAX_URL: usize = 2_048;

words! {
    /// What can be news.
    NotificationKind {
        /// The run has ended.
        Ended = "ended",
        /// The watchdog ended a session.
        HardStop = "hard_stop",
        /// The agent waits for a person.
        NeedsHuman = "needs_human",
        /// The service refuses for now.
        RateLimited = "rate_limited",
    }
}

words! {
    /// How somebody is told.
    How { Command = "command", Webhook = "webhook" }
}

/// Who is told, and of what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NotifyPolicy {
    pub on: Vec<NotificationKind>,
    /// Run by a shell, with the news on its stdin.
    pub command: Option<String>,
    /// Where the news is posted to.
    pub webhook: Option<Webhook>,
}

impl NotifyPolicy {
    fn hows(&self, kind: NotificationKind) -> impl Iterator<Item = How> {
        let wanted = self.on.contains(&kind);
        let command = self.command.is_some().then_some(How::Command);
        let webhook = self.webhook.is_some().then_some(How::Webhook);
        [command, webhook].into_iter().flatten().filter(move |_| wanted)
    }

    /// As it may be written down and shown.
    pub fn redacted(&self) -> NotifyPolicy {
        NotifyPolicy {
            on: self.on.clone(),
            command: self.command.as_deref().map(redact::text),
            webhook: self.webhook.as_ref().map(Webhook::redacted),
        }
    }
}

/// An address that news may be sent to: https, or http on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Webhook(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadWebhook {
    NoUrl,
    /// http to another machine: who listens on the way reads it.
    NotSecret,
    HoldsPassword,
    TooLong,
}

impl fmt::Display for BadWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadWebhook::NoUrl => f.write_str("this is no address; write `https://HOST/PATH`"),
            BadWebhook::NotSecret => {
                f.write_str("http is allowed to this machine only (localhost, 127.0.0.1, [::1]); use https")
            }
            BadWebhook::HoldsPassword => f.write_str("a user or password does not belong into an address"),
            BadWebhook::TooLong => write!(f, "an address has at most {MAX_URL} bytes"),
        }
    }
}

impl Webhook {
    pub fn parse(text: &str) -> Result<Webhook, BadWebhook> {
        if text.len() > MAX_URL {
            return Err(BadWebhook::TooLong);
        }
        let (scheme, rest) = text.split_once("://").ok_or(BadWebhook::NoUrl)?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
        let plain = rest.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'\\' | b'"' | b'<' | b'>'));
        if authority.contains('@') {
            return Err(BadWebhook::HoldsPassword);
        }
        let host = host_of(authority).filter(|_| plain).ok_or(BadWebhook::NoUrl)?;
        match scheme.to_ascii_lowercase().as_str() {
            "https" => Ok(Webhook(text.to_owned())),
            "http" if is_loopback(host) => Ok(Webhook(text.to_owned())),
            "http" => Err(BadWebhook::NotSecret),
            _ => Err(BadWebhook::NoUrl),
        }
    }

    /// The whole of it: whoever knows it may post.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_https(&self) -> bool {
        self.0.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"))
    }

    /// Scheme and host; the path often is the secret.
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

/// `example.com`, `127.0.0.1` or `[::1]`, without its port.
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

/// By name or number; `127.0.0.1.example.com` is somebody else's.
fn is_loopback(host: &str) -> bool {
    let mut parts = host.split('.').map(|part| part.parse::<u8>());
    let number = parts.next() == Some(Ok(127)) && parts.filter(Result::is_ok).count() == 3;
    (number && host.split('.').count() == 4) || host.eq_ignore_ascii_case("localhost") || host == "[::1]"
}

/// A piece of news, as it is sent: one JSON document (docs/guide/notifications.md). Fields are only ever added.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct News {
    pub v: u32,
    /// The same news has the same key.
    pub key: String,
    pub news: NotificationKind,
    /// A sentence for people.
    pub text: String,
    pub at: Wall,
    pub run: RunId,
    /// The loop file.
    pub path: String,
    pub work_dir: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iteration: Option<Iteration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hard_stop: Option<HardStopNews>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<RunEnded>,
    /// When the service will answer again, if it said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<Wall>,
    /// When an agent that waits for a person is ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Wall>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HardStopNews {
    pub reason: StopReason,
    pub evidence_summary: Vec<Evidence>,
    pub recoverable: bool,
}

/// One piece of news, to be told in one way.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    pub news: News,
    pub how: How,
}

/// What has been told and what has not, as the record says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NotificationQueue {
    pub untold: Vec<Delivery>,
    told: VecDeque<(String, How)>,
    /// How often the run has ended.
    ends: u64,
}

impl NotificationQueue {
    fn was_told(&self, key: &str, how: How) -> bool {
        self.told.iter().any(|(k, h)| k == key && *h == how)
    }

    /// Takes in an event; `view` is what was before it.
    pub(crate) fn apply(&mut self, event: &Event, fresh: Vec<Delivery>) {
        match event {
            Event::Notified { key, how, .. } => {
                self.untold.retain(|d| d.news.key != *key || d.how != *how);
                if self.told.len() == MAX_TOLD_KEYS {
                    self.told.pop_front();
                }
                self.told.push_back((key.clone(), *how));
            }
            Event::RunEnded(_) => self.ends += 1,
            _ => {
                let room = MAX_UNTOLD.saturating_sub(self.untold.len());
                self.untold.extend(fresh.into_iter().take(room));
            }
        }
    }
}

/// The news in an event, one for each way of telling. `view` is what was before the event.
pub fn of_event(recorded: &Recorded, view: &View) -> Vec<Delivery> {
    let news = match &recorded.event {
        Event::HardStop { node, iteration, reason, message, evidence_summary, recoverable, .. } => {
            let about = format!("{node}, iteration {iteration}: ended by the watchdog: {message} [{reason}]");
            let stop = HardStopNews {
                reason: *reason,
                evidence_summary: evidence_summary.clone(),
                recoverable: *recoverable,
            };
            let news = news(view, NotificationKind::HardStop, recorded.at, &about);
            news.map(|n| News { hard_stop: Some(stop), ..n.about(node, *iteration) })
        }
        // An agent may ask more than once in an iteration: its question has the event's number.
        Event::NeedsHuman { node, iteration, what, until } => {
            let about = format!("{node}, iteration {iteration}: the agent waits for a person: {what}");
            let news = news(view, NotificationKind::NeedsHuman, recorded.at, &about);
            news.map(|n| n.about(node, *iteration)).map(|n| News {
                key: format!("{}:{}", n.key, recorded.seq),
                until: *until,
                ..n
            })
        }
        // A row of refusals is one piece of news: its first.
        Event::IterationRateLimited { end, resets_at, .. } if !view.is_limited(&end.node) => {
            let until = resets_at.map_or_else(String::new, |at| format!("; it answers again at {at}"));
            let about = format!("{}, iteration {}: rate limited{until}", end.node, end.iteration);
            let news = news(view, NotificationKind::RateLimited, recorded.at, &about);
            news.map(|n| News { resets_at: *resets_at, ..n.about(&end.node, end.iteration) })
        }
        _ => None,
    };
    deliveries(view, news)
}

/// The news of an end that is about to be written down.
pub fn of_end(end: &RunEnded, at: Wall, view: &View) -> Vec<Delivery> {
    let verified = match end.outcome {
        Outcome::Clean | Outcome::CleanWithFlake if !end.verified => " (not verified)",
        _ => "",
    };
    let about = format!("the run ended: {}{verified}: {}", end.outcome, end.reason);
    let news = news(view, NotificationKind::Ended, at, &about);
    let news = news.map(|n| News {
        key: format!("{}:{}", NotificationKind::Ended, view.news.ends + 1),
        ended: Some(RunEnded { reason: fit(&end.reason), ..end.clone() }),
        ..n
    });
    deliveries(view, news)
}

fn news(view: &View, kind: NotificationKind, at: Wall, about: &str) -> Option<News> {
    let started = view.started.as_ref()?;
    Some(News {
        v: 1,
        key: kind.to_string(),
        news: kind,
        text: fit(about),
        at,
        run: started.run.clone(),
        path: started.path.clone(),
        work_dir: started.work_dir.clone(),
        node: None,
        iteration: None,
        hard_stop: None,
        ended: None,
        resets_at: None,
        until: None,
    })
}

impl News {
    fn about(self, node: &NodeName, iteration: Iteration) -> News {
        let key = format!("{}:{node}:{iteration}", self.news);
        News { key, node: Some(node.clone()), iteration: Some(iteration), ..self }
    }
}

fn fit(text: &str) -> String {
    redact::text(&one_line(text, MAX_NEWS_TEXT))
}

/// Those who are to be told and have not been.
fn deliveries(view: &View, news: Option<News>) -> Vec<Delivery> {
    let policy = view.started.as_ref().and_then(|s| s.settings.nodes.first()).map(|n| &n.settings.notify);
    let (Some(news), Some(policy)) = (news, policy) else { return Vec::new() };
    let hows = policy.hows(news.news).filter(|how| !view.news.was_told(&news.key, *how));
    hows.map(|how| Delivery { news: news.clone(), how }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_go_to_https_or_to_this_machine_and_nowhere_else() {
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
            ("http://example.com/hook", BadWebhook::NotSecret),
            ("http://127.0.0.1.example.com/", BadWebhook::NotSecret),
            ("http://localhost.example.com/", BadWebhook::NotSecret),
            ("http://10.0.0.1/", BadWebhook::NotSecret),
            ("http://[::2]/", BadWebhook::NotSecret),
            ("http://0x7f.1/", BadWebhook::NotSecret),
            ("http://localhost@example.com/", BadWebhook::HoldsPassword),
            ("https://user:secret@example.com/", BadWebhook::HoldsPassword),
            ("ftp://localhost/", BadWebhook::NoUrl),
            ("file:///etc/passwd", BadWebhook::NoUrl),
            ("example.com/hook", BadWebhook::NoUrl),
            ("https://", BadWebhook::NoUrl),
            ("https://exa mple.com/", BadWebhook::NoUrl),
            ("https://example.com/a b", BadWebhook::NoUrl),
            ("https://example.com:99999/", BadWebhook::NoUrl),
            ("https://example.com/\r\nhost: x", BadWebhook::NoUrl),
            ("http://localhost\\@example.com/", BadWebhook::HoldsPassword),
        ] {
            assert_eq!(Webhook::parse(bad), Err(why), "{bad}");
        }
        let long = |n: usize| format!("https://h/{}", "x".repeat(n - 10));
        assert!(Webhook::parse(&long(MAX_URL)).is_ok());
        assert_eq!(Webhook::parse(&long(MAX_URL + 1)), Err(BadWebhook::TooLong));
    }

    #[test]
    fn an_address_is_shown_without_its_path() {
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
