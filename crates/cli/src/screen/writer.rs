//! A thread that writes to stdout, so that no other thread waits for a slow terminal.

use super::terminal::paint;
use super::{Lost, ShownLine, words};
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most texts that may be queued for a slow terminal.
const MAX_WAITING: usize = 1_000;
/// The most bytes that may be queued for a slow terminal.
const MAX_QUEUED: usize = 1024 * 1024;
/// How long the end of a run may wait for a terminal that accepts no output.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

const CLEAR_LINE: &str = "\r\x1b[2K";

/// The lines on stdout and, on a terminal, a live line below them. The reporter and the threads that show the agent's
/// output share it.
#[derive(Clone)]
pub struct Screen(Arc<Mutex<State>>);

struct State {
    writer: Writer,
    color: bool,
    /// The live line is on the screen.
    live: bool,
}

impl Screen {
    /// Returns a screen whose thread is not started yet.
    pub fn new(lost: Lost, color: bool) -> Screen {
        Screen(Arc::new(Mutex::new(State { writer: Writer::new(lost), color, live: false })))
    }

    /// Starts the thread that writes.
    pub fn begin(&self) -> io::Result<()> {
        self.with(|state| state.writer.begin())
    }

    /// Writes lines above the live line.
    pub fn lines(&self, lines: &[ShownLine]) {
        if lines.is_empty() {
            return;
        }
        self.with(|state| {
            let mut text = state.clear().to_owned();
            for line in lines {
                text.push_str(&paint(state.color, line.tone, &line.text));
                text.push('\n');
            }
            state.writer.write(text, lines.len());
        });
    }

    /// Draws the live line.
    pub fn draw(&self, line: &ShownLine) {
        self.with(|state| {
            let text = paint(state.color, line.tone, &line.text);
            state.writer.write(format!("{CLEAR_LINE}{text}"), 1);
            state.live = true;
        });
    }

    /// Leaves the live line where it is. Another job has the terminal, so the line of the cursor is no longer ours.
    pub fn forget(&self) {
        self.with(|state| state.live = false);
    }

    /// Removes the live line.
    pub fn clear(&self) {
        self.with(|state| {
            let clear = state.clear();
            if !clear.is_empty() {
                state.writer.write(clear.to_owned(), 0);
            }
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        // Ignore poisoning: the panic was already reported and the data is still valid.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    /// Returns the text that removes the live line.
    fn clear(&mut self) -> &'static str {
        if std::mem::take(&mut self.live) { CLEAR_LINE } else { "" }
    }
}

/// A bounded queue of texts and the thread that writes them to stdout.
struct Writer {
    /// Created by `begin`, because threads may start only after the driver has blocked the signals.
    line: Option<(SyncSender<String>, JoinHandle<()>)>,
    /// The bytes in the queue.
    queued: Arc<AtomicUsize>,
    dropped: usize,
    lost: Lost,
}

impl Writer {
    fn new(lost: Lost) -> Writer {
        Writer { line: None, queued: Arc::default(), dropped: 0, lost }
    }

    fn begin(&mut self) -> io::Result<()> {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let (lost, queued) = (self.lost.clone(), Arc::clone(&self.queued));
        let write = move || write_all(&receiver, &queued, &lost);
        let thread = std::thread::Builder::new().name("screen".into()).spawn(write)?;
        self.line = Some((sender, thread));
        Ok(())
    }

    /// Queues a text that has this number of lines. Drops and counts them if the queue is full.
    fn write(&mut self, text: String, lines: usize) {
        if self.dropped > 0 {
            let lines = words::count(self.dropped as u64, "line");
            let note = format!("[dogwatch: {lines} not shown: the terminal was too slow]\n");
            if self.send(note).is_ok() {
                self.dropped = 0;
            }
        }
        if self.send(text).is_err() {
            self.dropped += lines;
        }
    }

    fn send(&self, text: String) -> Result<(), TrySendError<String>> {
        let Some((sender, _)) = &self.line else { return Err(TrySendError::Disconnected(text)) };
        let bytes = text.len();
        // One text always fits, whatever its length.
        if self.queued.fetch_add(bytes, Ordering::Relaxed) > MAX_QUEUED {
            self.queued.fetch_sub(bytes, Ordering::Relaxed);
            return Err(TrySendError::Full(text));
        }
        sender.try_send(text).inspect_err(|_| {
            self.queued.fetch_sub(bytes, Ordering::Relaxed);
        })
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

fn write_all(texts: &Receiver<String>, queued: &AtomicUsize, lost: &Lost) {
    let mut out = std::io::stdout().lock();
    for text in texts {
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        queued.fetch_sub(text.len(), Ordering::Relaxed);
        // A closed stdout does not stop the run; the record still gets every event.
        if let Err(error) = written {
            return lost.note(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_terminal_gets_a_bounded_queue_and_the_rest_is_counted() {
        for (size, expected) in [(MAX_QUEUED / 4, 5), (1, MAX_WAITING)] {
            let mut writer = Writer::new(Lost::default());
            let (sender, receiver) = sync_channel(MAX_WAITING);
            writer.line = Some((sender, std::thread::spawn(|| {})));
            for _ in 0..2 * MAX_WAITING {
                writer.write("x".repeat(size), 3);
            }
            assert_eq!(writer.dropped, 3 * (2 * MAX_WAITING - expected), "texts of {size} bytes");
            assert_eq!(receiver.try_iter().count(), expected);
        }
    }
}
