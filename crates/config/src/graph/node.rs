//! Parses one node of a graph file: its own fields and the settings it overrides.

use crate::diagnostic::{Diagnostics, Severity, Source};
use crate::document::{Entry, Node, Span, Value};
use crate::keys;
use crate::layers::{Layer, Layers, Strictness};
use crate::limits::{MAX_NODES, MAX_PROMPT_BYTES};
use crate::lists;
use crate::nearest::typo_of;
use crate::parsed::{Ctx, flag, text};
use dogwatch_core::settings::PromptSource;
use std::collections::BTreeSet;

/// The fields that only nodes have. `deliverable` is an alias of `prompt`, and `name` of `id`.
const FIELDS: [&str; 8] =
    ["id", "name", "prompt", "prompt_file", "deliverable", "depends_on", "touches", "parallel_safe"];

/// Settings that apply to the whole run and cannot be set in a node.
const RUN_KEYS: [&str; 3] = ["args", "max_parallel", "watchdog.run"];

/// A parsed node whose dependencies and files are not checked yet.
#[derive(Debug)]
pub struct NodeDraft<'s> {
    pub id: String,
    /// The span of its id.
    pub at: Span,
    pub depends_on: Vec<(String, Span)>,
    pub touches: Vec<String>,
    pub parallel_safe: bool,
    pub prompt: Option<(PromptSource, Span)>,
    /// Whether it has a prompt field, valid or not.
    pub has_prompt_field: bool,
    /// The settings that it overrides.
    pub own: Layers<'s>,
}

/// Parses the nodes of a graph.
pub struct Nodes<'f, 's> {
    pub source: Source<'s>,
    pub diagnostics: &'f mut Diagnostics,
    /// Unknown keys that already caused a warning. Each is reported once.
    pub foreign: BTreeSet<String>,
}

