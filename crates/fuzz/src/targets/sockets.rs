//! Sockets and pipes: the keeper's socket, the agent channel and MCP.

use dogwatch_core::run::agent_channel::AgentRequest;
use dogwatch_host::process::keeper::wire;
use dogwatch_mcp::limits::MAX_ASKED;
use dogwatch_mcp::wire::{Peer, Wire};
use std::collections::VecDeque;

/// A frame that can be decoded is the same after it is encoded and decoded again.
pub fn keeper_wire(input: &[u8]) {
    if let Ok(report) = wire::decode_report(input) {
        assert_eq!(wire::decode_report(&wire::encode_report(&report)), Ok(report));
    }
    // Orders with descriptors cannot be decoded here, because none are attached.
    if let Ok(order) = wire::decode_order(input, &mut VecDeque::new()) {
        let shown = format!("{order:?}");
        let (body, fds) = wire::encode_order(order);
        let again = wire::decode_order(&body, &mut fds.into()).map(|order| format!("{order:?}"));
        assert_eq!(again, Ok(shown));
    }
}

/// Requests of an agent over HTTP and over MCP are read or refused.
pub fn channel(input: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<AgentRequest>(input) {
        let text = serde_json::to_vec(&request).expect("a request is JSON");
        assert_eq!(serde_json::from_slice::<AgentRequest>(&text).ok(), Some(request));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let whole = || std::io::Cursor::new(input.to_vec());
        let mut agent = Wire::new(whole(), tokio::io::sink(), Peer::Agent, MAX_ASKED);
        while agent.receive().await.is_some() {}
        let mut server = Wire::new(whole(), tokio::io::sink(), Peer::Server, MAX_ASKED);
        while server.receive().await.is_some() {}
    });
}
