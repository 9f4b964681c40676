//! JSON-RPC messages. Parameters and results stay JSON values, so that everything the proxy does not know passes
//! through unchanged.

use dogwatch_core::text::clip;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The longest method name that is accepted, in bytes.
pub const MAX_METHOD: usize = 256;
/// How much of another side's error message is kept, in bytes.
const MAX_ERROR_TEXT: usize = 64 * 1024;

/// A JSON object.
pub type Object = Map<String, Value>;

/// The id of a request, or a progress token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Id {
    /// A number.
    Number(i64),
    /// A string.
    Text(String),
}

impl Id {
    /// Reads an id from JSON.
    pub fn from_json(value: &Value) -> Option<Id> {
        Id::deserialize(value).ok()
    }

    /// Returns the id as JSON.
    pub fn to_json(&self) -> Value {
        json!(self)
    }
}

/// A request, which expects a response.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The id that the response repeats.
    pub id: Id,
    /// The method.
    pub method: String,
    /// The parameters.
    pub params: Object,
}

/// A message without a response.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    /// The method.
    pub method: String,
    /// The parameters.
    pub params: Object,
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The id of the request; `None` if the peer could not read it.
    pub id: Option<Id>,
    /// The result or the error.
    pub result: Result<Value, RpcError>,
}

/// An error of the protocol.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RpcError {
    /// The code.
    pub code: i64,
    /// The message for the model or the user.
    pub message: String,
    /// More about the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<Value>>,
}

/// The method does not exist.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters are invalid.
pub const INVALID_PARAMS: i64 = -32602;
/// The message is not a valid request.
pub const INVALID_REQUEST: i64 = -32600;
/// HTTP headers contradict the body.
pub const HEADER_MISMATCH: i64 = -32020;
/// The server does not speak the requested protocol version.
pub const UNSUPPORTED_VERSION: i64 = -32022;

impl RpcError {
    /// Creates an error without data.
    pub fn new(code: i64, message: impl Into<String>) -> RpcError {
        RpcError { code, message: message.into(), data: None }
    }

    /// Creates an error about invalid parameters.
    pub fn params(message: impl Into<String>) -> RpcError {
        RpcError::new(INVALID_PARAMS, message)
    }

    fn from_json(value: &Value) -> Option<RpcError> {
        let message = value.get("message").and_then(Value::as_str).unwrap_or_default();
        Some(RpcError {
            code: value.get("code")?.as_i64()?,
            message: clip(message, MAX_ERROR_TEXT).to_owned(),
            data: value.get("data").cloned().map(Box::new),
        })
    }
}

/// A message in either direction.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A request.
    Request(Request),
    /// A notification.
    Notification(Notification),
    /// A response.
    Response(Response),
}

impl Message {
    /// Creates a notification.
    pub fn notification(method: &str, params: Object) -> Message {
        Message::Notification(Notification { method: method.to_owned(), params })
    }

    /// Creates a response.
    pub fn response(id: Id, result: Result<Value, RpcError>) -> Message {
        Message::Response(Response { id: Some(id), result })
    }

