//! What nats-server prints: kept while it starts, and filtered while it runs.

use crate::error::print_line;
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, PipeReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How many of the last lines are kept.
const MAX_LINES: usize = 200;
/// The longest line that is kept, in bytes.
const MAX_LINE: u64 = 4096;
/// How long the rest of the output of a server that has ended may take.
const REST: Duration = Duration::from_secs(2);

/// The output of a server.
pub struct ServerLog {
    lines: Arc<Mutex<VecDeque<String>>>,
    /// Whether warnings and errors are shown as they come.
    shows: Arc<AtomicBool>,
    ended: Receiver<()>,
}

impl ServerLog {
    /// Reads the output in a thread of its own, until the server has ended.
    pub fn read(from: PipeReader) -> io::Result<ServerLog> {
        let (lines, shows) = (Arc::new(Mutex::new(VecDeque::new())), Arc::new(AtomicBool::new(false)));
        let (send, ended) = channel();
        let (kept, shown) = (Arc::clone(&lines), Arc::clone(&shows));
        let follow = move || {
            let mut from = BufReader::new(from);
            loop {
                let mut line = Vec::new();
                match from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if shown.load(Ordering::Relaxed) && is_trouble(&line) {
                    print_line(&format!("nats-server: {}", said(&line)));
                }
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_back(line);
                if kept.len() > MAX_LINES {
                    kept.pop_front();
                }
            }
            // The command may have ended.
            let _ = send.send(());
        };
        std::thread::Builder::new().name("server log".into()).spawn(follow)?;
        Ok(ServerLog { lines, shows, ended })
    }

    /// Shows warnings and errors from now on.
    pub fn show_trouble(&self) {
        self.shows.store(true, Ordering::Relaxed);
    }

    /// Returns why a server that has ended did so, in its own words.
    pub fn why_ended(&self) -> Option<String> {
        match self.ended.recv_timeout(REST) {
            Ok(()) | Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {}
        }
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        why(lines.iter().map(String::as_str))
    }
}

/// Returns whether a line is a warning or an error.
fn is_trouble(line: &str) -> bool {
    ["[WRN]", "[ERR]", "[FTL]"].iter().any(|level| line.contains(level))
}

/// Returns a line without the process id, the time and the level.
fn said(line: &str) -> &str {
    line.split_once("] ").and_then(|(_, rest)| rest.split_once("] ")).map_or(line, |(_, said)| said)
}

/// Returns the last fatal line, or else the last error, or else the last line.
fn why<'a>(lines: impl DoubleEndedIterator<Item = &'a str> + Clone) -> Option<String> {
    let last = |level: &str| lines.clone().rfind(|line| line.contains(level));
    let found = last("[FTL]").or_else(|| last("[ERR]")).or_else(|| lines.clone().next_back());
    found.map(|line| said(line).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = "[7] 2026/11/18 07:10:29.159397 [INF] Starting nats-server";
    const IN_USE: &str = r#"[7] 2026/11/18 07:10:29.159971 [FTL] Error listening on port: 127.0.0.1:4222, "listen tcp 127.0.0.1:4222: bind: address already in use""#;

    #[test]
    fn a_server_that_ended_says_why_in_its_last_fatal_line() {
        let fatal = why([START, IN_USE, START].into_iter()).expect("a reason");
        assert!(fatal.starts_with("Error listening on port: 127.0.0.1:4222, "), "{fatal}");
        assert_eq!(why([START].into_iter()).as_deref(), Some("Starting nats-server"));
        assert_eq!(
            why(["unknown flag".to_owned()].iter().map(String::as_str)).as_deref(),
            Some("unknown flag")
        );
        assert_eq!(why(std::iter::empty::<&str>()), None);
    }

    #[test]
    fn only_warnings_and_errors_of_a_running_server_are_shown() {
        assert!(is_trouble(IN_USE) && is_trouble("[7] 2026/11/18 07:10:29.1 [WRN] slow"));
        assert!(!is_trouble(START));
    }
}
