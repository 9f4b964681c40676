//! Large objects, in the format of NATS object stores.

use crate::client::{Client, FleetError};
use crate::join::encode;
use crate::names;
use serde_json::json;
use sha2::{Digest, Sha256};

/// The size of a piece, in bytes.
const PIECE: usize = 128 * 1024;
/// The largest object, in bytes.
pub const MAX_BLOB: usize = 256 * 1024 * 1024;

/// Stores an object.
pub async fn put(client: &Client, name: &str, bytes: &[u8]) -> Result<(), FleetError> {
    if bytes.len() > MAX_BLOB {
        return Err(FleetError::BadAnswer(format!("the object is larger than {MAX_BLOB} bytes")));
    }
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| FleetError::BadAnswer(error.to_string()))?;
    let id = encode(&id);
    let subject = format!("$O.{}.C.{id}", names::BLOBS);
    let mut pieces = 0_u64;
    for piece in bytes.chunks(PIECE) {
        client.publish(&subject, &[], piece.to_vec(), None).await?;
        pieces += 1;
    }
    // The format pads its base64.
    let digest = encode(&Sha256::digest(bytes));
    let padding = "=".repeat(digest.len().next_multiple_of(4) - digest.len());
    let info = json!({
        "name": name, "bucket": names::BLOBS, "nuid": id, "size": bytes.len(), "chunks": pieces,
        "digest": format!("SHA-256={digest}{padding}"), "options": { "max_chunk_size": PIECE },
    });
    let key = encode(name.as_bytes());
    let padding = "=".repeat(key.len().next_multiple_of(4) - key.len());
    let subject = format!("$O.{}.M.{key}{padding}", names::BLOBS);
    client.publish(&subject, &[("Nats-Rollup", "sub")], info.to_string().into_bytes(), None).await.map(drop)
}
