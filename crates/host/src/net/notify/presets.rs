//! The messages of the presets: ntfy, Slack, Discord, Telegram and the desktop. Pure: a notification in, a request out.
//!
//! Agents and loops choose parts of a text, so every service gets it in a form that it shows as plain text: no markup, no
//! mention of people, no preview of a link.

use dogwatch_core::record::event::Outcome;
use dogwatch_core::record::notification::{How, Notification, NotificationKind, NotifyPolicy};
use dogwatch_core::text::{clip, one_line};
use serde_json::json;
use std::path::Path;

/// The longest title, in bytes. No service names a limit; a phone shows less.
const MAX_TITLE: usize = 200;
/// The longest path in a message, in bytes.
const MAX_PATH: usize = 300;
/// The longest message of ntfy, in bytes. A longer one becomes an attachment.
const MAX_NTFY: usize = 4_096;
/// The longest message of Slack, in characters. Slack cuts off much later and recommends this.
const MAX_SLACK: usize = 4_000;
/// The longest message of Discord, in characters. A longer one is refused.
const MAX_DISCORD: usize = 2_000;
/// The longest message of Telegram, in UTF-16 units. A longer one is refused.
const MAX_TELEGRAM: usize = 4_096;
/// The longest body of a desktop notification, in bytes.
const MAX_DESKTOP: usize = 1_500;
/// Discord's flag for a message without previews of its links.
const SUPPRESS_EMBEDS: u32 = 1 << 2;

/// An action that delivers a notification.
#[derive(Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// Post a JSON document to a URL.
    Post {
        /// The complete URL, which is often a secret.
        url: String,
        /// The document.
        body: String,
    },
    /// Run a program with an input.
    Run {
        /// The program and its arguments.
        argv: Vec<String>,
        /// What it gets on stdin.
        input: String,
    },
}

/// Returns what to do, or what is missing. `document` is the notification as JSON.
pub fn prepare(
    policy: &NotifyPolicy,
    how: How,
    notification: &Notification,
    document: String,
) -> Result<Outgoing, String> {
    let missing = || format!("no {how} is configured");
    let (title, text) = (title(notification), text(notification));
    let lines = format!("{title}\n{text}");
    let post =
        |url: &str, body: serde_json::Value| Outgoing::Post { url: url.to_owned(), body: body.to_string() };
    Ok(match how {
        How::Command => {
            let command = policy.command.clone().ok_or_else(missing)?;
            let argv = vec!["sh".to_owned(), "-c".to_owned(), command];
            Outgoing::Run { argv, input: document + "\n" }
        }
        How::Webhook => {
            let url = policy.webhook.as_ref().ok_or_else(missing)?;
            Outgoing::Post { url: url.as_str().to_owned(), body: document }
        }
        How::Ntfy => {
            let (server, topic) = policy.ntfy.as_ref().and_then(|topic| topic.parts()).ok_or_else(missing)?;
            let mut body = json!({
                "topic": topic,
                "title": title,
                "message": clip(&text, MAX_NTFY),
                "priority": priority(notification.kind),
                "tags": [tag(notification)],
            });
            if let Some(link) = &notification.link {
                body["click"] = json!(link);
            }
            post(&server, body)
        }
        How::Slack => {
            let url = policy.slack.as_ref().ok_or_else(missing)?;
            let escaped = lines.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let text = fit(&escaped, MAX_SLACK);
            post(
                url.as_str(),
                json!({"text": text, "mrkdwn": false, "unfurl_links": false, "unfurl_media": false}),
            )
        }
        How::Discord => {
            let url = policy.discord.as_ref().ok_or_else(missing)?;
            let content = fit(&without_markdown(&lines), MAX_DISCORD);
            let body = json!({
                "content": content,
                "username": "dogwatch",
                "allowed_mentions": {"parse": []},
                "flags": SUPPRESS_EMBEDS,
            });
            post(url.as_str(), body)
        }
        How::Telegram => {
            let telegram = policy.telegram.as_ref().ok_or_else(missing)?;
            let body = json!({
                "chat_id": telegram.chat,
                "text": fit(&lines, MAX_TELEGRAM),
                "link_preview_options": {"is_disabled": true},
            });
            post(&telegram.url(), body)
        }
        How::Desktop => {
            // Desktops show some markup in the body.
            let body = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let urgency = if priority(notification.kind) > 3 { "critical" } else { "normal" };
            let argv = ["notify-send", "--app-name=dogwatch", &format!("--urgency={urgency}"), "--", &title];
            let body = clip(&body, MAX_DESKTOP).to_owned();
            let argv = argv.into_iter().map(str::to_owned).chain([body]).collect();
            Outgoing::Run { argv, input: String::new() }
        }
    })
}

