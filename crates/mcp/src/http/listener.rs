//! Accepts a bounded number of connections and serves each one until it closes or the session is over.

use super::Limits;
use super::handler::Handler;
use super::timed_stream::TimedStream;
use crate::bound::{until, within};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// The largest request head, in bytes.
const MAX_HEAD: usize = 32 * 1024;
const MAX_HEADERS: usize = 64;
/// The pause after a failed `accept`: without it, running out of file descriptors would cause a busy loop.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How long clients may take to read their responses when the session is over.
const SHUTDOWN_LIMIT: Duration = Duration::from_millis(500);

/// The response to a connection beyond the limit.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
content-type: application/json\r\ncontent-length: 74\r\n\r\n\
{\"error\":{\"code\":\"busy\",\"message\":\"too many connections; try again soon\"}}";

/// Accepts connections until `closing` is canceled, then waits briefly for the open ones.
pub async fn accept_connections(
    listener: TcpListener,
    handler: Arc<Handler>,
    limits: Limits,
    closing: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    loop {
        // unbounded: clients connect at any time until the session ends
        let Some(caller) = until(closing.cancelled(), listener.accept()).await else { break };
        match (caller, Arc::clone(&slots).try_acquire_owned()) {
            (Ok((stream, _)), Ok(slot)) => {
                tokio::spawn(serve_connection(stream, Arc::clone(&handler), limits, closing.clone(), slot));
            }
            (Ok((stream, _)), Err(_)) => reject(stream),
            // unbounded: a tenth of a second
            (Err(_), _) => tokio::time::sleep(ACCEPT_RETRY).await,
        }
    }
    drop(listener);
    // All slots are free once every client has disconnected.
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let _ = within(2 * SHUTDOWN_LIMIT, slots.acquire_many(all)).await;
}

/// Answers with 503. The response fits into the buffer of a new socket, so the write does not block.
fn reject(caller: TcpStream) {
    if let Ok(mut stream) = caller.into_std() {
        // unbounded: the socket is non-blocking
        let _ = stream.write_all(BUSY);
    }
}

async fn serve_connection(
    stream: TcpStream,
    handler: Arc<Handler>,
    limits: Limits,
    closing: CancellationToken,
    _slot: OwnedSemaphorePermit,
) {
    // Send small responses without delay.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let handler = Arc::clone(&handler);
        // unbounded: `handle` has its own limits
        async move { Ok::<_, Infallible>(handler.handle(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(TimedStream::new(stream, limits.write)), service);
    let mut connection = std::pin::pin!(connection);
    // unbounded: heads, bodies and writes have limits; an event stream stays open until the session ends
    if until(closing.cancelled(), connection.as_mut()).await.is_some() {
        return;
    }
    connection.as_mut().graceful_shutdown();
    // Ignore errors: a broken connection only concerns its client.
    let _ = within(SHUTDOWN_LIMIT, connection).await;
}

#[cfg(test)]
mod tests {
    use super::BUSY;

    #[test]
    fn busy_response_has_the_right_content_length() {
        let text = std::str::from_utf8(BUSY).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("head and body");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
