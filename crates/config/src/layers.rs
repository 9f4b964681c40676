//! Combines the sources of settings by precedence.
//!
//! For a loop: built-in < user's `dogwatch.toml` < project's `dogwatch.toml` < loop file < flags. For a graph:
//! built-in < user < project < top level of the file < node < flags.
//!
//! Layers are applied in that order. A later layer replaces single keys, not whole blocks. Every value keeps
//! its origin.

use crate::diagnostic::{Diagnostics, Place, Source};
use crate::document::{Entry, Node, Span, Value};
use crate::keys::{self, Key};
use crate::nearest::{nearest, typo_of};
use crate::parsed::{self, Ctx, Parsed, is_off};
use std::collections::{BTreeMap, BTreeSet};

/// How unknown top-level keys are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// They are warnings: loop and graph files may contain keys of other tools. A misspelled key is an error, because the
    /// setting it means would be missing.
    Lenient,
    /// They are errors: only dogwatch reads this source.
    Strict,
}

/// How the origin of a setting begins if a flag sets it.
pub const FLAG_ORIGIN: &str = "flag ";

/// The place where a value was set.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin<'s> {
    pub source: Source<'s>,
    pub span: Span,
    /// The flag, such as `--delay`, if the value comes from the command line.
    pub flag: Option<&'s str>,
}

impl Origin<'_> {
    /// Formats the origin as `RALPH.md:4:8` or `flag --delay`.
    pub fn show(&self) -> String {
        match self.flag {
            Some(flag) => format!("{FLAG_ORIGIN}{flag}"),
            None => {
                let place = Place::of(self.source.text, self.span.clone());
                format!("{}:{}:{}", self.source.name, place.line, place.column)
            }
        }
    }
}

/// A valid value and its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Assigned<'s> {
    pub value: Parsed,
    pub origin: Origin<'s>,
}

/// Whether idle waits are on. An `idle` block turns them on even if it is empty.
#[derive(Clone, Debug, PartialEq)]
pub enum Idle<'s> {
    On(Origin<'s>),
    Off(Origin<'s>),
}

/// The combined settings of all applied layers.
#[derive(Clone, Debug, Default)]
pub struct Layers<'s> {
    values: BTreeMap<&'static str, Assigned<'s>>,
    /// Keys with an invalid value. Errors that follow from them are not reported.
    invalid: BTreeSet<&'static str>,
    /// Whether a layer turned idle waits on or off.
    pub idle: Option<Idle<'s>>,
    /// A layer turned idle waits off, so the `idle` keys of weaker layers do not apply.
    cleared_idle: bool,
}

/// Applies one source on top of the existing layers.
pub struct Layer<'l, 's> {
    layers: &'l mut Layers<'s>,
    source: Source<'s>,
    strictness: Strictness,
    flag: Option<&'s str>,
    diagnostics: &'l mut Diagnostics,
    seen: BTreeSet<&'static str>,
}

impl<'s> Layers<'s> {
    /// Returns the value of a key, if a layer sets it.
    pub fn get(&self, path: &str) -> Option<&Assigned<'s>> {
        self.values.get(path)
    }

    /// Returns whether a layer has an invalid value for a key.
    pub fn is_invalid(&self, path: &str) -> bool {
        self.invalid.contains(path)
    }

    /// Returns whether no key is set.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.invalid.is_empty() && self.idle.is_none()
    }

    /// Returns these layers with `stronger` applied on top. An `agent` in `stronger` also resets `reader`, which
    /// belongs to the other agent.
    pub fn overlaid_with(&self, stronger: &Layers<'s>) -> Layers<'s> {
        let mut all = self.clone();
        if stronger.cleared_idle {
            all.clear_idle();
        }
        if stronger.values.contains_key("agent") {
            all.values.remove("reader");
        }
        all.values.extend(stronger.values.iter().map(|(path, assigned)| (*path, assigned.clone())));
        all.invalid.extend(&stronger.invalid);
        all.idle = stronger.idle.clone().or(all.idle);
        all
    }

    /// Removes a block.
    pub fn without(mut self, block: &str) -> Layers<'s> {
        self.values.retain(|path, _| !keys::is_in_block(path, block));
        self
    }

    fn clear_idle(&mut self) {
        self.values.retain(|path, _| !keys::is_in_block(path, "idle"));
        self.cleared_idle = true;
    }
}

