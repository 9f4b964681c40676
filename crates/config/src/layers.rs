//! Which value counts: built-in < user's `dogwatch.toml` < the project's < the loop file < flags; in a graph
//! built-in < user < project < the file's top level < the node < flags.
//!
//! Layers are laid in that order; a later one replaces single keys, not whole blocks. Every value keeps
//! the place it came from.

use crate::diagnostic::{Diagnostics, Place, Source};
use crate::keys::{self, Key, Standing};
use crate::nearest::nearest;
use crate::parsed::{self, Ctx, Parsed, is_off};
use crate::tree::{Entry, Node, Span, Value};
use std::collections::{BTreeMap, BTreeSet};

/// How unknown keys are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// A loop file may carry keys of other tools at its top level; they are noted.
    Lenient,
    /// Nobody but dogwatch reads this.
    Strict,
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin<'s> {
    pub source: Source<'s>,
    pub span: Span,
    /// Set for flags: `--delay`.
    pub flag: Option<&'s str>,
}

impl Origin<'_> {
    /// `RALPH.md:4:8` or `flag --delay`.
    pub fn show(&self) -> String {
        match self.flag {
            Some(flag) => format!("flag {flag}"),
            None => {
                let place = Place::of(self.source.text, self.span.clone());
                format!("{}:{}:{}", self.source.name, place.line, place.column)
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Assigned<'s> {
    pub value: Parsed,
    pub origin: Origin<'s>,
}

/// Whether there is an `idle` block: it means something by being there.
#[derive(Clone, Debug, PartialEq)]
pub enum Idle<'s> {
    On(Origin<'s>),
    Off(Origin<'s>),
}

/// All that was said, the strongest word per key.
#[derive(Clone, Debug, Default)]
pub struct Layers<'s> {
    values: BTreeMap<&'static str, Assigned<'s>>,
    /// Keys with a value that was wrong. What follows from them is not reported on top.
    invalid: BTreeSet<&'static str>,
    pub idle: Option<Idle<'s>>,
    /// Idling was switched off at some point: what a weaker layer says about it is void.
    cleared_idle: bool,
}

/// One source being laid on.
pub struct Layer<'l, 's> {
    layers: &'l mut Layers<'s>,
    source: Source<'s>,
    strictness: Strictness,
    flag: Option<&'s str>,
    diagnostics: &'l mut Diagnostics,
    seen: BTreeSet<&'static str>,
}

impl<'s> Layers<'s> {
    pub fn get(&self, path: &str) -> Option<&Assigned<'s>> {
        self.values.get(path)
    }

    pub fn is_invalid(&self, path: &str) -> bool {
        self.invalid.contains(path)
    }

    /// Nothing was said at all.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.invalid.is_empty() && self.idle.is_none()
    }

    /// These with `stronger` laid over them. Who names an agent means its own reader, not that of another agent.
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

    /// Takes a block out.
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
    pub fn of_file(
        source: Source<'s>,
        strictness: Strictness,
        layers: &'l mut Layers<'s>,
        diagnostics: &'l mut Diagnostics,
    ) -> Layer<'l, 's> {
        Layer { layers, source, strictness, flag: None, diagnostics, seen: BTreeSet::new() }
    }

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

    /// Lays a whole file on. False if it is not a mapping, so that nothing can be said about its keys.
    pub fn document(&mut self, tree: &Node) -> bool {
        match &tree.value {
            Value::Null => {}
            Value::Map(entries) => self.block("", entries),
            _ => {
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

    /// Lays one key on, which may be a block.
    pub fn entry(&mut self, block: &str, entry: &Entry) {
        let path = if block.is_empty() { entry.key.clone() } else { format!("{block}.{}", entry.key) };
        if let Some(key) = keys::find(&path) {
            self.key(key, &path, entry);
        } else if keys::keys_in(&path).next().is_none() {
            self.unknown(block, entry);
        } else if keys::keys_in(&path).all(|key| key.standing == Standing::Refused) {
            self.refuse(&path, entry);
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
            // `idle:` with nothing under it asks for idling as it comes.
            Value::Null | Value::Bool(true) if idle => {
                self.layers.idle = Some(Idle::On(self.origin(&entry.key_span)));
            }
            Value::Null => {}
            _ if idle && is_off(&entry.value) => {
                self.layers.clear_idle();
                self.layers.idle = Some(Idle::Off(self.origin(&entry.value.span)));
            }
            _ => {
                let mut ctx = Ctx { source: self.source, path, diagnostics: self.diagnostics };
                let known = keys::names_in(path).join("`, `");
                ctx.must_be(&entry.value, "a mapping").help(format!("its keys are `{known}`"));
            }
        }
    }

    fn key(&mut self, key: &'static Key, path: &str, entry: &Entry) {
        match key.standing {
            Standing::Refused => return self.refuse(key.path, entry),
            Standing::NoEffect => {
                let message = format!("`{}` has no effect in this version yet", key.path);
                self.diagnostics.warning(self.source, entry.key_span.clone(), message);
            }
            Standing::InForce => {}
        }
        // A key without a value says nothing, as in `commands:` with all lines commented out.
        if entry.value.is_null() {
            return;
        }
        // By two names, or by its own name and a dotted one: the reader of YAML cannot see that.
        if !self.seen.insert(key.path) {
            let message = format!("`{}` is given twice", key.path);
            self.diagnostics.error(self.source, entry.key_span.clone(), message);
            return;
        }
        if key.path.starts_with("idle.") {
            self.layers.idle = Some(Idle::On(self.origin(&entry.key_span)));
        }
        let mut ctx = Ctx { source: self.source, path, diagnostics: self.diagnostics };
        match parsed::parse(&mut ctx, &entry.value, key.kind) {
            Some(value) => {
                let origin = self.origin(&entry.value.span);
                self.layers.values.insert(key.path, Assigned { value, origin });
            }
            None => {
                self.layers.invalid.insert(key.path);
            }
        }
    }

    fn origin(&self, span: &Span) -> Origin<'s> {
        Origin { source: self.source, span: span.clone(), flag: self.flag }
    }

    fn refuse(&mut self, path: &str, entry: &Entry) {
        let message = format!("this version of dogwatch cannot do `{path}` yet");
        self.diagnostics
            .error(self.source, entry.key_span.clone(), message)
            .help("remove it, or use a later version");
    }

    fn unknown(&mut self, block: &str, entry: &Entry) {
        let message = match block {
            "" => format!("unknown key `{}`", entry.key),
            block => format!("unknown key `{}` in `{block}`", entry.key),
        };
        let help = suggestion(block, &entry.key);
        let foreign = block.is_empty() && !keys::is_in_known_block(&entry.key);
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
    /// A key of another tool in a node of a graph; `near` is the node's own field that may have been meant.
    pub fn warn_foreign(&mut self, entry: &Entry, near: Option<&str>) {
        let help = near.map(|near| format!("did you mean `{near}`?")).or_else(|| suggestion("", &entry.key));
        let message = format!("a node has no key `{}`", entry.key);
        let diagnostic =
            self.diagnostics.warning(self.source, entry.key_span.clone(), message).label("ignored");
        if let Some(help) = help {
            diagnostic.help(help);
        }
    }
}

/// What may have been meant by an unknown key.
fn suggestion(block: &str, key: &str) -> Option<String> {
    if let Some(near) = nearest(key, keys::names_in(block)) {
        return Some(format!("did you mean `{near}`?"));
    }
    if !block.is_empty() {
        return keys::find(key).map(|_| format!("`{key}` is a key of the top level"));
    }
    // The right word in the wrong place, or a dotted path with a typing error.
    let leaf = |key: &&Key| key.path.rsplit('.').next();
    let same_leaf = keys::KEYS.iter().find(|known| leaf(known) == Some(key)).map(|known| known.path);
    let near_path = || nearest(key, keys::KEYS.iter().map(|known| known.path));
    same_leaf.or_else(near_path).map(|path| format!("did you mean `{path}`?"))
}
