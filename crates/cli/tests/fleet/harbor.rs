//! A server, a repository with loops, and workers that each have a home of their own.

mod marks;
mod repository;
mod servers;
mod waiting;
mod workers;

pub use repository::git;

use crate::events::{Growing, Records};
use dogwatch_core::lease::JobRecord;
use dogwatch_core::time::moment::Wall;
use dogwatch_fleet::names::{self, JobId};
use dogwatch_fleet::record::{JOB_VERSION, Job};
use dogwatch_fleet::setup::{self, Setup};
use dogwatch_fleet::{Client, JoinLine, Name, submit};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A generous limit for every wait, even on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(90);
/// The lease of the tests, in seconds.
pub const LEASE: u64 = 4;
/// The account of the tests.
pub const ACCOUNT: &str = "acme";

/// Returns whether slow tests run (`scripts/test --full`).
pub fn full() -> bool {
    std::env::var_os("DOGWATCH_FULL").is_some()
}

/// A fleet of one test.
pub struct Harbor {
    pub dir: TempDir,
    servers: Vec<Server>,
    /// The length of a lease, in seconds.
    lease: u64,
    workers: Vec<Working>,
    runtime: Runtime,
    client: Option<Client>,
    records: Option<Records>,
    marks: Growing,
}

/// A server, and the ports for clients and for other servers.
struct Server {
    port: u16,
    route: u16,
    child: Option<Child>,
    log: Option<Growing>,
}

/// A worker's process.
pub struct Working {
    child: Child,
    name: String,
    log: Growing,
}

pub fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

