//! Secrets of the environment, which must not reach the record.
//!
//! The values of environment variables whose names look like keys, and of those that `redact` names, are replaced in
//! every event before it is recorded. All views are made from the record, so they cannot show them either. The raw
//! output of agents and commands keeps every byte, in files that only this user can read.

use dogwatch_core::record::event::Event;
use dogwatch_core::text::redact::HIDDEN;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::OnceLock;

/// The shortest value that is replaced. Shorter ones, such as `1` or `true`, occur in harmless places.
const MIN_SECRET: usize = 8;
/// The shortest line of a value with several lines (a private key) that is replaced by itself.
const MIN_SECRET_LINE: usize = 20;
/// Parts of the names of variables that hold secrets.
const PARTS: [&str; 8] =
    ["API_KEY", "APIKEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "PRIVATE_KEY", "ACCESS_KEY"];
/// Ends of the names of variables that hold secrets.
const ENDS: [&str; 6] = ["TOKEN", "_KEY", "_PAT", "_PASS", "_PWD", "_AUTH"];
/// Ends of the names of variables that only name a file with a secret.
const HARMLESS_ENDS: [&str; 5] = ["_FILE", "_PATH", "_DIR", "_SOCK", "_URL"];

/// The secrets of this process. They are set once, when a run starts.
static OF_PROCESS: OnceLock<Secrets> = OnceLock::new();

/// Values that must not be recorded, the longest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets(Vec<String>);

impl Secrets {
    /// Collects the secrets among these variables. `named` are the variables that the user names.
    pub fn of(vars: impl Iterator<Item = (String, String)>, named: &[String]) -> Secrets {
        let secret = vars.filter(|(name, _)| named.contains(name) || is_secret_name(name));
        let mut values = Vec::new();
        for (_, value) in secret {
            let value = value.trim().to_owned();
            if value.contains('\n') {
                values.extend(
                    value.lines().map(str::trim).filter(|l| l.len() >= MIN_SECRET_LINE).map(str::to_owned),
                );
            }
            if value.len() >= MIN_SECRET {
                values.push(value);
            }
        }
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Secrets(values)
    }

    /// Returns a text with every secret replaced.
    pub fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut out = Cow::Borrowed(text);
        for secret in &self.0 {
            if out.contains(secret.as_str()) {
                out = Cow::Owned(out.replace(secret.as_str(), HIDDEN));
            }
        }
        out
    }

    /// Returns an event with every secret in its texts replaced.
    pub fn hide_in(&self, event: Event) -> Event {
        if self.0.is_empty() {
            return event;
        }
        let hidden = serde_json::to_vec(&event).ok().and_then(|json| self.hide_in_json(&json));
        // Reading fails only if the value is part of a fixed word, such as an event's name. Then it is not a secret.
        hidden.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or(event)
    }

    /// Returns a JSON document with every secret in its texts replaced, if there is one.
    pub fn hide_in_json(&self, json: &[u8]) -> Option<Vec<u8>> {
        // Nearly all documents have none, so they are not read.
        if !self.0.iter().any(|secret| memchr::memmem::find(json, as_in_json(secret).as_bytes()).is_some()) {
            return None;
        }
        let mut value = serde_json::from_slice(json).ok()?;
        self.hide_in_value(&mut value).then(|| value.to_string().into_bytes())
    }

    /// Replaces every secret in the texts of a document. Returns whether there was one.
    fn hide_in_value(&self, value: &mut Value) -> bool {
        match value {
            Value::String(text) => match self.hide(text) {
                Cow::Borrowed(_) => false,
                Cow::Owned(hidden) => {
                    *text = hidden;
                    true
                }
            },
            Value::Array(items) => items.iter_mut().fold(false, |any, item| self.hide_in_value(item) | any),
            Value::Object(fields) => {
                fields.values_mut().fold(false, |any, field| self.hide_in_value(field) | any)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
}

/// Sets the secrets of this process from its environment. Only the first call has an effect.
pub fn install(named: &[String]) -> &'static Secrets {
    OF_PROCESS.get_or_init(|| {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Secrets::of(std::env::vars_os().filter_map(text), named)
    })
}

/// Returns a text with every secret of this process replaced. Replaces nothing before [`install`].
pub fn hide(text: &str) -> Cow<'_, str> {
    OF_PROCESS.get().map_or(Cow::Borrowed(text), |secrets| secrets.hide(text))
}

/// Returns a text as it is within the quotes of a JSON string.
fn as_in_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace('-', "_");
    let looks = PARTS.iter().any(|part| name.contains(part)) || ENDS.iter().any(|end| name.ends_with(end));
    looks && !HARMLESS_ENDS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(vars: &[(&str, &str)], named: &[&str]) -> Secrets {
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Secrets::of(vars, &named.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn values_of_variables_that_look_like_keys_are_replaced_and_others_stay() {
        let found = secrets(
            &[
                ("ANTHROPIC_API_KEY", "anthropic-1"),
                ("GH_TOKEN", "gh-token-2"),
                ("DB_PASSWORD", "hunter2-hunter2"),
                ("DEPLOY_KEY", "line one\nthis line is long enough to matter"),
                ("SHORT_TOKEN", "1"),
                ("TOKEN_FILE", "/run/secrets/token"),
                ("HOME", "/srv/somebody"),
                ("PLAIN_NAME", "named by the user"),
            ],
            &["PLAIN_NAME"],
        );
        let text = "anthropic-1 gh-token-2 hunter2-hunter2 this line is long enough to matter 1 \
                    /run/secrets/token /srv/somebody named by the user";
        assert_eq!(found.hide(text), "*** *** *** *** 1 /run/secrets/token /srv/somebody ***");
        assert!(matches!(found.hide("nothing here"), Cow::Borrowed(_)));
    }

    #[test]
    fn an_event_keeps_its_shape() {
        let found = secrets(&[("X_TOKEN", "canary-in-a-mine")], &[]);
        let notice = |message: &str| Event::Notice { kind: "x".into(), message: message.into() };
        assert_eq!(found.hide_in(notice("a canary-in-a-mine b")), notice("a *** b"));
        assert_eq!(found.hide_in(notice("nothing")), notice("nothing"));
        // A value that is part of the event's own words is not replaced.
        let odd = secrets(&[("X_TOKEN", "notice\u{0}")], &[]);
        assert_eq!(odd.hide_in(notice("x")), notice("x"));
        let word = secrets(&[("X_TOKEN", "\"event\":\"notice\"")], &[]);
        assert_eq!(word.hide_in(notice("x")), notice("x"));
    }

    #[test]
    fn a_secret_with_characters_that_json_escapes_is_found() {
        let value = "a\"quote\\ a\ttab and ümlaut \u{1f}";
        let found = secrets(&[("X_TOKEN", value)], &[]);
        let notice = |message: &str| Event::Notice { kind: "x".into(), message: message.into() };
        assert_eq!(found.hide_in(notice(&format!("<{value}>"))), notice("<***>"));
    }
}
