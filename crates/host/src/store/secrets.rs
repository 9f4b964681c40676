//! Secrets of the environment, which must not reach the record.
//!
//! The values of environment variables whose names look like keys, and of those that `redact` names, are replaced in
//! every event before it is recorded. All views are made from the record, so they cannot show them either. The raw
//! output of agents and commands keeps every byte, in files that only this user can read.

use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::text::redact::{HIDDEN, names_secret};
use dogwatch_core::time::moment::Moment;
use memchr::memmem;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// The shortest value that is replaced, and the shortest part of one at a cut. Shorter ones, such as `1` or `true`, occur in
/// harmless places.
const MIN_SECRET: usize = 8;
/// The shortest line of a value with several lines (a private key) that is replaced by itself.
const MIN_SECRET_LINE: usize = 20;
/// The shortest text that may have been cut without an ellipsis. Every limit that cuts so is larger.
const MIN_CUT: usize = 64;
/// The mark of a cut.
const ELLIPSIS: char = '…';

/// The secrets of this process. They are set once, when a run starts.
static OF_PROCESS: OnceLock<Secrets> = OnceLock::new();

/// Values that must not be recorded, the longest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets(Vec<Secret>);

/// A value that must not be recorded, as a whole or cut.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Secret {
    value: String,
    /// The first characters of the value, as they are within a JSON string.
    json_head: String,
    /// The last characters of the value, as they are within a JSON string.
    json_tail: String,
}

impl Secret {
    fn new(value: String) -> Secret {
        let (json_head, json_tail) = (as_in_json(head(&value)), as_in_json(tail(&value)));
        Secret { value, json_head, json_tail }
    }

    /// Returns whether a JSON document contains the value or a part of it that matters. Every such part contains the
    /// head or the tail.
    fn may_be_in_json(&self, json: &[u8]) -> bool {
        memmem::find(json, self.json_head.as_bytes()).is_some()
            || memmem::find(json, self.json_tail.as_bytes()).is_some()
    }

    /// Returns a text with the value replaced, and its parts at cuts, if there are any.
    fn hidden_in(&self, text: &str, may_be_cut: bool) -> Option<String> {
        if !text.contains(head(&self.value)) && !text.contains(tail(&self.value)) {
            return None;
        }
        let whole = text.replace(&self.value, HIDDEN);
        let last = whole.matches(ELLIPSIS).count();
        let mut out = String::with_capacity(whole.len());
        for (at, piece) in whole.split(ELLIPSIS).enumerate() {
            if at > 0 {
                out.push(ELLIPSIS);
            }
            self.hide_ends(piece, may_be_cut || at > 0, may_be_cut || at < last, &mut out);
        }
        (out != text).then_some(out)
    }

    /// Appends a text between two cuts. The end of the value at its start is replaced, and the start of the value at its end.
    fn hide_ends(&self, piece: &str, cut_before: bool, cut_after: bool, out: &mut String) {
        // A cut within a character leaves a replacement character.
        let is_blank = |c: char| c.is_whitespace() || c == char::REPLACEMENT_CHARACTER;
        let (after_blank, value) = (piece.trim_start_matches(is_blank), self.value.as_bytes());
        let longest = |from: usize, fits: &dyn Fn(usize) -> bool| {
            (from..value.len().min(piece.len() + 1)).rev().find(|n| fits(*n)).unwrap_or(0)
        };
        let start = longest(tail(&self.value).len(), &|n| {
            cut_before && after_blank.as_bytes().starts_with(&value[value.len() - n..])
        });
        let rest = &after_blank[start..];
        let before_blank = rest.trim_end_matches(is_blank);
        let end = longest(head(&self.value).len(), &|n| {
            cut_after && before_blank.as_bytes().ends_with(&value[..n])
        });
        out.push_str(&piece[..piece.len() - after_blank.len()]);
        out.push_str(if start > 0 { HIDDEN } else { "" });
        out.push_str(&before_blank[..before_blank.len() - end]);
        out.push_str(if end > 0 { HIDDEN } else { "" });
        out.push_str(&rest[before_blank.len()..]);
    }
}

/// Returns the shortest start of a value that is replaced at a cut.
fn head(value: &str) -> &str {
    &value[..value.ceil_char_boundary(MIN_SECRET)]
}