/// Returns the title: the loop, and what happened.
fn title(notification: &Notification) -> String {
    let dir = Path::new(&notification.path).parent().and_then(Path::file_name);
    let name = dir.map_or_else(|| "dogwatch".into(), |dir| dir.to_string_lossy());
    let what = match (notification.kind, &notification.ended) {
        (NotificationKind::Ended, Some(ended)) => format!("run ended, {}", ended.outcome),
        (NotificationKind::Ended, None) => "run ended".to_owned(),
        (NotificationKind::HardStop, _) => "session stopped".to_owned(),
        (NotificationKind::NeedsHuman, _) => "the agent needs you".to_owned(),
        (NotificationKind::RateLimited, _) => "rate limited".to_owned(),
        (NotificationKind::Test, _) => "test notification".to_owned(),
    };
    one_line(&format!("{name}: {what}"), MAX_TITLE)
}

/// Returns the message: the sentence, the run and its directory, and the link.
fn text(notification: &Notification) -> String {
    let place = one_line(&notification.work_dir, MAX_PATH);
    let link = notification.link.as_ref().map_or_else(String::new, |link| format!("\n{link}"));
    format!("{}\nrun {} in {place}{link}", notification.text, notification.run)
}

/// Returns the priority from 1 to 5; 3 is normal, and 4 asks for a person.
fn priority(kind: NotificationKind) -> u8 {
    match kind {
        NotificationKind::HardStop | NotificationKind::NeedsHuman => 4,
        NotificationKind::Ended | NotificationKind::RateLimited | NotificationKind::Test => 3,
    }
}

/// Returns the name of the emoji that ntfy shows.
fn tag(notification: &Notification) -> &'static str {
    match (notification.kind, notification.ended.as_ref().map(|ended| ended.outcome)) {
        (NotificationKind::Ended, Some(Outcome::Clean | Outcome::CleanWithFlake | Outcome::Idle)) => {
            "white_check_mark"
        }
        (NotificationKind::Ended, _) => "x",
        (NotificationKind::HardStop, _) => "warning",
        (NotificationKind::NeedsHuman, _) => "raising_hand",
        (NotificationKind::RateLimited, _) => "hourglass",
        (NotificationKind::Test, _) => "test_tube",
    }
}

/// Returns a text in which Discord finds no markup, mention or emoji.
fn without_markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | '*' | '_' | '~' | '`' | '|' | '>' | '#' | '[' | ']' | '<' | '@' | '-') {
            out.push('\\');
        }
        out.push(c);
    }
    // A backslash inside a link would break it.
    match text.lines().last().filter(|last| last.starts_with("http://") || last.starts_with("https://")) {
        Some(link) => {
            let escaped = out.lines().last().map_or(0, str::len);
            out.truncate(out.len() - escaped);
            out + link
        }
        None => out,
    }
}