pub fn id(job: &str) -> JobId {
    JobId { account: name(ACCOUNT), job: name(job) }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

impl Harbor {
    /// Starts a server and creates streams, buckets and an account with a cap on jobs at once.
    pub fn new(cap: i64) -> Harbor {
        Harbor::with(1, LEASE, cap)
    }

    /// Starts one server or three. The lease is in seconds.
    pub fn with(servers: u32, lease: u64, cap: i64) -> Harbor {
        let dir = TempDir::new().expect("a directory");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let marks = Growing::at(&dir.path().join("marks"));
        let server = |_| Server { port: free_port(), route: free_port(), child: None, log: None };
        let all = (0..servers).map(server).collect();
        let (workers, client, records) = (Vec::new(), None, None);
        let mut harbor = Harbor { dir, servers: all, lease, workers, runtime, client, records, marks };
        harbor.start_server();
        let join = harbor.join("operator");
        let client = harbor.runtime.block_on(Client::connect(&join, false, Arc::new(|_| {})));
        harbor.client = Some(client.expect("a connection"));
        let setup = Setup { replicas: servers, ack_wait: Duration::from_secs(lease / 2) };
        harbor.until_ready("the streams exist", || {
            let made = harbor.block_on(|client| async move {
                setup::create(&client, setup).await?;
                setup::account(&client, &name(ACCOUNT), cap, setup).await
            });
            made.is_ok()
        });
        harbor.records = Some(Records::follow(join));
        harbor.make_repository();
        harbor
    }

    /// Returns the join line of a user, with every server.
    pub fn join(&self, user: &str) -> JoinLine {
        let servers = self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port));
        let line = self.line(user, self.port());
        JoinLine { servers: servers.collect(), ..line }
    }

    /// Returns the join line of a user at one port of this machine.
    pub fn line(&self, user: &str, port: u16) -> JoinLine {
        format!("dogwatch+tcp://{user}@127.0.0.1:{port}/{ACCOUNT}").parse().expect("a join line")
    }

    pub fn port(&self) -> u16 {
        self.servers[0].port
    }

    pub fn block_on<T, F: Future<Output = T>>(&self, work: impl FnOnce(Client) -> F) -> T {
        self.runtime.block_on(work(self.client.clone().expect("connected")))
    }

    pub fn job(&self, path: &str) -> Job {
        Job {
            v: JOB_VERSION,
            repo: self.repository().display().to_string(),
            commit: self.head(),
            path: path.to_owned(),
            args: Vec::new(),
            set: Vec::new(),
            iterations: Some(1),
            account: name(ACCOUNT),
            min_version: None,
            needs: Vec::new(),
            timeout: None,
            scheduled: false,
            spread: false,
            node: None,
        }
    }

    pub fn submit(&self, job: &str, path: &str) {
        self.submit_job(&id(job), &self.job(path));
    }

    pub fn submit_job(&self, id: &JobId, job: &Job) {
        self.block_on(|client| async move {
            submit::job(&client, id, job, Wall(0)).await.expect("queued");
        });
    }

    /// Runs a command of the operator, and returns its exit code and what it printed.
    pub fn call(&self, args: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dogwatch"));
        command.args(args).env("DOGWATCH_FLEET", self.join("operator").to_string());
        self.output("operator", &mut command)
    }

    /// Runs a command of the user that runs a worker, in the home of that user, and returns its exit code and what it printed.
    pub fn call_as(&self, worker: &str, args: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dogwatch"));
        command.args(args).current_dir(self.dir.path().join(worker));
        self.output(worker, &mut command)
    }

    fn output(&self, user: &str, command: &mut Command) -> (Option<i32>, String) {
        let out = self.at_home(user, command).output().expect("dogwatch starts");
        let text = [out.stdout, out.stderr].concat();
        (out.status.code(), String::from_utf8(text).expect("text"))
    }

    /// Gives a command the home of a user, and no input.
    fn at_home<'a>(&self, user: &str, command: &'a mut Command) -> &'a mut Command {
        let home = self.dir.path().join(user);
        command
            .env("HOME", &home)
            .env("XDG_STATE_HOME", home.join("state"))
            .env("XDG_CONFIG_HOME", home.join("config"))
            .stdin(Stdio::null())
    }

    /// Runs a command of the operator that must succeed, and returns what it printed.
    #[track_caller]
    pub fn succeed(&self, args: &[&str]) -> String {
        let (code, text) = self.call(args);
        assert_eq!(code, Some(0), "{args:?}: {text}\n{}", self.logs());
        text
    }

    pub fn record(&self, job: &str) -> JobRecord {
        self.record_of(&id(job))
    }

    pub fn record_of(&self, id: &JobId) -> JobRecord {
        self.records().get(id).unwrap_or_default()
    }

    pub fn records(&self) -> &Records {
        self.records.as_ref().expect("the records are followed")
    }

    /// Returns the revision of a job's record.
    pub fn revision(&self, job: &str) -> u64 {
        let key = id(job).to_string();
        let stored = self.block_on(|client| async move { client.get(names::KV_JOBS, &key).await });
        stored.expect("the server answers").expect("a record").sequence
    }

    /// Returns the sequence number of the last piece of a job's journal.
    pub fn last_piece(&self, job: &str) -> u64 {
        let subject = id(job).events_subject();
        let stored = self.block_on(|client| async move { client.last(names::EVENTS, &subject).await });
        stored.expect("the server answers").expect("a piece").sequence
    }

    /// Returns how many messages are in the queue.
    pub fn queued(&self) -> u64 {
        let info = self.block_on(|client| async move {
            client.api(&format!("STREAM.INFO.{}", names::JOBS), &serde_json::json!({})).await
        });
        info.expect("the stream")["state"]["messages"].as_u64().expect("a number")
    }

    /// Returns what the workers said, for messages of failed tests.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for entry in std::fs::read_dir(self.dir.path()).expect("the directory").flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|end| end == "log") {
                text.push_str(&std::fs::read_to_string(&path).unwrap_or_default());
            }
        }
        text
    }
}

impl Drop for Harbor {
    fn drop(&mut self) {
        for working in &mut self.workers {
            // A stopped process dies, too.
            let _ = working.child.kill();
            let _ = working.child.wait();
        }
        for mut server in self.servers.iter_mut().filter_map(|server| server.child.take()) {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