/// Returns the shortest end of a value that is replaced at a cut.
fn tail(value: &str) -> &str {
    &value[value.floor_char_boundary(value.len().saturating_sub(MIN_SECRET))..]
}

impl Secrets {
    /// Collects the secrets among these variables. `named` are the variables that the user names.
    pub fn of(vars: impl Iterator<Item = (String, String)>, named: &[String]) -> Secrets {
        let secret = vars.filter(|(name, _)| named.contains(name) || names_secret(name));
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
        Secrets(values.into_iter().map(Secret::new).collect())
    }

    /// Returns a text with every secret replaced. Texts are cut before they are recorded, so the parts of a secret at cuts are
    /// replaced too.
    pub fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let (mut out, may_be_cut) = (Cow::Borrowed(text), text.len() >= MIN_CUT);
        for secret in &self.0 {
            if let Some(hidden) = secret.hidden_in(&out, may_be_cut) {
                out = Cow::Owned(hidden);
            }
        }
        out
    }

    /// Returns an event with every secret in its texts replaced.
    pub fn hide_in(&self, event: Event) -> Event {
        if self.0.is_empty() {
            return event;
        }
        // The number and the time do not matter: only the event is returned.
        let recorded = Recorded::new(1, Moment::default(), event);
        let hidden = dogwatch_codec::to_string(&recorded).ok().and_then(|json| {
            let hidden = self.hide_in_json(json.as_bytes())?;
            let read = serde_json::from_slice(&hidden).ok().and_then(|value| read_whole(&value));
            read.or_else(|| self.hide_in_free_text(json.as_bytes()))
        });
        hidden.unwrap_or(recorded.event)
    }

    /// Returns a JSON document with every secret in its texts replaced, if there is one.
    pub fn hide_in_json(&self, json: &[u8]) -> Option<Vec<u8>> {
        // Nearly all documents have none, so they are not read.
        if !self.0.iter().any(|secret| secret.may_be_in_json(json)) {
            return None;
        }
        let mut value = serde_json::from_slice(json).ok()?;
        let mut any = false;
        each_text(&mut value, "", &mut |_, text| any |= self.hide_at(text));
        any.then(|| value.to_string().into_bytes())
    }

    /// Returns an event with every secret replaced outside of fixed words. A fixed word, such as a profile or the name of an event,
    /// may be the value of a variable, and the event cannot be read without it.
    fn hide_in_free_text(&self, json: &[u8]) -> Option<Event> {
        let event: Value = serde_json::from_slice(json).ok()?;
        let read = |hides: &dyn Fn(&str, &str) -> bool| -> Option<Event> {
            let mut hidden = event.clone();
            each_text(&mut hidden, "", &mut |field, text| {
                if hides(field, text) {
                    self.hide_at(text);
                }
            });
            read_whole(&hidden)
        };
        let mut places = BTreeSet::new();
        each_text(&mut event.clone(), "", &mut |field, text| {
            if let Cow::Owned(_) = self.hide(text) {
                places.insert((field.to_owned(), text.clone()));
            }
        });
        // There are few fields, so they are tried first, and the texts only of those with fixed words.
        let fields: BTreeSet<&str> = places.iter().map(|(field, _)| field.as_str()).collect();
        let fixed = |field: &&str| read(&|other, _| other == *field).is_none();
        let fields: BTreeSet<&str> = fields.into_iter().filter(fixed).collect();
        let is_word = |(field, word): &&(String, String)| {
            fields.contains(field.as_str()) && read(&|f, text| f == field && text == word).is_none()
        };
        let words: BTreeSet<(&str, &str)> =
            places.iter().filter(is_word).map(|(field, word)| (field.as_str(), word.as_str())).collect();
        read(&|field, text| !words.contains(&(field, text)))
            .or_else(|| read(&|field, _| !fields.contains(field)))
    }

    /// Replaces every secret in a text. Returns whether there was one.
    fn hide_at(&self, text: &mut String) -> bool {
        let Cow::Owned(hidden) = self.hide(text) else { return false };
        *text = hidden;
        true
    }
}

/// Reads an event, unless a part of it would be lost. Unknown words are accepted in some places, as something else.
fn read_whole(value: &Value) -> Option<Event> {
    let recorded = dogwatch_codec::read(value.to_string().as_bytes()).ok()?;
    let texts = |mut value: Value| {
        let mut texts = Vec::new();
        each_text(&mut value, "", &mut |field, text| texts.push((field.to_owned(), text.clone())));
        texts
    };
    let written = serde_json::from_str(&dogwatch_codec::to_string(&recorded).ok()?).ok()?;
    (texts(written) == texts(value.clone())).then_some(recorded.event)
}

