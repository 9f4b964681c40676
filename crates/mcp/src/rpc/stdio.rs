//! The server loop over a wire: reads requests, answers each in a separate task, and cancels on request.

use super::calls::Calls;
use super::message::{INVALID_REQUEST, Message, Notification, Request, RpcError};
use super::server::{Context, Handler, Outbox, answer};
use super::version::admit;
use crate::bound::within;
use crate::limits::{DRAIN_LIMIT, INITIALIZE_LIMIT, WRITE_LIMIT};
use crate::wire::Wire;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Serves one client until it disconnects.
pub async fn serve(handler: Arc<dyn Handler>, mut wire: Wire) -> io::Result<()> {
    let (queue, writing) = wire.spawn_writer();
    let mut client = ClientState { handler, queue, calls: Calls::default(), tasks: JoinSet::new() };
    let (mut initialized, mut has_begun, began) = (false, false, Instant::now());
    loop {
        let received = if has_begun {
            // unbounded: the client decides when to send a request
            wire.receive().await
        } else {
            let left = INITIALIZE_LIMIT.saturating_sub(began.elapsed());
            let late = |late| io::Error::other(format!("the client sent no `initialize`: {late}"));
            within(left, wire.receive()).await.map_err(late)?
        };
        match received {
            None => break,
            Some(Message::Request(request)) => {
                let mode = match admit(&request, initialized) {
                    Ok(mode) => mode,
                    Err(error) => {
                        let refusal = Message::response(request.id, Err(error));
                        let _ = within(2 * WRITE_LIMIT, client.respond(refusal)).await;
                        continue;
                    }
                };
                initialized |=
                    request.method == "initialize" && request.params.contains_key("protocolVersion");
                has_begun |= !matches!(request.method.as_str(), "ping" | "server/discover");
                let session = initialized.then(|| Outbox::Queue(client.queue.downgrade()));
                let begun = client.begin(request, |canceled, out| Context { mode, canceled, out, session });
                let _ = within(2 * WRITE_LIMIT, begun).await;
            }
            Some(Message::Notification(Notification { method, params })) => {
                if method == "notifications/cancelled" {
                    client.calls.cancel(&params);
                }
            }
            // Nothing was asked, so there is nothing to answer.
            Some(Message::Response(_)) => {}
        }
        while client.tasks.try_join_next().is_some() {}
    }
    let _ = within(2 * DRAIN_LIMIT, client.finish()).await;
    let _ = within(WRITE_LIMIT, writing).await;
    Ok(())
}

struct ClientState {
    handler: Arc<dyn Handler>,
    queue: mpsc::Sender<Message>,
    calls: Calls,
    tasks: JoinSet<()>,
}

impl ClientState {
    /// Starts to answer a request.
    async fn begin(
        &mut self,
        request: Request,
        context: impl FnOnce(tokio_util::sync::CancellationToken, Outbox) -> Context,
    ) {
        let id = request.id.clone();
        let Some(canceled) = self.calls.register(&id) else {
            let error = RpcError::new(INVALID_REQUEST, "too many open requests, or the id is in use");
            let _ = within(2 * WRITE_LIMIT, self.respond(Message::response(id, Err(error)))).await;
            return;
        };
        let context = context(canceled, Outbox::Queue(self.queue.downgrade()));
        let (handler, calls, queue) = (Arc::clone(&self.handler), self.calls.clone(), self.queue.clone());
        self.tasks.spawn(async move {
            // unbounded: the handler has its own limits
            let result = answer(&*handler, request, context).await;
            if calls.close(&id) {
                let _ = within(WRITE_LIMIT, queue.send(Message::response(id, result))).await;
            }
        });
    }

    async fn respond(&self, message: Message) {
        let _ = within(WRITE_LIMIT, self.queue.send(message)).await;
    }

    /// Waits briefly for open calls of a client that has disconnected, then cancels them.
    async fn finish(mut self) {
        let done = async { while let Ok(Some(_)) = within(DRAIN_LIMIT, self.tasks.join_next()).await {} };
        if within(DRAIN_LIMIT, done).await.is_err() {
            self.calls.cancel_all();
            self.tasks.abort_all();
        }
    }
}
