//! `--json`: the events as they stand in the journal, on stdout, and nothing else.
//!
//! A thread copies whole lines from the journal itself, so a slow reader costs neither memory nor
//! supervision, and misses nothing.

use dogwatch_core::event::Recorded;
use dogwatch_core::moment::Moment;
use dogwatch_core::view::View;
use dogwatch_host::driver::Front;
use dogwatch_host::journal;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a reader that takes nothing may cost at the end of a run.
const LAST_WORDS: Duration = Duration::from_secs(5);

pub struct Json {
    path: PathBuf,
    /// Where the journal ended when we began: what a run that is resumed did before was printed then.
    from: u64,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The last event that stands in the journal, and the last that was printed.
    written: u64,
    printed: u64,
    over: bool,
}

impl Json {
    pub fn new(run_dir: &Path) -> Json {
        let path = run_dir.join(journal::FILE);
        let from = path.metadata().map_or(0, |meta| meta.len());
        Json { path, from, shared: Arc::default(), thread: None }
    }
}

impl Front for Json {
    fn show(&mut self, event: &Recorded, _: &View) {
        self.shared.change(|s| s.written = event.seq);
        if self.thread.is_none() {
            let (path, from, shared) = (self.path.clone(), self.from, Arc::clone(&self.shared));
            let before = event.seq.saturating_sub(1);
            self.thread = Some(std::thread::spawn(move || shared.copy(&path, from, before)));
        }
    }

    fn tick(&mut self, _: Moment, _: &View) {}

    fn ticks(&self) -> bool {
        false
    }
}

impl Drop for Json {
    fn drop(&mut self) {
        self.shared.change(|s| s.over = true);
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.shared.changed.wait_timeout_while(state, LAST_WORDS, |s| s.printed < s.written);
    }
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Copies what stands after the first `from` bytes, which are the first `printed` events.
    fn copy(&self, path: &Path, from: u64, mut printed: u64) {
        let Ok(mut file) = dogwatch_host::safe_file::read(path) else {
            return self.change(|s| s.printed = u64::MAX);
        };
        if file.seek(SeekFrom::Start(from)).is_err() {
            return self.change(|s| s.printed = u64::MAX);
        }
        let mut journal = BufReader::new(file);
        let mut line = Vec::new();
        while self.wait_for_more(printed) {
            line.clear();
            let at = journal.stream_position().unwrap_or(0);
            if journal.read_until(b'\n', &mut line).is_err() || !line.ends_with(b"\n") {
                // Not written whole yet (a full disk): wait until more is there.
                let _ = journal.seek(SeekFrom::Start(at));
                self.wait_for_change();
                continue;
            }
            printed += 1;
            let seen = is_observation(&line) || std::io::stdout().write_all(&line).is_ok();
            if !seen {
                return self.change(|s| s.printed = u64::MAX);
            }
            self.change(|s| s.printed = printed);
        }
    }

    fn wait_for_more(&self, printed: u64) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self
            .changed
            .wait_while(state, |s| s.written <= printed && !s.over)
            .unwrap_or_else(PoisonError::into_inner);
        state.written > printed
    }

    fn wait_for_change(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_timeout(state, Duration::from_secs(1)));
    }
}

/// Observations are left out: they are many, and only a replay needs them.
fn is_observation(line: &[u8]) -> bool {
    line.windows(OBSERVED.len()).any(|w| w == OBSERVED)
}

/// Quotes within a JSON text are escaped, so this can only be the key itself.
const OBSERVED: &[u8] = b"\"event\":\"observed\"";
