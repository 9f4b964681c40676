//! `--json`: prints the events exactly as the journal holds them, and nothing else.
//!
//! A thread copies whole lines from the journal, so a slow reader needs no memory, does not delay supervision and
//! misses no events.

use super::Lost;
use dogwatch_core::record::event::Recorded;
use dogwatch_core::record::view::View;
use dogwatch_core::time::moment::Moment;
use dogwatch_host::driver::Reporter;
use dogwatch_host::store::journal::{self, Tail};
use std::io::{self, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long the end of a run waits for a reader that accepts no output. A slow reader gets this time for each event.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The reporter for `--json`.
pub struct Json {
    path: PathBuf,
    /// The size of the journal at the start. The events of a resumed run before that were printed earlier.
    from: u64,
    shared: Arc<Shared>,
    lost: Lost,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The sequence number of the last event in the journal.
    written: u64,
    /// The sequence number of the last event printed.
    printed: u64,
    /// The last event before the first that is shown; `None` until there is one.
    before: Option<u64>,
    over: bool,
}

impl Json {
    /// Returns a reporter that prints the events which are appended from now on.
    pub fn new(run_dir: &Path, lost: Lost) -> Json {
        let path = run_dir.join(journal::FILE);
        let from = path.metadata().map_or(0, |meta| meta.len());
        Json { path, from, shared: Arc::default(), lost }
    }
}

impl Reporter for Json {
    fn begin(&mut self) -> io::Result<()> {
        let (path, from, shared) = (self.path.clone(), self.from, Arc::clone(&self.shared));
        let lost = self.lost.clone();
        let copy = move || {
            if let Some(before) = shared.wait_for_first_event() {
                shared.copy(&path, from, before, &lost);
            }
        };
        std::thread::Builder::new().name("json".into()).spawn(copy).map(drop)
    }

    fn show(&mut self, event: &Recorded, _: &View) {
        self.shared.change(|s| {
            s.before.get_or_insert(event.seq.saturating_sub(1));
            s.written = event.seq;
        });
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
        drain(state, |state, printed| {
            let pending = |s: &mut State| s.printed == printed && s.printed < s.written;
            let waited = self.shared.changed.wait_timeout_while(state, DRAIN_TIMEOUT, pending);
            waited.unwrap_or_else(PoisonError::into_inner).0
        });
    }
}

/// Waits until all events are printed, or none is printed during one wait. `wait` gets the number of the last event
/// printed and returns when it changes or when the time is up.
fn drain<S: Deref<Target = State>>(mut state: S, mut wait: impl FnMut(S, u64) -> S) {
    loop {
        let printed = state.printed;
        state = wait(state, printed);
        if state.printed == printed || state.printed >= state.written {
            return;
        }
    }
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Returns the number of events before the first one shown, or `None` if the run ends without one.
    fn wait_for_first_event(&self) -> Option<u64> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(state, |s| s.before.is_none() && !s.over);
        waited.unwrap_or_else(PoisonError::into_inner).before
    }

    /// Copies the journal from byte `from` on. The bytes before that hold the first `printed` events.
    fn copy(&self, path: &Path, from: u64, mut printed: u64, lost: &Lost) {
        let Ok(file) = dogwatch_host::store::safe_file::read(path) else {
            return self.change(|s| s.printed = u64::MAX);
        };
        let mut journal = Tail::from(file, from);
        while self.wait_for_more(printed) {
            let Ok(Some(line)) = journal.next_line() else {
                // The line is incomplete, for example because the disk is full. Wait for the rest of it.
                self.wait_for_change();
                continue;
            };
            printed += 1;
            let mut out = std::io::stdout().lock();
            // Observations are omitted: they are frequent, and only a replay needs them.
            let wanted = journal::head(line).is_none_or(|head| head.event != "observed");
            let mut print =
                || out.write_all(line).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
            if wanted && let Err(error) = print() {
                lost.note(error);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of waits at the end of a run whose reader takes `taken` of ten events, one in each wait.
    fn waits(taken: u64) -> u64 {
        let mut waits = 0;
        drain(Box::new(State { written: 10, ..State::default() }), |mut state, printed| {
            assert_eq!(state.printed, printed);
            waits += 1;
            state.printed = waits.min(taken);
            state
        });
        waits
    }

    #[test]
    fn the_end_of_a_run_waits_for_a_slow_reader_and_not_for_one_that_takes_nothing() {
        assert_eq!([0, 3, 10].map(waits), [1, 4, 10]);
    }
}
