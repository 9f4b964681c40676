//! One type for every transport to a server: rmcp's large client loop is compiled once per type of transport.

use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::future::Future;
use std::io;
use std::pin::Pin;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A transport to a server, over pipes or over HTTP.
pub struct Connection(Box<dyn Erased>);

impl Connection {
    /// Erases the type of a transport.
    pub fn new(transport: impl Transport<RoleClient> + 'static) -> Connection {
        Connection(Box::new(transport))
    }
}

/// A [`Transport`] with futures of one type.
trait Erased: Send {
    fn send(&mut self, message: TxJsonRpcMessage<RoleClient>) -> Boxed<'static, io::Result<()>>;
    fn receive(&mut self) -> Boxed<'_, Option<RxJsonRpcMessage<RoleClient>>>;
    fn close(&mut self) -> Boxed<'_, io::Result<()>>;
}

impl<T: Transport<RoleClient>> Erased for T {
    fn send(&mut self, message: TxJsonRpcMessage<RoleClient>) -> Boxed<'static, io::Result<()>> {
        let sent = Transport::send(self, message);
        // unbounded: the transport has a limit of its own
        Box::pin(async move { sent.await.map_err(io::Error::other) })
    }

    fn receive(&mut self) -> Boxed<'_, Option<RxJsonRpcMessage<RoleClient>>> {
        Box::pin(Transport::receive(self))
    }

    fn close(&mut self) -> Boxed<'_, io::Result<()>> {
        // unbounded: the transport has a limit of its own
        Box::pin(async move { Transport::close(self).await.map_err(io::Error::other) })
    }
}

impl Transport<RoleClient> for Connection {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.0.send(message)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.0.receive()
    }

    fn close(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        self.0.close()
    }
}
