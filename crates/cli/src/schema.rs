//! JSON schemas of loop files, graph files and `dogwatch.toml`, generated from the table of keys.
//!
//! A schema helps an editor to complete and check; `dogwatch check` decides. Where they cannot agree exactly (the words
//! of a command line, for example), the schema accepts more. It refuses two things that `check` accepts: unknown keys, which
//! `check` may ignore with a warning, and keys without a value, because the user is still typing it. A list or block may be
//! empty: its items may be commented out.

use dogwatch_config::keys::{ALIASES, KEYS, Key, Kind};
use dogwatch_config::limits::{MAX_AGENTS, MAX_CHECKS, MAX_COMMANDS, MAX_MCP_SERVERS, MAX_NODES, MAX_PINS};
use dogwatch_core::record::notification::NotificationKind;
use dogwatch_core::settings::ReaderName;
use serde_json::{Value, json};

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// A number of seconds as text, or numbers with units.
const DURATION: &str = r"^\s*([0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+)\s*$";
/// The name of a command or an argument.
const NAME: &str = "^[A-Za-z0-9_-]+$";

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum File {
    /// The frontmatter of RALPH.md
    Loop,
    /// graph.yaml, graph.toml and graph.json
    Graph,
    /// dogwatch.toml
    Settings,
}

impl File {
    /// All kinds.
    pub const ALL: [File; 3] = [File::Loop, File::Graph, File::Settings];

    /// Returns the name of the schema's file.
    pub fn file_name(self) -> &'static str {
        match self {
            File::Loop => "loop.json",
            File::Graph => "graph.json",
            File::Settings => "settings.json",
        }
    }

    /// Returns the schema.
    pub fn schema(self) -> Value {
        let title = match self {
            File::Loop => "Frontmatter of a RALPH.md of dogwatch",
            File::Graph => "Graph file of dogwatch",
            File::Settings => "dogwatch.toml",
        };
        let mut schema = match self {
            File::Loop => settings(true),
            File::Settings => settings(false),
            File::Graph => graph(),
        };
        let about = json!({"$schema": DIALECT, "title": title});
        let fields = schema.as_object_mut().expect("a schema is an object");
        let rest = std::mem::take(fields);
        fields.extend(about.as_object().cloned().unwrap_or_default());
        fields.extend(rest);
        schema
    }
}

/// Returns the schema of all settings. `shared` says whether other tools read the file too.
fn settings(shared: bool) -> Value {
    let mut root = block();
    for key in KEYS {
        insert(&mut root, key.path, described(key));
    }
    for (alias, path) in ALIASES {
        let key = KEYS.iter().find(|key| key.path == *path).expect("an alias belongs to a key");
        let same = json!({"description": format!("The same as `{path}`."), "anyOf": [of_kind(key.kind)]});
        insert(&mut root, alias, same);
    }
    if shared {
        // `general` belongs to another tool, which keeps more keys there.
        root["properties"]["general"]["additionalProperties"] = json!(true);
    }
    // A JSON file names its schema by this key.
    root["properties"]["$schema"] = json!({"type": "string"});
    strip(&mut root);
    root["properties"]["idle"] =
        or(root["properties"]["idle"].clone(), &[json!({"enum": [true, false, "off"]})]);
    root
}

/// Removes the marks of [`insert`].
fn strip(schema: &mut Value) {
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("x-block");
        fields.values_mut().for_each(strip);
    } else if let Some(items) = schema.as_array_mut() {
        items.iter_mut().for_each(strip);
    }
}

/// Returns the schema of a block. `watchdog.idle: 5m` is short for a block with one key, in a block too.
fn block() -> Value {
    json!({
        "type": ["object", "null"],
        "properties": {},
        "patternProperties": {"\\.": true},
        "additionalProperties": false,
    })
}

/// Puts the schema of a key into its block. A key that is also a block, such as `sandbox`, accepts both.
fn insert(root: &mut Value, path: &str, schema: Value) {
    let Some((name, rest)) = path.split_once('.') else {
        root["properties"][path] = schema;
        return;
    };
    let place = &mut root["properties"][name];
    if place.is_null() {
        *place = block();
    } else if place.get("properties").is_none() && place.get("x-block").is_none() {
        let word = place.take();
        let mut both = block();
        both["x-block"] = json!(true);
        *place = json!({"x-block": true, "description": word["description"], "anyOf": [word, both]});
    }
    let inner = if place.get("x-block").is_some() { &mut place["anyOf"][1] } else { place };
    insert(inner, rest, schema);
}

