//! Settings from the command line. Each flag becomes a line of text, so that errors can point into it.

use crate::diagnostic::{Diagnostics, Source};
use crate::document::{Entry, Node, Span, Value};
use crate::keys;
use crate::layers::{Layer, Layers};
use crate::limits::MAX_SET_FLAGS;
use crate::yaml;

/// The source name of flags in error messages.
pub const COMMAND_LINE: &str = "command line";

/// The flags of `dogwatch run`, unparsed. This crate parses them, so that an invalid value produces the same
/// error in a flag and in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The arguments of `--set key=value`.
    pub set: Vec<String>,
    /// `-n N`
    pub max_iterations: Option<String>,
    /// `--delay D`
    pub delay: Option<String>,
    /// `--timeout D`
    pub timeout: Option<String>,
    /// `--agent COMMAND`
    pub agent: Option<String>,
    /// `--profile P`
    pub profile: Option<String>,
    /// `--stop-on-error`
    pub stop_on_error: bool,
}

/// A flag as a line of text, with the spans of its key and its value.
#[derive(Debug)]
pub struct FlagLine {
    flag: &'static str,
    text: String,
    key: String,
    key_span: Span,
    value_span: Option<Span>,
}

impl Flags {
    /// Returns all flags in ascending precedence: named flags such as `--delay` override `--set`.
    pub fn lines(&self) -> Vec<FlagLine> {
        let named = [
            ("-n", "max_iterations", &self.max_iterations),
            ("--delay", "delay", &self.delay),
            ("--timeout", "watchdog.session", &self.timeout),
            ("--agent", "agent", &self.agent),
            ("--profile", "profile", &self.profile),
        ];
        let set = self.set.iter().take(MAX_SET_FLAGS).map(|set| FlagLine::set(set));
        let named =
            named.iter().filter_map(|(flag, key, value)| Some(FlagLine::named(flag, key, value.as_ref()?)));
        set.chain(named).collect()
    }
}

impl FlagLine {
    fn named(flag: &'static str, key: &str, value: &str) -> FlagLine {
        let text = format!("{flag} {value}");
        let value_span = Some(flag.len() + 1..text.len());
        FlagLine { flag, key: key.to_owned(), key_span: 0..flag.len(), value_span, text }
    }

    fn set(set: &str) -> FlagLine {
        let flag = "--set";
        let text = format!("{flag} {set}");
        let start = flag.len() + 1;
        let (key, value_span) = match set.split_once('=') {
            Some((key, _)) => (key, Some(start + key.len() + 1..text.len())),
            None => (set, None),
        };
        FlagLine { flag, key: key.trim().to_owned(), key_span: start..start + key.len(), value_span, text }
    }

    /// Applies this flag on top of all earlier layers.
    pub fn apply<'s>(&'s self, layers: &mut Layers<'s>, diagnostics: &mut Diagnostics) {
        let source = Source { name: COMMAND_LINE, text: &self.text };
        let Some(span) = self.value_span.clone().filter(|span| !self.text[span.clone()].trim().is_empty())
        else {
            diagnostics
                .error(source, self.key_span.clone(), format!("`{}` needs a value", self.key))
                .help(self.form());
            return;
        };
        let value = match keys::find(&self.key) {
            Some(key) if key.kind.holds_texts() => text_value(&self.text[span.clone()], span),
            Some(_) | None => value(&self.text[span.clone()], span),
        };
        let entry = Entry { key: self.key.clone(), key_span: self.key_span.clone(), value };
        Layer::of_flag(source, self.flag, layers, diagnostics).entry("", &entry);
    }

    fn form(&self) -> String {
        match self.flag {
            "--set" => "write `--set key=value`".to_owned(),
            flag => format!("write `{flag} VALUE`"),
        }
    }
}

/// Parses a value as YAML if that gives a scalar or a bracketed list or mapping, and takes it as text otherwise:
/// `--set agent='echo a: b'` must not become a mapping.
fn value(text: &str, span: Span) -> Node {
    let bracketed = text.trim_start().starts_with(['[', '{']);
    match yaml::parse(text, span.start) {
        Ok(node) if bracketed || !matches!(node.value, Value::List(_) | Value::Map(_) | Value::Null) => node,
        _ => Node::new(Value::Text(text.to_owned()), span),
    }
}

/// Parses a value for a key that holds texts. `true` is a command there, not a boolean, and the shell has removed the
/// quotes that would say so in a file.
fn text_value(text: &str, span: Span) -> Node {
    let node = value(text, span.clone());
    match node.value {
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            Node::new(Value::Text(text.trim().to_owned()), span)
        }
        Value::Text(_) | Value::List(_) | Value::Map(_) => node,
    }
}
