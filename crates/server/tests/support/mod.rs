//! A run without a driver: the test writes its journal and answers through its run handle.

#![allow(dead_code, reason = "each test file uses only a part")]

pub mod machine;

use dogwatch_core::record::event::{Event, NodeCounts, Outcome, Recorded, RunEnded};
use dogwatch_core::record::view::View;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Moment;
use dogwatch_host::store::journal::Journal;
use dogwatch_server::{
    BusyError, Client, Limits, Request, RunHandle, Served, serve_within, socket_path, watch,
};
use dogwatch_sim::plan;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longer than anything here takes; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct FakeRunHandle {
    pub view: Mutex<Option<View>>,
    pub asked: Mutex<Vec<Request>>,
    pub busy: AtomicBool,
    pub written: watch::Sender<u64>,
}

impl RunHandle for FakeRunHandle {
    fn view(&self) -> Option<View> {
        self.view.lock().expect("not poisoned").clone()
    }

    fn ask(&self, request: Request) -> Result<(), BusyError> {
        if self.busy.load(Ordering::SeqCst) {
            return Err(BusyError);
        }
        self.asked.lock().expect("not poisoned").push(request);
        Ok(())
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.written.subscribe()
    }
}

pub struct Rig {
    pub handle: Arc<FakeRunHandle>,
    pub served: Option<Served>,
    pub journal: Journal,
    pub seq: u64,
    pub socket: PathBuf,
    pub dir: tempfile::TempDir,
}

impl Rig {
    pub fn new() -> Rig {
        Rig::within(Limits::default())
    }

    pub fn within(limits: Limits) -> Rig {
        let dir = tempfile::tempdir().expect("a directory");
        let mut view = View::default();
        let first = Event::RunStarted(Box::new(plan::started(plan::plan(|_| {}))));
        view.apply(&Recorded::new(1, Moment::default(), first.clone()));
        let handle = Arc::new(FakeRunHandle {
            view: Mutex::new(Some(view)),
            asked: Mutex::default(),
            busy: AtomicBool::new(false),
            written: watch::Sender::new(0),
        });
        let journal = Journal::create(dir.path()).expect("a journal");
        let socket = socket_path(dir.path());
        let served =
            serve_within(limits, socket.clone(), dir.path().to_owned(), handle.clone()).expect("serves");
        let mut rig = Rig { handle, served: Some(served), journal, seq: 0, socket, dir };
        rig.write(first);
        rig
    }

    /// Writes an event and announces it, as the driver does.
    pub fn write(&mut self, event: Event) {
        self.seq += 1;
        let recorded = Recorded::new(self.seq, Moment::default(), event);
        self.journal.append(&recorded).expect("takes it");
        self.journal.sync().expect("writes");
        self.handle.written.send_replace(self.seq);
    }

    pub fn write_notices(&mut self, n: u64, size: usize) {
        for _ in 0..n {
            self.write(notice(&"x".repeat(size)));
        }
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.socket).expect("connects")
    }

    pub fn raw(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("sets");
        stream.set_write_timeout(Some(PATIENCE)).expect("sets");
        stream
    }

    /// Sends these bytes and reads the response up to the end of the connection.
    pub fn send(&self, request: &str) -> String {
        let mut stream = self.raw();
        stream.write_all(request.as_bytes()).expect("writes");
        let mut answer = Vec::new();
        // A server that refuses without reading may reset the connection after its response.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub fn asked(&self) -> Vec<Request> {
        self.handle.asked.lock().expect("not poisoned").clone()
    }
}

pub fn notice(message: &str) -> Event {
    Event::Notice { kind: "test".into(), message: message.into() }
}

pub fn observed() -> Event {
    // Built from JSON, because an observation gains fields that do not matter here.
    serde_json::from_value(serde_json::json!({
        "event": "observed", "node": "loop", "iteration": 1, "channel": "stdout",
        "first_ms": 0, "last_ms": 0, "count": 1, "messages": 1, "max_gap_ms": 0,
    }))
    .expect("is an event")
}

pub fn run_ended() -> Event {
    Event::RunEnded(RunEnded {
        outcome: Outcome::Stopped,
        reason: "stopped".into(),
        verified: false,
        iterations: 0,
        completed: 0,
        failed: 0,
        idle: 0,
        nodes: NodeCounts::default(),
        flake_retries: 0,
        total_duration_s: Dur::ZERO,
        exit_code: 0,
    })
}

/// Reads the head of a response and leaves the rest.
pub fn head(stream: &UnixStream) -> String {
    let mut head = String::new();
    let mut lines = BufReader::with_capacity(1, stream);
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(lines.read_line(&mut head).expect("reads"), 0, "{head}");
    }
    head
}