fn described(key: &Key) -> Value {
    let mut schema = of_kind(key.kind);
    let Some(fields) = schema.as_object_mut() else { return schema };
    fields
        .insert("description".to_owned(), json!(format!("{}. Default: {}.", capital(key.doc), key.default)));
    schema
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Returns a schema that also accepts others.
fn or(schema: Value, others: &[Value]) -> Value {
    let all: Vec<Value> = std::iter::once(schema).chain(others.iter().cloned()).collect();
    json!({"anyOf": all})
}

fn off() -> Value {
    json!({"enum": ["off", false]})
}

fn text() -> Value {
    json!({"type": "string", "minLength": 1})
}

/// Returns a list, or a single item.
fn list(item: Value, max: usize) -> Value {
    or(json!({"type": ["array", "null"], "items": item, "maxItems": max}), &[item])
}

fn duration(zero: bool) -> Value {
    let number = if zero {
        json!({"type": "number", "minimum": 0})
    } else {
        json!({"type": "number", "exclusiveMinimum": 0})
    };
    or(number, &[json!({"type": "string", "pattern": DURATION})])
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 1})
}

fn flag() -> Value {
    // The words in any case. The list is what editors offer.
    let words = json!({"type": "string", "pattern": "^([yY][eE][sS]|[nN][oO]|[oO][nN]|[oO][fF][fF])$"});
    or(json!({"type": "boolean"}), &[json!({"enum": ["yes", "no", "on", "off"]}), words])
}

fn url() -> Value {
    json!({"type": "string", "pattern": "^[hH][tT][tT][pP][sS]?://"})
}

/// Returns the schema of a kind of value.
fn of_kind(kind: Kind) -> Value {
    match kind {
        Kind::CommandLine | Kind::Text => text(),
        Kind::OneOf(words) => json!({"enum": words}),
        Kind::Commands => json!({"type": ["array", "null"], "maxItems": MAX_COMMANDS, "items": {
            "type": "object",
            "required": ["name", "run"],
            "properties": {
                "name": {"type": "string", "pattern": NAME},
                "run": text(),
                "timeout": or(duration(false), &[json!({"type": "null"})]),
                "shell": or(flag(), &[json!({"type": "null"})]),
            },
        }}),
        Kind::Names => {
            let item = json!({"type": "string", "pattern": NAME});
            json!({"type": ["array", "null"], "items": item, "uniqueItems": true})
        }
        Kind::Flag => flag(),
        Kind::Texts => list(text(), dogwatch_config::limits::MAX_TEXTS),
        Kind::Ports => list(
            json!({"type": "integer", "minimum": 0, "maximum": u16::MAX}),
            dogwatch_config::limits::MAX_TEXTS,
        ),
        Kind::Checks => {
            let list =
                json!({"type": ["array", "null"], "items": text(), "minItems": 1, "maxItems": MAX_CHECKS});
            or(list, &[text(), off()])
        }
        Kind::Globs => list(text(), MAX_PINS),
        Kind::Agents => {
            let agent = json!({
                "type": "object",
                "required": ["agent"],
                "properties": {"agent": text(), "reader": of_kind(Kind::OneOf(ReaderName::NAMES))},
                "additionalProperties": false,
            });
            list(or(agent, &[text()]), MAX_AGENTS)
        }
        Kind::Duration => duration(true),
        Kind::Span => duration(false),
        Kind::Limit => or(duration(false), &[off()]),
        Kind::Ttl => or(duration(true), &[json!({"const": "auto"})]),
        Kind::ToolLimits => json!({
            "type": ["object", "null"],
            "additionalProperties": of_kind(Kind::Limit),
            "maxProperties": dogwatch_core::watch::limits::MAX_TOOL_LIMITS,
        }),
        Kind::Count => count(),
        Kind::CountLimit => or(count(), &[off()]),
        Kind::UpTo(max) => json!({"type": "integer", "minimum": 0, "maximum": max}),
        Kind::Factor => json!({"type": "number", "minimum": 1}),
        Kind::Amount => or(json!({"type": "number", "minimum": 0}), &[off()]),
        Kind::Share => {
            let number = json!({"type": "number", "exclusiveMinimum": 0, "maximum": 100});
            or(number, &[json!({"type": "string", "pattern": "^\\s*[0-9]+(\\.[0-9]+)?\\s*%$"}), off()])
        }
        Kind::StopAfter => {
            or(count(), &[json!({"type": ["object", "null"], "additionalProperties": count()}), off()])
        }
        Kind::NotifyOn => {
            let words = NotificationKind::SELECTABLE.map(NotificationKind::as_str);
            list(json!({"enum": words}), words.len().pow(2))
        }
        Kind::Webhook | Kind::Topic => url(),
        Kind::BotToken => json!({"type": "string", "pattern": "^[0-9]+:[A-Za-z0-9_-]{20,}$"}),
        Kind::Chat => or(
            json!({"type": "integer"}),
            &[json!({"type": "string", "pattern": "^(-?[0-9]+|@[A-Za-z0-9_]+)$"})],
        ),
        Kind::Mcp => or(flag(), &[mcp()]),
    }
}