impl<'l, 's> Layer<'l, 's> {
    /// Creates the layer of a file.
    pub fn of_file(
        source: Source<'s>,
        strictness: Strictness,
        layers: &'l mut Layers<'s>,
        diagnostics: &'l mut Diagnostics,
    ) -> Layer<'l, 's> {
        Layer { layers, source, strictness, flag: None, diagnostics, seen: BTreeSet::new() }
    }

    /// Creates the layer of a flag.
    pub fn of_flag(
        source: Source<'s>,
        flag: &'s str,
        layers: &'l mut Layers<'s>,
        diagnostics: &'l mut Diagnostics,
    ) -> Layer<'l, 's> {
        Layer {
            layers,
            source,
            strictness: Strictness::Strict,
            flag: Some(flag),
            diagnostics,
            seen: BTreeSet::new(),
        }
    }

    /// Applies a whole file. Returns false if it is not a mapping.
    pub fn document(&mut self, tree: &Node) -> bool {
        match &tree.value {
            Value::Null => {}
            Value::Map(entries) => self.block("", entries),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) | Value::List(_) => {
                let diagnostic =
                    self.diagnostics.error(self.source, tree.span.clone(), "the settings must be a mapping");
                diagnostic.label(format!("this is {}", tree.kind())).help("write `key: value` lines");
                return false;
            }
        }
        true
    }

    fn block(&mut self, block: &str, entries: &[Entry]) {
        for entry in entries {
            self.entry(block, entry);
        }
    }

    /// Applies one key or block.
    pub fn entry(&mut self, block: &str, entry: &Entry) {
        let path = if block.is_empty() { entry.key.clone() } else { format!("{block}.{}", entry.key) };
        // `sandbox` is a word, or a block with its keys.
        let is_mapping = matches!(entry.value.value, Value::Map(_)) && keys::is_block(&path);
        if let Some(key) = keys::find(&path).filter(|_| !is_mapping) {
            self.key(key, &path, entry);
        } else if !keys::is_block(&path) {
            self.unknown(block, entry);
        } else {
            self.known_block(&path, entry);
        }
    }

    fn known_block(&mut self, path: &str, entry: &Entry) {
        let idle = path == "idle";
        match &entry.value.value {
            Value::Map(entries) => {
                if idle {
                    self.layers.idle = Some(Idle::On(self.origin(&entry.key_span)));
                }
                self.block(path, entries);
            }
            // An empty `idle:` enables idle waits with the defaults.
            Value::Null | Value::Bool(true) if idle => {
                self.layers.idle = Some(Idle::On(self.origin(&entry.key_span)));
            }
            Value::Null => {}
            _ if idle && is_off(&entry.value) => {
                self.layers.clear_idle();
                self.layers.idle = Some(Idle::Off(self.origin(&entry.value.span)));
            }
            Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) | Value::List(_) => {
                let mut ctx = Ctx { source: self.source, path, diagnostics: self.diagnostics };
                let known = keys::names_in(path).join("`, `");
                ctx.must_be(&entry.value, "a mapping").help(format!("its keys are `{known}`"));
            }
        }
    }

    fn key(&mut self, key: &'static Key, path: &str, entry: &Entry) {
        // A key without a value counts as unset, for example `commands:` with all its items commented out.
        if entry.value.is_null() {
            if key.kind == keys::Kind::Checks {
                let message = format!("`{path}` has no value: nothing is checked");
                self.diagnostics
                    .warning(self.source, entry.key_span.clone(), message)
                    .help("add a command that exits 0 when the work is done, or remove the key");
            }
            return;
        }
        // The YAML parser cannot detect a key that is set by two names, or once with dots and once in a block.
        if !self.seen.insert(key.path) {
            let message = format!("`{}` is set twice", key.path);
            let diagnostic = self.diagnostics.error(self.source, entry.key_span.clone(), message);
            if path != key.path {
                diagnostic.help(format!("`{path}` is another name for it; keep one of the two"));
            }
            return;
        }
        if key.path.starts_with("idle.") {
            self.layers.idle = Some(Idle::On(self.origin(&entry.key_span)));
        }
        let mut ctx = Ctx { source: self.source, path, diagnostics: self.diagnostics };
        match parsed::parse(&mut ctx, &entry.value, key.kind) {
            Some(value) => {
                let origin = self.origin(&entry.value.span);
                if key.path == "agent" {
                    self.forget_reader();
                }
                self.layers.values.insert(key.path, Assigned { value, origin });
            }
            None => {
                self.layers.invalid.insert(key.path);
            }
        }
    }

    /// Drops the `reader` of a weaker layer: it belongs to that layer's agent.
    fn forget_reader(&mut self) {
        let of_flag = |reader: &Assigned<'_>| reader.origin.flag.is_some();
        if !self.seen.contains("reader") && !self.layers.get("reader").is_some_and(of_flag) {
            self.layers.values.remove("reader");
        }
    }

    fn origin(&self, span: &Span) -> Origin<'s> {
        Origin { source: self.source, span: span.clone(), flag: self.flag }
    }

    fn unknown(&mut self, block: &str, entry: &Entry) {
        // A JSON file names the schema for editors by this key, because it has no comments.
        if block.is_empty() && entry.key == "$schema" {
            return;
        }
        let message = match block {
            "" => format!("unknown key `{}`", entry.key),
            block => format!("unknown key `{}` in `{block}`", entry.key),
        };
        let help = suggestion(block, &entry.key);
        let typo = block.is_empty() && typo_of(&entry.key, keys::names_in("")).is_some();
        let foreign =
            keys::is_shared(block) || (block.is_empty() && !typo && !keys::is_in_known_block(&entry.key));
        let diagnostic = if foreign && self.strictness == Strictness::Lenient {
            self.diagnostics.warning(self.source, entry.key_span.clone(), message).label("ignored")
        } else {
            self.diagnostics.error(self.source, entry.key_span.clone(), message)
        };
        if let Some(help) = help {
            diagnostic.help(help);
        }
    }
}