impl<'s> Nodes<'_, 's> {
    /// Parses all nodes from a list, or from a mapping by id.
    pub fn read(&mut self, nodes: &Node) -> Vec<NodeDraft<'s>> {
        let Some(count) = nodes.list().map(<[_]>::len).or(nodes.map().map(<[_]>::len)) else {
            self.ctx("nodes").must_be(nodes, "a list of nodes, or a mapping from id to node");
            return Vec::new();
        };
        if count == 0 {
            self.diagnostics.error(self.source, nodes.span.clone(), "the graph has no nodes");
        }
        if count > MAX_NODES {
            let message = format!("the graph has {count} nodes; at most {MAX_NODES} are allowed");
            self.diagnostics
                .error(self.source, nodes.span.clone(), message)
                .help("split it into several graphs");
            return Vec::new();
        }
        if let Some(items) = nodes.list() {
            return items.iter().filter_map(|item| self.listed(item)).collect();
        }
        nodes.map().unwrap_or_default().iter().filter_map(|entry| self.mapped(entry)).collect()
    }

    fn listed(&mut self, item: &Node) -> Option<NodeDraft<'s>> {
        let fields = self.fields(item, "each node must be a mapping with `id` and `prompt`")?;
        let get = |name: &str| fields.iter().find(|field| field.key == name);
        let Some(named) = get("id").or_else(|| get("name")) else {
            let diagnostic = self.diagnostics.error(self.source, item.span.clone(), "this node has no `id`");
            diagnostic.help("each node needs `id` and `prompt`, `prompt_file` or `deliverable`");
            return None;
        };
        let id = id(&mut self.ctx(&named.key), &named.value)?;
        self.draft(id, named.value.span.clone(), fields)
    }

    fn mapped(&mut self, entry: &Entry) -> Option<NodeDraft<'s>> {
        let fields = self.fields(&entry.value, "each node must be a mapping with `prompt`")?;
        if let Some(id) = fields.iter().find(|field| field.key == "id")
            && id.value.text() != Some(&entry.key)
        {
            self.diagnostics
                .error(
                    self.source,
                    id.key_span.clone(),
                    format!("the `id` of node `{}` differs from its key", entry.key),
                )
                .help("remove the `id`");
        }
        self.draft(entry.key.clone(), entry.key_span.clone(), fields)
    }

    fn fields<'n>(&mut self, item: &'n Node, what: &str) -> Option<&'n [Entry]> {
        if let Value::Map(fields) = &item.value {
            return Some(fields);
        }
        let diagnostic = self.diagnostics.error(self.source, item.span.clone(), what);
        diagnostic.label(format!("this is {}", item.kind()));
        None
    }

    fn draft(&mut self, id: String, at: Span, fields: &[Entry]) -> Option<NodeDraft<'s>> {
        let get = |name: &str| fields.iter().find(|field| field.key == name && !field.value.is_null());
        let prompt = self.prompt(get("prompt"), get("prompt_file"), get("deliverable"));
        let depends_on = get("depends_on").map(|field| self.dependencies(&field.value));
        let touches = get("touches").map(|field| lists::touches(&mut self.ctx("touches"), &field.value));
        let parallel_safe = get("parallel_safe").map(|f| flag(&mut self.ctx("parallel_safe"), &f.value));
        Some(NodeDraft {
            id,
            at,
            depends_on: depends_on.flatten().unwrap_or_default(),
            touches: touches.flatten().unwrap_or_default(),
            parallel_safe: parallel_safe.flatten().unwrap_or(true),
            prompt,
            has_prompt_field: ["prompt", "prompt_file", "deliverable"].iter().any(|name| get(name).is_some()),
            own: self.own(fields),
        })
    }

    fn ctx<'c>(&'c mut self, path: &'c str) -> Ctx<'c, 's> {
        Ctx { source: self.source, path, diagnostics: self.diagnostics }
    }

    fn prompt(
        &mut self,
        prompt: Option<&Entry>,
        file: Option<&Entry>,
        deliverable: Option<&Entry>,
    ) -> Option<(PromptSource, Span)> {
        if let (Some(_), Some(second)) = (prompt, file) {
            let message = "a node cannot have both `prompt` and `prompt_file`";
            return self.diagnostics.error(self.source, second.key_span.clone(), message).rejected();
        }
        if let Some(file) = file {
            let path = text(&mut self.ctx("prompt_file"), &file.value)?;
            return Some((PromptSource::File(path), file.value.span.clone()));
        }
        let field = prompt.or(deliverable)?;
        let words = text(&mut self.ctx(&field.key), &field.value)?;
        if words.len() > MAX_PROMPT_BYTES {
            let message = format!("`{}` is too long: {} bytes", field.key, words.len());
            let diagnostic = self.diagnostics.error(self.source, field.value.span.clone(), message);
            diagnostic.help(format!(
                "at most {MAX_PROMPT_BYTES} bytes are allowed; move it to a file and set `prompt_file`"
            ));
            return None;
        }
        Some((PromptSource::Text(words), field.value.span.clone()))
    }

    fn dependencies(&mut self, node: &Node) -> Option<Vec<(String, Span)>> {
        if let Some(n) = node.int() {
            return Some(vec![(n.to_string(), node.span.clone())]);
        }
        lists::items(&mut self.ctx("depends_on"), node, "a list of ids", MAX_NODES, |ctx, item| {
            Some((id(ctx, item)?, item.span.clone()))
        })
    }

    /// Parses the settings that the node overrides.
    fn own(&mut self, fields: &[Entry]) -> Layers<'s> {
        let mut own = Layers::default();
        let mut layer = Layer::of_file(self.source, Strictness::Lenient, &mut own, self.diagnostics);
        for field in fields.iter().filter(|field| !FIELDS.contains(&field.key.as_str())) {
            if keys::is_foreign(&field.key) {
                let known = || FIELDS.iter().copied().chain(keys::names_in(""));
                if typo_of(&field.key, known()).is_some() || self.foreign.insert(field.key.clone()) {
                    layer.foreign_in_node(field, known());
                }
            } else {
                layer.entry("", field);
            }
        }
        for key in RUN_KEYS.into_iter().chain(keys::keys_in("notify").map(|key| key.path)) {
            if let Some(assigned) = own.get(key)
                && self.diagnostics.has_room(Severity::Error)
            {
                let message = format!("`{key}` applies to the whole graph, not to a node");
                let diagnostic = self.diagnostics.error(self.source, assigned.origin.span.clone(), message);
                diagnostic.help("move it to the top level of the file");
            }
        }
        own
    }
}

/// Parses an id. `id: 7` is unambiguous. `1.10` is not, because YAML reads it as 1.1.
fn id(ctx: &mut Ctx<'_, '_>, node: &Node) -> Option<String> {
    if let Some(n) = node.int() { Some(n.to_string()) } else { text(ctx, node) }
}
