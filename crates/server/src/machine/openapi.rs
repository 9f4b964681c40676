//! The OpenAPI document. It is generated on request from the route table and the request and response types.

use super::table::{Input, Look, Media, Op, Param, table};
use crate::error::ApiError;
use crate::routes::{HandlerResult, json};
use axum::http::StatusCode;
use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The body of an error response.
#[derive(JsonSchema, Serialize)]
#[allow(dead_code, reason = "only describes the shape of error responses")]
pub(crate) struct ErrorAnswer {
    error: ErrorBody,
}

#[derive(JsonSchema, Serialize)]
#[allow(dead_code, reason = "only describes the shape of error responses")]
struct ErrorBody {
    /// A stable code for programs.
    code: String,
    /// A message for people.
    message: String,
}

pub(crate) async fn openapi() -> HandlerResult {
    json(StatusCode::OK, &document())
}

fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|s| {
        s.definitions_path = "/components/schemas".into();
        s.meta_schema = None;
    })
}

fn document() -> Value {
    let mut looks = Looks {
        answers: settings().for_serialize().into_generator(),
        bodies: settings().for_deserialize().into_generator(),
    };
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for op in table() {
        let described = looks.operation(&op);
        paths.entry(op.path).or_default().insert(op.method.to_owned(), described);
    }
    let mut schemas = looks.answers.take_definitions(true);
    schemas.extend(looks.bodies.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "dogwatch",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The runs of this machine. On TCP every request needs the token.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    })
}

struct Looks {
    answers: SchemaGenerator,
    bodies: SchemaGenerator,
}

impl Looks {
    fn operation(&mut self, op: &Op) -> Value {
        let mut parameters: Vec<Value> = path_parameters(op.path).map(|name| self.in_path(name)).collect();
        parameters.extend(op.query.iter().map(|p| self.parameter("query", p)));
        parameters.extend(op.headers.iter().map(|p| self.parameter("header", p)));
        let mut described = json!({"summary": op.summary, "operationId": op.id(), "parameters": parameters});
        if let Some(Input { look, required }) = op.body {
            let schema = look(&mut self.bodies);
            described["requestBody"] =
                json!({"required": required, "content": {"application/json": {"schema": schema}}});
        }
        described["responses"] = self.responses(op);
        described
    }

    fn responses(&mut self, op: &Op) -> Value {
        let mut all: BTreeMap<String, Value> = BTreeMap::new();
        for (status, media) in &op.answers {
            let (kind, schema) = match media {
                Media::Json(look) => ("application/json", json!(look(&mut self.answers))),
                Media::Kind(kind) => (*kind, json!({"type": "string"})),
            };
            let answer = all
                .entry(status.to_string())
                .or_insert_with(|| json!({"description": op.summary, "content": {}}));
            answer["content"][kind] = json!({"schema": schema});
        }
        let error = self.answers.subschema_for::<ErrorAnswer>();
        for (status, codes) in by_status(&op.refusals) {
            all.insert(
                status.to_string(),
                json!({
                    "description": format!("refused: {}", codes.join(", ")),
                    "content": {"application/json": {"schema": error}},
                }),
            );
        }
        json!(all)
    }

    fn in_path(&mut self, name: &str) -> Value {
        let look: Look = super::table::path_look(name);
        json!({"name": name, "in": "path", "required": true, "schema": look(&mut self.bodies)})
    }

    fn parameter(&mut self, place: &str, param: &Param) -> Value {
        let schema = (param.look)(&mut self.bodies);
        json!({"name": param.name, "in": place, "required": false, "description": param.about, "schema": schema})
    }
}

fn by_status(refusals: &[ApiError]) -> BTreeMap<u16, Vec<&'static str>> {
    let mut all: BTreeMap<u16, Vec<&'static str>> = BTreeMap::new();
    for refusal in refusals {
        all.entry(refusal.status().as_u16()).or_default().push(refusal.code());
    }
    all
}

/// Returns the parameter names in braces.
fn path_parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_and_every_type_it_names_is_described() {
        let document = document();
        let paths = document["paths"].as_object().expect("paths");
        assert!(paths.len() >= 15, "{}", paths.len());
        let text = document.to_string();
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        for (at, _) in text.match_indices("#/components/schemas/") {
            let name: String = text[at + 21..].chars().take_while(|c| *c != '"').collect();
            assert!(schemas.contains_key(&name), "{name}");
        }
        for name in ["Status", "OrchestratorStatus", "RunEntry", "HungAgent", "Told"] {
            assert!(schemas.contains_key(name), "{name}");
        }
        let tell = &document["paths"]["/v1/runs/{run}/tell"]["post"];
        assert_eq!(
            tell["requestBody"]["content"]["application/json"]["schema"]["$ref"],
            "#/components/schemas/Told"
        );
        assert_eq!(tell["parameters"][0]["name"], "run");
        assert!(tell["responses"]["409"]["description"].as_str().is_some_and(|d| d.contains("not_running")));
    }

    #[test]
    fn numbers_in_requests_have_their_ranges() {
        let schemas = &document()["components"]["schemas"];
        let range = |at: &str, field: &str| {
            let field = &schemas[at]["properties"][field];
            (field["minimum"].clone(), field["maximum"].clone())
        };
        for field in ["idle_timeout_seconds", "total_timeout_seconds"] {
            assert_eq!(range("Register", field), (json!(0.001), json!(315_360_000.0)), "{field}");
        }
        assert_eq!(range("Register", "max_errors"), (json!(1), json!(u32::MAX)));
        assert_eq!(range("Activity", "messages"), (json!(0), json!(u64::MAX)));
    }

    #[test]
    fn every_route_is_documented() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/api.md");
        let page = std::fs::read_to_string(page).expect("the page is there");
        for op in table() {
            let row = format!("| `{}` | `{}` |", op.method.to_uppercase(), op.path);
            assert!(page.contains(&row), "{row}");
        }
    }
}
