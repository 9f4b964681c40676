//! A server, a repository with loops, and workers that each have a home of their own.

use crate::kit::nats;
use dogwatch_core::lease::{JobRecord, JobState};
use dogwatch_core::time::moment::Wall;
use dogwatch_fleet::names::{self, JobId};
use dogwatch_fleet::record::{JOB_VERSION, Job};
use dogwatch_fleet::setup::{self, Setup};
use dogwatch_fleet::{Client, JoinLine, Name, submit};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A generous limit for every wait, even on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(90);
/// The lease of the tests, in seconds.
pub const LEASE: u64 = 4;
/// The account of the tests.
pub const ACCOUNT: &str = "acme";

/// A fleet of one test.
pub struct Harbor {
    pub dir: TempDir,
    port: u16,
    server: Option<Child>,
    workers: Vec<Working>,
    runtime: Runtime,
    client: Option<Client>,
}

/// A worker's process.
pub struct Working {
    child: Child,
    name: String,
}

pub fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

pub fn id(job: &str) -> JobId {
    JobId { account: name(ACCOUNT), job: name(job) }
}

/// Waits until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

impl Harbor {
    /// Starts a server and creates streams, buckets and an account with a cap on jobs at once.
    pub fn new(cap: i64) -> Harbor {
        let dir = TempDir::new().expect("a directory");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let mut harbor =
            Harbor { dir, port: free_port(), server: None, workers: Vec::new(), runtime, client: None };
        harbor.start_server();
        let join = harbor.line("operator", harbor.port);
        let client = harbor.runtime.block_on(Client::connect(&join, false, Arc::new(|_| {})));
        harbor.client = Some(client.expect("a connection"));
        let setup = Setup { replicas: 1, ack_wait: Duration::from_secs(LEASE / 2) };
        harbor.block_on(|client| async move {
            setup::create(&client, setup).await.expect("streams");
            setup::account(&client, &name(ACCOUNT), cap, setup).await.expect("a consumer");
        });
        harbor.make_repository();
        harbor
    }

