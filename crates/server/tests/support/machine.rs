//! A test machine: a registry, runs whose records the test writes, and a server for all of them.

use super::{FakeRunHandle, PATIENCE, notice};
use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::record::ids::RunId;
use dogwatch_core::record::view::View;
use dogwatch_core::settings::{Profile, WatchPolicy};
use dogwatch_core::time::moment::{Moment, Wall};
use dogwatch_host::store::journal::Journal;
use dogwatch_host::store::registry::{Alive, Pointer, Registry};
use dogwatch_host::store::token::Token;
use dogwatch_server::{Client, Limits, MachineSetup, Served, serve, serve_machine, socket_path, watch};
use dogwatch_sim::plan;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

pub struct Machine {
    pub served: Option<Served>,
    pub token: Token,
    pub at: SocketAddr,
    pub socket: PathBuf,
    pub registry: PathBuf,
    pub dir: tempfile::TempDir,
}

impl Machine {
    pub fn new() -> Machine {
        Machine::within(MachineSetup::limits())
    }

    pub fn within(limits: Limits) -> Machine {
        let dir = tempfile::tempdir().expect("a directory");
        let registry = dir.path().join("runs");
        let token = Token::at(&dir.path().join("token")).expect("a token");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("has an address");
        let socket = dir.path().join("all");
        let served = serve_machine(MachineSetup {
            registry: Registry::at(registry.clone()),
            tcp: Some((listener, token.clone())),
            socket: Some(socket.clone()),
            limits,
            others: None,
            external: WatchPolicy::of(Profile::Quick),
            continue_run: Arc::new(|pointer| Err(format!("{} stays asleep", pointer.run))),
        })
        .expect("serves");
        Machine { served: Some(served), token, at, socket, registry, dir }
    }

    /// Creates the `n`-th run of the machine; greater numbers are newer.
    pub fn run(&self, n: u8) -> FakeRun {
        let since = Wall(1_794_773_733_000 + i64::from(n) * 1_000);
        let id = RunId::new(since, [n; 4]);
        let project = self.dir.path().join(format!("project-{}", n % 2));
        let run_dir = project.join(".dogwatch/runs").join(id.as_str());
        std::fs::create_dir_all(&run_dir).expect("makes it");
        let path = project.join("loop/RALPH.md");
        let pointer = Pointer {
            run: id.clone(),
            run_dir: run_dir.clone(),
            path,
            pid: 7,
            since,
            head: false,
            origin: None,
        };
        Registry::at(self.registry.clone()).add(&pointer).expect("registers");
        let mut started = plan::started(plan::plan(|_| {}));
        started.run = id.clone();
        started.work_dir = project.to_string_lossy().into_owned();
        let journal = Journal::create(&run_dir).expect("a journal");
        let mut run = FakeRun { id, run_dir, journal, seq: 0, alive: None, served: None, handle: None };
        run.write(Event::RunStarted(Box::new(started)));
        run
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.socket).expect("connects")
    }

    pub fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("sets");
        stream.set_write_timeout(Some(PATIENCE)).expect("sets");
        stream
    }

    /// Returns a request head for TCP with the token, without the final blank line.
    pub fn head(&self, first: &str) -> String {
        let (at, token) = (self.at, self.token.as_str());
        format!("{first} HTTP/1.1\r\nhost: {at}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n")
    }

    /// Sends these bytes and reads the response up to the end of the connection.
    pub fn send(&self, request: &str) -> String {
        let mut stream = self.tcp();
        // The server may have closed the connection already if it refuses the request.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub fn get(&self, path: &str) -> String {
        self.send(&format!("{}\r\n", self.head(&format!("GET {path}"))))
    }
}

pub struct FakeRun {
    pub id: RunId,
    pub run_dir: PathBuf,
    journal: Journal,
    pub seq: u64,
    alive: Option<Alive>,
    served: Option<Served>,
    pub handle: Option<Arc<FakeRunHandle>>,
}

impl FakeRun {
    pub fn write(&mut self, event: Event) {
        self.seq += 1;
        let recorded = Recorded::new(self.seq, Moment::default(), event);
        self.journal.append(&recorded).expect("takes it");
        self.journal.sync().expect("writes");
    }

    pub fn write_notices(&mut self, n: u64, size: usize) {
        for _ in 0..n {
            self.write(notice(&"x".repeat(size)));
        }
    }

    /// Simulates a live supervisor.
    pub fn live(&mut self) -> &FakeRunHandle {
        self.alive = Some(Alive::hold(&self.run_dir).expect("the lock is free"));
        let handle = Arc::new(FakeRunHandle {
            view: Mutex::new(Some(View::default())),
            asked: Mutex::default(),
            busy: false.into(),
            written: watch::Sender::new(0),
        });
        let socket = socket_path(&self.run_dir);
        self.served = Some(serve(socket, self.run_dir.clone(), handle.clone()).expect("serves"));
        self.handle.insert(handle)
    }

    pub fn die(&mut self) {
        self.served = None;
        self.alive = None;
    }

    pub fn path(&self, rest: &str) -> String {
        format!("/v1/runs/{}{rest}", self.id)
    }

    /// Writes an output file of an iteration.
    pub fn output(&self, name: &str, bytes: &[u8]) {
        let dir = self.run_dir.join("loop/000001");
        std::fs::create_dir_all(&dir).expect("makes it");
        std::fs::write(dir.join(name), bytes).expect("writes");
    }
}
