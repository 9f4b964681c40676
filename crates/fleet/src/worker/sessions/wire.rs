//! The lines between a session and its worker: the request as one line of JSON, then lines to print, and last the exit code.
//!
//! The lines to print are those of a structured agent, so the run counts messages, cost and tokens of the node as its own.

use super::following::Followed;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io;
use std::time::Duration;
use tokio::net::UnixStream;

/// The longest request, in bytes.
pub const MAX_REQUEST: usize = 8 << 20;
/// How long a session may take to send its request.
const SENDING: Duration = Duration::from_secs(30);
/// How long a session may take to read a line.
const READING: Duration = Duration::from_secs(60);
/// The last line begins with this word.
pub const EXIT: &str = "exit ";

/// The request of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The node.
    pub node: String,
    /// The iteration.
    pub iteration: u64,
    /// The prompt.
    pub prompt: String,
}

/// The worker's end of a connection.
pub(super) struct Talk<S> {
    stream: S,
}

impl Talk<UnixStream> {
    pub fn new(stream: UnixStream) -> Talk<UnixStream> {
        Talk { stream }
    }

    /// Reads the request.
    pub async fn request(&mut self) -> io::Result<Request> {
        let read = async {
            let mut line = Vec::new();
            let mut part = vec![0; 64 * 1024];
            while !line.ends_with(b"\n") {
                self.stream.readable().await?;
                match self.stream.try_read(&mut part) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(length) => line.extend_from_slice(&part[..length]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
                if line.len() > MAX_REQUEST {
                    return Err(io::Error::other(format!("the prompt is longer than {MAX_REQUEST} bytes")));
                }
            }
            serde_json::from_slice(&line).map_err(io::Error::other)
        };
        tokio::time::timeout(SENDING, read).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// Waits until the session closes the connection.
    pub async fn closed(&self) {
        let mut rest = [0; 64];
        loop {
            if self.stream.readable().await.is_err() {
                return;
            }
            match self.stream.try_read(&mut rest) {
                Ok(0) => return,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                // A session says nothing more.
                Ok(_) | Err(_) => {}
            }
        }
    }

    async fn line(&self, text: &str) {
        let bytes = format!("{text}\n").into_bytes();
        let write = async {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() && self.stream.writable().await.is_ok() {
                match self.stream.try_write(rest) {
                    Ok(length) => rest = &rest[length..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // The session has ended.
                    Err(_) => return,
                }
            }
        };
        let _ = tokio::time::timeout(READING, write).await;
    }

    /// Prints a message of the node.
    pub async fn say(&self, text: &str) {
        self.line(&message(text)).await;
    }

    /// Prints the result of the node, and ends the session.
    pub async fn finish(&self, followed: &Followed) {
        self.line(&result(followed)).await;
        self.line(&format!("{EXIT}{}", i32::from(!followed.is_ok()))).await;
    }

    /// Prints why the node could not be run, and ends the session.
    pub async fn fail(&self, why: &str) {
        self.line(&result(&Followed::failed(why))).await;
        self.line(&format!("{EXIT}1")).await;
    }
}

fn message(text: &str) -> String {
    json!({"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}}).to_string()
}

fn result(followed: &Followed) -> String {
    let mut line = json!({"type": "result", "is_error": !followed.is_ok(), "result": followed.said});
    if let Some(cost) = followed.cost_usd {
        line["total_cost_usd"] = cost.into();
    }
    if let Some(tokens) = followed.tokens {
        line["usage"] = json!({"output_tokens": tokens});
    }
    line.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_one_line_with_cost_and_tokens_only_if_they_are_known() {
        let failed = result(&Followed::failed("a\nb"));
        let line: serde_json::Value = serde_json::from_str(&failed).expect("JSON");
        assert_eq!(line, json!({"type": "result", "is_error": true, "result": "a\nb"}));
        assert!(!failed.contains('\n'), "{failed}");
        let known = Followed {
            outcome: "clean".into(),
            exit_code: Some(0),
            cost_usd: Some(0.5),
            tokens: Some(7),
            ..Followed::default()
        };
        let line: serde_json::Value = serde_json::from_str(&result(&known)).expect("JSON");
        assert_eq!((&line["is_error"], &line["total_cost_usd"]), (&json!(false), &json!(0.5)));
        assert_eq!(line["usage"]["output_tokens"], 7);
    }
}