/// Cuts a text to this many UTF-16 units, which is what the services count.
fn fit(text: &str, max: usize) -> String {
    if text.encode_utf16().count() <= max {
        return text.to_owned();
    }
    let mut left = max - 1;
    let kept = text.chars().take_while(|c| {
        let fits = c.len_utf16() <= left;
        left = left.saturating_sub(if fits { c.len_utf16() } else { left });
        fits
    });
    kept.chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::record::notification::{Telegram, Topic, Webhook};
    use dogwatch_core::time::moment::Wall;
    use serde_json::Value;

    fn policy() -> NotifyPolicy {
        let hook = |path: &str| Webhook::parse(&format!("https://example.com/{path}")).ok();
        NotifyPolicy {
            ntfy: Topic::parse("https://ntfy.example/my-topic?auth=abc").ok(),
            slack: hook("slack"),
            discord: hook("discord"),
            telegram: Some(Telegram { token: "1:x".to_owned(), chat: "-100".to_owned(), api: None }),
            desktop: true,
            ..NotifyPolicy::default()
        }
    }

    fn notification(text: &str) -> Notification {
        let run = "20261115-201533-k3f9".parse().expect("an id");
        let mut notification = Notification::test(run, "/srv/fix/RALPH.md", "/srv", Wall(0));
        notification.text = text.to_owned();
        notification
    }

    fn posted(how: How, notification: &Notification) -> (String, Value) {
        match prepare(&policy(), how, notification, String::new()).expect("is configured") {
            Outgoing::Post { url, body } => (url, serde_json::from_str(&body).expect("JSON")),
            Outgoing::Run { argv, .. } => panic!("{argv:?}"),
        }
    }

    #[test]
    fn each_service_shows_the_text_as_plain_text() {
        let hostile = notification("*a* _b_ <!channel> <@1> & @everyone `c`");
        let (url, body) = posted(How::Ntfy, &hostile);
        assert_eq!(url, "https://ntfy.example/?auth=abc");
        assert_eq!((&body["topic"], &body["priority"]), (&json!("my-topic"), &json!(3)));
        let (_, body) = posted(How::Slack, &hostile);
        let text = body["text"].as_str().expect("a text");
        assert!(
            text.contains("&lt;!channel&gt; &lt;@1&gt; &amp; @everyone") && body["mrkdwn"] == false,
            "{text}"
        );
        let (_, body) = posted(How::Discord, &hostile);
        let text = body["content"].as_str().expect("a text");
        assert!(text.contains(r"\*a\* \_b\_ \<!channel\> \<\@1\> & \@everyone \`c\`"), "{text}");
        assert_eq!((&body["allowed_mentions"]["parse"], &body["flags"]), (&json!([]), &json!(4)));
        let (url, body) = posted(How::Telegram, &hostile);
        assert_eq!(url, "https://api.telegram.org/bot1:x/sendMessage");
        assert!(body["text"].as_str().is_some_and(|text| text.contains("*a* _b_ <!channel>")), "{body}");
        assert!(body.get("parse_mode").is_none() && body["chat_id"] == "-100", "{body}");
        let Ok(Outgoing::Run { argv, .. }) = prepare(&policy(), How::Desktop, &hostile, String::new()) else {
            panic!("a program")
        };
        assert_eq!(
            argv[..5],
            ["notify-send", "--app-name=dogwatch", "--urgency=normal", "--", "fix: test notification"]
        );
        assert!(argv[5].contains("&lt;!channel&gt;"), "{argv:?}");
    }

    #[test]
    fn a_link_is_the_last_line_and_stays_whole() {
        let linked =
            Notification { link: Some("http://127.0.0.1:1/#/run/a_b".to_owned()), ..notification("x") };
        assert_eq!(posted(How::Ntfy, &linked).1["click"], "http://127.0.0.1:1/#/run/a_b");
        for (how, field) in [(How::Slack, "text"), (How::Discord, "content"), (How::Telegram, "text")] {
            let (_, body) = posted(how, &linked);
            assert!(
                body[field].as_str().is_some_and(|t| t.ends_with("\nhttp://127.0.0.1:1/#/run/a_b")),
                "{body}"
            );
        }
    }

    #[test]
    fn texts_are_cut_at_the_limit_of_each_service_and_not_before() {
        for max in [2, 10] {
            assert_eq!(fit(&"x".repeat(max), max), "x".repeat(max));
            assert_eq!(fit(&"x".repeat(max + 1), max), format!("{}…", "x".repeat(max - 1)));
            assert!(fit(&"🦀".repeat(max), max).encode_utf16().count() <= max);
        }
        let long = notification(&"_🦀".repeat(5_000));
        for (how, field, max) in [
            (How::Slack, "text", MAX_SLACK),
            (How::Discord, "content", MAX_DISCORD),
            (How::Telegram, "text", MAX_TELEGRAM),
        ] {
            let (_, body) = posted(how, &long);
            let units = body[field].as_str().expect("a text").encode_utf16().count();
            assert!((max - 1..=max).contains(&units), "{how}: {units}");
        }
        assert!(posted(How::Ntfy, &long).1["message"].as_str().is_some_and(|m| m.len() <= MAX_NTFY));
    }
}
