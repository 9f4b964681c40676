//! The client role: requests to another server, over pipes or over HTTP. Every request can be canceled, and all fail
//! when the connection is lost.

use super::message::{
    Id, METHOD_NOT_FOUND, Message, Notification, Object, Request, Response, RpcError, object,
};
use super::server::implementation;
use super::version::NEWEST_WITH_INITIALIZE;
use crate::bound::within;
use crate::limits::{START_LIMIT, WRITE_LIMIT};
use crate::proxy::progress::Progress;
use crate::proxy::remote::Remote;
use crate::wire::Wire;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// The connection is lost, or the server broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// A connection to a server. Dropping it closes the connection.
pub struct Client {
    inbox: Arc<Inbox>,
    link: Link,
}

enum Link {
    Pipes { queue: mpsc::Sender<Message>, reading: AbortHandle },
    Http(Arc<Remote>),
}

/// Receives the messages of a server and gives each to the request that waits for it.
#[derive(Default)]
pub struct Inbox {
    next: AtomicI64,
    /// The open requests; `None` once the connection is lost.
    open: Mutex<Option<BTreeMap<i64, Open>>>,
}

struct Open {
    reply: oneshot::Sender<Result<Value, RpcError>>,
    progress: Option<Arc<Progress>>,
}

impl Inbox {
    fn new() -> Arc<Inbox> {
        Arc::new(Inbox { next: AtomicI64::new(1), open: Mutex::new(Some(BTreeMap::new())) })
    }