fn mcp() -> Value {
    let server = json!({
        "type": "object",
        "properties": {
            "command": or(text(), &[json!({"type": "array", "items": {"type": "string"}, "minItems": 1})]),
            "url": text(),
            "headers": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
            "timeout": duration(false),
            "tools": {"type": ["object", "null"], "additionalProperties": {
                "type": "object", "properties": {"timeout": duration(false)}, "additionalProperties": false,
            }},
            "restart_after": count(),
            "insecure": {"type": "boolean"},
        },
        "oneOf": [{"required": ["command"]}, {"required": ["url"]}],
        "additionalProperties": false,
    });
    json!({
        "type": ["object", "null"],
        "properties": {"servers": {
            "type": ["object", "null"],
            "maxProperties": MAX_MCP_SERVERS,
            "propertyNames": {"pattern": NAME},
            "additionalProperties": server,
        }},
        "additionalProperties": false,
    })
}

/// Returns the schema of a graph: settings and nodes, or a list of nodes alone.
///
/// Keywords for objects ignore lists and the other way around, so one schema describes both. With `anyOf`, validators would
/// only report that the file as a whole fits neither.
fn graph() -> Value {
    let mut top = settings(true);
    let id = json!({"type": ["string", "integer"], "minLength": 1});
    let mut node = top.clone();
    node["type"] = json!("object");
    let fields = node["properties"].as_object_mut().expect("a block has properties");
    // These belong to the whole run.
    for key in ["args", "max_parallel", "notify", "$schema"] {
        fields.remove(key);
    }
    let watchdog = fields["watchdog"]["properties"].as_object_mut().expect("a block has properties");
    watchdog.remove("run");
    fields.extend([
        ("id".to_owned(), id.clone()),
        ("name".to_owned(), id.clone()),
        ("prompt".to_owned(), text()),
        ("prompt_file".to_owned(), text()),
        ("deliverable".to_owned(), text()),
        ("depends_on".to_owned(), list(id, MAX_NODES)),
        ("touches".to_owned(), list(text(), dogwatch_config::limits::MAX_TEXTS)),
        ("parallel_safe".to_owned(), flag()),
    ]);
    node["anyOf"] = json!(["prompt", "prompt_file", "deliverable"].map(|field| json!({"required": [field]})));
    node["not"] = json!({"type": "object", "required": ["prompt", "prompt_file"]});
    let named = json!({"anyOf": [{"required": ["id"]}, {"required": ["name"]}]});
    let list = [
        ("minItems", json!(1)),
        ("maxItems", json!(MAX_NODES)),
        ("items", json!({"allOf": [{"$ref": "#/$defs/node"}, named]})),
    ];
    let mut nodes = json!({
        "type": ["object", "array"],
        "minProperties": 1,
        "additionalProperties": {"$ref": "#/$defs/node"},
    });
    for (keyword, value) in list {
        top[keyword] = value.clone();
        nodes[keyword] = value;
    }
    top["type"] = json!(["object", "array"]);
    top["properties"]["nodes"] = nodes;
    top["required"] = json!(["nodes"]);
    top["$defs"] = json!({"node": node});
    top
}
