//! A thread that writes to stdout, so that no other thread waits for a slow terminal.

use super::{Lost, words};
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most texts that may be queued for a slow terminal.
const MAX_WAITING: usize = 1_000;
/// How long the end of a run may wait for a terminal that accepts no output.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// A bounded queue of texts and the thread that writes them to stdout.
pub struct Writer {
    /// Created by `begin`, because threads may start only after the driver has blocked the signals.
    line: Option<(SyncSender<String>, JoinHandle<()>)>,
    dropped: u64,
    lost: Lost,
}

impl Writer {
    /// Returns a writer whose thread is not started yet.
    pub fn new(lost: Lost) -> Writer {
        Writer { line: None, dropped: 0, lost }
    }

    /// Starts the thread that writes.
    pub fn begin(&mut self) -> io::Result<()> {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let lost = self.lost.clone();
        let write = move || write_all(&receiver, &lost);
        let thread = std::thread::Builder::new().name("screen".into()).spawn(write)?;
        self.line = Some((sender, thread));
        Ok(())
    }

    /// Queues a text. Drops and counts it if the queue is full.
    pub fn write(&mut self, text: String) {
        if self.dropped > 0 {
            let lines = words::count(self.dropped, "line");
            let note = format!("[dogwatch: {lines} not shown: the terminal was too slow]\n");
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
    /// Waits for the queued texts to be written, but no longer than `DRAIN_TIMEOUT`.
    fn drop(&mut self) {
        let Some((sender, thread)) = self.line.take() else { return };
        drop(sender);
        let until = Instant::now() + DRAIN_TIMEOUT;
        while !thread.is_finished() && Instant::now() < until {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

fn write_all(texts: &Receiver<String>, lost: &Lost) {
    let mut out = std::io::stdout().lock();
    for text in texts {
        // A closed stdout does not stop the run; the record still gets every event.
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            return lost.note(error);
        }
    }
}