    /// Parses a message, or returns what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Message, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let Value::Object(mut fields) = value else { return Err("a message is a JSON object".to_owned()) };
        if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err("`jsonrpc` is not \"2.0\"".to_owned());
        }
        let id = fields.get("id").filter(|id| !id.is_null());
        let id = match id {
            None => None,
            Some(id) => Some(Id::from_json(id).ok_or("`id` is neither an integer nor a string")?),
        };
        let Some(method) = fields.remove("method") else { return Message::parse_response(id, fields) };
        let method = method.as_str().filter(|method| method.len() <= MAX_METHOD);
        let method = method.ok_or("`method` is not a short string")?.to_owned();
        let params = match fields.remove("params") {
            None | Some(Value::Null) => Object::new(),
            Some(Value::Object(params)) => params,
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                return Err("`params` is not an object".to_owned());
            }
        };
        Ok(match id {
            Some(id) => Message::Request(Request { id, method, params }),
            None => Message::Notification(Notification { method, params }),
        })
    }

    fn parse_response(id: Option<Id>, mut fields: Object) -> Result<Message, String> {
        let result = match (fields.remove("result"), fields.remove("error")) {
            (Some(result), None) if id.is_some() => Ok(result),
            (None, Some(error)) => Err(RpcError::from_json(&error).ok_or("`error` has no code")?),
            _ => return Err("neither a request nor a response".to_owned()),
        };
        Ok(Message::Response(Response { id, result }))
    }

    /// Serializes the message without a newline.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Fields<'m> {
            jsonrpc: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            id: Option<Value>,
            #[serde(skip_serializing_if = "Option::is_none")]
            method: Option<&'m str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            params: Option<&'m Object>,
            #[serde(skip_serializing_if = "Option::is_none")]
            result: Option<&'m Value>,
            #[serde(skip_serializing_if = "Option::is_none")]
            error: Option<&'m RpcError>,
        }
        let empty =
            Fields { jsonrpc: "2.0", id: None, method: None, params: None, result: None, error: None };
        let shown = |params: &Object| !params.is_empty();
        let fields = match self {
            Message::Request(Request { id, method, params }) => Fields {
                id: Some(id.to_json()),
                method: Some(method),
                params: Some(params).filter(|params| shown(params)),
                ..empty
            },
            Message::Notification(Notification { method, params }) => {
                Fields { method: Some(method), params: Some(params).filter(|params| shown(params)), ..empty }
            }
            Message::Response(Response { id, result }) => Fields {
                id: Some(id.as_ref().map_or(Value::Null, Id::to_json)),
                result: result.as_ref().ok(),
                error: result.as_ref().err(),
                ..empty
            },
        };
        // Values and strings always have a JSON form.
        serde_json::to_string(&fields).unwrap_or_default()
    }
}

/// Turns a JSON object literal into an object. Other values become an empty object.
pub fn object(value: Value) -> Object {
    if let Value::Object(object) = value { object } else { Object::new() }
}

/// A tool result with one text.
pub fn tool_result(text: &str, is_error: bool) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": is_error})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_message_is_the_same_after_it_is_written_and_parsed() {
        let params = object(json!({"name": "x", "_meta": {"progressToken": 5}}));
        for message in [
            Message::Request(Request { id: Id::Number(7), method: "tools/call".into(), params }),
            Message::Request(Request {
                id: Id::Text("a".into()),
                method: "ping".into(),
                params: Object::new(),
            }),
            Message::notification("notifications/initialized", Object::new()),
            Message::response(Id::Number(-1), Ok(json!({"tools": []}))),
            Message::response(Id::Text("q".into()), Err(RpcError::params("no"))),
            Message::Response(Response {
                id: None,
                result: Err(RpcError { code: -32700, message: "?".into(), data: Some(Box::new(json!([1]))) }),
            }),
        ] {
            assert_eq!(Message::parse(message.to_json().as_bytes()), Ok(message));
        }
    }

    #[test]
    fn messages_that_are_not_json_rpc_are_refused_with_a_reason() {
        let long = format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, "m".repeat(MAX_METHOD + 1));
        for (text, wrong) in [
            ("nonsense", "expected"),
            ("[]", "a message is a JSON object"),
            ("{}", "`jsonrpc`"),
            (r#"{"jsonrpc":"1.0","method":"x"}"#, "`jsonrpc`"),
            (r#"{"jsonrpc":"2.0"}"#, "neither a request nor a response"),
            (r#"{"jsonrpc":"2.0","id":1}"#, "neither a request nor a response"),
            (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1}}"#, "neither a request nor a response"),
            (r#"{"jsonrpc":"2.0","result":1}"#, "neither a request nor a response"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#, "`id`"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#, "`id`"),
            (r#"{"jsonrpc":"2.0","method":5}"#, "`method`"),
            (long.as_str(), "`method`"),
            (r#"{"jsonrpc":"2.0","method":"x","params":[]}"#, "`params`"),
            (r#"{"jsonrpc":"2.0","id":1,"error":{}}"#, "no code"),
        ] {
            let why = Message::parse(text.as_bytes()).expect_err(text);
            assert!(why.contains(wrong), "{text}: {why}");
        }
    }
}
