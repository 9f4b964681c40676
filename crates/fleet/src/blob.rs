//! Large objects, in the format of NATS object stores. The subjects have the name of the worker that wrote the object, so that
//! no worker can change the objects of another.

use crate::client::{Client, FleetError, From};
use crate::join::encode;
use crate::names::{self, Name};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The size of a piece, in bytes.
const PIECE: usize = 128 * 1024;
/// The largest object, in bytes.
pub const MAX_BLOB: usize = 256 * 1024 * 1024;

fn padded(text: String) -> String {
    let padding = "=".repeat(text.len().next_multiple_of(4) - text.len());
    text + &padding
}

/// Returns the digest of an object. The format pads its base64.
fn digest(bytes: &[u8]) -> String {
    format!("SHA-256={}", padded(encode(&Sha256::digest(bytes))))
}

fn stream() -> String {
    format!("OBJ_{}", names::BLOBS)
}

/// Stores an object of a worker.
pub async fn put(client: &Client, worker: &Name, name: &str, bytes: &[u8]) -> Result<(), FleetError> {
    if bytes.len() > MAX_BLOB {
        return Err(FleetError::BadAnswer(format!("the object is larger than {MAX_BLOB} bytes")));
    }
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| FleetError::BadAnswer(error.to_string()))?;
    let id = encode(&id);
    let subject = names::blob_pieces(worker, &id);
    let mut pieces = 0_u64;
    for piece in bytes.chunks(PIECE) {
        client.publish(&subject, &[], piece.to_vec(), None).await?;
        pieces += 1;
    }
    let info = json!({
        "name": name, "bucket": names::BLOBS, "nuid": format!("{worker}.{id}"), "size": bytes.len(), "chunks": pieces,
        "digest": digest(bytes), "options": { "max_chunk_size": PIECE },
    });
    let subject = names::blob_description(worker, &padded(encode(name.as_bytes())));
    client.publish(&subject, &[("Nats-Rollup", "sub")], info.to_string().into_bytes(), None).await.map(drop)
}

/// Reads an object of a worker.
pub async fn get(client: &Client, worker: &Name, name: &str) -> Result<Option<Vec<u8>>, FleetError> {
    let subject = names::blob_description(worker, &padded(encode(name.as_bytes())));
    let described = client.read(&stream(), &subject, From::Last).await?;
    let Some(described) = described.last() else { return Ok(None) };
    let broken = |why: &str| FleetError::BadAnswer(format!("the object {name} {why}"));
    let info: Value = serde_json::from_slice(&described.payload).map_err(|_| broken("has no description"))?;
    let id = info["nuid"].as_str().and_then(|id| id.strip_prefix(&format!("{worker}.")));
    let subject = names::blob_pieces(worker, id.ok_or_else(|| broken("has no pieces"))?);
    let mut bytes = Vec::new();
    for piece in client.read(&stream(), &subject, From::First).await? {
        bytes.extend_from_slice(&piece.payload);
        if bytes.len() > MAX_BLOB {
            return Err(broken("is too large"));
        }
    }
    if info["digest"].as_str() == Some(digest(&bytes).as_str()) {
        Ok(Some(bytes))
    } else {
        Err(broken("is damaged"))
    }
}