/// Visits the texts of a document, each with the name of its field.
fn each_text(value: &mut Value, field: &str, visit: &mut dyn FnMut(&str, &mut String)) {
    match value {
        Value::String(text) => visit(field, text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, field, visit)),
        Value::Object(fields) => fields.iter_mut().for_each(|(name, item)| each_text(item, name, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
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

/// Returns a JSON document with every secret of this process replaced, if there is one. Replaces nothing before [`install`].
pub fn hide_in_json(json: &[u8]) -> Option<Vec<u8>> {
    OF_PROCESS.get()?.hide_in_json(json)
}

/// Returns a text as it is within the quotes of a JSON string.
fn as_in_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::record::ids::{Iteration, NodeName};

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

    const TOKEN: &str = "canary-0123456789abcdef0123456789abcdef-END";

    #[test]
    fn a_secret_that_a_cut_went_through_is_replaced_wherever_the_cut_was() {
        let found = secrets(&[("X_TOKEN", TOKEN)], &[]);
        let (long, all) = ("x".repeat(MIN_CUT), TOKEN.len());
        for part in MIN_SECRET..all {
            let (start, end) = (&TOKEN[..part], &TOKEN[all - part..]);
            // Texts of two or more limits are cut with and without an ellipsis, and then become parts of sentences.
            for (text, hidden) in [
                (format!("{end} {long}"), format!("*** {long}")),
                (format!("\u{fffd}\n {end} {long}"), format!("\u{fffd}\n *** {long}")),
                (format!("{long} {start}"), format!("{long} ***")),
                (format!("{long} {start} \u{fffd}\n"), format!("{long} *** \u{fffd}\n")),
                (format!("says {start}… (twice)"), "says ***… (twice)".to_owned()),
                (format!("{start}…"), "***…".to_owned()),
                (format!("a … {end}, b"), "a … ***, b".to_owned()),
                (format!("{end}…{start}{long}…{end}"), format!("{end}…{start}{long}…***")),
            ] {
                // The start of a text of a few bytes was not cut, and no cut is in the middle of a text.
                let hidden = if text.starts_with(&format!("{end}…")) && text.len() >= MIN_CUT {
                    hidden.replacen(end, HIDDEN, 1)
                } else {
                    hidden
                };
                assert_eq!(found.hide(&text), hidden, "{text}");
                let notice = |message: &str| Event::Notice { kind: "x".into(), message: message.into() };
                assert_eq!(found.hide_in(notice(&text)), notice(&hidden));
            }
        }
        for text in [
            format!("{long} {}", &TOKEN[..MIN_SECRET - 1]),
            format!("{long} {} {long}", &TOKEN[..20]),
            TOKEN[..20].to_owned(),
            format!("{} is short", &TOKEN[20..]),
        ] {
            assert!(matches!(found.hide(&text), Cow::Borrowed(_)), "{text}");
        }
        // The start and the end of this value occur within it, and characters have two bytes.
        let (start, end) = ("a".repeat(30), format!("ä{}ä", "a".repeat(8)));
        let doubled = secrets(&[("X_TOKEN", &format!("{start}{end}"))], &[]);
        assert_eq!(doubled.hide(&format!("{}… {long} {end}…", &start[..12])), format!("***… {long} {end}…"));
        assert_eq!(doubled.hide(&format!("{end} {long}…a{end}")), format!("*** {long}…***"));
    }

    #[test]
    fn a_value_that_is_a_fixed_word_of_an_event_leaves_every_other_secret_hidden() {
        let found = secrets(&[("DB_PASSWORD", "marker_seen"), ("X_TOKEN", TOKEN)], &[]);
        let marker = |state: &str, words: &str| Event::MarkerSeen {
            node: NodeName::new("a"),
            iteration: Iteration(1),
            state: state.to_owned(),
            attrs: vec![("reason".to_owned(), words.to_owned())],
        };
        // The name of the event is the value of a variable too.
        let given = marker("marker_seen", &format!("{TOKEN} or marker_seen"));
        assert_eq!(found.hide_in(given), marker("***", "*** or ***"));
    }
}