    fn with_open<T>(&self, f: impl FnOnce(&mut BTreeMap<i64, Open>) -> T) -> Option<T> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(f)
    }

    /// Takes in a message. Returns the response that the server expects, if it asked something.
    pub fn receive(&self, message: Message) -> Option<Message> {
        match message {
            Message::Response(Response { id: Some(Id::Number(id)), result }) => {
                // A late response has no open request.
                let open = self.with_open(|open| open.remove(&id)).flatten();
                let _ = open.map(|open| open.reply.send(result));
                None
            }
            // The ids of this client are numbers.
            Message::Response(_) => None,
            Message::Notification(Notification { method, params }) => {
                if method == "notifications/progress"
                    && let Some(Id::Number(token)) = params.get("progressToken").and_then(Id::from_json)
                    && let Some(Some(progress)) = self.with_open(|open| open.get(&token)?.progress.clone())
                {
                    progress.forward(params);
                }
                None
            }
            Message::Request(Request { id, method, .. }) => {
                let pong = method == "ping";
                let result = if pong { Ok(json!({})) } else { Err(RpcError::new(METHOD_NOT_FOUND, method)) };
                Some(Message::response(id, result))
            }
        }
    }

    /// Returns whether the request still waits for its response.
    pub fn is_open(&self, id: i64) -> bool {
        self.with_open(|open| open.contains_key(&id)).unwrap_or(false)
    }

    fn forget(&self, id: i64) {
        self.with_open(|open| open.remove(&id));
    }

    /// Fails all open requests, and all later ones.
    fn close(&self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// A request that waits for its response. Dropping it discards the response.
pub struct Waiting {
    id: i64,
    inbox: Arc<Inbox>,
    reply: oneshot::Receiver<Result<Value, RpcError>>,
    /// The task that exchanges the request, over HTTP.
    exchange: Option<AbortHandle>,
}

impl Waiting {
    /// Returns the number of the request.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Waits for the response.
    pub async fn response(&mut self) -> Result<Result<Value, RpcError>, Lost> {
        // unbounded: each caller has a limit
        (&mut self.reply).await.map_err(|_| Lost)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.inbox.forget(self.id);
        if let Some(exchange) = &self.exchange {
            exchange.abort();
        }
    }
}

impl Client {
    /// Creates a client over pipes.
    pub fn over_pipes(mut wire: Wire) -> Client {
        let inbox = Inbox::new();
        let (queue, _) = wire.spawn_writer();
        let (incoming, answers) = (Arc::clone(&inbox), queue.downgrade());
        let reading = tokio::spawn(async move {
            // unbounded: the server decides when to send a message; every request has its own limit
            while let Some(message) = wire.receive().await {
                let answer = incoming.receive(message);
                // Once the client is dropped, nothing is sent.
                if let (Some(answer), Some(queue)) = (answer, answers.upgrade()) {
                    let _ = queue.try_send(answer);
                }
            }
            incoming.close();
        });
        Client { inbox, link: Link::Pipes { queue, reading: reading.abort_handle() } }
    }

    /// Creates a client over HTTP.
    pub fn over_http(remote: Remote) -> Client {
        Client { inbox: Inbox::new(), link: Link::Http(Arc::new(remote)) }
    }

    /// Returns whether the connection is lost.
    pub fn is_closed(&self) -> bool {
        self.inbox.with_open(|_| ()).is_none()
    }

    /// Begins the protocol.
    pub async fn initialize(&self) -> Result<(), Lost> {
        match &self.link {
            Link::Http(remote) => {
                within(START_LIMIT, remote.initialize()).await.map_err(|_| Lost)?.map_err(|_| Lost)
            }
            Link::Pipes { .. } => {
                let sent = self.send(INITIALIZE, initialize_params(), None);
                let mut waiting = within(WRITE_LIMIT, sent).await.map_err(|_| Lost)??;
                let response = within(START_LIMIT, waiting.response()).await.map_err(|_| Lost)??;
                let result = response.map_err(|_| Lost)?;
                result.get("protocolVersion").and_then(Value::as_str).ok_or(Lost)?;
                within(WRITE_LIMIT, self.notify(INITIALIZED, Object::new())).await.map_err(|_| Lost)?
            }
        }
    }

    /// Sends a request. Its progress goes to `progress`.
    pub async fn send(
        &self,
        method: &str,
        mut params: Object,
        progress: Option<Arc<Progress>>,
    ) -> Result<Waiting, Lost> {
        let id = self.inbox.next.fetch_add(1, Ordering::Relaxed);
        if progress.is_some() {
            params.insert("_meta".to_owned(), json!({"progressToken": id}));
        }
        let (sender, reply) = oneshot::channel();
        self.inbox.with_open(|open| open.insert(id, Open { reply: sender, progress })).ok_or(Lost)?;
        let mut waiting = Waiting { id, inbox: Arc::clone(&self.inbox), reply, exchange: None };
        let request = Message::Request(Request { id: Id::Number(id), method: method.to_owned(), params });
        match &self.link {
            Link::Pipes { queue, .. } => {
                within(WRITE_LIMIT, queue.send(request)).await.map_err(|_| Lost)?.map_err(|_| Lost)?;
            }
            Link::Http(remote) => {
                let (remote, inbox) = (Arc::clone(remote), Arc::clone(&self.inbox));
                let exchange = tokio::spawn(async move {
                    // unbounded: it has its own limits
                    remote.exchange(id, request, &inbox).await;
                    // Without a response the request fails.
                    inbox.forget(id);
                });
                waiting.exchange = Some(exchange.abort_handle());
            }
        }
        Ok(waiting)
    }

    /// Sends a notification.
    pub async fn notify(&self, method: &str, params: Object) -> Result<(), Lost> {
        let message = Message::notification(method, params);
        match &self.link {
            Link::Pipes { queue, .. } => {
                within(WRITE_LIMIT, queue.send(message)).await.map_err(|_| Lost)?.map_err(|_| Lost)
            }
            Link::Http(remote) => {
                within(WRITE_LIMIT, remote.notify(message)).await.map_err(|_| Lost)?.map_err(|_| Lost)
            }
        }
    }

    /// Notifies the server that a request is canceled. The caller drops the request.
    pub async fn cancel(&self, id: i64, reason: &str) {
        let params = object(json!({"requestId": id, "reason": reason}));
        let _ = within(WRITE_LIMIT, self.notify("notifications/cancelled", params)).await;
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.inbox.close();
        match &self.link {
            Link::Pipes { reading, .. } => reading.abort(),
            Link::Http(remote) => {
                let remote = Arc::clone(remote);
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move { within(2 * WRITE_LIMIT, remote.end_session()).await });
                }
            }
        }
    }
}

/// The first request.
pub const INITIALIZE: &str = "initialize";
/// The notification after the first response.
pub const INITIALIZED: &str = "notifications/initialized";

/// Returns the parameters of `initialize`.
pub fn initialize_params() -> Object {
    object(json!({
        "protocolVersion": NEWEST_WITH_INITIALIZE, "capabilities": {}, "clientInfo": implementation(),
    }))
}
