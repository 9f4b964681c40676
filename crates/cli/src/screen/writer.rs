//! A thread that writes to stdout, so that nobody else ever waits for a terminal.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Texts that may wait for a slow terminal.
const MAX_WAITING: usize = 1_000;
/// What a terminal that takes nothing may cost at the end of a run.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub struct Writer {
    /// Made by `begin`: threads may only start once the driver has taken the signals.
    line: Option<(SyncSender<String>, JoinHandle<()>)>,
    dropped: u64,
}

impl Writer {
    pub fn new() -> Writer {
        Writer { line: None, dropped: 0 }
    }

    pub fn begin(&mut self) -> io::Result<()> {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let thread = std::thread::Builder::new().name("screen".into()).spawn(move || write_all(&receiver))?;
        self.line = Some((sender, thread));
        Ok(())
    }

    pub fn write(&mut self, text: String) {
        if self.dropped > 0 {
            let note =
                format!("[dogwatch: {} lines not shown: the terminal did not take them]\n", self.dropped);
            if self.send(note).is_ok() {
                self.dropped = 0;
            }
        }
        if self.send(text).is_err() {
            self.dropped += 1;
        }
    }

    fn send(&self, text: String) -> Result<(), TrySendError<String>> {
        match &self.line {
            Some((sender, _)) => sender.try_send(text),
            None => Err(TrySendError::Disconnected(text)),
        }
    }
}

impl Drop for Writer {
    /// Lets the last words out, within a bound.
    fn drop(&mut self) {
        let Some((sender, thread)) = self.line.take() else { return };
        drop(sender);
        let until = Instant::now() + LAST_WORDS;
        while !thread.is_finished() && Instant::now() < until {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

fn write_all(texts: &Receiver<String>) {
    let mut out = std::io::stdout().lock();
    for text in texts {
        // A reader that went away is no reason to stop the run; the record goes on.
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}
