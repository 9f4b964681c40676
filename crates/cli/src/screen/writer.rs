//! A thread that writes to stdout, so that nobody else ever waits for a terminal.

use super::Lost;
use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Texts that may wait for a slow terminal.
const MAX_WAITING: usize = 1_000;
/// What a terminal that takes nothing may cost at the end of a run.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub struct Writer {
    /// Made with the first text: threads may only begin once the driver has taken the signals.
    line: Option<(SyncSender<String>, JoinHandle<()>)>,
    dropped: u64,
    lost: Lost,
}

impl Writer {
    pub fn new(lost: Lost) -> Writer {
        Writer { line: None, dropped: 0, lost }
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

    fn send(&mut self, text: String) -> Result<(), TrySendError<String>> {
        let (sender, _) = self.line.get_or_insert_with(|| {
            let (sender, receiver) = sync_channel(MAX_WAITING);
            let lost = self.lost.clone();
            (sender, std::thread::spawn(move || write_all(&receiver, &lost)))
        });
        sender.try_send(text)
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

fn write_all(texts: &Receiver<String>, lost: &Lost) {
    let mut out = std::io::stdout().lock();
    for text in texts {
        // The run continues without its output: the record has it all.
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            return lost.note(error);
        }
    }
}
