//! The addresses of the presets. They are secrets: anyone who knows one can post to it.

use super::{Webhook, WebhookError};
use crate::text::redact::HIDDEN;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest name of a topic, in bytes. ntfy refuses longer ones.
pub const MAX_TOPIC: usize = 64;
/// The longest name of a chat, in bytes.
pub const MAX_CHAT: usize = 100;

/// The address of a topic of ntfy, such as `https://ntfy.sh/my-topic`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Topic(Webhook);

impl Topic {
    /// Parses and validates an address. The last part of its path is the topic.
    pub fn parse(text: &str) -> Result<Topic, String> {
        let topic = Topic(Webhook::parse(text).map_err(|bad: WebhookError| bad.to_string())?);
        match topic.parts() {
            Some(_) => Ok(topic),
            None => Err("name a topic, for example `https://ntfy.sh/my-topic`".to_owned()),
        }
    }

    /// Returns the address of the server, to which messages are posted, and the name of the topic. A query such as
    /// `?auth=…` stays with the server.
    pub fn parts(&self) -> Option<(String, &str)> {
        let text = self.0.as_str();
        let (address, query) = text.find(['?', '#']).map_or((text, ""), |at| text.split_at(at));
        let (server, topic) = address.rsplit_once('/')?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let valid = (1..=MAX_TOPIC).contains(&topic.len()) && topic.bytes().all(plain);
        (valid && !server.ends_with('/')).then(|| (format!("{server}/{query}"), topic))
    }

    /// Returns the address with the topic hidden.
    pub fn redacted(&self) -> Topic {
        Topic(self.0.redacted())
    }

    /// Returns the whole address.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// A bot of Telegram and the chat that it writes to.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Telegram {
    /// The bot's token.
    pub token: String,
    /// The chat: a number, or the name of a public channel with `@`.
    pub chat: String,
    /// The server of the Bot API, if it is not Telegram's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<Webhook>,
}

/// Omits the token.
impl fmt::Debug for Telegram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telegram").field("chat", &self.chat).finish_non_exhaustive()
    }
}

/// Why a token or a chat is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TelegramError {
    /// The token does not have the form that Telegram gives out.
    Token,
    /// The chat is neither a number nor the name of a channel.
    Chat,
}

impl fmt::Display for TelegramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TelegramError::Token => "a bot token has the form `NUMBER:LETTERS`",
            TelegramError::Chat => "a chat is a number, or `@` and the name of a channel",
        })
    }
}

impl Telegram {
    const API: &str = "https://api.telegram.org";

    /// Validates a token.
    pub fn token(text: &str) -> Result<String, TelegramError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let parts = text.split_once(':');
        let valid = parts.is_some_and(|(bot, secret)| {
            bot.bytes().all(|b| b.is_ascii_digit())
                && (1..=20).contains(&bot.len())
                && (20..=100).contains(&secret.len())
                && secret.bytes().all(plain)
        });
        if valid { Ok(text.to_owned()) } else { Err(TelegramError::Token) }
    }

    /// Validates a chat.
    pub fn chat(text: &str) -> Result<String, TelegramError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let valid = match text.strip_prefix('@') {
            Some(name) => (1..=MAX_CHAT).contains(&name.len()) && name.bytes().all(plain),
            None => text.parse::<i64>().is_ok(),
        };
        if valid { Ok(text.to_owned()) } else { Err(TelegramError::Chat) }
    }

    /// Returns the URL that messages are posted to.
    pub fn url(&self) -> String {
        let api = self.api.as_ref().map_or(Telegram::API, Webhook::as_str).trim_end_matches('/');
        format!("{api}/bot{}/sendMessage", self.token)
    }

    /// Returns the bot without its token.
    pub fn redacted(&self) -> Telegram {
        let api = self.api.as_ref().map(Webhook::redacted);
        Telegram { token: HIDDEN.to_owned(), chat: self.chat.clone(), api }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_the_last_part_of_its_address() {
        let parts = |text: &str| {
            Topic::parse(text).map(|topic| topic.parts().map(|(server, topic)| format!("{server} {topic}")))
        };
        for (text, expected) in [
            ("https://ntfy.sh/a-B_1", "https://ntfy.sh/ a-B_1"),
            ("https://ntfy.example/sub/t?auth=x", "https://ntfy.example/sub/?auth=x t"),
            ("http://127.0.0.1:80/t", "http://127.0.0.1:80/ t"),
        ] {
            assert_eq!(parts(text), Ok(Some(expected.to_owned())), "{text}");
        }
        let long = |n: usize| format!("https://ntfy.sh/{}", "x".repeat(n));
        assert!(Topic::parse(&long(MAX_TOPIC)).is_ok());
        for bad in
            ["https://ntfy.sh", "https://ntfy.sh/", "https://ntfy.sh/a b", "ntfy.sh/a", &long(MAX_TOPIC + 1)]
        {
            assert!(Topic::parse(bad).is_err(), "{bad}");
        }
        let topic = Topic::parse("https://ntfy.sh/secret").expect("a topic");
        assert_eq!(topic.redacted().as_str(), "https://ntfy.sh/***");
    }

    #[test]
    fn tokens_and_chats_are_checked_and_tokens_are_hidden() {
        let secret = "abcdefghijklmnopqrst";
        assert!(Telegram::token(&format!("123:{secret}")).is_ok());
        for bad in ["", "123", "x:abcdefghijklmnopqrst", "123:short", "123:abcdefghijklmnopqrs/"] {
            assert_eq!(Telegram::token(bad), Err(TelegramError::Token), "{bad}");
        }
        for good in ["42", "-1001234567890", "@news_room"] {
            assert!(Telegram::chat(good).is_ok(), "{good}");
        }
        for bad in ["", "@", "news", "@a b", &format!("@{}", "x".repeat(MAX_CHAT + 1))] {
            assert_eq!(Telegram::chat(bad), Err(TelegramError::Chat), "{bad}");
        }
        let bot = Telegram { token: format!("123:{secret}"), chat: "42".to_owned(), api: None };
        assert_eq!(bot.url(), format!("https://api.telegram.org/bot123:{secret}/sendMessage"));
        assert_eq!(bot.redacted().token, "***");
        assert!(!format!("{bot:?}").contains(secret));
    }
}