    fn line(&self, user: &str, port: u16) -> JoinLine {
        format!("dogwatch+tcp://{user}@127.0.0.1:{port}/{ACCOUNT}").parse().expect("a join line")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn block_on<T, F: Future<Output = T>>(&self, work: impl FnOnce(Client) -> F) -> T {
        self.runtime.block_on(work(self.client.clone().expect("connected")))
    }

    /// Starts the server, or starts it again with what it stored.
    pub fn start_server(&mut self) {
        let config = self.dir.path().join("nats.conf");
        let store = self.dir.path().join("store");
        let text = format!(
            "listen: \"127.0.0.1:{}\"\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n",
            self.port,
            store.display()
        );
        std::fs::write(&config, text).expect("written");
        let log = std::fs::File::create(self.dir.path().join("nats.log")).expect("a log");
        let child =
            Command::new(nats::program()).arg("-c").arg(&config).stdout(Stdio::null()).stderr(log).spawn();
        self.server = Some(child.expect("nats-server"));
        let port = self.port;
        until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    /// Kills the server.
    pub fn kill_server(&mut self) {
        let mut server = self.server.take().expect("a server");
        server.kill().expect("killed");
        server.wait().expect("ended");
    }

    pub fn marks_file(&self) -> PathBuf {
        self.dir.path().join("marks")
    }

    pub fn repository(&self) -> PathBuf {
        self.dir.path().join("repo.git")
    }

    /// Makes a bare repository. The agent of its loop `work` takes so many tenths of a second as its argument says, and marks
    /// each of them.
    fn make_repository(&self) {
        let tree = self.dir.path().join("tree");
        std::fs::create_dir_all(tree.join("work")).expect("a directory");
        let script = format!(
            "job=$(basename \"$(dirname \"$PWD\")\")\n\
             mark() {{ echo \"$1 $job $$ $(cut -d' ' -f1 /proc/uptime)\" >>'{}'; }}\n\
             mark start\ni=0\n\
             while [ $i -lt $1 ]; do mark tick; sleep 0.1; i=$((i+1)); done\n\
             echo done >>result.txt\nmark end\n",
            self.marks_file().display()
        );
        std::fs::write(tree.join("work/agent.sh"), script).expect("written");
        for steps in ["5", "60"] {
            std::fs::create_dir_all(tree.join(format!("s{steps}"))).expect("a directory");
            let text = format!("---\nagent: sh work/agent.sh {steps}\n---\nWork.\n");
            std::fs::write(tree.join(format!("s{steps}/RALPH.md")), text).expect("written");
        }
        git(&tree, &["init", "--quiet", "-b", "main"]);
        git(&tree, &["add", "."]);
        git(&tree, &["commit", "--quiet", "-m", "loops"]);
        git(self.dir.path(), &["clone", "--quiet", "--bare", "tree", "repo.git"]);
    }

    pub fn head(&self) -> String {
        git(&self.repository(), &["rev-parse", "main"]).trim().to_owned()
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
        }
    }

    pub fn submit(&self, job: &str, path: &str) {
        let (id, job) = (id(job), self.job(path));
        self.block_on(|client| async move {
            submit::job(&client, &id, &job, Wall(0)).await.expect("queued");
        });
    }

    /// Starts a worker. It connects to this port.
    pub fn start_worker_at(&mut self, worker: &str, port: u16, flags: &[&str]) {
        let home = self.dir.path().join(worker);
        std::fs::create_dir_all(&home).expect("a home");
        let log = std::fs::File::create(self.dir.path().join(format!("{worker}.log"))).expect("a log");
        let child = Command::new(env!("CARGO_BIN_EXE_dogwatch"))
            .args(["work", &self.line(worker, port).to_string(), "--allow-repo", "*", "--lease"])
            .arg(format!("{LEASE}s"))
            .args(flags)
            .env("HOME", &home)
            .env("XDG_STATE_HOME", home.join("state"))
            .env("XDG_CONFIG_HOME", home.join("config"))
            .env(crate::kit::MARK, self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.workers.push(Working { child: child.expect("a worker"), name: worker.to_owned() });
    }

    pub fn start_worker(&mut self, worker: &str) {
        self.start_worker_at(worker, self.port, &[]);
    }

    pub fn signal(&self, worker: &str, signal: Signal) {
        let working = self.workers.iter().find(|working| working.name == worker).expect("a worker");
        kill_process(Pid::from_child(&working.child), signal).expect("a signal");
    }

    /// Waits for the end of a worker's process.
    pub fn wait(&mut self, worker: &str) -> std::process::ExitStatus {
        let at = self.workers.iter().position(|working| working.name == worker).expect("a worker");
        self.workers.remove(at).child.wait().expect("an end")
    }

    pub fn record(&self, job: &str) -> JobRecord {
        let key = id(job).to_string();
        let stored = self.block_on(|client| async move { client.get(names::KV_JOBS, &key).await });
        // The server may be down.
        let stored = stored.ok().flatten();
        stored.and_then(|stored| serde_json::from_slice(&stored.payload).ok()).unwrap_or_default()
    }

    pub fn until_state(&self, job: &str, state: JobState) -> JobRecord {
        until(&format!("{job} is {}", state.as_str()), || self.record(job).state == state);
        self.record(job)
    }

    /// Waits until an agent of the job works, and returns the worker that owns it.
    pub fn until_works(&self, job: &str, ticks: usize) -> String {
        until(&format!("an agent works on {job}"), || {
            self.ticks(job).values().any(|(count, ..)| *count >= ticks)
        });
        // The journal reaches the server a little later.
        until(&format!("the record of {job} names its run"), || self.record(job).run.is_some());
        self.record(job).owner
    }

    /// Returns the agents that worked on a job, by pid: marks, first and last time, and whether it came to its end.
    pub fn ticks(&self, job: &str) -> BTreeMap<u32, (usize, f64, f64, bool)> {
        let text = std::fs::read_to_string(self.marks_file()).unwrap_or_default();
        let mut all = BTreeMap::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, name, pid, at] = words.as_slice() else { continue };
            if *name != id(job).to_string() {
                continue;
            }
            let (pid, at): (u32, f64) = (pid.parse().expect("a pid"), at.parse().expect("a time"));
            let entry = all.entry(pid).or_insert((0, at, at, false));
            entry.0 += 1;
            entry.2 = at;
            entry.3 |= *what == "end";
        }
        all
    }

    /// Asserts that no two agents worked on the job at once and that one of them came to its end.
    pub fn assert_once(&self, job: &str) {
        let agents = self.ticks(job);
        let mut spans: Vec<(f64, f64)> = agents.values().map(|(_, first, last, _)| (*first, *last)).collect();
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        for pair in spans.windows(2) {
            assert!(pair[0].1 < pair[1].0, "{job}: two agents worked at once: {agents:?}\n{}", self.logs());
        }
        let ends = agents.values().filter(|(.., ended)| *ended).count();
        assert_eq!(ends, 1, "{job}: {agents:?}\n{}", self.logs());
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
            if path.extension().is_some_and(|end| end == "log") && !path.ends_with("nats.log") {
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
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

pub fn git(dir: &Path, args: &[&str]) -> String {
    let out = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@localhost"])
        .args(args)
        .current_dir(dir)
        .output()
        .expect("git runs");
    assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}
