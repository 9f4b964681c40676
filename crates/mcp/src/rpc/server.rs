//! The server role: answers to single requests, over any transport.

use super::Boxed;
use super::message::{Id, METHOD_NOT_FOUND, Message, Object, Request, RpcError, object};
use super::version::{self, Mode, SERVER_KEY, VERSIONS};
use crate::http::event_log::EventLog;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A server: its instructions and its tools.
pub trait Handler: Send + Sync + 'static {
    /// Returns the instructions for the model.
    fn instructions(&self) -> String;
    /// Returns whether the list of tools may change while a client is connected.
    fn list_changes(&self) -> bool;
    /// Returns the tools. `session` receives a notification if the list changes later.
    fn tools(&self, session: Option<Outbox>) -> Boxed<'_, Vec<Value>>;
    /// Carries out a call and returns its result.
    fn call(&self, call: Call) -> Boxed<'_, Result<Value, RpcError>>;
}

/// A call of a tool.
pub struct Call {
    /// The name of the tool.
    pub name: String,
    /// The arguments; `None` if the client sent none.
    pub arguments: Option<Object>,
    /// Canceled when the client no longer wants the result.
    pub canceled: CancellationToken,
    /// The token for progress notifications, if the client asked for them.
    pub progress: Option<Id>,
    /// Receives the progress notifications.
    pub out: Outbox,
}

/// Where notifications for a client go.
#[derive(Clone)]
pub enum Outbox {
    /// A queue of messages, for a client on pipes. It does not keep the connection open.
    Queue(mpsc::WeakSender<Message>),
    /// An event stream, for a client over HTTP.
    Log(Arc<EventLog>),
}

impl Outbox {
    /// Sends a notification without waiting. Drops it if the client does not read: its queue is full then.
    pub fn notify(&self, method: &str, params: Object) {
        let message = Message::notification(method, params);
        match self {
            Outbox::Queue(queue) => {
                if let Some(queue) = queue.upgrade() {
                    let _ = queue.try_send(message);
                }
            }
            Outbox::Log(log) => log.push(&message),
        }
    }

    /// Notifies the client that the list of tools has changed.
    pub fn notify_list_changed(&self) {
        self.notify("notifications/tools/list_changed", Object::new());
    }
}

/// The context of a request, in addition to its message.
pub struct Context {
    /// How the request is answered.
    pub mode: Mode,
    /// Canceled when the client no longer wants the response.
    pub canceled: CancellationToken,
    /// Receives notifications that belong to the request.
    pub out: Outbox,
    /// Receives notifications that belong to the session.
    pub session: Option<Outbox>,
}

/// The methods that [`answer`] knows.
const METHODS: [&str; 8] = [
    "initialize",
    "ping",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "server/discover",
    "tools/call",
    "tools/list",
];

/// Returns whether the server has this method.
pub fn is_method(method: &str) -> bool {
    METHODS.contains(&method)
}

/// Answers a request that was admitted.
pub async fn answer(handler: &dyn Handler, request: Request, context: Context) -> Result<Value, RpcError> {
    let Request { method, mut params, .. } = request;
    let mode = context.mode;
    match method.as_str() {
        "initialize" => initialize(handler, &params),
        "ping" => Ok(json!({})),
        "server/discover" => Ok(discover(handler)),
        "tools/list" => {
            // unbounded: the handler has its own limits
            let tools = handler.tools(context.session).await;
            Ok(version::shape(json!({"tools": tools}), mode, true))
        }
        "tools/call" => {
            let Some(Value::String(name)) = params.remove("name") else {
                return Err(RpcError::params("`name` is missing"));
            };
            let arguments = match params.remove("arguments") {
                None | Some(Value::Null) => None,
                Some(Value::Object(arguments)) => Some(arguments),
                Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                    return Err(RpcError::params("`arguments` is not an object"));
                }
            };
            let progress = params.get("_meta").and_then(|meta| Id::from_json(meta.get("progressToken")?));
            let Context { canceled, out, .. } = context;
            // unbounded: the handler has its own limits
            let result = handler.call(Call { name, arguments, canceled, progress, out }).await?;
            Ok(version::shape(result, mode, false))
        }
        // Some clients request all lists, even those that the server does not offer.
        "prompts/list" => Ok(version::shape(json!({"prompts": []}), mode, true)),
        "resources/list" => Ok(version::shape(json!({"resources": []}), mode, true)),
        "resources/templates/list" => Ok(version::shape(json!({"resourceTemplates": []}), mode, true)),
        _ => Err(RpcError::new(METHOD_NOT_FOUND, method)),
    }
}

fn initialize(handler: &dyn Handler, params: &Object) -> Result<Value, RpcError> {
    let Some(requested) = params.get("protocolVersion").and_then(Value::as_str) else {
        return Err(RpcError::params("`protocolVersion` is missing"));
    };
    let mut result = object(json!({"protocolVersion": version::negotiate(requested)}));
    result.extend(offer(handler));
    result.insert("serverInfo".to_owned(), implementation());
    Ok(result.into())
}

fn discover(handler: &dyn Handler) -> Value {
    let mut result = object(json!({"resultType": "complete", "supportedVersions": VERSIONS}));
    result.extend(offer(handler));
    result.extend(object(json!({
        "ttlMs": 0, "cacheScope": "private", "_meta": {SERVER_KEY: implementation()},
    })));
    result.into()
}

fn offer(handler: &dyn Handler) -> Object {
    let tools = if handler.list_changes() { json!({"listChanged": true}) } else { json!({}) };
    object(json!({"capabilities": {"tools": tools}, "instructions": handler.instructions()}))
}

/// Returns the name and the version of this program.
pub fn implementation() -> Value {
    json!({"name": "dogwatch", "version": env!("CARGO_PKG_VERSION")})
}