impl Layer<'_, '_> {
    /// Reports an unknown key in a graph node: a misspelled one is an error, another one may belong to another tool.
    pub fn foreign_in_node<'k>(&mut self, entry: &Entry, known: impl Iterator<Item = &'k str> + Clone) {
        let message = format!("unknown key `{}` in a node", entry.key);
        let (at, near) = (entry.key_span.clone(), nearest(&entry.key, known.clone()));
        let diagnostic = match typo_of(&entry.key, known) {
            Some(_) => self.diagnostics.error(self.source, at, message),
            None => self.diagnostics.warning(self.source, at, message).label("ignored"),
        };
        if let Some(help) =
            near.map(|near| format!("did you mean `{near}`?")).or_else(|| suggestion("", &entry.key))
        {
            diagnostic.help(help);
        }
    }
}

/// Returns the help text for an unknown key.
fn suggestion(block: &str, key: &str) -> Option<String> {
    if (block, key) == ("", "timeout") {
        return Some(
            "`watchdog.session` limits a session, as `run --timeout`; `checks.timeout` limits a check"
                .to_owned(),
        );
    }
    let begun = || keys::names_in(block).into_iter().find(|name| name.starts_with(&format!("{key}_")));
    if let Some(near) = nearest(key, keys::names_in(block)).or_else(begun) {
        return Some(format!("did you mean `{near}`?"));
    }
    if !block.is_empty() {
        return keys::find(key).map(|_| format!("`{key}` is a top-level key"));
    }
    // Suggest a key of the same name in a block, or a similar dotted path.
    let leaf = |key: &&Key| key.path.rsplit('.').next();
    let same_leaf = keys::KEYS.iter().find(|known| leaf(known) == Some(key)).map(|known| known.path);
    let near_path = || nearest(key, keys::KEYS.iter().map(|known| known.path));
    same_leaf.or_else(near_path).map(|path| format!("did you mean `{path}`?"))
}
